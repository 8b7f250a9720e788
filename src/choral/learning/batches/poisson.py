"""Poisson batches: each record enters each local step by its own coin, which is what rule S5 is proved for."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from choral.accounting.reserves import overflow, room_chance
from choral.core.plan import Plan, capacity, widest
from choral.learning.batches.batch import EMPTY, Batches, Rows, Source, within_reason
from choral.learning.rounding import ONE_PIECE
from choral.learning.streams import Words, words


@dataclass(frozen=True, kw_only=True)
class PoissonDrawer:
    """Draws the Poisson batches of a plan.

    >>> plan = Plan(devices=1, cohort=1, rounds=200, rows=99, batch=12, step_size=1.0, clip=1.0, noise=0.0)
    >>> PoissonDrawer(plan=plan).room(99), PoissonDrawer(plan=plan).room(10**6)
    (40, 48)
    """

    plan: Plan
    remembering: bool = False  # there is nothing to remember
    one_order = False

    def room(self, most_rows: int, *, rounded: bool = True) -> int:
        """Room that a device's batches of a whole run keep within, except with a chance that is charged for.

        It is that of any one record's companions filling the room, and what the rounding of coins leaves of β. It is
        largest where records are most (Anderson & Samuels 1967), and never above what the codec's range is made for.
        Versions that did not count the rounding left all of β to full batches: that room, if not `rounded`.
        """
        plan, batch, steps = self.plan, self.plan.batch_of(most_rows), self.plan.rounds * self.plan.local_steps
        most_rows = plan.used_rows(most_rows)
        most = min(capacity(batch, steps, plan.overflow), most_rows)
        chance = room_chance(plan, steps, batch / most_rows) if rounded else plan.overflow
        while most < most_rows and steps * overflow(rows=most_rows, batch=batch, capacity=most) > chance:
            most = min(most + 8, most_rows)  # a full batch seldom overflows, but its record might tip it over
        return within_reason(plan, min(most, widest(batch, steps, plan.overflow)))

    def usual(self, room: int, lanes: int, rare: float) -> int:
        """How much of the room so many batches keep to, except with a chance of `rare`; all, where batches differ."""
        return room if self.plan.weighed else min(room, capacity(self.plan.batch, lanes, rare))

    def draw(self, sizes: Rows, before: Rows, key: Words, random: Source | None, room: int) -> Batches:  # noqa: ARG002
        """One round's batches, from secret words or, in a simulation, from the key's own stream.

        A simulation keeps the records of a batch that is added in one piece in front, so that rare room need not be
        computed.
        """
        steps = self.plan.local_steps
        places = np.arange(steps * room).reshape(steps, room)

        def own_stream(number: int) -> Words:
            return words(key[:, None, None], places + number * places.size)

        source = random or own_stream
        if self.plan.weighed:
            sizes = np.minimum(sizes, self.plan.used_rows(int(sizes.max())))
        chosen = poisson(sizes, self.plan.batch, source(0), self.plan.rows if self.plan.weighed else None)
        if random is None and room <= ONE_PIECE:
            return chosen
        return scattered(chosen, lambda number: source(number + 1))

    def uses(self, rows: int) -> None:  # noqa: ARG002
        """Nothing: no number of uses is charged for, so none could be passed."""
        return


def poisson(sizes: Rows, batch: int, random: Words, typical: int | None = None) -> Batches:
    """Each of a device's m records with probability γ/m, in each step; `random` is (devices, steps, room) words.

    Where the rows of a `typical` device are given, those take the place of m, so that all devices draw at one rate.

    The gaps between chosen records are geometric, so the work grows with the batch and not with the records.

    >>> poisson(np.array([3]), 3, np.zeros((1, 2, 8), dtype=np.uint64)).rows[0, 0, :3].tolist()
    [0, 1, 2]
    """
    of = sizes if typical is None else np.full_like(sizes, typical)
    places = geometric(random >> np.uint64(11), _inverse(of, batch)[:, None, None])
    np.cumsum(places, axis=-1, out=places)
    inside = places <= sizes[:, None, None]
    places *= inside
    rows = places.astype(np.int32)
    rows -= inside
    return Batches(rows=rows, counts=np.count_nonzero(inside, axis=-1).astype(np.int32))


def _inverse(sizes: Rows, batch: int) -> NDArray[np.float64]:
    """1/ln(1 − γ/m) for each device."""
    with np.errstate(divide="ignore"):  # γ = m: every gap is 1
        inverse: NDArray[np.float64] = 1 / np.log1p(-batch / sizes)
    return inverse


def geometric(drawn: Words, inverse: NDArray[np.float64]) -> NDArray[np.float64]:
    """Geometric gaps from 53 bits each.

    >>> geometric(np.uint64([0, 2**52, 2**53 - 1]), 1 / np.log1p(-np.float64([0.5]))).tolist()
    [55.0, 2.0, 1.0]
    """
    places = drawn.view(np.int64).astype(np.float64)
    places += 0.5
    places *= 2.0**-53  # uniform in (0, 1); all in place, since the passes over memory are what this costs
    np.log(places, out=places)
    places *= inverse
    np.floor(places, out=places)
    places += 1
    return places


def thresholds(size: int, batch: int) -> Words:
    """For g = 1, …, m: of the 2^53 values of a word, those below this one give a gap longer than g.

    They are found by halving the very function that draws on the host, so that a table of them draws the same batches
    in integers alone.

    >>> thresholds(4, 2).tolist() == [2**52 + 1, 2**51, 2**50, 2**49]
    True
    """
    longer = np.arange(1.0, size + 1)
    low, high = np.zeros(size, np.uint64), np.full(size, 2**53, np.uint64)  # every word below `low` is longer
    inverse = _inverse(np.array([size]), min(batch, size))
    for _ in range(54):
        middle = (low + high) >> np.uint64(1)
        is_longer = (geometric(middle, inverse) > longer) & (low < high)
        low, high = np.where(is_longer, middle + np.uint64(1), low), np.where(is_longer, high, middle)
    return low


def scattered(batches: Batches, random: Source) -> Batches:
    """The same batches, each record at a place that is drawn uniformly from the whole room, the other places empty.

    So where one record is does not depend on who else was drawn: a record that joins a batch moves no other. Places are
    those of the smallest words; equal words would favour an order, so they are all drawn again.

    >>> once = Batches(rows=np.int32([[[7, 9, 0, 0]]]), counts=np.int32([[2]]))
    >>> scattered(once, lambda number: np.uint64([[[30, 10, 40, 20]]])).rows.tolist()
    [[[-1, 7, -1, 9]]]
    """
    room, number = batches.rows.shape[-1], 0
    while True:
        tags = random(number)
        order = np.argsort(tags, axis=-1)
        tags = np.take_along_axis(tags, order, axis=-1)
        if not (tags[..., 1:] == tags[..., :-1]).any():
            break
        number += 1
    rows = np.full_like(batches.rows, EMPTY)
    drawn = np.where(np.arange(room) < batches.counts[..., None], batches.rows, EMPTY)
    np.put_along_axis(rows, order, drawn, axis=-1)
    return Batches(rows=rows, counts=np.full_like(batches.counts, room))
