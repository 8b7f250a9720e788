"""A device on its own machine: the local steps of a simulation, with randomness that nobody can foresee."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from choral.errors import TableError, TrainingError
from choral.learning import noise, sampling, streams
from choral.learning.local import COMPILED, Recipe, local_update
from choral.learning.models import Model
from choral.learning.records import Labels
from choral.plan import Plan


class Trainer:
    """One device's records, what they have been used for, and its noisy updates.

    Batches and noise come from the operating system's randomness. `rounds` and `order`, the secret that fixes the order
    of passes that continue, are what a vault keeps between processes.
    """

    def __init__(
        self,
        *,
        model: Model,
        plan: Plan,
        features: NDArray[np.float32],
        labels: Labels,
        recipe: Recipe | None = None,
        rounds: int = 0,
        order: int | None = None,
    ) -> None:
        if features.shape != (len(labels), model.features):
            raise TableError(
                "CH312",
                f"features {features.shape} and labels {labels.shape}, the model takes {model.features} features.",
                fix="Give one label a row, and the columns that the plan names.",
            )
        if len(labels) < plan.rows:
            raise TableError(
                "CH305",
                f"this device has {len(labels):,} rows; the plan is for devices of {plan.rows:,} or more.",
                fix="Do not take part, or ask for a plan with fewer rows.",
            )
        self.model, self.plan, self.recipe = model, plan, recipe or Recipe.of(plan)
        self.features, self.labels = features, labels
        self.rounds = rounds
        self.order = int(streams.secure_words((1,))[0]) if order is None else order
        self.uses = sampling.Uses(plan, len(labels))
        self.room = sampling.room(plan, len(labels))

    def __repr__(self) -> str:
        """The model and sizes only: records and the order of passes are secret."""
        return f"Trainer({self.model.name}, {len(self.labels)} rows, {self.rounds} rounds)"

    def update(self, parameters: NDArray[np.float32]) -> NDArray[np.float32]:
        """θ_i − θ of the next round; its batches count as used, whether or not the update is ever sent.

        CH703 ahead of the first step if a record would be used more often than so many rounds are charged for.
        """
        batches, before = self._draw(), self.rounds
        self.rounds += 1
        self.uses.count(batches, before)
        return self._train(parameters, batches)

    def trial(self, parameters: NDArray[np.float32]) -> None:
        """Train as in the next round and drop the update: all is compiled and known to work, and no record is used."""
        self._train(parameters, self._draw())

    def _draw(self) -> sampling.Batches:
        """The next round's batches."""
        order = self.order if self.plan.passes == "continue" else int(streams.secure_words((1,))[0])
        key, before = np.array([order], dtype=np.uint64), np.array([self.rounds])
        shape = (1, self.plan.local_steps, self.room)
        sizes = np.array([len(self.labels)])
        return sampling.draw(self.plan, sizes, before, key, lambda _: streams.secure_words(shape), self.room)

    def _train(self, parameters: NDArray[np.float32], batches: sampling.Batches) -> NDArray[np.float32]:
        """The noisy update of these batches; CH700 if it is not finite."""
        drawn = noise.secure_normal((self.plan.local_steps + 1, self.model.size if self.recipe.private else 1))
        # Products before the clip may be short without harm to anybody's privacy; a device trains as well as it can.
        with jax.default_matmul_precision("highest"):
            given = (parameters, self.features, self.labels, batches.rows[0], batches.counts[0], drawn)
            update = np.asarray(_update(self.model, self.recipe, *given))
        if not np.isfinite(update).all():
            raise TrainingError(
                "CH700",
                f"round {self.rounds}: the update is not finite. Nothing was sent.",
                why="The steps are too large for this loss, or the features are not scaled.",
                fix="Ask for a plan with a smaller step size, and check the ranges of the table.",
            )
        return update


def _given(drawn: Array, shape: tuple[int, ...], start: int) -> Array:
    """A leaf's piece of Gaussians that were drawn before."""
    return lax.dynamic_slice_in_dim(drawn, start, int(np.prod(shape))).reshape(shape)


@partial(jax.jit, static_argnames=("model", "recipe"), compiler_options=COMPILED)
def _update(model: Model, recipe: Recipe, *given: Array) -> Array:
    return local_update(model, recipe, *(jnp.asarray(one) for one in given), draw=_given)
