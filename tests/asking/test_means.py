"""mean: squares ride for nothing, bad cells count for nothing, and intervals hold what they promise."""

import math

import numpy as np
import pytest

from choral.asking import moments
from choral.asking.catalogue import estimate, expected, summand
from choral.asking.question import Question
from choral.core.errors import ChoralError
from tests.asking.coverage import fits, held
from tests.asking.pairs import farthest, vectors
from tests.asking.people import COLUMNS, people, table

AGE = Question(name="mean", parameters={"column": "age"})
WOMEN = Question(name="mean", parameters={"column": "age", "where": [{"column": "sex", "levels": ["f"]}]})
MEAN, VARIANCE = 200 / 7, 10_000 * 10 / (49 * 8)  # of 100 times a Beta(2, 5)


def test_the_farthest_of_all_pairs_is_within_the_claim_and_more_than_two_units_apart():
    """All 8,193 numbers that x can be, and a row that does not count; 2U alone, without the rounding, is too little."""
    found = summand(AGE, COLUMNS)
    ages = np.arange(-moments.MEAN_UNIT, moments.MEAN_UNIT + 1)
    grid = np.concatenate([vectors(found, {"age": [None]}), _phi(ages)])
    assert np.array_equal(
        vectors(found, {"age": (50 + 50 * ages[::97] / moments.MEAN_UNIT).tolist()}), _phi(ages[::97])
    )
    largest = max(
        int(((block[:, None] - grid) ** 2).sum(axis=2).max()) for block in np.array_split(grid, 64)
    )  # whole numbers: exact
    assert 2 * moments.MEAN_UNIT < math.sqrt(largest) <= found.l2 == 2 * moments.MEAN_UNIT + 1
    assert math.sqrt(largest) == pytest.approx(8192.2036, abs=1e-4)


def _phi(x):
    """φ of rows at these places of the grid, by the formula of docs/sums.md."""
    squares = np.floor(moments.SQUARES / 1000 * x**2 / moments.MEAN_UNIT + 0.5).astype(np.int64) - moments.CENTRE
    return np.stack([x, squares, np.full_like(x, moments.ROWS)], axis=1)


@pytest.mark.parametrize("asked", [AGE, WOMEN])
def test_no_two_rows_are_farther_apart_than_the_claim_and_some_reach_it(asked):
    found = summand(asked, COLUMNS)
    ages = [*np.linspace(-5, 105, 331), None, "old", float("inf")]
    apart = farthest(found, {"age": ages, "sex": ["f", "m"] * (len(ages) // 2)})
    assert 0.98 * found.l2 <= apart <= found.l2


def test_a_larger_weight_of_the_squares_would_break_the_claim(monkeypatch):
    # The bound of docs/sums.md is tight: w² = 2.7725 is the least of (4 − s)/(s(2 − s)²), at s = 0.764.
    monkeypatch.setattr(moments, "SQUARES", 1700)
    found = summand(AGE, COLUMNS)
    assert farthest(found, {"age": np.linspace(0, 100, 401).tolist()}) > found.l2


def test_the_answer_without_noise_is_the_mean_and_the_variance():
    rows = people(5000)
    ages = np.array(rows.columns["age"])
    answer = estimate(AGE, COLUMNS, summand(AGE, COLUMNS).total(rows), rows=5000, deviation=0.0)
    # Rounding: at most half of a 4,096th of 50 years in each number.
    assert answer.rows[0]["estimate"] == pytest.approx(ages.mean(), abs=0.002)
    assert answer.rows[1]["estimate"] == pytest.approx(ages.var(), abs=0.5)


def test_cells_that_are_no_numbers_count_for_nothing():
    found = summand(WOMEN, COLUMNS)
    assert found.total(table(age=[None, "old", 10], sex=["f", "f", "m"])).tolist() == [0, 0, 0]


def ages(chance, rows):
    return table(age=(100 * chance.beta(2, 5, rows)).tolist(), sex=["f", "m"] * (rows // 2))


# The interval of the variance takes the largest fourth moment in the bounds, so it may hold more often than 95 %.
@pytest.mark.parametrize(("asked", "deviation"), [(AGE, 0.01), (AGE, 20), (WOMEN, 5)])
def test_intervals_hold_the_truth(asked, deviation):
    shares = held(asked, COLUMNS, ages, [MEAN, VARIANCE], rows=1000, deviation=deviation, samples=200, seed=3)
    assert fits(shares[:1], 200) and fits(shares[1:], 200, most=1)


@pytest.mark.long
@pytest.mark.parametrize(("asked", "deviation"), [(AGE, 0.01), (AGE, 3), (AGE, 40), (WOMEN, 0.01), (WOMEN, 10)])
def test_intervals_hold_the_truth_in_many_samples(asked, deviation):
    shares = held(asked, COLUMNS, ages, [MEAN, VARIANCE], rows=2000, deviation=deviation, samples=2000, seed=4)
    assert fits(shares[:1], 2000, most=0.96) and fits(shares[1:], 2000, most=1)


def test_too_few_rows_are_said_to_be_too_few():
    with pytest.raises(ChoralError, match="CH320"):
        estimate(WOMEN, COLUMNS, np.array([0, 0, 5000]), rows=1000, deviation=5000.0)


def test_a_plan_shows_the_width_that_even_numbers_would_have():
    # 2·1.96·√(variance of the mean): 100²/12 of even numbers, 1,000 rows, and the noise of 50 years in 4,096 steps.
    spread = np.sqrt(100**2 / 12 / 1000 + (50 * 4096 / 4096 / 1000) ** 2)
    assert expected(AGE, COLUMNS, rows=1000, deviation=4096.0).width == pytest.approx(2 * 1.95996 * spread, rel=1e-4)


@pytest.mark.parametrize(
    "parameters", [{}, {"column": "sex"}, {"column": ["age", "days"]}, {"column": "age", "by": "sex"}]
)
def test_parameters_out_of_range_are_refused(parameters):
    with pytest.raises(ChoralError, match="CH102"):
        summand(Question(name="mean", parameters=parameters), COLUMNS)
