"""The only door of a SuperLink to the outside: TLS, and nothing behind it but the Fleet API, for enrolled nodes.

A SuperLink serves its Control API, by which runs are started and nodes let in without a login, at the same address as
the Fleet API that SuperNodes need, and it reads a request whole before it looks at who has sent it. So it listens at a
socket of its user only. This gate reads the head of a request, of bounded size and in bounded time, and looks at the
node's key and signature in it. Only then does it read the body, which is no longer than the study's terms need, and
hands it on only if it pushes nothing but replies (`Replies`).

Whoever has not signed yet waits at one of few places. Half of them are for networks from which an enrolled node has
signed in. Where all are taken, the network that has most of them loses its oldest line: many lines from a few networks
keep nobody else out.

A node's request for messages is held while there are none, until the conductor wakes the gate up or the time is over:
so a message leaves as soon as it is there, and an idle node asks less often than one that looks every three seconds.
"""

import argparse
import asyncio
import contextlib
import ipaddress
import json
import re
import socket
import ssl
import sys
from base64 import b64decode
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from email.utils import formatdate
from pathlib import Path

import h11
import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from flwr.proto.fleet_pb2 import PullMessagesResponse, PushMessagesRequest
from flwr.proto.message_pb2 import ObjectTree, PushObjectRequest
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from choral.backends.flower import api

SERVER = 1  # the number of the server's own node in Flower
MOST_HANDED = 32  # messages that a node may have and not have answered; the server sends one at a time
_LONGEST_NAME = 64  # letters of an object's name, which is its SHA-256
_MOST_OBJECTS = 32  # of a reply, apart from the pieces of its array
_PIECE = 2**20  # bytes of a reply for which it may have one more object; Flower's pieces are five times as long
PUSH_MESSAGE, PUSH_OBJECT = b"/v1/fleet/push-messages", b"/v1/fleet/push-object"


class Replies:
    """The replies of one node: `handed` notes what it was given, `allows` says whether it may push a request's body.

    Flower's Fleet API stores a pushed message as an instruction for another node if the message says that it comes from
    the server. It also stores messages for nodes that do not exist, and keeps each for months. So the gate reads what
    is pushed: one message at a time, from this node to the server, in reply to a message that it has handed to this
    very node. The objects that a reply consists of are counted in number and bytes.
    """

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


_ALLOWED = re.compile(rb"/v1/fleet/[a-z][a-z-]*")  # matched whole and raw: no dots, no escapes, no query
_OURS = {b"host", b"connection", b"keep-alive", b"te", b"upgrade", b"content-length", b"date", b"server", b"expect"}
_HEAD_BYTES = 2**14  # of a request: a node's has about 1 KiB
HEAD_SECONDS = 10.0  # that a connection may take for TLS, and then for each head; also how long it may be idle
_DRAINED_BYTES = 2**16  # of a refused request's body that are read and forgotten, so that its sender hears why
_PIECE_BYTES = 2**16  # that are read at once
AT_ONCE = 8  # requests of one node: Flower's push two pieces, pull two, and send a heartbeat
PLACES = 64  # connections that have not signed, and one more for each node: in each half of the places
NODE_LINES = 12  # connections on which a node has signed: AT_ONCE, and some that are going down
_KNOWN_NETWORKS = 4  # for each node, that are remembered: sites change their addresses now and then
_HELLO_BYTES = 2**14  # of the first record of TLS
_HELLO = b"\x16\x03"  # how a ClientHello begins: a handshake, of any version
_GLANCE = 0.05  # seconds between two looks for the rest of a ClientHello
HOLD = 10.0  # seconds for which a request for messages is held: shorter than what ends idle connections on most ways
LATE = "late.json"  # next to the SuperLink's socket: the nodes whose clock is wrong
_PULL, _CONNECT = b"/v1/fleet/pull-messages", b"/v1/fleet/activate-node"
_NOTHING = (200, b"")  # the status and the body of an answer without a message

Headers = list[tuple[bytes, bytes]]
Close = Callable[[], object]


class Places:
    """Who may wait at the gate: `take` a place for a line, note who `signed` on it, and `leave` it.

    Each line has something to close it by.
    """

    def __init__(self, nodes: int) -> None:
        self.most, self._most_networks = PLACES + nodes, _KNOWN_NETWORKS * nodes
        self._known: dict[str, None] = {}  # networks from which a node has signed in, the latest last
        self._waiting: dict[bool, dict[Hashable, tuple[str, Close]]] = {True: {}, False: {}}  # the oldest first
        self._signed: dict[bytes, dict[Hashable, Close]] = {}

    def take(self, line: Hashable, host: str, close: Close) -> None:
        """A place for a line from this host; where none is free, the oldest line of the largest crowd is closed."""
        network = network_of(host)
        waiting = self._waiting[network in self._known]
        if len(waiting) >= self.most:
            crowds = Counter(other for other, _ in waiting.values())
            crowds[network] += 1
            largest, _ = crowds.most_common(1)[0]
            oldest = next((one for one, (other, _) in waiting.items() if other == largest), next(iter(waiting)))
            waiting.pop(oldest)[1]()
        waiting[line] = network, close

    def signed(self, line: Hashable, node: bytes) -> None:
        """Note that a node has signed on a line; its oldest one is closed where it has too many."""
        for waiting in self._waiting.values():
            if (found := waiting.pop(line, None)) is not None:
                network, close = found
                self._known.pop(network, None)
                self._known[network] = None
                for forgotten in list(self._known)[: -self._most_networks]:
                    del self._known[forgotten]
                lines = self._signed.setdefault(node, {})
                if len(lines) >= NODE_LINES:
                    lines.pop(next(iter(lines)))()
                lines[line] = close

    def alone(self, line: Hashable, node: bytes) -> None:
        """Close all other lines on which a node has signed: it was started again, and nobody is at their other ends.

        A request for messages that is still held on one of them would take messages that nobody reads.
        """
        lines = self._signed.get(node, {})
        for other in [other for other in lines if other != line]:
            lines.pop(other)()

    @property
    def waiting(self) -> dict[bool, int]:
        """How many lines have not signed yet: of known networks, and of others."""
        return {known: len(lines) for known, lines in self._waiting.items()}

    def leave(self, line: Hashable) -> None:
        """Free the place of a line that was closed."""
        for waiting in self._waiting.values():
            waiting.pop(line, None)
        for lines in self._signed.values():
            lines.pop(line, None)


def network_of(host: str) -> str:
    """The network that an address belongs to, by which places are counted: who has one address of it often has all.

    >>> network_of("192.0.2.17"), network_of("2001:db8::17%eth0"), network_of("::ffff:192.0.2.17")
    ('192.0.2.0/24', '2001:db8::/64', '192.0.2.0/24')
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(ipaddress.ip_network((address, 24 if address.version == 4 else 64), strict=False))


class Gate:
    """Answers connections; one request of an enrolled node at a time is handed on, and the rest is refused."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        nodes: Iterable[bytes],
        *,
        most_bytes: int,
        most_reply: int,
        patience: float = 60.0,
        note_late: Callable[[frozenset[bytes]], object] = frozenset,
    ) -> None:
        """`nodes` are public keys as Flower writes them; `patience` is how long a body or an answer may take, in s.

        `most_bytes` is how long a request may be, `most_reply` how long all parts of a reply may be together.
        `note_late` is given the nodes that sign as they should, and whose clock is wrong, whenever these change.
        """
        self.client, self._most_bytes, self._patience = client, most_bytes, patience
        self._nodes = {key: _public_key(key) for key in nodes}
        self._replies = defaultdict[bytes, Replies](lambda: Replies(most_reply))
        self._late, self.note_late = set[bytes](), note_late
        self.places = Places(len(self._nodes))
        self._busy: Counter[bytes] = Counter()  # requests of each node that are under way
        self.holds: dict[bytes, float] = {}  # for how long a node is held whose line was cut before
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Let every request that is held look for messages again."""
        self._rung.set()
        self._rung = asyncio.Event()

    async def serve(self, listener: socket.socket, tls: ssl.SSLContext) -> None:
        """Answer at a listening socket until cancelled."""
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, (host, *_) = await loop.sock_accept(listener)
            except OSError:  # it hung up already, or there are too many files
                await asyncio.sleep(0.1)
                continue
            task = loop.create_task(self._attend(connection, tls))
            self.places.take(task, host, task.cancel)
            task.add_done_callback(self.places.leave)
            await asyncio.sleep(0)  # it has begun before it may have to make room, and closes its own connection

    async def _attend(self, connection: socket.socket, tls: ssl.SSLContext) -> None:
        """One connection; whoever hangs up, is too slow or does not speak HTTP has only lost it."""
        with contextlib.suppress(OSError, h11.ProtocolError):
            try:
                await _hello(connection)
            except BaseException:
                connection.close()
                raise
            line = await _Line.open(connection, tls)
            try:
                while await self._turn(line):
                    pass
            finally:
                await line.close()

    async def _turn(self, line: "_Line") -> bool:
        """One request; whether another may follow it on this connection."""
        async with asyncio.timeout(HEAD_SECONDS):
            request = await line.event()
        if not isinstance(request, h11.Request):
            return False
        headers = dict(request.headers)
        if request.method != b"POST" or not _ALLOWED.fullmatch(request.target):
            return await self._refuse(line, 404)
        if (node := self._signed_by(headers)) is None:
            return await self._refuse(line, 401)
        self.places.signed(asyncio.current_task(), node)
        if b"transfer-encoding" in headers:
            return await self._refuse(line, 411)
        if int(headers.get(b"content-length", 0)) > self._most_bytes:
            return await self._refuse(line, 413)
        if self._busy[node] >= AT_ONCE:
            return await self._refuse(line, 503)  # SuperNodes try again on it
        self._busy[node] += 1
        try:
            async with asyncio.timeout(self._patience):
                body = await line.body(self._most_bytes)
            if not self._replies[node].allows(request.target, body):
                return await self._answer(line, 403, [], b"")
            kept = [(name, value) for name, value in request.headers if name not in _OURS]
            if request.target == _PULL:
                reply = await self._hold(line, node, kept, body)
            else:
                reply = await self.hand_on(request.target.decode(), kept, body)
            if request.target == _CONNECT:  # it has started again: what cut its line before may have been that
                self.holds.pop(node, None)
                self.places.alone(asyncio.current_task(), node)
        finally:
            self._busy[node] -= 1
        return await self._answer(line, *reply)

    async def _hold(self, line: "_Line", node: bytes, headers: Headers, body: bytes) -> tuple[int, Headers, bytes]:
        """The messages for a node: looked for at once, on a wake-up, and when the time is over.

        Nothing is looked for on behalf of a node that has hung up, since the SuperLink hands a message out once. If
        something between node and gate cuts the line, the next request is held for half as long as this one was.
        """
        loop = asyncio.get_running_loop()
        begin, hold = loop.time(), self.holds.get(node, HOLD)
        gone = loop.create_task(line.hung_up())
        try:
            while True:
                rung = self._rung  # before the look, or a ring in between would go unheard
                reply = await self.hand_on(_PULL.decode(), headers, body)
                left = begin + hold - loop.time()
                if (reply[0], reply[2]) != _NOTHING or left <= 0:
                    if reply[0] == _NOTHING[0]:
                        self._replies[node].handed(reply[2])
                    return reply
                ringing = loop.create_task(rung.wait())
                await asyncio.wait((ringing, gone), timeout=left, return_when=asyncio.FIRST_COMPLETED)
                ringing.cancel()
                if gone.done():
                    self.holds[node] = (loop.time() - begin) / 2
                    raise ConnectionResetError
        finally:
            gone.cancel()
            await asyncio.wait((gone,))  # two can't read one line

    async def hand_on(self, path: str, headers: Headers, body: bytes) -> tuple[int, Headers, bytes]:
        """What the SuperLink answers to a request: its status, headers and body."""
        try:
            reply = await self.client.post(path, headers=headers, content=body)
        except httpx.TransportError:
            return 503, [], b""
        head = [(name, value) for name, value in reply.headers.raw if name.lower() not in _OURS]
        return reply.status_code, head, reply.content

    async def _refuse(self, line: "_Line", status: int) -> bool:
        """Answer without looking at the body; a small one is still taken, or its sender might not hear the answer."""
        with contextlib.suppress(_TooLong):
            async with asyncio.timeout(HEAD_SECONDS):
                await line.body(_DRAINED_BYTES, keep=False)
        return await self._answer(line, status, [], b"")

    async def _answer(self, line: "_Line", status: int, headers: Headers, body: bytes) -> bool:
        async with asyncio.timeout(self._patience):
            return await line.answer(status, headers, body)

    def _signed_by(self, headers: Mapping[bytes, bytes]) -> bytes | None:
        """The enrolled node that has signed a request's time, by the rules of Flower; None if there is none."""
        try:
            key = b64decode(headers[api.PUBLIC_KEY.encode()], validate=True)
            signature = b64decode(headers[api.SIGNATURE.encode()], validate=True)
            stamp = headers[api.TIMESTAMP.encode()].decode("ascii")
            if not api.has_signed(self._nodes[key], stamp, signature):
                return None
            in_time = api.counts_now(stamp)
        except (KeyError, ValueError, TypeError):
            return None
        if in_time == (key in self._late):  # the node's clock is wrong, or right again
            self._late ^= {key}
            self.note_late(frozenset(self._late))
        return key if in_time else None


async def _hello(connection: socket.socket) -> None:
    """Return when a ClientHello waits to be read; what says nothing costs a socket, and no object of TLS."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    connection.setblocking(False)
    async with asyncio.timeout(HEAD_SECONDS):
        loop.add_reader(connection, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(connection)
        while True:
            begun = connection.recv(_HELLO_BYTES, socket.MSG_PEEK)
            length = int.from_bytes(begun[3:5], "big")
            if not begun.startswith(_HELLO[: len(begun)]) or not begun or length > _HELLO_BYTES - 5:
                raise ConnectionResetError
            if len(begun) >= 5 + length:
                return
            await asyncio.sleep(_GLANCE)


def _public_key(data: bytes) -> EllipticCurvePublicKey:
    """A node's public key; only those of enrolled cards come here, and all of them are of an elliptic curve."""
    key = load_pem_public_key(data)
    if not isinstance(key, EllipticCurvePublicKey):
        raise TypeError("a node's key is not one of an elliptic curve")
    return key


class _TooLong(Exception):
    """A body is longer than it may be."""


class _Line:
    """One connection as HTTP/1.1 events, none of which can be longer than it should."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)

    @classmethod
    async def open(cls, connection: socket.socket, tls: ssl.SSLContext) -> "_Line":
        """The connection behind its TLS handshake."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_PIECE_BYTES)
        transport, protocol = await loop.connect_accepted_socket(
            lambda: asyncio.StreamReaderProtocol(reader),
            connection,
            ssl=tls,
            ssl_handshake_timeout=HEAD_SECONDS,
            ssl_shutdown_timeout=1.0,
        )
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    async def event(self) -> h11.Event | type[h11.PAUSED]:
        """What comes next."""
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(_PIECE_BYTES))
        return event  # type: ignore[return-value]

    async def hung_up(self) -> None:
        """Return when the other side has hung up, or says more before it was answered."""
        with contextlib.suppress(OSError):
            await self._reader.read(_PIECE_BYTES)

    async def body(self, most_bytes: int, *, keep: bool = True) -> bytes:
        """The body of the request, kept or forgotten; _TooLong as soon as it is longer."""
        pieces, size = list[bytes](), 0
        while isinstance(event := await self.event(), h11.Data):
            size += len(event.data)
            if size > most_bytes:
                raise _TooLong
            pieces += [bytes(event.data)] * keep
        return b"".join(pieces)

    async def answer(self, status: int, headers: Headers, body: bytes) -> bool:
        """Send an answer; whether this connection can take another request."""
        unread = self._http.their_state is not h11.DONE
        ours = [(b"date", formatdate(usegmt=True).encode()), (b"content-length", str(len(body)).encode())]
        ours += [(b"connection", b"close")] * unread
        events = (h11.Response(status_code=status, headers=[*ours, *headers]), h11.Data(data=body), h11.EndOfMessage())
        self._writer.writelines(self._http.send(event) or b"" for event in events)
        await self._writer.drain()
        if self._http.our_state is not h11.DONE or unread:
            return False
        self._http.start_next_cycle()
        return True

    async def close(self) -> None:
        """Hang up, politely if the other side hears it."""
        self._writer.close()
        try:
            with contextlib.suppress(OSError):
                async with asyncio.timeout(1.0):
                    await self._writer.wait_closed()
        finally:
            self._writer.transport.abort()


def main() -> int:
    """Read the command line and serve until ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", required=True, help="host:port for the outside")
    parser.add_argument("--to", required=True, help="socket of the SuperLink")
    parser.add_argument("--nodes", required=True, type=Path, help="JSON list of the enrolled nodes' public keys, PEM")
    parser.add_argument("--most-bytes", required=True, type=int, help="of one request's body")
    parser.add_argument("--most-reply", required=True, type=int, help="bytes of all parts of one reply")
    parser.add_argument("--patience", required=True, type=float, help="seconds that a body or an answer may take")
    for name in ("certificate", "key"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    args = parser.parse_args()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(args.certificate, args.key)
    behind = httpx.AsyncHTTPTransport(uds=args.to)
    client = httpx.AsyncClient(base_url="http://superlink", transport=behind, timeout=args.patience)
    nodes = [key.encode() for key in json.loads(args.nodes.read_text())]
    late = Path(args.to).with_name(LATE)

    def note_late(nodes: frozenset[bytes]) -> None:
        late.write_text(json.dumps(sorted(key.decode() for key in nodes)))

    note_late(frozenset())
    gate = Gate(
        client, nodes, most_bytes=args.most_bytes, most_reply=args.most_reply, patience=args.patience,
        note_late=note_late,
    )  # fmt: skip
    host, _, port = args.listen.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        socket.create_server((host.strip("[]"), int(port)), family=family, backlog=128) as listener,
        api.wake_up_socket(Path(args.to).with_name(api.WAKE_UP)) as woken,
    ):
        asyncio.run(_serve(gate, listener, tls, woken))
    return 0


async def _serve(gate: Gate, listener: socket.socket, tls: ssl.SSLContext, woken: socket.socket) -> None:
    def rung() -> None:
        api.forget_wake_ups(woken)
        gate.ring()

    asyncio.get_running_loop().add_reader(woken, rung)
    await gate.serve(listener, tls)


if __name__ == "__main__":
    sys.exit(main())
