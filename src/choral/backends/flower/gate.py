"""The only door of a SuperLink to the outside: TLS, and nothing behind it but the Fleet API.

A SuperLink serves its Control API, by which runs are started and nodes let in without a login, at the same address as
the Fleet API that SuperNodes need. So it listens on this machine only, and this gate passes fleet requests to it.
"""

import argparse
import re
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import httpx
import uvicorn

_ALLOWED = re.compile(rb"/v1/fleet/[a-z][a-z-]*")  # matched whole and raw: no dots, no escapes, no query
_OURS = {b"host", b"connection", b"keep-alive", b"transfer-encoding", b"te", b"upgrade", b"content-length"}

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]


class Gate:
    """An ASGI application that hands allowed requests on, as they are, and answers the rest with 404."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        if scope["method"] != "POST" or not _ALLOWED.fullmatch(path):
            await _answer(send, 404)
            return
        kept = [(name, value) for name, value in scope["headers"] if name not in _OURS]
        request = self._client.build_request("POST", path.decode(), headers=kept, content=_body(receive))
        try:
            reply = await self._client.send(request, stream=True)
        except httpx.TransportError:
            await _answer(send, 503)  # SuperNodes try again on it
            return
        try:
            head = [(name, value) for name, value in reply.headers.raw if name.lower() not in _OURS]
            await send({"type": "http.response.start", "status": reply.status_code, "headers": head})
            async for piece in reply.aiter_raw():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await reply.aclose()


async def _answer(send: Send, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        event = await receive()
        more = event.get("more_body", False)
        yield event.get("body", b"")


def main() -> int:
    """Read the command line and serve until ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", required=True, help="host:port for the outside")
    parser.add_argument("--to", required=True, help="host:port of the SuperLink on this machine")
    for name in ("certificate", "key", "authority"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    args = parser.parse_args()
    trusted = ssl.create_default_context(cafile=args.authority)
    client = httpx.AsyncClient(base_url=f"https://{args.to}", verify=trusted, timeout=60.0)
    host, _, port = args.listen.rpartition(":")
    uvicorn.run(
        Gate(client),
        host=host.strip("[]"),
        port=int(port),
        ssl_certfile=args.certificate,
        ssl_keyfile=args.key,
        ws="none",
        access_log=False,
        lifespan="off",
        log_level="warning",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
