"""φ is a function of one row and of public numbers: whatever other rows hold, and never farther apart than l2."""

import datetime
import math

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from choral.asking.catalogue import NAMES, ROUNDS, state_length, summand
from choral.asking.question import Question
from choral.tables.cells import Cells, Format
from choral.tables.columns import Numeric
from choral.tables.reading import Table
from tests.asking.pairs import farthest
from tests.asking.people import COLUMNS as DECLARED
from tests.asking.people import table
from tests.asking.test_catalogue import ASKED

COLUMNS = {**DECLARED, "beds": Numeric(name="beds", low=1, high=40, whole=True)}
MODEL = {"columns": ["age", "cost", "smoker"], "target": "died", "rounds": 2}
LIVES = {"columns": ["age", "cost"], "time": "days", "event": "died", "bins": 4, "rounds": 2}
EVERY = [
    *ASKED.items(),
    ("mean", {"column": "age"}),
    ("mean", {"column": "cost", "where": [{"column": "days", "below": 900}, {"column": "sex", "levels": ["f"]}]}),
    ("quantiles", {"column": "beds"}),
    ("cdf", {"column": "beds", "bins": 8}),
    ("table", {"columns": ["age", "smoker"], "cuts": {"age": [40, 60]}, "by": ["sex"]}),
    *((f"{model}_{step}", MODEL) for model in ("logistic", "additive") for step in ("cells", "round")),
    *((f"linear_{step}", {**MODEL, "target": "days"}) for step in ("cells", "round")),
    *((f"hazard_{step}", LIVES) for step in ("table", "moments", "round")),
    ("percentiles_bounds", {"column": "weight"}),
    ("percentiles_cells", {"column": "weight", "low": -16, "high": 128, "bins": 16}),
]
# What files and frames can hold, and what nobody expects in them.
CELLS = [
    None, "", "  ", "?", "NA", math.nan, math.inf, "-inf", "1e400", 10**400, "27,5", " 30 ", "1e3", -5, 0, 1, 25, 40.0,
    60, "99.99", 100, 2000, 5e4, -1e308, True, b"25", [1], (), pandas.NA, pandas.NaT, datetime.date(2020, 5, 6),
    np.float32(12.5), np.int64(7), "yes", "no", "unknown", "f", "m", "0", "1", "1.0", "\x00", "٣",
]  # fmt: skip
READ = list(COLUMNS)
GERMAN = Format(delimiter=";", decimal=",", empty=("NA", "-5"))


def of_frame(**columns):
    """Rows as a data frame has them."""
    return table(**columns)


def of_file(**columns):
    """The same rows as texts of a file with decimal commas and its own words for no value."""
    texts = {name: Cells([tuple(map(str, cells))]) for name, cells in columns.items()}
    return Table(source="a file", columns=texts, written=GERMAN)


VALUES = {  # so that whole rows can be read, too: the ends, the middle, and a fault of each kind
    "age": [0, 50, 100, None], "cost": [0, 300, 50_000, ""], "days": [0, 700, 2000, "?"], "sex": ["f", "m", None],
    "smoker": ["no", "yes", None], "died": [0, 1, None], "weight": [-20, 0, 75, 1e9, None], "beds": [1, 20, 40, None],
}  # fmt: skip


def summands(name, parameters):
    """The question's φ; of a round at three states."""
    asked = Question(name=name, parameters=parameters)
    length = state_length(asked, COLUMNS)
    chance = np.random.default_rng(3)
    states = [scale * chance.uniform(-1, 1, length) for scale in (0.0, 1.0, 1e5)] if length else [None]
    return [summand(asked, COLUMNS, state) for state in states]


def adversarial(count, seed):
    """Rows of ends, middles and faults; of each tenth row every cell is anything at all."""
    chance = np.random.default_rng(seed)
    return {
        name: [
            CELLS[chance.integers(len(CELLS))]
            if chance.random() < 0.1
            else VALUES[name][chance.integers(len(VALUES[name]))]
            for _ in range(count)
        ]
        for name in READ
    }


def test_every_kind_of_question_and_every_round_is_tried_here():
    assert {name for name, _ in EVERY} == {*NAMES, *ROUNDS}


@pytest.mark.parametrize(("name", "parameters"), EVERY, ids=lambda one: one if isinstance(one, str) else "")
def test_no_two_rows_whatever_they_hold_are_farther_apart_than_the_declared_l2(name, parameters):
    for found in summands(name, parameters):
        assert farthest(found, adversarial(300, seed=1)) <= found.l2 * (1 + 1e-12)


@pytest.mark.parametrize(("name", "parameters"), EVERY, ids=lambda one: one if isinstance(one, str) else "")
@pytest.mark.parametrize("made", [of_frame, of_file])
@settings(max_examples=5, deadline=None)
@given(row=some.fixed_dictionaries({name: some.sampled_from(CELLS) for name in READ}), seed=some.integers(0, 99))
def test_a_row_adds_the_same_to_every_table(name, parameters, made, row, seed):
    """Replace one row of a table: the sum moves by φ of the new row less that of the old one, wherever it stands."""
    others = adversarial(12, seed)
    changed = {column: [*cells[:5], row[column], *cells[6:]] for column, cells in others.items()}
    turned = {column: cells[::-1] for column, cells in changed.items()}
    for found in summands(name, parameters):
        new, old = (found.total(made(**{column: [cell] for column, cell in one.items()}))
                    for one in (row, {column: cells[5] for column, cells in others.items()}))  # fmt: skip
        after = found.total(made(**changed))
        assert (after - found.total(made(**others))).tolist() == (new - old).tolist()
        assert found.total(made(**turned)).tolist() == after.tolist()
        assert (
            found.total(made(**{column: cells * 2 for column, cells in changed.items()})).tolist()
            == (2 * after).tolist()
        )
