"""Rounds counted by hand: who was charged, who took part, and by which figure a run is judged."""

import pytest

from choral.record import RoundLine, charged_rounds, joined_rounds
from choral.record.outcome import merit


def line(number, included, wasted=()):
    return RoundLine(
        round=number, seconds=0.1, cohort=(0, 1, 2), included=included, test={}, note="", wasted=wasted
    )  # fmt: skip


LINES = [line(1, (0, 1)), line(2, (1, 2), wasted=(0, 0, 1)), line(3, ())]


def test_a_device_is_charged_for_rounds_and_for_attempts_that_failed():
    # Device 0: round 1 and twice in vain; device 1: both rounds and once in vain; device 2: round 2; device 3 never.
    assert charged_rounds(LINES, 4).tolist() == [3, 3, 1, 0]
    assert charged_rounds(LINES, 4, wasted=[3, 3]).tolist() == [3, 3, 1, 2]


def test_it_takes_part_only_in_rounds_that_include_it():
    assert joined_rounds(LINES, 4).tolist() == [1, 2, 1, 0]
    assert joined_rounds([], 2).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ({"loss": 0.3, "auc": 0.9, "accuracy": 0.84}, ("accuracy", 0.84)),
        ({"rmse": 3.0, "loss": 0.1, "r2": -0.5}, ("R²", -0.5)),
        ({"loss": 0.3, "auc": 0.9}, ("loss", 0.3)),
    ],
)
def test_a_run_is_judged_by_accuracy_or_r2_and_by_its_loss_only_where_there_is_neither(test, expected):
    assert merit(test) == expected
