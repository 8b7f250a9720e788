"""Which records enter which local step (line 6 of Algorithm 1): Poisson batches, or a partition without replacement.

Batches are drawn on the host, for a whole cohort at once, from words that are given; they never depend on a value.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from choral.learning.streams import Words, words

Rows = NDArray[np.int64]


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
    120
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
    rows = np.empty((len(sizes), steps, batch), dtype=np.int32)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    within = np.arange(sizes.sum()) - np.repeat(starts, sizes)
    for ahead in range(int((number[:, -1] - number[:, 0]).max()) + 1):
        order = _orders(sizes, within, key, number[:, 0] + ahead)
        device, at = np.nonzero(number - number[:, :1] == ahead)
        first = starts[device] + place[device, at] * batch
        rows[device, at] = order[first[:, None] + np.arange(batch)]
    return Batches(rows=rows, counts=np.full((len(sizes), steps), batch, dtype=np.int32))


def _orders(sizes: Rows, within: Rows, key: Words, number: Rows) -> NDArray[np.int32]:
    """A random order of every device's rows for its pass of this number, one device behind the other."""
    tags = words(np.repeat(key, sizes), np.repeat(number, sizes) * (1 << 32) + within)
    # (device, random bits, row) in one word: sorting words is several times faster than sorting by two keys.
    above, below = np.uint64(64 - len(sizes).bit_length()), np.uint64(int(sizes.max()).bit_length())
    tags = (tags << (np.uint64(64) - above)) >> (np.uint64(64) - above) >> below << below
    tags |= np.repeat(np.arange(len(sizes), dtype=np.uint64), sizes) << above
    tags |= within.astype(np.uint64)
    tags.sort()
    return (tags & ((np.uint64(1) << below) - np.uint64(1))).astype(np.int32)


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
        """Count what these devices used."""
        used = np.arange(batches.rows.shape[-1]) < batches.counts[..., None]
        np.add.at(self.of_row, (self.offsets[devices][:, None, None] + batches.rows)[used], 1)

    def most(self, device: int) -> int:
        """N, the uses of the device's most-used record."""
        mine = self.of_row[self.offsets[device] : self.offsets[device + 1]]
        return int(mine.max(initial=0))
