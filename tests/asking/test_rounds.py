"""Rounds of models: gradients stay within their length in whole numbers, and a state that is no model is refused."""

import itertools
import math

import numpy as np
import pytest

from choral.asking.catalogue import estimate, summand
from choral.asking.gradients import UNIT
from choral.asking.question import Question
from choral.core.errors import ChoralError
from tests.asking.pairs import farthest, vectors
from tests.asking.people import COLUMNS, people, table

GIVEN = {"columns": ["age", "cost", "smoker"], "target": "died"}
LOGISTIC = Question(name="logistic_round", parameters=GIVEN)
LINEAR = Question(name="linear_round", parameters={**GIVEN, "target": "days"})
ADDITIVE = Question(name="additive_round", parameters={**GIVEN, "bins": 8, "weight": 0.5})
LENGTH = {LOGISTIC.name: 2 + 3 + 1, LINEAR.name: 2 + 3 + 1, ADDITIVE.name: 2 + 8 + 8 + 3 + 1}
ROUNDS = [LOGISTIC, LINEAR, ADDITIVE]
A_ROW = math.isqrt(3 * UNIT**2)  # what counts a row that has every value

ODD = list(
    itertools.product([0, 50, 100, 1e9, None], [0, 300, 5e4, "?"], ["no", "yes", ""], [0, 1, None], [0, 900, 2000])
)
ROWS = dict(zip(("age", "cost", "smoker", "died", "days"), map(list, zip(*ODD, strict=True)), strict=True))


@pytest.mark.parametrize("asked", ROUNDS, ids=lambda asked: asked.name)
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e6])
def test_no_two_rows_are_farther_apart_than_the_claim_at_any_state(asked, scale):
    found = summand(asked, COLUMNS, scale * np.random.default_rng(1).uniform(-1, 1, LENGTH[asked.name]))
    assert found.length == LENGTH[asked.name] + 1  # the last number counts rows
    assert farthest(found, ROWS) <= found.l2 == 2 * UNIT


@pytest.mark.parametrize("asked", [LOGISTIC, ADDITIVE], ids=lambda asked: asked.name)
def test_two_rows_that_differ_in_the_target_reach_the_claim(asked):
    pair = {"age": [100, 100], "cost": [5e4, 5e4], "smoker": ["no", "no"], "died": [0, 1]}
    found = summand(asked, COLUMNS, np.zeros(LENGTH[asked.name]))
    assert 0.98 * found.l2 <= farthest(found, pair) <= found.l2
    # As if cells of different rows never were the same: √(2F) in place of 2√F, which is 29 % too little.
    assert farthest(found, pair) > math.sqrt(2) * UNIT


def test_a_row_that_is_too_long_in_whole_numbers_counts_for_nothing(monkeypatch):
    # Rounding away from zero would lengthen vectors; the check in whole numbers takes such rows out.
    rows = {"age": [100], "cost": [5e4], "smoker": ["no"], "died": [1]}
    found = summand(LOGISTIC, COLUMNS, np.zeros(6))
    assert vectors(found, rows).any()
    monkeypatch.setattr(np, "trunc", lambda values: np.sign(values) * (np.floor(np.abs(values)) + 40))
    assert not vectors(found, rows).any()


def test_cells_that_cannot_be_read_count_for_nothing():
    found = summand(LOGISTIC, COLUMNS, np.zeros(6))
    assert not found.total(table(age=[None], cost=[1], smoker=["no"], died=[1])).any()
    assert not found.total(table(age=[1], cost=[1], smoker=["no"], died=["?"])).any()


def test_a_short_gradient_is_the_gradient():
    # By hand: at 0 the prediction is ½, so y − p = ½; x = (0, 0) for the trends, one level, the intercept: length ½·√2.
    rows = table(age=[50], cost=[math.expm1(math.log1p(5e4) / 2)], smoker=["yes"], died=[1])
    half = UNIT // 2
    assert summand(LOGISTIC, COLUMNS, np.zeros(6)).total(rows).tolist() == [0, 0, 0, half, 0, half, A_ROW]


def test_a_model_of_numbers_alone_has_no_cells_to_count():
    # By hand: at 0 the prediction is ½, and x = (1, 1) for an age of 100 is √2 long: ½·(1, 1) is shorter than 1.
    numbers = {"columns": ["age"], "target": "died"}
    found = summand(Question(name="logistic_round", parameters=numbers), COLUMNS, np.zeros(2))
    assert found.total(table(age=[100], died=[1])).tolist() == [UNIT // 2, UNIT // 2, A_ROW]
    with pytest.raises(ChoralError, match="CH102 the model has no cells"):
        summand(Question(name="logistic_cells", parameters=numbers), COLUMNS)


def test_the_sum_over_a_table_is_the_sum_over_its_parts():
    rows = people(300)
    parts = [table(**{name: cells[start::3] for name, cells in rows.columns.items()}) for start in range(3)]
    found = summand(ADDITIVE, COLUMNS, np.random.default_rng(2).normal(size=22))
    assert found.total(rows).tolist() == sum(found.total(part) for part in parts).tolist()


@pytest.mark.parametrize(
    "state",
    [None, np.zeros(5), np.zeros((1, 6)), np.zeros(2**20), np.full(6, np.nan), np.full(6, np.inf), np.full(6, 1e9)],
    ids=["none", "short", "matrix", "long", "nan", "infinite", "huge"],
)
def test_a_state_that_is_no_model_of_this_design_is_refused(state):
    with pytest.raises(ChoralError, match="CH102"):
        summand(LOGISTIC, COLUMNS, state)


@pytest.mark.parametrize(
    "changed",
    [
        {"target": "smoker"},
        {"target": "age"},
        {"columns": ["age", "died"]},
        {"columns": ["weight"]},
        {"clip": 0},
        {"clip": 65},
        {"bins": 8},
        {"rounds": 0},
        {"take": 1},
    ],
)
def test_parameters_out_of_range_are_refused(changed):
    with pytest.raises(ChoralError, match="CH102"):
        summand(Question(name="logistic_round", parameters={**GIVEN, **changed}), COLUMNS, np.zeros(6))


def test_a_round_has_no_answer_by_itself():
    with pytest.raises(ChoralError, match="CH102"):
        estimate(LOGISTIC, COLUMNS, np.zeros(6, dtype=int), rows=10, deviation=1.0)
