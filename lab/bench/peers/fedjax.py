"""fedjax: its `for_each_client` with a per-example clipped, noised gradient as each device's step.

fedjax has no differential privacy inside a device; this is its federated averaging with the gradient that DP-SGD needs.
"""

from collections.abc import Callable, Iterator
from typing import Any

import fedjax
import jax
import jax.numpy as jnp

from bench.work import Rows, Work, batches_of, first_weights, rows_of
from bench.worker import serve

Params = list[tuple[jax.Array, jax.Array]]


def loss(params: Params, features: jax.Array, label: jax.Array) -> jax.Array:
    """Cross-entropy of one row."""
    values = features
    for weights, biases in params[:-1]:
        values = jax.nn.relu(values @ weights + biases)
    weights, biases = params[-1]
    return -jax.nn.log_softmax(values @ weights + biases)[label]


def private_gradient(work: Work) -> Callable[[Params, dict[str, jax.Array], jax.Array], Params]:
    """The mean of clipped per-example gradients, with noise."""

    def gradient(params: Params, batch: dict[str, jax.Array], rng: jax.Array) -> Params:
        each = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(params, batch["x"], batch["y"])
        norms = jax.vmap(fedjax.tree_util.tree_l2_norm)(each)
        scale = jnp.minimum(1.0, work.clip / jnp.maximum(norms, 1e-12)) / work.batch
        leaves, tree = jax.tree_util.tree_flatten(each)
        noisy = [
            jnp.tensordot(scale, leaf, axes=1) + work.noise * jax.random.normal(key, leaf.shape[1:])
            for leaf, key in zip(leaves, jax.random.split(rng, len(leaves)), strict=True)
        ]
        return jax.tree_util.tree_unflatten(tree, noisy)

    return gradient


def clients(work: Work, rows: Rows, number: int) -> Iterator[tuple[int, list[dict[str, Any]], jax.Array]]:
    """Each device with its batches and its key, as for_each_client takes them."""
    keys = jax.random.split(jax.random.PRNGKey(number), work.cohort)
    for place, batches in enumerate(batches_of(work, rows, number)):
        yield place, [{"x": rows.features[batch], "y": rows.labels[batch]} for batch in batches], keys[place]


def prepare(values: dict[str, Any]) -> Callable[[int], Params]:
    work = Work.from_dict(values)
    rows = rows_of(work)
    optimizer = fedjax.optimizers.sgd(learning_rate=work.step_size)
    train = fedjax.algorithms.fed_avg.create_train_for_each_client(private_gradient(work), optimizer)
    params = jax.tree_util.tree_map(jnp.asarray, first_weights(work))
    done = 0

    def rounds(count: int) -> Params:
        nonlocal params, done
        for number in range(done, done + count):
            total = fedjax.tree_util.tree_zeros_like(params)
            for _, update in train(params, clients(work, rows, number)):
                total = fedjax.tree_util.tree_add(total, update)
            params = jax.tree_util.tree_map(lambda old, sums: old - sums / work.cohort, params, total)
        done += count
        return jax.block_until_ready(params)

    return rounds


if __name__ == "__main__":
    serve(prepare)
