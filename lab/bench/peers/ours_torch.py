"""choral with PyTorch as the trainer: the same rounds as `ours`, by `choral.torch` and the engine for other frameworks.

`dense` is the work's dense network, `lenet` the convolutional one of `bench.peers.opacus_lenet`.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from bench.peers.nets import dense_net, lenet
from bench.peers.ours import Grid, plan_of, records_of
from bench.work import Work, cohort_of
from bench.worker import serve
from choral.engine.per_device import PerDeviceEngine
from choral.learning.models import Model
from choral.learning.torch_door import own
from choral.server_step import mean


def model_of(work: Work, form: str) -> Model:
    """The network of the work, starting from the weights that every contender starts from."""
    if form == "lenet":
        return own(lenet(), cross_entropy, features=(1, 28, 28), classes=10, keep_weights=True)
    net = dense_net(work)
    return own(net, cross_entropy, features=work.layers[0], classes=work.layers[-1], keep_weights=True)


def prepare(values: dict[str, Any]) -> Callable[[int], NDArray[np.float32]]:
    work, form = Work.from_dict(values), sys.argv[1] if len(sys.argv) > 1 else "dense"
    model = model_of(work, form)
    records = records_of(work, (1, 28, 28) if form == "lenet" else None)
    engine = PerDeviceEngine(model=model, records=records, plan=plan_of(work, records), codec=Grid(), seed=1)
    shared, done = model.start(0), 0

    def rounds(count: int) -> NDArray[np.float32]:
        nonlocal shared, done
        for number in range(done, done + count):
            found = engine.train(shared, number, cohort_of(work, number))
            shared = shared + mean(found.total, found.count, Grid.grid)
        done += count
        return shared

    return rounds


if __name__ == "__main__":
    serve(prepare)
