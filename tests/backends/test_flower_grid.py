"""The transport over a grid of nodes that answer, are silent, fail, come late, come back, or lie about who they are."""

import itertools
import time

import pytest

pytest.importorskip("flwr", reason="an extra of choral's")

from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from choral.backends import local_socket
from choral.backends.flower import grid as grid_module
from choral.backends.flower.grid import GridTransport
from choral.backends.flower.parcels import parcel, unpacked
from choral.core.errors import DeploymentError

IDS = ("a", "b", "c")
BOUND = {100: "a", 101: "b", 102: "c"}  # by the keys on the devices' cards


class Node:
    """A node that is one device; `silent` swallows everything, `delay` answers after so many pulls."""

    def __init__(self, id, *, silent=False, delay=0, error=False):
        self.id, self.silent, self.delay, self.error = id, silent, delay, error
        self.frames = []

    def answer(self, request):
        if request[:1] == local_socket.HELLO:
            return self.id.encode()
        self.frames.append(request[1:])
        return b"re:" + request[1:]


class FakeGrid:
    """Flower's grid as far as the transport uses it."""

    def __init__(self, nodes):
        self.nodes = dict(nodes)
        self.numbers, self.pulls = itertools.count(), itertools.count()
        self.replies = {}  # message id -> (from which pull on, reply)
        self.pushed = []

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        return [self.deliver(message) for message in messages]

    def deliver(self, message):
        node = self.nodes.get(message.metadata.dst_node_id)
        if node is None:
            return None
        id = f"m{next(self.numbers)}"
        message.metadata.__dict__["_message_id"] = id
        self.pushed.append((node.id, unpacked(message.content), message.metadata.ttl))
        if not node.silent:
            request = unpacked(message.content)
            failed = Error(3, "Node Unavailable")
            content = failed if node.error and request[:1] != local_socket.HELLO else parcel(node.answer(request))
            self.replies[id] = (node.delay, Message(content, reply_to=message))
        return id

    def pull_messages(self, ids):
        assert all(isinstance(id, str) for id in ids)
        now = next(self.pulls)
        due = [id for id in ids if id in self.replies and self.replies[id][0] <= now]
        return [self.replies.pop(id)[1] for id in due]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(grid_module, "LOOK", 0.0)
    for name in ("_run_id", "_node_id", "_task_id"):  # what Flower knows within an app
        monkeypatch.setattr(TaskIdentity, name, 1)


def transport_over(nodes, deadline=0.3, ids=IDS, bound=None):
    grid = FakeGrid(nodes)
    transport = GridTransport(grid, nodes=bound, poll=0.01)
    transport.expect(ids, deadline=deadline)
    return transport, grid


def three(**changes):
    return {100 + number: changes.get(id, Node(id)) for number, id in enumerate(IDS)}


def exchange(transport, frames):
    before = time.monotonic()
    replies = sorted(transport.exchange(frames, dict.fromkeys(frames, b"")))
    return replies, time.monotonic() - before


ALL = {0: b"x", 1: b"y", 2: b"z"}


def test_everybody_answers_to_their_own_frame_and_nobody_waits_for_the_deadline():
    transport, grid = transport_over(three(), deadline=30)
    assert transport.gather(3, patience=5) == {0, 1, 2} == transport.present()
    replies, took = exchange(transport, ALL)
    assert replies == [(0, b"re:x"), (1, b"re:y"), (2, b"re:z")]
    assert took < 15
    assert [frame[:1] for _, frame, _ in grid.pushed].count(local_socket.HELLO) == 3  # asked once, in the beginning


def test_a_silent_node_costs_one_deadline_and_the_others_go_on():
    silent = Node("b")
    transport, _ = transport_over(three(b=silent))
    transport.gather(3, patience=5)
    silent.silent = True
    replies, took = exchange(transport, ALL)
    assert [number for number, _ in replies] == [0, 2] and took > 0.3
    assert transport.present() == {0, 2}
    transport.expect(IDS, deadline=30.0)
    replies, took = exchange(transport, ALL)
    assert [number for number, _ in replies] == [0, 2] and took < 15  # nobody waits for it again


@pytest.mark.parametrize("days", [1, -1])
def test_a_deadline_is_counted_and_does_not_move_when_the_clock_is_set(days, monkeypatch):
    slow, silent = Node("a"), Node("b")
    transport, grid = transport_over(three(a=slow, b=silent), deadline=0.5)
    transport.gather(3, patience=5)
    slow.delay, silent.silent = next(grid.pulls) + 15, True  # one answers in the middle of the exchange, one never
    right, begin = time.time, time.monotonic()
    monkeypatch.setattr(time, "time", lambda: right() + 86400 * days * (time.monotonic() > begin + 0.1))
    replies, took = exchange(transport, ALL)
    assert [number for number, _ in replies] == [0, 2] and 0.5 < took < 15
    assert all(0 < ttl <= 0.5 + 60 for _, frame, ttl in grid.pushed if frame[:1] != local_socket.HELLO)


def test_a_node_that_speaks_again_is_sent_its_frame_in_the_same_exchange(monkeypatch):
    monkeypatch.setattr(grid_module, "GREETING", 0.05)
    silent = Node("b")
    transport, _ = transport_over(three(b=silent))
    transport.gather(3, patience=5)
    silent.silent = True
    exchange(transport, ALL)
    silent.silent = False
    time.sleep(0.06)  # until it is asked again who it is
    replies, _ = exchange(transport, {1: b"back"} | {0: b"x"})
    assert replies == [(0, b"re:x"), (1, b"re:back")]
    assert exchange(transport, ALL)[0] == [(0, b"re:x"), (1, b"re:y"), (2, b"re:z")]


class Restarted(Node):
    """A node that is killed with a frame in its hands, and answers whatever comes after it."""

    def answer(self, request):
        answered = super().answer(request)
        self.silent = request[:1] != local_socket.HELLO and len(self.frames) == 1
        return answered


class RestartedGrid(FakeGrid):
    """A grid in which a frame that a restarted node was sent is lost with the node."""

    def deliver(self, message):
        id = super().deliver(message)
        node = self.nodes[message.metadata.dst_node_id]
        if node.silent and isinstance(node, Restarted):
            del self.replies[id]
            node.silent = False
        return id


def test_a_node_that_was_started_again_in_mid_exchange_is_not_waited_for_and_is_there_at_once(monkeypatch):
    monkeypatch.setattr(grid_module, "CHECK", 0.05)
    nodes = three(b=Restarted("b"))
    grid = RestartedGrid(nodes)
    transport = GridTransport(grid, nodes=BOUND, poll=0.01)
    transport.expect(IDS, deadline=30.0)
    transport.gather(3, patience=5)
    replies, took = exchange(transport, ALL)
    assert replies == [(0, b"re:x"), (2, b"re:z")] and took < 15
    assert transport.present() == {0, 1, 2}
    assert exchange(transport, ALL)[0] == [(0, b"re:x"), (1, b"re:y"), (2, b"re:z")]


def test_a_slow_node_is_asked_whether_it_is_there_and_its_answer_counts_all_the_same(monkeypatch):
    monkeypatch.setattr(grid_module, "CHECK", 0.02)
    slow = Node("b")
    transport, grid = transport_over(three(b=slow), deadline=30, bound=BOUND)
    transport.gather(3, patience=5)
    slow.delay = next(grid.pulls) + 12  # it takes one message after the other, and says who it is after its answer
    push = grid.deliver
    replies = []

    def in_turn(message):
        id = push(message)
        if message.metadata.dst_node_id == 101:
            grid.replies[id] = (slow.delay + len(replies), grid.replies[id][1])
            replies.append(id)
        return id

    grid.deliver = in_turn
    assert exchange(transport, ALL)[0] == [(0, b"re:x"), (1, b"re:y"), (2, b"re:z")]
    assert len(replies) > 1 and transport.present() == {0, 1, 2}


def test_a_greeting_that_is_answered_late_is_answered(monkeypatch):
    monkeypatch.setattr(grid_module, "GREETING", 0.03)
    slow = Node("b", delay=40)  # later than it is asked again: on a machine with a hundred others, everybody is slow
    transport, grid = transport_over(three(b=slow))
    assert transport.gather(3, patience=20) == {0, 1, 2}
    asked = [id for id, frame, _ in grid.pushed if frame[:1] == local_socket.HELLO].count("b")
    assert asked > 1 and next(grid.pulls) < 40 + 30


def test_the_code_that_comes_in_place_of_an_answer_says_why_a_device_is_missing():
    closed = Node("b")
    transport, grid = transport_over(three(b=closed), bound=BOUND)
    transport.gather(3, patience=5)
    answer = closed.answer
    refusal = RecordDict({"refusal": ConfigRecord({"code": "CH901"})})
    closed.answer = lambda _: b""
    monkeypatched = grid.deliver

    def refused(message):
        id = monkeypatched(message)
        if message.metadata.dst_node_id == 101 and closed.answer is not answer:
            grid.replies[id] = (0, Message(refusal, reply_to=message))
        return id

    grid.deliver = refused
    assert [number for number, _ in exchange(transport, ALL)[0]] == [0, 2]
    assert transport.reasons() == {"b": "CH901"}
    closed.answer = answer
    transport.gather(3, patience=20)
    assert transport.reasons() == {}


def test_a_node_that_comes_back_under_another_number_takes_its_place():
    transport, grid = transport_over(three())
    transport.gather(3, patience=5)
    del grid.nodes[101]
    replies, _ = exchange(transport, ALL)
    assert [number for number, _ in replies] == [0, 2]
    grid.nodes[777] = Node("b")
    assert exchange(transport, ALL)[0] == [(0, b"re:x"), (1, b"re:y"), (2, b"re:z")]


def test_flowers_error_replies_and_relays_refusals_count_as_silence():
    transport, _ = transport_over(three(c=Node("c", error=True)), deadline=30)
    transport.gather(3, patience=5)
    replies, took = exchange(transport, ALL)
    assert [number for number, _ in replies] == [0, 1] and took < 15


def test_a_reply_that_comes_after_its_exchange_is_not_taken_for_an_answer_to_the_next():
    slow = Node("b")
    transport, grid = transport_over(three(b=slow))
    transport.gather(3, patience=5)
    slow.delay = 10**9
    assert [number for number, _ in exchange(transport, ALL)[0]] == [0, 2]
    late = next(id for id, (due, _) in grid.replies.items() if due == 10**9)
    grid.replies[late] = (0, grid.replies[late][1])
    slow.delay = 0
    replies = exchange(transport, {0: b"next", 1: b"next", 2: b"next"})[0]
    assert b"re:y" not in [frame for _, frame in replies]


def test_a_second_node_that_claims_a_device_is_not_listened_to_while_the_first_answers():
    nodes = three()
    transport, grid = transport_over(nodes)
    transport.gather(3, patience=5)
    grid.nodes[666] = thief = Node("b")
    for _ in range(3):
        assert (1, b"re:y") in exchange(transport, ALL)[0]
    assert thief.frames == []


def test_a_node_is_the_device_of_its_key_whatever_it_says_and_whoever_comes_first():
    thief = Node("b")  # the node of "a" says that it is "b", and it is there before "b"
    transport, grid = transport_over({100: thief}, bound=BOUND)
    with pytest.raises(DeploymentError, match=r"0 of 3 devices are connected"):
        transport.gather(1, patience=0.1)
    assert transport.unproved() == {"b": "a"}
    grid.nodes[101] = Node("b")
    assert transport.gather(1, patience=5) == {1}
    assert exchange(transport, ALL)[0] == [(1, b"re:y")]
    assert thief.frames == []


def test_a_node_whose_key_is_on_no_card_is_no_device_whatever_it_says():
    transport, _ = transport_over({**three(), 666: Node("b")}, bound=BOUND)
    assert transport.gather(3, patience=5) == {0, 1, 2}
    assert exchange(transport, ALL)[0] == [(0, b"re:x"), (1, b"re:y"), (2, b"re:z")]
    assert transport.unproved() == {"b": "no device of this study"}


def test_a_node_that_is_no_device_of_the_study_is_left_alone():
    transport, grid = transport_over({**three(), 200: Node("stranger")}, deadline=30)
    transport.gather(3, patience=5)
    for _ in range(5):
        replies, took = exchange(transport, ALL)
        assert len(replies) == 3 and took < 15
    assert [request for id, request, _ in grid.pushed if id == "stranger"] == [
        local_socket.HELLO
    ]  # and asked only once


def test_too_few_devices_are_named_when_patience_is_over():
    transport, _ = transport_over({100: Node("a")})
    with pytest.raises(DeploymentError, match=r"CH903 1 of 3 devices are connected, 2 needed; missing: b, c\."):
        transport.gather(2, patience=0.1)


def test_a_frame_for_a_device_that_never_came_is_dropped_at_once():
    transport, _ = transport_over({100: Node("a")}, deadline=30)
    transport.gather(1, patience=5)
    replies, took = exchange(transport, ALL)
    assert replies == [(0, b"re:x")] and took < 15


def test_messages_expire_soon_after_their_exchange():
    transport, grid = transport_over(three(), deadline=5)
    transport.gather(3, patience=5)
    exchange(transport, ALL)
    frames = [ttl for _, frame, ttl in grid.pushed if frame[:1] != local_socket.HELLO]
    assert all(5 < ttl <= 5 + 60 for ttl in frames)


def test_equal_frames_are_one_parcel_so_that_flower_carries_the_model_once():
    transport, grid = transport_over(three())
    transport.gather(3, patience=5)
    seen = []
    push = grid.push_messages
    grid.push_messages = lambda messages: (
        seen.append([id(message.content["parcel"]) for message in messages]) or push(messages)
    )
    model = b"the model"
    exchange(transport, dict.fromkeys(range(3), model))
    assert len(set(seen[0])) == 1
