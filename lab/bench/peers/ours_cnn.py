"""choral's convolutional network on 28 × 28 images: `closed` form (the default), or `vmap_grad` of the same model.

`vmap_grad` gives the engine the same network as a user's own model, with the compiler's own convolutions or with the
matrix products of patches (`vmap_patches`).
"""

import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from bench.peers.ours import Grid, plan_of, records_of
from bench.work import Work, cohort_of
from bench.worker import serve
from choral.engine.compiled import CompiledEngine
from choral.learning import models
from choral.learning.models import Model, Tree

HIDDEN = (6, 16, 120, 84)


def convolved(tree: Tree, row: Array, label: Array) -> Array:
    """The loss of the same network, with the compiler's own convolutions."""
    here = row[None, None]
    for (weight, bias), colours in zip(tree[:2], (1, HIDDEN[0]), strict=True):
        kernel = weight.reshape(5, 5, colours, -1).transpose(3, 2, 0, 1)
        here = lax.conv(here, kernel, (1, 1), "SAME") + bias[None, :, None, None]
        _, depth, height, width = here.shape
        here = jax.nn.relu(here.reshape(1, depth, height // 2, 2, width // 2, 2).max((3, 5)))
    here = here.transpose(0, 2, 3, 1).reshape(1, -1)
    for weight, bias in tree[2:-1]:
        here = jax.nn.relu(here @ weight + bias)
    return -jax.nn.log_softmax((here @ tree[-1][0] + tree[-1][1])[0])[label]


def model_of(form: str) -> Model:
    net = models.cnn((28, 28), HIDDEN, 10)
    if form == "closed":
        return net
    loss = convolved if form == "vmap_grad" else net.loss
    return models.own(net.init, loss, net.predict, features=(28, 28), classes=10)


def prepare(values: dict[str, Any]) -> Callable[[int], NDArray[np.float32]]:
    work, model = Work.from_dict(values), model_of(sys.argv[1] if len(sys.argv) > 1 else "closed")
    records = records_of(work, (28, 28))
    engine = CompiledEngine(model=model, records=records, plan=plan_of(work, records), codec=Grid(), seed=1)
    shared, done = model.start(0), 0

    def rounds(count: int) -> NDArray[np.float32]:
        nonlocal shared, done
        cohorts = [cohort_of(work, number) for number in range(done, done + count)]
        for progress in engine.rounds(shared, cohorts, first=done, every=count):
            shared = progress.parameters
        done += count
        return shared

    return rounds


if __name__ == "__main__":
    serve(prepare)
