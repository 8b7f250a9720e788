"""Rounds of a whole cohort on one machine by a trainer that is not JAX: the same batches, noise and integers.

Masks are left out, since they cancel. Batches, noise and dither are those that the compiled engine would draw. Calls
have one shape and one number of lanes, so a device's update does not depend on who else is in the cohort.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, cast

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from choral.backends.compiled import STATES, add, check_states, whole
from choral.backends.drawing import Devices, dither_of, whole_noise_of
from choral.backends.vectorised import Grid, SimulatedSum
from choral.core.codec import Codec
from choral.core.masks import Stream
from choral.core.plan import Plan
from choral.learning import noise, streams
from choral.learning.batches import Batches, drawer_of
from choral.learning.evaluate import evaluate
from choral.learning.fit import check_fit
from choral.learning.models import Model
from choral.learning.recipe import Recipe
from choral.learning.trainer import SideBySide
from choral.tables.records import Records

CORES = os.cpu_count() or 1
Update = NDArray[np.float32]
Train = Callable[[Update, Devices, Batches, NDArray[Any]], Update]  # of the devices of one call


class OutsideEngine:
    """What `Vectorised` is for JAX: `train` is all that a simulated round needs of it."""

    def __init__(self, *, model: Model, records: Records, plan: Plan, codec: Grid, seed: int) -> None:
        check_fit(model, records, plan)
        self.model, self.records, self.plan, self.codec, self.seed = model, records, plan, codec, seed
        self.recipe, self.drawer = Recipe.of(plan), drawer_of(plan, remembering=True)
        self.room = self.drawer.room(int(records.sizes.max()))
        self.rounds_of = np.zeros(records.devices, dtype=np.int64)
        self.lanes, self._train = self._trainer()
        self._pool = ThreadPoolExecutor(CORES)

    def train(self, parameters: Update, round_number: int, cohort: Devices) -> SimulatedSum:
        """The sum of these devices' updates in grid steps, and their number."""
        if not self.rounds_of.any():
            self._check_loss(parameters)
        total: NDArray[np.int32] | Array = np.zeros((2, self.model.size), np.int32)
        codec, states = (np.float32(self.codec.grid), np.int32(self.codec.largest)), np.zeros(len(STATES), np.int32)
        for devices, updates, keep in self._calls(parameters, round_number, cohort):
            keys = noise.split(streams.keys(self.seed, "dither", round_number, devices))
            total, found_states = add(codec, total, [updates], keys, keep)
            states += np.asarray(found_states)
        check_states(round_number, states, self.recipe)
        found = whole(total)
        for device in cohort if self.plan.strict else ():
            assert isinstance(self.codec, Codec)  # noqa: S101 - whole noise is the codec's
            found += self.codec.whole_noise(self.model.size, whole_noise_of(self.seed, round_number, int(device)))
        self.rounds_of[cohort] += 1
        return SimulatedSum(total=found, count=len(cohort))

    def updates(self, parameters: Update, round_number: int, cohort: Devices) -> Update:
        """Each device's own update, the very one inside `train`, for a rehearsal, whose devices encode themselves."""
        made = np.concatenate([updates[keep] for _, updates, keep in self._calls(parameters, round_number, cohort)])
        self.rounds_of[cohort] += 1
        return made

    def dither(self, round_number: int, device: int) -> Update:
        """The dither that `train` rounds this device's update with."""
        return dither_of(self.seed, round_number, device, self.model.size)

    def noise(self, round_number: int, device: int) -> Stream | None:
        """The keystream of the whole noise that `train` adds to this device's integers, in the strict mode."""
        return whole_noise_of(self.seed, round_number, device) if self.plan.strict else None

    def _trainer(self) -> tuple[int, Train]:
        """How many devices are trained in one call, and how: side by side where the trainer can and all are alike."""
        make, records = self.model.trainer, self.records
        assert make is not None  # noqa: S101 - else `Vectorised` is the engine
        if hasattr(make, "train_together") and not self.recipe.weighed:
            trainer = cast("SideBySide", make(self.model, self.recipe, records.features, records.labels))

            def together(parameters: Update, devices: Devices, batches: Batches, drawn: NDArray[Any]) -> Update:
                return trainer.train_together(parameters, batches, records.offsets[devices], drawn)

            return min(trainer.lanes(self.model), -(-self.plan.cohort // CORES)), together

        def alone(parameters: Update, devices: Devices, batches: Batches, drawn: NDArray[Any]) -> Update:
            device = int(devices[0])
            recipe = Recipe.of(self.plan, int(records.sizes[device]))
            trainer = make(self.model, recipe, records.features_of(device), records.labels_of(device))
            return trainer.train(parameters, batches, drawn[0])[None]

        return 1, alone

    def _calls(
        self, parameters: Update, round_number: int, cohort: Devices
    ) -> Iterator[tuple[Devices, Update, NDArray[np.bool_]]]:
        """The devices of each call, their updates, and which of them are no padding."""
        one_order = self.drawer.one_order
        keys = streams.keys(self.seed, "batches", 0 if one_order else round_number, cohort)
        batches = self.drawer.draw(self.records.sizes[cohort], self.rounds_of[cohort], keys, None, self.room)
        steps = np.arange(self.plan.local_steps + 1)
        noises = noise.split(streams.words(streams.keys(self.seed, "noise", round_number, cohort)[:, None], steps))

        def call(start: int) -> tuple[Devices, Update, NDArray[np.bool_]]:
            lane = np.arange(start, start + self.lanes)
            block = np.minimum(lane, len(cohort) - 1)  # what repeats the last device is padding
            own = Batches(rows=batches.rows[block], counts=batches.counts[block])
            drawn = np.asarray(_normals(self.model.size if self.recipe.private else 1, noises[block]))
            return cohort[block], self._train(parameters, cohort[block], own, drawn), lane < len(cohort)

        yield from self._pool.map(call, range(0, len(cohort), self.lanes))

    def _check_loss(self, parameters: Update) -> None:
        """Refuse a model whose loss is not finite at the start: clipping would hide it behind noise."""
        records, some, model = self.records, slice(0, 64), self.model.fixed or self.model
        rows = Records.of([("", records.features[some], records.labels[some])], classes=records.classes)
        evaluate(model, parameters[: model.size], rows)


@partial(jax.jit, static_argnames=("size",))
def _normals(size: int, keys: Array) -> Array:
    """The Gaussians of each device and step, as the compiled engine draws them for a flat vector."""
    return jax.vmap(jax.vmap(lambda key: noise.normal(key, (size,))))(keys)
