"""What the gate takes before it knows who speaks, and of whom it knows; behind it stands a SuperLink that says yes."""

import asyncio
import base64
import contextlib
import json
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import httpx
import pytest

pytest.importorskip("flwr", reason="an extra of choral's")

from flwr.proto.fleet_pb2 import PullMessagesResponse, PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes, sign_message

from choral.backends.flower import gate as gate_module
from choral.backends.flower.control import public_key
from choral.backends.flower.gate import MOST_HANDED, PUSH_MESSAGE, PUSH_OBJECT, Gate, Places, Replies
from choral.backends.flower.processes import free_address, with_wrong_clocks
from choral.deploy.certificates import node_key
from tests.backends.flower_stage import Listening
from tests.backends.flower_stage import certificates as write_certificates

MOST = 5000
HEARTBEAT, PUSH = "/v1/fleet/send-node-heartbeat", "/v1/fleet/push-messages"


class Behind:
    """A gate for one node, with a stand-in for the SuperLink that notes what reaches it and can be held up."""

    def __init__(self, folder, others=()):
        write_certificates(folder)
        self.folder, self.address, self.seen = folder, free_address(), []
        self.private, public = generate_key_pairs()
        self.public = public_key_to_bytes(public)
        self.held, self.waiting, self.message = None, threading.Semaphore(0), b"yes"
        client = httpx.AsyncClient(base_url="http://superlink", transport=httpx.MockTransport(self._reply))
        gate = Gate(client, [self.public, *others], most_bytes=MOST, most_reply=MOST, patience=20.0)
        self.listening = Listening(gate, self.address, folder)

    async def _reply(self, request):
        self.seen.append((request.url.path, await request.aread()))
        self.waiting.release()
        while self.held is not None and not self.held.is_set():
            await asyncio.sleep(0.01)
        return httpx.Response(200, content=self.message)

    def signed(self, *, private=None, public=None, ahead=0.0):
        stamp = (datetime.now(UTC) + timedelta(seconds=ahead)).isoformat()
        signature = sign_message(private or self.private, stamp.encode())
        key = base64.b64encode(public or self.public).decode()
        return {"flwr-public-key": key, "flwr-signature": base64.b64encode(signature).decode(), "flwr-timestamp": stamp}

    def socket(self, source="127.0.0.1"):
        """A connection from another of this machine's own addresses, all of 127.0.0.0/8, that says nothing yet."""
        host, _, port = self.address.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=20, source_address=(source, 0))

    def line(self, source="127.0.0.1"):
        trusted = ssl.create_default_context(cafile=self.folder / "authority.pem")
        return trusted.wrap_socket(self.socket(source), server_hostname="127.0.0.1")

    def post(self, body=b"", headers=None, path=HEARTBEAT, source="127.0.0.1", **more):
        """The answer's status; the body may be any that httpx takes."""
        trusted = ssl.create_default_context(cafile=self.folder / "authority.pem")
        way = httpx.HTTPTransport(verify=trusted, local_address=source)
        with httpx.Client(transport=way, timeout=20) as client:
            given = self.signed() if headers is None else headers
            return client.post(f"https://{self.address}{path}", content=body, headers=given, **more).status_code


@pytest.fixture
def behind(tmp_path):
    made = Behind(tmp_path)
    yield made
    made.listening.close()


def test_an_enrolled_node_is_handed_on_with_the_body_that_it_sent(behind):
    assert behind.post(b"x" * MOST) == 200
    assert behind.seen == [(HEARTBEAT, b"x" * MOST)]


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


FLOOD = [f"127.6.{number}.1" for number in range(6)]  # six addresses of six networks, none of which has a key


@pytest.mark.parametrize("with_tls", [False, True])
def test_six_addresses_without_a_key_keep_no_site_out(behind, with_tls):
    connect = behind.line if with_tls else behind.socket
    held = []

    def flood():
        for _ in range(20):
            for source in FLOOD:
                with contextlib.suppress(OSError):  # the gate makes room
                    held.append(connect(source))

    sites = ["127.9.9.9", "127.9.9.9", "127.8.8.8", "127.9.9.9"]  # one is unknown at first, and one later
    try:
        reported = []
        for source in sites:
            flood()
            reported.append(behind.post(source=source))
        assert reported == [200] * len(sites)
        waiting = behind.listening.gate.places.waiting
        assert len(held) > 2 * sum(waiting.values()) and max(waiting.values()) <= gate_module.PLACES + 1
    finally:
        for line in held:
            line.close()


def test_a_hundred_sites_behind_one_address_are_all_let_in_at_once_though_strangers_crowd_there(tmp_path):
    pairs = [generate_key_pairs() for _ in range(100)]
    keys = [(private, public_key_to_bytes(public)) for private, public in pairs]
    made = Behind(tmp_path, [public for _, public in keys])
    try:
        with contextlib.ExitStack() as stack, ThreadPoolExecutor(100) as pool:
            for _ in range(300):
                stack.enter_context(made.socket(FLOOD[0]))
            headers = [made.signed(private=private, public=public) for private, public in keys]
            assert list(pool.map(lambda one: made.post(headers=one), headers)) == [200] * 100
    finally:
        made.listening.close()


def test_a_line_that_says_nothing_costs_no_object_of_tls(behind, monkeypatch):
    opened, real = [], gate_module._Line.open

    async def counted(connection, tls):
        opened.append(connection)
        return await real(connection, tls)

    monkeypatch.setattr(gate_module._Line, "open", counted)
    halves = [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01half a hello"]
    with contextlib.ExitStack() as stack:
        for half in halves:
            stack.enter_context(behind.socket()).sendall(half)
        for other in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x02", b"\x16\x03\x01\xff\xff"):  # no hello, whatever follows
            with behind.socket() as line:
                line.sendall(other)
                with contextlib.suppress(ConnectionResetError):
                    assert line.recv(100) == b""
        assert behind.post() == 200
        assert len(opened) == 1


class Closed:
    """What closes a line, and whether it did."""

    def __init__(self):
        self.done = False

    def __call__(self):
        self.done = True


def taken(places, *hosts):
    lines = []
    for host in hosts:
        lines.append((object(), Closed()))
        places.take(lines[-1][0], host, lines[-1][1])
    return lines


def test_half_of_the_places_are_for_networks_from_which_a_node_has_signed_in():
    places = Places(1)
    [(first, _)] = taken(places, "192.0.2.1")
    places.signed(first, b"node")
    [(_, site)] = taken(places, "192.0.2.200")  # of the same network, and not signed yet
    taken(places, *(f"10.{number % 200}.{number // 200}.1" for number in range(5000)))
    assert not site.done and places.waiting == {True: 1, False: places.most}


def test_the_oldest_line_of_the_largest_crowd_makes_room():
    places = Places(1)
    [(_, lonely)] = taken(places, "198.51.100.7")
    crowd = taken(places, *(f"203.0.113.{number}" for number in range(places.most - 1)))  # one network
    [(_, late)] = taken(places, "2001:db8::1")
    assert [closed.done for _, closed in crowd] == [True] + [False] * (places.most - 2)
    assert not lonely.done and not late.done


def test_one_node_has_no_more_signed_lines_than_its_share_and_loses_its_oldest():
    places = Places(2)
    lines = taken(places, *["192.0.2.1"] * (gate_module.NODE_LINES + 2))
    for line, _ in lines:
        places.signed(line, b"one")
    [(other, closed)] = taken(places, "192.0.2.1")
    places.signed(other, b"other")
    assert [closed.done for _, closed in lines] == [True] * 2 + [False] * gate_module.NODE_LINES and not closed.done
    for line, _ in [*lines, (other, closed)]:
        places.leave(line)
    assert places.waiting == {True: 0, False: 0}


NODE, VICTIM = 4711, 4712


def message(*, source=NODE, to=1, reply_to="", id="reply", objects=("reply",), node=NODE, times=1):
    """The body of a request that pushes a message, as Flower writes it."""
    tree = ObjectTree(object_id=objects[0], children=[ObjectTree(object_id=one) for one in objects[1:]])
    about = Metadata(run_id=1, message_id=id, src_node_id=source, dst_node_id=to, reply_to_message_id=reply_to)
    made = PushMessagesRequest(
        node=Node(node_id=node), messages_list=[Message(metadata=about)] * times, message_object_trees=[tree] * times
    )
    return made.SerializeToString()


def piece(content, id="reply"):
    return PushObjectRequest(
        node=Node(node_id=NODE), run_id=1, object_id=id, object_content=content
    ).SerializeToString()


def hand(behind, *ids):
    """Let the node be handed messages of the server."""
    handed = [Message(metadata=Metadata(message_id=id, src_node_id=1, dst_node_id=NODE)) for id in ids]
    behind.message = PullMessagesResponse(messages_list=handed).SerializeToString()
    assert behind.post(path="/v1/fleet/pull-messages") == 200


def test_a_node_pushes_replies_to_what_it_was_handed_and_nothing_else(behind):
    forged = [
        message(source=1, to=VICTIM),  # as the server, to another site: Flower would store it as an instruction
        message(source=1, to=VICTIM, reply_to="asked"),
        message(source=1, to=VICTIM, node=1),
        message(to=VICTIM, reply_to="asked"),
        message(to=NODE),
        message(source=VICTIM, reply_to="asked"),
        message(reply_to="asked by another node"),
        message(reply_to=""),
        message(reply_to="asked", times=2),
        message(reply_to="asked", times=0),
        message(reply_to="asked", id=""),
        b"\xff nothing of protobuf",
        piece(b"x"),
    ]
    hand(behind, "asked")
    assert [behind.post(body, path=PUSH) for body in forged[:-1]] == [403] * (len(forged) - 1)
    assert behind.post(forged[-1], path="/v1/fleet/push-object") == 403
    reply = message(reply_to="asked", objects=("reply", "content"))
    assert [behind.post(reply, path=PUSH) for _ in range(2)] == [
        200,
        200,
    ]  # a request is made again if its answer is lost
    assert behind.post(message(reply_to="asked", id="another"), path=PUSH) == 403
    assert behind.post(piece(b"x", "content"), path="/v1/fleet/push-object") == 200
    assert behind.post(piece(b"x", "of another reply"), path="/v1/fleet/push-object") == 403


def test_what_a_node_may_push_is_bounded_in_number_and_bytes():
    replies = Replies(1000)
    replies.handed(
        PullMessagesResponse(messages_list=[Message(metadata=Metadata(message_id="asked"))]).SerializeToString()
    )
    many = tuple(map(str, range(100)))
    long = "0" * 65  # Flower's names are 64 letters of hex, and what is kept of a node must not grow with them
    assert not replies.allows(PUSH_MESSAGE, message(reply_to="asked", objects=("a", long)))
    assert not replies.allows(PUSH_MESSAGE, message(reply_to="asked", id=long))
    assert not replies.allows(PUSH_MESSAGE, message(reply_to="asked", objects=many))
    assert replies.allows(PUSH_MESSAGE, message(reply_to="asked", objects=("a", "b")))
    sizes = [("a", 600, True), ("a", 600, True), ("b", 400, True), ("b", 401, False)]
    assert [replies.allows(PUSH_OBJECT, piece(bytes(size), id)) for id, size, _ in sizes] == [so for *_, so in sizes]
    for number in range(1000):  # it answers none of them: they are forgotten, and not kept
        handed = [Message(metadata=Metadata(message_id=f"m{number}"))]
        replies.handed(PullMessagesResponse(messages_list=handed).SerializeToString())
    allowed = [replies.allows(PUSH_MESSAGE, message(reply_to=f"m{number}", id=f"r{number}")) for number in range(1000)]
    assert sum(allowed) == MOST_HANDED and all(allowed[-MOST_HANDED:])


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
def waiting(behind):
    """A SuperLink that has no message for anybody, until `behind.message` is set."""
    behind.message = b""
    return behind


def ring(behind):
    behind.listening.loop.call_soon_threadsafe(behind.listening.gate.ring)


def pulled(behind):
    """A thread that asks for messages, and the seconds and the content that it got."""
    got = []

    def ask():
        begin = time.monotonic()
        trusted = ssl.create_default_context(cafile=behind.folder / "authority.pem")
        with httpx.Client(verify=trusted, timeout=20) as client, contextlib.suppress(httpx.TransportError):
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
    holds = waiting.listening.gate.holds
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


def test_a_node_whose_clock_is_wrong_is_named_until_it_is_right_and_nobody_else_is(behind):
    noted = []
    behind.listening.gate.note_late = lambda nodes: noted.append(set(nodes))
    private, _ = generate_key_pairs()
    assert behind.post(headers=behind.signed(private=private, ahead=400.0)) == 401  # a signature of somebody else
    assert noted == []
    assert [behind.post(headers=behind.signed(ahead=seconds)) for seconds in (20.0, -400.0, 0.0, 0.0)] == [
        401,
        401,
        200,
        200,
    ]
    assert noted == [{behind.public}, set()]


def test_the_devices_whose_clocks_are_wrong_are_known_by_their_nodes_keys(tmp_path):
    keys = {name: node_key()[1] for name in ("hill", "lake")}
    assert with_wrong_clocks(tmp_path, keys) == frozenset()  # no gate was started here
    (tmp_path / gate_module.LATE).write_text(json.dumps([public_key(keys["lake"]).decode()]))
    assert with_wrong_clocks(tmp_path, keys) == {"lake"}


def test_a_node_that_was_started_again_loses_its_old_lines_so_that_none_of_them_takes_its_messages(waiting):
    lost, got = pulled(waiting)
    assert waiting.post(path="/v1/fleet/activate-node") == 200
    lost.join()
    assert got == []
    thread, got = pulled(waiting)
    waiting.message = b"message"
    ring(waiting)
    thread.join()
    assert got[0][1] == b"message"
