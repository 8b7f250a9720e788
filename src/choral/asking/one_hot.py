"""Sums of one-hot vectors: F tables at once are √(2F) apart at most, for any number of cells."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from choral.asking.filters import Filter
from choral.asking.summand import Integers, Rows, Summand


@dataclass(frozen=True, kw_only=True)
class Block:
    """One table: how many cells it has, and the cell of every row (−1: none)."""

    cells: int
    places: Callable[[Rows], Integers]


def one_hots(blocks: Sequence[Block], *, keeps: Filter, columns: Sequence[str]) -> Summand:
    """The cells of all blocks, counted over the rows that the filter keeps.

    Two rows differ by at most two ones in each block with two or more cells, and by one in a block of one cell.
    """
    apart = sum(min(block.cells, 2) for block in blocks)

    def total(rows: Rows) -> Integers:
        kept = keeps.keeps(rows)
        return np.concatenate([counts(np.where(kept, block.places(rows), -1), block.cells) for block in blocks])

    return Summand(
        length=sum(block.cells for block in blocks),
        l2=math.sqrt(apart),
        largest=1,
        columns=tuple(dict.fromkeys((*columns, *keeps.columns))),
        total=total,
    )


def counts(places: Integers, cells: int) -> Integers:
    """How many places name each cell; −1 names none.

    >>> counts(np.array([0, 2, 2, -1]), 3).tolist()
    [1, 0, 2]
    """
    return np.bincount(places + 1, minlength=cells + 1)[1:].astype(np.int64)


def onto_simplex(raw: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """The nearest vector that is nowhere negative and adds up to `total`.

    >>> onto_simplex(np.array([3.0, -1.0]), 2.0).tolist()
    [2.0, 0.0]
    """
    falling = np.sort(raw)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(raw) + 1)
    last = np.flatnonzero(falling > excess)[-1]
    nearest: NDArray[np.float64] = np.maximum(raw - excess[last], 0.0)
    return nearest
