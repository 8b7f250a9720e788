"""kill -9 at any durable step, then resume: the run ends, no budget is under-counted, no keystream is used twice."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from choral.core.ledger import Ledger
from choral.record import read_run
from choral.report.verify import verify
from choral.run.folder import RunFolder

CHILD = Path(__file__).with_name("child.py")
ROOT = Path(__file__).parent.parent.parent


def child(kind, folder, step, law="gaussian"):
    command = [sys.executable, CHILD, kind, folder, str(step), folder.with_suffix(".log"), law]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": f"{ROOT}/src:{ROOT}"}, capture_output=True, text=True)
    assert done.returncode in (0, -9), done.stderr
    return done.returncode


def crash_and_finish(kind, folder, step, law="gaussian"):
    """Kill the run at this step, and once more a few steps after it was taken up; then let it end."""
    killed = child(kind, folder, step, law) == -9
    if killed and not (folder / "result.json").exists():
        child(kind, folder, 1 + step % 7, law)
    while not (folder / "result.json").exists():
        assert child(kind, folder, 0, law) == 0
    return killed


def check(kind, folder, reference):
    record = read_run(folder)
    assert [line.round for line in record.rounds] == [1, 2, 3]
    released = {number: {line.round for line in record.rounds if number in line.included} for number in range(6)}
    for number, path in enumerate(sorted((folder / "ledgers").glob("*.ledger"))):
        charged = Ledger.read(path).balance.charges
        assert released[number] <= {charge.round for charge in charged}
    assert [finding for finding in verify(folder) if finding.wrong] == []
    if kind == "simulation":
        assert np.array_equal(RunFolder(folder).checkpoint()[1], RunFolder(reference).checkpoint()[1])
        assert read_run(folder).result.privacy == read_run(reference).result.privacy
    else:
        keys = folder.with_suffix(".log").read_text().splitlines()
        counts = {key: keys.count(key) for key in set(keys)}
        # A pair's key masks one update on each side; a self mask's key masks one.
        assert max(counts.values()) == 2


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference") / "run"
    assert child("simulation", folder, 0) == 0
    return folder


@pytest.mark.parametrize("kind", [pytest.param("simulation", marks=pytest.mark.long), "rehearsal"])
@pytest.mark.parametrize("step", [3, pytest.param(40, marks=pytest.mark.long)])
def test_a_killed_run_is_resumed_and_nothing_is_lost(kind, step, tmp_path, reference):
    assert crash_and_finish(kind, tmp_path / "run", step)
    check(kind, tmp_path / "run", reference)


@pytest.mark.parametrize("kind", ["simulation", pytest.param("rehearsal", marks=pytest.mark.long)])
def test_a_killed_strict_run_is_resumed_with_the_noise_that_it_would_have_had(kind, tmp_path):
    if kind == "simulation":
        assert child(kind, tmp_path / "reference", 0, "discrete_gaussian") == 0
    assert crash_and_finish(kind, tmp_path / "run", 40, "discrete_gaussian")
    check(kind, tmp_path / "run", tmp_path / "reference")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["simulation", "rehearsal"])
def test_a_hundred_kill_points_each(kind, tmp_path, reference):
    killed = 0
    for point in range(100):
        folder = tmp_path / f"run{point}"
        killed += crash_and_finish(kind, folder, 1 + point)
        check(kind, folder, reference)
    assert killed >= 60
