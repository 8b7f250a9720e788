"""km: one cell per row, curves with intervals that hold at every noise, and a log-rank test that keeps its level."""

import itertools
import math

import numpy as np
import pytest

from choral.asking.catalogue import completed, estimate, expected, summand
from choral.asking.question import Question
from choral.core.errors import ChoralError
from choral.tables.columns import Categorical, Numeric
from tests.asking.coverage import noisy
from tests.asking.pairs import farthest
from tests.asking.people import COLUMNS, people, table

UNTIL = 1400.0


def km(**parameters):
    given = {"time": "days", "event": "died", "until": UNTIL, "bins": 4, **parameters}
    return Question(name="km", parameters={key: value for key, value in given.items() if value is not None})


BY_SEX = km(by=["sex"])


def test_every_row_has_one_cell():
    rows = table(
        days=[0, 350, 351, 1400, 1401, None, 10, 700],
        died=[1, 1, 1, 1, 1, 1, None, 0],
        sex=["f"] * 7 + ["m"],
    )
    *total, empty = summand(BY_SEX, COLUMNS).total(rows).tolist()
    # Four events by bin; who leaves by bin; and one who is watched longer.
    assert total[:9] == [2, 1, 0, 1, 0, 0, 0, 0, 1]
    assert total[9:] == [0, 0, 0, 0, 0, 0, 1, 0, 0]  # who leaves at 700 was at risk in all of the bin that ends there
    assert empty == 2  # a time and an event that can't be read: what happened to these two is not known


def test_who_is_watched_to_the_end_or_beyond_the_declared_range_leaves_in_no_bin():
    # By hand, of days from 0 to 2,000: two who were watched to the last day, one longer, and two events, one of which
    # came after the range. So one of five has an event, in the first bin, and all others are at risk in the last one.
    rows = table(days=[2000, 2000, 2400, 100, 2400], died=[0, 0, 0, 1, 1])
    asked = km(until=None)
    assert summand(asked, COLUMNS).total(rows).tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 4, 0]
    answer = estimate(asked, COLUMNS, summand(asked, COLUMNS).total(rows), rows=5, deviation=0.0)
    assert [row["estimate"] for row in answer.rows] == pytest.approx([0.8] * 4)


@pytest.mark.parametrize("asked", [BY_SEX, km(where=[{"column": "age", "at_least": 60}])])
def test_no_two_rows_are_farther_apart_than_the_claim_and_some_reach_it(asked):
    found = summand(asked, COLUMNS)
    rows = list(itertools.product([0, 400, 2000, None], [0, 1, "?"], ["f", "m", "?"], [10, 70]))
    apart = farthest(found, dict(zip(("days", "died", "sex", "age"), map(list, zip(*rows, strict=True)), strict=True)))
    assert found.l2 == math.sqrt(2) == pytest.approx(apart)


def test_without_noise_the_curve_is_the_actuarial_one():
    # By hand: 10 rows, bins of 350 days. 10 at risk, 2 events: 0.8. Then 8 at risk, of whom 2 leave, so 7, and 1 event:
    # 0.8·6/7. Then 5 at risk, no event. Then 5 at risk, 1 event: 0.8·6/7·0.8.
    rows = table(days=[1, 350, 400, 500, 600, 1100, 1500, 1500, 1500, 1500], died=[1, 1, 0, 0, 1, 1, 0, 0, 0, 0])
    answer = estimate(km(), COLUMNS, summand(km(), COLUMNS).total(rows), rows=10, deviation=0.0)
    curve = [row["estimate"] for row in answer.rows]
    assert curve == pytest.approx([0.8, 0.8 * 6 / 7, 0.8 * 6 / 7, 0.8 * 6 / 7 * 0.8])
    assert [row["at_risk"] for row in answer.rows] == pytest.approx([10, 7, 5, 5])
    assert [row["time"] for row in answer.rows] == [350, 700, 1050, 1400]
    greenwood = math.sqrt(2 / (10 * 8))
    high = 0.8 ** math.exp(-1.959964 * greenwood / -math.log(0.8))
    assert answer.rows[0]["high"] == answer.rows[0]["sampling_high"] == pytest.approx(high, rel=1e-6)


def test_bins_may_be_finer_at_the_start():
    answer = estimate(km(power=3), COLUMNS, np.array([5] * 9 + [0]), rows=45, deviation=0.0)
    assert [row["time"] for row in answer.rows] == pytest.approx([1400 / 64, 1400 / 8, 1400 * 27 / 64, 1400])


def drawn(chance, rows, hazard, bins, arms=1):
    """The cells of a sample with a constant hazard, in which people leave at any time up to 3,000 days."""
    died, left = chance.exponential(1 / hazard, rows), chance.uniform(0, 3000, rows)
    slot = np.searchsorted(UNTIL * np.arange(1, bins + 1) / bins, np.minimum(died, left), side="left")
    cell = np.where(slot == bins, 2 * bins, slot + bins * (died > left))
    return np.bincount(chance.integers(arms, size=rows) * (2 * bins + 1) + cell, minlength=arms * (2 * bins + 1) + 1)


def coverage(rows, hazard, bins, deviation, samples, seed):
    """The shares of intervals that hold the truth: with the noise, and by Greenwood alone."""
    chance, asked = np.random.default_rng(seed), km(bins=bins)
    truth, hits = np.exp(-hazard * UNTIL * np.arange(1, bins + 1) / bins), np.zeros((2, bins))
    for _ in range(samples):
        total = noisy(drawn(chance, rows, hazard, bins), deviation, chance)
        found = estimate(asked, COLUMNS, total, rows=rows, deviation=deviation).rows
        hits[0] += [row["low"] <= alive <= row["high"] for row, alive in zip(found, truth, strict=True)]
        hits[1] += [
            row["sampling_low"] <= alive <= row["sampling_high"] for row, alive in zip(found, truth, strict=True)
        ]
    return hits.mean(axis=1) / samples


def test_intervals_hold_the_truth_and_those_without_the_noise_do_not():
    # 100 curves of 24 bins; neighbours depend on each other, so the tolerance is that of 100 intervals.
    whole, sampling = coverage(3000, 1 / 1500, 24, deviation=20, samples=100, seed=1)
    assert 0.95 - 3 * 0.0218 <= whole <= 0.99
    assert sampling < 0.75


@pytest.mark.long
@pytest.mark.parametrize(
    ("rows", "hazard", "bins", "deviation"),
    [(7000, 1 / 1500, 36, 1), (7000, 1 / 1500, 36, 25), (1083, 1 / 8000, 8, 2), (9000, 1 / 400, 16, 10)],
)
def test_intervals_hold_the_truth_in_many_samples(rows, hazard, bins, deviation):
    whole, _ = coverage(rows, hazard, bins, deviation, samples=1000, seed=2)
    assert 0.93 <= whole <= 0.98


def false_alarms(rows, hazard, bins, deviation, arms, samples, seed):
    """The share of samples without a difference in which p is below 0.05: with the noise, and as if there were none."""
    chance, asked = np.random.default_rng(seed), km(bins=bins, by=["arm"])
    declared = {**COLUMNS, "arm": Categorical(name="arm", levels=tuple("abcd"[:arms]))}
    alarms = np.zeros(2)
    for _ in range(samples):
        total = noisy(drawn(chance, rows, hazard, bins, arms), deviation, chance)
        alarms += [
            estimate(asked, declared, total, rows=rows, deviation=reported).test["p"] < 0.05
            for reported in (deviation, 1e-9)
        ]
    return alarms / samples


def test_the_log_rank_test_keeps_its_level_and_one_that_ignores_the_noise_does_not():
    whole, naive = false_alarms(3000, 1 / 1500, 8, deviation=12, arms=2, samples=200, seed=3)
    assert 0.05 - 3 * 0.0154 <= whole <= 0.05 + 3 * 0.0154
    assert naive > 0.15


def test_intervals_that_are_not_called_rough_are_not_chosen_by_their_noise():
    """About 16 of 1,083 patients die in each of eight bins, with noise of 5: some counts look large, none is clear."""
    chance, asked = np.random.default_rng(8), km(bins=8)
    truth, held, rough = np.exp(-UNTIL * np.arange(1, 9) / 8 / 10_000), [], []
    for _ in range(100):
        total = noisy(drawn(chance, 1083, 1 / 10_000, 8), 5, chance)
        found = estimate(asked, COLUMNS, total, rows=1083, deviation=5).rows
        rough += [row["is_rough"] for row in found]
        held += [row["low"] <= alive <= row["high"] for row, alive in zip(found, truth, strict=True)]
    assert np.mean(rough) > 0.85
    assert np.mean(held) > 0.9  # of all intervals, rough or not; neighbours depend on each other


@pytest.mark.long
@pytest.mark.parametrize(
    ("rows", "hazard", "bins", "deviation", "arms"),
    [(7000, 1 / 1500, 24, 1, 2), (7000, 1 / 1500, 24, 30, 2), (1083, 1 / 8000, 8, 5, 2), (7000, 1 / 1500, 24, 10, 3)],
)
def test_the_log_rank_test_keeps_its_level_in_many_samples(rows, hazard, bins, deviation, arms):
    whole, _ = false_alarms(rows, hazard, bins, deviation, arms, samples=1000, seed=4)
    assert 0.025 <= whole <= 0.07


def test_without_noise_the_test_is_the_log_rank_test():
    # By hand, two bins: 10 and 10 at risk with 2 and 6 events, then 8 and 4 with 1 and 2.
    cells = np.array([2, 1, 0, 0, 7, 6, 2, 0, 0, 2, 0])
    test = estimate(km(bins=2, by=["sex"]), COLUMNS, cells, rows=20, deviation=0.0).test
    score = 2 - 10 * 8 / 20 + 1 - 8 * 3 / 12
    variance = 10 * 10 * 8 * 12 / (20**2 * 19) + 8 * 4 * 3 * 9 / (12**2 * 11)
    assert test["statistic"] == pytest.approx(score**2 / variance)
    assert test["p"] == pytest.approx(math.erfc(math.sqrt(score**2 / variance / 2)))


def test_a_difference_is_seen_through_the_noise():
    chance = np.random.default_rng(5)
    cells = np.concatenate([drawn(chance, 2000, 1 / 1000, 8)[:-1], drawn(chance, 2000, 1 / 1500, 8)])
    asked = km(bins=8, by=["sex"])
    assert estimate(asked, COLUMNS, noisy(cells, 10, chance), rows=4000, deviation=10.0).test["p"] < 1e-4


def test_where_nobody_can_be_distinguished_from_noise_the_curve_says_so():
    with pytest.raises(ChoralError, match="CH320"):
        estimate(km(), COLUMNS, np.zeros(10), rows=20, deviation=100.0)
    few = np.array([900, 0, 0, 0, 90, 0, 0, 0, 10, 0])
    answer = estimate(km(), COLUMNS, few, rows=1000, deviation=20.0)
    assert answer.is_rough and [row["low"] == 0.0 for row in answer.rows] == [False, True, True, True]


def test_a_plan_is_wider_with_more_noise_and_says_when_nothing_can_be_answered():
    widths = [expected(BY_SEX, COLUMNS, rows=4000, deviation=noise).width for noise in (1.0, 10.0, 1000.0)]
    assert widths[0] < widths[1] < widths[2] == math.inf


def test_an_event_may_be_a_number_or_a_named_level():
    declared = {
        **COLUMNS,
        "died": Numeric(name="died", low=0, high=1),
        "fate": Categorical(name="fate", levels=("a", "d")),
    }
    rows = table(days=[10, 10], died=[1, 0], fate=["d", "a"])
    for parameters in ({"event": "died"}, {"event": "fate", "occurred": "d"}):
        assert summand(km(**parameters), declared).total(rows).tolist() == [1, 0, 0, 0, 1, 0, 0, 0, 0, 0]


REFUSED = [
    {"event": "sex"},
    {"event": "age"},
    {"event": "died", "occurred": "yes"},
    {"event": "died", "occurred": 1},
    {"time": "sex"},
    {"time": "early"},
    {"until": 0},
    {"until": -5},
    {"until": 2001},
    {"until": True},
    {"until": "long"},
    {"bins": 1},
    {"bins": 49},
    {"bins": 2**20},
    {"bins": 3.5},
    {"bins": [4]},
    {"power": 0},
    {"by": "site"},
    {"by": ["one"]},
    {"by": ["age"], "cuts": {"age": list(range(1, 17))}},
    {"by": ["age"]},
    {"every": 3},
    {"time": None},
    {"event": None},
]


@pytest.mark.parametrize("parameters", REFUSED, ids=str)
def test_parameters_out_of_range_are_refused_before_a_table_is_read(parameters):
    declared = {
        **COLUMNS,
        "early": Numeric(name="early", low=-1, high=9),
        "one": Categorical(name="one", levels=("a",)),
        "site": Categorical(name="site", levels=("a", "b")),
    }
    with pytest.raises(ChoralError, match="CH102"):
        summand(km(**parameters), declared)


def test_the_sum_over_a_table_is_the_sum_over_its_parts():
    rows = people(300)
    parts = [table(**{name: cells[start::3] for name, cells in rows.columns.items()}) for start in range(3)]
    found = summand(BY_SEX, COLUMNS)
    assert found.total(rows).tolist() == sum(found.total(part) for part in parts).tolist()
    assert found.total(rows).sum() == 300


def largest_error(chance, cells, bins, deviation):
    """Of a curve at the ends of its bins, against that of the same cells without noise."""
    rows, asked = int(cells.sum()), km(bins=bins)
    exact, found = (
        [row["estimate"] for row in estimate(asked, COLUMNS, total, rows=rows, deviation=told).rows]
        for total, told in ((cells, 0.0), (noisy(cells, deviation, chance), deviation))
    )
    return max(abs(one - other) for one, other in zip(exact, found, strict=True))


def test_bins_lean_on_their_neighbours_where_noise_prevails(monkeypatch):
    chance = np.random.default_rng(9)
    cells = drawn(chance, 3000, 1 / 1500, 36)
    leaning = np.mean([largest_error(chance, cells, 36, 12) for _ in range(60)])
    monkeypatch.setattr(
        "choral.asking.survival.leaning", lambda n, *_: (np.eye(len(n)), np.zeros((len(n), len(n))))
    )  # fmt: skip
    assert leaning < 0.85 * np.mean([largest_error(chance, cells, 36, 12) for _ in range(60)])


@pytest.mark.parametrize(
    ("parameters", "rows", "deviation", "bins"),
    [  # by hand: rows of an arm over 12σ, rounded, from 8 to 48 (decision 52)
        ({}, 1083, 5.8, 16),
        ({}, 7871, 5.9, 48),
        ({}, 300, 20, 8),
        ({"by": ["sex"]}, 4332, 5.8, 31),
        ({"bins": 9}, 300, 20, 9),
    ],
)
def test_a_curve_has_as_many_bins_as_its_rows_and_noise_allow_unless_somebody_says(parameters, rows, deviation, bins):
    asked = km(**{"bins": None, **parameters})
    assert completed(asked, COLUMNS, rows=rows, deviation=deviation).parameters["bins"] == bins
