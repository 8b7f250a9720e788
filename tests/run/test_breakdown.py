"""Figures of groups, by hand."""

import numpy as np
import pytest

from choral.run.breakdown import figures
from choral.tables.columns import Numeric


def test_figures_by_hand():
    # Two outputs: differences 1, −1, 2 against labels 1, 0, 0. Two of three are right, and one pair of two is in order.
    outputs = np.float32([[0, 1], [1, 0], [0, 2]])
    assert figures(outputs, np.array([1, 0, 0]), None) == {"accuracy": pytest.approx(2 / 3, abs=1e-6), "auc": 0.5}
    # A group in which one class is missing has no AUC, and three classes have none.
    assert figures(outputs, np.array([1, 1, 1]), None) == {"accuracy": pytest.approx(2 / 3, abs=1e-6)}
    assert set(figures(np.float32([[0, 1, 2]]), np.array([2]), None)) == {"accuracy"}
    # Errors 0 and 1 of a label scaled to −1…1 from 0…20: one unit is 10.
    target = Numeric(name="y", low=0.0, high=20.0)
    assert figures(np.float32([[0.0], [1.0]]), np.float32([0.0, 0.0]), target) == {"rmse": pytest.approx(10 * 0.5**0.5)}
    assert figures(np.float32([[0.0], [1.0]]), np.float32([0.0, 0.5]), target)["r2"] == pytest.approx(1 - 0.25 / 0.125)
