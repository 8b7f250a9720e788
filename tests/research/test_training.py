"""Runs of several repeats where they may go together: on a lone accelerator, which a CPU stands for here."""

from dataclasses import replace

import numpy as np
import pytest

from choral.backends import resident_sweep
from choral.backends.resident import Resident
from choral.research import experiment, training
from choral.research.experiment import train_together, trained
from tests.research.test_experiment import KEPT, ONCE, PLAIN

NOISY = replace(PLAIN, clip=1.0, noise=0.01)
RUNS = [(one, repeat) for repeat in (1, 0) for one in (NOISY, replace(NOISY, step_size=0.5), replace(NOISY, noise=0.1))]
NEAR = 20 * PLAIN.task.grid  # what two programs for the same run may differ by in four rounds


@pytest.fixture
def accelerator(monkeypatch):
    """The engines that were made, and how many runs each compiled call was for: as where rounds stay."""
    made, calls, engine_of, runs_together = [], [], training.engine_of, training.runs_together

    def staying(one, repeat):
        engine = engine_of(one, repeat)
        if not one.plan().once:
            engine.resident = Resident.of(engine.form, engine.drawing, engine.traced_codec)
        made.append(repeat)
        return engine

    def counted(repeats, runs, **options):
        calls.append((len(repeats), len(runs)))
        return runs_together(repeats, runs, **options)

    monkeypatch.setattr(experiment, "mixes_repeats", lambda: True)
    monkeypatch.setattr(training, "engine_of", staying)
    monkeypatch.setattr(training, "runs_together", counted)
    monkeypatch.setattr(resident_sweep, "MOST_RUNS", 8)
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
    assert list(train_together(RUNS, said.append)) == RUNS
    assert (sorted(made), calls) == ([0, 1], [(2, 6)])
    assert sorted(said) == sorted(
        f"{one.named(repeat)}, round {done} of 4" for one, repeat in RUNS for done in range(1, 5)
    )
    for run, theirs in zip(RUNS, expected, strict=True):
        for (done, model), (their_done, their_model) in zip(trained(*run), theirs, strict=True):
            assert done == their_done
            assert np.abs(model - their_model).max() < NEAR
    ends = [trained(*run)[-1][1] for run in RUNS]
    assert min(np.abs(one - other).max() for at, one in enumerate(ends) for other in ends[:at]) > 100 * NEAR


def test_where_repeats_do_not_fit_together_each_is_trained_as_it_is_alone(request, monkeypatch):
    expected = apart(RUNS)
    made, calls = request.getfixturevalue("accelerator")
    monkeypatch.setattr(training, "go_together", lambda *_: False)
    assert list(train_together(RUNS)) == RUNS
    assert calls == []
    assert sorted(made) == [0, 0, 0, 1, 1, 1]  # an engine for each run, where rounds stay
    for run, theirs in zip(RUNS, expected, strict=True):
        for (done, model), (their_done, their_model) in zip(trained(*run), theirs, strict=True):
            assert done == their_done
            assert np.abs(model - their_model).max() < NEAR


def test_runs_with_noise_once_go_through_the_rows_of_their_repeat(accelerator):
    _, calls = accelerator
    KEPT.clear()
    runs = [(ONCE, 0), (ONCE, 1), (replace(ONCE, noise=0.1), 0)]
    assert sorted(train_together(runs), key=runs.index) == runs
    assert calls == []
    assert trained(ONCE, 0)[-1][0] == 4
