"""moments: the matrix distance holds on whole numbers, and correlations and slopes have intervals that hold."""

import itertools
import math

import numpy as np
import pytest

from choral.asking.catalogue import estimate, expected, summand
from choral.asking.question import Question
from choral.core.errors import ChoralError
from choral.tables.columns import Categorical, Numeric
from tests.asking.coverage import fits, held
from tests.asking.pairs import farthest
from tests.asking.people import table

COLUMNS = {
    "a": Numeric(name="a", low=-4, high=4),
    "b": Numeric(name="b", low=-8, high=8),
    "s": Categorical(name="s", levels=("no", "yes")),
    "y": Numeric(name="y", low=-20, high=30),
    "t": Categorical(name="t", levels=("1", "2", "3")),
    **{f"x{place}": Numeric(name=f"x{place}", low=-1, high=1) for place in range(8)},
}
PAIRS = Question(name="moments", parameters={"columns": ["a", "b", "s"]})
SLOPES = Question(name="moments", parameters={"columns": ["a", "b", "s", "y"], "target": "y"})
TRUE_SLOPES = [2, -1, 3, 1]  # of a, b and s, and the intercept


def draw(chance, rows):
    a, s = chance.normal(0, 1, rows), chance.random(rows) < 0.4
    b = 0.6 * a + 0.8 * chance.normal(0, 1, rows)
    y = 1 + 2 * a - b + 3 * s + chance.normal(0, 2, rows)
    return table(a=a.tolist(), b=b.tolist(), s=np.where(s, "yes", "no").tolist(), y=y.tolist())


@pytest.mark.parametrize(("columns", "reached"), [(8, 0.98), (3, 0.9), (2, 0.9)])
def test_no_two_rows_are_farther_apart_than_the_claim_and_some_reach_it(columns, reached):
    # Tight where u·v = 0 with all |x| = 1: with 8 columns, three of which agree and five of which do not.
    names = [f"x{place}" for place in range(columns)]
    found = summand(Question(name="moments", parameters={"columns": names}), COLUMNS)
    chance = np.random.default_rng(5)
    corners = [[1.0] * columns, *([(-1.0) ** (place < flipped) for place in range(columns)] for flipped in range(9))]
    inner = chance.uniform(-1.2, 1.2, (150, columns)).tolist()
    rows = [*corners, *inner, [None] * columns, ["?"] * columns]
    apart = farthest(found, dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    assert reached * found.l2 <= apart <= found.l2


def test_without_noise_the_slopes_are_those_of_least_squares():
    rows = draw(np.random.default_rng(1), 4000)
    columns = [np.array(rows.columns[name], dtype=float) for name in ("a", "b")]
    columns.append((np.array(rows.columns["s"]) == "yes").astype(float))
    columns[0], columns[1] = columns[0].clip(-4, 4), columns[1].clip(-8, 8)
    design = np.column_stack([*columns, np.ones(4000)])
    least = np.linalg.lstsq(design, np.array(rows.columns["y"]), rcond=None)[0]
    answer = estimate(SLOPES, COLUMNS, summand(SLOPES, COLUMNS).total(rows), rows=4000, deviation=0.0)
    assert [row["term"] for row in answer.rows] == ["a", "b", "s", "(intercept)"]
    assert [row["estimate"] for row in answer.rows] == pytest.approx(least.tolist(), abs=0.02)


def test_without_noise_the_correlations_are_those_of_the_rows():
    rows = draw(np.random.default_rng(1), 4000)
    matrix = np.corrcoef(
        [np.array(rows.columns["a"]), np.array(rows.columns["b"]), np.array(rows.columns["s"]) == "yes"]
    )
    answer = estimate(PAIRS, COLUMNS, summand(PAIRS, COLUMNS).total(rows), rows=4000, deviation=0.0)
    found = {(row["column"], row["with"]): row["estimate"] for row in answer.rows}
    for (one, first), (other, second) in itertools.combinations(enumerate("abs"), 2):
        assert found[first, second] == pytest.approx(matrix[one, other], abs=0.01)


@pytest.mark.parametrize(("asked", "truths", "deviation"), [(PAIRS, [0.6, 0, 0], 1), (SLOPES, TRUE_SLOPES, 0.3)])
def test_intervals_hold_the_truth(asked, truths, deviation):
    shares = held(asked, COLUMNS, draw, truths, rows=3000, deviation=deviation, samples=80, seed=2)
    assert fits(shares, 80, most=0.98)


@pytest.mark.long
@pytest.mark.parametrize(
    ("asked", "truths", "deviation"),
    [
        *((PAIRS, [0.6, 0, 0], deviation) for deviation in (0.01, 1, 6)),
        *((SLOPES, TRUE_SLOPES, deviation) for deviation in (0.01, 1, 3)),
    ],
)
def test_intervals_hold_the_truth_in_many_samples(asked, truths, deviation):
    shares = held(asked, COLUMNS, draw, truths, rows=20_000, deviation=deviation, samples=500, seed=3)
    assert fits(shares, 500, least=0.94, most=0.98)


def test_what_the_noise_hides_is_said_to_be_not_identified():
    for asked in (PAIRS, SLOPES):
        found = summand(asked, COLUMNS)
        answer = estimate(asked, COLUMNS, np.zeros(found.length, dtype=int), rows=1000, deviation=10 * found.l2)
        assert answer.rows == [] and answer.is_rough
        assert answer.sentences[0].startswith('Not identified at this ε: "a"')
        assert expected(asked, COLUMNS, rows=1000, deviation=100 * found.l2).width == math.inf


@pytest.mark.parametrize(
    "parameters",
    [
        {"columns": ["a"]},
        {"columns": ["a", "t"]},
        {"columns": ["a", "b"], "target": "y"},
        {"columns": ["a", "b"], "where": []},
    ],
)
def test_parameters_out_of_range_are_refused(parameters):
    with pytest.raises(ChoralError, match="CH102"):
        summand(Question(name="moments", parameters=parameters), COLUMNS)
