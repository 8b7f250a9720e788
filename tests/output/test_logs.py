"""Logs for TensorBoard and MLflow: what is in them, what is not, and what happens without the package.

TensorBoard's files are read back by their own definition: length, checksum, an Event message, checksum. MLflow is
large, so a stand-in records the calls; docs/run-folder.md says how the real one is used.
"""

import json
import os
import struct
import sys
from types import SimpleNamespace

import pytest
from tensorboardX.proto.event_pb2 import Event

import choral
from choral.cli import main
from choral.core.errors import ConfigError, StorageError
from choral.output.logs import RunLog
from choral.record import read_run
from choral.run.folder import RunFolder
from choral.run.runs import Run
from tests.run.small import SETTINGS, rows, study


def events_of(folder):
    for path in sorted((folder / "tensorboard").iterdir()):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            yield Event.FromString(content[12 : 12 + length])
            content = content[16 + length :]


def scalars_of(folder):
    found = {}
    for event in events_of(folder):
        for value in event.summary.value:
            if value.HasField("simple_value"):
                found.setdefault(value.tag, {})[event.step] = value.simple_value
    return found


class FakeClient:
    """What choral uses of mlflow.MlflowClient, noting every call; its signatures are those of MLflow 3.17."""

    calls: list = []  # noqa: RUF012

    def __init__(self, tracking_uri=None):
        self.calls.append(("client", tracking_uri))

    def get_experiment_by_name(self, name):
        return None if name != "known" else SimpleNamespace(experiment_id="1")

    def create_experiment(self, name):
        self.calls.append(("experiment", name))
        return "7"

    def create_run(self, experiment_id, run_name=None):
        self.calls.append(("run", experiment_id, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id="r"))

    def log_param(self, run_id, key, value):
        self.calls.append(("param", run_id, key, value))

    def log_metric(self, run_id, key, value, step=None):
        self.calls.append(("metric", run_id, key, value, step))

    def set_terminated(self, run_id, status=None):
        self.calls.append(("end", run_id, status))


@pytest.fixture
def mlflow(monkeypatch):
    monkeypatch.setattr(FakeClient, "calls", [])
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=FakeClient))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    return FakeClient.calls


def expected(folder):
    """The figures that the run's own files hold."""
    record, found = read_run(folder), {}
    for line in record.rounds:
        for name, value in line.test.items():
            found.setdefault(f"test/{name}", {})[line.round] = value
        found.setdefault("privacy/largest_epsilon", {})[line.round] = max(line.spent)
    last = record.rounds[-1].round
    found |= {f"result/{name}": {last: value} for name, value in record.result.test.items()}
    found["result/largest_epsilon"] = {last: record.result.privacy.against_everyone.epsilon}
    return found


def test_tensorboard_gets_every_figure_of_the_run_and_nothing_else(tmp_path):
    choral.simulate(rows(), **SETTINGS, out=tmp_path / "run", log="tensorboard")
    found, wanted = scalars_of(tmp_path / "run"), expected(tmp_path / "run")
    assert {name: list(steps) for name, steps in found.items()} == {name: list(steps) for name, steps in wanted.items()}
    for name, steps in wanted.items():
        assert found[name] == pytest.approx(steps, rel=1e-6), name  # TensorBoard keeps 32 bits


def test_mlflow_gets_the_same_figures_under_the_run_folder(tmp_path, mlflow):
    choral.simulate(rows(), **SETTINGS, out=tmp_path / "run", log="mlflow")
    found = {}
    for _, _, name, value, step in (call for call in mlflow if call[0] == "metric"):
        found.setdefault(name, {})[step] = value
    assert found == expected(tmp_path / "run")
    assert mlflow[:3] == [
        ("client", f"sqlite:///{tmp_path}/run/mlflow.db"), ("experiment", "choral"), ("run", "7", "run")
    ]  # fmt: skip
    assert mlflow[-1] == ("end", "r", "FINISHED")


def test_mlflow_goes_where_the_user_says(tmp_path, mlflow, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    choral.simulate(rows(), **SETTINGS, out=tmp_path / "run", log="mlflow")
    assert mlflow[0] == ("client", "http://127.0.0.1:9")


@pytest.mark.usefixtures("mlflow")
def test_mlflow_is_configured_to_send_nothing_about_its_use():
    RunLog("mlflow")
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_no_epsilon_is_logged_without_its_rule_adjacency_and_adversary_and_no_device_by_name(tmp_path, mlflow):
    choral.simulate(rows(), **SETTINGS, out=tmp_path / "run", log="mlflow")
    reported = {call[2]: call[3] for call in mlflow if call[0] == "param"}
    assert reported["privacy"] == (
        "ε is the largest over the devices, at δ = 0.0001: one record replaced, rule S5, "
        "against the server and all other devices together"
    )
    assert reported["seed"] == "seeded: the noise can be predicted"
    assert "device 1" not in json.dumps(mlflow)


def test_a_limit_of_sums_is_logged_with_the_server_that_it_holds_against(tmp_path, mlflow):
    numbers = {"local_steps": 1, "batch": None, "noise_is_added": "every step", "against": "server and colluders"}
    choral.simulate(rows(), **SETTINGS | numbers, out=tmp_path / "run", log="mlflow")
    reported = next(call[3] for call in mlflow if call[0] == "param" and call[2] == "privacy")
    assert "rule S2, against a server that sees only sums" in reported


def test_an_interrupted_run_is_marked_and_logged_from_its_first_round_when_it_goes_on(tmp_path, mlflow):
    run = Run("simulation", study(), folder=RunFolder.create(tmp_path / "run"), log=RunLog("mlflow"))
    stopped = run.rounds()
    next(stopped)
    stopped.close()
    assert mlflow[-1] == ("end", "r", "KILLED")
    mlflow.clear()
    choral.resume(tmp_path / "run", rows(), log="mlflow").finish()
    accuracies = [(call[4], call[3]) for call in mlflow if call[:3] == ("metric", "r", "test/accuracy")]
    assert accuracies == [(line.round, line.test["accuracy"]) for line in read_run(tmp_path / "run").rounds]
    assert mlflow[-1] == ("end", "r", "FINISHED")


def test_a_log_that_fails_ends_the_run_with_a_code_and_the_run_can_go_on(tmp_path, mlflow, monkeypatch):
    def refuse(*_, **__):
        raise ConnectionError("no such host, and here is your token")

    monkeypatch.setattr(FakeClient, "log_metric", refuse)
    run = Run("simulation", study(), folder=RunFolder.create(tmp_path / "run"), log=RunLog("mlflow"))
    with pytest.raises(StorageError, match="CH801 mlflow can't keep the log") as caught:
        run.finish()
    assert "token" not in str(caught.value)
    assert len(read_run(tmp_path / "run").rounds) == 1
    assert ("end", "r", "KILLED") not in mlflow, "what failed once is not asked again"
    choral.resume(tmp_path / "run", rows()).finish()


@pytest.mark.parametrize(("kind", "module"), [("mlflow", "mlflow"), ("tensorboard", "tensorboardX")])
def test_without_the_package_the_pip_line_is_reported_before_anything_is_made(
    kind, module, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["demo", "--rounds", "1", "--out", str(tmp_path / "run"), "--log", kind]) == 2
    reported = capsys.readouterr().err
    assert reported == f"CH106 a log for {kind} needs {module}. pip install 'choral[{kind}]'\n"
    assert not (tmp_path / "run").exists()


def test_a_log_of_another_name_or_without_a_folder_is_refused(tmp_path, capsys):
    assert main(["demo", "--log", "paper", "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == 'CH102 log = \'paper\'. Must be "mlflow" or "tensorboard".\n'
    with pytest.raises(ConfigError, match=r"CH104 .*Give the folder as out="):
        choral.simulate(rows(), **SETTINGS, log="tensorboard")


def test_without_asking_nothing_is_logged(tmp_path, mlflow):
    choral.simulate(rows(), **SETTINGS, out=tmp_path / "run")
    assert mlflow == []
    assert not (tmp_path / "run" / "tensorboard").exists()
