"""Processes as children of this one: each with a folder, a log and quiet surroundings, and all end together.

A site has one: the node that calls out to its server.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from choral.backends.connecting import Pauses
from choral.core.errors import ConfigError, DeploymentError

# Nothing that Flower starts looks up the internet.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
    "RAY_USAGE_STATS_ENABLED": "0",
}
# All that a child gets of this process's environment, by the beginning of a name or by the whole of it: tokens and
# passwords that somebody has put there are none of its business.
_PREFIXES = ("LC_", "CHORAL_", "JAX_", "XLA_", "CUDA_", "NVIDIA_", "ROCR_", "HIP_", "TPU_", "OMP_")
_NAMES = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME",
        "XDG_RUNTIME_DIR", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH",
        "SSL_CERT_FILE", "SSL_CERT_DIR", "SYSTEMROOT", "USERPROFILE", "APPDATA", "LOCALAPPDATA",
    }
)  # fmt: skip
PROXIES = frozenset(
    {name for one in ("https_proxy", "all_proxy", "no_proxy") for name in (one, one.upper())}
)  # only for what calls out: they may hold a password
UNIX = hasattr(os, "killpg")  # Windows has no groups of processes, and no way to become another command
FED = "CHORAL_FED"  # set where a child ends by itself when nobody holds the other end of its input any more
# Becomes the command that follows, after asking the system to end it when this process ends, however that happens.
_TIED = (
    "import ctypes, os, sys\n"
    "getattr(ctypes.CDLL(None), 'prctl', lambda *_: 0)(1, 15)\n"
    "os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])"
)
_START = 60.0  # seconds that a process may take until it listens
PAUSE, LONGEST = 5.0, 20.0  # seconds before one that ended is started again
END = 3.0  # seconds that it may take to end when asked to
TESTED = ("1.41", "1.42")  # versions of Flower


@dataclass
class _Child:
    command: list[str]
    folder: Path
    log: Path
    lasting: bool
    also: frozenset[str]
    process: subprocess.Popen[bytes]
    when_it_ends: Callable[[], None] | None
    ended: float | None = None
    again: float = 0.0  # when it is started again
    pauses: Pauses = field(default_factory=lambda: Pauses(PAUSE, LONGEST))


class Children(contextlib.AbstractContextManager["Children"]):
    """Processes that end together, asked first, then made to; a context manager. Start them from the main thread."""

    def __init__(self) -> None:
        self._children: dict[str, _Child] = {}

    def start(
        self,
        name: str,
        command: list[str],
        folder: Path,
        *,
        lasting: bool = False,
        when_it_ends: Callable[[], None] | None = None,
        also: frozenset[str] = frozenset(),
    ) -> None:
        """Start a command under a name, with its log in the folder; a lasting one is started again when it ends.

        It gets the variables of the environment that every child needs, and those of `also`.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = folder / f"{name}.log"
        process = _spawn(command, folder, log, also)
        self._children[name] = _Child(command, folder, log, lasting, also, process, when_it_ends)

    def pid(self, name: str) -> int:
        """The number of a process."""
        return self._children[name].process.pid

    def check(self) -> None:
        """Start again what is to last; CH900 as soon as anything else has ended by itself."""
        now = time.monotonic()
        for name, child in self._children.items():
            if (status := child.process.poll()) is None:
                continue
            if not child.lasting:
                where = f"{child.log.name}:"
                raise DeploymentError(
                    "CH900", f"{name} ended with status {status}.", where=where, fix=f"See {child.log}."
                )
            if child.ended is None:
                child.ended, child.again = now, now + child.pauses.next()
                if child.when_it_ends is not None:
                    child.when_it_ends()
            elif now > child.again:
                child.process, child.ended = _spawn(child.command, child.folder, child.log, child.also), None

    def await_listener(self, name: str, where: str | Path) -> None:
        """Return when somebody listens at host:port or at a socket; CH900 if a process ends before, or too late."""
        end = time.monotonic() + _START
        while time.monotonic() < end:
            self.check()
            try:
                _dial(where).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise DeploymentError("CH900", f"{name} does not listen after {_START:.0f} s.", fix="Look into its log.")

    def close(self) -> None:
        """End all."""
        processes = [child.process for child in self._children.values()]
        for process in processes:
            _end(process)
        end = time.monotonic() + END
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
            _end(process, at_once=True)  # what did not listen, and what it had started itself
            process.wait()
        self._children.clear()

    def __exit__(self, *_: object) -> None:
        self.close()


def _dial(where: str | Path) -> socket.socket:
    if not isinstance(where, Path):
        host, _, port = where.rpartition(":")
        return socket.create_connection((host.strip("[]"), int(port)), timeout=1)
    line = socket.socket(socket.AF_UNIX)
    try:
        line.connect(str(where))
    except OSError:
        line.close()
        raise
    return line


def _spawn(command: list[str], folder: Path, log: Path, also: frozenset[str]) -> subprocess.Popen[bytes]:
    """A process in its own session, so that a Ctrl-C here ends it in our order; its files are its owner's only."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _NAMES or name in also or name.startswith(_PREFIXES)
    }
    programs = str(Path(sys.executable).parent)  # where Flower looks for its other commands
    path = os.pathsep.join([programs, kept.get("PATH", "")])
    with open(log, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        return subprocess.Popen(  # noqa: S603 - our own commands
            [sys.executable, "-ISc", _TIED, str(os.getpid()), *command] if UNIX else command,
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL if UNIX else subprocess.PIPE,
            env={**kept, **QUIET, **({} if UNIX else {FED: "1"}), "FLWR_HOME": str(folder / "flwr"), "PATH": path},
            start_new_session=True,
            umask=0o077,
        )


def _end(process: subprocess.Popen[bytes], *, at_once: bool = False) -> None:
    """Ask a process and what it started to end, or make them; on Windows a process can only be made to, by itself."""
    if UNIX:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL if at_once else signal.SIGTERM)
    elif process.poll() is None:
        process.kill()


def connect(
    children: Children,
    folder: Path,
    *,
    superlink: str,
    authority: Path,
    key: Path,
    door: Path,
    gave_up: Callable[[], None] | None = None,
) -> None:
    """Start a node that calls out to a SuperLink and takes its messages to the device's door.

    `gave_up` is called whenever the node has ended by itself, before it is started again.
    """
    check_version()
    children.start(
        "node",
        [
            sys.executable, "-m", "choral.backends.flower.node", "--superlink", superlink,
            "--authority", str(authority), "--key", str(key), "--door", str(door),
        ],
        folder,
        lasting=True,  # it gives up when it is not let in, or not yet again after a power cut
        when_it_ends=gave_up,
        also=PROXIES,
    )  # fmt: skip


def check_version() -> None:
    """Nothing, or CH106 if Flower is not there in a version that is known to work."""
    try:
        version = metadata.version("flwr")
    except metadata.PackageNotFoundError:
        version = ""
    if not version.startswith(TESTED):
        raise ConfigError(
            "CH106",
            f"a deployment runs on Flower {' or '.join(TESTED)}; {version or 'none'} is installed.",
            fix="pip install 'choral[flower]' 'flwr>=1.41,<1.43'",
        )
