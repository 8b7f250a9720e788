"""From the cells of a table to numbers and places in a declared list, for every cell that could be there.

Unlike in training, nothing is refused here: a refusal would say that such a cell exists. What can't be read has no
value, unless it has a declared level: `missing` or `other`. A row without a value is counted as one.
"""

import itertools
import math
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral.asking.parameters import Parameters, bad
from choral.asking.summand import Integers, Rows
from choral.core.errors import TableError
from choral.tables.cells import each
from choral.tables.columns import Categorical, Numeric

NOWHERE = -1
MOST_CELLS = 2**16
MOST_BINS, USUAL_BINS = 256, 24  # even cells of a number


def numbers(rows: Rows, name: str) -> NDArray[np.float64]:
    """The cells of a column as numbers, each by itself as its table is written; NaN where there is none.

    >>> numbers(Rows(source="t", columns={"x": ["1.5", "", "much", "inf"]}), "x").tolist()
    [1.5, nan, nan, nan]
    """

    def read() -> NDArray[np.float64]:
        found = rows.written.numbers(rows.cells(name))
        return np.where(np.isfinite(found), found, np.nan)

    return _once(rows, name, read)


def bounded(rows: Rows, column: Numeric) -> NDArray[np.float64]:
    """The cells of a column as numbers within its bounds; NaN where there is none, whatever `missing` says.

    A constant in place of what nobody knows is for models; in a mean or a quantile it would be a made-up value.

    >>> bounded(Rows(source="t", columns={"x": [-3, 5, None]}), Numeric(name="x", low=0, high=9, missing=1)).tolist()
    [0.0, 5.0, nan]
    """
    return np.clip(numbers(rows, column.name), column.low, column.high)


def filled(rows: Rows, column: Numeric) -> NDArray[np.float64]:
    """The same for models, with the declared `missing` where there is no number, as in training.

    >>> filled(Rows(source="t", columns={"x": [-3, None]}), Numeric(name="x", low=0, high=9, missing=1)).tolist()
    [0.0, 1.0]
    """
    found = bounded(rows, column)
    return found if column.missing is None else np.where(np.isnan(found), column.missing, found)


def scaled(found: NDArray[np.float64], column: Numeric) -> NDArray[np.float64]:
    """Numbers within bounds from −1 to 1, on the column's declared scale.

    >>> scaled(np.array([0.0, 25.0]), Numeric(name="age", low=0, high=100)).tolist()
    [-1.0, -0.5]
    """
    if column.scale == "log":
        return np.asarray(2 * np.log1p(found - column.low) / math.log1p(column.high - column.low) - 1)
    return np.asarray((found - column.low) / column.unit - 1)


def levels(rows: Rows, column: Categorical) -> Integers:
    """The place of each cell's level in the declared list; −1 where it has none.

    >>> levels(Rows(source="t", columns={"s": ["m", "x", ""]}), Categorical(name="s", levels=("f", "m"))).tolist()
    [1, -1, -1]
    """

    def read() -> Integers:
        found = each(lambda cell: column.place_of(cell, rows.written), rows.cells(column.name))
        return np.maximum(np.fromiter(found, dtype=np.int64, count=rows.rows), NOWHERE)

    return _once(rows, column, read)


_READ: weakref.WeakKeyDictionary[Rows, dict[Hashable, NDArray[Any]]] = weakref.WeakKeyDictionary()


def _once(rows: Rows, key: Hashable, read: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """What `read` gives, kept as long as the table is: a model's sums read the same columns several times."""
    kept = _READ.setdefault(rows, {})
    if key not in kept:
        kept[key] = read()
        kept[key].flags.writeable = False
    return kept[key]


@dataclass(frozen=True, kw_only=True)
class TableAxis:
    """The cells that one column has in a table: its levels, or the stretches between cuts."""

    column: Numeric | Categorical
    cuts: tuple[float, ...] = ()
    is_filled: bool = False  # a model's, which takes a declared `missing` for what has no number

    @property
    def labels(self) -> tuple[str, ...]:
        """One name per cell."""
        if isinstance(self.column, Categorical):
            return self.column.levels
        edges = (self.column.low, *self.cuts, self.column.high)
        last = len(edges) - 2
        return tuple(
            f"[{low:g}, {high:g}{']' if place == last else ')'}"
            for place, (low, high) in enumerate(itertools.pairwise(edges))
        )

    def places(self, rows: Rows) -> Integers:
        """The cell of each row, or −1."""
        if isinstance(self.column, Categorical):
            return levels(rows, self.column)
        found = (filled if self.is_filled else bounded)(rows, self.column)
        inside = np.searchsorted(np.array(self.cuts), found, side="right")
        return np.where(np.isnan(found), NOWHERE, inside).astype(np.int64)


def axes_of(given: Parameters, names: tuple[str, ...]) -> tuple[TableAxis, ...]:
    """The axes of a table over these columns; numbers are cut at the places that the parameter `cuts` names."""
    cuts = given.take("cuts") or {}
    if not isinstance(cuts, Mapping):
        raise bad(f"{given.name}: cuts is not a table of columns.", 'For example cuts = {"age": [40, 60]}.')
    if strange := sorted(set(cuts) - set(names)):
        raise bad(f'{given.name}: cuts names "{strange[0]}", which is not asked for.', "Leave it out.")
    axes = tuple(_axis(given, name, cuts.get(name)) for name in names)
    if math.prod(len(axis.labels) for axis in axes) > MOST_CELLS:
        raise bad(f"{given.name}: the table would have more than {MOST_CELLS:,} cells.", "Ask for fewer columns.")
    return axes


def _axis(given: Parameters, name: str, cuts: object) -> TableAxis:
    if cuts is None:
        return TableAxis(column=given.of(name, Categorical))
    column = given.of(name, Numeric)
    numeric = isinstance(cuts, list | tuple) and all(type(cut) in (int, float) for cut in cuts)
    if not (numeric and isinstance(cuts, list | tuple) and list(cuts) == sorted(set(cuts)) and cuts):
        raise bad(f'{given.name}: the cuts of "{name}" do not rise.', "Give numbers, each larger than the one before.")
    if not (column.low < cuts[0] and cuts[-1] < column.high):
        raise TableError(
            "CH322",
            f'a cut of "{name}" is not between its declared bounds.',
            fix=f"Use numbers between {column.low:g} and {column.high:g}.",
        )
    return TableAxis(column=column, cuts=tuple(map(float, cuts)))


def axis_of(column: Numeric | Categorical, bins: int, *, is_filled: bool = False) -> TableAxis:
    """A column's levels, or so many cells of a number, even on its declared scale.

    >>> axis_of(Numeric(name="age", low=0, high=100), 4).cuts
    (25.0, 50.0, 75.0)
    """
    if isinstance(column, Categorical):
        return TableAxis(column=column)
    return TableAxis(column=column, cuts=tuple(even_edges(column, bins)[1:-1].tolist()), is_filled=is_filled)


def even_edges(column: Numeric, bins: int) -> NDArray[np.float64]:
    """Where so many cells begin and end that are even on the column's declared scale.

    The last digit of a double is rounded off, so that an edge of 29 or 0.3 is that number and a cell that says so
    is not on its other side.

    >>> even_edges(Numeric(name="age", low=0, high=100), 4).tolist()
    [0.0, 25.0, 50.0, 75.0, 100.0]
    """
    even, wide = np.arange(bins + 1) / bins, column.high - column.low
    inside = np.expm1(even * math.log1p(wide)) if column.scale == "log" else even * wide
    return np.array([float(f"{edge:.15g}") for edge in (column.low + inside).tolist()])
