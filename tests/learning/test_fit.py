"""What does not go together is refused before anything is compiled, with both numbers."""

from dataclasses import replace

import numpy as np
import pytest

from choral.core.errors import PlanError, TableError, TrainingError
from choral.core.plan import Plan
from choral.engine import check_compiled, check_fit
from choral.learning.models import logistic
from choral.learning.trainer import require_rows
from choral.tables.records import Records

PLAN = Plan(devices=2, cohort=2, rounds=1, rows=5, batch=5, step_size=0.5, clip=1.0, noise=0.1)
MODEL = logistic(3)


def records(*, features=3, labels=(0, 1), devices=2):
    each = (np.zeros((5, features), np.float32), np.resize(labels, 5))
    return Records.of([(f"device {number}", *each) for number in range(devices)], classes=2)


def test_a_model_and_records_and_a_plan_of_the_same_numbers_go_together():
    assert check_fit(MODEL, records(), PLAN) is None
    assert require_rows(MODEL, PLAN, np.zeros((5, 3), np.float32), np.zeros(5, np.int32)) is None


@pytest.mark.parametrize(
    ("given", "error", "why"),
    [
        ({"features": 4}, TableError, "CH312 the rows have 4 features, the model takes 3"),
        ({"devices": 3}, PlanError, "CH204 the plan is for 2 devices, the records are of 3"),
    ],
)
def test_other_numbers_are_refused(given, error, why):
    with pytest.raises(error, match=why):
        check_fit(MODEL, records(**given), PLAN)


def test_labels_beyond_the_classes_of_the_model_are_refused_without_their_value():
    three = replace(records(), labels=np.array([0, 1, 2, 0, 1] * 2, np.int32))
    with pytest.raises(TableError, match=r"CH311 labels lie outside the 2 classes of the model\. Number .* 0 to 1"):
        check_fit(MODEL, three, PLAN)


def test_a_model_with_a_trainer_of_its_own_is_not_for_the_engine():
    with pytest.raises(TrainingError, match='CH701 the model "logistic" has its own trainer'):
        check_compiled(replace(MODEL, trainer=lambda *_: None))
    check_compiled(MODEL)


def test_a_device_with_fewer_rows_than_the_plan_is_for_is_refused():
    with pytest.raises(TableError, match="CH305 this device has 4 rows; the plan is for devices of 5 or more"):
        require_rows(MODEL, PLAN, np.zeros((4, 3), np.float32), np.zeros(4, np.int32))
    with pytest.raises(TableError, match="CH312 features"):
        require_rows(MODEL, PLAN, np.zeros((5, 3), np.float32), np.zeros(6, np.int32))
