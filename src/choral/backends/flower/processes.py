"""Flower's processes as children of this one: a SuperLink behind its gate, or a SuperNode beside its relay.

Every child has a folder for what it writes and a log in it; telemetry, update checks and installation of packages are
off, so nothing here looks up the internet. Children end with the object that started them.
"""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Self

from choral.errors import ConfigError, DeploymentError

TESTED = ("1.41", "1.42")
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
    "RAY_USAGE_STATS_ENABLED": "0",
}
# Becomes the command that follows, after asking the system to end it when this process ends, however that happens.
_TIED = (
    "import ctypes, os, sys\n"
    "getattr(ctypes.CDLL(None), 'prctl', lambda *_: 0)(1, 15)\n"
    "os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])"
)
_START = 60.0  # seconds that a process may take until it listens
_END = 3.0  # seconds that it may take to end when asked to


class Children:
    """Processes that end together: asked first, then made to; a context manager."""

    def __init__(self) -> None:
        self._children: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}

    def start(self, name: str, command: list[str], folder: Path, *, extra: Mapping[str, str] | None = None) -> None:
        """Start a command under a name, in a session of its own, so that a Ctrl-C here ends it in our order."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("FLWR_")}
        beside = str(Path(sys.executable).parent)  # where Flower looks for its other commands
        path = os.pathsep.join([beside, kept.get("PATH", "")])
        environment = {**kept, **QUIET, "FLWR_HOME": str(folder / "flwr"), "PATH": path, **(extra or {})}
        log = folder / f"{name}.log"
        with log.open("ab") as file:
            child = subprocess.Popen(  # noqa: S603 - our own commands
                [sys.executable, "-ISc", _TIED, str(os.getpid()), *command],
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        self._children[name] = (child, log)

    def check(self) -> None:
        """Nothing while all run; CH900 as soon as one has ended by itself."""
        for name, (child, log) in self._children.items():
            if (status := child.poll()) is not None:
                raise DeploymentError(
                    "CH900", f"{name} ended with status {status}.", where=f"{log.name}:", fix=f"See {log}."
                )

    def await_port(self, name: str, address: str) -> None:
        """Return when somebody listens at the address; CH900 if the process ends before, or takes too long."""
        host, _, port = address.rpartition(":")
        end = time.monotonic() + _START
        while time.monotonic() < end:
            self.check()
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise DeploymentError("CH900", f"{name} does not listen after {_START:.0f} s.", fix="Look into its log.")

    def kill(self, name: str) -> None:
        """End one process at once, as a power cut would: for tests of what happens then."""
        child, _ = self._children.pop(name)
        _signal(child, signal.SIGKILL)
        child.wait()

    def close(self) -> None:
        """End all."""
        children = [child for child, _ in self._children.values()]
        for child in children:
            _signal(child, signal.SIGTERM)
        end = time.monotonic() + _END
        for child in children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, end - time.monotonic()))
            _signal(child, signal.SIGKILL)  # what did not listen, and what it had started itself
            child.wait()
        self._children.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(children: Children, folder: Path, *, address: str, certificate: Path, key: Path, authority: Path) -> str:
    """Start a SuperLink and its gate at the public address; returns where its Control API is, on this machine only.

    What the SuperLink must remember over a restart lies in the folder.
    """
    inner = free_address()
    host, _, port = inner.rpartition(":")
    children.start(
        "superlink",
        [
            command("flower-superlink"), "--host", host, "--port", port,
            "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key), "--ssl-ca-certfile", str(authority),
            "--enable-supernode-auth", "--database", str(folder / "superlink.db"),
            "--disable-runtime-dependency-installation",
        ],
        folder,
    )  # fmt: skip
    children.await_port("the SuperLink", inner)
    children.start(
        "gate",
        [
            sys.executable, "-m", "choral.backends.flower.gate", "--listen", address, "--to", inner,
            "--certificate", str(certificate), "--key", str(key), "--authority", str(authority),
        ],
        folder,
    )  # fmt: skip
    host, _, port = address.rpartition(":")
    children.await_port("the gate", address if host not in ("0.0.0.0", "[::]") else f"127.0.0.1:{port}")  # noqa: S104
    return inner


def simulate(children: Children, folder: Path) -> str:
    """Start a SuperLink that simulates its nodes on this machine, without TLS or keys; where its Control API is."""
    inner = free_address()
    host, _, port = inner.rpartition(":")
    words = ["--simulation", "--insecure", "--host", host, "--port", port, "--disable-runtime-dependency-installation"]
    children.start("superlink", [command("flower-superlink"), *words], folder)
    children.await_port("the SuperLink", inner)
    return inner


def connect(children: Children, folder: Path, *, superlink: str, authority: Path, key: Path, door: Path) -> None:
    """Start a SuperNode that calls out to a SuperLink, and the relay that takes its messages to the device's door."""
    runtime = free_address()
    host, _, port = runtime.rpartition(":")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    secret = folder / "relay.secret"
    with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(secrets.token_bytes(32))
    children.start(
        "supernode",
        [
            command("flower-supernode"), "--superlink", superlink, "--root-certificates", str(authority),
            "--auth-supernode-private-key", str(key), "--isolation", "process", "--host", host, "--port", port,
            "--superexec-auth-secret-file", str(secret),
        ],
        folder,
    )  # fmt: skip
    children.start(
        "relay",
        [
            sys.executable, "-m", "choral.backends.flower.executor",
            "--runtime", runtime, "--secret", str(secret), "--door", str(door),
        ],
        folder,
    )  # fmt: skip


def command(name: str) -> str:
    """Where one of Flower's commands lies, or CH106 if Flower is not there in a version that is known to work."""
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
    return str(Path(sys.executable).parent / name)


def free_address() -> str:
    """A loopback address that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def _signal(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a child and to what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)
