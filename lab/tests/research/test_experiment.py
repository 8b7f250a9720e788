"""An experiment on rows of one's own: what a task holds, what is looked at, and what its noise is for."""

import functools
import re
import threading
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from choral.core.errors import ConfigError, PlanError
from choral.core.plan import OUT_OF_RANGE, OVERFLOW
from choral.tables.sources import load
from choral_lab.research import Experiment, Records, Task, experiment, logistic

KEPT = experiment._kept  # what is trained and not yet asked for
ROWS = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
RECORDS = Records.of([(name, ROWS[:size], ROWS[:size, 0] > 0) for name, size in (("a", 500), ("b", 400), ("c", 300))])
PLAIN = Experiment(
    task=Task.of("signs", RECORDS, logistic), cohort=2, rounds=4, local_steps=2, batch=60, step_size=1.0, looks=4
)


def test_a_task_is_for_its_smallest_device_and_splits_anew_in_every_repeat():
    assert (PLAIN.task.devices, PLAIN.task.rows) == (3, 240)  # 80 % of 300
    first, again, other = (PLAIN.task.split(repeat).test.features for repeat in (0, 0, 1))
    assert first is again
    assert not np.array_equal(first, other)


def test_a_choice_looks_once_at_the_end_and_a_judgement_at_every_look():
    assert PLAIN.curve(0, "validation")["round"] == [4.0]
    assert PLAIN.curve(0, "test")["round"] == [1.0, 2.0, 3.0, 4.0]


def test_what_else_is_measured_is_over_the_training_rows():
    seen = replace(PLAIN, also=("train_loss", "squared_gradient_norm")).curve(0, "test")
    assert seen["train_loss"][-1] < seen["train_loss"][0] < np.log(2)  # at θ = 0 every loss is ln 2
    assert seen["squared_gradient_norm"][-1] < PLAIN.gradient_at_start(0)


def test_the_noise_of_a_proof_leaves_room_for_overflow_and_range_within_delta():
    one = replace(PLAIN, update_clip=0.5).within("clipped_updates", epsilon=3.0, delta=1e-5)
    # 4 · 2/3 rounds: a device takes part in at most 3; two noises in a sum: μ = 2S√3/(σ√2).
    mu = 2 * 0.5 * np.sqrt(3) / (one.update_noise * np.sqrt(2))
    delta = norm.cdf(-3 / mu + mu / 2) - np.exp(3) * norm.cdf(-3 / mu - mu / 2)  # Balle and Wang 2018
    assert delta == pytest.approx(1e-5 - OVERFLOW - OUT_OF_RANGE, rel=1e-6)


EQUAL = Records.of([(name, ROWS, ROWS[:, 0] > 0) for name in ("a", "b", "c")])
ALL_ROWS = replace(PLAIN, task=Task.of("equal", EQUAL, logistic), local_steps=1, batch=400, step_size=0.02, clip=1.0)
ONCE = replace(ALL_ROWS, noise_is_added="once", row_length=10.0)  # longer than any of these rows


def test_one_step_per_round_on_all_rows_is_the_same_training_with_noise_once_as_in_every_step():
    steps, once = ALL_ROWS.curve(0, "test"), ONCE.curve(0, "test")
    assert once["round"] == steps["round"] == [1.0, 2.0, 3.0, 4.0]
    assert once["test_loss"] == pytest.approx(steps["test_loss"], rel=1e-5)  # float64 steps against float32 ones
    assert once["test_loss"][-1] < once["test_loss"][0] < np.log(2)


def test_the_noise_of_an_upload_is_that_of_rule_s7():
    one = replace(ONCE, local_steps=50, clip=0.5).within("with_secure_sum", epsilon=3.0, delta=1e-5)
    # A device is in at most 3 rounds, one record moves an upload by 2GT/γ, and a sum has two noises.
    mu = 2 * 0.5 * (50 * 0.02) / 400 * np.sqrt(3) / (one.noise * np.sqrt(2))
    delta = norm.cdf(-3 / mu + mu / 2) - np.exp(3) * norm.cdf(-3 / mu - mu / 2)  # Balle and Wang 2018
    assert delta == pytest.approx(1e-5 - OVERFLOW - OUT_OF_RANGE, rel=1e-6)
    assert one.privacy("with_secure_sum", 1e-5)["proved_with_secure_sum"]["rule"] == "S7"


@pytest.mark.parametrize("changed", [{"clip": np.inf}, {"update_clip": 1.0}, {"update_noise": 0.1}])
def test_noise_once_is_refused_without_a_clip_and_with_the_noise_of_another_rule(changed):
    with pytest.raises(PlanError, match="CH204 noise once"):
        replace(ONCE, **changed)


def test_noise_is_added_to_an_upload_once():
    quiet, noisy = ONCE.curve(0, "test")["test_loss"], replace(ONCE, noise=1.0).curve(0, "test")["test_loss"]
    assert max(abs(one - other) for one, other in zip(quiet, noisy, strict=True)) > 0.05


def test_two_experiments_that_say_the_same_are_the_same_and_one_word_makes_another():
    assert replace(PLAIN) == PLAIN
    assert PLAIN.described()["clip"] == "none"
    assert replace(PLAIN, clip=1.0).described()["clip"] == 1.0
    assert PLAIN.described()["task"] == "signs"


def test_runs_with_noise_once_that_are_trained_together_are_the_runs_that_they_are_alone():
    rows = np.random.default_rng(0).normal(size=(60, 3))
    task = Task.of("signs", Records.of([(name, rows, rows[:, 0] > 0) for name in ("a", "b", "c")]), logistic)
    one = Experiment(
        task=task, cohort=2, rounds=3, local_steps=4, batch=task.rows, step_size=0.2, clip=1.0, noise=0.01, looks=3,
        noise_is_added="once", row_length=3.0,
    )  # fmt: skip
    runs = [(one, 0), (replace(one, clip=0.5, noise=0.02), 0), (one, 1)]
    assert sorted(experiment.train_together(runs), key=runs.index) == [runs[0], runs[1], runs[2]]
    together = [experiment.trained(*run) for run in runs]
    KEPT.clear()
    for run, looks in zip(runs, together, strict=True):
        alone = experiment.trained(*run)
        assert [done for done, _ in looks] == [1, 2, 3]
        assert all((a == b).all() for (_, a), (_, b) in zip(looks, alone, strict=True))


def test_runs_that_are_trained_side_by_side_have_the_results_that_they_have_alone_and_say_every_look():
    noisy = replace(ALL_ROWS, noise=0.01)
    runs = [(one, repeat) for repeat in (0, 1) for one in (PLAIN, noisy, replace(noisy, step_size=0.05, clip=0.5))]
    said = []
    KEPT.clear()
    assert sorted(experiment.train_together(runs, said.append), key=runs.index) == runs
    assert sorted(said) == sorted(
        f"{one.named(repeat)}, round {done} of 4" for one, repeat in runs for done in (1, 2, 3, 4)
    )
    together = [one.curve(repeat, "test") for one, repeat in runs]
    KEPT.clear()
    assert [one.curve(repeat, "test") for one, repeat in runs] == together


def test_the_first_group_of_every_form_is_trained_first_and_then_the_largest(monkeypatch):
    KEPT.clear()
    begun = []

    def train(group, moved, *, mixed):  # noqa: ARG001 - as `looks_of` is called
        (first, repeat), *_ = group
        begun.append((first.local_steps, repeat))
        return [((1, np.float32([1.0])),)] * len(group)

    monkeypatch.setattr(experiment, "looks_of", train)
    monkeypatch.setattr(experiment, "CORES", 1)
    runs = [(replace(PLAIN, local_steps=steps), repeat) for repeat in (0, 1, 2) for steps in (1, 3, 2)]
    assert sorted(experiment.train_together(runs), key=runs.index) == runs
    assert begun == [(1, 0), (3, 0), (2, 0), (3, 1), (3, 2), (2, 1), (2, 2), (1, 1), (1, 2)]


def test_who_stops_after_the_first_run_of_a_sweep_keeps_it_and_the_others_are_trained_when_asked_for_again():
    runs = [(replace(PLAIN, step_size=size), 0) for size in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)]
    KEPT.clear()
    sweep = experiment.train_together(runs)
    first = next(sweep)  # the one that is trained first
    sweep.close()
    assert list(KEPT) == [first]
    others = [run for run in runs if run != first]
    assert len(others) == len(runs) - 1
    assert sorted(experiment.train_together(runs), key=runs.index) == others


def test_a_run_that_is_trained_before_another_fails_is_kept(monkeypatch):
    """The first run waits for the second one's end and then fails: what was trained is not lost with it."""
    KEPT.clear()
    second_is_kept, looks = threading.Event(), ((1, np.float32([1.0])),)

    def train(group, moved, *, mixed):  # noqa: ARG001 - as `looks_of` is called
        if group[0][1] == 0:
            assert second_is_kept.wait(timeout=60)
            raise ValueError("this one")
        return [looks] * len(group)

    monkeypatch.setattr(experiment, "looks_of", train)
    monkeypatch.setattr(experiment, "CORES", 2)
    runs = [(PLAIN, 0), (PLAIN, 1)]
    sweep = experiment.train_together(runs)
    assert next(sweep) == runs[1]
    second_is_kept.set()
    with pytest.raises(ValueError, match="this one"):
        next(sweep)
    assert list(KEPT) == [runs[1]]


def two_arguments(features, classes):
    return logistic(features, classes)


@pytest.mark.parametrize(
    "form", [two_arguments, lambda features: logistic(features), logistic, logistic(3), functools.partial(logistic)]
)
def test_a_task_takes_every_form_of_a_model_and_makes_it_once(form):
    task = Task.of("signs", RECORDS, form)
    plain = Experiment(task=task, cohort=2, rounds=1, local_steps=1, batch=40, step_size=1.0, looks=1)
    assert plain.curve(0, "test") == replace(plain, task=Task.of("signs", RECORDS, logistic)).curve(0, "test")
    assert task.model(3) is task.model(3)


def test_a_task_takes_what_was_loaded_as_well_as_its_records():
    loaded = load((ROWS, (ROWS[:, 0] > 0).astype(int)), devices=3)
    assert Task.of("signs", loaded, logistic).rows == Task.of("signs", loaded.records, logistic).rows


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (lambda _: None, '"given:lambda" returns a NoneType'),
        (lambda _: 1 / 0, "can't be made: division by zero"),
        (lambda features: logistic(features + 1), "is a model of 4 features and 2 classes, the data has 3 and 2"),
        ("logistic", "model is a str"),
    ],
)
def test_what_makes_no_model_is_refused_in_words_before_any_thread_begins(form, said):
    with pytest.raises(ConfigError, match=f"CH102 .*{re.escape(said)}"):
        Task.of("signs", RECORDS, form)
