"""Two versions of choral in one study: where frames are signed by one only, each refuses the other, and nobody pays.

A study of an older version runs to its end with that version, and what it leaves behind stays readable.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from choral.core.errors import TrustError
from choral.core.ledger import Ledger
from choral.core.messages import Call, Turn, decode, encode
from tests.run.consortium import JOB, NAMES, table

ROOT = Path(__file__).parents[2]
RELEASED = "5020940"  # of 0.1.0, which speaks protocol 2
BEFORE = "b6b56b7"  # speaks protocol 3, and knows no agreement on keys
LAST = "17f0b967"  # of 0.2, the last whose frames nobody signs


def unpacked(commit, folder):
    """The sources of a commit, as they would be installed."""
    folder.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the history here does not reach back to {commit}")
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    return folder


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """The folders whose src is each version."""
    scratch = tmp_path_factory.mktemp("versions")
    return {
        "released": unpacked(RELEASED, scratch / "released"),
        "before": unpacked(BEFORE, scratch / "before"),
        "last": unpacked(LAST, scratch / "last"),
        "new": ROOT,
    }


class Versions:
    """A coordinator and three sites in a folder, each command run by the version that is named."""

    def __init__(self, folder, trees):
        self.folder, self.trees = folder, trees
        folder.mkdir(exist_ok=True)
        (folder / "choral.toml").write_text(JOB.replace("deadline = 30", "deadline = 60"))
        for seed, name in enumerate(NAMES):
            table(folder / f"{name}.csv", seed=seed)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"

    def start(self, version, *words):
        environment = {**os.environ, "PYTHONPATH": str(self.trees[version] / "src"), "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-m", "choral", *map(str, words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=self.folder, env=environment, **pipes)

    def run(self, version, *words, fails=""):
        process = self.start(version, *words)
        said = process.communicate(timeout=300)[0]
        assert (fails in said) if fails else process.returncode == 0, said
        return said

    def start_study(self, server):
        self.run(server, "server", "init", "study", "--config", "choral.toml", "--address", self.address)

    def join(self, version, name, fails=""):
        words = ["study/invitation.toml", "--name", name, "--home", f"h-{name}"]
        return self.run(version, "device", "join", *words, fails=fails)

    def enrol(self, server, sites):
        """Cards and a study."""
        self.start_study(server)
        for name, version in sites.items():
            self.join(version, name)
        return self.run(server, "server", "enrol", "study", *(f"{name}.card" for name in sites))

    def approve(self, version, name, fails=""):
        words = ["study/study.toml", "--max-epsilon", 4, "--delta", 1e-4, "--data", f"{name}.csv"]
        words = ["device", "approve", *words, "--home", f"h-{name}"]
        said = self.run(version, *words, fails=fails)
        return said if fails else self.run(version, *words, "--yes")

    def finish(self, server, sites):
        """All rounds, over Flower; what the server says."""
        running = [self.start(version, "device", "run", "--home", f"h-{name}") for name, version in sites.items()]
        try:
            as_root = ["--as-root"] if os.geteuid() == 0 else []
            return self.run(server, "server", "run", "study", *as_root)
        finally:
            for device in running:
                device.terminate()
            for device in running:
                device.communicate(timeout=60)

    def charges(self):
        return [len(Ledger.read(self.folder / f"h-{name}" / "ledger").balance.charges) for name in NAMES]


def test_frames_of_the_released_protocol_are_refused_by_code():
    frame = bytearray(encode(Call(turn=Turn(1, 0))))
    for version in (1, 2, 9):
        frame[4] = version
        with pytest.raises(TrustError, match=f"CH602.*version {version}"):
            decode(bytes(frame), vector_bytes=0, records_bytes=0)


@pytest.mark.long
@pytest.mark.parametrize("older", ["released", "before", "last"])
def test_an_older_version_refuses_a_study_of_this_one_and_the_other_way_round(trees, tmp_path, older):
    """Nobody meets: frames are signed since format 2, and who can't check that is not asked to trust it."""
    new, old = Versions(tmp_path / "new", trees), Versions(tmp_path / "old", trees)
    new.enrol("new", dict.fromkeys(NAMES, "new"))
    old.enrol(older, dict.fromkeys(NAMES, older))
    assert "unknown field `server_key`" in new.join(older, "moor", fails="CH102")  # it reads fields before formats
    assert "the invitation has format 1, this choral has 2" in old.join("new", "moor", fails="CH602")
    studies = [made.folder / "study" / "study.toml" for made in (new, old)]
    texts = [path.read_text() for path in studies]
    for path, text in zip(studies, reversed(texts), strict=True):
        path.write_text(text)
    assert "the study has format 2, this choral has 1" in old.approve(older, "hill", fails="CH602")
    said = " ".join(new.approve("new", "hill", fails="CH602").split())
    assert older == "released" or "the study has format 1, in which no frame of the server is signed" in said


@pytest.mark.long
def test_a_site_that_is_upgraded_in_a_running_study_refuses_in_words_and_goes_on_with_the_older_version(
    trees, tmp_path
):
    pytest.importorskip("flwr")
    made = Versions(tmp_path, trees)
    made.enrol("last", dict.fromkeys(NAMES, "last"))
    for name in NAMES:
        made.approve("last", name)
    said = made.run("new", "device", "run", "--home", "h-hill", fails="CH602")
    words = " ".join(said.split())
    assert "the study has format 1, in which no frame of the server is signed" in words
    assert "Run it to its end with choral 0.2, on all sides" in words
    as_root = ["--as-root"] if os.geteuid() == 0 else []
    assert "the study has format 1" in " ".join(
        made.run("new", "server", "run", "study", *as_root, fails="CH602").split()
    )
    assert made.charges() == [0, 0, 0]
    said = made.finish("last", dict.fromkeys(NAMES, "last"))
    assert "all rounds are done" in said or "SAVED" in said
    assert made.charges() == [3, 3, 3]
    run = next((tmp_path / "study" / "runs").iterdir())
    assert "verified" in made.run("new", "verify", run)  # what it leaves behind stays readable
    assert "FINISHED" in made.run("new", "device", "status", "--home", "h-hill")
    made.run("new", "device", "result", "--home", "h-hill")
