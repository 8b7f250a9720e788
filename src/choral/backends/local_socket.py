"""A local socket to a device's own process: frames over a Unix socket that nobody but its user can open.

What carries messages between machines starts and ends as it likes; what holds secrets lives behind this socket. A frame
is its length (8 bytes, little-endian) and its bytes. A request's first byte says its kind; a reply's, whether it is an
answer or a refusal, of which only the code travels. Standard library only, so that the outer side starts fast.

Where a system has no Unix sockets, it is a port on 127.0.0.1, which every process of the machine can call. Its file
holds the port and a secret that is drawn whenever the port opens. Both sides prove that they know the secret before a
frame passes, by HMACs over two fresh challenges; the secret itself never travels. A proof is good for one connection
and one direction. What follows is not encrypted: reading along on loopback takes an administrator.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from choral.core.errors import CODES, ChoralError, DeploymentError
from choral.core.sealed import replace

# A request's kind: who are you? (with the seconds that a server waits for others, if it does) | a frame of the protocol
HELLO, FRAME = b"H", b"F"
MOST_BYTES = 2**31  # of one frame, where no terms say less: a model of 10^8 numbers and its words still pass
NO_UNIX_SOCKETS = not hasattr(socket, "AF_UNIX")  # as on Windows
MOST_SECONDS = 24 * 3600.0  # that a caller may wait: longer than any round takes

_ANSWER, _REFUSAL = b"A", b"R"
_FAILED = "CH902"
_LENGTH = struct.Struct("<Q")
_LONGEST_PATH = 107  # what a Unix socket's address can hold
_GLANCE = 0.2  # seconds between looks at `stop`
CALLERS = 16  # at a time: a relay has one, a status another
ARRIVES = 30.0  # seconds that a frame may take from one process to another on this machine

Answer = Callable[[bytearray], bytes | bytearray | memoryview]
HOST = "127.0.0.1"
PROOF_BYTES = 32  # of the secret, of a challenge and of a proof
PROVES = 5.0  # seconds that a caller has for its proof
STRANGERS = 64  # callers at a time that have not proved anything yet

_CALLER, _LISTENER = b"choral loopback: caller", b"choral loopback: door"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO

Receive = Callable[[int], bytes | bytearray]  # so many bytes of the connection


@dataclass(frozen=True)
class LocalPort:
    """The content of a port's file: where it is, and the secret by which both sides know each other."""

    port: int
    secret: bytes = field(repr=False)

    def proof(self, role: bytes, challenge: bytes, answer: bytes) -> bytes:
        """Give what only those who know the secret can say to the two challenges, in one role."""
        said = role + self.port.to_bytes(2, "big") + challenge + answer
        return hmac.digest(self.secret, said, hashlib.sha256)


def open_port(path: Path) -> tuple[socket.socket, LocalPort]:
    """A listening socket at a port that the system chooses, and its file, which only its owner can read.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "listener")
    >>> listener, place = open_port(path)
    >>> listener.close(), port_in(path) == place
    (None, True)
    """
    listener = socket.socket(socket.AF_INET)
    try:
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # on Windows another process could else bind the same port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        listener.bind((HOST, 0))
        listener.listen(STRANGERS)
        place = LocalPort(listener.getsockname()[1], secrets.token_bytes(PROOF_BYTES))
        replace(path, f"{place.port}\n{place.secret.hex()}\n".encode(), mode=0o600)
    except BaseException:
        listener.close()
        raise
    return listener, place


def port_in(path: Path) -> LocalPort:
    """Read the file of a port; an OSError if it is no such file, or one that others can read."""
    with open(path, "rb") as file:
        status, text = os.fstat(file.fileno()), file.read(256)
    if hasattr(os, "geteuid") and (status.st_uid != os.geteuid() or status.st_mode & _OTHERS):
        raise PermissionError("others can read its file")
    port, _, secret = text.partition(b"\n")
    with contextlib.suppress(ValueError):
        place = LocalPort(int(port), bytes.fromhex(secret.decode("ascii")))
        if 0 < place.port < 2**16 and len(place.secret) == PROOF_BYTES:
            return place
    raise ConnectionRefusedError("its file is damaged")


def check_caller(connection: socket.socket, place: LocalPort, receive: Receive) -> None:
    """The listener's half of the proofs: a ConnectionRefusedError for a caller that does not know the secret."""
    challenge = secrets.token_bytes(PROOF_BYTES)
    connection.sendall(challenge)
    said = bytes(receive(2 * PROOF_BYTES))
    answer, proof = said[:PROOF_BYTES], said[PROOF_BYTES:]
    if not hmac.compare_digest(proof, place.proof(_CALLER, challenge, answer)):
        raise ConnectionRefusedError("a caller without the secret")
    connection.sendall(place.proof(_LISTENER, challenge, answer))


def prove_to(connection: socket.socket, place: LocalPort, receive: Receive) -> None:
    """The caller's half: a ConnectionRefusedError if whoever listens does not know the secret."""
    challenge, answer = bytes(receive(PROOF_BYTES)), secrets.token_bytes(PROOF_BYTES)
    connection.sendall(answer + place.proof(_CALLER, challenge, answer))
    if not hmac.compare_digest(bytes(receive(PROOF_BYTES)), place.proof(_LISTENER, challenge, answer)):
        raise ConnectionRefusedError("somebody else answers there")


def serve(
    path: Path,
    answer: Answer,
    *,
    stop: threading.Event | None = None,
    most_bytes: int = MOST_BYTES,
    on_loopback: bool = NO_UNIX_SOCKETS,
) -> None:
    """Answer requests at a socket until `stop` is set, one at a time; an exception is answered by its code only.

    A request of more than `most_bytes` is not read, and each is read only when its turn has come: never are
    two of them held.
    """
    stop, turn, proved = stop or threading.Event(), threading.Lock(), threading.BoundedSemaphore(CALLERS)
    listener, place = _opened(path) if on_loopback else (listening(path), None)
    # On loopback anybody can call: those who have proved nothing must not take the places of those who can.
    connections = threading.BoundedSemaphore(CALLERS + (STRANGERS if place else 0))

    def attend(connection: socket.socket) -> None:
        length = _length(connection, most_bytes, _after(ARRIVES))
        with turn:
            kind, reply = _settle(answer, _exactly(connection, length, _after(ARRIVES)))
        connection.settimeout(ARRIVES)
        _write(connection, kind, reply)

    def admit(connection: socket.socket) -> None:
        if place is None:  # the file system has let in this user alone
            attend(connection)
            return
        check_caller(connection, place, _receive(connection, _after(PROVES)))
        if proved.acquire(blocking=False):
            try:
                attend(connection)
            finally:
                proved.release()

    def take(connection: socket.socket) -> None:
        # A caller that hangs up, falls silent, knows no secret or sends nonsense has only lost its own answer.
        try:
            with connection, contextlib.suppress(OSError, DeploymentError):
                admit(connection)
        finally:
            connections.release()

    with listener:
        listener.settimeout(_GLANCE)
        try:
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    connection = listener.accept()[0]
                    if connections.acquire(blocking=False):
                        threading.Thread(target=take, args=(connection,), daemon=True).start()
                    else:
                        connection.close()
        finally:
            path.unlink(missing_ok=True)


def ask(path: Path, request: bytes, *, timeout: float) -> bytes:
    """The answer to a request, or a DeploymentError: refused there (its code), nobody there, or too late (CH901).

    A timeout that is no number of seconds from 0 to a day is refused (CH600): it may come from another machine.
    """
    if not 0 < timeout <= MOST_SECONDS:
        raise DeploymentError("CH600", f"a relayed message is to be answered within {timeout:g} s.")
    end = _after(timeout)
    try:
        with _connected(path, end) as connection:
            _write(connection, b"", request)
            reply = bytes(_exactly(connection, _length(connection, MOST_BYTES, end), end))
    except OSError as error:
        raise _unreachable(path, str(error.strerror or error)) from None
    if reply[:1] == _REFUSAL:
        code = reply[1:].decode("ascii", "replace")
        raise DeploymentError(code if code in CODES else _FAILED, "the device's process refused.")
    return reply[1:]


def _connected(path: Path, end: float) -> socket.socket:
    """A connection to the socket at a path, or to the port that its file names, if the listener knows the secret."""
    on_loopback = NO_UNIX_SOCKETS or path.is_file()
    connection = socket.socket(socket.AF_INET if on_loopback else socket.AF_UNIX)
    try:
        connection.settimeout(max(0.001, end - time.monotonic()))
        if on_loopback:
            place = port_in(path)
            connection.connect((HOST, place.port))
            prove_to(connection, place, _receive(connection, end))
        else:
            connection.connect(address(path))
    except BaseException:
        connection.close()
        raise
    return connection


def _settle(answer: Answer, request: bytearray) -> tuple[bytes, bytes | bytearray | memoryview]:
    try:
        return _ANSWER, answer(request)
    except ChoralError as error:
        return _REFUSAL, error.code.encode()
    except Exception:  # its text may hold data, and the caller is the outside
        return _REFUSAL, _FAILED.encode()


def listening(path: Path) -> socket.socket:
    """A listening socket in a folder of this user only; one that a dead process left behind is replaced."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        path.parent.chmod(0o700)
        with contextlib.suppress(FileNotFoundError):
            _clear(path)
        listener.bind(address(path))
        path.chmod(0o600)
        listener.listen()
    except BaseException as error:
        listener.close()
        if isinstance(error, OSError):
            raise _unreachable(path, str(error.strerror or error)) from None
        raise
    return listener


def _opened(path: Path) -> tuple[socket.socket, LocalPort]:
    """A port in a folder of this user only, unless another process answers at this one's path."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        with contextlib.suppress(OSError):
            _connected(path, _after(PROVES)).close()
            raise _unreachable(path, "another process answers there already")
        return open_port(path)
    except OSError as error:
        raise _unreachable(path, str(error.strerror or error)) from None


def _clear(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(address(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            raise _unreachable(path, "another process answers there already")


def address(path: Path) -> str:
    """The path as the address of a socket; CH901 if it is too long for one."""
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise _unreachable(path, f"its path is longer than {_LONGEST_PATH} bytes", "Use a folder with a shorter path.")
    return str(path)


def _write(connection: socket.socket, kind: bytes, body: bytes | bytearray | memoryview) -> None:
    connection.sendall(_LENGTH.pack(len(kind) + len(body)) + kind)
    connection.sendall(body)


def _after(seconds: float) -> float:
    return time.monotonic() + seconds


def _length(connection: socket.socket, most_bytes: int, end: float) -> int:
    """The length of the frame that comes next; CH600 if it is more than is taken here."""
    length: int = _LENGTH.unpack(_exactly(connection, _LENGTH.size, end))[0]
    if length > most_bytes:
        raise DeploymentError("CH600", f"a relayed frame of {length:,} bytes; at most {most_bytes:,} are accepted.")
    return length


def _exactly(connection: socket.socket, count: int, end: float) -> bytearray:
    """So many bytes, all of them by this time."""
    data = bytearray(count)
    view = memoryview(data)
    while view:
        connection.settimeout(max(0.001, end - time.monotonic()))
        got = connection.recv_into(view)
        if not got:
            raise ConnectionResetError("it hung up")
        view = view[got:]
    return data


def _receive(connection: socket.socket, end: float) -> Receive:
    return lambda count: _exactly(connection, count, end)


def _unreachable(
    path: Path, why: str, fix: str = "Check that `choral device run` runs here, once, and as this user."
) -> DeploymentError:
    return DeploymentError("CH901", f"the socket {path.name} can't be used: {why}.", fix=fix)
