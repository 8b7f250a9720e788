"""Flower's HTTP APIs as they are on the wire: protobuf messages, posted to paths, with some headers.

Of Flower's modules only the generated messages are used for it: they are what its own processes of different versions
agree on. Names and numbers that Flower keeps elsewhere stand here; tests/backends/test_flower_api.py compares each with
the Flower that is installed.
"""

import contextlib
import socket
import ssl
from base64 import b64encode
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Protocol, TypeVar

import httpx
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from choral.backends import local_socket

WAKE_UP = "bell.sock"  # next to the SuperLink's socket, in a folder of this user only
PUBLIC_KEY, SIGNATURE, TIMESTAMP, TOKEN = "flwr-public-key", "flwr-signature", "flwr-timestamp", "flwr-task-token"
AHEAD, BEHIND = 5, 305  # seconds that the clock of a node may be ahead of the server's, and behind it
PIECE = 5 * 2**20  # bytes of an array that are sent at once
SERVER_APP = "flwr-serverapp"  # the kind of a run's task at the server
COMPLETED, FAILED = "completed", "failed"  # how a task ends
HEARTBEAT = 30  # seconds between signs of life
MEDIA = "application/protobuf"
_SECONDS = 30.0  # that an answer may take
_HOST = "enclosed"  # stands for a host where requests go through a socket; nobody looks it up


class WireMessage(Protocol):
    """A generated message of protobuf."""

    def SerializeToString(self, *, deterministic: bool) -> bytes:
        """Its bytes."""

    def ParseFromString(self, serialized: bytes) -> int:
        """Become what these bytes say."""


Reply = TypeVar("Reply", bound=WireMessage)


class Api(contextlib.AbstractContextManager["Api"]):
    """A connection to a SuperLink, as one of Flower's components: at a socket, or at an address over TLS or without."""

    def __init__(
        self, where: Path | str, *, authority: Path | None = None, component: str = "SuperExec", token: str = ""
    ) -> None:
        """At an address with an `authority`, it must vouch for the SuperLink. `token` is that of a task."""
        at_socket = isinstance(where, Path)
        verified: ssl.SSLContext | bool = False if authority is None else ssl.create_default_context(cafile=authority)
        transport = httpx.HTTPTransport(uds=str(where)) if at_socket else httpx.HTTPTransport(verify=verified)
        self.client = httpx.Client(
            base_url=f"http{'' if authority is None else 's'}://{_HOST if at_socket else where}",
            transport=transport,
            timeout=_SECONDS,
            headers={
                "content-type": MEDIA,
                "accept": MEDIA,
                "flwr-package-name": "flwr",
                "flwr-package-version": metadata.version("flwr"),
                "flwr-component-name": component,
                **({TOKEN: token} if token else {}),
            },
        )

    def ask(self, path: str, request: WireMessage, kind: type[Reply], headers: dict[str, str] | None = None) -> Reply:
        """The answer to a request; an httpx.HTTPError if there is none, or one that says no."""
        answer = self.client.post(path, content=request.SerializeToString(deterministic=True), headers=headers)
        answer.raise_for_status()
        reply = kind()
        reply.ParseFromString(answer.content)
        return reply

    def close(self) -> None:
        """Hang up."""
        self.client.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def key_bytes(key: EllipticCurvePublicKey) -> bytes:
    """A node's public key in the form in which Flower knows it."""
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def signed(key: EllipticCurvePrivateKey) -> dict[str, str]:
    """The headers by which a node proves who it is: its key, the time, and a signature of the time.

    >>> from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
    >>> sorted(signed(generate_private_key(SECP384R1())))
    ['flwr-public-key', 'flwr-signature', 'flwr-timestamp']
    """
    stamp = datetime.now(UTC).isoformat()
    signature = key.sign(stamp.encode(), ECDSA(SHA256()))
    known = key_bytes(key.public_key())
    return {PUBLIC_KEY: b64encode(known).decode(), SIGNATURE: b64encode(signature).decode(), TIMESTAMP: stamp}


def has_signed(key: EllipticCurvePublicKey, stamp: str, signature: bytes) -> bool:
    """Whether the owner of a key has signed a time, whichever it is."""
    try:
        key.verify(signature, stamp.encode(), ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


def counts_now(stamp: str) -> bool:
    """Whether a node may have signed this time a moment ago, by Flower's rules; ValueError if it is no time.

    >>> counts_now(datetime.now(UTC).isoformat()), counts_now("2026-01-01T00:00:00+00:00")
    (True, False)
    """
    return -AHEAD < (datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds() < BEHIND


def wake_up_socket(path: Path) -> socket.socket:
    """A socket that becomes readable on a wake-up; one that a dead process left behind is replaced.

    The conductor wakes the gate up when it has pushed messages for the sites, so nobody looks for them again and again.
    A wake-up carries nothing and may get lost: after a while the gate looks anyway.
    """
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(local_socket.address(path))
    path.chmod(0o600)
    made.setblocking(False)
    return made


def wake_up(path: Path) -> None:
    """Wake up whoever has this socket; nobody waits for an answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line, contextlib.suppress(OSError):
        line.setblocking(False)
        line.sendto(b"", local_socket.address(path))


def forget_wake_ups(woken: socket.socket) -> None:
    """Forget all wake-ups so far."""
    with contextlib.suppress(BlockingIOError):
        while True:
            woken.recv(1)
