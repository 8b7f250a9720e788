"""How one real device trains: the same steps as in a simulation, with batches and noise that nobody can foresee."""

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from choral.learning import noise, sampling, streams
from choral.learning.local import Recipe, local_update
from choral.learning.models import Model
from choral.plan import Plan


def _given(values: Array, shape: tuple[int, ...], start: int) -> Array:
    """Noise that was drawn beforehand: the part of a flat vector from `start` on."""
    return lax.dynamic_slice_in_dim(values, start, int(np.prod(shape))).reshape(shape)


class Trainer:
    """One device's records and how it trains on them; every update draws fresh from the operating system's entropy."""

    def __init__(
        self,
        model: Model,
        plan: Plan,
        features: NDArray[np.float32],
        labels: NDArray[Any],
        *,
        overflow: float,
        rounds_before: int = 0,
    ) -> None:
        self.plan, self.model, self.rounds = plan, model, rounds_before
        self._features, self._labels = jnp.asarray(features), jnp.asarray(labels)
        self._size = np.array([len(labels)])
        self._key = streams.secure_words((1,))
        self._room = plan.batch
        if plan.sampling == "poisson":
            steps = plan.rounds * plan.local_steps
            self._room = min(sampling.capacity(plan.batch, steps, overflow), len(labels))
        self._update = compiled_update(model, Recipe.of(plan))

    def update(self, parameters: NDArray[np.float32]) -> NDArray[np.float32]:
        """θ_i − θ of one round."""
        drawn = self._batches()
        self.rounds += 1
        gaussians = noise.secure_normal((self.plan.local_steps + 1, self.model.size))
        arrays = (self._features, self._labels, drawn.rows[0], drawn.counts[0])
        return np.asarray(self._update(jnp.asarray(parameters), *arrays, jnp.asarray(gaussians)))

    def _batches(self) -> sampling.Batches:
        plan = self.plan
        if plan.sampling == "poisson":
            return sampling.poisson(self._size, plan.batch, streams.secure_words((1, plan.local_steps, self._room)))
        if plan.passes == "reshuffle":
            return sampling.partition(
                self._size, plan.batch, np.array([0]), plan.local_steps, streams.secure_words((1,))
            )
        return sampling.partition(
            self._size, plan.batch, np.array([self.rounds * plan.local_steps]), plan.local_steps, self._key
        )


@lru_cache(maxsize=8)
def compiled_update(model: Model, recipe: Recipe) -> Any:  # noqa: ANN401 - a compiled function of JAX
    """`local_update` with given noise, compiled once for all devices of one process that share model and recipe."""
    return jax.jit(partial(local_update, model, recipe, draw=_given))
