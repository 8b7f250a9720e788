"""What a stranger meets at a study's address, found out by trying: what a deployment claims, it has observed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL
from flwr.proto.control_pb2 import ListRunsRequest
from flwr.proto.fleet_pb2 import ActivateNodeRequest, RegisterNodeFleetRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

_DONE = 200


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Which doors were found shut."""

    tls: bool  # no answer without it, and an answer with a certificate of the study's authority
    node_authentication: bool  # a node whose key nobody registered can neither register nor connect
    control_closed: bool  # who can't even list the runs can't start one


def observe(address: str, *, authority: Path) -> Observed:
    """Try the doors at this address as somebody who has the invitation and nothing else."""
    private, public = generate_key_pairs()
    key = public_key_to_bytes(public)
    version = RuntimeVersionHttpInterceptor(component_name="SuperNode")
    signing = NodeAuthHttpInterceptor(private, public)
    trusted = authority.read_bytes()
    with (
        FleetHttpClient.from_server_address(address, False, trusted, [version, signing]) as fleet,
        ControlHttpClient.from_server_address(address, False, trusted, [version]) as control,
    ):
        connecting = ActivateNodeRequest(public_key=key, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
        entries = [
            _status(fleet.RegisterNode, RegisterNodeFleetRequest(public_key=key)),
            _status(fleet.ActivateNode, connecting),
        ]
        listing = _status(control.ListRuns, ListRunsRequest())
    return Observed(
        tls=_unanswered(f"http://{address}/v1/fleet/pull-messages") and None not in entries,
        node_authentication=all(status not in (None, _DONE) for status in entries),
        control_closed=listing not in (None, _DONE),
    )


def _status(ask: Callable[[Any], object], request: object) -> int | None:
    """The HTTP status of the answer, or None if there is none."""
    try:
        ask(request)
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
