"""Batches of a partition: each pass puts the records into an order and takes them in turn, as in the paper."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Lock

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from choral.core.errors import TrainingError
from choral.core.plan import Plan
from choral.learning.batches.batch import Batches, Rows, Source, within_reason
from choral.learning.streams import Words, jump, words

FEW = 2**12  # rows: so few seldom agree in the 20 random bits that 32 leave for them, next to the number of a row


@dataclass(frozen=True, kw_only=True)
class PartitionDrawer:
    """Draws the batches of a plan without replacement; `remembering` keeps the orders of long passes, for speed.

    >>> plan = Plan(devices=1, cohort=1, rounds=1, rows=9, batch=3, step_size=1.0, clip=1.0, noise=0.0,
    ...             sampling="partition")
    >>> drawn = PartitionDrawer(plan=plan).draw(np.array([9]), np.array([0]), np.uint64([5]), None, 3)
    >>> drawn.rows.shape
    (1, 1, 3)
    """

    plan: Plan
    remembering: bool = False

    @cached_property
    def orders(self) -> "Orders | None":
        """What is remembered."""
        return Orders() if self.remembering and self.one_order else None

    @property
    def one_order(self) -> bool:
        """Whether passes go on from round to round."""
        return self.plan.passes_continue

    def room(self, most_rows: int) -> int:
        """The batch of the largest device."""
        return within_reason(self.plan, self.plan.batch_of(most_rows))

    def usual(self, room: int, lanes: int, rare: float) -> int:  # noqa: ARG002
        """All of the room."""
        return room

    def draw(self, sizes: Rows, before: Rows, key: Words, random: Source | None, room: int) -> Batches:  # noqa: ARG002
        """One round's batches; the key orders the passes."""
        steps = self.plan.local_steps
        first_step = before * steps if self.one_order else np.zeros_like(before)
        if not self.plan.weighed:
            return partition(sizes, self.plan.batch, first_step, steps, key, self.orders)
        sizes = np.minimum(sizes, self.plan.used_rows(int(sizes.max())))
        own = np.array([self.plan.batch_of(int(size)) for size in sizes])
        rows = np.zeros((len(sizes), steps, room), dtype=np.int32)
        for batch in np.unique(own):
            which = own == batch
            drawn = partition(sizes[which], int(batch), first_step[which], steps, key[which], self.orders)
            rows[which, :, :batch] = drawn.rows
        return Batches(rows=rows, counts=np.repeat(own[:, None], steps, axis=1).astype(np.int32))

    def uses(self, rows: int) -> "PassUses":
        """A count of how often a device's records are used."""
        return PassUses(self, rows)


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
            # A window for every place that a batch may begin at: so whole batches are copied, not row after row.
            rows[which[device], at] = sliding_window_view(order.ravel(), batch)[first]
    return rows


def _orders(sizes: Rows, key: Words, number: Rows, width: int) -> NDArray[np.int32]:
    """A random order of each device's rows for its pass of this number; what lies behind its rows is padding.

    `width` is a power of two, at least any size. Words of random bits above and a row below are sorted: several times
    faster than sorting rows by their bits.
    """
    row = np.arange(sizes.max())
    tags = words(jump(key, number << 32)[:, None], row)
    tags &= ~np.uint64(width - 1)
    tags |= row.astype(np.uint64)
    if sizes.min() < len(row):
        tags[row >= sizes[:, None]] = ~np.uint64(0)
    if width <= FEW:
        return _sorted_in_32_bits(tags, np.uint32(width - 1))
    tags.sort(axis=-1)
    return (tags.astype(np.uint32) & np.uint32(width - 1)).view(np.int32)


def _sorted_in_32_bits(tags: Words, mask: np.uint32) -> NDArray[np.int32]:
    """The rows in the order of their tags, by the upper bits first, since sorting half as many bits takes half as long.

    A row is at its own place in `tags`, and in the bits of the mask. Two neighbours whose upper bits are equal are put
    right by all their bits; devices on which that happens to three in a row, which are few, are sorted whole.
    """
    short = (tags >> np.uint64(32)).astype(np.uint32)
    short &= ~mask
    short |= tags.astype(np.uint32) & mask
    short.sort(axis=-1)
    equal = (short[:, 1:] ^ short[:, :-1] <= mask) & (short[:, 1:] < ~np.uint32(0))
    device, at = np.divmod(np.flatnonzero(equal), equal.shape[1])  # ten times as fast as nonzero in two dimensions
    rows: NDArray[np.int32] = (short & mask).view(np.int32)
    first, second = rows[device, at], rows[device, at + 1]
    swapped = tags[device, first] > tags[device, second]
    rows[device[swapped], at[swapped]], rows[device[swapped], at[swapped] + 1] = second[swapped], first[swapped]
    for one in np.unique(device[1:][(device[1:] == device[:-1]) & (at[1:] == at[:-1] + 1)]):
        rows[one] = np.argsort(tags[one], kind="stable")
    return rows


class Orders:
    """Orders of passes that last for rounds, one for each device. They can be drawn again, and are kept for speed.

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
        found: NDArray[np.int32] = _orders(np.array([size]), np.array([key]), np.array([number]), width)[0]
        with self._storing:
            self._bytes += found.nbytes if kept is None else 0
            if self._bytes > self.most:
                self._kept.clear()
                self._bytes = found.nbytes
            self._kept[device] = (number, found)
        return found


class PassUses:
    """How often one device's records have entered a step, held against what its charges pay for.

    Charges are made before, by rule; this is counted from the batches really drawn. It begins with the first round that
    it is given, which may be long after the device's own first.

    >>> plan = Plan(devices=1, cohort=1, rounds=2, rows=4, batch=2, step_size=1.0, clip=1.0, noise=0.0,
    ...             sampling="partition")
    >>> uses, first = PartitionDrawer(plan=plan).uses(4), Batches(rows=np.int32([[[3, 0]]]), counts=np.int32([[2]]))
    >>> uses.count(first, before=0)
    >>> uses.of_row.tolist()
    [1, 0, 0, 1]
    >>> uses.count(first, before=1)
    Traceback (most recent call last):
    choral.core.errors.TrainingError: CH703 round 2: a record would be used 2 times; charges pay for 1. Nothing was...
    """

    def __init__(self, drawer: PartitionDrawer, rows: int) -> None:
        self.plan, self.one_order = drawer.plan, drawer.one_order
        self.first: int | None = None  # how many rounds were charged for when counting began
        self.of_row = np.zeros(rows, dtype=np.uint32)

    def count(self, batches: Batches, before: int) -> None:
        """Count the batches of a round that is charged for, as `before` others are; CH703 if a record is in too many.

        Only the rows of these batches are looked at: the work does not grow with the records.
        """
        used = batches.rows.ravel()  # a partition's batches are full
        np.add.at(self.of_row, used, np.uint32(1))
        self.first = max(0, before) if self.first is None else self.first
        most, paid = int(self.of_row[used].max()), self.paid_for(self.first, before + 1)
        if most > paid:
            raise TrainingError(
                "CH703",
                f"round {before + 1}: a record would be used {most} times; charges pay for {paid}. Nothing was sent.",
                why="Batches are not drawn as they are accounted for: an error of choral, not of the data.",
                fix="Stop this device, and report the error with the numbers of the plan.",
            )

    def paid_for(self, first: int, rounds: int) -> int:
        """N of the rounds from the first that was counted; the pass under way by then, which is paid for, goes on."""
        own = self.plan.rows if self.plan.weighed else len(self.of_row)
        steps, per_pass = self.plan.local_steps, own // self.plan.batch
        if self.one_order:
            return -(-rounds * steps // per_pass) - first * steps // per_pass
        return (rounds - first) * -(-steps // per_pass)
