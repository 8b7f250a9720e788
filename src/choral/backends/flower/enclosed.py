"""One of Flower's commands, with its HTTP API at a Unix socket of this user only in place of a TCP port.

    python -m choral.backends.flower.enclosed SOCKET flower-superlink WORDS…

A SuperLink starts runs and hands out tasks for whoever can reach its port, without a login, and reads a request whole
before it looks at who has sent it. A port on loopback can be reached by every user of the machine; a socket in a folder
of mode 0700 cannot. TLS is left out there: nothing that goes through a Unix socket leaves the kernel.
"""

import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import httpx

from choral.backends import local_socket

NOWHERE = "enclosed"  # stands for a host in Flower's clients; nobody looks it up


def speak_through(client: Any, path: Path) -> None:  # noqa: ANN401 - one of Flower's, of a class that it keeps to itself
    """Let a client of Flower's speak through a socket."""
    before = client._client
    client._client = httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=before.timeout)
    before.close()


def main() -> object:
    """Read the command line and do what Flower's command does."""
    import uvicorn

    path, command, *words = sys.argv[1:]
    serve = uvicorn.Server.run

    def serve_at_the_socket(server: uvicorn.Server, *_: object, **__: object) -> None:
        server.config.ssl_certfile = server.config.ssl_keyfile = None
        with local_socket.listening(Path(path)) as door:
            serve(server, sockets=[door])

    patched: Any = uvicorn.Server
    patched.run = serve_at_the_socket
    sys.argv = [command, *words]
    (entry,) = entry_points(group="console_scripts", name=command)
    return entry.load()()


if __name__ == "__main__":
    sys.exit(main())  # type: ignore[arg-type]  # what a console script returns
