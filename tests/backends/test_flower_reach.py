"""What a site reports when its node can't connect: its clock, the certificate, the address, or who answers there."""

import base64
import http.server
import threading
import time
import types
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("flwr", reason="an extra of choral's")

import httpx
from fastapi import HTTPException
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.supercore import date
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.superlink.routers.fleet.node_auth import authenticate_node
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from choral.backends.flower.gate import Gate
from choral.backends.flower.processes import free_address
from choral.backends.flower.reach import check_reach, not_let_in
from choral.core.errors import DeploymentError
from choral.deploy import certificates
from tests.backends.flower_stage import Listening
from tests.backends.flower_stage import certificates as write_certificates

DAY = 86400.0


def shifted(seconds):
    return lambda: time.time() + seconds


class Gates:
    """Our own gate, on loopback, with certificates of its own; nothing is behind it."""

    def __init__(self, folder):
        self.address, self.authority = free_address(), folder / "authority.pem"
        write_certificates(folder)
        self._folder = folder

    def __enter__(self):
        self._listening = Listening(Gate(None, [], most_bytes=0, most_reply=0), self.address, self._folder)
        return self

    def __exit__(self, *_):
        self._listening.close()


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    with Gates(tmp_path_factory.mktemp("gate")) as gate:
        yield gate


# Ahead of the server by 5 s and more, or behind by 305 s, Flower refuses a node; see the next test.
@pytest.mark.parametrize("seconds", [0.0, 1.0, -30.0, -240.0])
def test_a_clock_that_is_right_or_within_what_flower_takes_is_not_mentioned(gate, seconds):
    check_reach(gate.address, authority=gate.authority, clock=shifted(seconds))


@pytest.mark.parametrize(
    ("seconds", "reported"),
    [
        (20.0, "2[01] s ahead of"),
        (-400.0, "(7|6) min behind"),
        (7300.0, r"2\.0 h ahead of"),
        # By such a clock the server's certificate is outdated or not valid yet; still it is the clock that is wrong.
        (1000 * DAY, "1000 days ahead of"),
        (-30 * DAY, "30 days behind"),
    ],
)
def test_a_wrong_clock_is_reported_with_how_much_and_what_to_do(gate, seconds, reported):
    with pytest.raises(
        DeploymentError, match=rf"CH905 this machine's clock is {reported} the server's .*NTP"
    ) as caught:
        check_reach(gate.address, authority=gate.authority, clock=shifted(seconds))
    assert "allows 5 s ahead and 305 s behind" in caught.value.why


def flower_lets_in(seconds, monkeypatch):
    """The verdict of Flower's own code on a node with such a clock: its client's headers, read by its server."""
    private, public = generate_key_pairs()
    key = public_key_to_bytes(public)
    sent = httpx.Request("POST", "https://server/v1/fleet/activate-node")
    with monkeypatch.context() as patch:
        wrong = types.SimpleNamespace(now=lambda tz: datetime.now(tz) + timedelta(seconds=seconds))
        patch.setattr(date, "datetime", types.SimpleNamespace(datetime=wrong, UTC=UTC))
        NodeAuthHttpInterceptor(private, public).intercept(types.SimpleNamespace(request=sent), lambda _: None)
    assert base64.b64encode(key).decode() in sent.headers.values()
    state = types.SimpleNamespace(protobuf_request=ActivateNodeRequest(public_key=key))
    try:
        authenticate_node(types.SimpleNamespace(headers=sent.headers, state=state))
    except HTTPException as refused:
        assert refused.status_code == 401
        return False
    return True


@pytest.mark.parametrize("seconds", [0.0, 1.0, 7.0, 60.0, -240.0, -300.0, -307.0, -DAY])
def test_whoever_flower_refuses_for_their_clock_is_informed_and_nobody_else(gate, seconds, monkeypatch):
    try:
        check_reach(gate.address, authority=gate.authority, clock=shifted(seconds))
        reported = False
    except DeploymentError:
        reported = True
    assert reported == (not flower_lets_in(seconds, monkeypatch))


@pytest.mark.parametrize("days", [-900, 3])  # the server's certificate is made for 825 days
def test_a_certificate_that_is_really_outdated_or_too_new_is_reported_as_that_and_not_as_a_clock(
    tmp_path, monkeypatch, days
):
    class Then(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=days)

    with monkeypatch.context() as patch:
        patch.setattr(certificates, "datetime", Then)  # the server's clock on the day of `choral server init`
        gate = Gates(tmp_path)
    with gate:
        shown = check_reach(gate.address, authority=gate.authority)
    assert shown == (tmp_path / "server.pem").read_text()
    with pytest.raises(DeploymentError, match=r"CH906 CN=127\.0\.0\.1 a certificate is valid from .*--again"):
        certificates.check_dates(shown, gate.authority.read_text())


def test_another_authority_than_the_invitations_is_reported_whatever_the_clock_says(gate, tmp_path):
    write_certificates(tmp_path)
    for seconds in (0.0, 20.0, -30 * DAY):
        with pytest.raises(DeploymentError, match=r"CH904 whoever answers at .* is not the server of the invitation"):
            check_reach(gate.address, authority=tmp_path / "authority.pem", clock=shifted(seconds))


def test_nobody_there_and_somebody_else_there_are_distinguished(gate):
    with pytest.raises(DeploymentError, match=r"CH904 nobody answers at 127\.0\.0\.1:\d+: Connection refused\."):
        check_reach(free_address(), authority=gate.authority)
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as plain:
        thread = threading.Thread(target=plain.handle_request)
        thread.start()
        with pytest.raises(DeploymentError, match="CH904 what answers at"):
            check_reach(f"127.0.0.1:{plain.server_port}", authority=gate.authority)
        thread.join()


def test_a_node_that_gives_up_though_all_is_well_is_not_let_in():
    assert str(not_let_in("fl.example.org:9092")).startswith(
        "CH904 the server at fl.example.org:9092 does not let this node in. After a power cut"
    )
