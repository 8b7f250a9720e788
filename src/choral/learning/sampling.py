"""Which records enter which local step (line 6 of Algorithm 1): Poisson batches, or a partition without replacement.

Batches are drawn on the host, for a whole cohort at once, from words that are given; they never depend on a value.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from choral.errors import PlanError, TrainingError
from choral.learning.rounding import ONE_PIECE
from choral.learning.streams import Words, jump, words
from choral.plan import Plan
from choral.privacy.calibrate import OVERFLOW
from choral.privacy.poisson import overflow

Rows = NDArray[np.int64]
Source = Callable[[int], Words]  # words of one shape: fresh ones for each number
MOST_ROWS = 2**27  # that one device may use in a round
EMPTY = -1  # at a place that no record was drawn for


@dataclass(frozen=True, kw_only=True, eq=False)
class Batches:
    """The rows of every device and step: `rows[i, t, :counts[i, t]]`; what lies behind is padding and has no weight.

    A place that holds EMPTY has none either. Rows count from each device's own first row: it learns nothing of the
    sizes of others.
    """

    rows: NDArray[np.int32]
    counts: NDArray[np.int32]

    def of(self, some: slice) -> "Batches":
        """Those of some of the devices."""
        return Batches(rows=self.rows[some], counts=self.counts[some])


def poisson_tail(mean: float, least: int) -> float:
    """An upper bound on the chance that a Poisson batch of this mean has `least` records or more.

    It also bounds Binomial(m, mean/m) for every m, as `least` ≥ mean + 1 (Anderson & Samuels 1967).

    >>> poisson_tail(64.0, 120) < 1e-9
    True
    """
    if least < mean + 1:
        return 1.0
    log_term = -mean + least * math.log(mean) - math.lgamma(least + 1)
    return min(1.0, math.exp(log_term) / (1 - mean / (least + 1)))  # a geometric series above the first term


def capacity(batch: int, steps: int, chance: float) -> int:
    """Room for every one of `steps` Poisson batches but for this chance, of whatever number of records.

    >>> capacity(64, 200, 1e-8)
    128
    """
    room = batch + 1
    while steps * poisson_tail(batch, room + 1) > chance:
        room += 1
    return -(-room // 8) * 8


def poisson(sizes: Rows, batch: int, random: Words) -> Batches:
    """Each of a device's m records with probability γ/m, in each step; `random` is (devices, steps, room) words.

    The gaps between chosen records are geometric, so the work grows with the batch and not with the records.

    >>> poisson(np.array([3]), 3, np.zeros((1, 2, 8), dtype=np.uint64)).rows[0, 0, :3].tolist()
    [0, 1, 2]
    """
    places = (random >> np.uint64(11)).view(np.int64).astype(np.float64)
    places += 0.5
    places *= 2.0**-53  # uniform in (0, 1); all in place, since the passes over memory are what this costs
    with np.errstate(divide="ignore"):  # γ = m: every gap is 1
        inverse = 1 / np.log1p(-batch / sizes)[:, None, None]
    np.log(places, out=places)
    places *= inverse
    np.floor(places, out=places)
    places += 1  # geometric gaps
    np.cumsum(places, axis=-1, out=places)
    inside = places <= sizes[:, None, None]
    places *= inside
    rows = places.astype(np.int32)
    rows -= inside
    return Batches(rows=rows, counts=np.count_nonzero(inside, axis=-1).astype(np.int32))


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


def partition(
    sizes: Rows, batch: int, first_step: Rows, steps: int, key: Words, orders: "Orders | None" = None
) -> Batches:
    """Batches of exactly γ records without replacement: E = ⌊m/γ⌋ to a pass, then a new order; the rest sits out.

    `first_step` is where each device stands: its steps so far if passes continue from round to round, 0 (and a key
    for each round) if every round reshuffles. `orders` keeps the orders of long passes from round to round.

    >>> found = partition(np.array([4]), 2, np.array([0]), 2, np.array([7], dtype=np.uint64)).rows
    >>> sorted(found.ravel().tolist())
    [0, 1, 2, 3]
    """
    rows = np.empty((len(sizes), steps, batch), dtype=np.int32)
    long = np.zeros(len(sizes), dtype=np.bool_)
    if orders is not None:
        long = sizes // batch >= 2 * steps
        for device in np.flatnonzero(long):
            order = partial(orders.of, int(sizes[device]), key[device])
            rows[device] = _long_pass(order, int(sizes[device]) // batch, batch, int(first_step[device]), steps)
    if not long.all():
        rows[~long] = _short_passes(sizes[~long], batch, first_step[~long], steps, key[~long])
    return Batches(rows=rows, counts=np.full((len(sizes), steps), batch, dtype=np.int32))


def _long_pass(
    order: Callable[[int], NDArray[np.int32]], per_pass: int, batch: int, first_step: int, steps: int
) -> NDArray[np.int32]:
    """One device's rows; `order` gives those of a pass."""
    number, place = divmod(first_step, per_pass)
    pieces = [order(number)[place * batch : min(place + steps, per_pass) * batch]]
    if place + steps > per_pass:
        pieces.append(order(number + 1)[: (place + steps - per_pass) * batch])
    return np.concatenate(pieces).reshape(steps, batch)


def _short_passes(sizes: Rows, batch: int, first_step: Rows, steps: int, key: Words) -> NDArray[np.int32]:
    """The rows of a partition, many devices at a time."""
    per_pass = sizes // batch
    step = first_step[:, None] + np.arange(steps)
    number, place = step // per_pass[:, None], step % per_pass[:, None]
    ahead_of_first = number - number[:, :1]
    width = 2 ** np.ceil(np.log2(sizes)).astype(np.int64)  # devices of about one size are ordered together
    rows = np.empty((len(sizes), steps, batch), dtype=np.int32)
    for ahead in range(int(ahead_of_first[:, -1].max()) + 1):
        going = ahead_of_first[:, -1] >= ahead  # small devices begin more passes than large ones
        for common in np.unique(width[going]):
            which = np.flatnonzero(going & (width == common))
            order = _orders(sizes[which], key[which], number[which, 0] + ahead, int(common))
            device, at = np.nonzero(ahead_of_first[which] == ahead)
            first = device * order.shape[1] + place[which[device], at] * batch
            rows[which[device], at] = order.ravel()[first[:, None] + np.arange(batch)] & np.uint64(common - 1)
    return rows


def _orders(sizes: Rows, key: Words, number: Rows, width: int) -> Words:
    """A random order of each device's rows for its pass of this number, as words that hold a row in their low bits.

    `width` is a power of two, at least any size. Words of random bits above and a row below are sorted: several times
    faster than sorting rows by their bits.
    """
    row = np.arange(sizes.max())
    tags = words(jump(key, number << 32)[:, None], row)
    tags &= ~np.uint64(width - 1)
    tags |= row.astype(np.uint64)
    if sizes.min() < len(row):
        tags[row >= sizes[:, None]] = ~np.uint64(0)
    tags.sort(axis=-1)
    return tags


class Orders:
    """Orders of passes that last for rounds, one for each device: what can be drawn anew at any time, kept for speed.

    >>> Orders().of(3, np.uint64(7), 0).tolist() == Orders(most=0).of(3, np.uint64(7), 0).tolist()
    True
    """

    def __init__(self, most: int = 2**26) -> None:
        self.most = most  # bytes; beyond them all are forgotten
        self._kept: dict[tuple[int, int], tuple[int, NDArray[np.int32]]] = {}
        self._bytes = 0
        self._storing = Lock()

    def of(self, size: int, key: np.uint64, number: int) -> NDArray[np.int32]:
        """The order of the device with this key and so many rows, in its pass of this number."""
        device = (int(key), size)
        kept = self._kept.get(device)
        if kept is not None and kept[0] == number:
            return kept[1]
        width = 2 ** (size - 1).bit_length()
        order = _orders(np.array([size]), np.array([key]), np.array([number]), width)[0] & np.uint64(width - 1)
        found: NDArray[np.int32] = order.astype(np.int32)
        with self._storing:
            self._bytes += found.nbytes if kept is None else 0
            if self._bytes > self.most:
                self._kept.clear()
                self._bytes = found.nbytes
            self._kept[device] = (number, found)
        return found


def room(plan: Plan, most_rows: int) -> int:
    """How many rows a batch of this plan has room for, on devices of at most `most_rows` records.

    A device's Poisson batches of a whole run keep within it but for a chance of OVERFLOW, which is charged for: that of
    any one record's companions filling it. It is largest where records are most (Anderson & Samuels 1967).

    >>> plan = Plan(devices=1, cohort=1, rounds=200, rows=99, batch=12, step_size=1.0, clip=1.0, noise=0.0)
    >>> room(plan, 99), room(plan, 10**6)
    (40, 48)
    """
    most = plan.batch
    if plan.sampling == "poisson":
        steps = plan.rounds * plan.local_steps
        most = min(capacity(plan.batch, steps, OVERFLOW), most_rows)
        while most < most_rows and steps * overflow(rows=most_rows, batch=plan.batch, capacity=most) > OVERFLOW:
            most = min(most + 8, most_rows)  # a full batch seldom overflows, but its record might tip it over
    if most * plan.local_steps > MOST_ROWS:
        raise PlanError(
            "CH204",
            f"{plan.local_steps:,} local steps on batches of {plan.batch:,} are more rows than a round may use.",
            fix=f"Keep local steps × batch below about {MOST_ROWS:,}.",
        )
    return most


def draw(
    plan: Plan,
    sizes: Rows,
    before: Rows,
    key: Words,
    random: Source | None,
    most: int,
    orders: Orders | None = None,
) -> Batches:
    """One round's batches by the plan's own sampling, for devices that took part in `before` rounds.

    `key` orders the passes of a partition; `random` is what Poisson batches come from, (devices, steps, room) words at
    a time. If it is None they come from the key's own stream, for a simulation: it keeps the records of a batch that is
    added in one piece in front, so that rare room need not be computed.

    >>> plan = Plan(devices=1, cohort=1, rounds=1, rows=9, batch=3, step_size=1.0, clip=1.0, noise=0.0)
    >>> draw(plan, np.array([9]), np.array([0]), np.array([5], dtype=np.uint64), None, 8).rows.shape
    (1, 1, 8)
    """
    if plan.sampling == "poisson":
        places = np.arange(plan.local_steps * most).reshape(plan.local_steps, most)

        def own_stream(number: int) -> Words:
            return words(key[:, None, None], places + number * places.size)

        source = random or own_stream
        chosen = poisson(sizes, plan.batch, source(0))
        if random is None and most <= ONE_PIECE:
            return chosen
        return scattered(chosen, lambda number: source(number + 1))
    if plan.passes == "continue":
        return partition(sizes, plan.batch, before * plan.local_steps, plan.local_steps, key, orders)
    return partition(sizes, plan.batch, np.zeros_like(before), plan.local_steps, key)


class Uses:
    """How often one device's records have entered a step, held against what its charges pay for.

    Charges are made before, by rule; this is counted from the batches really drawn. It begins with the first round that
    it is given, which may be long after the device's own first. Poisson batches have no number that could be passed.

    >>> plan = Plan(devices=1, cohort=1, rounds=2, rows=4, batch=2, step_size=1.0, clip=1.0, noise=0.0,
    ...             sampling="partition")
    >>> uses, first = Uses(plan, rows=4), Batches(rows=np.int32([[[3, 0]]]), counts=np.int32([[2]]))
    >>> uses.count(first, before=0)
    >>> uses.of_row.tolist()
    [1, 0, 0, 1]
    >>> uses.count(first, before=1)
    Traceback (most recent call last):
    choral.errors.TrainingError: CH703 round 2: a record would be used 2 times; charges pay for 1. Nothing was sent...
    """

    def __init__(self, plan: Plan, rows: int) -> None:
        self.plan = plan
        self.first: int | None = None  # how many rounds were charged for when counting began
        self.of_row = np.zeros(rows if plan.sampling == "partition" else 0, dtype=np.uint32)

    def count(self, batches: Batches, before: int) -> None:
        """Count the batches of a round that is charged for, as `before` others are; CH703 if a record is in too many.

        Only the rows of these batches are looked at: the work does not grow with the records.
        """
        if self.plan.sampling == "poisson":
            return
        used = batches.rows.ravel()  # a partition's batches are full
        np.add.at(self.of_row, used, np.uint32(1))
        self.first = max(0, before) if self.first is None else self.first
        most, paid = int(self.of_row[used].max()), self._paid_for(self.first, before + 1)
        if most > paid:
            raise TrainingError(
                "CH703",
                f"round {before + 1}: a record would be used {most} times; charges pay for {paid}. Nothing was sent.",
                why="Batches are drawn otherwise than they are accounted for: a fault of choral, not of the data.",
                fix="Take part no further, and report it with the numbers of the plan.",
            )

    def _paid_for(self, first: int, rounds: int) -> int:
        """N of the rounds from the first that was counted; the pass under way by then, which is paid for, goes on."""
        steps, per_pass = self.plan.local_steps, len(self.of_row) // self.plan.batch
        if self.plan.passes == "continue":
            return -(-rounds * steps // per_pass) - first * steps // per_pass
        return (rounds - first) * -(-steps // per_pass)
