"""Two versions of choral in one study: where the protocol differs each refuses the other by code, and nobody pays.

Where it is the same, sites and server may differ, and a site may be upgraded between its approval and its rounds.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from choral.errors import TrustError
from choral.privacy.ledger import Ledger
from choral.protocol.messages import Call, Turn, decode, encode
from tests.run.consortium import JOB, NAMES, table

ROOT = Path(__file__).parents[2]
RELEASED = "5020940"  # of 0.1.0, which speaks protocol 2
SAME_PROTOCOL = "b6b56b7"  # speaks protocol 3, and knows no agreement on keys


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
        "before": unpacked(SAME_PROTOCOL, scratch / "before"),
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

    def enrol(self, server, sites):
        """Cards and a study; a new site makes a plain card where somebody in the study knows no other."""
        mixed = {server, *sites.values()} != {"new"}
        self.run(server, "server", "init", "study", "--config", "choral.toml", "--address", self.address)
        for name, version in sites.items():
            plain = ["--plain-card"] if version == "new" and mixed else []
            self.run(version, "device", "join", "study/invitation.toml", "--name", name, "--home", f"h-{name}", *plain)
        return self.run(server, "server", "enrol", "study", *(f"{name}.card" for name in sites))

    def approve(self, version, name, fails=""):
        allowed = ["--allow-card-keys"] if version == "new" else []
        words = ["study/study.toml", "--max-epsilon", 4, "--delta", 1e-4, "--data", f"{name}.csv", *allowed]
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
    for version in (1, 2, 8):
        frame[4] = version
        with pytest.raises(TrustError, match=f"CH602.*version {version}"):
            decode(bytes(frame), vector_bytes=0, records_bytes=0)


@pytest.mark.long
def test_the_release_before_refuses_a_study_of_this_one_and_the_other_way_round(trees, tmp_path):
    new_server, old_server = Versions(tmp_path / "a", trees), Versions(tmp_path / "b", trees)
    new_server.enrol("new", dict.fromkeys(NAMES, "released"))
    said = new_server.approve("released", "hill", fails="CH602")
    assert "the study has protocol 3, this choral has 2" in said
    old_server.enrol("released", dict.fromkeys(NAMES, "new"))
    said = old_server.approve("new", "hill", fails="CH602")
    assert "the study has protocol 2, this choral has 3 and 6" in said
    frame = encode(Call(turn=Turn(1, 0))).hex()
    read = "from choral.protocol.messages import decode\n"
    read += f"decode(bytes.fromhex('{frame}'), vector_bytes=0, records_bytes=0)"
    old = {**os.environ, "PYTHONPATH": str(trees["released"] / "src")}
    reported = subprocess.run([sys.executable, "-c", read], env=old, capture_output=True, text=True, check=False)
    assert "CH602" in reported.stderr and "version 3, this one 2" in reported.stderr


@pytest.mark.long
def test_a_version_without_hybrid_keys_refuses_a_study_that_has_them(trees, tmp_path):
    made = Versions(tmp_path, trees)
    said = made.enrol("new", dict.fromkeys(NAMES, "new"))
    assert "ML-KEM-768" in said
    said = made.run(
        "before", "device", "approve", "study/study.toml", "--max-epsilon", 4, "--data", "hill.csv",
        "--home", "h-hill", fails="CH602",
    )  # fmt: skip
    assert "the study has protocol 6, this choral has 3" in said


@pytest.mark.long
@pytest.mark.parametrize(
    ("server", "sites", "upgraded"),
    [
        ("new", ("before", "before", "new"), "new"),
        ("before", ("new", "new", "before"), "before"),
        ("before", ("before", "before", "before"), "new"),  # one site is upgraded after its approval
    ],
)
def test_versions_of_one_protocol_finish_a_study_together_over_flower(trees, tmp_path, server, sites, upgraded):
    pytest.importorskip("flwr")
    made, versions = Versions(tmp_path, trees), dict(zip(NAMES, sites, strict=True))
    made.enrol(server, versions)
    for name, version in versions.items():
        made.approve(version, name)
    said = made.finish(server, {**versions, NAMES[2]: upgraded})
    assert "all rounds are done" in said or "SAVED" in said
    assert made.charges() == [3, 3, 3]
    run = next((tmp_path / "study" / "runs").iterdir())
    assert "verified" in made.run("new", "verify", run)
