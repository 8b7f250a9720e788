"""The concordance of risks and lives: the share of comparable pairs in which who has the higher risk dies first."""

import math

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1000  # rows that are compared with all others at a time


def concordance(risk: NDArray[np.float64], time: NDArray[np.float64], died: NDArray[np.bool_]) -> float:
    """Harrell's c: pairs are comparable where one is seen to die before the other; equal risks count for half.

    >>> concordance(np.array([2.0, 1.0, 1.0]), np.array([1.0, 2.0, 3.0]), np.array([True, True, False]))
    0.833...
    """
    right = pairs = 0.0
    for start in range(0, len(time), _BLOCK):
        part = slice(start, start + _BLOCK)
        first = (time[part, None] < time) & died[part, None]
        pairs += first.sum()
        right += (first & (risk[part, None] > risk)).sum() + 0.5 * (first & (risk[part, None] == risk)).sum()
    return float(right / pairs) if pairs else math.nan
