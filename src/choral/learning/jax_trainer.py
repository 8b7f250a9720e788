"""Local steps in JAX on one device: the very function that a simulation maps over its cohort."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from choral.learning.batches import Batches
from choral.learning.local import COMPILED, local_update
from choral.learning.models import Model
from choral.learning.recipe import Recipe, TracedNumbers
from choral.tables.records import Labels


class JaxTrainer:
    """Trains a model of choral's own, or a user's own in JAX, on one device's records."""

    def __init__(self, model: Model, recipe: Recipe, features: NDArray[np.float32], labels: Labels) -> None:
        self.model, self.recipe, self.records = model, recipe, (features, labels)

    def train(self, parameters: NDArray[np.float32], batches: Batches, noise: NDArray[Any]) -> NDArray[np.float32]:
        """θ_i − θ after the recipe's steps."""
        # Products before the clip may be short without harm to anybody's privacy; a device trains as well as it can.
        with jax.default_matmul_precision("highest"):
            given = (parameters, *self.records, batches.rows[0], batches.counts[0], noise)
            numbers = TracedNumbers.of(self.model.fixed or self.model, self.recipe, batches.rows.shape[-1])
            return np.asarray(_update(self.model, self.recipe.form, numbers, *given))


def _given(drawn: Array, shape: tuple[int, ...], start: int) -> Array:
    """A leaf's piece of Gaussians that were drawn before."""
    return lax.dynamic_slice_in_dim(drawn, start, int(np.prod(shape))).reshape(shape)


@partial(jax.jit, static_argnames=("model", "form"), compiler_options=COMPILED)
def _update(model: Model, form: Recipe, numbers: TracedNumbers, *given: Array) -> Array:
    return local_update(model, form, *(jnp.asarray(one) for one in given), numbers=numbers, draw=_given)
