"""The bounds on float32's errors, tried on sums and norms that err as far as they can; exact sums by `math.fsum`."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from choral.core.errors import PlanError
from choral.core.plan import Plan
from choral.learning import local, models, rounding, streams
from choral.learning.batches import Batches, drawer_of, poisson
from choral.learning.clipped import norm
from choral.learning.local import Shortcuts, local_update, plus, zeros_in_double
from choral.learning.recipe import Recipe, TracedNumbers, noise_on_sum, sensitivity_factor


@jax.jit
def in_double(parts):
    """All parts of each column, added one after the other by a compiled loop."""
    return jax.lax.scan(lambda total, part: (plus(total, part), None), zeros_in_double(parts[0]), parts)[0]


def test_pieces_are_added_in_float64_when_compiled():
    # One column of one sign, one that cancels, one of the worst rows' kind: each within u²/2 of what was added up.
    draw, count = np.random.default_rng(3), 5000
    parts = np.stack([draw.random(count), draw.normal(size=count), np.where(np.arange(count) < 9, 2.0**9, -(2.0**-16))])
    parts = (parts.T * 100).astype(np.float32)
    totals = np.asarray(in_double(parts))
    assert totals.dtype == np.float64
    for column in range(3):
        exact = sum((Fraction(float(one)) for one in parts[:, column]), Fraction(0))
        reach = np.cumsum(np.abs(parts[:, column], dtype=np.float64)).sum()
        assert abs(Fraction(float(totals[column])) - exact) <= 2.0**-53 * reach
    plain = np.cumsum(parts[:, 2])[-1]  # in float32 the third column loses nearly all of its small parts
    assert abs(float(plain) - math.fsum(parts[:, 2].tolist())) > 1


FINITE = Shortcuts(finite=True)


@pytest.mark.parametrize("model", [models.mlp(3, (4,)), models.logistic(3)], ids=["mlp", "logistic"])
def test_a_batch_of_several_pieces_is_added_in_float64_and_one_piece_in_float32(model):
    for count, law, wanted in (
        (384, "gaussian", "float32"),
        (385, "gaussian", "float64"),
        (40, "discrete_gaussian", "float64"),
    ):
        plan = Plan(devices=1, cohort=1, rounds=1, rows=count, batch=count, step_size=1.0, clip=1.0, noise=1.0, law=law,
                    sampling="partition")  # fmt: skip
        recipe, rows = Recipe.of(plan), (jnp.zeros((count, 3)), jnp.zeros(count, jnp.int32))
        numbers, tree = TracedNumbers.of(model, recipe, count), model.unravel(jnp.zeros(model.size))
        total = jax.eval_shape(
            lambda batch, one=(model, recipe, numbers, FINITE, tree, (*rows, None)): local.batch_sum(
                *one, batch, len(batch)
            ),
            jnp.arange(count),
        )
        assert {leaf.dtype.name for leaf in jax.tree.leaves(total)} == {wanted}


@pytest.mark.parametrize("room", [1, 8, 384, 385, 2440, 10_000, 65_536, 2**24 + 30_000])
def test_rooms_are_covered_by_pieces_and_cost_at_most_a_hundredth_up_to_10_000(room):
    count, rows = rounding.pieces(room)
    assert count * rows >= room > (count - 1) * rows
    assert rows <= (rounding.ONE_PIECE if count == 1 else rounding.PIECE)
    model = models.mlp(104, (64, 32))
    assert 1 < sensitivity_factor(model, room) < (1.01 if room <= 10_000 else 1.04)


@pytest.mark.parametrize("order", ["one after the other", "in pairs"])
def test_a_piece_is_off_by_no_more_than_is_counted(order):
    # Sums of p numbers up to 1 that are rounded up in every step, one after the other, and the mildest tree.
    for rows in (128, 384):
        numbers = (0.5 + 0.5 * np.random.default_rng(rows).random(rows)).astype(np.float32)
        if order == "in pairs":
            found = numbers
            while len(found) > 1:
                found = np.append(found, np.zeros(len(found) % 2, np.float32)).reshape(-1, 2).sum(axis=1)
        else:
            found = np.cumsum(numbers, dtype=np.float32)[-1:]
        error = abs(float(found[0]) - math.fsum(numbers.tolist()))
        assert 2 * error <= rounding.in_sum(rows)


@pytest.mark.parametrize("length", [3, 104, 4096, 4097, 300_000])
def test_a_norm_is_off_by_no_more_than_is_counted(length):
    # One large number and many whose squares it swallows if they are added to it one by one.
    for small in (2.0**-12.6, 2.0**-10, 1.0):
        row = np.full(length, small, np.float32)
        row[0] = 1.0
        exact = math.sqrt(math.fsum((row.astype(np.float64) ** 2).tolist()))
        for found in (norm(jnp.asarray(row)), jax.jit(norm)(jnp.stack([row, row]))[0]):
            assert abs(float(found) / exact - 1) <= rounding.in_norm(length) * rounding.UNIT


def wide_model(size):
    """No dense stack: the gradient is the row itself, spread over so many parameters."""
    return models.own(
        lambda _: {"first": np.zeros(size, np.float32), "second": np.zeros(3, np.float32)},
        lambda tree, row, label: tree["first"] @ jnp.resize(row, size) + tree["second"] @ row * label,
        lambda tree, rows: rows @ tree["second"][:, None],
        features=3,
        classes=2,
    )


@pytest.mark.parametrize("model", [models.logistic(300), models.mlp(40, (30, 20), 3), wide_model(50_000)],
                         ids=["logistic", "mlp", "own"])  # fmt: skip
def test_a_clipped_gradient_is_never_longer_than_is_counted(model):
    draw = np.random.default_rng(1)
    tree = model.unravel(jnp.asarray((draw.normal(size=model.size) * 0.3).astype(np.float32)))
    longest = 0.0
    alone = jax.jit(lambda row, label, clip=1.0: model.ravel(
        local.clipped_sum(model, tree, row[None], label[None], jnp.array([True]), clip)))  # fmt: skip
    for _ in range(25):
        row = (draw.normal(size=model.features) * 10.0 ** draw.uniform(-1, 6)).astype(np.float32)
        added = np.asarray(alone(row, jnp.int32(draw.integers(2))), dtype=np.float64)
        longest = max(longest, math.sqrt(math.fsum((added**2).tolist())))
    sizes = rounding.of_dense_stack(model.widths) if model.widths else rounding.in_clipping(model.sizes)
    assert 0.999 < longest <= 1 + sizes


def spread_of(recipe, room, draw=lambda _key, shape, _start: jnp.ones(shape)):
    """The noise that a recipe adds, from draws that are all 1 and rows without a gradient."""
    model = models.linear(2)
    given = (jnp.zeros((4, 2)), jnp.zeros(4), jnp.full((recipe.steps, room), -1), jnp.full(recipe.steps, room))
    keys = jnp.zeros((recipe.steps + 1, 4), jnp.uint32)
    return np.asarray(local_update(model, recipe, jnp.zeros(3), *given, keys, draw=draw), dtype=np.float64)


@pytest.mark.parametrize("room", [8, 384, 500])
def test_the_noise_that_is_added_is_the_plans_times_what_float32_may_add(room):
    model, tight = models.linear(2), 1e-6
    one = Recipe(steps=1, batch=7, step_size=0.5, clip=1.0, noise=0.3)
    factor = sensitivity_factor(model, room)
    assert factor > 1 + 70 * rounding.UNIT
    assert spread_of(one, room) == pytest.approx(-0.5 * 0.3 * factor, rel=tight / 4)
    two = Recipe(steps=2, batch=7, step_size=0.5, clip=1.0, noise=0.3)
    assert spread_of(two, room) == pytest.approx(-2 * 0.5 * 0.3 * factor, rel=tight)
    whole = Recipe(steps=2, batch=7, step_size=0.5, update_clip=1.0, update_noise=0.3)
    assert spread_of(whole, room) == pytest.approx(0.3 * (1 + rounding.in_clipping(model.sizes)), rel=tight / 4)


def test_an_update_of_one_step_keeps_its_bits_at_a_large_model():
    # As θ' − θ at 2^24 it would be a multiple of 2, rounded by each device before the sum.
    model = models.linear(2)
    recipe = Recipe(steps=1, batch=1, step_size=0.5, clip=1.0, noise=0.25)
    given = (jnp.zeros((1, 2)), jnp.zeros(1), jnp.full((1, 1), -1), jnp.ones(1, jnp.int32), jnp.zeros((2, 4)))
    for size in (0.0, 2.0**24):
        found = local_update(model, recipe, jnp.full(3, size), *given, draw=lambda _k, shape, _s: jnp.ones(shape))
        assert np.asarray(found) == pytest.approx(-0.125, rel=1e-5)


@pytest.mark.parametrize("clip", [2.0**-33, 2.0**33])
def test_a_clip_that_vanishes_or_overflows_in_float32_is_refused_with_its_number(clip):
    for given in ({"clip": clip}, {"update_clip": clip}):
        with pytest.raises(PlanError, match=f"{clip!r}"):
            Recipe(steps=1, batch=4, step_size=0.1, **given)


def test_a_drawn_record_has_every_place_of_the_room_with_the_same_chance_and_no_order():
    # 12 ways to put two records into four places; chi-square at a fixed seed.
    count, places = 24_000, []
    drawn = Batches(rows=np.int32([[[5, 8, 0, 0]] * count]), counts=np.full((1, count), 2, np.int32))
    key = np.uint64([[[11]]])
    numbers = np.arange(4 * count).reshape(1, count, 4)
    spread = poisson.scattered(drawn, lambda number: streams.words(key, numbers + number))
    assert (spread.counts == 4).all()
    assert ((spread.rows >= 0).sum(axis=-1) == 2).all()
    places = 4 * (spread.rows == 5).argmax(axis=-1) + (spread.rows == 8).argmax(axis=-1)
    found = np.unique(places, return_counts=True)[1]
    assert len(found) == 12
    assert stats.chisquare(found).pvalue > 1e-5


def test_equal_words_are_drawn_again():
    drawn = Batches(rows=np.int32([[[5, 8, 0]]]), counts=np.int32([[2]]))
    tries = [np.uint64([[[1, 2, 1]]]), np.uint64([[[9, 4, 6]]])]
    assert poisson.scattered(drawn, lambda number: tries[number]).rows.tolist() == [[[-1, 5, 8]]]


@pytest.mark.parametrize(("batch", "deployed"), [(20, True), (500, True), (500, False)])
def test_poisson_batches_that_are_deployed_or_in_pieces_leave_empty_places_among_the_records(batch, deployed):
    plan = Plan(devices=1, cohort=1, rounds=1, rows=1000, batch=batch, step_size=1.0, clip=1.0, noise=0.0)
    room = drawer_of(plan).room(1000)
    source = (lambda _: streams.secure_words((1, 1, room))) if deployed else None
    batches = drawer_of(plan).draw(np.array([1000]), np.array([0]), np.array([3], dtype=np.uint64), source, room)
    used = np.flatnonzero(batches.rows[0, 0] >= 0)
    assert len(used) < used[-1]  # by chance below 1e-6: with all empty places behind, it would be len(used) − 1
    assert len(np.unique(batches.rows[0, 0][used])) == len(used)
    assert (np.diff(batches.rows[0, 0][used]) < 0).any()


def test_the_codecs_range_has_room_for_noise_that_is_wider_by_a_hundredth():
    # Codec.for_plan counts 2exp(−t²/2) beyond t deviations of the plan's noise, t from 7.7 (d = r = T = 1) to below 18.
    beyond = np.linspace(4, 18, 200)
    assert (2 * special.ndtr(-beyond / 1.01) <= 2 * np.exp(-(beyond**2) / 2)).all()


@pytest.mark.parametrize("least", [8, 300, 384, 385])
def test_no_room_within_a_range_errs_more_than_the_worst_rooms_of_it(least):
    for most in (least, 390, 700, 5000):
        bound = max(map(rounding.in_sum, (least, *rounding.worst_rooms(least, most))))
        assert all(rounding.in_sum(room) <= bound for room in range(least, most + 1))


def test_the_noises_of_one_step_on_drawn_rows_are_alike_however_many_rows_a_device_has():
    """A secure sum counts them together, so a device with the largest error may not stand among narrower noises."""
    plan = Plan(devices=4, cohort=4, rounds=20, rows=350, batch=270, step_size=1.0, clip=1.0, noise=0.1)
    model, drawer, sizes = models.logistic(10), drawer_of(plan), (350, 360, 3500, 10**6)
    rooms = [drawer.room(rows) for rows in sizes]
    noises = {noise_on_sum(model, Recipe.of(plan, rows), room) for rows, room in zip(sizes, rooms, strict=True)}
    assert len(set(rooms)) > 2 and len(noises) == 1
    assert noises.pop() >= 27 * max(sensitivity_factor(model, room) for room in rooms)
