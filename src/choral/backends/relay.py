"""A local door to a device's own process: frames over a Unix socket that nobody but its user can open.

What carries messages between machines starts and ends as it likes; what holds secrets lives behind this door.
A frame is its length (8 bytes, little-endian) and its bytes. A request's first byte says its kind; a reply's, whether
it is an answer or a refusal, of which only the code travels. Standard library only, so that the outer side starts fast.
"""

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from choral.errors import CODES, ChoralError, DeploymentError

HELLO, FRAME = b"H", b"F"  # a request's kind: who are you? | a frame of the protocol
MOST_BYTES = 2**31  # of one frame: a model of 10^8 numbers and its words still pass

_ANSWER, _REFUSAL = b"A", b"R"
_FAILED = "CH902"
_LENGTH = struct.Struct("<Q")
_LONGEST_PATH = 107  # what a Unix socket's address can hold
_GLANCE = 0.2  # seconds between looks at `stop`

Answer = Callable[[bytes], bytes | bytearray | memoryview]


def serve(path: Path, answer: Answer, *, stop: threading.Event | None = None) -> None:
    """Answer requests at a socket until `stop` is set, one at a time; an exception is answered by its code only."""
    stop, turn = stop or threading.Event(), threading.Lock()

    def attend(connection: socket.socket) -> None:
        # A caller that hangs up or sends nonsense has only lost its own answer.
        with connection, contextlib.suppress(OSError, DeploymentError):
            connection.settimeout(None)
            request = _read(connection)
            with turn:
                kind, reply = _settle(answer, request)
            _write(connection, kind, reply)

    with _door(path) as door:
        door.settimeout(_GLANCE)
        try:
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    threading.Thread(target=attend, args=(door.accept()[0],), daemon=True).start()
        finally:
            path.unlink(missing_ok=True)


def ask(path: Path, request: bytes, *, timeout: float) -> bytes:
    """The answer to a request, or a DeploymentError: refused there (its code), nobody there, or too late (CH901)."""
    end = time.monotonic() + timeout
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            connection.connect(_address(path))
            _write(connection, b"", request)
            connection.settimeout(max(0.001, end - time.monotonic()))
            reply = _read(connection)
    except OSError as error:
        raise _unreachable(path, str(error.strerror or error)) from None
    if reply[:1] == _REFUSAL:
        code = reply[1:].decode("ascii", "replace")
        raise DeploymentError(code if code in CODES else _FAILED, "the device's process refused.")
    return reply[1:]


def _settle(answer: Answer, request: bytes) -> tuple[bytes, bytes | bytearray | memoryview]:
    try:
        return _ANSWER, answer(request)
    except ChoralError as error:
        return _REFUSAL, error.code.encode()
    except Exception:  # its text may hold data, and the caller is the outside
        return _REFUSAL, _FAILED.encode()


def _door(path: Path) -> socket.socket:
    """A listening socket in a folder of this user only; one that a dead process left behind is replaced."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    door = socket.socket(socket.AF_UNIX)
    try:
        path.parent.chmod(0o700)
        with contextlib.suppress(FileNotFoundError):
            _clear(path)
        door.bind(_address(path))
        path.chmod(0o600)
        door.listen()
    except BaseException as error:
        door.close()
        if isinstance(error, OSError):
            raise _unreachable(path, str(error.strerror or error)) from None
        raise
    return door


def _clear(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(_address(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            raise _unreachable(path, "another process answers there already")


def _address(path: Path) -> str:
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise _unreachable(path, f"its path is longer than {_LONGEST_PATH} bytes", "Use a home with a shorter path.")
    return str(path)


def _write(connection: socket.socket, kind: bytes, body: bytes | bytearray | memoryview) -> None:
    connection.sendall(_LENGTH.pack(len(kind) + len(body)) + kind)
    connection.sendall(body)


def _read(connection: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > MOST_BYTES:
        raise DeploymentError("CH600", f"a relayed frame of {length:,} bytes; at most {MOST_BYTES:,} are taken.")
    return bytes(_exactly(connection, length))


def _exactly(connection: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        got = connection.recv_into(view)
        if not got:
            raise ConnectionResetError("it hung up")
        view = view[got:]
    return data


def _unreachable(
    path: Path, why: str, fix: str = "Check that `choral device run` runs here, once, and as this user."
) -> DeploymentError:
    return DeploymentError("CH901", f"the socket {path.name} can't be used: {why}.", fix=fix)
