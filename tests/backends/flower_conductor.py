"""A conductor that lends its transport to the test's process, and notes everything that reaches it."""

import json
import struct
import threading
from pathlib import Path

from choral.backends import local_socket

_ITEM = struct.Struct("<IQ")


def pack(mail):
    return b"".join(_ITEM.pack(number, len(frame)) + bytes(frame) for number, frame in mail)


def unpack(data):
    view = memoryview(data)
    while view:
        number, size = _ITEM.unpack_from(view)
        yield number, bytes(view[_ITEM.size : _ITEM.size + size])
        view = view[_ITEM.size + size :]


def lend(folder, transport):
    """Serve the transport at a socket until it is asked to end."""
    folder, end = Path(folder), threading.Event()
    with (folder / "received").open("ab") as received:

        def answer(request):
            kind, body = request[:1], request[1:]
            if kind == b"E":
                settings = json.loads(body)
                transport.expect(settings["ids"], deadline=settings["deadline"])
                return b""
            if kind == b"G":
                settings = json.loads(body)
                return json.dumps(sorted(transport.gather(**settings))).encode()
            if kind == b"P":
                return json.dumps(sorted(transport.present())).encode()
            if kind == b"X":
                mail = dict(unpack(body))
                replies = list(transport.exchange(mail, dict.fromkeys(mail, b"")))
                received.writelines(frame for _, frame in replies)
                received.flush()
                return pack(replies)
            end.set()
            return b""

        local_socket.serve(folder / "lent", answer, stop=end)


def fail(*_):
    """A conductor that ends with an error of ours."""
    from choral.core.errors import SumError

    raise SumError("CH503", "too few devices.", fix="Wait.")


class Lent:
    """The transport, from the test's side."""

    def __init__(self, folder, patience=300.0):
        self._door, self._patience = folder / "lent", patience

    def _ask(self, request):
        return local_socket.ask(self._door, request, timeout=self._patience)

    def expect(self, ids, *, deadline):
        self._ask(b"E" + json.dumps({"ids": list(ids), "deadline": deadline}).encode())

    def gather(self, needed, *, patience, looked=lambda: None):
        looked()
        return frozenset(json.loads(self._ask(b"G" + json.dumps({"needed": needed, "patience": patience}).encode())))

    def present(self):
        return frozenset(json.loads(self._ask(b"P")))

    def exchange(self, outbox):
        return unpack(self._ask(b"X" + pack(outbox.items())))

    def end(self):
        self._ask(b"Q")
