"""A site's node: takes every message of the server to the device's own process, and the answer back.

It takes the place of `flower-supernode`, which looks for messages every three seconds, for an answer every half second,
and hands a message to an app only through another process and another HTTP API. This process has Flower's own
connection to the Fleet API and nothing else. It never fetches, installs or runs anything of the server's: a message is
bytes to hand on.
"""

import argparse
import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message
from flwr.proto.fleet_pb2 import DeactivateNodeRequest, DeactivateNodeResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree, push_objects
from flwr.supernode.fleet_http_connection import http_request_response

from choral.backends.connecting import Pauses, proxy_for
from choral.backends.flower.api import Api, signed
from choral.backends.flower.children import FED
from choral.backends.flower.parcels import relayed
from choral.core.errors import TrustError

LET_IN = "let in as node"  # what the log says first when the server knows this node
KNOCK, LONGEST = 2.0, 8.0  # seconds between two knocks at a server that is not up, and before another connection
NUMBER = ".number"  # the ending of the file, next to the node's key, with the number that the server last gave it
LEAST = 1.5  # seconds between two requests that bring nothing, if the gate does not hold them: half of a SuperNode's
AGAIN = 0.05  # seconds until a piece of a message that is still on its way to the server is asked for again


def attend(connection: tuple[Any, ...], answer: Callable[[Message], Message]) -> None:
    """Answer every message that comes through Flower's connection, for ever; one that fails is only lost itself."""
    _, receive, send, _, _, pull_object, push_object, confirm = connection
    while True:
        asked = time.monotonic()
        if (received := receive()) is None:
            time.sleep(max(0.0, asked + LEAST - time.monotonic()))
            continue
        run, tree = received[0].metadata.run_id, received[1]
        try:
            message = pull_and_inflate_object_from_tree(
                tree, partial(pull_object, run), partial(confirm, run), return_type=Message, initial_backoff=AGAIN
            )
            message.metadata.__dict__["_message_id"] = tree.object_id
            begun = time.monotonic()
            reply = answer(message)
            reply.metadata.__dict__["_message_id"] = reply.object_id
            missing, session = send(reply, get_object_tree(reply), time.monotonic() - begun)
            push_objects(get_all_nested_objects(reply), partial(push_object, run, session), object_ids_to_push=missing)
        except Exception as error:  # its text may be data; the run may have ended meanwhile
            print(f"a message failed: {type(error).__name__}", file=sys.stderr, flush=True)


def key_in(path: Path) -> EllipticCurvePrivateKey:
    """The node's private key; CH600 if the file holds none of an elliptic curve."""
    key = load_ssh_private_key(path.read_bytes(), None)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise TrustError("CH600", "a node's private key is not one of an elliptic curve.", fix="Join again.")
    return key


def _end_when_unfed() -> None:
    """End this process when the one that has started it is gone, where the system does not do so."""
    sys.stdin.buffer.read()
    os._exit(1)


def stay_connected(address: str, authority: Path, key: Path, answer: Callable[[Message], Message]) -> None:
    """Answer whatever the server asks, through as many connections as it takes; return when this node is not let in.

    A server that was started again does not know this node by the number that it had: it is let in once more.
    """
    private, pauses = key_in(key), Pauses(KNOCK, LONGEST)
    while True:
        await_listener(address)
        leave(address, authority, key)
        let_in = False
        try:
            with http_request_response(
                address, False, authority.read_bytes(), (private, private.public_key())
            ) as connection:
                let_in = True
                print(LET_IN, connection[0], flush=True)
                key.with_suffix(NUMBER).write_text(str(connection[0]))
                pauses.begin()
                attend(connection, answer)
        except KeyboardInterrupt:  # Flower's own, when the server refuses this node's key or its clock
            pass
        if not let_in:
            print("not let in", flush=True)
            return
        time.sleep(pauses.next())


def leave(address: str, authority: Path, key: Path) -> None:
    """Tell the server that this node is gone, by the number that it had last, in case that it was killed.

    A SuperLink that has not heard so takes a node that comes back for a second one and lets it in after a minute only.
    """
    path = key.with_suffix(NUMBER)
    with contextlib.suppress(OSError, ValueError, httpx.HTTPError), Api(address, authority=authority) as api:
        gone = DeactivateNodeRequest(node_id=int(path.read_text()))
        api.ask("/v1/fleet/deactivate-node", gone, DeactivateNodeResponse, signed(key_in(key)))


def await_listener(address: str) -> None:
    """Return when somebody listens at the address: Flower would wait up to 20 s after the server is up."""
    (host, _, port), pauses = address.rpartition(":"), Pauses(KNOCK, LONGEST)
    while proxy_for(host.strip("[]")) is None:
        with contextlib.suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK):
            return
        time.sleep(pauses.next())


def main() -> int:
    """Read the command line and work until ended; 1 if the server does not let this node in."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--superlink", required=True, help="host:port of the server")
    parser.add_argument("--authority", required=True, type=Path, help="certificate that vouches for the server's")
    parser.add_argument("--key", required=True, type=Path, help="this node's private key, in OpenSSH's format")
    parser.add_argument("--door", required=True, type=Path, help="socket of the device's own process")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the server hears that this node is gone
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if FED in os.environ:
        threading.Thread(target=_end_when_unfed, name="fed", daemon=True).start()
    stay_connected(args.superlink, args.authority, args.key, partial(relayed, door=args.door))
    return 1


if __name__ == "__main__":
    sys.exit(main())
