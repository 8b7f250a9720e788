"""A site's node without a server: what it answers, how often it asks, and whose nonsense costs what."""

import threading
import time

import pytest

pytest.importorskip("flwr", reason="an extra of choral's")

from flwr.app import Message
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError
from flwr.supercore.task_identity import TaskIdentity

from choral.backends.flower import node
from choral.backends.flower.conducting import Arriving
from choral.backends.flower.parcels import KIND, parcel, unpacked
from choral.core.errors import TrustError
from choral.deploy.certificates import node_key


class Over(BaseException):
    """The test has seen enough."""


@pytest.fixture(autouse=True)
def within_an_app(monkeypatch):
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def sent(data):
    """A message as the server sends it, its tree, and its pieces."""
    message = Message(parcel(data), 1, KIND, ttl=60.0)
    message.metadata.__dict__["_message_id"] = message.object_id
    pieces = {id: one.deflate() for id, one in get_all_nested_objects(message).items()}
    return message, get_object_tree(message), pieces


class Server:
    """What Flower's connection gives a node, with the messages that are waiting."""

    def __init__(self, *messages):
        self.messages, self.pieces, self.pushed, self.confirmed, self.replies = list(messages), {}, {}, [], []
        for one in messages:
            if one is not None:
                self.pieces |= one[2]
        self.late = set()

    def receive(self):
        if not self.messages:
            raise Over
        found = self.messages.pop(0)
        return None if found is None else found[:2]

    def pull(self, _run, id):
        if id in self.late:
            self.late.discard(id)
            raise ObjectUnavailableError(id)
        return self.pieces[id]

    def send(self, reply, tree, _seconds):
        self.replies.append((reply, tree))
        return set(ids_of(tree)), "session"

    def connection(self):
        def push(_run, _session, id, content):
            self.pushed[id] = content

        confirm = lambda _run, id: self.confirmed.append(id)  # noqa: E731
        return 7, self.receive, self.send, None, None, self.pull, push, confirm


def ids_of(tree):
    yield tree.object_id
    for child in tree.children:
        yield from ids_of(child)


def attend(server, answer):
    with pytest.raises(Over):
        node.attend(server.connection(), answer)


def echo(message):
    return Message(parcel(b"re:" + unpacked(message.content)), reply_to=message)


def test_a_message_is_answered_whole_and_the_answer_can_be_put_together_again():
    asked = sent(b"frame")
    server = Server(asked)
    server.late = {asked[0].object_id}  # a piece that is still on its way when the node asks first
    attend(server, echo)
    assert server.confirmed == [asked[0].object_id]
    reply, tree = server.replies[0]
    assert reply.metadata.reply_to_message_id == asked[0].object_id
    made = Arriving(tree).whole(server.pushed.__getitem__)
    assert unpacked(made.content) == b"re:frame" and made.metadata.reply_to_message_id == asked[0].object_id


def test_a_node_that_hears_nothing_asks_at_most_twice_as_often_as_a_supernode(monkeypatch):
    monkeypatch.setattr(node, "LEAST", 0.2)
    begin = time.monotonic()
    attend(Server(None, None), echo)
    assert time.monotonic() - begin >= 0.4


def test_a_message_that_fails_is_lost_itself_and_its_text_stays_here(capsys):
    def fails(message):
        if unpacked(message.content) == b"bad":
            raise ValueError("JANE-DOE")
        return echo(message)

    server = Server(sent(b"bad"), sent(b"good"))
    attend(server, fails)
    assert len(server.replies) == 1
    said = capsys.readouterr().err
    assert "ValueError" in said and "JANE" not in said


def test_a_reply_is_whole_when_its_last_piece_is_there_and_no_piece_is_asked_for_twice():
    _, tree, pieces = sent(b"upload")
    asked, missing = [], set(list(pieces)[-1:])

    def pull(id):
        asked.append(id)
        return None if id in missing else pieces[id]

    arriving = Arriving(tree)
    assert arriving.whole(pull) is None
    missing.clear()
    assert unpacked(arriving.whole(pull).content) == b"upload"
    assert max(asked.count(id) for id in pieces) <= 2 and sum(asked.count(id) == 2 for id in pieces) == 1


@pytest.mark.parametrize("piece", [b"", b"nonsense", b"Message  3\0abc", b"ArrayRecord " + b"0" * 64 + b" 0\0"])
def test_nonsense_of_one_node_is_no_answer_and_no_error(piece):
    arriving = Arriving(ObjectTree(object_id="a" * 64))
    assert arriving.whole(lambda _: piece) is None
    assert arriving.whole(lambda _: pytest.fail("it is not asked for again")) is None


def test_a_node_waits_until_somebody_listens(monkeypatch):
    import socket

    monkeypatch.setattr(node, "KNOCK", 0.05)
    with socket.socket() as later:
        later.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{later.getsockname()[1]}"
        waiting = threading.Thread(target=node.await_listener, args=(address,))
        waiting.start()
        time.sleep(0.2)
        assert waiting.is_alive()
        later.listen()
        waiting.join(10)
        assert not waiting.is_alive()


def test_a_key_that_is_not_a_nodes_is_refused(tmp_path):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    good, other = tmp_path / "good", tmp_path / "other"
    good.write_bytes(node_key()[0])
    node.key_in(good)
    other.write_bytes(Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    with pytest.raises(TrustError, match="CH600"):
        node.key_in(other)
