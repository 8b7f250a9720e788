"""Ways to a server from inside a network: through the proxy that it names, and with pauses between tries."""

import base64
import http.client
import random
import ssl
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from choral.core.errors import ConfigError

_draw = random.SystemRandom().uniform


class Pauses:
    """Pauses for one who tries again and again; each is drawn from the upper half of a length that doubles to a bound.

    So a hundred sites that lose their server at one moment do not all come back at one moment, and none of them waits
    much longer than the bound once it is there again.

    >>> pauses = Pauses(1.0, 8.0, draw=lambda low, high: high)
    >>> [pauses.next() for _ in range(5)]
    [1.0, 2.0, 4.0, 8.0, 8.0]
    """

    def __init__(self, shortest: float, longest: float, *, draw: Callable[[float, float], float] = _draw) -> None:
        self._shortest, self._longest, self._draw = shortest, longest, draw
        self._length = shortest

    def next(self) -> float:
        """The seconds until the next try."""
        length, self._length = self._length, min(2 * self._length, self._longest)
        return self._draw(length / 2, length)

    def begin(self) -> None:
        """Start with the shortest again: a try has succeeded."""
        self._length = self._shortest


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """The place where a proxy is; its text shows no user name and no password."""

    host: str
    port: int
    credentials: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def headers(self) -> dict[str, str]:
        """Give what the proxy asks for before it connects."""
        if not self.credentials:
            return {}
        return {"Proxy-Authorization": "Basic " + base64.b64encode(self.credentials.encode()).decode()}


def proxy_for(host: str) -> Proxy | None:
    """The proxy for calls to this host, by https_proxy, all_proxy and no_proxy; None for a direct call.

    >>> proxy_for("localhost") is None or isinstance(proxy_for("localhost"), Proxy)
    True
    """
    known = urllib.request.getproxies_environment()
    text = known.get("https") or known.get("all")
    if not text or urllib.request.proxy_bypass(host):
        return None
    parts = urlsplit(text if "//" in text else f"//{text}")
    try:
        name, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 3128)
    except ValueError:
        name = None
    if name is None or parts.scheme not in ("http", ""):
        raise ConfigError(
            "CH102",
            "the environment's https_proxy is no address of an HTTP proxy.",
            fix="Set it to http://HOST:PORT, or take it out; no_proxy lists the hosts that are called directly.",
        )
    return Proxy(host=name, port=port, credentials=_credentials(parts))


def connection(host: str, port: int, *, timeout: float, context: ssl.SSLContext) -> http.client.HTTPSConnection:
    """A connection to a server that is not opened yet, through the proxy where there is one; TLS ends at the server."""
    proxy = proxy_for(host)
    if proxy is None:
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
    line = http.client.HTTPSConnection(proxy.host, proxy.port, timeout=timeout, context=context)
    line.set_tunnel(host, port, headers=proxy.headers())
    return line


def _credentials(parts: SplitResult) -> str:
    return "" if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
