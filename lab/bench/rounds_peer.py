"""Plain Flower for bench.rounds: FedAvg without privacy, whose clients send the model back as it came."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

server = ServerApp()
client = ClientApp()


class Timed(FedAvg):
    """FedAvg that notes when each round's mean is there."""

    ends: list[float]

    def aggregate_train(self, *given: Any, **more: Any) -> Any:  # noqa: ANN401
        result = super().aggregate_train(*given, **more)
        self.ends.append(time.monotonic())
        return result


@server.main()
def fedavg(grid: Grid, context: Context) -> None:
    settings = context.run_config
    nodes = int(settings["nodes"])
    strategy = Timed(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
    strategy.ends = []
    model = ArrayRecord([np.zeros(int(settings["parameters"]), np.float32)])
    strategy.start(grid, model, num_rounds=int(settings["rounds"]))
    Path(str(settings["out"])).write_text(json.dumps(np.diff(strategy.ends).tolist()))


@client.train()
def train(message: Message, _: Context) -> Message:
    metrics = MetricRecord({"num-examples": 1})
    return Message(RecordDict({"arrays": message.content["arrays"], "metrics": metrics}), reply_to=message)
