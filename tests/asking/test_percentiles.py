"""percentiles: two stages for a column without a declared range, and refusals before a table is read."""

import numpy as np
import pytest

from choral.asking.catalogue import read_model, summand
from choral.asking.quantiles import sensitivity
from choral.asking.question import Question
from choral.core.errors import ChoralError
from tests.asking.fitting import fitted
from tests.asking.pairs import farthest
from tests.asking.people import COLUMNS, people

ASKED = Question(name="percentiles", parameters={"column": "weight", "levels": [0.1, 0.5, 0.9], "bins": 64})
CELLS = Question(name="percentiles_cells", parameters={**ASKED.parameters, "low": 16, "high": 256})


@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_quantiles_of_a_column_without_a_range_are_near_the_truth(noise):
    rows = people(4000)
    model = read_model(ASKED, COLUMNS)
    found = fitted(model, COLUMNS, rows, noise=lambda l2, _: noise * l2, seed=1)
    true = np.quantile(rows.columns["weight"], [0.1, 0.5, 0.9])
    low, high = found.state
    assert low <= 64 and high == 128 and model.sums == 5
    cell = (high - low) / 64
    for row, truth in zip(found.effects.rows, true, strict=True):
        assert row["low"] - cell <= truth <= row["high"] + cell and abs(row["estimate"] - truth) < 2 * cell


def test_no_two_rows_are_farther_apart_than_the_claim_within_any_bounds_and_some_reach_it():
    found = summand(CELLS, COLUMNS)
    assert found.l2 == sensitivity(65)
    rows = {"weight": [*np.linspace(-1e9, 1e9, 40), *np.linspace(16, 256, 65), None, "much", "inf"]}
    assert 0.98 * found.l2 <= farthest(found, rows) <= found.l2


@pytest.mark.parametrize("changed", [
    {"low": 256}, {"low": "a"}, {"high": None}, {"high": 1e12}, {"low": True}, {"take": 5}, {"column": "sex"},
    {"column": "height"}, {"levels": [2]}, {"until": 3},
], ids=str)  # fmt: skip
def test_bounds_out_of_order_and_strange_parameters_are_refused(changed):
    with pytest.raises(ChoralError, match=r"CH102|CH321"):
        summand(Question(name=CELLS.name, parameters={**CELLS.parameters, **changed}), COLUMNS)


def test_where_no_bound_is_seen_nothing_is_guessed():
    with pytest.raises(ChoralError, match="CH320"):
        fitted(read_model(ASKED, COLUMNS), COLUMNS, people(50), noise=lambda l2, _: 1e4 * l2)
