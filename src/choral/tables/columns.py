"""Declared columns, and the cells of a table as numbers between −1 and 1.

Ranges and levels are declared by people, not learned from rows: a range computed from data is itself a release.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import TableError
from choral.tables.cells import (
    OPEN,
    Cell,
    Faults,
    Format,
    Parts,
    day_of,
    each,
    is_finite_number,
    is_inexact,
    is_missing,
    level_of,
)

if TYPE_CHECKING:
    from choral.tables.reading import Table


MOST_LEVELS = 1000
_FEWEST = 50  # present cells, below which a column of different values may well be a measurement
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?([T ].*)?|\d\d?[./]\d\d?[./]\d{4}|\d{4}/\d\d?/\d\d?")
_MOST_CLASSES = 10
_SHOWN = 1000  # cells that are compared with the form of a date


@dataclass(frozen=True, kw_only=True)
class Look:
    """What the present cells of a column have in common, in a kind and in words; it holds no cell."""

    kind: Literal["number", "levels", "date", "identifier", "nothing"]
    words: str
    empty: bool = False  # whether some cells have no value
    few: bool = False  # whether these numbers are so few and whole that they may well be the names of classes


def look_of(texts: Collection[str], numbers: NDArray[np.float64] | None, *, empty: bool = False) -> Look:
    """The look of the present cells, given as texts, and as numbers if all are; `empty` if others have no value.

    >>> look_of(["F", "M", "F"], None).words, look_of(["2024-01-31", "2023-02-28"], None).kind
    ('2 levels', 'date')
    """
    return replace(_look_of(texts, numbers), empty=empty)


def _look_of(texts: Collection[str], numbers: NDArray[np.float64] | None) -> Look:
    count, different = len(texts), len(set(texts))
    if not count:
        return Look(kind="nothing", words="empty")
    whole = numbers is not None and bool((numbers == np.round(numbers)).all())
    if different == count >= _FEWEST and (whole or numbers is None):
        return Look(kind="identifier", words="one value per row: probably an identifier")
    if numbers is not None:
        return Look(kind="number", words="a number", few=whole and different <= _MOST_CLASSES)
    if all(_DATE.fullmatch(text.strip()) for text, _ in zip(texts, range(_SHOWN), strict=False)):
        return Look(kind="date", words=f"a date, {different:,} different")
    return Look(kind="levels", words=f"{different:,} level{'s' * (different != 1)}")


def about_columns(taken: Mapping[str, str], unread: Sequence[str]) -> tuple[str, ...]:
    """What was taken from the rows, and looks how; and what was not read.

    >>> about_columns({}, ["name"])
    ('not declared, so not read: name',)
    """
    notes = []
    if taken:
        listed = "; ".join(f"{name}: {words}" for name, words in taken.items())
        notes.append(f"columns taken from the rows, which a deployment does not do: {listed}")
    if unread:
        notes.append(f"not declared, so not read: {', '.join(unread)}")
    return tuple(notes)


Origin = Literal["declared", "public metadata", "the data"]
NO_VALUE, STRANGE = -2, -1  # in the place of a level's place: a cell without a value, and one that no level is for


def _rows_in_words(rows: NDArray[np.intp], one: str, several: str) -> str:
    """Which rows are meant, by the number of the first of them."""
    return f"row {rows[0] + 1:,} {one}" if len(rows) == 1 else f"{len(rows):,} {several} (first at row {rows[0] + 1:,})"


def _cells_hold(count: int) -> str:
    return "1 cell holds" if count == 1 else f"{count:,} cells hold"


def _refuse_missing(source: str, name: str, rows: NDArray[np.intp]) -> TableError:
    return TableError(
        "CH301",
        f'column "{name}": {len(rows):,} empty cell{"s" * (len(rows) != 1)} (first at row {rows[0] + 1:,}).',
        where=source,
        fix="Fix the file, or declare missing = … (a constant you choose, not one computed from data).",
    )


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

    def encode(self, cells: Collection[Cell], *, source: str, written: Format = OPEN) -> NDArray[np.float32]:
        """One scaled number per cell."""
        numbers = np.clip(self._numbers(cells, source, written), self.low, self.high)
        if self.scale == "log":
            scaled = np.log1p(numbers - self.low) / math.log1p(self.high - self.low)
        else:
            scaled = (numbers - self.low) / (self.high - self.low)
        # Centred: a clipped step on features that are all positive spends its length on the intercept.
        return (2 * scaled - 1).astype(np.float32)[:, None]

    def _numbers(self, cells: Collection[Cell], source: str, written: Format) -> NDArray[np.float64]:
        """The cells as numbers, the declared constant in place of those that are missing."""
        found = written.days(cells) if self.dates else written.numbers(cells)
        empty, faults = np.flatnonzero(np.isnan(found)), Faults()
        if len(empty) and self.missing is None:
            faults.add(_refuse_missing(source, self.name, empty))
        if len(strange := np.flatnonzero(np.isinf(found))):
            faults.add((_no_date if self.dates else _no_number)(source, self.name, strange, written))
        faults.refuse()
        if len(empty):
            found[empty] = self.missing
        return found

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

    def encode(self, cells: Collection[Cell], *, source: str, written: Format = OPEN) -> NDArray[np.float32]:
        """A row with a single 1 at the cell's level."""
        codes = self.codes(cells, source=source, written=written)
        one_hot = np.zeros((len(codes), len(self.levels)), dtype=np.float32)
        one_hot[np.arange(len(codes)), codes] = 1.0
        return one_hot

    @cached_property
    def _places(self) -> dict[str, int]:
        """The place of each level, and of what else is written for it where truths are declared and nothing else is."""
        places = {level: place for place, level in enumerate(self.levels)}
        if self.other is None and {"True", "False"} <= places.keys():
            spelt = {name: (name.lower(), name.upper()) for name in ("True", "False")}
            places |= {text: places[name] for name, texts in spelt.items() for text in texts if text not in places}
        return places

    def place_of(self, cell: Cell, written: Format = OPEN) -> int:
        """The place of a cell's level in the list; NO_VALUE or STRANGE where it has none.

        A level that is declared is one, even if its text is a word for "no value".

        >>> sex = Categorical(name="sex", levels=("F", "M", "?"), missing="M")
        >>> [sex.place_of(cell) for cell in ("F", "?", "NA", None, "x")] == [0, 2, 1, 1, STRANGE]
        True
        """
        places = self._places
        if is_missing(cell) and not (isinstance(cell, str) and "" in places):
            return NO_VALUE if self.missing is None else places[self.missing]
        if is_inexact(cell):
            return STRANGE
        level = level_of(cell)
        if (found := places.get(level)) is not None:
            return found
        if isinstance(cell, bool) and self.other is None and {"0", "1"} <= places.keys():
            return places[str(int(cell))]
        if self.missing is not None and written.is_missing(cell):
            return places[self.missing]
        if self.other is not None:
            return places[self.other]
        return NO_VALUE if written.is_missing(cell) else STRANGE

    def codes(self, cells: Collection[Cell], *, source: str, written: Format = OPEN) -> NDArray[np.int32]:
        """The place of each cell's level in the list."""
        found = each(lambda cell: self.place_of(cell, written), cells)
        codes, faults = np.fromiter(found, dtype=np.int32, count=len(cells)), Faults()
        if len(empty := np.flatnonzero(codes == NO_VALUE)):
            faults.add(_refuse_missing(source, self.name, empty))
        if len(strange := np.flatnonzero(codes == STRANGE)):
            faults.add(
                TableError(
                    "CH311",
                    f'column "{self.name}": {_cells_hold(len(strange))} a level that is not declared '
                    f"(first at row {strange[0] + 1:,}; {len(self.levels):,} levels are declared).",
                    where=source,
                    fix="Add the level to levels, or declare other = … (a listed level that stands for all the rest).",
                )
            )
        faults.refuse()
        return codes


def parse_numbers(cells: Collection[Cell], *, source: str, name: str, written: Format = OPEN) -> NDArray[np.float64]:
    """The cells as finite numbers, or a TableError that names the first row that is none.

    >>> parse_numbers(["1", " 2.5 "], source="t", name="x").tolist()
    [1.0, 2.5]
    """
    numbers = written.numbers(cells)
    if len(strange := np.flatnonzero(~np.isfinite(numbers))):
        raise _no_number(source, name, strange, written)
    return numbers


def _no_number(source: str, name: str, rows: NDArray[np.intp], _written: Format) -> TableError:
    return TableError(
        "CH303",
        f'column "{name}": {_rows_in_words(rows, "is not a finite number", "cells are not finite numbers")}.',
        where=source,
        fix="Fix the cell, or declare the column as categorical with levels = [...].",
    )


def _no_date(source: str, name: str, rows: NDArray[np.intp], written: Format) -> TableError:
    order = written.dates or "iso"
    return TableError(
        "CH316",
        f'column "{name}": {_rows_in_words(rows, "is not a date", "cells are not dates")} ({order}).',
        where=source,
        why="Only 2024-01-31 needs no word; where one date decided how others are read, it would change their rows."
        if order == "iso"
        else "",
        fix='Say dates = "day first" or "month first" (choral device approve … --dates), correct the cell, or declare '
        "missing = … for empty ones.",
    )


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
    if not (isinstance(bounds, list | tuple) and len(bounds) == 2 and all(map(is_finite_number, bounds))):
        raise TableError("CH304", f'column "{name}": bounds must be [low, high].', where=where, fix="Two numbers.")
    if scale not in ("linear", "log"):
        raise TableError("CH304", f'column "{name}": scale must be "linear" or "log".', where=where, fix="Use one.")
    missing = settings.get("missing")
    if not (missing is None or is_finite_number(missing)):
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


def infer(name: str, parts: Parts, *, source: str) -> tuple[Numeric | Categorical, Look]:
    """A column as the data itself suggests it, and what it looks like; for simulations, whose report says so.

    >>> infer("x", [(["1", "3", "2"], OPEN)], source="t")[0]
    Numeric(name='x', low=1.0, high=3.0, scale='linear', missing=None, dates=False, whole=False)
    """
    look, texts, numbers = looked_at(parts)
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


def looked_at(parts: Parts) -> tuple[Look, list[str], NDArray[np.float64] | None]:
    """The look of a column, its cells that are not missing as levels, and as numbers if all of them are."""
    there = [[cell for cell in cells if not written.is_missing(cell)] for cells, written in parts]
    texts = [level_of(cell) for part in there for cell in part]
    empty = len(texts) < sum(len(cells) for cells, _ in parts)
    if not texts or any(isinstance(cell, bool) for part in there for cell in part):
        return look_of(texts, None, empty=empty), texts, None
    numbers = np.concatenate([written.numbers(part) for part, (_, written) in zip(there, parts, strict=True)])
    found = numbers if np.isfinite(numbers).all() else None
    return look_of(texts, found, empty=empty), texts, found


def encode(table: "Table", columns: Sequence[Numeric | Categorical]) -> NDArray[np.float32]:
    """The table's rows as features, by the declared columns; what is wrong with any of them is listed in one go."""
    features = np.empty((table.rows, sum(len(column.features) for column in columns)), dtype=np.float32)
    first, faults = 0, Faults()
    for column in columns:
        last = first + len(column.features)
        with faults:
            features[:, first:last] = column.encode(
                table.cells(column.name), source=table.source, written=table.written
            )
        first = last
    faults.refuse()
    return features


LabelType = Literal["text", "whole number", "number", "truth"]


def type_of_classes(classes: Sequence[object]) -> LabelType:
    """The type of declared classes, whatever the rows hold; texts that are all whole numbers are whole numbers.

    >>> type_of_classes(["0", "1"]), type_of_classes(["01", "1"]), type_of_classes([False, True])
    ('whole number', 'text', 'truth')
    """
    if classes and all(isinstance(one, str) and _is_whole(one) for one in classes):
        return "whole number"
    return type_of_labels(classes)


def type_of_labels(cells: Collection[Cell]) -> LabelType:
    """The type of a label's cells where nobody has declared the classes: that of the first one with a value.

    >>> type_of_labels([True, False]), type_of_labels([1.0, 2.0]), type_of_labels(["no"]), type_of_labels([0, None])
    ('truth', 'number', 'text', 'whole number')
    """
    first = next((cell for cell in cells if not is_missing(cell)), "")
    if isinstance(first, bool | np.bool_):
        return "truth"
    if isinstance(first, int | np.integer):
        return "whole number"
    return "number" if isinstance(first, float | np.floating) else "text"


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and str(int(text)) == text


_READ: dict[LabelType, Callable[[str], object]] = {
    "text": str,
    "whole number": lambda text: int(float(text)),
    "number": float,
    "truth": lambda text: text in ("True", "1"),
}


def typed(classes: Sequence[str], label_type: LabelType) -> NDArray[Any]:
    """The classes in their own type.

    >>> typed(("0", "1"), "whole number").dtype.kind, typed(("False", "True"), "truth").tolist()
    ('i', [False, True])
    """
    return np.array(list(map(_READ[label_type], classes)))
