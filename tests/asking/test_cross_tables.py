"""count and table: what is counted, how far one row moves it, intervals, and refusals before a row is read."""

import itertools
import math

import numpy as np
import pytest

from choral.asking.catalogue import estimate, expected, summand
from choral.asking.cells import condition
from choral.asking.question import Question
from choral.core.errors import ChoralError
from tests.asking.people import COLUMNS, people, table

SMOKERS = Question(name="table", parameters={"columns": ["smoker"], "by": ["sex"], "where": [condition("age>=60")]})


def ask(name, **parameters):
    return Question(name=name, parameters=parameters)


def test_a_table_counts_the_rows_of_every_cell():
    rows = table(smoker=["yes", "no", "", "pipe"], sex=["f", "m", "m", "x"], age=[70, 59.9, 60, 80])
    # f: no, yes, unknown by m … the last axis (sex) is the fastest; the row of sex "x" is in the last cell.
    assert summand(SMOKERS, COLUMNS).total(rows).tolist() == [0, 0, 1, 0, 0, 1, 1]


def test_numbers_are_cut_where_the_question_says():
    asked = ask("table", columns=["age"], cuts={"age": [40, 60]})
    rows = table(age=[-5, 39.9, 40, 60, 400, None])
    assert summand(asked, COLUMNS).total(rows).tolist() == [2, 1, 2, 1]
    answer = estimate(asked, COLUMNS, np.array([2, 1, 2, 1]), rows=6, deviation=1.0)
    assert [row["age"] for row in answer.rows] == ["[0, 40)", "[40, 60)", "[60, 100]"]


def test_a_count_is_of_the_rows_that_fulfil_every_condition():
    asked = ask("count", where=[condition("age<50"), condition("sex=f")])
    rows = table(age=[10, 10, 50, None], sex=["f", "m", "f", "f"])
    assert summand(asked, COLUMNS).total(rows).tolist() == [1]


ROWS = [dict(zip(("smoker", "sex", "age"), row, strict=True)) for row in itertools.product(
    ("yes", "no", "odd", None), ("f", "m", "odd"), (0, 60, 99, "odd"))]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "claim"),
    [(SMOKERS, math.sqrt(2)), (ask("count", where=[condition("age>=60")]), 1.0)],
)
def test_no_two_rows_are_farther_apart_than_the_claim_and_some_reach_it(asked, claim):
    found = summand(asked, COLUMNS)
    vectors = [found.total(table(**{name: [cell] for name, cell in row.items()})) for row in ROWS]
    apart = max(np.linalg.norm(one - other) for one, other in itertools.combinations(vectors, 2))
    assert found.l2 == claim == pytest.approx(apart)
    assert max(np.abs(vector).max() for vector in vectors) == found.largest


def test_tables_of_several_columns_are_one_sum_of_blocks():
    asked = ask("tables", columns=["sex", "smoker", "age"], bins=4)
    found = summand(asked, COLUMNS)
    vectors = [found.total(table(**{name: [cell] for name, cell in row.items()})) for row in ROWS]
    apart = max(np.linalg.norm(one - other) for one, other in itertools.combinations(vectors, 2))
    assert found.l2 == math.sqrt(2 * 3) == pytest.approx(apart)
    rows = people(500)
    answer = estimate(asked, COLUMNS, found.total(rows), rows=500, deviation=0.0)
    cells = {(row["column"], row["cell"]): row["estimate"] for row in answer.rows}
    assert cells["sex", "f"] == rows.columns["sex"].count("f")
    assert cells["age", "[25, 50)"] == sum(25 <= age < 50 for age in rows.columns["age"])
    assert [row["projected"] for row in answer.rows] == [row["estimate"] for row in answer.rows]
    assert expected(asked, COLUMNS, rows=500, deviation=2.0).width == pytest.approx(2 * 1.95996 * 2, rel=1e-4)


def test_the_sum_over_a_table_is_the_sum_of_its_rows():
    rows = people(40)
    found = summand(SMOKERS, COLUMNS)
    single = [table(**{name: [cells[row]] for name, cells in rows.columns.items()}) for row in range(40)]
    assert found.total(rows).tolist() == sum(found.total(one) for one in single).tolist()


def test_intervals_hold_the_true_count_and_the_true_share_in_95_of_100_answers():
    asked = ask("table", columns=["smoker"])
    chance = np.random.default_rng(7)
    truth, held = np.array([0.6, 0.3, 0.1]), {"count": 0, "share": 0}
    for _ in range(400):
        counts = chance.multinomial(2000, truth)
        noisy = np.rint(np.append(counts, 0) + chance.normal(0, 30, 4)).astype(int)
        for row, count, share in zip(
            estimate(asked, COLUMNS, noisy, rows=2000, deviation=30.0).rows, counts, truth, strict=True
        ):
            held["count"] += row["low"] <= count <= row["high"]
            held["share"] += row["share_low"] <= share <= row["share_high"]
    # 1,200 intervals of 95 %: three standard errors are 1.9 points.
    assert all(0.931 <= hits / 1200 <= 0.969 for hits in held.values())


def test_the_nearest_counts_are_nowhere_negative_and_add_up_to_the_public_number_of_rows():
    answer = estimate(ask("table", columns=["smoker"]), COLUMNS, np.array([90, 30, -8, -9]), rows=100, deviation=9.0)
    assert [row["projected"] for row in answer.rows] == [80.0, 20.0, 0.0]
    assert [row["estimate"] for row in answer.rows] == [90.0, 30.0, -8.0]


def test_a_plan_shows_the_width_of_the_interval():
    assert expected(SMOKERS, COLUMNS, rows=1000, deviation=5.0).width == pytest.approx(2 * 1.96 * 5, rel=1e-3)


REFUSED = {
    "CH608": [ask("trees")],
    "CH321": [ask("table", columns=["height"]), ask("count", where=[condition("height>=2")])],
    "CH322": [
        ask("count", where=[condition("sex=x")]),
        ask("count", where=[{"column": "sex", "levels": [["f"]]}]),
        ask("count", where=[condition("age>=101")]),
        ask("table", columns=["age"], cuts={"age": [40, 100]}),
    ],
    "CH102": [
        ask("count"),
        ask("count", where=[condition("age>=60")], epsilon=3),
        ask("count", where=[{"column": "age"}]),
        ask("count", where=[{"column": "age", "at_least": "60"}]),
        ask("count", where=[{"column": "age", "at_least": 60, "below": 60}]),
        ask("count", where=[{"column": "age", "at_least": 60, "code": "x"}]),
        ask("count", where=[{"column": "sex", "levels": []}]),
        ask("count", where="age>=60"),
        ask("table", columns=["age"]),
        ask("table", columns=["weight"]),
        ask("table", columns=[]),
        ask("table", columns=["sex", "sex"]),
        ask("table", columns=["sex"], by=["sex"]),
        ask("table", columns=["sex"], by="site"),
        ask("table", columns=["sex"], by=["smoker", "site"]),
        ask("table", columns=["age"], cuts={"age": [60, 40]}),
        ask("table", columns=["age"], cuts={"age": [True]}),
        ask("table", columns=["sex"], cuts={"age": [40]}),
        ask("table", columns=["age"], cuts=[40]),
        ask("table", columns=[["sex"]]),
        ask("table", columns=["age", "days"], cuts={"age": [n / 10 for n in range(1, 300)], "days": [*range(1, 300)]}),
    ],
}


@pytest.mark.parametrize(("code", "asked"), [(code, one) for code, listed in REFUSED.items() for one in listed])
def test_what_was_not_declared_is_refused_before_a_table_is_read(code, asked):
    with pytest.raises(ChoralError) as refusal:
        summand(asked, COLUMNS)
    assert refusal.value.code == code


@pytest.mark.parametrize("text", ["age", "age>60", "age>=old", ""])
def test_a_condition_that_says_nothing_known_is_refused(text):
    with pytest.raises(ChoralError, match="CH102"):
        condition(text)


def test_a_state_is_refused_where_a_question_has_none():
    with pytest.raises(ChoralError, match="CH102"):
        summand(SMOKERS, COLUMNS, np.zeros(3))
