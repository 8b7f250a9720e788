"""A door on 127.0.0.1 for systems without Unix sockets, where every process of the machine can call.

The door's file holds its port and a secret that is drawn whenever the door opens. Both sides prove that they know the
secret before a frame passes, by HMACs over two fresh challenges; the secret itself never travels. A proof is good for
one connection and one direction. What follows is not encrypted: reading along on loopback takes an administrator.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from choral.core.sealed import replace

HOST = "127.0.0.1"
BYTES = 32  # of the secret, of a challenge and of a proof
PROVES = 5.0  # seconds that a caller has for its proof
STRANGERS = 64  # callers at a time that have not proved anything yet

_CALLER, _DOOR = b"choral loopback: caller", b"choral loopback: door"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO

Receive = Callable[[int], bytes | bytearray]  # so many bytes of the connection


@dataclass(frozen=True)
class DoorKey:
    """What the file of a door says: where it is, and the secret by which both sides know each other."""

    port: int
    secret: bytes = field(repr=False)

    def proof(self, role: bytes, challenge: bytes, answer: bytes) -> bytes:
        """What only those who know the secret can say to the two challenges, in one role."""
        said = role + self.port.to_bytes(2, "big") + challenge + answer
        return hmac.digest(self.secret, said, hashlib.sha256)


def opened(path: Path) -> tuple[socket.socket, DoorKey]:
    """A listening socket at a port that the system chooses, and its file, which only its owner can read.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "door")
    >>> door, place = opened(path)
    >>> door.close(), place_in(path) == place
    (None, True)
    """
    door = socket.socket(socket.AF_INET)
    try:
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # on Windows another process could else bind the same port
            door.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        door.bind((HOST, 0))
        door.listen(STRANGERS)
        place = DoorKey(door.getsockname()[1], secrets.token_bytes(BYTES))
        replace(path, f"{place.port}\n{place.secret.hex()}\n".encode(), mode=0o600)
    except BaseException:
        door.close()
        raise
    return door, place


def place_in(path: Path) -> DoorKey:
    """What a door's file says; an OSError if it is no such file, or one that others can read."""
    with open(path, "rb") as file:
        status, text = os.fstat(file.fileno()), file.read(256)
    if hasattr(os, "geteuid") and (status.st_uid != os.geteuid() or status.st_mode & _OTHERS):
        raise PermissionError("others can read its file")
    port, _, secret = text.partition(b"\n")
    with contextlib.suppress(ValueError):
        place = DoorKey(int(port), bytes.fromhex(secret.decode("ascii")))
        if 0 < place.port < 2**16 and len(place.secret) == BYTES:
            return place
    raise ConnectionRefusedError("its file is damaged")


def admit(connection: socket.socket, place: DoorKey, receive: Receive) -> None:
    """The door's half of the proofs: a ConnectionRefusedError for a caller that does not know the secret."""
    challenge = secrets.token_bytes(BYTES)
    connection.sendall(challenge)
    said = bytes(receive(2 * BYTES))
    answer, proof = said[:BYTES], said[BYTES:]
    if not hmac.compare_digest(proof, place.proof(_CALLER, challenge, answer)):
        raise ConnectionRefusedError("a caller without the secret")
    connection.sendall(place.proof(_DOOR, challenge, answer))


def introduce(connection: socket.socket, place: DoorKey, receive: Receive) -> None:
    """The caller's half: a ConnectionRefusedError if whoever listens does not know the secret."""
    challenge, answer = bytes(receive(BYTES)), secrets.token_bytes(BYTES)
    connection.sendall(answer + place.proof(_CALLER, challenge, answer))
    if not hmac.compare_digest(bytes(receive(BYTES)), place.proof(_DOOR, challenge, answer)):
        raise ConnectionRefusedError("somebody else answers there")
