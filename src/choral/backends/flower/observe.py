"""What a stranger meets at a study's address, found out by trying: what a deployment claims, it has observed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from flwr.proto.control_pb2 import ListRunsRequest, ListRunsResponse
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    ActivateNodeResponse,
    RegisterNodeFleetRequest,
    RegisterNodeFleetResponse,
)

from choral.backends.flower.api import HEARTBEAT, Api, key_bytes, signed

_DONE = 200


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Which doors were found shut."""

    tls: bool  # no answer without it, and an answer with a certificate of the study's authority
    node_authentication: bool  # a node whose key nobody registered can neither register nor connect
    control_closed: bool  # who can't even list the runs can't start one


def observe(address: str, *, authority: Path) -> Observed:
    """Try the doors at this address as somebody who has the invitation and nothing else."""
    private = generate_private_key(SECP384R1())
    key = key_bytes(private.public_key())
    entering = RegisterNodeFleetRequest(public_key=key)
    connecting = ActivateNodeRequest(public_key=key, heartbeat_interval=HEARTBEAT)
    with Api(address, authority=authority, component="SuperNode") as api:
        entries = [
            _status(partial(api.ask, "/v1/fleet/register-node", entering, RegisterNodeFleetResponse, signed(private))),
            _status(partial(api.ask, "/v1/fleet/activate-node", connecting, ActivateNodeResponse, signed(private))),
        ]
        listing = _status(partial(api.ask, "/v1/control/list-runs", ListRunsRequest(), ListRunsResponse))
    return Observed(
        tls=_unanswered(f"http://{address}/v1/fleet/pull-messages") and None not in entries,
        node_authentication=all(status not in (None, _DONE) for status in entries),
        control_closed=listing not in (None, _DONE),
    )


def _status(ask: Callable[[], object]) -> int | None:
    """The HTTP status of the answer, or None if there is none."""
    try:
        ask()
    except httpx.HTTPStatusError as error:
        return error.response.status_code
    except httpx.TransportError:
        return None
    return _DONE


def _unanswered(url: str) -> bool:
    try:
        httpx.post(url, timeout=10)
    except httpx.TransportError:
        return True
    return False
