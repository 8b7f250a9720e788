"""bounds: every number has one cell, noise alone shows none, and the block that is printed declares the columns."""

import itertools
import math
import tomllib

import numpy as np
import pytest

from choral.asking.catalogue import estimate, expected, summand
from choral.asking.column_bounds import CELLS
from choral.asking.question import Question
from choral.core.errors import ChoralError
from choral.tables.columns import declare
from tests.asking.coverage import noisy
from tests.asking.pairs import farthest
from tests.asking.people import COLUMNS, people, table


def bounds(*names):
    return Question(name="bounds", parameters={"columns": list(names)})


CELLS_OF = {
    0.0: 64, "-0.0": 64, 1.0: 97, 1.999: 97, 2.0: 98, -1.0: 31, -2.0: 30, 5e-324: 65, -1e-300: 63,
    1e300: 128, -1e300: 0,
    math.nan: CELLS, math.inf: CELLS, "much": CELLS, None: CELLS, "": CELLS,
}  # fmt: skip


@pytest.mark.parametrize("cell", CELLS_OF)
def test_every_cell_of_a_table_has_one_place(cell):
    total = summand(bounds("weight"), COLUMNS).total(table(weight=[cell]))
    assert np.flatnonzero(total).tolist() == [CELLS_OF[cell]] and total.sum() == 1


@pytest.mark.parametrize("names", [("weight",), ("weight", "age", "days")])
def test_no_two_rows_are_farther_apart_than_the_claim_and_some_reach_it(names):
    found = summand(bounds(*names), COLUMNS)
    rows = list(itertools.product([-3.0, 0.0, 1e9, None], repeat=len(names)))
    apart = farthest(found, dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    assert found.l2 == math.sqrt(2 * len(names)) == pytest.approx(apart)


def test_the_block_declares_columns_that_hold_almost_all_rows():
    rows = people(5000)
    asked = bounds("weight", "cost")
    total = noisy(summand(asked, COLUMNS).total(rows), 20.0, np.random.default_rng(1))
    answer = estimate(asked, COLUMNS, total, rows=5000, deviation=20.0)
    reported = tomllib.loads(answer.block)["data"]["columns"]
    weight = declare("weight", reported["weight"])
    assert (weight.low, weight.high) == (32.0, 128.0)  # 75 ± 12
    within = [row for row in answer.rows if row["quantity"] == "share within"]
    assert len(within) == 2 and all(row["low"] <= 1.0 and row["estimate"] > 0.97 for row in within)
    assert "private bounds" in answer.block


def test_the_names_of_columns_are_quoted_in_the_block():
    odd = 'a b"]'
    total = np.zeros(CELLS + 1, dtype=int)
    total[97:99] = 500
    answer = estimate(bounds(odd), {odd: None}, total, rows=1000, deviation=1.0)
    assert tomllib.loads(answer.block)["data"]["columns"][odd]["bounds"] == [1.0, 4.0]


def test_negative_numbers_and_zeros_have_bounds():
    total = np.zeros(CELLS + 1, dtype=int)
    total[[30, 64]] = 500
    low, high, within, missing = estimate(bounds("weight"), COLUMNS, total, rows=1000, deviation=1.0).rows
    assert (low["estimate"], low["low"], low["high"]) == (-4.0, -4.0, -2.0)
    assert (high["estimate"], high["low"], high["high"]) == (0.0, 0.0, 0.0)
    assert within["estimate"] == 1.0 and missing["low"] == 0.0


def false_cells(columns, seed):
    """Columns of which noise shows a cell that no row is in; all 50 columns of a question hold numbers from 1 to 2."""
    chance, asked = np.random.default_rng(seed), bounds(*(f"c{place}" for place in range(50)))
    declared, wrong = {f"c{place}": None for place in range(50)}, 0
    truth = np.zeros((50, CELLS + 1))
    truth[:, 97] = 100_000
    for _ in range(columns // 50):
        total = noisy(truth.ravel(), 400.0, chance)
        block = tomllib.loads(estimate(asked, declared, total, rows=100_000, deviation=400.0).block)
        wrong += sum(reported["bounds"] != [1.0, 2.0] for reported in block["data"]["columns"].values())
    return wrong


# The chance of one false cell is 1e-4 per question of 50 columns: 0.2 % and 2 % in all; the seeds are fixed.
@pytest.mark.parametrize("columns", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_noise_shows_no_cell_that_holds_no_row(columns):
    assert false_cells(columns, seed=0) == 0


def test_where_nothing_is_seen_nothing_is_guessed():
    with pytest.raises(ChoralError, match="CH320"):
        estimate(bounds("weight"), COLUMNS, np.full(CELLS + 1, 30), rows=1000, deviation=20.0)
    seen = np.zeros(2 * (CELLS + 1), dtype=int)
    seen[97] = 900
    answer = estimate(bounds("weight", "days"), COLUMNS, seen, rows=1000, deviation=20.0)
    assert {row["column"] for row in answer.rows} == {"weight"} and answer.is_rough
    assert 'Nothing is seen of column "days".' in answer.sentences


def test_a_plan_says_how_many_rows_are_seen():
    planned = expected(bounds("weight"), COLUMNS, rows=1000, deviation=20.0)
    assert 90 < planned.width < 110 and "of 1,000 rows" in planned.sentence
    assert expected(bounds("weight"), COLUMNS, rows=50, deviation=20.0).width == math.inf


@pytest.mark.parametrize("parameters", [{"columns": ["sex"]}, {"columns": []}, {"columns": ["age"], "where": []}])
def test_parameters_out_of_range_are_refused(parameters):
    with pytest.raises(ChoralError, match="CH102"):
        summand(Question(name="bounds", parameters=parameters), COLUMNS)
