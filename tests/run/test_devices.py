"""A device's order of passes: secret, the same after a restart, and another one for another run or table."""

import numpy as np
import pytest

from choral.core.plan import Plan
from choral.learning.models import logistic
from choral.learning.once import OnceTraining
from choral.run.study import trainer_of

PLAN = Plan(
    devices=4, cohort=3, rounds=3, rows=20, batch=5, step_size=0.5, clip=1.0, noise=0.1, sampling="partition"
)  # fmt: skip
ROWS, LABELS = np.zeros((20, 2), np.float32), np.arange(20, dtype=np.int32) % 2


def order(**changes):
    given = {"secret": bytes(64), "run": "9f3c", "rounds": 0, **changes}
    return trainer_of(logistic(2), PLAN, ROWS, LABELS, **given).order


def test_a_restart_goes_on_in_the_same_order():
    assert order() == order(rounds=2)


@pytest.mark.parametrize("change", [{"secret": b"\1" * 64}, {"run": "77aa"}, {"table": "d1"}, {"table": "d2"}])
def test_another_device_run_or_table_has_another_order(change):
    assert order(**change) != order()
    assert order(**change) == order(**change)


def test_noise_once_uses_all_rows_in_every_step_and_has_no_order():
    plan = Plan(
        devices=4, cohort=3, rounds=3, rows=20, batch=20, step_size=0.5, clip=1.0, noise=0.1, local_steps=2,
        sampling="partition", noise_is_added="once", row_length=1.0,
    )  # fmt: skip
    made = trainer_of(logistic(2), plan, ROWS, LABELS, secret=bytes(64), run="9f3c", rounds=1)
    assert isinstance(made, OnceTraining) and made.rounds == 1
