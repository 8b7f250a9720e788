"""A transport over Flower's grid: who is connected, what was asked of whom, and until when an answer counts."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from choral.backends.flower.parcels import KIND, packed, parcel, refused_by, unpacked, with_head
from choral.backends.local_socket import FRAME, HELLO
from choral.core.errors import DeploymentError
from choral.core.messages import Vector

LOOK = 1.0  # seconds between looks at who is connected
# Pauses between looks for replies grow with the time that the exchange has taken already: they cost it a tenth at most.
_SOONEST, _SHARE = 0.04, 0.1
_GRACE = 60.0  # seconds that a message outlives its exchange, for clocks that differ
GREETING = 15.0  # seconds until a node that did not say who it is, is asked again
CHECK = 5.0  # seconds without an answer after which a node is asked whether it is still the one that got the frame


@dataclass(frozen=True)
class _Asked:
    """One message under way: to which node, for which device (None: who are you?), since when, and until when."""

    node: int
    number: int | None
    since: float
    until: float


def conductor_named(name: str) -> Any:  # noqa: ANN401 - whatever room started the process knows what it has named
    """The function that "module:function" names, which runs a study over a transport; the room above says which."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


class GridTransport:
    """Exchanges over Flower's grid; each ends when everybody asked has answered or is gone, or by its deadline.

    `nodes` says which device each node is, by the node's key on that device's card: what a node says of itself only
    shows that its device's process is there. Without it, as in a simulation, a node is believed until its device has to
    sign.

    A node is asked who it is before it is sent anything. One that stays silent is asked again, but nobody waits for it
    until it speaks; so a dead device costs one deadline, and one that comes back is taken up where it answers. A node
    whose key is known takes one message after the other: if it says who it is while a frame that it was sent before is
    not answered, it was started again since, and nobody waits for that answer either.
    """

    def __init__(self, grid: Grid, *, nodes: Mapping[int, str] | None = None, poll: float = 0.2) -> None:
        self._grid, self._bound, self._poll = grid, nodes, poll
        self._claims: dict[str, str] = {}
        self._reasons: dict[str, str] = {}  # the code that came in place of a device's last answer
        self._ids: dict[str, int] = {}
        self._deadline = 60.0
        self._nodes: dict[int, int] = {}  # where each device is that has spoken
        self._online: frozenset[int] = frozenset()
        self._silent: dict[int, float] = {}  # nodes that are not waited for, and when each was asked last who it is
        self._greetings: dict[str, _Asked] = {}  # under way, in this exchange or since an earlier one
        self._looked = -LOOK
        self._waits_until: float | None = None

    def expect(self, ids: Sequence[str], *, deadline: float) -> None:
        """Name the devices, in the order of their numbers, and how many seconds an exchange may take."""
        self._ids, self._deadline = {id: number for number, id in enumerate(ids)}, deadline

    def announce(self, waits: float | None) -> None:
        """Let greetings from now on say for how many seconds the server waits; None if it does not."""
        self._waits_until = None if waits is None else time.monotonic() + waits

    def present(self) -> frozenset[int]:
        """The devices that are connected, as far as is known now."""
        return frozenset(self._nodes)

    def unproved(self) -> Mapping[str, str]:
        """Names of devices that nodes have claimed without having their key, and whose key each node has."""
        return self._claims

    def reasons(self) -> Mapping[str, str]:
        """The code by which a device's own machine has said why there is no answer."""
        return self._reasons

    def gather(self, needed: int, *, patience: float, looked: Callable[[], None] = lambda: None) -> frozenset[int]:
        """Who is connected, as soon as it is enough; or CH903 when patience is over. `looked` is called per look."""
        end = time.monotonic() + patience
        while len(self._nodes) < needed:
            if time.monotonic() > end:
                missing = sorted(id for id, number in self._ids.items() if number not in self._nodes)
                raise DeploymentError(
                    "CH903",
                    f"{len(self._nodes)} of {len(self._ids)} devices are connected, {needed} needed;"
                    f" missing: {', '.join(missing[:8])}{', …' if len(missing) > 8 else ''}.",
                    fix="Check that `choral device run` runs at these sites and reaches the server's address.",
                )
            self._greet()
            self._hear(self._pull(self._greetings))
            looked()
            time.sleep(self._poll)
        return self.present()

    def exchange(self, outbox: Mapping[int, Vector], heads: Mapping[int, bytes]) -> Iterator[tuple[int, Vector]]:
        """The replies as they come, each with the device that the asked node is known to be."""
        begin = time.monotonic()
        end = begin + self._deadline
        unsent, asked = dict(outbox), dict[str, _Asked]()
        while True:
            self._greet(asked.values())
            asked |= self._send(unsent, heads, end)
            replies = self._pull([*asked, *self._greetings])
            spoke = self._hear(replies)
            for reply in replies:
                if (was := asked.pop(reply.metadata.reply_to_message_id, None)) is None or was.number is None:
                    continue
                if (data := _data(reply)) is None:
                    self._explain(was, reply)
                    self._lose(was)
                else:
                    yield was.number, data
            if self._bound is not None:
                asked = {id: was for id, was in asked.items() if spoke.get(was.node, -math.inf) <= was.since}
            for id in [id for id, was in asked.items() if was.node not in self._online]:
                self._lose(asked.pop(id))
            if time.monotonic() > end:
                break
            if not asked and not (unsent and self._expects_answers()):
                if not unsent.keys() & self._nodes.keys():
                    break
                continue  # a device has just said who it is, and its frame is not sent yet
            time.sleep(min(self._poll, _SOONEST + _SHARE * (time.monotonic() - begin)))
        for was in asked.values():
            self._lose(was)

    def _expects_answers(self) -> bool:
        """Whether a node that was never silent is still to say who it is."""
        now = time.monotonic()
        return any(was.node not in self._silent and now < was.since + GREETING for was in self._greetings.values())

    def _send(self, unsent: dict[int, Vector], heads: Mapping[int, bytes], end: float) -> dict[str, _Asked]:
        """Messages to the devices that are there; they leave the outbox."""
        ready = {number: node for number in unsent if (node := self._nodes.get(number)) is not None}
        # Devices of a round are sent the same frame: Flower keeps and carries equal arrays once.
        frames = {id(unsent[number]): packed(unsent[number]) for number in ready}
        messages = [
            self._message(with_head(FRAME + heads[number], frames[id(unsent.pop(number))]), node, end + _GRACE)
            for number, node in ready.items()
        ]
        ids = self._grid.push_messages(messages) if messages else ()
        pushed = {}
        for (number, node), id_ in zip(ready.items(), ids, strict=True):
            asked = _Asked(node, number, time.monotonic(), end)
            if id_:
                pushed[id_] = asked
            else:  # the node was unregistered a moment ago
                self._lose(asked)
        return pushed

    def _greet(self, asked: Iterable[_Asked] = ()) -> None:
        """See who is connected, and ask who it is every node that is not known, or is late with an answer."""
        now = time.monotonic()
        if now - self._looked < LOOK:
            return
        self._looked = now
        self._online = frozenset(self._grid.get_node_ids())
        self._silent = {node: asked for node, asked in self._silent.items() if node in self._online}
        self._nodes = {number: node for number, node in self._nodes.items() if node in self._online}
        self._greetings = {id: was for id, was in self._greetings.items() if now < was.until}
        late = {was.node for was in asked if now > was.since + CHECK} if self._bound is not None else set[int]()
        known = {*self._nodes.values()} - late
        known |= {was.node for was in self._greetings.values() if now < was.since + GREETING}
        known |= {node for node, asked in self._silent.items() if now - asked < GREETING}
        if strangers := sorted(self._online - known):
            self._silent |= {node: now for node in strangers if node in self._silent}
            until = now + GREETING + _GRACE  # who is slow may answer an earlier one: its answer is as good
            hello = parcel(HELLO + self._waits(now))
            ids = self._grid.push_messages([self._message(hello, node, until) for node in strangers])
            pushed = zip(ids, strangers, strict=True)
            self._greetings |= {id: _Asked(node, None, time.monotonic(), until) for id, node in pushed if id}

    def _waits(self, now: float) -> bytes:
        return b"" if self._waits_until is None else f"{max(0.0, self._waits_until - now):.0f}".encode()

    def _hear(self, replies: Iterable[Message]) -> dict[int, float]:
        """Note which device each node is: the one of its key, or else the first that claims it, while it answers.

        Returns which nodes have said so, and when they were asked.
        """
        spoke = dict[int, float]()
        for reply in replies:
            if (was := self._greetings.pop(reply.metadata.reply_to_message_id, None)) is None:
                continue
            claimed = (_data(reply) or b"").decode("utf-8", "replace")
            number = self._ids.get(claimed)
            if number is not None and self._bound is not None and self._bound.get(was.node) != claimed:
                self._claims[claimed] = self._bound.get(was.node, "no device of this study")
                number = None
            if number is None:
                self._explain(was, reply)
                self._silent.setdefault(was.node, time.monotonic())
            else:
                spoke[was.node] = max(was.since, spoke.get(was.node, was.since))
                self._reasons.pop(claimed, None)
                self._silent.pop(was.node, None)
                self._nodes.setdefault(number, was.node)
        return spoke

    def _explain(self, was: _Asked, reply: Message) -> None:
        """Note by which code a device's machine says that there is no answer, where the device is known."""
        names = {number: id for id, number in self._ids.items()}
        name = names.get(was.number) if was.number is not None else (self._bound or {}).get(was.node)
        if name in self._ids and (code := refused_by(reply.content) if reply.has_content() else ""):
            self._reasons[name] = code

    def _lose(self, was: _Asked) -> None:
        """Count a node as silent until it says again who it is."""
        self._silent.setdefault(was.node, -math.inf)  # so it is asked at once
        if was.number is not None and self._nodes.get(was.number) == was.node:
            del self._nodes[was.number]

    def _pull(self, ids: Iterable[str]) -> list[Message]:
        wanted = list(ids)
        return list(self._grid.pull_messages(wanted)) if wanted else []

    def _message(self, content: RecordDict, node: int, until: float) -> Message:
        message: Message = Message(content, node, KIND, ttl=until - time.monotonic())
        return message


def _data(reply: Message) -> bytes | None:
    """What a device answered, or None if the answer is an error of Flower's or of the device's relay."""
    return unpacked(reply.content) if reply.has_content() else None
