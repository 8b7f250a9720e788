"""The convolutional network: its closed form beside gradients of single rows, one record's part, and whole runs."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from choral.config import job_of
from choral.core.errors import ConfigError
from choral.learning import models
from choral.learning.clipped import general_clipped_sum, layered_clipped_sum
from choral.learning.local import local_update
from choral.learning.models.layered import patches, pooled
from choral.learning.recipe import Recipe, sensitivity_factor
from choral.run.planning import settle
from choral.run.runs import Run
from tests.run.small import SETTINGS

DRAW = np.random.default_rng(5)
SMALL = models.cnn((8, 8), (2, 3, 5), 2)
IMAGES = DRAW.uniform(-1, 1, (240, 8, 8)).astype(np.float32)
LABELS = (IMAGES[:, :4].sum(axis=(1, 2)) > IMAGES[:, 4:].sum(axis=(1, 2))).astype(int)


@pytest.mark.parametrize(
    "model",
    [
        models.cnn((16, 17, 3), (2, 3), 4),
        pytest.param(SMALL, marks=pytest.mark.long),
        pytest.param(models.cnn((5, 4), (2, 2, 3), 0), marks=pytest.mark.long),
    ],
    ids=["in colour, 5 x 5", "8 x 8", "numbers"],
)
def test_the_closed_form_is_the_clipped_sum_of_gradients_of_single_rows(model):
    rows = DRAW.normal(size=(7, *model.row)).astype(np.float32)
    labels = jnp.asarray(DRAW.integers(0, model.classes, 7) if model.classes else DRAW.normal(size=7), jnp.float32)
    labels = labels.astype(jnp.int32) if model.classes else labels
    tree, used = model.unravel(jnp.asarray(model.start(1))), jnp.arange(7) != 3

    def sums(rows):
        mine = layered_clipped_sum(model, model.layered, tree, rows, labels, used, 0.7)
        return model.ravel(mine), model.ravel(general_clipped_sum(model, tree, rows, labels, used, 0.7))

    closed, mapped = jax.jit(sums)(rows)
    assert float(jnp.linalg.norm(closed)) > 0.5
    assert np.asarray(closed) == pytest.approx(np.asarray(mapped), abs=2e-6)
    spoilt = rows.copy()
    spoilt[3] = np.nan  # not used
    assert np.array_equal(jax.jit(sums)(spoilt)[0], closed)


def test_patches_times_a_matrix_are_a_convolution():
    images = DRAW.normal(size=(2, 6, 7, 3)).astype(np.float32)
    weight = DRAW.normal(size=(5 * 5 * 3, 4)).astype(np.float32)
    kernel = weight.reshape(5, 5, 3, 4)
    numbers = ("NHWC", "HWIO", "NHWC")
    wanted = lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=numbers)
    assert np.asarray(patches(images, 5) @ weight) == pytest.approx(np.asarray(wanted), abs=1e-4)
    assert pooled(jnp.asarray(images)).shape == (2, 3, 3, 3)


def test_one_record_moves_the_sum_by_no_more_than_its_clip_and_what_float32_adds():
    """Every row of one piece pushes the same way; with and without the record, the sum differs by G at most."""
    count, clip = 96, 0.5
    rows = jnp.asarray(IMAGES[:1] * np.linspace(0.5, 4, count, dtype=np.float32)[:, None, None])
    recipe = Recipe(steps=1, batch=count, step_size=1.0, clip=clip)
    place = np.arange(count, dtype=np.int32)[None]
    absent = np.where(place == 40, -1, place).astype(np.int32)
    start, labels, keys = jnp.asarray(SMALL.start(2)), jnp.ones(count, jnp.int32), jnp.zeros((2, 4), jnp.uint32)
    update = jax.jit(lambda batch: local_update(SMALL, recipe, start, rows, labels, batch, np.int32([count]), keys))
    moved = np.linalg.norm(np.float64(update(place)) - np.float64(update(absent))) * count / clip
    assert 0.99 < moved <= sensitivity_factor(SMALL, count)
    assert sensitivity_factor(SMALL, count) < 1.001


def test_a_simulation_and_a_rehearsal_of_the_network_have_the_same_integers():
    job = job_of(**{**SETTINGS, "rounds": 1}, model="cnn", hidden=[2, 3, 5])
    studies = [settle(job, (IMAGES, LABELS)) for _ in range(2)]
    assert studies[0].model is studies[1].model  # and so compiled once
    found = [Run(kind, one).finish() for kind, one in zip(("simulation", "rehearsal"), studies, strict=True)]
    assert found[0].parameters.tobytes() == found[1].parameters.tobytes()
    assert found[0].record.about.model.hidden == (2, 3, 5)
    assert found[0].privacy.against_everyone.rule == "S5"


@pytest.mark.long
def test_without_noise_it_learns_what_depends_on_where_pixels_are():
    job = job_of(noise=0.0, devices=2, cohort=2, rounds=6, local_steps=20, batch=32, step_size=0.3, clip=5.0, seed=1,
                 model="cnn", hidden=[4, 4, 8])  # fmt: skip
    rows = np.random.default_rng(0).normal(0, 0.3, (400, 8, 8)).astype(np.float32)
    labels = np.arange(400) % 2
    rows[labels == 1, 2:4, 2:4] += 1.0
    assert Run("simulation", settle(job, (rows, labels))).finish().test["accuracy"] > 0.95


@pytest.mark.parametrize(
    ("shape", "hidden", "message"),
    [((30,), (2, 2), "CH108 .* rows of 30"), ((3, 9), (2, 2), "CH108 .* 3 × 9"), ((8, 8), (4,), r"hidden = \[4\]")],
)
def test_images_and_layers_that_do_not_suit_it_are_refused(shape, hidden, message):
    with pytest.raises(ConfigError, match=message):
        models.cnn(shape, hidden, 2)


def test_sizes_are_those_of_its_matrices():
    assert models.cnn((28, 28), (6, 16, 120, 84), 10).size == sum(
        (fan + 1) * out for fan, out in ((25, 6), (150, 16), (784, 120), (120, 84), (84, 10))
    )
    assert SMALL.held(32) == max(SMALL.size, 32 * 64 * 9) and math.prod(SMALL.row) == SMALL.features
