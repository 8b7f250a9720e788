"""What the gate takes before it knows who speaks, and of whom it knows; behind it stands a SuperLink that says yes."""

import asyncio
import base64
import contextlib
import socket
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta

import httpx
import pytest

pytest.importorskip("flwr", reason="an extra of choral's")

from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes, sign_message

from choral.backends.flower import gate as gate_module
from choral.backends.flower.gate import Gate
from choral.backends.flower.processes import free_address
from tests.backends.flower_stage import Listening
from tests.backends.flower_stage import certificates as write_certificates

MOST = 5000


class Behind:
    """A gate for one node, with a stand-in for the SuperLink that notes what reaches it and can be held up."""

    def __init__(self, folder):
        write_certificates(folder)
        self.folder, self.address, self.seen = folder, free_address(), []
        self.private, public = generate_key_pairs()
        self.public = public_key_to_bytes(public)
        self.held, self.waiting = None, threading.Semaphore(0)
        client = httpx.AsyncClient(base_url="http://superlink", transport=httpx.MockTransport(self._reply))
        gate = Gate(client, [self.public], most_bytes=MOST, patience=20.0)
        self.listening = Listening(gate, self.address, folder)

    async def _reply(self, request):
        self.seen.append((request.url.path, await request.aread()))
        self.waiting.release()
        while self.held is not None and not self.held.is_set():
            await asyncio.sleep(0.01)
        return httpx.Response(200, content=b"yes")

    def signed(self, *, private=None, public=None, ahead=0.0):
        stamp = (datetime.now(UTC) + timedelta(seconds=ahead)).isoformat()
        signature = sign_message(private or self.private, stamp.encode())
        key = base64.b64encode(public or self.public).decode()
        return {"flwr-public-key": key, "flwr-signature": base64.b64encode(signature).decode(), "flwr-timestamp": stamp}

    def line(self):
        host, _, port = self.address.rpartition(":")
        trusted = ssl.create_default_context(cafile=self.folder / "authority.pem")
        return trusted.wrap_socket(socket.create_connection((host, int(port)), timeout=20), server_hostname=host)

    def post(self, body=b"", headers=None, path="/v1/fleet/push-object", **more):
        """The answer's status; the body may be any that httpx takes."""
        trusted = ssl.create_default_context(cafile=self.folder / "authority.pem")
        with httpx.Client(verify=trusted, timeout=20) as client:
            given = self.signed() if headers is None else headers
            return client.post(f"https://{self.address}{path}", content=body, headers=given, **more).status_code


@pytest.fixture
def behind(tmp_path):
    made = Behind(tmp_path)
    yield made
    made.listening.close()


def test_an_enrolled_node_is_handed_on_with_the_body_that_it_sent(behind):
    assert behind.post(b"x" * MOST) == 200
    assert behind.seen == [("/v1/fleet/push-object", b"x" * MOST)]


def test_several_requests_go_over_one_connection(behind):
    trusted = ssl.create_default_context(cafile=behind.folder / "authority.pem")
    with httpx.Client(verify=trusted) as client:
        for number in range(3):
            url = f"https://{behind.address}/v1/fleet/pull-messages"
            assert client.post(url, content=bytes([number]), headers=behind.signed()).content == b"yes"
    assert [body for _, body in behind.seen] == [b"\0", b"\1", b"\2"]


def test_nobody_is_handed_on_whose_key_is_not_enrolled_or_who_has_not_signed_just_now(behind):
    private, public = generate_key_pairs()
    other = public_key_to_bytes(public)
    strange = [
        {},
        behind.signed(private=private, public=other),  # a key that nobody enrolled
        behind.signed(private=private),  # an enrolled key, and somebody else's signature
        behind.signed(ahead=20.0),
        behind.signed(ahead=-400.0),
        behind.signed() | {"flwr-timestamp": "yesterday"},
        behind.signed() | {"flwr-timestamp": "2026-01-01T00:00:00"},
        behind.signed() | {"flwr-signature": "%%%"},
    ]
    assert [behind.post(b"some body", headers) for headers in strange] == [401] * len(strange)
    assert behind.seen == []


def test_a_body_longer_than_the_terms_need_is_not_read_even_from_an_enrolled_node(behind):
    assert behind.post(b"x" * (MOST + 1)) == 413
    assert behind.post(iter([b"x" * 100])) == 411  # in chunks nobody knows how long it gets
    assert behind.seen == []


def test_a_head_that_does_not_end_is_not_read_to_its_end(behind):
    with behind.line() as line, pytest.raises(OSError):
        line.sendall(b"POST /v1/fleet/x HTTP/1.1\r\n")
        for _ in range(1000):
            line.sendall(b"x: " + b"y" * 10_000 + b"\r\n")
    assert behind.post() == 200


@pytest.mark.parametrize("said", [b"", b"POST /v1/fl", b"POST /v1/fleet/x HTTP/1.1\r\nHost: x\r\n"])
def test_whoever_says_nothing_or_half_a_head_is_cut_off(behind, monkeypatch, said):
    monkeypatch.setattr(gate_module, "HEAD_SECONDS", 0.3)
    with behind.line() as line:
        line.sendall(said)
        assert line.recv(100) == b""


def test_whoever_does_not_even_begin_with_tls_is_cut_off(behind, monkeypatch):
    monkeypatch.setattr(gate_module, "HEAD_SECONDS", 0.3)
    host, _, port = behind.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as plain:
        assert plain.recv(100) == b""


def posted(behind):
    """What a post is answered once the gate has noticed that another line was closed."""
    for _ in range(200):
        with contextlib.suppress(httpx.ConnectError):
            return behind.post()
        time.sleep(0.1)
    raise AssertionError("the place never became free")


def test_one_address_cannot_hold_more_connections_than_its_share(behind):
    held = [behind.line() for _ in range(2 * gate_module.LINES)]  # as many again for the one node
    try:
        with pytest.raises(OSError):
            behind.line()
        held.pop().close()
        assert posted(behind) == 200  # and a place that is free again is taken
    finally:
        for line in held:
            line.close()


def test_one_node_cannot_have_more_requests_under_way_than_flower_makes(behind):
    behind.held = threading.Event()
    reported = []
    threads = [threading.Thread(target=lambda: reported.append(behind.post())) for _ in range(gate_module.AT_ONCE)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert behind.waiting.acquire(timeout=20)
    assert behind.post() == 503
    behind.held.set()
    for thread in threads:
        thread.join()
    assert reported == [200] * gate_module.AT_ONCE and behind.post() == 200


def test_whatever_bytes_arrive_the_gate_goes_on(behind, monkeypatch):
    monkeypatch.setattr(gate_module, "HEAD_SECONDS", 1.0)
    noise = [b"\0" * 100, b"GET / HTTP/1.1\r\n\r\n", b"POST  HTTP/1.1\r\n\r\n", b"\xff" * 9000,
             b"PRI * HTTP/2.0\r\n\r\n",
             b"POST /v1/fleet/x HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
             b"POST /v1/fleet/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"]  # fmt: skip
    for data in noise:
        with behind.line() as line:
            line.sendall(data)
            assert b" 200 " not in line.recv(100)
    assert behind.post() == 200 and len(behind.seen) == 1


PULL = "/v1/fleet/pull-messages"


@pytest.fixture
def waiting(behind, monkeypatch):
    """A SuperLink that has no message for anybody, until `behind.message` is set."""
    behind.message = b""

    async def reply(request):
        behind.seen.append((request.url.path, await request.aread()))
        behind.waiting.release()
        return httpx.Response(200, content=behind.message)

    transport = behind.listening._gate._client._transport
    monkeypatch.setattr(transport, "handler", reply)
    return behind


def ring(behind):
    behind.listening._loop.call_soon_threadsafe(behind.listening._gate.ring)


def pulled(behind):
    """A thread that asks for messages, and the seconds and the content that it got."""
    got = []

    def ask():
        begin = time.monotonic()
        trusted = ssl.create_default_context(cafile=behind.folder / "authority.pem")
        with httpx.Client(verify=trusted, timeout=20) as client:
            answer = client.post(f"https://{behind.address}{PULL}", headers=behind.signed())
        got.append((time.monotonic() - begin, answer.content))

    thread = threading.Thread(target=ask)
    thread.start()
    assert behind.waiting.acquire(timeout=20)  # the gate has looked once
    return thread, got


def test_a_request_for_messages_is_held_until_there_is_one(waiting):
    thread, got = pulled(waiting)
    ring(waiting)  # for somebody else
    assert waiting.waiting.acquire(timeout=20)
    assert got == []
    waiting.message = b"message"
    ring(waiting)
    thread.join()
    seconds, content = got[0]
    assert content == b"message" and seconds < gate_module.HOLD - 1 and len(waiting.seen) == 3


def test_a_request_is_held_no_longer_than_it_may_be_and_then_looks_once_more(waiting, monkeypatch):
    monkeypatch.setattr(gate_module, "HOLD", 0.3)
    thread, got = pulled(waiting)
    thread.join()
    assert got[0][1] == b"" and 0.3 <= got[0][0] < 5 and len(waiting.seen) == 2
    before = len(waiting.seen)
    assert waiting.post() == 200 and len(waiting.seen) == before + 1  # nothing else is held


def test_nothing_is_asked_for_a_node_that_has_hung_up_and_the_next_is_held_for_half_as_long(waiting):
    with waiting.line() as line:
        head = "".join(f"{name}: {value}\r\n" for name, value in waiting.signed().items())
        line.sendall(f"POST {PULL} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n{head}\r\n".encode())
        assert waiting.waiting.acquire(timeout=20)
        time.sleep(0.2)
    holds = waiting.listening._gate._holds
    for _ in range(100):
        if holds:
            break
        time.sleep(0.02)
    assert 0.05 < holds[waiting.public] < 2
    waiting.message = b"message"
    ring(waiting)
    time.sleep(0.1)
    assert len(waiting.seen) == 1  # the message is still there for whoever connects next
    assert waiting.post(path="/v1/fleet/activate-node") == 200 and not holds  # it was started again
