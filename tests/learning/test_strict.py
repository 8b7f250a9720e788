"""A strict update: −ηĝ itself, without noise of its own, and never further from its neighbour's than is charged for."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choral.core.codec import quantise, sensitivity
from choral.core.errors import PlanError
from choral.core.plan import Plan
from choral.learning import local, models
from choral.learning.recipe import Recipe, TracedNumbers
from choral.learning.trainer import LocalTraining
from tests.reference import step

ETA, CLIP, GRID = 0.5, 1.0, 2.0**-20
ROWS = (1, 6, 40)


def own_loss(tree, row, label):
    return jnp.sum((jnp.tanh(row @ tree["in"]) - label) ** 2) + jnp.sum(tree["out"] ** 2) * label


MODELS = {
    "logistic": models.logistic(4, 3),
    "linear": models.linear(4),
    "mlp": models.mlp(4, (5,), 3),
    "own": models.own(  # no dense stack: every gradient by itself
        lambda _seed: {"in": np.ones((4, 2), np.float32), "out": np.ones(3, np.float32)},
        own_loss,
        lambda tree, rows: rows @ tree["in"],
        features=4,
        classes=2,
    ),
}


def plan(rows, **changes):
    given = {
        "devices": 4, "cohort": 4, "rounds": 5, "rows": rows, "batch": rows, "step_size": ETA, "clip": CLIP,
        "noise": 0.1, "sampling": "partition", "law": "discrete_gaussian",
    }  # fmt: skip
    return Plan(**{**given, **changes})


def update(model, features, labels, parameters):
    """What a deployed device computes; with one order of its rows, so that neighbours have the same batches."""
    trainer = LocalTraining(model=model, plan=plan(len(labels)), features=features, labels=labels, order=7)
    return trainer.update(parameters)


def table(model, count, draw, scale):
    features = (draw.normal(size=(count, 4)) * scale).astype(np.float32)
    return features, draw.integers(0, model.classes or 5, count).astype(np.int32)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32), count=st.sampled_from(ROWS), scale=st.sampled_from([1e-3, 1.0, 1e4, 1e18]),
    size=st.sampled_from([0.0, 1.0, 1e3, 2.0**24]), other=st.sampled_from([-1e18, -1.0, 0.0, 1.0, 1e18, np.inf]),
)  # fmt: skip
def test_one_replaced_record_never_moves_the_integers_further_than_is_charged_for(
    name, seed, count, scale, size, other
):
    """Rule S6's l2, with float32's own errors, on the deployed path: one dither, two tables that differ in a row."""
    model, draw = MODELS[name], np.random.default_rng(seed)
    features, labels = table(model, count, draw, scale)
    changed, parameters = features.copy(), (draw.normal(size=model.size) * size).astype(np.float32)
    changed[draw.integers(count)] *= np.float32(other)
    dither = (draw.integers(0, 2**16, model.size) * 2.0**-16).astype(np.float32)
    found = [update(model, rows, labels, parameters) for rows in (features, changed)]
    for one in found:
        assert np.linalg.norm(one.astype(np.float64)) <= plan(count).mechanism.longest(plan(count), model.size)
    first, second = (quantise(one, dither, GRID).astype(np.int64) for one in found)
    assert np.linalg.norm(first - second) <= sensitivity(plan(count), model.size, GRID)


@pytest.mark.parametrize("count", ROWS)
def test_the_bound_is_nearly_reached_by_a_record_that_is_turned_around(count):
    """A linear model's gradient is (x·w − y)(x, 1): labels of ±10^6 push by exactly ±G along (x, 1)."""
    model, features = MODELS["linear"], np.ones((count, 4), np.float32)
    labels = np.full(count, 10**6, np.int32)
    turned, dither = labels.copy(), np.full(model.size, 0.5, np.float32)
    turned[0] *= -1
    first, second = (
        quantise(update(model, features, own, model.start(0)), dither, GRID).astype(np.int64)
        for own in (labels, turned)
    )
    moved, most = np.linalg.norm(first - second), sensitivity(plan(count), model.size, GRID)
    assert 0.999 * most < moved <= most


def test_an_update_is_the_papers_step_without_noise_whatever_the_size_of_the_model():
    """In double precision by tests/reference/step.py; taken as θ' − θ at 2^24 it would be a multiple of 2."""
    model, draw = MODELS["linear"], np.random.default_rng(3)
    features, labels = table(model, 40, draw, 1.0)
    for size in (1.0, 2.0**24):
        start = (draw.normal(size=model.size) * size).astype(np.float32)
        noises = [np.zeros(model.size)]
        wanted = step.noisy_steps(
            model.widths, model.link, start, features, labels, [range(40)], noises,
            step_size=ETA, clip=CLIP, spread=0.0, batch=40,
        )  # fmt: skip
        assert np.abs(update(model, features, labels, start) - wanted).max() < 1e-5


def test_the_sum_of_many_rows_is_as_near_to_the_exact_one_as_is_counted():
    """4,000 clipped rows of one sign, exact in double precision: within (d + 64)u + (2·64 + 6)u of γG together."""
    model, count, draw = MODELS["linear"], 4000, np.random.default_rng(4)
    features = draw.uniform(0.1, 1, size=(count, 4)).astype(np.float32)
    labels = np.full(count, 10**6, np.int32)
    rows = np.concatenate([features.astype(np.float64), np.ones((count, 1))], axis=1)
    exact = ETA * CLIP * (rows / np.linalg.norm(rows, axis=1, keepdims=True)).sum(axis=0) / count
    found = update(model, features, labels, model.start(0))
    assert np.linalg.norm(found - exact) <= ETA * CLIP * (model.size + 64 + 2 * 64 + 6) * 2.0**-24


@pytest.mark.parametrize(("count", "side"), [(1, 1), (2, 2), (40, 7), (49, 7), (50, 8)])
def test_rows_are_added_in_pieces_of_their_square_root(count, side, monkeypatch):
    """What `Mechanism.longest` counts on: no more than ⌈√γ⌉ pieces of ⌈√γ⌉ rows, 2⌈√γ⌉ roundings on any way."""
    model, seen = MODELS["logistic"], []
    real = local.clipped_sum
    monkeypatch.setattr(
        local, "clipped_sum", lambda *args, **named: seen.append(args[2].shape[0]) or real(*args, **named)
    )
    features, labels = table(model, count, np.random.default_rng(count), 1.0)
    tree, rows = model.unravel(jnp.asarray(model.start(0))), (jnp.asarray(features), jnp.asarray(labels))
    recipe = Recipe.of(plan(count))
    numbers, finite = TracedNumbers.of(model, recipe, count), local.Shortcuts(finite=True)
    sum_of = partial(local.batch_sum, model, recipe, numbers, finite, tree, (*rows, None))
    program = jax.make_jaxpr(lambda batch: sum_of(batch, jnp.int32(count)))(jnp.arange(count))
    loops = [one.params["length"] for one in program.eqns if one.primitive.name == "scan"]
    assert side == math.ceil(math.sqrt(count))
    assert (set(seen), loops or [1]) == ({min(side, count)}, [math.ceil(count / side)])


def test_only_the_rows_that_count_are_added():
    model, draw = MODELS["logistic"], np.random.default_rng(8)
    features, labels = table(model, 10, draw, 1.0)
    tree = model.unravel(jnp.asarray(model.start(0)))
    batch = jnp.asarray([3, 1, 4, 0, 0, 0])
    recipe = Recipe.of(plan(6))
    given = (
        model,
        recipe,
        TracedNumbers.of(model, recipe, 6),
        local.Shortcuts(finite=True),
        tree,
        (jnp.asarray(features), jnp.asarray(labels), None),
    )
    three = local.batch_sum(*given, batch, 3)
    used = jnp.ones(3, bool)
    plain = local.clipped_sum(model, tree, features[batch[:3]], jnp.asarray(labels)[batch[:3]], used, CLIP)
    assert np.allclose(model.ravel(three), model.ravel(plain), atol=1e-6)


@pytest.mark.parametrize("wrong", [{"steps": 2}, {"noise": 0.1}, {"clip": math.inf}, {"update_clip": 1.0}])
def test_a_strict_recipe_is_one_clipped_step_without_noise_of_its_own(wrong):
    given = {"steps": 1, "batch": 4, "step_size": 0.5, "clip": 1.0, "strict": True}
    Recipe(**given)
    with pytest.raises(PlanError, match="CH204"):
        Recipe(**given | wrong)


def test_a_plan_without_noise_has_no_strict_recipe():
    assert Recipe.of(plan(4)).strict
    assert not Recipe.of(plan(4, noise=0.0)).strict
    assert not Recipe.of(plan(4, law="gaussian")).strict
