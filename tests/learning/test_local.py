import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choral.core.errors import PlanError
from choral.learning import models, noise
from choral.learning.clipped import (
    clip_factor,
    dense_clipped_sum,
    dense_factor,
    general_clipped_sum,
    if_any,
    lengths_of,
    norm,
)
from choral.learning.local import Shortcuts, local_update
from choral.learning.recipe import Recipe, sensitivity_factor
from choral.learning.rounding import in_clipping
from tests.cases import cases
from tests.reference import step as reference

STACKS = {
    "logistic": models.logistic(4, 3),
    "binary": models.binary(4),
    "linear": models.linear(4),
    "mlp": models.mlp(4, (5,), 3),
    "deep": models.mlp(4, (5, 3), 2),
}


# Compiled once for each shape; op by op, as `disable_jit` would have it, noise is most of the time of these tests.
gaussians = jax.jit(noise.normal, static_argnums=(1, 2))


def normal(key, shape, start=0):
    with jax.disable_jit(False):
        return gaussians(key, shape, start)


def rows_for(model, count, draw, scale=1.0):
    features = (draw.normal(size=(count, model.features)) * scale).astype(np.float32)
    return features, draw.integers(0, model.classes or 5, count).astype(np.int32)


def parameters_for(model, draw):
    return (draw.normal(size=model.size) * 0.5).astype(np.float32)


def random_case(number):
    """One of 50 random plans: model, recipe, records, batches with padding, and keys."""
    draw = np.random.default_rng(number)
    model = list(STACKS.values())[number % len(STACKS)]
    steps, room, batch = 3, 8, int(draw.integers(2, 8))
    recipe = Recipe(
        steps=steps,
        batch=batch,
        step_size=float(draw.uniform(0.01, 0.5)),
        clip=float(draw.choice([0.1, 0.7, 3.0])),
        noise=float(draw.choice([0.0, 0.05, 0.3])),
    )
    features, labels = rows_for(model, 20, draw, float(draw.choice([0.1, 1.0, 5.0])))
    batches, counts = draw.integers(0, 20, (steps, room)), draw.integers(0, room + 1, steps)
    keys = draw.integers(0, 2**32, (steps + 1, 4), dtype=np.uint32)
    return model, recipe, parameters_for(model, draw), features, labels, batches, counts, keys


def by_hand(model, recipe, start, features, labels, batches, counts, keys):
    noises = [np.asarray(normal(jnp.asarray(key), (model.size,)), dtype=np.float64) for key in keys[:-1]]
    return reference.noisy_steps(
        model.widths,
        model.link,
        start,
        features,
        labels,
        [batch[:count] for batch, count in zip(batches, counts, strict=True)],
        noises,
        step_size=recipe.step_size,
        clip=recipe.clip,
        spread=recipe.batch * recipe.noise * sensitivity_factor(model, batches.shape[1]),
        batch=recipe.batch,
    )


@pytest.mark.parametrize("number", cases(50, quick=12))
def test_a_local_update_is_the_papers_algorithm_in_double_precision_to_1e_5(number):
    model, recipe, start, *rest = random_case(number)
    with jax.disable_jit():
        found = local_update(model, recipe, jnp.asarray(start), *map(jnp.asarray, rest), draw=normal)
    expected = by_hand(model, recipe, start, *rest)
    assert np.abs(np.asarray(found) - expected).max() <= 1e-5 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("number", range(4))
def test_a_compiled_update_with_a_rare_tail_is_the_papers_algorithm_too(number):
    model, recipe, start, *rest = random_case(number)
    found = jax.jit(partial(local_update, model, recipe, shortcuts=Shortcuts(usual=3)))(start, *rest)
    assert np.abs(np.asarray(found) - by_hand(model, recipe, start, *rest)).max() <= 1e-5


def test_a_rare_tail_changes_no_bit_of_lanes_that_do_not_use_it():
    model, recipe, start, features, labels, batches, _, keys = random_case(3)
    update = partial(
        local_update, model, recipe, *map(jnp.asarray, (start, features, labels)), shortcuts=Shortcuts(usual=3)
    )
    lanes = jax.jit(jax.vmap(update, in_axes=(0, 0, None)))
    both = np.stack([batches, batches])
    short, long = [3, 2, 3], [8, 8, 8]
    alone = np.asarray(lanes(both, np.int32([short, short]), keys))
    beside = np.asarray(lanes(both, np.int32([short, long]), keys))
    assert (alone[0] == beside[0]).all()
    assert (alone[1] != beside[1]).any()


@pytest.mark.parametrize("name", ["binary", "mlp", "deep"])
@pytest.mark.parametrize("clip", [0.5, math.inf])
def test_the_closed_form_equals_per_example_gradients_to_1e_6(name, clip):
    model, draw = STACKS[name], np.random.default_rng(5)
    features, labels = rows_for(model, 32, draw, 2.0)
    tree = model.unravel(jnp.asarray(parameters_for(model, draw)))
    used = jnp.asarray(draw.random(32) < 0.8)
    closed, general = (
        model.ravel(jax.jit(partial(form, model, clip=clip))(tree, features, labels, used))
        for form in (dense_clipped_sum, general_clipped_sum)
    )
    assert float(jnp.abs(closed - general).max()) <= 1e-6 * float(jnp.abs(general).max() + 1)


@pytest.mark.parametrize("hidden", [(), (5,)])
def test_two_opposite_outputs_have_the_sum_of_both_and_exact_negatives(hidden):
    model, draw = models.mlp(6, hidden, 2) if hidden else models.logistic(6), np.random.default_rng(7)
    features, labels = rows_for(model, 40, draw, 2.0)
    tree = model.unravel(jnp.asarray(parameters_for(model, draw)))
    used = jnp.asarray(draw.random(40) < 0.8)
    found = jax.jit(partial(dense_clipped_sum, model, clip=0.3))(tree, features, labels, used)
    general = model.ravel(jax.jit(partial(general_clipped_sum, model, clip=0.3))(tree, features, labels, used))
    assert float(jnp.abs(model.ravel(found) - general).max()) <= 1e-6 * float(jnp.abs(general).max() + 1)
    weights, bias = found[-1]
    assert (weights[:, 0] == -weights[:, 1]).all() and bias[0] == -bias[1]


def test_lengths_that_are_kept_have_the_bits_of_those_in_a_step_and_those_of_float64():
    draw = np.random.default_rng(2)
    rows = (draw.normal(size=(300, 7)) * draw.choice([1e-30, 1.0, 1e6, 1e30], (300, 1))).astype(np.float32)
    exact = np.sqrt(1 + np.square(rows.astype(np.float64)).sum(axis=1)).astype(np.float32)
    assert (np.asarray(jax.jit(lengths_of)(rows)) == exact).all()
    assert (np.asarray(jax.jit(jax.vmap(lengths_of))(rows.reshape(3, 100, 7))).ravel() == exact).all()
    assert np.isinf(np.asarray(lengths_of(jnp.float32([[math.inf], [math.nan], [2.0**126]])))).all()


def test_an_update_from_lengths_that_are_kept_has_the_bits_of_one_without():
    model, recipe, start, features, *rest = random_case(4)
    kept = jax.jit(lengths_of)(features)
    with_lengths = jax.jit(partial(local_update, model, recipe))(start, features, *rest, lengths=kept)
    assert (with_lengths == jax.jit(partial(local_update, model, recipe))(start, features, *rest)).all()


ADVERSARIAL = models.mlp(3, (4,), 2)
ADVERSARIAL_TREE = ADVERSARIAL.unravel(jnp.asarray(parameters_for(ADVERSARIAL, np.random.default_rng(8))))
NASTY = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e-45,
    1e-38,
    1e-20,
    1e10,
    -1e18,
    3e19,
    1e30,
    8e37,
    3.4e38,
    math.inf,
    -math.inf,
    math.nan,
]


@partial(jax.jit, static_argnames=("form", "clip"))
def contributions(form, features, labels, clip):
    """What each row alone adds to the sum, as flat vectors."""

    def alone(row, label):
        return ADVERSARIAL.ravel(form(ADVERSARIAL, ADVERSARIAL_TREE, row[None], label[None], jnp.array([True]), clip))

    return jax.vmap(alone)(features, labels)


@pytest.mark.parametrize("form", [dense_clipped_sum, general_clipped_sum])
@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(
        st.sampled_from(NASTY) | st.floats(width=32, allow_nan=True, allow_infinity=True), min_size=18, max_size=18
    )
)
def test_no_row_whatever_it_holds_adds_more_than_the_clip(form, values):
    features = np.array(values, dtype=np.float32).reshape(6, 3)
    labels = np.array([0, 1, 0, 1, 0, 1])
    for clip in (0.5, 2.0):
        added = np.asarray(contributions(form, features, labels, clip), dtype=np.float64)
        assert (np.linalg.norm(added, axis=1) <= clip * (1 + 1e-5)).all()  # false for NaN too


@settings(max_examples=30, deadline=None)
@given(copies=st.integers(0, 5), bad=st.sampled_from([math.inf, math.nan, 3.4e38, 1e25]))
def test_a_bad_row_and_duplicates_leave_the_other_rows_as_they_are(copies, bad):
    good = np.array([[1.0, -2.0, 0.5]], dtype=np.float32)
    features = np.concatenate([np.repeat(good, copies, axis=0), np.full((6 - copies, 3), bad, dtype=np.float32)])
    added = np.asarray(contributions(dense_clipped_sum, features, np.zeros(6, dtype=np.int32), 0.5))
    alone = np.asarray(contributions(dense_clipped_sum, np.repeat(good, 6, axis=0), np.zeros(6, np.int32), 0.5))
    assert (added[:copies] == alone[:copies]).all()
    tree = dense_clipped_sum(
        ADVERSARIAL, ADVERSARIAL_TREE, jnp.asarray(features), jnp.zeros(6, jnp.int32), jnp.ones(6, bool), 0.5
    )
    assert np.linalg.norm(np.asarray(ADVERSARIAL.ravel(tree))) <= 0.5 * 6 * (1 + 1e-5)


@pytest.mark.parametrize("size", [1e-30, 1e-10, 1.0, 1e18, 1e30])
def test_norms_neither_overflow_nor_underflow(size):
    # 3-4-12-13, scaled.
    assert float(norm(jnp.float32([3 * size, 4 * size, 12 * size]))) == pytest.approx(13 * size, rel=1e-6)


def test_a_large_but_finite_row_is_clipped_to_the_clip_and_not_dropped():
    model = models.linear(3)
    tree = model.unravel(jnp.zeros(model.size))
    row, label = jnp.full((1, 3), 1e25, jnp.float32), jnp.array([5])
    added = model.ravel(dense_clipped_sum(model, tree, row, label, jnp.array([True]), 2.0))
    assert float(jnp.linalg.norm(added)) == pytest.approx(2.0, rel=1e-5)


@partial(jax.jit, static_argnames="clip")
def careful_factor(inputs, slopes, clip):
    norms = [jnp.hypot(norm(a), 1) * norm(b) for a, b in zip(inputs, slopes, strict=True)]
    return clip_factor(norm(jnp.stack(norms, axis=-1)), clip)


@pytest.mark.parametrize("clip", [1e-6, 0.3, 5.0, math.inf])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e5, 1e15, 1e25])
def test_factors_from_plain_squares_have_the_bits_of_careful_norms(size, clip):
    draw = np.random.default_rng(3)
    inputs = [draw.normal(size=(40, width)).astype(np.float32) for width in (104, 9)]
    slopes = [draw.normal(size=(40, width)).astype(np.float32) for width in (9, 3)]
    inputs[0][::2] *= size  # every other row leaves the range, the rest must not notice
    slopes[0][::3] *= size
    slopes[1][1::3] *= 1 / size
    inputs[1][7, 0], slopes[0][8, 0], slopes[1][9] = math.nan, math.inf, 0.0
    found = jax.jit(dense_factor, static_argnames="clip")(inputs, slopes, clip)
    assert (np.asarray(found) == np.asarray(careful_factor(inputs, slopes, clip))).all()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e15, 1e25])
def test_one_slope_that_stands_for_two_opposite_ones_has_their_factor(size, depth, known):
    draw = np.random.default_rng(3)
    inputs = [draw.normal(size=(40, width)).astype(np.float32) for width in (104, 9)][:depth]
    slopes = [draw.normal(size=(40, width)).astype(np.float32) for width in ((9, 1) if depth == 2 else (1,))]
    inputs[0][::2] *= size
    slopes[-1][::3] *= size
    inputs[0][7, 0], slopes[-1][8, 0], slopes[-1][9] = math.inf, math.nan, 0.0
    lengths = lengths_of(jnp.asarray(inputs[0])) if known else None
    factor = jax.jit(dense_factor, static_argnames=("clip", "twins"))
    found = np.asarray(factor(inputs, slopes, 0.3, lengths, twins=True))
    both = [*slopes[:-1], np.concatenate([-slopes[-1], slopes[-1]], axis=1)]
    expected = np.asarray(careful_factor(inputs, both, 0.3))
    assert (found[7:9] == 0).all()
    np.testing.assert_allclose(found, expected, rtol=2e-6)


def test_a_clip_below_any_square_is_kept_too():
    # A bias alone, 3-4-5: the squares of its slopes vanish in 32 bits, and so would the norm.
    found = dense_factor([jnp.zeros((1, 2))], [jnp.float32([[3e-24, 4e-24]])], 1e-24)
    assert float(found[0]) == pytest.approx(0.2, rel=1e-6)


def test_what_one_lane_needs_is_computed_for_all_and_what_none_needs_is_not():
    # Both sides differ here, which shows the decision; in use they agree where nothing is needed.
    choose = jax.jit(jax.vmap(lambda needed, x: if_any(needed, lambda x: x + 1, lambda x: x, x)))
    lanes = jnp.arange(3)
    assert choose(jnp.array([False, True, False]), lanes).tolist() == [1, 2, 3]
    assert choose(jnp.array([False, False, False]), lanes).tolist() == [0, 1, 2]
    twice = jax.vmap(choose, in_axes=(0, None))
    assert twice(jnp.array([[False, False, False], [False, False, True]]), lanes).tolist() == [[1, 2, 3]] * 2


def test_factors_are_one_below_the_clip_and_for_zero_gradients():
    assert clip_factor(jnp.array([0.0, 1e-38, 0.999, 1.0]), 1.0).tolist() == [1.0, 1.0, 1.0, 1.0]


def test_an_unclipped_noiseless_recipe_is_plain_federated_averaging():
    model, draw = STACKS["mlp"], np.random.default_rng(1)
    features, labels = rows_for(model, 10, draw)
    start = jnp.asarray(parameters_for(model, draw))
    recipe = Recipe(steps=2, batch=10, step_size=0.1)
    batches, counts = jnp.tile(jnp.arange(10), (2, 1)), jnp.array([10, 10])
    keys = jnp.zeros((3, 4), jnp.uint32)
    found = jax.jit(partial(local_update, model, recipe))(start, features, labels, batches, counts, keys)

    def mean_loss(flat):
        return jax.vmap(model.loss, in_axes=(None, 0, 0))(model.unravel(flat), features, labels).mean()

    theta = start
    for _ in range(2):
        theta = theta - 0.1 * jax.grad(mean_loss)(theta)
    assert float(jnp.abs(found - (theta - start)).max()) <= 1e-6


def test_update_clipping_bounds_the_update_and_its_noise_is_added_once():
    model, recipe, start, *rest = random_case(3)
    clipped = Recipe(steps=3, batch=recipe.batch, step_size=2.0, update_clip=0.25)
    noisy = Recipe(steps=3, batch=recipe.batch, step_size=2.0, update_clip=0.25, update_noise=0.5)
    bare = np.asarray(jax.jit(partial(local_update, model, clipped))(start, *rest))
    full = np.asarray(jax.jit(partial(local_update, model, noisy))(start, *rest))
    z = np.asarray(normal(jnp.asarray(rest[-1][-1]), (model.size,)))
    assert np.linalg.norm(bare) == pytest.approx(0.25, rel=1e-5)
    spread = 0.5 * (1 + in_clipping(model.sizes))
    assert np.abs(full - (bare + spread * z)).max() <= 1e-6


def test_a_users_own_model_takes_the_same_steps_as_the_stack_that_it_copies():
    model, recipe, start, *rest = random_case(3)
    copy = models.own(model.init, model.loss, model.predict, features=model.features, classes=model.classes)
    ours = jax.jit(partial(local_update, model, recipe))(start, *rest)
    theirs = jax.jit(partial(local_update, copy, recipe))(start, *rest)
    assert float(jnp.abs(ours - theirs).max()) <= 1e-6


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"steps": 0}, "local steps = 0"),
        ({"batch": 2**25}, "at most 16,777,216"),
        ({"step_size": math.nan}, "step_size"),
        ({"noise": 0.1}, "noise without clip"),
        ({"update_noise": 0.1}, "noise without update_clip"),
        ({"clip": -1.0}, "clip"),
    ],
)
def test_a_recipe_that_can_not_be_is_refused(wrong, says):
    with pytest.raises(PlanError, match=says):
        Recipe(**{"steps": 1, "batch": 8, "step_size": 0.1, **wrong})


def test_the_slope_of_a_row_that_is_far_on_the_right_side_is_as_small_as_it_should_be_for_both_classes():
    """1 − 1/(1 + e^-20) would be 0 in float32; a row of length 10^6 still has a gradient there."""
    rows, labels = jnp.float32([[1e6], [1e6]]), jnp.int32([1, 0])
    tree = [(jnp.float32([[-1e-5, 1e-5]]), jnp.float32([0.0, 0.0]))]
    expected = 1e6 * np.exp(-20.0)
    for which, sign in ((0, 1), (1, -1)):
        used = jnp.arange(2) == which
        own = [(sign * weight, bias) for weight, bias in tree]
        ((weights, _),) = dense_clipped_sum(models.logistic(1), own, rows, labels, used, 1e3)
        np.testing.assert_allclose(weights, [[sign * expected, -sign * expected]], rtol=1e-4)
