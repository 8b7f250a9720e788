"""The measurements and the choice: measured once, chosen by validation alone, judged afterwards."""

import json
from dataclasses import replace

import pytest

from choral.core.errors import StorageError
from choral_lab.paper.adult import experiment
from choral_lab.research import Experiment, Measurements, over_epsilon, tuned, tuned_over, validated

SMALL = experiment("logistic", rounds=2, local_steps=1, batch=61, step_size=0.5, looks=2)


@pytest.fixture(autouse=True)
def _nothing_is_trained_ahead(monkeypatch):
    """What is measured is made up in these tests."""
    monkeypatch.setattr("choral_lab.research.measurements.train_together", lambda *_: ())


def test_a_curve_is_measured_once_and_kept(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(Experiment, "curve", lambda *given: calls.append(given) or {"round": [1.0]})
    measurements = Measurements(tmp_path, 2)
    assert measurements.curves(SMALL) == measurements.curves(SMALL) == [{"round": [1.0]}] * 2
    assert calls == [(SMALL, 0, "test"), (SMALL, 1, "test")]
    assert Measurements(tmp_path, 3).curves(SMALL) == [{"round": [1.0]}] * 3
    assert calls[2:] == [(SMALL, 2, "test")]
    kept = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert kept["experiment"]["clip"] == "none"
    measurements.curves(replace(SMALL, step_size=0.25))
    assert len(calls) == 5
    measurements.curve(SMALL, 0, "validation")
    assert len(calls) == 6


def test_devices_alone_are_kept_apart_from_the_curve(tmp_path, monkeypatch):
    monkeypatch.setattr(Experiment, "curve", lambda *_: {"round": [1.0]})
    monkeypatch.setattr(Experiment, "alone", lambda *_: 0.5)
    measurements = Measurements(tmp_path, 1)
    assert (measurements.alone(SMALL, 0), measurements.curve(SMALL, 0, "test")) == (0.5, {"round": [1.0]})
    monkeypatch.setattr(Experiment, "alone", lambda *_: pytest.fail("measured twice"))
    assert measurements.alone(SMALL, 0) == 0.5


def test_the_choice_is_by_validation_alone_and_only_the_chosen_is_judged(monkeypatch, tmp_path):
    table = {  # (validation accuracy, validation loss) of three candidates in two repeats
        (0.5, 0): (0.850, 0.40),
        (1.0, 0): (0.849, 0.33),  # within 0.0015 of the best, and a lower loss
        (2.0, 0): (0.840, 0.30),
        (0.5, 1): (0.850, 0.40),
        (1.0, 1): (0.840, 0.33),
        (2.0, 1): (0.840, 0.30),
    }
    judged = []

    def measured(one, repeat, part):
        if part == "test":
            judged.append((one.step_size, repeat))
            return {"test_accuracy": [one.step_size]}
        accuracy, loss = table[one.step_size, repeat]
        return {"validation_accuracy": [accuracy], "validation_loss": [loss]}

    monkeypatch.setattr(Experiment, "curve", measured)
    method = tuned(Measurements(tmp_path, 2), [replace(SMALL, step_size=size) for size in (0.5, 1.0, 2.0)])
    assert judged == [(1.0, 0), (0.5, 1)]
    assert method.accuracy == [1.0, 0.5]
    reported = method.results()
    assert [one["step_size"] for one in reported["chosen"]] == [1.0, 0.5]
    assert [one["validation_accuracy"] for one in reported["tried"]] == [[0.85, 0.85], [0.849, 0.84], [0.84, 0.84]]


def test_a_folder_that_cannot_be_made_and_a_damaged_file_are_reported_without_a_traceback(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="CH801"):
        Measurements(tmp_path / "file" / "curves", 1)
    measurements = Measurements(tmp_path, 1)
    first = measurements.curve(SMALL, 0, "validation")
    assert measurements.curve(SMALL, 0, "validation") == first
    next(tmp_path.glob("*.json")).write_text('{"0": ')
    with pytest.raises(StorageError, match="CH802"):
        measurements.curve(SMALL, 0, "validation")


def test_a_method_is_set_against_no_privacy_where_that_is_given(tmp_path, monkeypatch):
    monkeypatch.setattr(Experiment, "curve", lambda one, *_: {
        "validation_accuracy": [0.8], "validation_loss": [0.4], "test_accuracy": [one.step_size]})  # fmt: skip
    ours, free = (tuned(Measurements(tmp_path, 2), [replace(SMALL, step_size=size)]) for size in (0.5, 0.75))
    assert ours.results(non_private=free)["minus_non_private"]["each"] == [-0.25, -0.25]
    assert "minus_non_private" not in ours.results()


def test_budgets_are_tuned_each_for_itself_and_named_by_their_epsilon(tmp_path, monkeypatch):
    monkeypatch.setattr(Experiment, "curve", lambda one, *_: {
        "validation_accuracy": [0.8], "validation_loss": [0.4], "test_accuracy": [one.noise]})  # fmt: skip
    clipped = replace(SMALL, clip=1.0)
    found = tuned_over(Measurements(tmp_path, 1), [clipped], "dp_sgd", (0.5, 2.0), 1e-4)
    assert {at: one.chosen for at, one in found.items()} == {
        "0.5": [clipped.within("dp_sgd", epsilon=0.5, delta=1e-4)],
        "2": [clipped.within("dp_sgd", epsilon=2.0, delta=1e-4)],
    }
    # One look at the curve over ε: less noise, which stands for accuracy here, at the larger.
    ((curve,), (strict, loose)) = over_epsilon(found), (one.chosen[0].noise for one in found.values())
    assert curve == {"ε": [0.5, 2.0], "test_accuracy": [strict, loose]}
    assert strict > loose > 0


def test_the_best_validation_accuracy_is_found_without_a_test_row(tmp_path, monkeypatch):
    def measured(one, repeat, part):
        assert part == "validation"
        return {"validation_accuracy": [one.step_size - repeat]}

    monkeypatch.setattr(Experiment, "curve", measured)
    candidates = [replace(SMALL, step_size=size) for size in (0.5, 2.0, 1.0)]
    assert validated(Measurements(tmp_path, 2), candidates) == [2.0, 1.0]


def test_curves_for_several_values_of_a_setting_are_named_by_its_symbol(tmp_path, monkeypatch):
    monkeypatch.setattr(Experiment, "curve", lambda one, *_: {"noise": [one.noise]})
    found = Measurements(tmp_path, 1).varied(SMALL, "noise", "σ", (1e-5, 0.1))
    assert found == {"σ = 1e-05": [{"noise": [1e-5]}], "σ = 0.1": [{"noise": [0.1]}]}
