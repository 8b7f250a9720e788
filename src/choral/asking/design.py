"""A row as the vector that a model on sums sees: trends of numbers, one cell per column, and an intercept."""

import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from choral.asking.cells import TableAxis, axis_of, bounded, filled, levels, scaled
from choral.asking.parameters import Parameters, bad
from choral.asking.summand import Integers, Rows
from choral.tables.columns import Categorical, Numeric

Matrix = NDArray[np.float64]


class Encoded(NamedTuple):
    """A table by a design: trends and cells of each row, its target, and whether all of it could be read."""

    trends: Matrix  # (numbers, rows), from −1 to 1
    places: Integers  # (columns with cells, rows), counted over all cells of the design
    target: NDArray[np.float64]
    there: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Design:
    """Which coordinates a row has: a trend and `bins` cells (or none) per number, a cell per level, an intercept."""

    columns: tuple[Numeric | Categorical, ...]
    target: Numeric | Categorical
    bins: int = 0

    @classmethod
    def read(cls, given: Parameters, *, target: Numeric | Categorical, bins: int) -> "Design":
        """The design over the columns that the parameter `columns` names."""
        names = given.names("columns")
        if target.name in names:
            raise bad(f"{given.name}: the target is among the columns.", "Leave it out of columns.")
        return cls(columns=tuple(map(given.known, names)), target=target, bins=bins)

    @cached_property
    def numbers(self) -> tuple[Numeric, ...]:
        """The columns that have a trend."""
        return tuple(column for column in self.columns if isinstance(column, Numeric))

    @cached_property
    def axes(self) -> tuple[TableAxis, ...]:
        """The columns that have cells."""
        return tuple(
            axis_of(column, self.bins, is_filled=True)
            for column in self.columns
            if self.bins or isinstance(column, Categorical)
        )

    @cached_property
    def cells(self) -> int:
        """The cells of all columns."""
        return sum(len(axis.labels) for axis in self.axes)

    @property
    def length(self) -> int:
        """The coordinates: trends, cells, intercept, in this order."""
        return len(self.numbers) + self.cells + 1

    def encoded(self, rows: Rows) -> Encoded:
        """The table by this design; kept as long as the table is, since every round reads it again."""
        kept = _KEPT.setdefault(rows, {})
        if self not in kept:
            kept[self] = self._encode(rows)
        return kept[self]

    def _encode(self, rows: Rows) -> Encoded:
        trends = np.array([scaled(filled(rows, column), column) for column in self.numbers])
        trends = trends.reshape(len(self.numbers), rows.rows)
        found = np.array([axis.places(rows) for axis in self.axes], dtype=np.int64).reshape(len(self.axes), rows.rows)
        starts = np.cumsum([0, *(len(axis.labels) for axis in self.axes)])[:-1].astype(np.int64)
        if isinstance(self.target, Categorical):
            place = levels(rows, self.target)
            target = np.where(place < 0, np.nan, place)
        else:
            target = scaled(bounded(rows, self.target), self.target)
        there = ~np.isnan(target) & ~np.isnan(trends).any(axis=0) & (found >= 0).all(axis=0)
        return Encoded(
            trends=np.nan_to_num(trends),
            places=np.maximum(found, 0) + starts[:, None],
            target=np.nan_to_num(target),
            there=there,
        )


_KEPT: weakref.WeakKeyDictionary[Rows, dict[Design, Encoded]] = weakref.WeakKeyDictionary()
