"""JAX, PyTorch and noise once against the reference: the same rows, the same Gaussians, float64 by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from choral.core.codec import Codec
from choral.core.mechanisms import movement
from choral.core.plan import Plan
from choral.engine.compiled import CompiledEngine
from choral.learning import models
from choral.learning.batches import EMPTY, Batches
from choral.learning.once import LocalWork, local_work, with_noise
from choral.learning.recipe import Recipe, noise_on_sum, sensitivity_factor
from choral.learning.rounding import in_clipping
from choral.learning.trainer import JaxTrainer
from choral.tables.records import Records
from tests.reference import step

MODELS = {
    "logistic": models.logistic(5, 3),
    "two classes": models.logistic(5),
    "binary": models.binary(5),
    "linear": models.linear(5),
    "network": models.mlp(5, (6, 4), 3),
}
ROWS, ROOM, STEPS = 30, 8, 4
RECIPE = Recipe(steps=STEPS, batch=6, step_size=0.3, clip=0.4, noise=0.2)
FLOAT32 = 1e-5  # of an update, as in the other tests of float32's own errors
DRAW = np.random.default_rng(7)
FEATURES = DRAW.normal(size=(ROWS, 5)).astype(np.float32)
CHOSEN = [DRAW.choice(ROWS, size, replace=False) for size in (6, 8, 0, 5)]


def labels_of(model):
    draw = np.random.default_rng(3)
    return draw.integers(0, model.classes, ROWS).astype(np.int32) if model.classes else draw.uniform(-1, 1, ROWS)


def start_of(model):
    return (np.random.default_rng(5).normal(size=model.size) * 0.5).astype(np.float32)


def gaussians(model, steps=STEPS, seed=1):
    return np.random.default_rng(seed).normal(size=(steps + 1, model.size)).astype(np.float32)


def batches_of(chosen):
    rows = np.full((1, len(chosen), ROOM), EMPTY, np.int32)
    for number, some in enumerate(chosen):
        rows[0, number, ROOM - len(some) :] = some  # empty places come first
    return Batches(rows=rows, counts=np.full((1, len(chosen)), ROOM, np.int32))


def trained(model, recipe, drawn, *, chosen=CHOSEN, start=None, trainer=JaxTrainer):
    made = trainer(model, recipe, FEATURES, labels_of(model).astype(np.int32 if model.classes else np.float32))
    return made.train(start_of(model) if start is None else start, batches_of(chosen[: recipe.steps]), drawn)


def by_hand(model, recipe, drawn, *, chosen=CHOSEN, start=None):
    return step.noisy_steps(
        model.widths, model.link, start_of(model) if start is None else start, FEATURES, labels_of(model),
        chosen[: recipe.steps], drawn[: recipe.steps].astype(np.float64), step_size=recipe.step_size,
        clip=recipe.clip, spread=noise_on_sum(model, recipe, ROOM), batch=recipe.batch, weight=recipe.weight,
    )  # fmt: skip


def same(found, expected):
    assert np.abs(expected).max() > 0.01
    assert np.abs(found - expected).max() <= FLOAT32 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("name", MODELS)
def test_jax_takes_the_noisy_steps_of_the_reference(name):
    model = MODELS[name]
    same(trained(model, RECIPE, gaussians(model)), by_hand(model, RECIPE, gaussians(model)))


@pytest.mark.parametrize("changes", [{"steps": 1}, {"weight": 1.5}, {"noise": 0.0, "clip": math.inf}], ids=str)
def test_one_step_a_heavier_device_and_steps_without_noise_are_those_of_the_reference(changes):
    model, recipe = MODELS["network"], replace(RECIPE, **changes)
    recipe = replace(recipe, rooms=(ROOM,) if "weight" in changes else ())
    same(trained(model, recipe, gaussians(model)), by_hand(model, recipe, gaussians(model)))


def test_the_noise_of_a_step_is_the_plans_and_what_float32_may_add():
    model = MODELS["network"]
    assert noise_on_sum(model, RECIPE, ROOM) == 6 * 0.2 * sensitivity_factor(model, ROOM)
    assert 1 < sensitivity_factor(model, ROOM) < 1.001


def test_a_strict_step_has_no_noise_of_its_own():
    model, recipe = MODELS["network"], replace(RECIPE, steps=1, noise=0.0, strict=True)
    same(trained(model, recipe, gaussians(model)), by_hand(model, recipe, 0 * gaussians(model)))


CLIPPED = Recipe(steps=STEPS, batch=6, step_size=0.3, update_clip=0.25, update_noise=0.05)


@pytest.mark.parametrize("clip", [0.25, 50.0], ids=["shortened", "whole"])
@pytest.mark.parametrize("name", ["logistic", "network"])
def test_jax_clips_an_update_as_the_reference_does(name, clip):
    model, recipe = MODELS[name], replace(CLIPPED, update_clip=clip)
    drawn, spread = gaussians(model), recipe.update_noise * (1 + in_clipping(model.sizes))
    plain = by_hand(model, recipe, drawn)
    expected = step.clipped_update(plain, clip=clip, spread=spread, drawn=drawn[-1])
    assert (np.linalg.norm(plain) > clip) == (clip < 1)
    same(trained(model, recipe, drawn), expected)


@pytest.mark.parametrize("clip", [0.3, 40.0], ids=["beyond", "within"])
def test_jax_counts_who_is_within_an_adaptive_clip_as_the_reference_does(clip):
    model = MODELS["network"]
    counting = replace(model, fixed=model)
    recipe = replace(CLIPPED, update_clip=1.0, adaptive=True)
    drawn = np.random.default_rng(1).normal(size=(STEPS + 1, model.size + 1)).astype(np.float32)
    start = np.append(start_of(model), np.log(clip)).astype(np.float32)
    spread, plain = recipe.update_noise * (1 + in_clipping(model.sizes)), by_hand(model, recipe, drawn[:, :-1])
    made = JaxTrainer(counting, recipe, FEATURES, labels_of(model).astype(np.int32))
    expected = step.counted_update(plain, clip=math.exp(start[-1]), spread=spread, drawn=drawn[-1])
    same(made.train(start, batches_of(CHOSEN), drawn), expected)


ONCE = Plan(
    devices=4, cohort=4, rounds=2, rows=ROWS, batch=ROWS, local_steps=9, step_size=0.5, clip=0.6, noise=0.02,
    sampling="partition", noise_is_added="once", row_length=2.0,
)  # fmt: skip


@pytest.mark.parametrize("changes", [{}, {"pull": 3.0}, {"parts": 3}, {"batch": 12, "rows": 12}], ids=str)
@pytest.mark.parametrize("name", ["logistic", "two classes", "binary", "linear"])
def test_noise_once_is_the_reference_within_the_share_that_its_noise_is_wider_for(name, changes):
    """e·Δ is what docs/accounting.md proves that the rounding of float64 adds between two tables."""
    model, plan = MODELS[name], replace(ONCE, **changes)
    work, labels = LocalWork.of(plan), labels_of(MODELS[name])
    labels = labels.astype(np.int32 if model.classes else np.float32)
    told = {"time": plan.local_time, "divisor": plan.batch, "row_length": plan.mechanism.row_length}
    how = {"pull": plan.mechanism.pull or math.inf, "parts": plan.mechanism.parts}
    steps = step.steps_of(model.link, ROWS, **told, least=plan.local_steps, **how)
    assert steps == work.steps(model, ROWS)
    expected = step.noise_once(
        model.link, start_of(model).reshape(6, -1), FEATURES, labels, steps=steps, **told, clip=plan.clip,
        bound=plan.mechanism.upload_bound(plan), **how,
    )  # fmt: skip
    found = local_work(model, work, start_of(model), FEATURES, labels)
    delta = step.movement(
        steps=plan.local_steps, time=plan.local_time, divisor=plan.batch, clip=plan.clip, pull=how["pull"]
    )
    assert movement(plan) == pytest.approx(delta)
    assert np.linalg.norm(expected) > delta
    assert np.linalg.norm(found - expected) <= work.rounding(model, ROWS) * delta


def test_an_upload_has_its_noise_once_and_what_rounding_adds():
    model, clean, drawn = MODELS["logistic"], np.linspace(-1, 1, 18), np.random.default_rng(2).normal(size=18)
    wider = LocalWork.of(ONCE).widening(model, ROWS)
    assert with_noise(model, ONCE, ROWS, clean, drawn) == pytest.approx(clean + 0.02 * drawn, rel=1e-6)
    assert 1 < wider < 1 + 1e-6


PLAN = Plan(devices=5, cohort=4, rounds=3, rows=12, batch=5, local_steps=2, step_size=0.4, clip=0.5, noise=0.1)


def test_a_round_moves_the_model_by_the_mean_of_its_devices():
    model, records = MODELS["network"], Records.of(
        [(str(n), FEATURES[n : n + 20], labels_of(MODELS["network"])[n : n + 20]) for n in range(5)], classes=3
    )  # fmt: skip
    codec = Codec(grid=2.0**-20, largest=2**22, cohort=4, word_bits=64)
    made, other = (CompiledEngine(model=model, records=records, plan=PLAN, codec=codec, seed=6) for _ in range(2))
    theta, cohort = start_of(model), np.array([0, 1, 3, 4])
    updates = other.updates(theta, 1, cohort)
    totals = [step.integers(one, other.dither(1, n), codec.grid) for n, one in zip(cohort, updates, strict=True)]
    found = made.train(theta, 1, cohort)
    assert found.total.tolist() == np.sum(totals, axis=0).tolist()
    exact = step.moved(theta.astype(np.float64), totals, codec.grid)
    (there,) = [one.parameters for one in other.rounds(theta, [cohort], first=1)]
    for theirs in (made.apply(theta, found.total, found.count), there):
        assert theirs == pytest.approx(exact, rel=2**-23, abs=2**-25)
