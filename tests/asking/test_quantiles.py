"""cdf and quantiles: the root is undone exactly, its sensitivity is that of its columns, and intervals hold."""

import math

import numpy as np
import pytest
from scipy.stats import beta

from choral.asking.catalogue import estimate, expected, summand
from choral.asking.quantiles import UNIT, root, sensitivity, undoing
from choral.asking.question import Question
from choral.errors import ChoralError
from tests.asking.coverage import fits, held
from tests.asking.pairs import farthest
from tests.asking.people import COLUMNS, people, table

LEVELS = [0.1, 0.25, 0.5, 0.9]


def cdf(column="age", **parameters):
    return Question(name="cdf", parameters={"column": column, **parameters})


def quantiles(**parameters):
    return Question(name="quantiles", parameters={"column": "age", "levels": LEVELS, **parameters})


@pytest.mark.parametrize(("bins", "claim"), [(64, 1.91), (256, 2.13), (1024, 2.33), (4096, 2.51)])
def test_the_sensitivity_is_that_of_the_design(bins, claim):
    assert sensitivity(bins) / UNIT == pytest.approx(claim, abs=0.005)


@pytest.mark.parametrize("bins", [2, 3, 64, 200])
def test_no_two_rows_are_farther_apart_than_the_claim_and_some_reach_it(bins):
    found = summand(cdf(bins=bins), COLUMNS)
    ages = [*((place + 0.5) * 100 / bins for place in range(bins)), -9, 900, None, "old"]
    assert farthest(found, {"age": ages}) == pytest.approx(found.l2, rel=1e-12)


@pytest.mark.parametrize("bins", [2, 16, 64, 256, 1024, 4096])
@pytest.mark.parametrize("asked", [cdf, quantiles])
def test_the_worst_pair_is_the_first_cell_and_the_one_at_0_83_of_all(asked, bins):
    # With f_k ≈ 1/√(πk), π‖c_0 − c_j‖² at j = xn is ln(1 − x) − 4·asinh √((1 − x)/x) and a constant. Its derivative,
    # −1/(1 − x) + 2/(x√(1 − x)), is 0 where x = 2√(1 − x), so x = 2(√2 − 1).
    found = summand(asked(bins=bins), COLUMNS)
    worst = round(2 * (math.sqrt(2) - 1) * (bins + 1))  # the last of bins + 1 cells has the rows without a number
    pair = {"age": [0.5 * 100 / bins, (worst + 0.5) * 100 / bins if worst < bins else None]}
    assert 0.998 * found.l2 <= farthest(found, pair) <= found.l2 * (1 + 1e-12)


def test_the_root_is_undone_exactly():
    cells = np.random.default_rng(2).integers(0, 50, 300)
    total = np.convolve(cells, root(300))[:300]
    assert np.convolve(undoing(300), total)[:300] == pytest.approx(np.cumsum(cells), abs=1e-6)


@pytest.mark.parametrize("column", ["age", "cost"])
def test_without_noise_the_curve_is_the_share_of_rows_below(column):
    rows = people(2000)
    asked = cdf(column, bins=32)
    answer = estimate(asked, COLUMNS, summand(asked, COLUMNS).total(rows), rows=2000, deviation=0.0)
    values = np.array(rows.columns[column]).clip(0, COLUMNS[column].high)
    below = [(values < row["value"]).mean() for row in answer.rows[:-1]]
    assert [row["estimate"] for row in answer.rows] == pytest.approx([*below, 1.0], abs=1e-9)


def test_without_noise_quantiles_are_within_a_cell_of_those_of_the_rows():
    rows = people(5000)
    answer = estimate(quantiles(), COLUMNS, summand(quantiles(), COLUMNS).total(rows), rows=5000, deviation=0.0)
    exact = np.quantile(rows.columns["age"], LEVELS)
    assert [row["estimate"] for row in answer.rows] == pytest.approx(exact.tolist(), abs=100 / 256)


def draw(chance, rows):
    return table(age=(100 * chance.beta(2, 5, rows)).tolist())


TRUE_QUANTILES = (100 * beta(2, 5).ppf(LEVELS)).tolist()
TRUE_SHARES = beta(2, 5).cdf(np.arange(1, 17) / 16).tolist()


@pytest.mark.parametrize(
    ("asked", "truths", "deviation"), [(quantiles(), TRUE_QUANTILES, 4), (cdf(bins=16), TRUE_SHARES, 1)]
)
def test_intervals_hold_the_truth(asked, truths, deviation):
    # Where a share is next to 0 or 1, and where noise makes the curve flat, intervals hold more than they promise.
    shares = held(asked, COLUMNS, draw, truths, rows=1000, deviation=deviation, samples=100, seed=1)
    assert fits(shares, 100, most=1)
    assert fits(shares[:3], 100, most=0.97)


@pytest.mark.long
@pytest.mark.parametrize(
    ("asked", "truths", "deviation"),
    [(quantiles(), TRUE_QUANTILES, 0.1), (quantiles(), TRUE_QUANTILES, 10), (cdf(bins=16), TRUE_SHARES, 6)],
)
def test_intervals_hold_the_truth_in_many_samples(asked, truths, deviation):
    shares = held(asked, COLUMNS, draw, truths, rows=4000, deviation=deviation, samples=500, seed=2)
    assert fits(shares, 500, least=0.94, most=1)


def test_levels_within_the_noise_of_an_end_are_refused():
    found = summand(quantiles(), COLUMNS)
    total = found.total(draw(np.random.default_rng(1), 1000))
    with pytest.raises(ChoralError, match=r"CH323 the level 0\.1 .* between 0\.35 and 0\.65"):
        estimate(quantiles(), COLUMNS, total, rows=1000, deviation=30 * found.l2)
    with pytest.raises(ChoralError, match="CH320"):
        estimate(quantiles(), COLUMNS, total, rows=1000, deviation=300 * found.l2)


def test_a_plan_says_how_wide_intervals_are_and_when_there_is_none():
    found = summand(quantiles(), COLUMNS)
    widths = [expected(quantiles(), COLUMNS, rows=1000, deviation=noise * found.l2).width for noise in (0.01, 5, 300)]
    # Of a median of 1,000 even numbers from 0 to 100: 2·1.96·50·√(1/1000) = 6.2.
    assert widths[0] == pytest.approx(6.2, abs=0.1) and widths[0] < widths[1] < widths[2] == math.inf


@pytest.mark.parametrize(
    "asked",
    [
        cdf(bins=1),
        cdf(bins=2**20),
        cdf("sex"),
        cdf(levels=[0.5]),
        quantiles(levels=[]),
        quantiles(levels=[0.0]),
        quantiles(levels=[1]),
        quantiles(levels=["half"]),
        quantiles(levels=0.5),
        quantiles(levels=[True]),
        quantiles(by="site"),
    ],
)
def test_parameters_out_of_range_are_refused(asked):
    with pytest.raises(ChoralError, match="CH102"):
        summand(asked, COLUMNS)
