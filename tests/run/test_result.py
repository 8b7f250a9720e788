"""What a result predicts, by hand: probabilities of a softmax and a sigmoid, and numbers in the label's own unit."""

from pathlib import Path

import numpy as np
import pytest

from choral.core.errors import ConfigError, TableError
from choral.learning.models import binary, linear, logistic
from choral.record import Baselines, RunRecord, Statement
from choral.run.result import Result, model_shape
from choral.tables.columns import Numeric

NOTHING = Statement(delta=1e-5, adjacency="one record replaced", none="no noise was added")
ROWS = np.array([[1.0], [-1.0]], np.float32)


def result(model, parameters, *, classes=(), target=None):
    return Result(
        model=model, parameters=np.array(parameters, np.float32), classes=classes, columns=(), target=target,
        privacy=NOTHING, test={}, baselines=Baselines(without_privacy=None, alone=None), history=[],
        record=RunRecord(folder=Path(), about=None, rounds=[], result=None),
    )  # fmt: skip


def test_one_output_and_two_of_the_same_difference_give_the_same_probabilities():
    # z = ln 3 · x: 1/(1 + e^-z) is 3/4 for x = 1 and 1/4 for x = −1.
    one = result(binary(1), [np.log(3), 0.0], classes=("no", "yes"))
    two = result(logistic(1), [0.0, np.log(3), 0.0, 0.0], classes=("no", "yes"))
    for made in (one, two):
        assert made.predict_proba(ROWS) == pytest.approx(np.array([[0.25, 0.75], [0.75, 0.25]]), abs=1e-6)
        assert made.predict(ROWS).tolist() == ["yes", "no"]
        assert made.score(ROWS, ["yes", "yes"]) == 0.5


def test_outputs_of_thousands_overflow_nothing():
    made = result(logistic(1), [0.0, 5000.0, 0.0, 0.0], classes=("no", "yes"))
    assert made.predict_proba(ROWS).tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_a_number_comes_in_its_own_unit_and_is_scored_by_r2():
    # The output x is the label scaled to −1…1: of 0 to 100, so 1 and −1 are 100 and 0.
    made = result(linear(1), [1.0, 0.0], target=Numeric(name="age", low=0.0, high=100.0))
    assert made.predict(ROWS).tolist() == [100.0, 0.0]
    assert made.score(ROWS, [100.0, 0.0]) == 1.0
    # Labels 50 and 0: off by 50 and 0, around their mean 25 by 25 each, so 1 − 2500/1250.
    assert made.score(ROWS, [50.0, 0.0]) == pytest.approx(-1.0)
    with pytest.raises(ConfigError, match="CH102 the label is a number: no class has a probability"):
        made.predict_proba(ROWS)


def test_rows_of_another_shape_and_labels_of_another_number_are_refused():
    made = result(binary(1), [1.0, 0.0], classes=("no", "yes"))
    with pytest.raises(TableError, match=r"CH312 rows have shape \(2, 3\), the model takes 1 features"):
        made.predict(np.zeros((2, 3)))
    with pytest.raises(TableError, match="CH312 2 rows and 3 labels"):
        made.score(ROWS, ["no"] * 3)


def test_a_models_shape_names_hidden_layers_only():
    assert (model_shape(binary(104)).hidden, model_shape(binary(104)).parameters) == ((), 105)
