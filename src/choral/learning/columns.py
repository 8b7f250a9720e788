"""Declared columns, and the cells of a table as numbers between −1 and 1.

Ranges and levels are declared by people, not learned from rows: a range computed from data is itself a release.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from choral.errors import TableError
from choral.learning.dates import day_of, days_of
from choral.learning.looks import MOST_LEVELS, Look, look_of
from choral.learning.text_cells import Cells, each

if TYPE_CHECKING:
    from choral.learning.reading import Table

Cell: TypeAlias = Any  # a string from a file, or whatever a data frame holds
Origin = Literal["declared", "public metadata", "the data"]


def is_missing(cell: Cell) -> bool:
    """True for what files and data frames use for "no value".

    >>> [is_missing(cell) for cell in ("", " ", None, float("nan"), "?", 0)]
    [True, True, True, True, False, False]
    """
    if cell is None:
        return True
    if isinstance(cell, str):
        return not cell.strip()
    try:
        return bool(cell != cell)  # NaN and NaT are the values that differ from themselves
    except TypeError:  # pandas' NA does not even say whether it does
        return True


def _missing_rows(cells: Collection[Cell]) -> NDArray[np.intp]:
    return np.flatnonzero(np.fromiter(each(is_missing, cells), dtype=bool, count=len(cells)))


def _refuse_missing(source: str, name: str, rows: NDArray[np.intp]) -> TableError:
    return TableError(
        "CH301",
        f'column "{name}": {len(rows):,} empty cells (first at row {rows[0] + 1:,}).',
        where=source,
        fix="Fix the file, or declare missing = … (a constant you choose, not one computed from data).",
    )


class Column(Protocol):
    """What turns the cells of one column into features; Numeric and Categorical are the two kinds."""

    @property
    def name(self) -> str:
        """The column's name in the table."""

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features that it makes."""

    def encode(self, cells: Collection[Cell], *, source: str) -> NDArray[np.float32]:
        """One row of features a cell, each between −1 and 1."""


@dataclass(frozen=True, kw_only=True)
class Numeric:
    """A number between declared bounds, scaled to −1…1; what lies outside is moved to the nearer bound.

    >>> Numeric(name="age", low=0, high=100).encode(["25", "150"], source="t").ravel().tolist()
    [-0.5, 1.0]
    """

    name: str
    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"
    missing: float | None = None
    dates: bool = False  # cells are dates; low, high and missing are days since 1970-01-01
    whole: bool = False  # cells are whole numbers, so that quantiles are whole numbers too

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise TableError(
                "CH304",
                f'column "{self.name}" has bounds [{self.low:g}, {self.high:g}].',
                fix="Declare bounds = [low, high] with low below high.",
            )
        if self.whole and not (
            self.scale == "linear" and all(float(end).is_integer() for end in (self.low, self.high))
        ):
            raise TableError(
                "CH304",
                f'column "{self.name}" has whole = true, and its bounds are not whole, or its scale is not linear.',
                fix="Declare whole bounds without a scale, for example bounds = [0, 100].",
            )
        if self.missing is not None and not self.low <= self.missing <= self.high:
            raise TableError(
                "CH304",
                f'column "{self.name}": missing = {self.missing:g} is outside bounds [{self.low:g}, {self.high:g}].',
                fix="Choose a constant within the bounds.",
            )

    @property
    def features(self) -> tuple[str, ...]:
        """Its own name: one feature."""
        return (self.name,)

    def encode(self, cells: Collection[Cell], *, source: str) -> NDArray[np.float32]:
        """One scaled number per cell."""
        numbers = np.clip(self._numbers(cells, source=source), self.low, self.high)
        if self.scale == "log":
            scaled = np.log1p(numbers - self.low) / math.log1p(self.high - self.low)
        else:
            scaled = (numbers - self.low) / (self.high - self.low)
        # Centred: a clipped step on features that are all positive spends its length on the intercept.
        return (2 * scaled - 1).astype(np.float32)[:, None]

    def _numbers(self, cells: Collection[Cell], *, source: str) -> NDArray[np.float64]:
        """The cells as numbers, the declared constant in place of those that are missing."""
        if self.dates:
            order = cells.dates if isinstance(cells, Cells) else None
            return days_of(cells, order, source=source, name=self.name, missing=self.missing)
        if isinstance(cells, Cells):
            cells = cells.with_points()
            if (found := cells.numbers()) is not None:
                return found
        empty = _missing_rows(cells)
        if len(empty):
            if self.missing is None:
                raise _refuse_missing(source, self.name, empty)
            gaps = set(empty.tolist())
            cells = [self.missing if row in gaps else cell for row, cell in enumerate(cells)]
        return parse_numbers(cells, source=source, name=self.name)

    @property
    def unit(self) -> float:
        """What a step of 1 on the scaled side is in the column's own unit; of linear scales only."""
        return (self.high - self.low) / 2

    def decode(self, scaled: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """The numbers that were scaled linearly, in the column's own unit.

        >>> Numeric(name="age", low=0, high=100).decode(np.float32([-0.5, 1.0])).tolist()
        [25.0, 100.0]
        """
        return self.low + self.unit * (scaled.astype(np.float64) + 1)


@dataclass(frozen=True, kw_only=True)
class Categorical:
    """One of a declared list of levels, as one 0/1 feature a level; `other` stands for whatever is not in the list.

    >>> Categorical(name="sex", levels=("F", "M")).encode(["M", "F"], source="t").tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """

    name: str
    levels: tuple[str, ...]
    missing: str | None = None
    other: str | None = None

    def __post_init__(self) -> None:
        if len(set(self.levels)) != len(self.levels) or not self.levels:
            raise TableError(
                "CH304", f'column "{self.name}" has no levels, or one twice.', fix="Declare levels = [...], each once."
            )
        for key, level in (("missing", self.missing), ("other", self.other)):
            if level is not None and level not in self.levels:
                raise TableError(
                    "CH304", f'column "{self.name}": {key} names a level that is not listed.', fix="Add it to levels."
                )

    @property
    def features(self) -> tuple[str, ...]:
        """One feature a level."""
        return tuple(f"{self.name}={level}" for level in self.levels)

    def encode(self, cells: Collection[Cell], *, source: str) -> NDArray[np.float32]:
        """A row with a single 1 at the cell's level."""
        codes = self.codes(cells, source=source)
        one_hot = np.zeros((len(codes), len(self.levels)), dtype=np.float32)
        one_hot[np.arange(len(codes)), codes] = 1.0
        return one_hot

    def codes(self, cells: Collection[Cell], *, source: str) -> NDArray[np.int32]:
        """The place of each cell's level in the list."""
        place = {level: index for index, level in enumerate(self.levels)}
        unseen = place[self.other] if self.other is not None else -1
        found = each(lambda cell: place.get(level_of(cell), unseen), cells)
        codes = np.fromiter(found, dtype=np.int32, count=len(cells))
        empty = _missing_rows(cells) if (codes == unseen).any() else np.empty(0, dtype=np.intp)
        if len(empty):
            if self.missing is None:
                raise _refuse_missing(source, self.name, empty)
            codes[empty] = place[self.missing]
        if len(strange := np.flatnonzero(codes < 0)):
            raise TableError(
                "CH311",
                f'column "{self.name}": {len(strange):,} cells hold a level that is not declared '
                f"(first at row {strange[0] + 1:,}; {len(self.levels):,} levels are declared).",
                where=source,
                fix="Add the level to levels, or declare other = … (a listed level that stands for all the rest).",
            )
        return codes


def level_of(cell: Cell) -> str:
    """The level that a cell names: its text, with whole floats as integers (pandas makes 1 into 1.0).

    >>> level_of(" yes "), level_of(1.0), level_of(True)
    ('yes', '1', 'True')
    """
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)


def parse_numbers(cells: Collection[Cell], *, source: str, name: str) -> NDArray[np.float64]:
    """The cells as finite numbers, or a TableError that names the first row that is none.

    >>> parse_numbers(["1", " 2.5 "], source="t", name="x").tolist()
    [1.0, 2.5]
    """
    try:
        numbers = np.asarray(list(cells), dtype=np.float64)
        if np.isfinite(numbers).all():
            return numbers
    except (TypeError, ValueError, OverflowError):
        pass  # found again below, one by one: numpy's message would show the value
    for row, cell in enumerate(cells, start=1):
        if not _is_finite_number(cell):
            raise TableError(
                "CH303",
                f'column "{name}": row {row:,} is not a finite number.',
                where=source,
                fix="Fix the cell, or declare the column as categorical with levels = [...].",
            ) from None
    raise AssertionError("unreachable: some cell was not a finite number")


def _is_finite_number(cell: Cell) -> bool:
    try:
        return math.isfinite(float(cell))
    except (TypeError, ValueError, OverflowError):
        return False


def declare(name: str, settings: Mapping[str, Any], *, where: str = "") -> Numeric | Categorical:
    """The column that `[data.columns.<name>]` declares: bounds make it numeric, levels make it categorical.

    >>> declare("age", {"bounds": [0, 100]}).high
    100.0
    """
    declared = next((each for each in _DECLARED if each.named_by in settings), None)
    if declared is None or not set(settings) <= declared.allowed:
        raise TableError(
            "CH304",
            f'column "{name}" needs bounds (with scale, missing, whole), levels (missing, other) or dates (missing).',
            where=where,
            fix='For example bounds = [0, 100], or levels = ["no", "yes"].',
        )
    return declared.read(name, settings, where)


def _with_levels(name: str, settings: Mapping[str, Any], where: str) -> Categorical:
    if not isinstance(settings["levels"], list | tuple):
        raise TableError("CH304", f'column "{name}": levels must be a list.', where=where, fix='levels = ["no", "yes"]')
    optional = {key: level_of(settings[key]) for key in ("missing", "other") if key in settings}
    return Categorical(name=name, levels=tuple(level_of(level) for level in settings["levels"]), **optional)


def _with_bounds(name: str, settings: Mapping[str, Any], where: str) -> Numeric:
    bounds = settings["bounds"]
    scale = settings.get("scale", "linear")
    if not (isinstance(bounds, list | tuple) and len(bounds) == 2 and all(map(_is_finite_number, bounds))):
        raise TableError("CH304", f'column "{name}": bounds must be [low, high].', where=where, fix="Two numbers.")
    if scale not in ("linear", "log"):
        raise TableError("CH304", f'column "{name}": scale must be "linear" or "log".', where=where, fix="Use one.")
    missing = settings.get("missing")
    if not (missing is None or _is_finite_number(missing)):
        raise TableError("CH304", f'column "{name}": missing must be a number.', where=where, fix="One within bounds.")
    if not isinstance(whole := settings.get("whole", False), bool):
        raise TableError("CH304", f'column "{name}": whole must be true or false.', where=where, fix="whole = true")
    return Numeric(
        name=name,
        low=float(bounds[0]),
        high=float(bounds[1]),
        scale=scale,
        missing=None if missing is None else float(missing),
        whole=whole,
    )


def _with_dates(name: str, settings: Mapping[str, Any], where: str) -> Numeric:
    ends = settings["dates"] if isinstance(settings["dates"], list | tuple) else ()
    found = [day_of(end) for end in (*ends, *([settings["missing"]] if "missing" in settings else []))]
    if len(ends) != 2 or None in found:
        fix = 'dates = ["2000-01-01", "2024-12-31"]'
        raise TableError("CH304", f'column "{name}": dates must be [first, last].', where=where, fix=fix)
    low, high, *missing = (float(day or 0) for day in found)
    return Numeric(name=name, low=low, high=high, missing=missing[0] if missing else None, dates=True)


class _Declared(NamedTuple):
    """A way to declare a column: the key that shows it, the keys that it may have, and who reads them."""

    named_by: str
    allowed: set[str]
    read: Callable[[str, Mapping[str, Any], str], Numeric | Categorical]


_DECLARED = (
    _Declared("bounds", {"bounds", "scale", "missing", "whole"}, _with_bounds),
    _Declared("levels", {"levels", "missing", "other"}, _with_levels),
    _Declared("dates", {"dates", "missing"}, _with_dates),
)


def infer(name: str, cells: Collection[Cell], *, source: str) -> tuple[Numeric | Categorical, Look]:
    """A column as the data itself suggests it, and what it looks like; for simulations, whose report says so.

    >>> infer("x", ["1", "3", "2"], source="t")[0]
    Numeric(name='x', low=1.0, high=3.0, scale='linear', missing=None, dates=False, whole=False)
    """
    texts, numbers = present(cells)
    look = look_of(texts, numbers)
    if look.kind == "identifier":
        raise TableError(
            "CH315",
            f'column "{name}" has one value per row, as an identifier has.',
            where=source,
            fix="Leave it out with ignore = […] in [data], or declare it with bounds or levels if it is none.",
        )
    if numbers is not None:
        low, high = float(numbers.min()), float(numbers.max())
        return Numeric(name=name, low=low, high=high if high > low else low + 1.0), look
    levels = sorted(set(texts))
    if not 0 < len(levels) <= MOST_LEVELS:
        raise TableError(
            "CH304",
            f'column "{name}" has {len(levels):,} different texts, too many to be levels (at most {MOST_LEVELS:,}).',
            where=source,
            fix="Leave the column out, or declare it with levels = [...] and other = ….",
        )
    return Categorical(name=name, levels=tuple(levels)), look


def present(cells: Collection[Cell]) -> tuple[list[str], NDArray[np.float64] | None]:
    """The cells that are not missing, as levels, and as numbers if all of them are finite numbers."""
    cells = cells.with_points() if isinstance(cells, Cells) else cells
    there = [cell for cell in cells if not is_missing(cell)]
    numbers = cells.numbers() if isinstance(cells, Cells) else None
    if numbers is None and there and all(map(_is_finite_number, there)) and not any(isinstance(c, bool) for c in there):
        numbers = np.array([float(cell) for cell in there])
    return [level_of(cell) for cell in there], numbers


def encode(table: "Table", columns: Sequence[Numeric | Categorical]) -> NDArray[np.float32]:
    """The table's rows as features, by the declared columns."""
    features = np.empty((table.rows, sum(len(column.features) for column in columns)), dtype=np.float32)
    first = 0
    for column in columns:
        last = first + len(column.features)
        features[:, first:last] = column.encode(table.cells(column.name), source=table.source)
        first = last
    return features
