"""Flower's simulation engine (Ray) with FedAvg, and Opacus's parts inside each ClientApp.

The ServerApp answers the harness, so that Ray's start is not in a round's time. Opacus has one thread a device, and Ray
runs as many devices at once as there are cores. `engine` (the default) trains as tutorials do, with PrivacyEngine and
its data loader; `hooks` is leaner: slices of a tensor, and neither loader nor accountant.
"""

import os
import sys
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_DEDUP_LOGS"] = "0"

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from bench.harness import CORES
from bench.peers.nets import dense_net
from bench.peers.opacus import private_step, train_with_engine
from bench.work import ADULT_MLP, Rows, Work, rows_of
from bench.worker import serve

WORK = ADULT_MLP  # Flower fixes the number of devices when a simulation starts, so this worker does one work
client_app, server_app = ClientApp(), ServerApp()


@lru_cache
def _rows() -> Rows:
    return rows_of(WORK)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """One device's local steps."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = _rows()
    own = rows.of(int(context.node_config["partition-id"]))
    model = dense_net(WORK)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    if message.content["config"]["form"] == "engine":
        train_with_engine(WORK, model, torch.from_numpy(rows.features[own]), torch.from_numpy(rows.labels[own]).long())
    else:
        step = private_step(WORK, model, ghost=False)
        order = np.random.permutation(np.arange(own.start, own.stop))
        for batch in np.resize(order, (WORK.steps, WORK.batch)):
            step(torch.from_numpy(rows.features[batch]), torch.from_numpy(rows.labels[batch]).long())
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": own.stop - own.start}),
        }
    )
    return Message(content=content, reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
    """Answers the harness until it is done."""
    serve(lambda values: prepare(values, grid))


def prepare(values: dict[str, Any], grid: Grid) -> Callable[[int], None]:
    if Work.from_dict(values) != WORK:
        raise ValueError("this worker does the Adult MLP only")
    arrays = ArrayRecord(dense_net(WORK).state_dict())
    form = ConfigRecord({"form": sys.argv[1] if len(sys.argv) > 1 else "engine"})

    def rounds(count: int) -> None:
        nonlocal arrays
        strategy = FedAvg(
            fraction_train=WORK.cohort / WORK.devices, fraction_evaluate=0.0, min_available_nodes=WORK.devices
        )
        result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=count, train_config=form)
        if len(result.arrays) != len(arrays):  # Flower goes on when every ClientApp fails; a figure of that is none
            raise RuntimeError("no device sent an update")
        arrays = result.arrays

    return rounds


if __name__ == "__main__":
    from bench.peers import flower_opacus as importable  # Ray's actors can't reach what is defined in __main__

    run_simulation(
        server_app=importable.server_app,
        client_app=importable.client_app,
        num_supernodes=WORK.devices,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": CORES, "include_dashboard": False},
        },
    )
