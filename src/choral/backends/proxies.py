"""The proxy that calls to a server go through, as the environment says: the same variables that a node is given."""

import base64
import http.client
import ssl
import urllib.request
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from choral.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """Where a proxy is; its text shows no user name and no password."""

    host: str
    port: int
    credentials: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def headers(self) -> dict[str, str]:
        """What the proxy asks for before it connects."""
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
