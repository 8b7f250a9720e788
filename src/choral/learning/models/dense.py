"""Dense stacks: layers with ReLU between them, whose gradients are clipped in closed form."""

import math
from functools import lru_cache
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choral.core.plan import require_whole
from choral.learning.models.model import Link, Model, Tree


@lru_cache(maxsize=32)  # the same shapes are the same model, and compiled once
def dense(name: str, widths: tuple[int, ...], link: Link, classes: int) -> Model:
    """A stack of layers of these widths, the features first and the outputs last.

    >>> dense("linear", (3, 1), "squared", 0).size
    4
    """
    for width in widths:
        require_whole("a layer's width", width)

    def init(seed: int) -> Tree:
        # NumPy arrays: nothing is compiled for a start.
        if len(widths) == 2:  # a linear model starts at zero: its loss is convex
            return [(np.zeros(widths, dtype=np.float32), np.zeros(widths[1], dtype=np.float32))]
        draw = np.random.Generator(np.random.Philox(seed))
        return [
            (draw.normal(0, math.sqrt(2 / fan), (fan, out)).astype(np.float32), np.zeros(out, dtype=np.float32))
            for fan, out in pairwise(widths)
        ]

    def predict(tree: Tree, rows: Array) -> Array:
        for weight, bias in tree[:-1]:
            rows = jax.nn.relu(rows @ weight + bias)
        outputs: Array = rows @ tree[-1][0] + tree[-1][1]
        return outputs

    def loss(tree: Tree, x: Array, y: Array) -> Array:
        return losses(link, predict(tree, x[None]), y[None])[0]

    return Model(
        name=name,
        features=widths[0],
        classes=classes,
        init=init,
        loss=loss,
        predict=predict,
        widths=widths,
        link=link,
    )


def losses(link: Link, outputs: Array, labels: Array) -> Array:
    """Each row's loss for these outputs: cross-entropy, logistic, or half the squared error.

    >>> losses("squared", jnp.array([[3.0]]), jnp.array([1])).tolist()
    [2.0]
    """
    if link == "softmax":
        return -jnp.take_along_axis(jax.nn.log_softmax(outputs), labels[:, None], axis=1)[:, 0]
    if link == "sigmoid":
        return jax.nn.softplus(outputs[:, 0]) - labels * outputs[:, 0]
    return 0.5 * jnp.square(outputs[:, 0] - labels)


def slopes(link: Link, outputs: Array, labels: Array) -> Array:
    """Each row's gradient of `losses` in its outputs.

    >>> slopes("squared", jnp.array([[3.0]]), jnp.array([1])).tolist()
    [[2.0]]
    """
    if link == "softmax":
        return jax.nn.softmax(outputs) - jax.nn.one_hot(labels, outputs.shape[1])
    if link == "sigmoid":
        away = 1 - 2.0 * labels[:, None]  # 1 for the first class: so no slope is a difference that cancels
        return away * jax.nn.sigmoid(away * outputs)
    return outputs - labels[:, None]
