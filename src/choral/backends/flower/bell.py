"""A bell between the processes of one server: the conductor rings it when it has pushed messages for the sites.

The gate holds a node's request for messages until then, so that nobody has to look for them again and again. A ring
carries nothing and may get lost: after a while the gate looks anyway.
"""

import contextlib
import socket
from pathlib import Path

from choral.backends import local_socket

NAME = "bell.sock"  # next to the SuperLink's socket, in a folder of this user only


def hung(path: Path) -> socket.socket:
    """A socket that becomes readable when the bell is rung; one that a dead process left behind is replaced."""
    path.unlink(missing_ok=True)
    bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    bell.bind(local_socket.address(path))
    path.chmod(0o600)
    bell.setblocking(False)
    return bell


def ring(path: Path) -> None:
    """Ring the bell, if it hangs there; nobody waits for an answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line, contextlib.suppress(OSError):
        line.setblocking(False)
        line.sendto(b"", local_socket.address(path))


def heard(bell: socket.socket) -> None:
    """Forget all rings so far."""
    with contextlib.suppress(BlockingIOError):
        while True:
            bell.recv(1)
