"""Flower's own SecAgg+, run in Flower's own environment: a JSON line in, a JSON line of seconds out.

The workflow and the client mod are Flower's, unchanged; only the network between them is left out. Time inside the mod
is the devices', the rest of the workflow is the server's; protobuf bytes are made and read on each side and kept apart.
Training counts for nobody. Which part of choral each is compared with is said in bench/secure_sum.py.
"""

import io
import json
import logging
import sys
import time
from importlib.metadata import version

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod.secure_aggregation.secaggplus_mod import secaggplus_mod
from flwr.common import Code, FitIns, FitRes, Parameters, Status, ndarrays_to_parameters
from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
from flwr.common.secure_aggregation.ndarrays_arithmetic import parameters_addition
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.compat.common import recorddict_compat as compat
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from flwr.server.workflow.secure_aggregation.secaggplus_workflow import SecAggPlusWorkflow
from flwr.supercore.primitives.asymmetric import (
    bytes_to_private_key,
    bytes_to_public_key,
    generate_key_pairs,
    private_key_to_bytes,
    public_key_to_bytes,
)
from flwr.supercore.task_identity import TaskIdentity

clock = time.perf_counter


class Proxy:
    def __init__(self, node_id: int) -> None:
        self.node_id = node_id


class Strategy:
    """Asks everybody to fit the model, and keeps the aggregate that it is shown."""

    def __init__(self, count: int) -> None:
        self.proxies = [Proxy(number + 1) for number in range(count)]
        self.parameters = None

    def configure_fit(self, _: int, model: Parameters, __: object) -> list:
        return [(proxy, FitIns(model, {})) for proxy in self.proxies]

    def aggregate_fit(self, _: int, results: list, __: list) -> tuple:
        self.parameters = results[0][1].parameters
        return None, {}


class Manager:
    def num_available(self) -> int:
        return 0


class Grid:
    """Carries messages as Flower's protobuf bytes; devices in `dropped` are silent from the upload on.

    Who sends pays for making the bytes, who receives for reading them; `wire` keeps that apart for both.
    """

    def __init__(self, update: np.ndarray, dropped: set[int]) -> None:
        self.update, self.dropped, self.stage = update, dropped, 0
        self.training = self.inside = 0.0
        self.device = {"work": 0.0, "wire": 0.0}
        self.server = {"wire": 0.0}
        self.contexts: dict[int, Context] = {}

    def train(self, message: Message, _: Context) -> Message:
        start = clock()
        result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([self.update]), 1000, {})
        reply = Message(compat.fitres_to_recorddict(result, False), reply_to=message)
        self.training += clock() - start
        return reply

    def send_and_receive(self, messages: list, timeout: object = None) -> list:
        del timeout
        entered, replies = clock(), []
        for message in messages:
            node = message.metadata.dst_node_id
            if self.stage >= 2 and node in self.dropped:
                continue
            context = self.contexts.setdefault(node, Context(0, node, {}, RecordDict(), {}))
            heard = self._carry(message, self.server, self.device)
            TaskIdentity.node_id = node
            start = clock()
            reply = secaggplus_mod(heard, context, self.train)
            if node not in self.dropped:
                self.device["work"] += clock() - start
            replies.append(self._carry(reply, self.device, self.server))
        TaskIdentity.node_id = 0
        self.stage += 1
        self.inside += clock() - entered
        return replies

    def _carry(self, message: Message, sender: dict, receiver: dict) -> Message:
        start = clock()
        data = message_to_proto(message).SerializeToString()
        sent = clock()
        heard = message_from_proto(ProtoMessage.FromString(data))
        sender["wire"] += sent - start
        receiver["wire"] += clock() - sent
        return heard


def round_of(*, devices: int, shares: int, threshold: int, dimensions: int, dropped: int) -> dict:
    """One whole round: seconds of a device (the mean) and of the server, and whether the mean came out right."""
    update = np.random.default_rng(0).uniform(-1, 1, dimensions).astype(np.float32)
    strategy = Strategy(devices)
    state = RecordDict()
    state[MAIN_CONFIGS_RECORD] = ConfigRecord({WorkflowKey.CURRENT_ROUND: 1})
    model = ndarrays_to_parameters([np.zeros(dimensions, np.float32)])
    state[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(model, False)
    context = LegacyContext(Context(0, 0, {}, state, {}), strategy=strategy, client_manager=Manager())
    grid = Grid(update, set(range(1, dropped + 1)))
    workflow = SecAggPlusWorkflow(shares, threshold)
    start = clock()
    workflow(grid, context)
    total = clock() - start
    mean = np.load(io.BytesIO(strategy.parameters.tensors[0]))
    # Flower weighs by examples, so the mean of equal updates is the update, up to its quantisation.
    staying = devices - dropped
    return {
        "device": (grid.device["work"] - grid.training) / staying,
        "device_wire": grid.device["wire"] / staying,
        "server": total - grid.inside,
        "server_wire": grid.server["wire"],
        "error": float(np.abs(mean - update).max()),
    }


def mask_of(*, dimensions: int, repeats: int) -> dict:
    """Best seconds of the stream alone, and of one turn of Flower's masking loop: agree, draw, add."""
    vector = [np.zeros(dimensions, np.int64)]
    own, peer = (generate_key_pairs() for _ in range(2))
    secret, public = private_key_to_bytes(own[0]), public_key_to_bytes(peer[1])
    streams, turns = [], []
    for _ in range(repeats):
        start = clock()
        key = generate_shared_key(bytes_to_private_key(secret), bytes_to_public_key(public))
        agreed = clock()
        vector = parameters_addition(vector, pseudo_rand_gen(key, 2**32, [(dimensions,)]))
        end = clock()
        streams.append(end - agreed)
        turns.append(end - start)
    return {"stream": min(streams), "turn": min(turns)}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 0
    tasks = {"round": round_of, "mask": mask_of, "version": lambda: {"version": version("flwr")}}
    for line in sys.stdin:
        task = json.loads(line)
        print(json.dumps(tasks[task.pop("task")](**task)), flush=True)
