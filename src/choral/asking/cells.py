"""From the cells of a table to numbers, places in a declared list, filters and counts.

Unlike in training, nothing is refused here: a refusal would say that such a cell exists. What can't be read has no
value, unless it has a declared level: `missing` or `other`. A row without a value is counted as one.
"""

import itertools
import math
import re
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral.asking.parameters import Integers, Parameters, Rows, Summand, bad
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


_WRITTEN = re.compile(r"\s*(.+?)\s*(>=|<|=)\s*(.+?)\s*")
_FORM = 'Use {"column": …, "levels": [...]} or {"column": …, "at_least": …, "below": …}.'


def condition(text: str) -> dict[str, object]:
    """One condition from the form that people type: `age>=60`, `age<80` or `sex=female`.

    >>> condition("age >= 60"), condition("sex=f")
    ({'column': 'age', 'at_least': 60.0}, {'column': 'sex', 'levels': ['f']})
    """
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise bad("where: a condition has no >=, < or =.", "Write age>=60, age<80 or sex=female.")
    column, sign, value = match.groups()
    if sign == "=":
        return {"column": column, "levels": [value]}
    try:
        return {"column": column, "at_least" if sign == ">=" else "below": float(value)}
    except ValueError:
        raise bad(f'where: what follows {sign} in a condition on "{column}" is no number.', "Write age>=60.") from None


@dataclass(frozen=True, kw_only=True)
class Filter:
    """The rows that a question is about: all that fulfil every condition."""

    among: tuple[tuple[Categorical, frozenset[int]], ...] = ()
    within: tuple[tuple[Numeric, float, float], ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return (*(column.name for column, _ in self.among), *(column.name for column, _, _ in self.within))

    @property
    def is_everything(self) -> bool:
        """Whether it keeps every row, so that their number is public."""
        return not self.among and not self.within

    def keeps(self, rows: Rows) -> NDArray[np.bool_]:
        """True for the rows that it is about; every condition is evaluated on every row."""
        kept = np.ones(rows.rows, dtype=bool)
        for column, places in self.among:
            allowed = np.zeros(len(column.levels) + 1, dtype=bool)  # the last one stands for −1, no level
            allowed[sorted(places)] = True
            kept &= allowed[levels(rows, column)]
        for numeric, low, high in self.within:
            found = bounded(rows, numeric)
            kept &= (found >= low) & (found < high)  # NaN is in no range
        return kept


def filter_of(given: Parameters) -> Filter:
    """The filter that the parameter `where` describes."""
    listed = given.take("where")
    conditions = [] if listed is None else listed
    if not (isinstance(conditions, list | tuple) and all(isinstance(one, Mapping) for one in conditions)):
        raise bad(f"{given.name}: where is not a list of conditions.", _FORM)
    among, within = [], []
    for one in conditions:
        inner = Parameters("where", one, given.columns)
        name = inner.column("column")
        if "levels" in one:
            column = inner.of(name, Categorical)
            among.append((column, _places(column, inner.take("levels"))))
        else:
            within.append(_range(inner, inner.of(name, Numeric)))
        inner.end()
    return Filter(among=tuple(among), within=tuple(within))


def _places(column: Categorical, wanted: object) -> frozenset[int]:
    if not (isinstance(wanted, list | tuple) and wanted):
        raise bad(f'where: the levels of "{column.name}" are not a list.', _FORM)
    if not all(level in column.levels for level in wanted):
        raise TableError(
            "CH322",
            f'a filter names a level of "{column.name}" that is not declared.',
            fix=f"Declared: {', '.join(column.levels[:12])}{', …' if len(column.levels) > 12 else ''}.",
        )
    return frozenset(column.levels.index(level) for level in wanted)


def _range(inner: Parameters, column: Numeric) -> tuple[Numeric, float, float]:
    ends: list[float] = []
    for key, open_end in (("at_least", -np.inf), ("below", np.inf)):
        value = inner.take(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise bad(f'where: {key} of "{column.name}" is no number.', _FORM)
        if value is not None and not column.low <= value <= column.high:
            raise TableError(
                "CH322",
                f'a filter on "{column.name}" is outside its declared bounds.',
                fix=f"Use numbers between {column.low:g} and {column.high:g}.",
            )
        ends.append(open_end if value is None else float(value))
    low, high = ends
    if not low < high or (low == -np.inf and high == np.inf):
        raise bad(f'where: the range of "{column.name}" is empty, or has no end.', _FORM)
    return column, low, high


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
