"""Which records enter which local step (line 6 of Algorithm 1): Poisson batches, or a partition without replacement.

Batches are drawn on the host, for a whole cohort at once, from words that are given; they never depend on a value.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from choral.learning.streams import Words, words

Rows = NDArray[np.int64]
DEVICE_BITS = 16  # of a word by which rows are sorted: more devices than a round may have


@dataclass(frozen=True, kw_only=True, eq=False)
class Batches:
    """The rows of every device and step: `rows[i, t, :counts[i, t]]`; what lies behind is padding and has no weight.

    Rows count from each device's own first row, so that a device learns nothing of the others' sizes.
    """

    rows: NDArray[np.int32]
    counts: NDArray[np.int32]


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


def capacity(batch: int, steps: int, overflow: float) -> int:
    """Room for every one of `steps` Poisson batches of one device, but for a chance of `overflow` over all of them.

    That chance is added to δ: a batch that can overflow is not quite Poisson.

    >>> capacity(64, 200, 1e-8)
    128
    """
    room = batch + 1
    while steps * poisson_tail(batch, room + 1) > overflow:
        room += 1
    return -(-room // 8) * 8


def poisson(sizes: Rows, batch: int, random: Words) -> Batches:
    """Each of a device's m records with probability γ/m, in each step; `random` is (devices, steps, room) words.

    The gaps between chosen records are geometric, so the work grows with the batch and not with the records.

    >>> poisson(np.array([3]), 3, np.zeros((1, 2, 8), dtype=np.uint64)).rows[0, 0, :3].tolist()
    [0, 1, 2]
    """
    uniform = ((random >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    with np.errstate(divide="ignore"):  # γ = m: every gap is 1
        scale = np.log1p(-batch / sizes)[:, None, None]
    gaps = np.floor(np.log(uniform, out=uniform) / scale)
    gaps += 1
    places = np.cumsum(gaps, axis=-1, out=gaps)
    inside = places <= sizes[:, None, None]
    return Batches(
        rows=np.where(inside, places - 1, 0).astype(np.int32),
        counts=inside.sum(axis=-1, dtype=np.int32),
    )


def partition(sizes: Rows, batch: int, first_step: Rows, steps: int, key: Words) -> Batches:
    """Batches of exactly γ records without replacement: E = ⌊m/γ⌋ to a pass, then a new order; the rest sits out.

    `first_step` is where each device stands: its steps so far if passes continue from round to round, 0 (and a key
    for each round) if every round reshuffles.

    >>> found = partition(np.array([4]), 2, np.array([0]), 2, np.array([7], dtype=np.uint64)).rows
    >>> sorted(found.ravel().tolist())
    [0, 1, 2, 3]
    """
    per_pass = sizes // batch
    step = first_step[:, None] + np.arange(steps)
    number, place = step // per_pass[:, None], step % per_pass[:, None]
    ahead_of_first = number - number[:, :1]
    rows = np.empty((len(sizes), steps, batch), dtype=np.int32)
    for ahead in range(int(ahead_of_first[:, -1].max()) + 1):
        going = np.flatnonzero(ahead_of_first[:, -1] >= ahead)  # small devices begin more passes than large ones
        order, starts = _orders(sizes[going], key[going], number[going, 0] + ahead)
        device, at = np.nonzero(ahead_of_first[going] == ahead)
        first = starts[device] + place[going[device], at] * batch
        rows[going[device], at] = order[first[:, None] + np.arange(batch)]
    return Batches(rows=rows, counts=np.full((len(sizes), steps), batch, dtype=np.int32))


def _orders(sizes: Rows, key: Words, number: Rows) -> tuple[NDArray[np.int32], Rows]:
    """A random order of every device's rows for its pass of this number, one device behind the other, and their starts.

    An order depends on the device's own key and size alone, whoever else is sorted with it.
    """
    starts = np.cumsum(sizes) - sizes
    within = np.arange(sizes.sum()) - np.repeat(starts, sizes)
    tags = words(np.repeat(key, sizes), np.repeat(number << 32, sizes) + within)
    # (device, random bits, row) in one word: sorting words is several times faster than sorting by two keys.
    row_bits = np.repeat((np.uint64(1) << np.ceil(np.log2(sizes + 1)).astype(np.uint64)) - np.uint64(1), sizes)
    tags >>= np.uint64(DEVICE_BITS)
    tags &= ~row_bits
    tags |= within.view(np.uint64)
    tags |= np.repeat(np.arange(len(sizes), dtype=np.uint64) << np.uint64(64 - DEVICE_BITS), sizes)
    tags.sort()
    tags &= row_bits
    return tags.astype(np.int32), starts


class Uses:
    """How often each record has entered a step, counted from the batches really used; the ledger needs the most.

    >>> uses = Uses(np.array([0, 2, 5]))
    >>> uses.count(np.array([1]), Batches(rows=np.int32([[[0, 2], [2, 0]]]), counts=np.int32([[2, 1]])))
    >>> uses.most(1), uses.most(0)
    (2, 0)
    """

    def __init__(self, offsets: Rows) -> None:
        self.offsets = offsets
        self.of_row = np.zeros(int(offsets[-1]), dtype=np.uint32)

    def count(self, devices: Rows, batches: Batches) -> None:
        """Count what these devices used; none may be named twice."""
        used = np.arange(batches.rows.shape[-1]) < batches.counts[..., None]
        sizes = self.offsets[devices + 1] - self.offsets[devices]
        starts = np.cumsum(sizes) - sizes  # of each device's rows among the rows of these devices only
        seen = np.bincount((starts[:, None, None] + batches.rows)[used], minlength=int(sizes.sum()))
        self.of_row[np.arange(len(seen)) + np.repeat(self.offsets[devices] - starts, sizes)] += seen.astype(np.uint32)

    def most(self, device: int) -> int:
        """N, the uses of the device's most-used record."""
        mine = self.of_row[self.offsets[device] : self.offsets[device + 1]]
        return int(mine.max(initial=0))
