"""Shows that the contenders do the same work: with the noise off and the same batches they reach the same weights.

`python -m bench.same_work` prints, for each peer, the largest difference of any weight after one round.
"""

import tempfile
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bench.engine import peer
from bench.harness import NoFigureError
from bench.peers.ours import backend_of, flat_weights
from bench.work import ADULT_MLP, Work, batches_of, rows_of
from choral.learning.local import local_update

WORK = ADULT_MLP.but(noise=0.0, clip=0.5, cohort=3)  # a clip that binds, so that a peer that clips otherwise is seen
PEERS = ("opacus_loop", "opacus_ghost", "fedjax", "jax_privacy")  # those that take the batches they are given


def ours(work: Work) -> NDArray[np.float32]:
    """The weights after one round of our local steps on the peers' batches."""
    rows, backend, first = rows_of(work), backend_of(work), flat_weights(work)
    table = (jnp.asarray(first), jnp.asarray(rows.features), jnp.asarray(rows.labels))
    one = partial(local_update, backend.model, backend.recipe, *table)
    counts = np.full((work.cohort, work.steps), work.batch, np.int32)
    keys = np.zeros((work.cohort, work.steps + 1, 2), np.uint32)
    updates = jax.jit(jax.vmap(one))(batches_of(work, rows, 0).astype(np.int32), counts, keys)
    return first + np.asarray(updates).mean(axis=0)


def theirs(name: str) -> NDArray[np.float32] | str:
    """A peer's weights after the same round, or why there are none."""
    try:
        with peer(name) as other, tempfile.TemporaryDirectory() as folder:
            other.prepare(WORK)
            other.ask(rounds=1, save=f"{folder}/weights.npy")
            return np.load(f"{folder}/weights.npy")
    except NoFigureError as reason:
        return str(reason)


def main() -> None:
    found = {name: theirs(name) for name in PEERS}  # before ours: a process with JAX's threads should not fork
    mine, first = ours(WORK), flat_weights(WORK)
    print(f"one round moves a weight by up to {np.abs(mine - first).max():.2g}; the largest difference from ours is")
    for name, weights in found.items():
        print(f"  {name:<14} {weights if isinstance(weights, str) else f'{np.abs(weights - mine).max():.2g}'}")


if __name__ == "__main__":
    main()
