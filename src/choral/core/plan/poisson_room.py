"""How many records a Poisson batch may hold: bounds that hold for any number of records, from public numbers alone."""

import math
from functools import lru_cache

OVERFLOW = 1e-8  # β: what a run keeps of δ for batches that exceed their room or have a rounded coin, unless it says so
MOST_ROUNDED = 0.91  # of β: what the rounding of coins may take of it; the room of batches has the rest


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
    """Room for every one of `steps` Poisson batches except with this chance, for any number of records.

    >>> capacity(64, 200, 1e-8)
    128
    """
    room = batch + 1
    while steps * poisson_tail(batch, room + 1) > chance:
        room += 1
    return -(-room // 8) * 8


@lru_cache(maxsize=256)
def widest(batch: int, steps: int, overflow: float) -> int:
    """Room that no device passes, whatever rows it has: the companions of a record fill it less often than β leaves.

    >>> widest(244, 130, 1e-8)
    360
    """
    room, left = capacity(batch, steps, overflow), (1 - MOST_ROUNDED) * overflow
    while steps * poisson_tail(batch, room) > left:
        room += 8
    return room
