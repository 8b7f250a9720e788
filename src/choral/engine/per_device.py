"""Rounds of a whole cohort on one machine, one device after the other: noise once, PyTorch and a user's own trainers.

A device's update is made by the function that a device on its own machine calls, and depends on no other device. So a
simulation and a rehearsal have the same integers.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any, Protocol, cast

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy.special import ndtri

from choral.core.codec import Codec, quantise
from choral.core.errors import TrainingError
from choral.core.masks import Stream
from choral.core.plan import Plan
from choral.engine import Grid, SimulatedSum, check_compiled, check_fit
from choral.engine.draws import Before, Devices, dither_of, whole_noise_of
from choral.engine.processors import keep_compiled
from choral.engine.programs import FINE, NOT_FINITE, STATES, TOO_LARGE, check_states
from choral.learning import noise, streams
from choral.learning.batches import drawer_of
from choral.learning.evaluate import check_loss
from choral.learning.models import Model
from choral.learning.once import LocalWork, noisy_upload, places_of
from choral.learning.recipe import Recipe
from choral.learning.trainer import SideBySide
from choral.tables.records import Records

CORES = os.cpu_count() or 1
Floats = NDArray[np.float32]
Update = NDArray[np.floating[Any]]


class DeviceWork(Protocol):
    """How devices make their updates: `lanes` of them are trained side by side in one call, one where it is 1."""

    lanes: int

    def updates(self, parameters: Floats, round_number: int, devices: Devices, before: Before) -> Update:
        """The updates of so many devices as there are lanes, which took part in `before` rounds."""

    def dither(self, round_number: int, device: int) -> Floats:
        """The dither that this device's update is rounded with."""

    def check(self, round_number: int, states: Sequence[int]) -> None:
        """Refuse a round with an update that is not finite or leaves the codec's range; `states` has each one's."""


class PerDeviceEngine:
    """A loop over the devices of a cohort: train, round, add; `train` is all that a simulated round needs of it."""

    def __init__(self, *, model: Model, records: Records, plan: Plan, codec: Grid, seed: int) -> None:
        self.model, self.records, self.plan, self.codec, self.seed = model, records, plan, codec, seed
        check_fit(model, records, plan)
        self.rounds_of = np.zeros(records.devices, dtype=np.int64)
        self.work: DeviceWork = (NoiseOnceWork if plan.once else OwnTrainer)(model, records, plan, seed)
        self._pool = ThreadPoolExecutor(CORES)  # a device's work keeps about one core busy

    def train(self, parameters: Floats, round_number: int, cohort: Devices) -> SimulatedSum:
        """The sum of these devices' updates in grid steps, and their number."""
        if self.model.trainer is not None and not self.rounds_of.any():
            check_loss(self.model, parameters, self.records)
        total, states = np.zeros(self.model.size, np.int64), list[int]()
        for device, update in zip(cohort, self._each(parameters, round_number, cohort), strict=True):
            states.append(self.state(update))
            if states[-1] == FINE:
                total += quantise(update, self.dither(round_number, int(device)), self.codec.grid)
            if (stream := self.noise(round_number, int(device))) is not None:
                assert isinstance(self.codec, Codec)  # noqa: S101 - whole noise is the codec's
                total += self.codec.whole_noise(self.model.size, stream)
        self.work.check(round_number, states)
        self.rounds_of[cohort] += 1
        return SimulatedSum(total=total, count=len(cohort))

    def updates(self, parameters: Floats, round_number: int, cohort: Devices) -> Update:
        """Each device's own update, the very one inside `train`, for a rehearsal, whose devices encode themselves."""
        made = np.stack(list(self._each(parameters, round_number, cohort)))
        self.rounds_of[cohort] += 1
        return made

    def dither(self, round_number: int, device: int) -> Floats:
        """The dither that `train` rounds this device's update with."""
        return self.work.dither(round_number, device)

    def noise(self, round_number: int, device: int) -> Stream | None:
        """The keystream of the whole noise that `train` adds to this device's integers, in the strict mode."""
        return whole_noise_of(self.seed, round_number, device) if self.plan.strict else None

    def state(self, update: Update) -> int:
        """The state of an update: fine, not finite, or beyond the range of the codec."""
        most = np.abs(update).max(initial=0.0)
        if most <= (self.codec.largest - 1) * self.codec.grid:  # so written, NaN fails too
            return FINE
        return TOO_LARGE if np.isfinite(most) else NOT_FINITE

    def _each(self, parameters: Floats, round_number: int, cohort: Devices) -> Iterator[Update]:
        """The update of each device of the cohort, in calls of one shape."""
        lanes = self.work.lanes

        def call(start: int) -> Update:
            block = cohort[start : start + lanes]
            devices = np.append(block, block[-1:].repeat(lanes - len(block)))  # what repeats the last one is padding
            return self.work.updates(parameters, round_number, devices, self.rounds_of[devices])[: len(block)]

        yield from chain.from_iterable(self._pool.map(call, range(0, len(cohort), lanes)))


class NoiseOnceWork:
    """Rule S7: a device's own work in float64, with its noise."""

    lanes = 1

    def __init__(self, model: Model, records: Records, plan: Plan, seed: int) -> None:
        check_compiled(model)
        keep_compiled()
        work = LocalWork.of(plan)
        for rows in {int(records.sizes.min()), int(records.sizes.max())}:
            work.check(model, places_of(plan, rows))
        self.model, self.records, self.plan, self.seed = model, records, plan, seed

    def updates(self, parameters: Floats, round_number: int, devices: Devices, before: Before) -> Update:  # noqa: ARG002
        """The upload of one device."""
        (device,) = map(int, devices)
        rows, labels = self.records.features_of(device), self.records.labels_of(device)
        key = streams.keys(self.seed, "batches", round_number, devices)
        drawn = gaussians_of(self.seed, round_number, device, self.model.size)
        return noisy_upload(self.model, self.plan, parameters, rows, labels, drawn, key)[None]

    def dither(self, round_number: int, device: int) -> Floats:
        """Multiples of 2^-24 in [0, 1)."""
        drawn = _words(self.seed, "dither", round_number, device, self.model.size) >> np.uint64(40)
        return drawn.astype(np.float32) * np.float32(2.0**-24)

    def check(self, round_number: int, states: Sequence[int]) -> None:
        """Refuse a round with an upload that is not finite or leaves the codec's range."""
        if any(state != FINE for state in states):
            raise TrainingError(
                "CH700",
                f"round {round_number}: an upload is not finite, or beyond the range of the codec.",
                why="The features are not scaled, or the local time is too long for this loss.",
                fix="Use a shorter local time, or features within about ±1.",
            )


def gaussians_of(seed: int, round_number: int, device: int, size: int) -> NDArray[np.float64]:
    """The standard Gaussians of a simulated device's upload of this size, with noise once.

    >>> gaussians_of(1, 0, 5, 3).shape
    (3,)
    """
    drawn = _words(seed, "update noise", round_number, device, size) >> np.uint64(11)
    found: NDArray[np.float64] = ndtri((drawn + np.float64(0.5)) * 2.0**-53)
    return found


def _words(seed: int, purpose: streams.Purpose, round_number: int, device: int, size: int) -> streams.Words:
    return streams.words(streams.keys(seed, purpose, round_number, np.array([device])), np.arange(size))


class OwnTrainer:
    """A trainer that is not JAX, with the batches, noise and dither that the compiled engine would draw."""

    def __init__(self, model: Model, records: Records, plan: Plan, seed: int) -> None:
        assert model.trainer is not None  # noqa: S101 - else the compiled engine trains it
        self.model, self.records, self.plan, self.seed, self.make = model, records, plan, seed, model.trainer
        self.recipe, self.drawer = Recipe.of(plan), drawer_of(plan, remembering=True)
        self.room, self.lanes = self.drawer.room(int(records.sizes.max())), 1
        self.together: SideBySide | None = None  # with the rows of all devices, where it can and all are alike
        if hasattr(self.make, "train_together") and not self.recipe.weighed:
            self.together = cast("SideBySide", self.make(model, self.recipe, records.features, records.labels))
            self.lanes = min(self.together.lanes(model), -(-plan.cohort // CORES))

    def updates(self, parameters: Floats, round_number: int, devices: Devices, before: Before) -> Update:
        """The updates of the devices of one call."""
        records, steps = self.records, np.arange(self.plan.local_steps + 1)
        keys = streams.keys(self.seed, "batches", 0 if self.drawer.one_order else round_number, devices)
        batches = self.drawer.draw(records.sizes[devices], before, keys, None, self.room)
        noises = noise.split(streams.words(streams.keys(self.seed, "noise", round_number, devices)[:, None], steps))
        drawn = np.asarray(_normals(self.model.size if self.recipe.private else 1, noises))
        if self.together is not None:
            return self.together.train_together(parameters, batches, records.offsets[devices], drawn)
        (device,) = map(int, devices)
        recipe = Recipe.of(self.plan, int(records.sizes[device]))
        trainer = self.make(self.model, recipe, records.features_of(device), records.labels_of(device))
        return trainer.train(parameters, batches, drawn[0])[None]

    def dither(self, round_number: int, device: int) -> Floats:
        """The dither that the compiled engine rounds this device's update with."""
        return dither_of(self.seed, round_number, device, self.model.size)

    def check(self, round_number: int, states: Sequence[int]) -> None:
        """Refuse a round as the compiled engine does."""
        check_states(round_number, np.bincount(states, minlength=len(STATES)).astype(np.int32), self.recipe)


@partial(jax.jit, static_argnums=0)
def _normals(size: int, keys: Array) -> Array:
    """The Gaussians of each device and step, as the compiled engine draws them for a flat vector."""
    return jax.vmap(jax.vmap(lambda key: noise.normal(key, (size,))))(keys)
