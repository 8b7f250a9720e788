"""What a coordinator asks its own SuperLink to do: let these nodes in, start this run, show its state, stop it."""

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.cli.build import build_fab_from_files
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListNodesResponse,
    ListRunsRequest,
    ListRunsResponse,
    RegisterNodeRequest,
    RegisterNodeResponse,
    StartRunRequest,
    StartRunResponse,
    StopRunRequest,
    StopRunResponse,
)
from flwr.proto.fab_pb2 import Fab
from flwr.proto.federation_config_pb2 import SimulationConfig
from flwr.proto.node_pb2 import NodeInfo

from choral.backends.flower.api import Api, key_bytes
from choral.core.errors import DeploymentError, TrustError

APP = """\
[project]
name = "choral-study"
version = "1.0.0"
description = "Carries a choral study; what it means, choral's own processes know."
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "choral"

[tool.flwr.app.components]
serverapp = "choral.backends.flower:server"
clientapp = "choral.backends.flower:device"

[tool.flwr.app.config]
conductor = {conductor}
folder = {folder}
doors = {doors}
"""


def app(folder: Path, *, conductor: str, doors: str = "") -> str:
    """The pyproject.toml of the Flower app that carries the study in a folder; it is all that the app consists of.

    `conductor` is the "module:function" that runs a study over a transport, where Flower starts the server's half.
    """
    values = {"conductor": conductor, "folder": str(folder.resolve()), "doors": doors}
    return APP.format(**{name: json.dumps(value) for name, value in values.items()})


@dataclass(frozen=True)
class State:
    """Where a run stands, in Flower's words: pending, starting, running or finished; how it ended, and why."""

    status: str
    ended: str
    details: str

    @property
    def over(self) -> bool:
        """Whether the run has ended, well or not."""
        return self.status == "finished"

    @property
    def completed(self) -> bool:
        """Whether the run has ended well."""
        return self.ended == "completed"


def public_key(line: str) -> bytes:
    """A node's public key, an OpenSSH line, in the form in which Flower knows it."""
    public = load_ssh_public_key(line.encode())
    if not isinstance(public, EllipticCurvePublicKey):
        raise TrustError("CH600", "a node's public key is not one of an elliptic curve.", fix="Join again.")
    return key_bytes(public)


class Control(AbstractContextManager["Control"]):
    """A connection to the Control API of the coordinator's own SuperLink."""

    def __init__(self, where: Path | str, *, authority: Path | None = None) -> None:
        """At a socket, or at an address: of a SuperLink without TLS, or of one that this authority vouches for."""
        self._api = Api(where, authority=authority, component="flwr CLI")

    def admit(self, keys: Iterable[str]) -> None:
        """Let in the nodes that have these keys (OpenSSH lines); who was let in before, stays."""
        with _asked("tell which nodes it knows"):
            known = {node.public_key for node in self._nodes()}
        for key in keys:
            if (data := public_key(key)) not in known:
                with _asked("let a node in"):
                    self._api.ask(
                        "/v1/control/register-node", RegisterNodeRequest(public_key=data), RegisterNodeResponse
                    )

    def nodes(self, devices: Mapping[str, str]) -> dict[int, str]:
        """Which device each node is that was let in: by the key on the device's card (an OpenSSH line)."""
        ids = {public_key(key): id for id, key in devices.items()}
        with _asked("tell which nodes it knows"):
            known = self._nodes()
        return {int(node.node_id): ids[node.public_key] for node in known if node.public_key in ids}

    def _nodes(self) -> Iterable[NodeInfo]:
        known: Iterable[NodeInfo] = self._api.ask(
            "/v1/control/list-nodes", ListNodesRequest(), ListNodesResponse
        ).nodes_info
        return known

    def start(self, folder: Path, *, conductor: str = "", doors: str = "", simulated: int = 0) -> int:
        """The number of a new run of the study in the folder; on simulated nodes, if any, by this conductor."""
        text = app(folder, conductor=conductor, doors=doors)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Flower's, about a class that its dependency renamed
            bundle = build_fab_from_files({"pyproject.toml": text.encode()})[0]
        request = StartRunRequest(fab=Fab(hash_str=hashlib.sha256(bundle).hexdigest(), content=bundle))
        if simulated:
            request.override_federation_config.CopyFrom(SimulationConfig(num_supernodes=simulated))
        with _asked("start the run"):
            return int(self._api.ask("/v1/control/start-run", request, StartRunResponse).run_id)

    def state(self, run: int) -> State:
        """Where the run stands now."""
        with _asked("tell how the run is"):
            known = self._api.ask("/v1/control/list-runs", ListRunsRequest(run_id=run), ListRunsResponse)
        status = known.run_dict[run].status
        return State(status.status, status.sub_status, status.details)

    def stop(self, run: int) -> None:
        """End the run; its conductor gets no chance to say goodbye."""
        with _asked("stop the run"):
            self._api.ask("/v1/control/stop-run", StopRunRequest(run_id=run), StopRunResponse)

    def close(self) -> None:
        """Hang up."""
        self._api.close()

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _asked(what: str) -> Iterator[None]:
    """A request whose failure is reported as an error of choral."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        raise _failed(what, f"it answered {error.response.status_code}") from None
    except httpx.TransportError:
        raise _failed(what, "it does not answer") from None


def _failed(what: str, why: str) -> DeploymentError:
    return DeploymentError(
        "CH900",
        f"the SuperLink did not {what}: {why}.",
        fix="See superlink.log in the study's folder; then start the server again, the run goes on.",
    )
