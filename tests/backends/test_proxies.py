"""Calls through a proxy: which one the environment names, what is shown of it, and TLS that ends at the server."""

import contextlib
import random
import socket
import ssl
import threading
import time

import pytest

pytest.importorskip("flwr", reason="an extra of choral's")

from choral.backends.connecting import connection, proxy_for
from choral.backends.flower.reach import check_reach
from choral.core.errors import ConfigError, DeploymentError
from choral.core.plan import SecureSum
from tests.backends.flower_stage import Stage
from tests.backends.test_flower_faults import Cuts
from tests.backends.test_flower_reach import Gates
from tests.protocol.world import World


@pytest.fixture
def environment(monkeypatch):
    """The variables of proxies, none of them set."""
    for name in ("https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


class Tunnel:
    """A proxy on loopback that passes CONNECT on and copies bytes; it keeps what it was asked for."""

    def __init__(self, *, answers=b"HTTP/1.1 200 OK\r\n\r\n", idle=None):
        self.asked, self._answers, self._idle, self.cut = [], answers, idle, 0
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
            busy = [time.monotonic()]
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=(*pair, busy), daemon=True).start()
            if self._idle is not None:
                threading.Thread(target=self._watch, args=(client, server, busy), daemon=True).start()

    def _copy(self, source, target, busy):
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                busy[0] = time.monotonic()
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def _watch(self, client, server, busy):
        """Cut a connection without a word once nothing has passed for so long, as proxies do."""
        while (left := busy[0] + self._idle - time.monotonic()) > 0:
            time.sleep(left)
        self.cut += 1
        for end in (client, server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

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


@pytest.mark.long
def test_sites_take_part_through_a_proxy_that_cuts_idle_connections(environment):
    world = World(SecureSum(cohort=3, smallest_sum=3, threshold=2), parameters=50)
    tunnel = Tunnel(idle=1.5)
    environment.setenv("https_proxy", f"http://{tunnel.address}")
    try:
        with Stage(world.terms.ids, [device.answer for device in world.devices], deadline=40, overhear=False) as stage:
            cuts, rng = Cuts(world, stage), random.Random(1)
            stage.transport.gather(3, patience=120)
            for number in (1, 2, 3):
                assert cuts.round(number, 3, rng).count == 3
                time.sleep(5.0)
            cuts.check_charges()
    finally:
        tunnel.close()
    assert tunnel.asked and tunnel.cut >= 3
