"""The catalogue: every kind of question has words, columns, an answer that JSON can say, and an interval per number."""

import gc
import json
import sys

import numpy as np
import pytest

from choral.asking.catalogue import NAMES, ROUNDS, estimate, expected, summand
from choral.asking.question import Question
from choral.core.errors import ChoralError
from choral.tables.columns import Categorical
from tests.asking.coverage import noisy
from tests.asking.people import COLUMNS, people, table

ASKED = {
    "count": {"where": [{"column": "age", "at_least": 60}]},
    "table": {"columns": ["smoker"], "by": ["sex"]},
    "tables": {"columns": ["smoker", "age"]},
    "mean": {"column": "age", "where": [{"column": "sex", "levels": ["f"]}]},
    "moments": {"columns": ["age", "days", "sex"]},
    "bounds": {"columns": ["weight", "cost"]},
    "km": {"time": "days", "event": "died", "by": ["sex"], "until": 1400},
    "cdf": {"column": "cost"},
    "quantiles": {"column": "age", "levels": [0.5]},
}


def test_every_name_is_tried_here():
    assert set(ASKED) == set(NAMES) and not set(NAMES) & set(ROUNDS)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_an_answer_has_an_interval_and_json_can_say_it(name):
    asked, rows = Question(name=name, parameters=ASKED[name]), people(2000)
    found = summand(asked, COLUMNS)
    total = found.total(rows)
    assert total.dtype == np.int64 and total.shape == (found.length,) and np.abs(total).max() <= 2000 * found.largest
    deviation = 3 * found.l2
    answer = estimate(asked, COLUMNS, noisy(total, deviation, np.random.default_rng(1)), rows=2000, deviation=deviation)
    assert json.loads(json.dumps(answer.rows, allow_nan=False)) == answer.rows and answer.rows
    for row in answer.rows:
        for label in answer.labels:
            low, high = ("low", "high") if label == "estimate" else (f"{label}_low", f"{label}_high")
            assert row[low] <= row[label] <= row[high]
    assert expected(asked, COLUMNS, rows=2000, deviation=deviation).width > 0
    assert len(answer.frame) == len(answer.rows)


def operations(found, rows):
    """How many functions a sum calls, in Python and in C."""
    called = 0

    def count(_frame, event, _argument):
        nonlocal called
        called += event in ("call", "c_call")

    found.total(rows)  # what is worked out once and kept is not counted
    gc.disable()  # a collection in between would call what others have hung on it
    sys.setprofile(count)
    try:
        found.total(rows)
    finally:
        sys.setprofile(None)
        gc.enable()
    return called


@pytest.mark.parametrize("name", NAMES)
def test_a_sum_takes_as_many_operations_for_zeros_as_for_ones(name):
    found = summand(Question(name=name, parameters=ASKED[name]), COLUMNS)
    tables = [
        table(
            **{
                column: [cell.levels[one] if isinstance(cell, Categorical) else one] * 50
                for column, cell in COLUMNS.items()
            }
        )
        for one in (0, 1)
    ]
    assert found.total(tables[0]).tolist() != found.total(tables[1]).tolist() or name == "count"
    assert operations(found, tables[0]) == operations(found, tables[1])


@pytest.mark.parametrize("name", NAMES)
def test_words_name_every_column_that_is_read(name):
    asked = Question(name=name, parameters=ASKED[name])
    assert all(f'"{column}"' in asked.words() for column in summand(asked, COLUMNS).columns)


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_parameter_is_refused_and_an_undeclared_column_too(name):
    with pytest.raises(ChoralError, match="CH102"):
        summand(Question(name=name, parameters={**ASKED[name], "code": "1"}), COLUMNS)
    for column in summand(Question(name=name, parameters=ASKED[name]), COLUMNS).columns:
        declared = {other: kind for other, kind in COLUMNS.items() if other != column}
        with pytest.raises(ChoralError, match="CH321"):
            summand(Question(name=name, parameters=ASKED[name]), declared)
