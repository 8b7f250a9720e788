"""Who has no business with a deployment: strangers on the network, and other users of the server's or a site's machine.

Everything here is real: a SuperLink behind its gate, the conductor and a node, each a process.
"""

import contextlib
import shutil
import socket
import ssl
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="an extra of choral's")

import choral
from choral.backends.flower import processes
from choral.backends.flower.api import WAKE_UP
from choral.backends.flower.control import Control
from choral.backends.flower.node import LET_IN
from choral.deploy.certificates import node_key
from tests.backends.flower_stage import ROOT, Stage, certificates
from tests.backends.other_user import as_nobody, environment_of, family, listeners, needs_root, peak, words_of

SECRET = ("AWS_SECRET_ACCESS_KEY", "hunter2-of-the-coordinator")
MEBIBYTE = bytes(2**20)
PARTS = ("superlink", "gate", "conductor", "node")


class Deployment:
    """A server and one site of a study whose messages have 10,000 bytes at the most; nothing is run yet."""

    def __init__(self, folder, children):
        self.folder, self.children, self.address = folder, children, processes.free_address()
        certificates(folder)
        secret, public = node_key()
        (folder / "node.key").write_bytes(secret)
        self.link = processes.serve(
            children, folder / "server", nodes=[public], address=self.address, certificate=folder / "server.pem",
            key=folder / "server.key", authority=folder / "authority.pem", frame_bytes=10_000, patience=30.0,
        )  # fmt: skip
        where = "tests.backends.flower_conductor:lend"
        processes.conduct(children, folder / "server", link=self.link, study=folder, conductor=where)
        processes.connect(
            children, folder / "site", superlink=self.address, authority=folder / "authority.pem",
            key=folder / "node.key", door=folder / "door",
        )  # fmt: skip
        Stage.until(lambda: LET_IN in (folder / "site" / "node.log").read_text(), 60)

    @property
    def bell(self):
        return self.link.with_name(WAKE_UP)

    def pids(self):
        return set().union(*(family(self.children.pid(name)) for name in PARTS))

    def line(self):
        """A stranger's connection to the gate, which has the invitation and nothing else."""
        host, _, port = self.address.rpartition(":")
        trusted = ssl.create_default_context(cafile=self.folder / "authority.pem")
        return trusted.wrap_socket(socket.create_connection((host, int(port)), timeout=30), server_hostname=host)


@pytest.fixture(scope="module")
def deployment():
    with pytest.MonkeyPatch.context() as patch, processes.Children() as children:
        patch.setenv("PYTHONPATH", f"{Path(choral.__file__).parents[1]}:{ROOT}")  # the very source that is tested
        patch.setenv(*SECRET)
        folder = Path(tempfile.mkdtemp(prefix="strangers", dir="/tmp"))
        folder.chmod(0o755)  # what is in it must protect itself
        try:
            yield Deployment(folder, children)
        finally:
            children.close()
            shutil.rmtree(folder)


@pytest.mark.parametrize("path", ["push-object", "activate-node", "push-messages"])
def test_two_hundred_mebibytes_without_a_key_take_no_memory_of_any_process(deployment, path):
    before = {name: peak(deployment.children.pid(name)) for name in ("superlink", "gate")}
    head = f"POST /v1/fleet/{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/protobuf\r\n"
    with deployment.line() as line, contextlib.suppress(OSError):  # it is cut off on the way
        line.sendall(f"{head}Content-Length: {200 * len(MEBIBYTE)}\r\n\r\n".encode())
        for _ in range(200):
            line.sendall(MEBIBYTE)
        line.recv(100)
    # Before the gate looked at who sends, the SuperLink went from 148 to 546 MiB.
    for name, size in before.items():
        assert peak(deployment.children.pid(name)) < size + 20


def test_nothing_listens_on_the_network_but_the_gate(deployment):
    ports, paths = listeners(deployment.pids())
    assert ports == {int(deployment.address.rpartition(":")[2])}
    assert {Path(path).name for path in paths} == {"link.sock"}
    for path in map(Path, [*paths, deployment.bell]):
        assert path.stat().st_mode & 0o177 == 0 and path.parent.stat().st_mode & 0o077 == 0


_TRY = """
address, paths = sys.argv[1], sys.argv[2:]
reported = {}
for path in paths:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        reported[path] = "open"
    except PermissionError:
        reported[path] = "shut"
host, _, port = address.rpartition(":")
for api in ("control/list-runs", "control/start-run", "control/register-node", "runtime/acquire-task"):
    line = ssl._create_unverified_context().wrap_socket(socket.create_connection((host, int(port))))
    head = f"POST /v1/{api} HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/protobuf\\r\\n"
    line.sendall(f"{head}flwr-package-version: 1.41.0\\r\\nContent-Length: 0\\r\\n\\r\\n".encode())
    reported[api] = line.recv(100).split()[1].decode()
print(json.dumps(reported))
"""


@needs_root
def test_another_user_of_the_machine_can_start_no_run_and_take_no_task(deployment):
    paths = [*listeners(deployment.pids())[1], str(deployment.bell)]
    reported = as_nobody(_TRY, deployment.address, *paths)
    assert [reported.pop(path) for path in paths] == ["shut", "shut"]
    assert len(reported) == 4 and set(reported.values()) == {"404"}


def test_no_token_or_secret_stands_on_a_command_line_while_a_run_is_under_way(deployment):
    with Control(deployment.link) as control:
        run = control.start(deployment.folder)
        while control.state(run).status != "running":
            deployment.children.check()
    for pid in deployment.pids():
        assert not [word for word in words_of(pid) if b"token" in word or b"secret" in word]


def test_no_child_gets_more_of_the_environment_than_it_needs(deployment):
    for pid in deployment.pids():
        found = environment_of(pid)
        assert any(entry.startswith(b"PATH=") for entry in found)  # it was readable
        assert not [entry for entry in found if SECRET[1].encode() in entry or entry.startswith(SECRET[0].encode())]
