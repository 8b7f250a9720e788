"""What an enrolled node may push through the gate: replies to what it was handed, each once, and nothing else.

Flower's Fleet API stores a pushed message as an instruction for another node if the message says that it comes from
the server. It also stores messages for nodes that do not exist, and keeps each for months. So the gate reads what is
pushed: one message at a time, from this node to the server, in reply to a message that the gate has handed to this very
node. The objects that a reply consists of are counted in number and bytes.
"""

import contextlib
from collections.abc import Iterator

from flwr.proto.fleet_pb2 import PullMessagesResponse, PushMessagesRequest
from flwr.proto.message_pb2 import ObjectTree, PushObjectRequest
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

SERVER = 1  # the number of the server's own node in Flower
MOST_HANDED = 32  # messages that a node may have and not have answered; the server sends one at a time
_LONGEST_NAME = 64  # letters of an object's name, which is its SHA-256
_MOST_OBJECTS = 32  # of a reply, apart from the pieces of its array
_PIECE = 2**20  # bytes of a reply for which it may have one more object; Flower's pieces are five times as long
PUSH_MESSAGE, PUSH_OBJECT = b"/v1/fleet/push-messages", b"/v1/fleet/push-object"


class Replies:
    """The replies of one node: `handed` notes what it was given, `allows` says whether it may push a request's body."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes` is how long the objects of one reply may be together."""
        self._most_bytes, self._most_objects = most_bytes, _MOST_OBJECTS + most_bytes // _PIECE
        self._replied: dict[str, str] = {}  # the messages that it was handed, and what it has replied to each
        self._sizes: dict[str, dict[str, int]] = {}  # the objects of each reply, and what has come of each

    def handed(self, body: bytes) -> None:
        """Note the messages in an answer to a request for messages; the oldest are forgotten."""
        with contextlib.suppress(DecodeError):  # then the node can't read it either
            for message in PullMessagesResponse.FromString(body).messages_list:
                self._replied[message.metadata.message_id] = ""
        for forgotten in list(self._replied)[:-MOST_HANDED]:
            self._sizes.pop(self._replied.pop(forgotten), None)

    def allows(self, path: bytes, body: bytes) -> bool:
        """Whether a request to this path is none that pushes, or pushes a reply, or a piece of one.

        >>> Replies(10).allows(b"/v1/fleet/pull-object", b"whatever"), Replies(10).allows(PUSH_MESSAGE, b"")
        (True, False)
        """
        try:
            if path == PUSH_MESSAGE:
                return self._is_reply(PushMessagesRequest.FromString(body))
            return path != PUSH_OBJECT or self._is_piece(PushObjectRequest.FromString(body))
        except DecodeError:
            return False

    def _is_reply(self, request: PushMessagesRequest) -> bool:
        if (len(request.messages_list), len(request.message_object_trees)) != (1, 1):
            return False
        said = request.messages_list[0].metadata
        objects = dict.fromkeys(_ids(request.message_object_trees[0]), 0)
        way = (said.src_node_id, said.dst_node_id)
        if way != (request.node.node_id, SERVER) or said.src_node_id == SERVER or len(objects) > self._most_objects:
            return False
        if max(map(len, (said.message_id, *objects))) > _LONGEST_NAME:  # they are kept
            return False
        # A request whose answer was lost is made again: the same reply, then, and not another one.
        if not said.message_id or self._replied.get(said.reply_to_message_id) not in ("", said.message_id):
            return False
        self._replied[said.reply_to_message_id] = said.message_id
        self._sizes.setdefault(said.message_id, objects)
        return True

    def _is_piece(self, request: PushObjectRequest) -> bool:
        sizes = next((sizes for sizes in self._sizes.values() if request.object_id in sizes), None)
        if sizes is None:
            return False
        sizes[request.object_id] = max(sizes[request.object_id], len(request.object_content))
        return sum(sizes.values()) <= self._most_bytes


def _ids(tree: ObjectTree) -> Iterator[str]:
    yield tree.object_id
    for child in tree.children:
        yield from _ids(child)
