"""Flower's processes: a SuperLink behind its gate, one that simulates, or a site's node."""

import json
import socket
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from choral.backends import local_socket
from choral.backends.flower.api import PIECE
from choral.backends.flower.children import Children, check_version, connect
from choral.backends.flower.control import Control, public_key
from choral.backends.flower.gate import LATE

__all__ = ["Children", "Control", "command", "conduct", "connect", "free_address", "serve", "simulate"]

_REQUEST = 30.0  # seconds that a request may take at the least, however short a study's deadlines are


def serve(
    children: Children,
    folder: Path,
    *,
    nodes: Iterable[str],
    address: str,
    certificate: Path,
    key: Path,
    authority: Path,
    frame_bytes: int,
    patience: float,
) -> Path:
    """Start a SuperLink, let the nodes with these keys in (OpenSSH lines), and open its gate at the public address.

    Returns the socket of its APIs, which only this user can open. What it must remember over a restart is in the
    folder. `frame_bytes` is the longest message of the study, `patience` the seconds that one request may take.
    """
    link, known = folder / "link.sock", sorted(nodes)
    children.start(
        "superlink",
        [
            *_enclosed(link), "flower-superlink", "--isolation", "process",
            "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key), "--ssl-ca-certfile", str(authority),
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
        ],
        folder,
    )  # fmt: skip
    children.await_listener("the SuperLink", link)
    with Control(link) as control:
        control.admit(known)  # before they can connect: a SuperNode that is not admitted gives up
    keys = folder / "nodes.json"
    keys.write_text(json.dumps([public_key(one).decode() for one in known]))
    children.start(
        "gate",
        [
            sys.executable, "-m", "choral.backends.flower.gate", "--listen", address, "--to", str(link),
            "--certificate", str(certificate), "--key", str(key), "--nodes", str(keys),
            "--most-bytes", str(request_bytes(frame_bytes)), "--most-reply", str(reply_bytes(frame_bytes)),
            "--patience", str(max(_REQUEST, patience)),
        ],
        folder,
    )  # fmt: skip
    host, _, port = address.rpartition(":")
    children.await_listener("the gate", address if host not in ("0.0.0.0", "[::]") else f"127.0.0.1:{port}")  # noqa: S104
    return link


def conduct(
    children: Children,
    folder: Path,
    *,
    link: Path,
    study: Path,
    conductor: str,
    nodes: Mapping[int, str] | None = None,
) -> None:
    """Start the process that runs the study in a folder as soon as a run is asked for at the SuperLink's socket.

    `conductor` is the "module:function" that runs it over a transport. `nodes` says which device each node is, by its
    key; without it a node is believed until its device has to sign.
    """
    module = "choral.backends.flower.conducting"
    words = ["--link", str(link), "--study", str(study.resolve()), "--conductor", conductor]
    if nodes is not None:
        bound = folder / "devices.json"
        bound.write_text(json.dumps(nodes))
        words += ["--nodes", str(bound)]
    children.start("conductor", [sys.executable, "-m", module, *words], folder)


def with_wrong_clocks(folder: Path, devices: Mapping[str, str]) -> frozenset[str]:
    """The devices, by their nodes' keys (OpenSSH lines), whose clocks are wrong, as the gate in this folder says."""
    try:
        late = json.loads((folder / LATE).read_text())
    except (OSError, ValueError):
        return frozenset()
    return frozenset(id for id, key in devices.items() if late and public_key(key).decode() in late)


def request_bytes(frame_bytes: int) -> int:
    """The most that one request of a node may take whose messages have so many bytes: Flower sends them in pieces.

    >>> request_bytes(1000), request_bytes(40_000_000)
    (66536, 5337088)
    """
    pieces = -(-frame_bytes // PIECE)
    return min(frame_bytes, PIECE) + 2**16 + 2**12 * (pieces - 1)


def reply_bytes(frame_bytes: int) -> int:
    """The most that all parts of one message of a node may take together, what Flower writes around them included.

    >>> reply_bytes(1000), reply_bytes(40_000_000)
    (66536, 40094208)
    """
    return frame_bytes + 2**16 + 2**12 * (-(-frame_bytes // PIECE) - 1)


def simulate(children: Children, folder: Path) -> str:
    """Start a SuperLink that simulates its nodes on this machine, without TLS or keys; where its Control API is.

    Every user of this machine can reach it, and Ray's ports, which Flower's simulation engine opens too.
    """
    inner = free_address()
    host, _, port = inner.rpartition(":")
    words = ["--simulation", "--insecure", "--host", host, "--port", port, "--disable-runtime-dependency-installation"]
    children.start("superlink", [command("flower-superlink"), *words], folder)
    children.await_listener("the SuperLink", inner)
    return inner


def _enclosed(path: Path) -> list[str]:
    """The words before one of Flower's commands that give it a socket in place of a port."""
    check_version()
    return [sys.executable, "-m", "choral.backends.flower.enclosed", local_socket.address(path)]


def command(name: str) -> str:
    """Where one of Flower's commands lies, or CH106 if Flower is not there in a version that is known to work."""
    check_version()
    return str(Path(sys.executable).parent / name)


def free_address() -> str:
    """A loopback address that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
