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
    """One table: how many cells it has, and the cell of every row (−1: none).

    With `counts_empty` one cell more counts the rows that have no cell, so that an answer knows how many have one.
    """

    cells: int
    places: Callable[[Rows], Integers]
    counts_empty: bool = False

    @property
    def width(self) -> int:
        """How many numbers it adds up."""
        return self.cells + self.counts_empty

    def counted(self, rows: Rows, kept: NDArray[np.bool_]) -> Integers:
        """The rows of each cell, among those that are kept."""
        found = self.places(rows)
        found = np.where(found < 0, self.cells if self.counts_empty else -1, found)
        return counts(np.where(kept, found, -1), self.width)


def one_hots(blocks: Sequence[Block], *, keeps: Filter, columns: Sequence[str]) -> Summand:
    """The cells of all blocks, counted over the rows that the filter keeps.

    Two rows differ by at most two ones in each block with two or more cells, and by one in a block of one cell.
    """
    apart = sum(min(block.width, 2) for block in blocks)

    def total(rows: Rows) -> Integers:
        kept = keeps.keeps(rows)
        return np.concatenate([block.counted(rows, kept) for block in blocks])

    return Summand(
        length=sum(block.width for block in blocks),
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


def counted(cells: NDArray[np.float64], keeps: Filter, rows: int, deviation: float) -> tuple[float, float]:
    """How many rows have a cell, by a noisy table whose last cell has those without one, and the noise of the number.

    All rows have a cell or the last one, and their number is public; how many a filter keeps is not.

    >>> counted(np.array([70.0, 25.0, 4.0]), Filter(), 100, 2.0)
    (96.0, 2.0)
    """
    if keeps.is_everything:
        return rows - float(cells[-1]), deviation
    return float(cells[:-1].sum()), deviation * math.sqrt(len(cells) - 1)


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
