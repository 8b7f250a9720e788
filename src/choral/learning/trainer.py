"""A device on its own machine: batches and noise that nobody can predict, local steps by any framework."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from choral.core.errors import TableError, TrainingError
from choral.core.plan import Plan
from choral.learning import noise, streams
from choral.learning.batches import Batches, drawer_of
from choral.learning.local import COMPILED, local_update
from choral.learning.models import Model
from choral.learning.recipe import Recipe, TracedNumbers
from choral.tables.records import Labels, by

Vector = NDArray[np.float32]


class Trainer(Protocol):
    """Lines 5 to 10 of Algorithm 1 in one framework, on the records that it was made with.

    choral draws the batches and the noise, counts uses and charges for them; a trainer computes. The accounting rests
    on this: in every step each example's gradient is clipped to `recipe.clip` before it is added to any other, the sum
    over the batch gets this step's noise times `recipe.noise_on_sum` (or more, if the framework rounds more coarsely
    than float32), the divisor is `recipe.batch`, whatever the batch holds, and the update is multiplied by
    `recipe.weight` at the end. No gradient depends on the other rows of its batch.
    """

    def train(self, parameters: Vector, batches: Batches, noise: NDArray[Any]) -> Vector:
        """θ_i − θ after the recipe's steps from θ on the only device of these batches.

        `noise` holds a row of standard Gaussians for each step, and one row more for a recipe that clips the whole
        update; without noise its rows have one number.
        """


class SideBySide(Trainer, Protocol):
    """A trainer that can also be made with the rows of all devices, and trains several of them in one call."""

    @staticmethod
    def lanes(model: Model) -> int:
        """How many devices one call should train."""

    def train_together(
        self, parameters: Vector, batches: Batches, starts: NDArray[np.int64], noise: NDArray[Any]
    ) -> Vector:
        """The updates of several devices whose rows begin at these places; no update depends on the other devices."""


MakeTrainer = Callable[[Model, Recipe, NDArray[np.float32], Labels], Trainer]  # of a device's features and labels


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
            return np.asarray(jax_update(self.model, self.recipe.form, numbers, *given))


def _given(drawn: Array, shape: tuple[int, ...], start: int) -> Array:
    """A leaf's piece of Gaussians that were drawn before."""
    return lax.dynamic_slice_in_dim(drawn, start, int(np.prod(shape))).reshape(shape)


@partial(jax.jit, static_argnames=("model", "form"), compiler_options=COMPILED)
def jax_update(model: Model, form: Recipe, numbers: TracedNumbers, *given: Array) -> Array:
    """The very function that a simulation maps over its cohort, with Gaussians that were drawn before."""
    return local_update(model, form, *(jnp.asarray(one) for one in given), numbers=numbers, draw=_given)


class LocalTraining:
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
        require_rows(model, plan, features, labels)
        self.model, self.plan, self.rows = model, plan, len(labels)
        self.recipe = recipe or Recipe.of(plan, self.rows)
        self.trainer: Trainer = (model.trainer or JaxTrainer)(model, self.recipe, features, labels)
        self.rounds = rounds
        self.order = int(streams.secure_words((1,))[0]) if order is None else order
        self.drawer = drawer_of(plan)
        self.uses = self.drawer.uses(self.rows)
        self.room = self.drawer.room(self.rows)

    def __repr__(self) -> str:
        """The model and sizes only: records and the order of passes are secret."""
        return f"LocalTraining({self.model.name}, {self.rows} rows, {self.rounds} rounds)"

    def check(self, parameters: Vector) -> None:  # noqa: ARG002 - what is proved of noisy steps holds for every model
        """Nothing: no model is refused here."""
        return

    def update(self, parameters: Vector) -> Vector:
        """θ_i − θ of the next round; its batches count as used, whether or not the update is ever sent.

        CH703 ahead of the first step if a record would be used more often than so many rounds are charged for.
        """
        batches, before = self._draw(), self.rounds
        self.rounds += 1
        if self.uses is not None:
            self.uses.count(batches, before)
        return self._train(parameters, batches)

    def trial(self, parameters: Vector) -> None:
        """Train as in the next round and drop the update: all is compiled and known to work, and no record is used."""
        self._train(parameters, self._draw())

    def _draw(self) -> Batches:
        """The next round's batches."""
        order = self.order if self.drawer.one_order else int(streams.secure_words((1,))[0])
        key, before = np.array([order], dtype=np.uint64), np.array([self.rounds])
        shape = (1, self.plan.local_steps, self.room)
        return self.drawer.draw(np.array([self.rows]), before, key, lambda _: streams.secure_words(shape), self.room)

    def _train(self, parameters: Vector, batches: Batches) -> Vector:
        """The noisy update of these batches; CH700 if it is not finite."""
        drawn = noise.secure_normal((self.plan.local_steps + 1, self.model.size if self.recipe.private else 1))
        update = self.trainer.train(parameters, batches, drawn)
        if not np.isfinite(update).all():
            raise TrainingError(
                "CH700",
                f"round {self.rounds}: the update is not finite. Nothing was sent.",
                why="The steps are too large for this loss, or the features are not scaled.",
                fix="Ask for a plan with a smaller step size, and check the ranges of the table.",
            )
        return update


def require_rows(model: Model, plan: Plan, features: NDArray[np.float32], labels: Labels) -> None:
    """Refuse a device's rows that do not go with the model or are fewer than the plan is for."""
    if features.shape != (len(labels), *model.row):
        raise TableError(
            "CH312",
            f"features {features.shape} and labels {labels.shape}, the model takes {by(model.row)} features.",
            fix="Give one label per row, and the columns that the plan names.",
        )
    if len(labels) < plan.least_rows:
        raise TableError(
            "CH305",
            f"this device has {len(labels):,} rows; the plan is for devices of {plan.least_rows:,} or more.",
            fix="Do not take part, or ask for a plan with fewer rows.",
        )
