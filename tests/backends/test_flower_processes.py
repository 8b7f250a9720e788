"""Flower's processes as our children: quiet, logged, started again where they should last, and gone when we are."""

import os
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="an extra of choral's")

from flwr.app import Message
from flwr.supercore.task_identity import TaskIdentity

from choral.backends.flower import children as children_module
from choral.backends.flower import processes
from choral.backends.flower.children import Children
from choral.backends.flower.parcels import KIND, parcel, relayed, unpacked
from choral.core.errors import ConfigError, DeploymentError

ROOT = Path(__file__).parents[2]


def until(holds, seconds=20):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.05)


def python(script):
    return [sys.executable, "-c", script]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[0] != "Z"
    except OSError:
        return False


def test_nothing_that_is_started_phones_home_or_shares_a_home(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    monkeypatch.setenv("FLWR_SOMETHING", "of the user's")
    with Children() as children:
        children.start("one", python("import os; print(sorted(os.environ.items()))"), tmp_path)
        until(lambda: "PATH" in (tmp_path / "one.log").read_text())
    reported = dict(eval((tmp_path / "one.log").read_text()))
    assert reported["FLWR_TELEMETRY_ENABLED"] == "0" and reported["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert (
        reported["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1" and reported["RAY_USAGE_STATS_ENABLED"] == "0"
    )
    assert reported["FLWR_HOME"] == str(tmp_path / "flwr") and "FLWR_SOMETHING" not in reported


def test_a_process_that_ends_by_itself_is_an_error_that_names_its_log(tmp_path):
    with Children() as children:
        children.start("superlink", python("raise SystemExit(7)"), tmp_path)
        with pytest.raises(DeploymentError, match=r"CH900 superlink\.log: superlink ended with status 7\."):
            until(lambda: children.check())


def test_a_lasting_process_is_started_again(tmp_path, monkeypatch):
    monkeypatch.setattr(children_module, "PAUSE", 0.0)
    with Children() as children:
        children.start("node", python("print('up', flush=True)"), tmp_path, lasting=True)
        until(lambda: children.check() or (tmp_path / "node.log").read_text().count("up") >= 3)


def test_one_that_does_not_listen_to_requests_to_end_is_made_to(tmp_path, monkeypatch):
    monkeypatch.setattr(children_module, "END", 0.2)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(99)"
    children = Children()
    children.start("deaf", python(deaf), tmp_path)
    pid = children.pid("deaf")
    until(lambda: "up" in (tmp_path / "deaf.log").read_text())
    children.close()
    assert not alive(pid)


def test_children_do_not_outlive_a_parent_that_was_killed(tmp_path):
    script = f"""
import sys, time
from pathlib import Path
from choral.backends.flower.children import Children
children = Children()
children.start("child", [sys.executable, "-c", "import time; time.sleep(99)"], Path({str(tmp_path)!r}))
print(children.pid("child"), flush=True)
time.sleep(99)
"""
    here = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])}
    with subprocess.Popen(python(script), env=here, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        until(lambda: b"time.sleep" in Path(f"/proc/{pid}/cmdline").read_bytes())
        parent.send_signal(signal.SIGKILL)
    until(lambda: not alive(pid))


@pytest.mark.parametrize("version", ["1.40.0", "2.0.0", None])
def test_another_version_of_flower_is_refused_with_the_line_to_type(version, monkeypatch):
    def version_of(_):
        if version is None:
            raise metadata.PackageNotFoundError
        return version

    monkeypatch.setattr(children_module.metadata, "version", version_of)
    with pytest.raises(ConfigError, match=r"CH106 .*1\.41 or 1\.42.*pip install"):
        processes.command("flower-superlink")


def test_without_flower_the_pip_line_is_reported():
    script = (
        "import sys; sys.modules['flwr'] = None\n"
        "from choral.core.errors import ConfigError\n"
        "try:\n    import choral.backends.flower\n"
        "except ConfigError as error:\n    print(error)"
    )
    here = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])}
    done = subprocess.run(python(script), env=here, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("CH106") and "pip install 'choral[flower]'" in done.stdout


def message(monkeypatch, ttl):
    """A message of a server, as a relay gets it."""
    for name in ("_run_id", "_node_id", "_task_id"):  # what Flower knows within an app
        monkeypatch.setattr(TaskIdentity, name, 1)
    made = Message(parcel(b"Fx"), 1, KIND, ttl=5.0)
    made.metadata.__dict__ |= {"_message_id": "m", "_ttl": ttl}
    return made


def test_a_relay_without_its_agent_answers_with_a_code_only(tmp_path, monkeypatch):
    reply = relayed(message(monkeypatch, 5.0), tmp_path / "nobody")
    assert dict(reply.content["refusal"]) == {"code": "CH901"} and unpacked(reply.content) is None


@pytest.mark.parametrize("ttl", [1e12, float("nan"), float("inf"), 1e308])
def test_a_message_that_lives_for_ever_is_refused_and_the_relay_goes_on(tmp_path, monkeypatch, ttl):
    reply = relayed(message(monkeypatch, ttl), tmp_path / "nobody")
    assert dict(reply.content["refusal"]) == {"code": "CH600"} and unpacked(reply.content) is None


def test_what_a_process_writes_is_for_its_owner_only(tmp_path):
    with Children() as children:
        children.start("maker", ["/bin/sh", "-c", f"echo x > {tmp_path}/made; sleep 60"], tmp_path)
        end = time.monotonic() + 20
        while not (tmp_path / "made").exists() and time.monotonic() < end:
            time.sleep(0.05)
    for name in ("made", "maker.log"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0, name
