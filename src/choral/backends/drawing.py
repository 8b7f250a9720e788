"""What the host draws for a round: batches, and the keys of noise and dither, as inputs of compiled calls."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from choral.backends.compiled import Call
from choral.learning import noise, sampling, streams
from choral.learning.feed import Feed
from choral.plan import Plan

DRAWN_TOGETHER = 500  # devices whose batches are drawn in one piece: larger ones let the processor wait at the start
DRAWERS = 2  # threads that draw coming rounds while the processor trains; more only contend for the interpreter

Devices = NDArray[np.int64]
Included = NDArray[np.bool_]
Turn = tuple[int, Devices, Included | None]  # the number of a round, its cohort, and who of it does not drop out
Before = NDArray[np.int64]  # in how many rounds each device of a cohort took part already
Keys = tuple[NDArray[np.uint32], NDArray[np.uint32]]
Source = Callable[[], Call]  # gives a call: drawn when it is wanted, or ahead


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawing:
    """Draws by a plan from a seed, in calls of so many lanes, each batch with so much room."""

    plan: Plan
    seed: int
    feed: Feed
    lanes: int
    room: int
    uses: sampling.Uses
    orders: sampling.Orders = field(default_factory=sampling.Orders)

    def sources(self, turn: Turn, before: Before) -> list[Source]:
        """A round as calls that are drawn when they are wanted: by the core that makes them, or while others train."""
        number, cohort, included = turn
        keys = self._keys(turn)  # for all at once: one piece at a time they would cost as much as the batches

        def source(place: int) -> Call:
            some = slice(place * self.lanes, (place + 1) * self.lanes)
            part = (number, cohort[some], None if included is None else included[some])
            own = (keys[0][some], keys[1][some])
            return self._calls(part, self.batches([part], before[some]), own, first=place)[0]

        return [partial(source, place) for place in range(-(-len(cohort) // self.lanes))]

    def ahead(
        self, drawers: ThreadPoolExecutor, turns: Sequence[Turn], take_part: Callable[[Devices], Before]
    ) -> Iterator[list[Source]]:
        """Each round's calls, some rounds being drawn ahead of the one that is wanted by the other threads.

        Rounds are drawn in groups, since what a thread does in large pieces leaves the interpreter to the one that
        feeds the processor. Where a device stands, `take_part` says when its round comes into a group.
        """

        def together(group: Sequence[Turn], before: Before) -> list[list[Source]]:
            batches = self.batches(group, before)
            ends = [0, *np.cumsum([len(cohort) for _, cohort, _ in group])]
            each = [batches.of(slice(*own)) for own in pairwise(ends)]
            drawn = [self._calls(turn, own, self._keys(turn)) for turn, own in zip(group, each, strict=True)]
            return [[partial(_given, call) for call in calls] for calls in drawn]

        def submitted(group: Sequence[Turn]) -> Future[list[list[Source]]]:
            return drawers.submit(together, group, np.concatenate([take_part(cohort) for _, cohort, _ in group]))

        coming = map(submitted, _groups(turns, DRAWN_TOGETHER))
        waiting = deque(islice(coming, 2 * DRAWERS))
        while waiting:
            yield from waiting.popleft().result()
            waiting.extend(islice(coming, 1))

    def batches(self, turns: Sequence[Turn], before: Before) -> sampling.Batches:
        """The batches of these rounds, one after the other."""
        # One order for all rounds, if passes continue.
        going_on = self.plan.sampling == "partition" and self.plan.passes == "continue"
        keys = [streams.keys(self.seed, "batches", 0 if going_on else number, cohort) for number, cohort, _ in turns]
        sizes = self.feed.records.sizes[np.concatenate([cohort for _, cohort, _ in turns])]
        return sampling.draw(self.plan, sizes, before, np.concatenate(keys), None, self.room, self.orders)

    def _keys(self, turn: Turn) -> Keys:
        """The keys of each device's noise, step by step, and of its dither."""
        number, cohort, _ = turn
        steps = np.arange(self.plan.local_steps + 1)
        noises = streams.words(streams.keys(self.seed, "noise", number, cohort)[:, None], steps)
        return noise.split(noises), noise.split(streams.keys(self.seed, "dither", number, cohort))

    def _calls(self, turn: Turn, batches: sampling.Batches, keys: Keys, first: int = 0) -> list[Call]:
        """A round as compiled calls of so many devices as there are lanes, their inputs on the way to the processor."""
        _, cohort, included = turn
        noises, dithers = keys
        wanted = np.ones(len(cohort), dtype=np.bool_) if included is None else np.asarray(included, dtype=np.bool_)
        calls: list[Call] = []
        for start in range(0, len(cohort), self.lanes):
            at = (first + len(calls)) % len(self.feed.processors)
            block = np.minimum(np.arange(start, start + self.lanes), len(cohort) - 1)
            keep = wanted[block] & (np.diff(block, prepend=-1) > 0)  # what repeats the last device is padding
            given = (batches.counts[block], noises[block], dithers[block], keep)
            where = (self.feed.places(cohort[block], batches.rows[block]),) if self.feed.resident else ()
            counts, noise_keys, dither_keys, kept, *rows = self.feed.put((*given, *where), at)
            fed = (*self.feed.held[at], rows[0]) if rows else None
            some = slice(start, start + self.lanes)
            uses = self.uses.tally(cohort[some], batches.of(some))
            calls.append(Call(devices=cohort[block], rows=batches.rows[block], fed=fed, counts=counts, noise=noise_keys,
                              dither=dither_keys, keep=kept, at=at, uses=uses))  # fmt: skip
        return calls


def _given(call: Call) -> Call:
    return call


def _groups(rounds: Sequence[Turn], most: int) -> Iterator[Sequence[Turn]]:
    """The rounds in their order, in groups of about so many devices; small ones first, so that training can begin."""
    start, largest = 0, max(1, most // max(len(cohort) for _, cohort, _ in rounds))
    while start < len(rounds):
        size = min(largest, start // 2 + 1)
        yield rounds[start : start + size]
        start += size
