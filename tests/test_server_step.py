"""What the server does with a mean: known formulas, the same bits wherever and however often a run is interrupted."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from choral import server_step
from choral.config import job_of, parse
from choral.core.errors import ConfigError, PlanError, StorageError
from choral.record import read_run
from choral.run.folder import RunFolder
from choral.run.runs import Run, resume
from choral.server_step import STEPS, Adam, Mean, Momentum
from tests.deploy.test_serving import Sockets
from tests.run.consortium import JOB, Consortium, agents
from tests.run.small import rows, study

KINDS = ("simulation", "rehearsal")
MEANS = np.random.default_rng(4).normal(size=(12, 5)).astype(np.float32)


def moved(step, means):
    """The parameters after all these means, from zero."""
    parameters = np.zeros(means.shape[1], np.float32)
    state = step.init(parameters)
    for mean in means:
        move, state = step.update(mean, state)
        parameters = parameters + move
    return parameters


def test_the_mean_is_added_as_it_is():
    expected = np.zeros(5, np.float32)
    for mean in MEANS:
        expected = expected + mean
    assert moved(Mean(), MEANS).tobytes() == expected.tobytes()


def test_momentum_is_a_sum_of_means_that_fade():
    """θ = η·Σ_t Σ_{s ≤ t} β^{t−s} Δ_s, summed in double precision."""
    exact = MEANS.astype(np.float64)
    expected = sum(0.3 * 0.8 ** (t - s) * exact[s] for t in range(12) for s in range(t + 1))
    assert moved(Momentum(step_size=0.3, momentum=0.8), MEANS) == pytest.approx(expected, abs=1e-5)


def test_adam_is_algorithm_2_of_reddi_and_others():
    """m and v written as sums over all rounds, in double precision; v starts at τ²."""
    exact, expected = MEANS.astype(np.float64), np.zeros(5)
    for t in range(12):
        m = sum(0.1 * 0.9 ** (t - s) * exact[s] for s in range(t + 1))
        v = 0.95 ** (t + 1) * 0.01**2 + sum(0.05 * 0.95 ** (t - s) * exact[s] ** 2 for s in range(t + 1))
        expected += 0.2 * m / (np.sqrt(v) + 0.01)
    found = moved(Adam(step_size=0.2, momentum=0.9, decay=0.95, floor=0.01), MEANS)
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_keeps_float32_and_does_not_change_what_it_is_given(name):
    step, mean = STEPS[name](), MEANS[0].copy()
    state = step.init(mean)
    before = {key: value.copy() for key, value in state.items()}
    move, after = step.update(mean, state)
    assert {move.dtype, *(value.dtype for value in after.values())} == {np.dtype(np.float32)}
    assert np.array_equal(mean, MEANS[0])
    assert all(np.array_equal(state[key], before[key]) for key in before)
    assert after.keys() == before.keys()
    assert not any(np.shares_memory(mean, value) for value in after.values())


# In runs


@pytest.mark.parametrize("name", STEPS)
def test_a_simulation_and_its_rehearsal_have_the_same_parameters(name):
    simulated, rehearsed = (Run(kind, study(server=name), drop=0.1).finish() for kind in KINDS)
    assert simulated.parameters.tobytes() == rehearsed.parameters.tobytes()


def test_each_step_ends_in_other_parameters():
    ends = {Run("simulation", study(server=name)).finish().parameters.tobytes() for name in STEPS}
    assert len(ends) == len(STEPS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", STEPS)
def test_a_run_that_is_interrupted_after_every_round_ends_as_if_it_had_not_been(name, kind, tmp_path):
    whole = Run(kind, study(server=name)).finish()
    folder = tmp_path / "run"
    run = Run(kind, study(server=name), folder=RunFolder.create(folder))
    for number in (1, 2):
        lines = run.rounds()
        assert next(lines).round == number
        lines.close()
        run = resume(folder, rows())
    assert run.finish().parameters.tobytes() == whole.parameters.tobytes()


def test_a_simulation_that_is_interrupted_between_two_checkpoints_repeats_the_servers_steps(tmp_path):
    given = {"server": "adam", "evaluate_every": 2, "rounds": 4}
    whole = Run("simulation", study(**given)).finish()
    run = Run("simulation", study(**given), folder=RunFolder.create(tmp_path / "run"))
    lines = run.rounds()
    assert [next(lines).round for _ in range(3)] == [1, 2, 3]
    lines.close()
    run = resume(tmp_path / "run", rows())
    assert run.first == 3
    assert run.finish().parameters.tobytes() == whole.parameters.tobytes()


def test_a_checkpoint_without_the_state_of_the_servers_step_is_refused(tmp_path):
    run = Run("simulation", study(server="adam"), folder=RunFolder.create(tmp_path / "run"))
    lines = run.rounds()
    next(lines)
    lines.close()
    path = tmp_path / "run" / "checkpoint.safetensors"
    tensors = load_file(path)
    assert set(tensors) == {"parameters", "server/velocity", "server/squares"}
    for wrong in ({}, {"server/squares": np.zeros(1, np.float32)}):
        save_file({key: tensors[key] for key in ("parameters", "server/velocity")} | wrong, path, {"round": "1"})
        with pytest.raises(StorageError, match="CH802"):
            resume(tmp_path / "run", rows())


def test_run_json_names_the_servers_step_only_if_it_is_not_the_mean(tmp_path):
    for name in ("mean", "momentum"):
        Run("simulation", study(server=name), folder=RunFolder.create(tmp_path / name)).finish()
    assert "server" not in json.loads((tmp_path / "mean" / "run.json").read_text())
    assert set(load_file(tmp_path / "mean" / "checkpoint.safetensors")) == {"parameters"}
    about = read_run(tmp_path / "momentum").about
    assert about.server == {"step": "momentum", "step_size": 1.0, "momentum": 0.9}
    assert about.plan_digest == read_run(tmp_path / "mean").about.plan_digest


def test_a_deployment_takes_the_servers_step_and_goes_on_with_its_state(tmp_path):
    """Two rounds with β = ½ and η = 1, the server started again between them: θ = Δ₁ + (Δ₁/2 + Δ₂)."""
    job = JOB.replace("rounds = 3", 'rounds = 2\nserver = "momentum"\nserver_momentum = 0.5')
    made = Consortium(tmp_path, job=job)
    made.approve()
    opened = []
    with agents(made.homes):
        stopped = noting(made.conductor(Sockets(made.homes)), opened)
        stopped.run_folder.add_round = stop_after(stopped.run_folder.add_round)
        with pytest.raises(KeyboardInterrupt):
            stopped.run()
        conductor = noting(made.conductor(Sockets(made.homes)), opened)
        conductor.run()
    first, second = (one.total.astype(np.float32) * np.float32(conductor.study.codec.grid / 3) for one in opened)
    _, end = conductor.run_folder.checkpoint()
    assert end == pytest.approx(conductor.study.model.start(0) + first + (0.5 * first + second), abs=1e-6)
    about = json.loads((conductor.run_folder.path / "run.json").read_text())
    assert about["server"] == {"step": "momentum", "step_size": 1.0, "momentum": 0.5}


def noting(conductor, opened):
    """The conductor, every sum that it opens put into the list."""
    real = conductor.round

    def noted(*given, **more):
        opened.append(real(*given, **more))
        return opened[-1]

    conductor.round = noted
    return conductor


def stop_after(add_round):
    def stop(*given):
        add_round(*given)
        raise KeyboardInterrupt

    return stop


# In choral.toml


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('server = "sgd"', 'federation.server = "sgd".'),
        ("server_momentum = 1.0", "federation.server_momentum = 1.0."),
        ("server_step_size = 0", "federation.server_step_size = 0."),
        ("server_decay = -0.1", "federation.server_decay = -0.1."),
        ("server_floor = nan", "federation.server_floor = nan."),
    ],
)
def test_a_step_or_a_number_out_of_range_is_refused_with_its_line(line, expected):
    with pytest.raises(ConfigError, match=r"CH102 choral\.toml:4 ") as error:
        parse(f"[privacy]\nepsilon = 2.0\n[federation]\n{line}\n")
    assert error.value.what == expected


def test_a_number_that_the_step_does_not_use_is_refused():
    with pytest.raises(PlanError, match=r'CH104 settings:5 server = "momentum" does not use server_floor. It uses'):
        job_of(epsilon=2.0, server="momentum", server_floor=0.1)
    with pytest.raises(PlanError, match=r'server = "mean" does not use server_momentum. It uses no number.'):
        job_of(epsilon=2.0, server_momentum=0.5)


def test_a_further_step_is_one_line_of_the_registry(monkeypatch):
    """What reads the registry when it is asked; choral.toml reads it when it is imported."""
    monkeypatch.setitem(STEPS, "still", type("Still", (Mean,), {"update": lambda _, mean, state: (0 * mean, state)}))
    step = server_step.step_of("still", {"momentum": None})
    assert moved(step, MEANS).tolist() == [0.0] * 5
