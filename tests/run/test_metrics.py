"""The figures of a model on the test rows, by hand; a number's error is in its own unit."""

import numpy as np
import pytest

from choral.run.runs import metrics
from tests.run.small import study


def test_a_model_at_zero_has_the_loss_of_a_coin_and_the_area_of_chance():
    made = study()
    found = metrics(made, np.zeros(made.model.size, np.float32))
    assert found["loss"] == pytest.approx(np.log(2), abs=1e-6) and found["auc"] == 0.5
    assert set(found) == {"accuracy", "loss", "auc"}


def test_the_error_of_a_number_is_in_the_labels_own_unit():
    features = np.eye(40)
    made = study((features, np.tile([0.0, 100.0], 20)), label_bounds=[0, 100], devices=2, cohort=2, batch=4, clip=1.0)
    found = metrics(made, np.zeros(made.model.size, np.float32))
    # Labels are scaled to −1 and 1, so a model that says 0 is off by 1, which is 50 of the label's own.
    assert found["rmse"] == pytest.approx(50.0) and found["loss"] == pytest.approx(0.5) and found["r2"] <= 0.0


def test_without_test_rows_there_is_no_figure():
    made = study(test=0.0)
    assert metrics(made, made.model.start(0)) == {}
