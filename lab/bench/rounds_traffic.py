"""A way between nodes and a server that counts what passes, for bench.rounds."""

import contextlib
import socket
import threading
from typing import Self


class Counting:
    """Forwards TCP connections to an address, and counts bytes, connections and turns of the caller.

    A turn begins when the caller speaks first, or after the other side has spoken: over TLS 1.3 a connection takes one
    for its handshake and then one for each request. So requests are turns less connections, give or take what the
    server's session tickets add.
    """

    def __init__(self, to: str) -> None:
        host, _, port = to.rpartition(":")
        self._to, self._ends = (host, int(port)), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self.bytes = self.connections = self.turns = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._listener.close()

    @property
    def counts(self) -> tuple[int, int, int]:
        """Bytes both ways, connections and turns so far."""
        return self.bytes, self.connections, self.turns

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._ends.is_set():
                caller = self._listener.accept()[0]
                try:
                    server = socket.create_connection(self._to)
                except OSError:
                    caller.close()
                    continue
                with self._lock:
                    self.connections += 1
                spoke = [server]  # who has spoken last
                for one, other in ((caller, server), (server, caller)):
                    threading.Thread(target=self._pass, args=(one, other, caller, spoke), daemon=True).start()

    def _pass(
        self, one: socket.socket, other: socket.socket, caller: socket.socket, spoke: list[socket.socket]
    ) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(2**16):
                with self._lock:
                    self.bytes += len(data)
                    self.turns += one is caller and spoke[0] is not caller
                    spoke[0] = one
                other.sendall(data)
        for line in (one, other):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
