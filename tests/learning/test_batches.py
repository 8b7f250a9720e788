import dataclasses
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import stats

from choral.accounting.proofs import exposed
from choral.accounting.reserves import rounded_coin, with_reserves
from choral.core.errors import PlanError, TrainingError
from choral.core.plan import OVERFLOW, Plan, capacity, poisson_tail
from choral.learning import noise, streams
from choral.learning.batches import Batches, compiled_drawing, drawer_of, partition, poisson


def poisson_batches(sizes, batch, steps, room, seed=0, round_number=0):
    key = streams.keys(seed, "batches", round_number, np.arange(len(sizes)))[:, None, None]
    places = np.arange(steps * room).reshape(steps, room)
    return poisson.poisson(np.array(sizes), batch, streams.words(key, places))


def used(batches, device, step):
    return batches.rows[device, step, : batches.counts[device, step]]


@pytest.mark.parametrize(("batch", "least"), [(64, 100), (32, 60), (5, 17), (244, 330)])
def test_the_tail_bound_lies_above_the_exact_tails_and_close_to_them(batch, least):
    exact = stats.poisson.sf(least - 1, batch)
    assert exact <= poisson_tail(batch, least) <= 1.3 * exact
    for rows in (batch, 2 * batch, 10 * batch, 10_000):
        assert stats.binom.sf(least - 1, rows, batch / rows) <= poisson_tail(batch, least)


@given(batch=st.integers(1, 2000), steps=st.integers(1, 10**6), exponent=st.integers(1, 15))
def test_the_room_keeps_the_chance_of_an_overflow_below_what_is_charged(batch, steps, exponent):
    room = capacity(batch, steps, 10.0**-exponent)
    assert room % 8 == 0
    assert steps * stats.poisson.sf(room, batch) <= 10.0**-exponent


@given(rows=st.integers(1, 10**6), fraction=st.floats(0, 1), rounds=st.integers(1, 500), steps=st.integers(1, 20))
@example(rows=647, fraction=0.002, rounds=100, steps=1)  # room for 16 of 2 would do for a batch, not for its companions
@example(rows=10**6, fraction=1.15e-5, rounds=20, steps=10)
def test_the_companions_of_a_record_fill_no_batch_of_a_run_but_for_the_chance_that_is_charged(
    rows, fraction, rounds, steps
):
    batch = min(1 + int(fraction * rows), rows, 2**17)
    shape = {"rounds": rounds, "rows": rows, "batch": batch, "local_steps": steps}
    room = drawer_of(Plan(devices=1, cohort=1, step_size=1.0, clip=1.0, noise=1.0, **shape)).room(rows)
    # docs/accounting.md: K of the other m − 1 records are drawn in a step, and δ grows by Cτ·Pr[K ≥ room]; by SciPy.
    assert rounds * steps * stats.binom.sf(room - 1, rows - 1, batch / rows) <= OVERFLOW
    for fewer in {batch, (batch + rows) // 2}:  # other devices of the same plan have the same room
        assert rounds * steps * stats.binom.sf(room - 1, fewer - 1, batch / fewer) <= OVERFLOW


def drawn_often(rows, batch, delta):
    """A plan of 8,000 batches with the reserves that follow this δ."""
    shape = {"devices": 1, "cohort": 1, "rounds": 800, "local_steps": 10, "rows": rows, "batch": batch}
    return with_reserves(Plan(**shape, step_size=1.0, clip=1.0, noise=1.0), delta)


def test_coins_that_would_take_more_than_half_of_delta_are_refused():
    assert 8000 * rounded_coin(244 / 300) > 5e-9
    with pytest.raises(PlanError, match="CH204 8,000 Poisson batches"):
        drawn_often(300, 244, 1e-8)


@pytest.mark.parametrize(
    ("rows", "batch"), [(rows, batch) for rows in (300, 1000, 10**6) for batch in (1, 20, 244) if batch / rows < 0.8]
)
def test_where_coins_take_most_of_the_reserve_the_rest_pays_for_full_batches(rows, batch):
    plan = drawn_often(rows, batch, 1e-8)
    draws = 8000 * rounded_coin(batch / rows)
    assert draws > 0.9 * plan.overflow  # and by SciPy, the chance that the companions of a record fill a batch:
    room = drawer_of(plan).room(rows)
    assert 8000 * stats.binom.sf(room - 1, rows - 1, batch / rows) + draws <= plan.overflow


def test_poisson_batches_have_the_size_and_membership_of_independent_coins():
    rows, batch, steps = 100, 20, 4000  # q = 0.2
    drawn = poisson_batches([rows], batch, steps, 64)
    member = np.zeros((steps, rows))
    for step in range(steps):
        member[step, used(drawn, 0, step)] = 1
    # Each record q of the time: 5 standard errors; power: a q that is off by 0.06 for one record.
    assert np.abs(member.mean(axis=0) - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / steps)
    # The sizes are Binomial(100, 0.2): chi-square over the bulk.
    sizes = member.sum(axis=1).astype(int)
    cells = np.arange(10, 31)
    expected = steps * np.concatenate([[stats.binom.cdf(9, rows, 0.2)], stats.binom.pmf(cells, rows, 0.2),
                                       [stats.binom.sf(30, rows, 0.2)]])  # fmt: skip
    found = np.concatenate([[(sizes < 10).sum()], [(sizes == cell).sum() for cell in cells], [(sizes > 30).sum()]])
    assert stats.chisquare(found, expected * found.sum() / expected.sum()).pvalue > 1e-5
    # Pairs of records, and the same record in neighbouring steps, are independent: the largest of 4,950 and of 100.
    centred = (member - 0.2) / np.sqrt(0.2 * 0.8)
    pairs = (centred.T @ centred / steps)[np.triu_indices(rows, 1)]
    assert np.abs(pairs).max() < 6 / np.sqrt(steps)
    assert np.abs((centred[1:] * centred[:-1]).mean(axis=0)).max() < 5 / np.sqrt(steps)


def test_a_batch_of_all_rows_is_all_rows():
    drawn = poisson_batches([12, 12], 12, 3, 16)
    assert drawn.counts.tolist() == [[12] * 3] * 2
    assert used(drawn, 1, 2).tolist() == list(range(12))


@settings(max_examples=50)
@given(sizes=st.lists(st.integers(8, 400), min_size=1, max_size=12), batch=st.integers(1, 8), seed=st.integers(0, 99))
def test_poisson_rows_are_distinct_in_range_and_padding_is_a_valid_row(sizes, batch, seed):
    drawn = poisson_batches(sizes, batch, 3, 24, seed)
    for device, size in enumerate(sizes):
        for step in range(3):
            rows = used(drawn, device, step)
            assert len(set(rows.tolist())) == len(rows)
            assert (drawn.rows[device, step] >= 0).all()
            assert (drawn.rows[device, step] < size).all()


def test_a_devices_batches_do_not_depend_on_who_else_is_drawn():
    alone = poisson_batches([50], 8, 3, 24)
    among = poisson_batches([50, 90, 400], 8, 3, 24)
    assert (alone.rows[0] == among.rows[0]).all()
    key = streams.keys(0, "batches", 0, np.array([4, 9]))
    both = partition.partition(np.array([40, 50]), 8, np.array([0, 3]), 7, key)
    second = partition.partition(np.array([50]), 8, np.array([3]), 7, key[1:])
    assert (both.rows[1] == second.rows[0]).all()


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(4, 60), min_size=1, max_size=6),
    batch=st.integers(1, 4),
    first=st.integers(0, 40),
    steps=st.integers(1, 40),
)
def test_a_pass_uses_no_record_twice_and_every_batch_is_full(sizes, batch, first, steps):
    sizes = np.array(sizes)
    key = streams.keys(1, "batches", 0, np.arange(len(sizes)))
    drawn = partition.partition(sizes, batch, np.full(len(sizes), first), steps, key)
    assert (drawn.counts == batch).all()
    for device, size in enumerate(sizes):
        passes = (first + np.arange(steps)) // (size // batch)
        for number in np.unique(passes):
            rows = drawn.rows[device][passes == number].ravel()
            assert len(set(rows.tolist())) == len(rows)
            assert rows.max() < size


def test_passes_that_continue_do_so_across_rounds():
    sizes, key = np.array([10]), streams.keys(1, "batches", 0, np.array([0]))
    whole = partition.partition(sizes, 2, np.array([0]), 8, key).rows[0]
    parts = [partition.partition(sizes, 2, np.array([at]), 4, key).rows[0] for at in (0, 4)]
    assert (np.concatenate(parts) == whole).all()


@given(
    sizes=st.lists(st.integers(8, 90), min_size=1, max_size=5),
    most=st.sampled_from([0, 500, 2**20]),  # bytes: none, one or two devices', all
    rounds=st.lists(st.integers(0, 30), min_size=1, max_size=6),
)
def test_orders_that_are_kept_change_no_batch(sizes, most, rounds):
    sizes, orders = np.array(sizes), partition.Orders(most=most)
    key = streams.keys(1, "batches", 0, np.arange(len(sizes)))
    for number in rounds:
        first = np.full(len(sizes), 3 * number)
        kept = partition.partition(sizes, 4, first, 3, key, orders).rows
        assert (kept == partition.partition(sizes, 4, first, 3, key).rows).all()


def test_a_long_pass_is_put_in_order_once_and_what_is_kept_is_bounded():
    orders, keys = partition.Orders(most=3 * 4 * 100), streams.keys(1, "batches", 0, np.arange(4))
    assert orders.of(100, keys[0], 0) is orders.of(100, keys[0], 0)
    first = orders.of(100, keys[0], 1)
    for key in keys[1:]:  # with the fourth of 400 bytes all others are forgotten
        assert first is orders.of(100, keys[0], 1)
        orders.of(100, key, 0)
    assert first is not orders.of(100, keys[0], 1)


def test_every_order_of_a_pass_is_equally_likely():
    # 6 orders of 3 records over 6,000 devices: chi-square with 5 degrees of freedom.
    devices = 6000
    key = streams.keys(3, "batches", 0, np.arange(devices))
    drawn = partition.partition(np.full(devices, 3), 1, np.zeros(devices, dtype=np.int64), 3, key).rows[:, :, 0]
    counts = np.unique(drawn @ [9, 3, 1], return_counts=True)[1]
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 1e-5


PARTITIONS = {
    "rows": st.integers(1, 40),
    "batch": st.integers(1, 12),
    "steps": st.integers(1, 9),
    "rounds": st.integers(1, 8),
    "passes": st.sampled_from(["continue", "reshuffle"]),
}


def partitions(rows, batch, steps, rounds, passes):
    shape = {"rounds": rounds, "rows": rows, "batch": min(batch, rows), "local_steps": steps, "passes": passes}
    return Plan(devices=1, cohort=1, step_size=1.0, clip=1.0, noise=1.0, sampling="partition", **shape)


def batches_of(plan, number, secret=7):
    key = np.array([secret if plan.passes == "continue" else 100 + number], dtype=np.uint64)
    return drawer_of(plan).draw(np.array([plan.rows]), np.array([number]), key, None, plan.batch)


@given(**PARTITIONS, data=st.data())
def test_uses_are_what_a_plain_count_finds_and_never_more_than_is_charged_for(data, **numbers):
    plan = partitions(**numbers)
    # A process counts its own rounds, each at its place in the run: others were before it, or failed ahead of training.
    mine = sorted(data.draw(st.sets(st.integers(0, plan.rounds - 1), min_size=1)))
    uses, plain = drawer_of(plan).uses(plan.rows), np.zeros(plan.rows, dtype=int)
    for number in mine:
        drawn = batches_of(plan, number)
        uses.count(drawn, number)
        for row in drawn.rows.ravel():
            plain[row] += 1
    assert uses.of_row.tolist() == plain.tolist()


@given(**PARTITIONS)
def test_what_charges_pay_for_is_the_n_that_they_are_made_by_and_is_reached(**numbers):
    plan = partitions(**numbers)
    one = {
        name: getattr(plan, name) for name in ("local_steps", "rows", "batch", "noise", "clip", "sampling", "passes")
    }
    charged = exposed(rounds=plan.rounds, cohort=1, devices=1, **one).uses(range(plan.rounds))
    uses = drawer_of(plan).uses(plan.rows)
    for number in range(plan.rounds):
        uses.count(batches_of(plan, number), number)
    assert uses.paid_for(0, plan.rounds) == charged
    if plan.passes == "continue" and plan.rows % plan.batch == 0:
        assert uses.of_row.max() == charged  # no record ever sits out, so those of the last batch were in every pass
    with pytest.raises(TrainingError, match=f"CH703 .* used {charged + 1} times; charges pay for {charged}"):
        fullest = uses.of_row.argmax()
        for _ in range(charged + 1 - int(uses.of_row[fullest])):
            again = np.full((1, 1, 1), fullest, dtype=np.int32)
            uses.count(Batches(rows=again, counts=np.ones((1, 1), np.int32)), plan.rounds - 1)


@given(**PARTITIONS, data=st.data())
def test_a_round_that_is_trained_again_without_a_charge_is_refused(data, **numbers):
    plan = partitions(**{**numbers, "passes": "continue"})
    per_pass = plan.rows // plan.batch
    first = data.draw(st.integers(0, plan.rounds - 1))  # after a restart, the rounds before it are not in the count
    uses = drawer_of(plan).uses(plan.rows)
    uses.count(batches_of(plan, first), first)
    started, ended = first * plan.local_steps // per_pass, -(-(first + 1) * plan.local_steps // per_pass)
    whole = first * plan.local_steps % per_pass == (first + 1) * plan.local_steps % per_pass == 0
    assume(whole or ended - started == 1)  # no record need be in both of two passes that are not whole
    with pytest.raises(TrainingError, match="CH703"):
        uses.count(batches_of(plan, first), first)


def test_a_round_that_no_charge_paid_for_is_refused():
    plan = partitions(rows=12, batch=4, steps=2, rounds=3, passes="continue")
    with pytest.raises(TrainingError, match="CH703 round 0: a record would be used 1 times; charges pay for 0"):
        drawer_of(plan).uses(12).count(batches_of(plan, 0), -1)


def test_poisson_batches_have_no_number_of_uses_to_be_held_to():
    plan = dataclasses.replace(partitions(rows=12, batch=4, steps=2, rounds=3, passes="continue"), sampling="poisson")
    assert drawer_of(plan).uses(12) is None  # nothing is counted for nothing


@pytest.mark.parametrize("kind", ["poisson", "partition"])
def test_more_rows_a_round_than_a_machine_can_hold_are_refused(kind):
    plan = Plan(
        devices=1, cohort=1, rounds=1, rows=10**6, batch=10**6, local_steps=1000, step_size=1.0, clip=1.0, noise=0.0,
        sampling=kind,
    )  # fmt: skip
    with pytest.raises(PlanError, match="CH204 1,000 local steps on batches of 1,000,000"):
        drawer_of(plan).room(10**6)


def test_secure_words_differ_and_cover_the_range():
    first, second = streams.secure_words((1000,)), streams.secure_words((1000,))
    assert (first != second).all()
    assert abs(np.unpackbits(first.view(np.uint8)).mean() - 0.5) < 6 * 0.5 / np.sqrt(64_000)


def test_streams_of_different_seeds_purposes_rounds_and_devices_share_no_word():
    found = [
        streams.words(streams.keys(seed, purpose, number, np.arange(4))[:, None], np.arange(50))
        for seed in (0, 1)
        for purpose in ("batches", "noise", "dither")
        for number in (0, 1, 10)
    ]
    words = np.concatenate([block.ravel() for block in found])
    assert len(np.unique(words)) == len(words)


SIZES = np.array([30, 45, 31, 64, 120, 77, 30, 400])
DRAWN_ALIKE = {
    "poisson": {"sampling": "poisson", "batch": 8},
    "scattered": {"sampling": "poisson", "batch": 24, "rounds": 200, "rows": 400},
    "continue": {"sampling": "partition", "passes": "continue", "batch": 8},
    "reshuffle": {"sampling": "partition", "passes": "reshuffle", "batch": 15},
}


@pytest.mark.parametrize("kind", DRAWN_ALIKE)
def test_a_compiled_program_draws_the_rows_that_the_host_draws(kind, monkeypatch):
    shape = {"devices": 8, "cohort": 8, "rounds": 50, "rows": 30, "local_steps": 7, "step_size": 1.0, "clip": 1.0}
    plan = Plan(**{**shape, "noise": 0.1, **DRAWN_ALIKE[kind]})
    if kind == "scattered":
        monkeypatch.setattr(poisson, "ONE_PIECE", 16)
        monkeypatch.setattr(compiled_drawing, "ONE_PIECE", 16)
    drawer, room = drawer_of(plan), drawer_of(plan).room(400)
    draws, tables = compiled_drawing.compiled_drawer(drawer, SIZES, room)
    cohort, before = np.array([7, 1, 2, 0, 4, 3]), np.array([0, 1, 2, 3, 30, 7])
    if kind == "scattered":
        assert room > 16
    key = streams.keys(5, "batches", 3, cohort)
    expected = drawer.draw(SIZES[cohort], before, key, None, room)
    with jax.enable_x64(True):
        compiled = jax.jit(lambda tables, *given: draws.draw(tables, *given))
        seeds = jnp.asarray(streams.seed_words(5, "batches", 3))
        made = compiled_drawing.keys(seeds, jnp.asarray(cohort))
        rows, counts = compiled(tuple(map(jnp.asarray, tables)), cohort, before, made)
    assert (np.asarray(made) == key).all()
    assert (np.asarray(counts) == expected.counts).all()
    assert (np.asarray(rows) == expected.rows).all()


@pytest.mark.parametrize(("size", "batch"), [(7, 7), (50, 1), (2441, 64), (300, 299)])
def test_thresholds_are_where_the_hosts_gaps_change_and_near_their_exact_places(size, batch):
    found = poisson.thresholds(size, batch)
    inverse = 1 / np.log1p(-np.float64(batch) / size) if batch < size else -0.0
    longer = np.arange(1, size + 1)
    assert (poisson.geometric(found, inverse) <= longer).all()
    assert (poisson.geometric(found[found > 0] - np.uint64(1), inverse) > longer[found > 0]).all()
    exact = [int(2**53 * Fraction(size - batch, size) ** int(g)) for g in longer[:60]]
    off = [abs(int(one) - here) for one, here in zip(found, exact, strict=False)]
    assert all(one <= 1 + here / 2**44 for one, here in zip(off, exact, strict=True))


def test_the_keys_of_noise_and_dither_are_split_as_on_the_host():
    key = streams.keys(5, "noise", 3, np.arange(4))
    with jax.enable_x64(True):
        found = compiled_drawing.split(compiled_drawing.words(jnp.asarray(key)[:, None], jnp.arange(3)))
    assert (np.asarray(found) == noise.split(streams.words(key[:, None], np.arange(3)))).all()


@pytest.mark.parametrize("equal_bits", [0, 4, 12])
def test_rows_sorted_by_half_of_their_bits_have_the_order_of_all_bits(equal_bits):
    # The more upper bits are the same for all, the more neighbours are put right afterwards.
    draw, rows = np.random.default_rng(equal_bits), np.arange(2**12, dtype=np.uint64)
    tags = draw.integers(0, 2**64, (20, len(rows)), dtype=np.uint64) >> np.uint64(equal_bits)
    tags = (tags & ~np.uint64(2**12 - 1)) | rows
    wanted = np.sort(tags, axis=-1) & np.uint64(2**12 - 1)
    assert (partition._sorted_in_32_bits(tags, np.uint32(2**12 - 1)) == wanted).all()
