"""What the host draws for a round: batches, and the keys of noise and dither, as inputs of compiled calls."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from choral.backends.compiled import CompiledCall
from choral.core.masks import Stream
from choral.core.plan import Plan
from choral.learning import noise, streams
from choral.learning.batches import Batches, Drawer
from choral.learning.feed import Feed

DRAWN_TOGETHER = 128  # devices whose batches are drawn in one piece: larger ones leave the cache, and delay the start

Devices = NDArray[np.int64]
Included = NDArray[np.bool_]
Turn = tuple[int, Devices, Included | None]  # the number of a round, its cohort, and who of it does not drop out
Before = NDArray[np.int64]  # in how many rounds each device of a cohort took part already


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawing:
    """Draws for a plan from a seed, in calls of so many lanes, each batch with so much room."""

    drawer: Drawer
    plan: Plan
    seed: int
    feed: Feed
    lanes: int
    room: int

    def calls(self, turn: Turn, before: Before) -> list[CompiledCall]:
        """A round as compiled calls, their inputs on the way to the processor."""
        return self._together([turn], before)[0]

    def rounds(self, turns: Sequence[Turn], take_part: Callable[[Devices], Before]) -> Iterator[list[CompiledCall]]:
        """Each round's calls, drawn for some rounds at a time, while the processor trains on those before.

        Where a device stands, `take_part` says when its round comes into such a group.
        """
        for group in _groups(turns, DRAWN_TOGETHER):
            yield from self._together(group, np.concatenate([take_part(cohort) for _, cohort, _ in group]))

    def batches(self, turns: Sequence[Turn], before: Before) -> Batches:
        """The batches of these rounds, one after the other."""
        first = [(0, cohort, included) for _, cohort, included in turns] if self.drawer.one_order else turns
        sizes = self.feed.records.sizes[np.concatenate([cohort for _, cohort, _ in turns])]
        return self.drawer.draw(sizes, before, self._keys("batches", first), None, self.room)

    def _keys(self, purpose: streams.Purpose, turns: Sequence[Turn]) -> streams.Words:
        """The keys of all devices of these rounds, one round after the other."""
        return np.concatenate([streams.keys(self.seed, purpose, number, cohort) for number, cohort, _ in turns])

    def _together(self, turns: Sequence[Turn], before: Before) -> list[list[CompiledCall]]:
        """The calls of each of these rounds; all that they draw is drawn in one go, since every little step costs."""
        batches, steps = self.batches(turns, before), np.arange(self.plan.local_steps + 1)
        noises = noise.split(streams.words(self._keys("noise", turns)[:, None], steps))
        dithers = noise.split(self._keys("dither", turns))
        given = [batches.rows, batches.counts, noises, dithers]
        if self.feed.resident:
            given.append(self.feed.places(np.concatenate([cohort for _, cohort, _ in turns]), batches.rows))
        ends = [0, *np.cumsum([len(cohort) for _, cohort, _ in turns])]
        each = zip(turns, pairwise(ends), strict=True)
        return [self._calls(turn, [one[start:end] for one in given]) for turn, (start, end) in each]

    def _calls(self, turn: Turn, given: Sequence[NDArray[Any]]) -> list[CompiledCall]:
        """A round as calls of so many devices as there are lanes, from what was drawn for its devices."""
        _, cohort, included = turn
        wanted = np.ones(len(cohort), dtype=np.bool_) if included is None else np.asarray(included, dtype=np.bool_)
        calls: list[CompiledCall] = []
        for start in range(0, len(cohort), self.lanes):
            at, end = len(calls) % len(self.feed.processors), min(start + self.lanes, len(cohort))
            missing = start + self.lanes - end
            devices, keep, rows, *own = (one[start:end] for one in (cohort, wanted, *given))
            if missing:  # what repeats the last device is padding
                devices, rows, *own = (
                    np.concatenate([one, one[-1:].repeat(missing, 0)]) for one in (devices, rows, *own)
                )
                keep = np.append(keep, np.zeros(missing, dtype=np.bool_))
            kept, counts, noise_keys, dither_keys, *where = self.feed.put((keep, *own), at)
            fed = (self.feed.held[at], where[0]) if where else None
            calls.append(
                CompiledCall(devices=devices, rows=rows, fed=fed, counts=counts, noise=noise_keys, dither=dither_keys,
                             keep=kept, at=at)
            )  # fmt: skip
        return calls


_uniform = jax.jit(noise.uniform, static_argnums=1)  # op by op it would take as long as an update


def dither_of(seed: int, round_number: int, device: int, size: int) -> NDArray[np.float32]:
    """The dither that a simulated device's update of this size is rounded with.

    >>> dither_of(1, 0, 5, 3).shape
    (3,)
    """
    key = noise.split(streams.keys(seed, "dither", round_number, np.array([device])))[0]
    return np.asarray(_uniform(key, (size,)))


def whole_noise_of(seed: int, round_number: int, device: int) -> Stream:
    """The keystream of the whole noise that a simulated device adds to its integers, in the strict mode.

    >>> whole_noise_of(1, 0, 5).words(1, 64).shape
    (1,)
    """
    text = f"choral/1|{seed}|whole noise|{round_number}|{device}"
    return Stream(hashlib.sha256(text.encode()).digest())


def _groups(rounds: Sequence[Turn], most: int) -> Iterator[Sequence[Turn]]:
    """The rounds in their order, in groups of about so many devices; small ones first, so that training can begin."""
    start, largest = 0, max(1, most // max(len(cohort) for _, cohort, _ in rounds))
    while start < len(rounds):
        size = min(largest, start // 2 + 1)
        yield rounds[start : start + size]
        start += size
