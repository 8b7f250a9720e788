"""Flower's processes: a SuperLink behind its gate, one that simulates, or a SuperNode beside its relay."""

import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

from choral.backends.flower.children import Children
from choral.backends.flower.control import Control
from choral.errors import ConfigError

__all__ = ["Children", "Control", "command", "connect", "free_address", "serve", "simulate"]

TESTED = ("1.41", "1.42")


def serve(
    children: Children,
    folder: Path,
    *,
    nodes: Iterable[str],
    address: str,
    certificate: Path,
    key: Path,
    authority: Path,
) -> str:
    """Start a SuperLink, let the nodes with these keys in (OpenSSH lines), and open its gate at the public address.

    Returns where its Control API is, on this machine only. What it must remember over a restart lies in the folder.
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
    with Control(inner, authority=authority) as control:
        control.admit(nodes)  # before they can knock: a SuperNode that is not let in gives up
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
    """Start a SuperNode that calls out to a SuperLink, and the relay that takes its messages to the device's door.

    `gave_up` is called whenever the SuperNode has ended by itself, before it is started again.
    """
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
        lasting=True,  # it gives up when it is not let in, or not yet again after a power cut
        when_it_ends=gave_up,
    )  # fmt: skip
    children.start(
        "relay",
        [
            sys.executable, "-m", "choral.backends.flower.executor",
            "--runtime", runtime, "--secret", str(secret), "--door", str(door),
        ],
        folder,
        lasting=True,
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
