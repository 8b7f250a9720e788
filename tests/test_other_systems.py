"""A site on a system that is not Unix, as far as it can be tried on one: without its modules, calls and sockets.

Nothing here ran on Windows. A process loads every module of choral once, so that the packages below it are there; then
what Windows lacks is taken away, and choral is loaded again.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="an extra of choral's")

ROOT = Path(__file__).parents[1]

WITHOUT_UNIX = """
import importlib, os, pkgutil, signal, socket, sys, types

def load_all():
    import choral
    names = [found.name for found in pkgutil.walk_packages(choral.__path__, "choral.", onerror=lambda name: None)]
    for name in [name for name in names if not name.endswith("__main__")]:
        importlib.import_module(name)
    return len(names)

load_all()
for name in [name for name in sys.modules if name.partition(".")[0] == "choral"]:
    del sys.modules[name]
lockf, test = os.lockf, os.F_TLOCK
for name in ("fcntl", "pwd", "grp", "resource", "termios", "tty", "pty"):
    sys.modules[name] = None
for where, names in {
    os: "fork forkpty killpg getpgid setsid geteuid getuid getgid fchmod fchown chown mkfifo sysconf getloadavg lockf",
    socket: "AF_UNIX",
    signal: "SIGHUP SIGALRM pthread_sigmask",  # SIGKILL stays: the library of Linux ends processes by it
}.items():
    for name in names.split():
        delattr(where, name)
sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=lambda file, _, count: lockf(file, test, count))
print(load_all(), flush=True)
"""

STUDY = """
import tempfile, threading
from pathlib import Path
from choral.backends import local_socket
from choral.deploy import doctor, ownership, services
from choral.core.errors import DeploymentError, StorageError
from choral.core import sealed
from choral.record import read_run
from tests.run.consortium import JOB, Consortium, Sockets, agents

assert relay.NO_UNIX_SOCKETS and not ownership.UNIX and not sealed.ON_FOLDERS
folder = Path(os.environ["HOME"]) / "trial"
folder.mkdir()
sites = Consortium(folder, job=JOB.replace("rounds = 3", "rounds = 1"))
sites.approve()
with agents(sites.homes, on_loopback=local_socket.NO_UNIX_SOCKETS):
    sites.conductor(Sockets(sites.homes)).run()
record = read_run(next((sites.study / "runs").iterdir()))
print([line.included for line in record.rounds], record.result.stopped)
print(sorted({one.state for one in doctor.examine(sites.homes["hill"])}))
for refused in (
    lambda: Consortium(Path(tempfile.mkdtemp())),
    lambda: next(services.serve_study(sites.study)),
):
    try:
        refused()
    except (StorageError, DeploymentError) as error:
        print(error.code)
"""

# A site's own process next to a node that is its child, both without what is Unix; the node knocks at nobody's door.
NODE = """
import threading, time
from pathlib import Path
from choral.backends.flower import children, processes
from choral.deploy.certificates import new_authority, node_key

assert not children.UNIX
folder = Path(os.environ["HOME"])
(folder / "node.key").write_bytes(node_key()[0])
(folder / "ca.pem").write_text(new_authority("trial").certificate)
made = children.Children()
processes.connect(made, folder / "flower", superlink=processes.free_address(), authority=folder / "ca.pem",
                  key=folder / "node.key", door=folder / "door")
pid = made.pid("node")
while not (line := Path(f"/proc/{pid}/cmdline").read_bytes()):  # the system writes it a moment after the start
    time.sleep(0.01)
words = line.split(b"\\0")
print(words[1:3] == [b"-m", b"choral.backends.flower.node"], flush=True)
if sys.argv[1:] == ["die"]:
    print(pid, flush=True)
    os._exit(0)
made.close()
print(Path(f"/proc/{pid}").exists(), flush=True)
"""


def run(script, home, *words):
    here = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "HOME": str(home)}
    here |= {"CHORAL_CACHE": "off", "XDG_STATE_HOME": str(home / "state")}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_UNIX + script, *words], env=here, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


@pytest.mark.long
def test_every_module_loads_where_nothing_of_unix_is_there(tmp_path):
    assert int(run("", tmp_path)[0]) > 250


@pytest.mark.long
def test_a_study_is_run_by_sites_behind_doors_on_loopback_and_a_server_is_refused(tmp_path):
    _, rounds, states, *codes = run(STUDY, tmp_path)
    assert rounds == "[(0, 1, 2)] all rounds are done" and "wrong" not in states
    assert codes == ["CH801", "CH908"]  # a home outside of the profile; a server


@pytest.mark.long
def test_a_node_is_a_plain_child_that_ends_with_its_parent(tmp_path):
    assert run(NODE, tmp_path)[1:] == ["True", "False"]
    (tmp_path / "again").mkdir()
    _, plain, pid = run(NODE, tmp_path / "again", "die")
    assert plain == "True"
    for _ in range(100):  # it is loading for some seconds
        if not Path(f"/proc/{pid}").exists():
            return
        time.sleep(0.2)
    raise AssertionError("the node has outlived its parent")
