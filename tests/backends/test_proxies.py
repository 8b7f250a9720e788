"""Calls through a proxy: which one the environment names, what is shown of it, and TLS that ends at the server."""

import socket
import ssl
import threading

import pytest

pytest.importorskip("flwr", reason="an extra of choral's")

from choral.backends.flower.reach import check_reach
from choral.backends.proxies import connection, proxy_for
from choral.errors import ConfigError, DeploymentError
from tests.backends.test_flower_reach import Gates


@pytest.fixture
def environment(monkeypatch):
    """The variables of proxies, none of them set."""
    for name in ("https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


class Tunnel:
    """A proxy on loopback that passes CONNECT on and copies bytes; it keeps what it was asked for."""

    def __init__(self, *, answers=b"HTTP/1.1 200 OK\r\n\r\n"):
        self.asked, self._answers = [], answers
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._door.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(4096)
            self.asked.append(head)
            client.sendall(self._answers)
            if b" 200 " not in self._answers:
                client.close()
                continue
            host, port = head.split()[1].decode().rsplit(":", 1)
            server = socket.create_connection((host, int(port)))
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=pair, daemon=True).start()

    def _copy(self, source, target):
        while data := source.recv(4096):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)

    def close(self):
        self._door.close()


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    with Gates(tmp_path_factory.mktemp("gate")) as gate:
        yield gate


def test_a_site_knocks_through_its_proxy_and_the_proxy_sees_the_address_only(gate, environment):
    tunnel = Tunnel()
    environment.setenv("https_proxy", f"http://user:pass%40word@{tunnel.address}")
    try:
        assert check_reach(gate.address, authority=gate.authority) == (gate.authority.parent / "server.pem").read_text()
    finally:
        tunnel.close()
    [asked] = tunnel.asked
    assert asked.startswith(b"CONNECT " + gate.address.encode())
    assert b"Proxy-Authorization: Basic dXNlcjpwYXNzQHdvcmQ=" in asked  # base64 of user:pass@word


def test_a_proxy_that_refuses_is_reported_as_nobody_who_answers(gate, environment):
    tunnel = Tunnel(answers=b"HTTP/1.1 403 Forbidden\r\n\r\n")
    environment.setenv("HTTPS_PROXY", f"http://{tunnel.address}")
    try:
        with pytest.raises(DeploymentError, match=r"CH904 .*403"):
            check_reach(gate.address, authority=gate.authority)
    finally:
        tunnel.close()


def test_a_host_that_no_proxy_lists_is_called_directly(environment):
    environment.setenv("https_proxy", "http://proxy.example:3128")
    environment.setenv("no_proxy", "fl.example.org,.inside.example")
    assert proxy_for("fl.example.org") is None
    assert proxy_for("a.inside.example") is None
    assert str(proxy_for("elsewhere.example")) == "proxy.example:3128"


def test_nothing_shows_a_proxys_password(environment):
    environment.setenv("all_proxy", "http://me:secret@proxy.example:8080")
    proxy = proxy_for("fl.example.org")
    assert "secret" not in f"{proxy} {proxy!r}"
    assert proxy.port == 8080


@pytest.mark.parametrize("text", ["socks5://proxy:1080", "http://", "http://proxy:port"])
def test_what_is_no_http_proxy_is_refused_with_the_form_that_works(environment, text):
    environment.setenv("https_proxy", text)
    with pytest.raises(ConfigError, match=r"CH102 .*http://HOST:PORT"):
        proxy_for("fl.example.org")


def test_without_a_proxy_the_connection_goes_to_the_server_itself(environment):
    assert environment is not None
    line = connection("fl.example.org", 9092, timeout=1, context=ssl.create_default_context())
    assert (line.host, line.port) == ("fl.example.org", 9092)
