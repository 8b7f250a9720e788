"""jax-privacy: its `clipped_grad` and privatizer in one compiled step, in a loop over the cohort's devices."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax_privacy
import optax

from bench.work import Work, batches_of, first_weights, rows_of
from bench.worker import serve

Params = list[tuple[jax.Array, jax.Array]]


def loss(params: Params, features: jax.Array, label: jax.Array) -> jax.Array:
    """Cross-entropy of one row."""
    values = features
    for weights, biases in params[:-1]:
        values = jax.nn.relu(values @ weights + biases)
    weights, biases = params[-1]
    return -jax.nn.log_softmax(values @ weights + biases)[label]


def prepare(values: dict[str, Any]) -> Callable[[int], Params]:
    work = Work.from_dict(values)
    rows = rows_of(work)
    clipped = jax_privacy.clipped_grad(
        loss, l2_clip_norm=work.clip, normalize_by=work.batch, batch_argnums=(1, 2), keep_batch_dim=False
    )
    privatizer = jax_privacy.noise_addition.gaussian_privatizer(stddev=work.noise, prng_key=jax.random.key(1))
    optimizer = optax.sgd(work.step_size)
    params = jax.tree_util.tree_map(jnp.asarray, first_weights(work))
    noise = privatizer.init(params)
    done = 0

    @jax.jit
    def step(params: Params, noise: Any, features: jax.Array, labels: jax.Array) -> tuple[Params, Any]:  # noqa: ANN401
        gradient, noise = privatizer.update(clipped(params, features, labels), noise)
        update, _ = optimizer.update(gradient, optimizer.init(params), params)
        return optax.apply_updates(params, update), noise

    def rounds(count: int) -> Params:
        nonlocal params, noise, done
        for number in range(done, done + count):
            total = jax.tree_util.tree_map(jnp.zeros_like, params)
            for batches in batches_of(work, rows, number):
                own = params
                for batch in batches:
                    own, noise = step(own, noise, rows.features[batch], rows.labels[batch])
                total = jax.tree_util.tree_map(jnp.add, total, own)
            params = jax.tree_util.tree_map(lambda sums: sums / work.cohort, total)
        done += count
        return jax.block_until_ready(params)

    return rounds


if __name__ == "__main__":
    serve(prepare)
