"""A round for a whole cohort in compiled calls, on one machine; masks are left out, since they cancel in the sum.

The sum is taken in the codec's integers, so it equals the secure sum bit for bit. A device's update depends on the
plan, the model, its records, the seed and the round alone: every call has the same shape and the same number of lanes,
fixed by plan and kind of processor, so neither the cohort, nor who drops out, nor the memory, nor the number of
accelerators changes a bit of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from choral.errors import PlanError, TableError, TrainingError
from choral.learning import noise, sampling, streams
from choral.learning.feed import Feed, devices_in_flight
from choral.learning.local import Recipe, local_update
from choral.learning.models import Model
from choral.learning.records import Records
from choral.plan import Plan
from choral.secagg.codec import quantise

OVERFLOW = 1e-8  # β: the chance over a run that one device's Poisson batches exceed their room; added to δ
MOST_DEVICES = 2**15  # in a round: the low halves of so many integers, added, still fit 31 bits
LANES = {"cpu": 2**20}  # parameters in one call: what a core's cache holds
LANES_ELSEWHERE = 2**28  # and what fills an accelerator
RARE = 0.05  # how often the tail of a batch's room may be computed; it is skipped where no lane needs it
FINE, NOT_FINITE, TOO_LARGE = 0, 1, 2  # what a call says of a device's update

Devices = NDArray[np.int64]
Included = NDArray[np.bool_]


class Grid(Protocol):
    """What the engine needs of the codec: the step of the grid, and the most steps of one coordinate of one update."""

    @property
    def grid(self) -> float: ...  # noqa: D102
    @property
    def largest(self) -> int: ...  # noqa: D102


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundSum:
    """What the server learns of a round: the sum of the included updates in grid steps, and how many there are."""

    total: NDArray[np.int64]
    count: int


class Vectorised:
    """Rounds of Algorithm 1 for whole cohorts; `train` is the one method that a federation needs of a backend.

    `lanes`, the devices in one compiled call, is part of what fixes the bits; `chunk`, the devices under way before the
    host waits, is not.
    """

    def __init__(
        self,
        *,
        model: Model,
        records: Records,
        plan: Plan,
        codec: Grid,
        seed: int,
        recipe: Recipe | None = None,
        accelerator: str | None = None,
        lanes: int | None = None,
        chunk: int | None = None,
    ) -> None:
        check_fit(model, records, plan)
        self.model, self.records, self.plan, self.codec, self.seed = model, records, plan, codec, seed
        self.recipe = recipe or Recipe.of(plan)
        self.processors = processors(accelerator)
        self.room = plan.batch
        if plan.sampling == "poisson":
            steps = plan.rounds * plan.local_steps
            self.room = min(sampling.capacity(plan.batch, steps, OVERFLOW), int(records.sizes.max()))
        weight = model.size * (1 if model.widths else self.room)  # what a lane holds of parameters or gradients
        most = LANES.get(self.processors[0].platform, LANES_ELSEWHERE)
        self.lanes = lanes or max(1, min(plan.cohort, most // weight))
        self.feed = Feed(records, self.processors, self.lanes, plan.local_steps * self.room)
        flying = self.feed.bytes_in_flight + 4 * model.size
        self.chunk = max(self.lanes, chunk or devices_in_flight(flying, self.lanes))
        self.uses = sampling.Uses(records.offsets)
        self.rounds_of = np.zeros(records.devices, dtype=np.int64)
        usual = min(self.room, sampling.capacity(plan.batch, self.lanes, RARE))
        self._updates = jax.jit(partial(_updates, model, self.recipe, usual))
        self._add = jax.jit(partial(_add, codec.grid, codec.largest))

    @property
    def overflow(self) -> float:
        """What the room of a batch adds to every device's δ over the whole plan."""
        return OVERFLOW if self.plan.sampling == "poisson" else 0.0

    def train(
        self,
        parameters: NDArray[np.float32],
        round_number: int,
        cohort: Devices,
        included: Included | None = None,
    ) -> RoundSum:
        """The sum of the included devices' updates in this round, and their number.

        A round that is tried again needs a number of its own: the number chooses batches, noise and dither.
        """
        included = np.ones(len(cohort), dtype=np.bool_) if included is None else np.asarray(included, dtype=np.bool_)
        total, states = self.dispatch(parameters, round_number, cohort, included)
        self.check(states, round_number)
        low, high = np.asarray(total).astype(np.int64)
        return RoundSum(total=high * 2**16 + low, count=int(included.sum()))

    def apply(self, parameters: NDArray[np.float32], total: NDArray[np.int64], count: int) -> NDArray[np.float32]:
        """θ plus the mean update, line 12 of Algorithm 1."""
        step = np.float32(self.codec.grid)
        return parameters + total.astype(np.float32) * step / np.float32(count)

    def updates(self, parameters: NDArray[np.float32], round_number: int, cohort: Devices) -> NDArray[np.float32]:
        """Each device's own update, the very one inside `train`, for a rehearsal, whose devices encode themselves."""
        blocks = [block for block, _, _ in self._blocks(parameters, round_number, cohort)]
        return np.concatenate([np.asarray(block) for block in blocks])[: len(cohort)]

    def dither(self, round_number: int, device: int) -> NDArray[np.float32]:
        """The dither that `train` rounds this device's update with."""
        key = noise.split(streams.keys(self.seed, "dither", round_number, np.array([device])))[0]
        return np.asarray(noise.uniform(jnp.asarray(key), (self.model.size,)))

    def dispatch(
        self, parameters: NDArray[np.float32] | Array, round_number: int, cohort: Devices, included: Included
    ) -> tuple[Array, list[Array]]:
        """A round that is started but not waited for: low and high halves of the sum, and the states of the updates."""
        totals = [jax.device_put(np.zeros((2, self.model.size), np.int32), one) for one in self.processors]
        keys = noise.split(streams.keys(self.seed, "dither", round_number, cohort))
        states = []
        for updates, places, at in self._blocks(parameters, round_number, cohort):
            keep = np.where(np.diff(places, prepend=-1) > 0, included[places], False)  # padding repeats the last
            totals[at], state = self._add(totals[at], updates, keys[places], keep)
            states.append(state)
        first, *others = totals
        for other in others:
            first = first + jax.device_put(other, self.processors[0])
        return first, states

    def _blocks(
        self, parameters: NDArray[np.float32] | Array, round_number: int, cohort: Devices
    ) -> Iterator[tuple[Array, NDArray[np.int64], int]]:
        """Updates of so many devices as there are lanes, their places in the cohort, and the processor they are on."""
        self._check_cohort(cohort)
        batches = self._draw(round_number, cohort)
        self.uses.count(cohort, batches)
        self.rounds_of[cohort] += 1
        places = np.arange(self.plan.local_steps + 1)
        keys = noise.split(streams.words(streams.keys(self.seed, "noise", round_number, cohort)[:, None], places))
        held = [jax.device_put(parameters, one) for one in self.processors]
        flying = 0
        for number, start in enumerate(range(0, len(cohort), self.lanes)):
            at = number % len(self.processors)
            block = np.minimum(np.arange(start, start + self.lanes), len(cohort) - 1)
            features, labels, rows = self.feed.rows(cohort[block], batches.rows[block], at)
            updates = self._updates(held[at], features, labels, rows, batches.counts[block], keys[block])
            yield updates, block, at
            flying += self.lanes
            if flying >= self.chunk:
                updates.block_until_ready()
                flying = 0

    def _draw(self, round_number: int, cohort: Devices) -> sampling.Batches:
        """The batches of the cohort in this round."""
        sizes, plan = self.records.sizes[cohort], self.plan
        if plan.sampling == "poisson":
            key = streams.keys(self.seed, "batches", round_number, cohort)[:, None, None]
            places = np.arange(plan.local_steps * self.room).reshape(plan.local_steps, self.room)
            return sampling.poisson(sizes, plan.batch, streams.words(key, places))
        going_on = plan.passes == "continue"
        key = streams.keys(self.seed, "batches", 0 if going_on else round_number, cohort)
        first = self.rounds_of[cohort] * plan.local_steps * going_on
        return sampling.partition(sizes, plan.batch, first, plan.local_steps, key)

    def _check_cohort(self, cohort: Devices) -> None:
        if len(cohort) > MOST_DEVICES:
            raise PlanError("CH200", f"a cohort of {len(cohort):,}.", fix=f"Use at most {MOST_DEVICES:,} a round.")
        if len(cohort) == 0 or len(np.unique(cohort)) != len(cohort) or cohort.min() < 0:
            raise PlanError("CH204", "a cohort is empty or names a device twice.", fix="Draw it without replacement.")
        for device in cohort[self.records.sizes[cohort] < self.plan.rows]:
            raise TableError(
                "CH305",
                f"device {self.records.names[device]} has {self.records.sizes[device]:,} rows; the plan is for"
                f" devices of {self.plan.rows:,} or more.",
                why="On fewer rows a record would be used more often than the plan accounts for.",
                fix="Leave it out of the cohort, or plan with fewer rows and a smaller batch.",
            )

    def check(self, states: list[Array], round_number: int) -> None:
        """Refuse a round in which an update is not finite or leaves the range that the codec proved."""
        found = np.concatenate([np.asarray(state) for state in states])
        if not found.any():
            return
        kind = "not finite" if (found == NOT_FINITE).any() else "beyond the range of the codec"
        raise TrainingError(
            "CH700",
            f"round {round_number}: {int((found > 0).sum())} of {len(found)} updates are {kind}.",
            why="The steps are too large for this loss, or the features are not scaled.",
            fix=f"Use a step size below {self.recipe.step_size:g}, a smaller clip, or features within about ±1.",
        )


def _updates(
    model: Model,
    recipe: Recipe,
    usual: int,
    parameters: Array,
    features: Array,
    labels: Array,
    rows: Array,
    counts: Array,
    keys: Array,
) -> Array:
    """The updates of all lanes."""
    one = partial(local_update, model, recipe, parameters, features, labels, usual=usual)
    return jax.vmap(one)(rows, counts, keys)


def _add(
    grid: float,
    largest: int,
    total: Array,
    updates: Array,
    keys: Array,
    keep: Array,
) -> tuple[Array, Array]:
    """The halves of the sum with these updates added, and the state of each update that is kept."""
    dither = jax.vmap(lambda key: noise.uniform(key, updates.shape[1:]))(keys)
    most = jnp.max(jnp.abs(updates), axis=1)  # not finite if any is not
    state = jnp.where(most <= (largest - 1) * grid, FINE, jnp.where(jnp.isfinite(most), TOO_LARGE, NOT_FINITE))
    good = keep & (state == FINE)
    integers = jnp.where(good[:, None], quantise(updates, dither, grid), 0)
    halves = jnp.stack([jnp.sum(integers & 0xFFFF, axis=0), jnp.sum(integers >> 16, axis=0)])
    return total + halves, jnp.where(keep, state, FINE)


def processors(accelerator: str | None) -> list[Any]:
    """The machine's processors of this kind ("cpu", "gpu"), or those that JAX prefers."""
    try:
        return list(jax.local_devices(backend=accelerator) if accelerator else jax.local_devices())
    except RuntimeError as error:
        raise TrainingError(
            "CH702",
            f'no accelerator "{accelerator}" on this machine.',
            fix='Leave it out, use "cpu", or install JAX for your accelerator.',
        ) from error


def check_fit(model: Model, records: Records, plan: Plan) -> None:
    """Refuse a model, records and a plan that do not go together."""
    if records.features.shape[1] != model.features:
        raise TableError(
            "CH312",
            f"the rows have {records.features.shape[1]} features, the model takes {model.features}.",
            fix="Make the model for the features that the table has.",
        )
    if plan.devices != records.devices:
        raise PlanError(
            "CH204", f"the plan is for {plan.devices} devices, the records are of {records.devices}.",
            fix="Give both the same number.",
        )  # fmt: skip
    if len(records.features) >= 2**31:
        raise TableError(
            "CH312", f"{len(records.features):,} rows in one process.", fix="Use fewer than 2,147,483,648."
        )
    if model.classes and len(records.labels):
        least, most = int(records.labels.min()), int(records.labels.max())
        if least < 0 or most >= model.classes:
            raise TableError(
                "CH311",
                f"labels lie outside the {model.classes} classes of the model.",
                fix=f"Number the classes from 0 to {model.classes - 1}.",
            )
