"""Rounds of rule S7 for a whole cohort on one machine: each device's own work, noise once, sums in integers.

Masks are left out, since they cancel. A device's upload is made by the function that a device on its own machine calls,
so a simulation and a rehearsal have the same integers.
"""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral.backends.drawing import whole_noise_of
from choral.backends.vectorised import Grid, SimulatedSum
from choral.core.codec import Codec, quantise
from choral.core.errors import TrainingError
from choral.core.masks import Stream
from choral.core.plan import Plan
from choral.learning import streams
from choral.learning.fit import check_compiled, check_fit
from choral.learning.models import Model
from choral.learning.once import LocalWork, noisy_upload, places_of, with_noise
from choral.learning.once_together import local_works
from choral.learning.processors import keep_compiled
from choral.tables.records import Records

CORES = os.cpu_count() or 1


class OnceEngine:
    """What `Vectorised` is for noise in every step: `train` is all that a simulated round needs of it."""

    def __init__(self, *, model: Model, records: Records, plan: Plan, codec: Grid, seed: int) -> None:
        check_compiled(model)
        check_fit(model, records, plan)
        keep_compiled()
        work = LocalWork.of(plan)
        for rows in {int(records.sizes.min()), int(records.sizes.max())}:
            work.check(model, places_of(plan, rows))
        self.model, self.records, self.plan, self.codec, self.seed = model, records, plan, codec, seed
        self.rounds_of = np.zeros(records.devices, dtype=np.int64)

    def train(self, parameters: NDArray[np.float32], round_number: int, cohort: NDArray[np.integer]) -> SimulatedSum:
        """The sum of these devices' uploads in grid steps, and their number."""
        total = np.zeros(self.model.size, np.int64)
        for device, update in zip(cohort, self._each(parameters, round_number, cohort), strict=True):
            self.check(round_number, update)
            total += quantise(update, self.dither(round_number, int(device)), self.codec.grid)
            if (stream := self.noise(round_number, int(device))) is not None:
                assert isinstance(self.codec, Codec)  # noqa: S101 - whole noise is the codec's
                total += self.codec.whole_noise(self.model.size, stream)
        self.rounds_of[cohort] += 1
        return SimulatedSum(total=total, count=len(cohort))

    def updates(
        self, parameters: NDArray[np.float32], round_number: int, cohort: NDArray[np.integer]
    ) -> NDArray[np.floating[Any]]:
        """Each device's own upload, the very one inside `train`, for a rehearsal, whose devices encode themselves."""
        made = np.stack(list(self._each(parameters, round_number, cohort)))
        self.rounds_of[cohort] += 1
        return made

    def dither(self, round_number: int, device: int) -> NDArray[np.float32]:
        """The dither that `train` rounds this device's upload with: multiples of 2^-24 in [0, 1)."""
        drawn = self._words("dither", round_number, device) >> np.uint64(40)
        return drawn.astype(np.float32) * np.float32(2.0**-24)

    def noise(self, round_number: int, device: int) -> Stream | None:
        """The keystream of the whole noise that `train` adds to this device's integers, in the strict mode."""
        if not self.plan.strict:
            return None
        return whole_noise_of(self.seed, round_number, device)

    def gaussians(self, round_number: int, device: int) -> NDArray[np.float64]:
        """The standard Gaussians of this device's upload."""
        from scipy.special import ndtri

        drawn = self._words("update noise", round_number, device) >> np.uint64(11)
        found: NDArray[np.float64] = ndtri((drawn + np.float64(0.5)) * 2.0**-53)
        return found

    def _words(self, purpose: streams.Purpose, round_number: int, device: int) -> streams.Words:
        key = streams.keys(self.seed, purpose, round_number, np.array([device]))
        return streams.words(key, np.arange(self.model.size))

    def _each(
        self, parameters: NDArray[np.float32], round_number: int, cohort: NDArray[np.integer]
    ) -> Iterable[NDArray[np.floating[Any]]]:
        def upload(device: int) -> NDArray[np.floating[Any]]:
            rows, labels = self.records.features_of(device), self.records.labels_of(device)
            key = streams.keys(self.seed, "batches", round_number, np.array([device]))
            return noisy_upload(
                self.model, self.plan, parameters, rows, labels, self.gaussians(round_number, device), key
            )

        with ThreadPoolExecutor(CORES) as pool:  # a device's work keeps about one core busy
            yield from pool.map(upload, map(int, cohort))

    def check(self, round_number: int, update: NDArray[np.floating[Any]]) -> None:
        """Refuse an upload that is not finite or leaves the codec's range."""
        limit = (self.codec.largest - 1) * self.codec.grid
        if not np.abs(update).max(initial=0.0) <= limit:  # so written, NaN fails too
            raise TrainingError(
                "CH700",
                f"round {round_number}: an upload is not finite, or beyond the range of the codec.",
                why="The features are not scaled, or the local time is too long for this loss.",
                fix="Use a shorter local time, or features within about ±1.",
            )


def train_together(
    engines: Sequence[OnceEngine],
    parameters: Sequence[NDArray[np.float32]],
    round_number: int,
    cohort: NDArray[np.integer],
) -> list[SimulatedSum]:
    """A round of each of several runs over the same rows, from one seed, on all rows, with Gaussian noise.

    They differ in their clips and noises, so their local steps are one call per device.
    """
    first, works = engines[0], [LocalWork.of(one.plan) for one in engines]

    def uploads(device: int) -> list[NDArray[np.float32]]:
        rows, labels = first.records.features_of(device), first.records.labels_of(device)
        clean, noise = local_works(first.model, works, parameters, rows, labels), first.gaussians(round_number, device)
        pairs = zip(engines, clean, strict=True)
        return [with_noise(one.model, one.plan, len(labels), update, noise) for one, update in pairs]

    totals = [np.zeros(first.model.size, np.int64) for _ in engines]
    for device in map(int, cohort):
        dither = first.dither(round_number, device)
        for one, total, update in zip(engines, totals, uploads(device), strict=True):
            one.check(round_number, update)
            total += quantise(update, dither, one.codec.grid)
    return [SimulatedSum(total=total, count=len(cohort)) for total in totals]
