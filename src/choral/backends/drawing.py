"""What the host draws for a round: batches, and the keys of noise and dither, as inputs of compiled calls."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice, pairwise

import jax
import numpy as np
from numpy.typing import NDArray

from choral.backends.compiled import CompiledCall
from choral.learning import noise, streams
from choral.learning.batches import Batches, Drawer
from choral.learning.feed import Feed
from choral.plan import Plan
from choral.secagg.masks import Stream

DRAWN_TOGETHER = 500  # devices whose batches are drawn in one piece: larger ones let the processor wait at the start
DRAWERS = 2  # threads that draw coming rounds while the processor trains; more only contend for the interpreter

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
        return self._calls(turn, self.batches([turn], before))

    def ahead(
        self, drawers: ThreadPoolExecutor, turns: Sequence[Turn], take_part: Callable[[Devices], Before]
    ) -> Iterator[list[CompiledCall]]:
        """Each round's calls, some rounds being drawn ahead of the one that is wanted by the other threads.

        Rounds are drawn in groups, since what a thread does in large pieces leaves the interpreter to the one that
        feeds the processor. Where a device stands, `take_part` says when its round comes into a group.
        """

        def together(group: Sequence[Turn], before: Before) -> list[list[CompiledCall]]:
            batches = self.batches(group, before)
            ends = [0, *np.cumsum([len(cohort) for _, cohort, _ in group])]
            each = [batches.of(slice(*own)) for own in pairwise(ends)]
            return [self._calls(turn, own) for turn, own in zip(group, each, strict=True)]

        def submitted(group: Sequence[Turn]) -> Future[list[list[CompiledCall]]]:
            return drawers.submit(together, group, np.concatenate([take_part(cohort) for _, cohort, _ in group]))

        coming = map(submitted, _groups(turns, DRAWN_TOGETHER))
        waiting = deque(islice(coming, 2 * DRAWERS))
        while waiting:
            yield from waiting.popleft().result()
            waiting.extend(islice(coming, 1))

    def batches(self, turns: Sequence[Turn], before: Before) -> Batches:
        """The batches of these rounds, one after the other."""
        one = self.drawer.one_order
        keys = [streams.keys(self.seed, "batches", 0 if one else number, cohort) for number, cohort, _ in turns]
        sizes = self.feed.records.sizes[np.concatenate([cohort for _, cohort, _ in turns])]
        return self.drawer.draw(sizes, before, np.concatenate(keys), None, self.room)

    def _calls(self, turn: Turn, batches: Batches) -> list[CompiledCall]:
        """A round as calls of so many devices as there are lanes."""
        number, cohort, included = turn
        steps = np.arange(self.plan.local_steps + 1)
        noises = noise.split(streams.words(streams.keys(self.seed, "noise", number, cohort)[:, None], steps))
        dithers = noise.split(streams.keys(self.seed, "dither", number, cohort))
        wanted = np.ones(len(cohort), dtype=np.bool_) if included is None else np.asarray(included, dtype=np.bool_)
        calls: list[CompiledCall] = []
        for start in range(0, len(cohort), self.lanes):
            at = len(calls) % len(self.feed.processors)
            lane = np.arange(start, start + self.lanes)
            block = np.minimum(lane, len(cohort) - 1)
            keep = wanted[block] & (lane < len(cohort))  # what repeats the last device is padding
            given = (batches.counts[block], noises[block], dithers[block], keep)
            where = (self.feed.places(cohort[block], batches.rows[block]),) if self.feed.resident else ()
            counts, noise_keys, dither_keys, kept, *rows = self.feed.put((*given, *where), at)
            fed = (*self.feed.held[at], rows[0]) if rows else None
            calls.append(
                CompiledCall(devices=cohort[block], rows=batches.rows[block], fed=fed, counts=counts, noise=noise_keys,
                             dither=dither_keys, keep=kept, at=at)
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
