"""Runs of several repeats where they may go together: on a lone accelerator, which a CPU stands for here."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choral.core.plan import Plan
from choral.engine.draws import DeviceDrawing
from choral.tables.records import Split
from choral_lab.research import experiment, sweep, sweep_training
from choral_lab.research.experiment import train_together, trained
from lab.tests.research.test_experiment import KEPT, ONCE, PLAIN

NOISY = replace(PLAIN, clip=1.0, noise=0.01)
RUNS = [(one, repeat) for repeat in (1, 0) for one in (NOISY, replace(NOISY, step_size=0.5), replace(NOISY, noise=0.1))]
NEAR = 20 * PLAIN.task.grid  # what two programs for the same run may differ by in four rounds


@pytest.fixture
def accelerator(monkeypatch):
    """The engines that were made, and how many runs each compiled call was for: as where rounds stay."""
    made, calls, engine_of, runs_together = [], [], sweep_training.engine_of, sweep_training.runs_together

    def staying(one, repeat, further=()):
        engine = engine_of(one, repeat, further)
        if not one.plan().once:
            engine.resident = DeviceDrawing.of(engine.drawing)
        made.append(repeat)
        return engine

    def counted(repeats, runs, **options):
        calls.append((len(repeats), len(runs)))
        return runs_together(repeats, runs, **options)

    for module in (experiment, sweep_training):
        monkeypatch.setattr(module, "mixes_repeats", lambda: True)
    monkeypatch.setattr(sweep_training, "engine_of", staying)
    monkeypatch.setattr(sweep_training, "runs_together", counted)
    monkeypatch.setattr(sweep, "MOST_RUNS", 8)
    return made, calls


def apart(runs):
    """The looks of runs that are trained one repeat at a time, on a CPU."""
    KEPT.clear()
    found = [trained(*run) for run in runs]
    KEPT.clear()
    return found


def test_runs_of_all_repeats_are_one_call_and_each_is_the_run_that_it_is_alone(request):
    expected, said = apart(RUNS), []
    made, calls = request.getfixturevalue("accelerator")
    assert sorted(train_together(RUNS, said.append), key=RUNS.index) == RUNS
    assert (sorted(made), calls) == ([0, 1, 1], [(2, 6)])  # and one was asked whether they go together
    assert sorted(said) == sorted(
        f"{one.named(repeat)}, round {done} of 4" for one, repeat in RUNS for done in range(1, 5)
    )
    assert same(RUNS, expected)
    ends = [trained(*run)[-1][1] for run in RUNS]
    assert min(np.abs(one - other).max() for at, one in enumerate(ends) for other in ends[:at]) > 100 * NEAR


def same(runs, expected):
    """Whether each run is the one that it is alone, as far as two programs can agree."""
    for run, theirs in zip(runs, expected, strict=True):
        for (done, model), (their_done, their_model) in zip(trained(*run), theirs, strict=True):
            assert done == their_done
            assert np.abs(model - their_model).max() < NEAR
    return True


def test_runs_that_do_not_go_together_are_trained_by_repeat_each_by_its_own_numbers(request):
    """DP-FedAvg: the length of a whole update would be added in another order in one call."""
    candidates = [replace(PLAIN, update_clip=clip, update_noise=0.01) for clip in (0.1, 0.2, 0.3)]
    runs = [(one, repeat) for one in candidates for repeat in (0, 1, 2)][1:]  # repeat 0 begins with another run
    expected = apart(runs)
    made, calls = request.getfixturevalue("accelerator")
    assert sorted(train_together(runs), key=runs.index) == runs
    assert calls == []
    assert sorted(made) == [0, 0, 1, 1, 1, 1, 2, 2, 2]  # one for each run, and the one that was asked
    assert same(runs, expected)


def test_a_run_is_trained_in_the_same_way_whatever_rows_other_repeats_have(request):
    """The rows of repeat 2 have one more column, and one of repeat 3 is not finite: other programs."""
    split = PLAIN.task.split

    def changed(part, repeat):
        rows = np.pad(part.features, ((0, 0), (0, int(repeat == 2))))
        rows[0, 1] = np.inf if repeat == 3 else rows[0, 1]
        return replace(part, features=rows)

    @cache
    def of(repeat):
        one = split(repeat)
        return Split(**{name: changed(getattr(one, name), repeat) for name in ("train", "validation", "test")})

    several = replace(NOISY, task=replace(PLAIN.task, split=of))
    runs = [(one, repeat) for one in (several, replace(several, step_size=0.5)) for repeat in (2, 0, 3, 1)]
    expected = apart(runs)
    _, calls = request.getfixturevalue("accelerator")
    assert sorted(train_together(runs), key=runs.index) == runs
    assert sorted(calls) == [(1, 2), (1, 2), (2, 4)]
    assert same(runs, expected)
    together = [trained(*run)[-1][1] for run in runs]
    KEPT.clear()
    for run, model in zip(runs, together, strict=True):
        assert np.array_equal(trained(*run)[-1][1], model)  # alone in its call


def test_runs_with_noise_once_go_through_the_rows_of_their_repeat(accelerator):
    _, calls = accelerator
    KEPT.clear()
    runs = [(ONCE, 1), (ONCE, 0), (replace(ONCE, noise=0.1), 0)]
    assert sorted(train_together(runs), key=runs.index) == runs
    assert calls == []
    assert trained(ONCE, 0)[-1][0] == trained(ONCE, 1)[-1][0] == 4


def test_few_groups_are_trained_at_a_time_where_all_of_them_hold_their_rows(accelerator, monkeypatch):  # noqa: ARG001
    workers, pool = [], experiment.ThreadPoolExecutor
    monkeypatch.setattr(experiment, "CORES", 16)
    monkeypatch.setattr(experiment, "ThreadPoolExecutor", lambda most: workers.append(most) or pool(most))
    KEPT.clear()
    assert list(train_together(RUNS[:1])) == RUNS[:1]
    assert workers == [4]


@given(devices=st.integers(1, 12), rounds=st.integers(1, 12), seed=st.integers(0, 2**62), data=st.data())
def test_balanced_cohorts_differ_by_at_most_one_round_between_any_two_devices(devices, rounds, seed, data):
    cohort = data.draw(st.integers(1, devices))
    plan = Plan(devices=devices, cohort=cohort, rounds=rounds, rows=9, batch=3, step_size=0.5, clip=1.0, noise=1.0)
    times = np.bincount(np.concatenate(sweep_training.balanced_cohorts(plan, seed=seed)), minlength=devices)
    assert times.sum() == plan.cohort * rounds
    assert times.max() - times.min() <= 1
