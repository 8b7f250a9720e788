"""An enrolled site that speaks to another site as if it were the server, in a real deployment with real processes."""

import json

import httpx
import pytest

pytest.importorskip("flwr", reason="an extra of choral's")

from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message, RecordDict
from flwr.common.serde import message_to_proto
from flwr.proto.control_pb2 import ListNodesRequest, ListNodesResponse, ListRunsRequest, ListRunsResponse
from flwr.proto.fleet_pb2 import PushMessagesRequest, PushMessagesResponse
from flwr.proto.message_pb2 import PushObjectRequest, PushObjectResponse
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.task_identity import TaskIdentity

from choral.backends.flower.api import Api, key_bytes, signed
from choral.backends.flower.parcels import KIND, parcel
from choral.backends.local_socket import FRAME
from choral.core.ledger import Ledger
from choral.core.messages import Call, Close, Final, Turn, encode
from choral.deploy.home import AUTHORITY
from choral.deploy.local import LocalDeployment
from choral.deploy.status import status
from choral.record import read_run
from tests.run.consortium import JOB, NAMES, table

SERVER = 1  # Flower's number of the server's own node


class Attacker:
    """Somebody with the node key of one enrolled site, who knows the numbers of the others: a SuperLink lists them."""

    def __init__(self, made, name, link):
        home = next(home for home in made.homes if home.joined.name == name)
        self.key = load_ssh_private_key((home.path / "node.key").read_bytes(), None)
        self.terms, self.link = made.agreement.terms, link
        self.gate = made.invitation.address, made.study_folder / AUTHORITY
        with Api(link) as api:
            nodes = api.ask("/v1/control/list-nodes", ListNodesRequest(), ListNodesResponse).nodes_info
            runs = api.ask("/v1/control/list-runs", ListRunsRequest(), ListRunsResponse).run_dict
        own = key_bytes(self.key.public_key())
        self.number = next(node.node_id for node in nodes if node.public_key == own)
        self.others = [node.node_id for node in nodes if node.public_key != own]
        self.run = max(runs)

    def frames(self):
        zeros = bytes(self.terms.model_bytes)
        yield encode(Close(turn=Turn(3, 0), record=bytes(32)), zeros)
        yield encode(Call(turn=Turn(2**20, 0)))
        yield encode(Final(turn=Turn(1, 0), following=None))

    def push(self, api, victim, frame):
        """A message for a victim that says it comes from the server, with all of its parts."""
        message = Message(parcel(FRAME + frame), victim, KIND, ttl=600.0)
        message.metadata.__dict__ |= {"_run_id": self.run, "_src_node_id": SERVER}
        message.metadata.__dict__["_message_id"] = message.object_id
        tree, parts = get_object_tree(message), get_all_nested_objects(message)
        bare = Message(RecordDict(), victim, KIND, ttl=600.0)
        bare.metadata.__dict__ |= message.metadata.__dict__
        asked = PushMessagesRequest(
            node=Node(node_id=self.number), messages_list=[message_to_proto(bare)], message_object_trees=[tree],
            clientapp_runtime_list=[0.1],
        )  # fmt: skip
        answer = api.ask("/v1/fleet/push-messages", asked, PushMessagesResponse, signed(self.key))
        for id, part in parts.items():
            piece = PushObjectRequest(
                node=Node(node_id=self.number), run_id=self.run, session_id=answer.session_id, object_id=id,
                object_content=part.deflate(),
            )  # fmt: skip
            api.ask("/v1/fleet/push-object", piece, PushObjectResponse, signed(self.key))

    def through_the_gate(self):
        """The statuses by which the gate answers."""
        address, authority = self.gate
        refused = []
        with Api(address, authority=authority, component="SuperNode") as api:
            for frame in self.frames():
                with pytest.raises(httpx.HTTPStatusError) as caught:
                    self.push(api, self.others[0], frame)
                refused.append(caught.value.response.status_code)
        return refused

    def past_the_gate(self):
        """What a SuperLink without this gate takes: it stores each message as an instruction for its victim."""
        with Api(self.link, component="SuperNode") as api:
            for victim in self.others:
                for frame in self.frames():
                    self.push(api, victim, frame)


def logged(home, event):
    lines = map(json.loads, (home.path / "log.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == event]


@pytest.mark.long
def test_a_node_that_speaks_as_the_server_is_refused_by_gate_and_sites_and_the_study_goes_on(tmp_path, monkeypatch):
    for name in ("_run_id", "_node_id", "_task_id"):  # what Flower knows within an app
        monkeypatch.setattr(TaskIdentity, name, 1)
    tables = {name: table(tmp_path / f"{name}.csv", seed=seed) for seed, name in enumerate(NAMES)}
    made = LocalDeployment(tmp_path, JOB.replace("rounds = 3", "rounds = 6"), tables)
    statuses = None
    for state in made.run():
        if statuses is None and state["rounds_done"] >= 1:
            attacker = Attacker(made, NAMES[0], made.study_folder / "flower" / "link.sock")
            statuses = attacker.through_the_gate()
            attacker.past_the_gate()
    assert statuses == [403] * 3
    victims = [home for home in made.homes if home.joined.name != NAMES[0]]
    for home in victims:
        refused = [(line["code"], line["cause"]) for line in logged(home, "refusal")]
        assert refused == [("CH622", "server")] * 3
        assert "CH622 a frame is not one of the study's server" in (home.path / f"{home.joined.name}.log").read_text()
        assert status(home).finished and not status(home).ended_early
    record = read_run(next((made.study_folder / "runs").iterdir()))
    assert [line.included for line in record.rounds] == [(0, 1, 2)] * 6
    assert record.result.stopped == "all rounds are done" and not record.result.refused
    assert all(len(Ledger.read(home.ledger_path).balance.charges) == 6 for home in made.homes)
