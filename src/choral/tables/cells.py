"""The cells of tables: texts as they are kept, and the number, the day or the level that each names by itself."""

import codecs
import math
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property
from itertools import chain
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import ConfigError, TableError

Value = TypeVar("Value")
_MOST_SHOWN = 50  # faults in one message
_BETWEEN = "\x1f"  # the unit separator of ASCII, which hardly any cell holds


class TableFaults(TableError):
    """Several faults of tables as one refusal (CH328), the first of them in full."""

    def __init__(self, parts: Sequence[TableError]) -> None:
        self.parts = tuple(parts)
        super().__init__("CH328", f"{len(parts):,} faults:")

    def __str__(self) -> str:
        """The refusal with a line for each fault."""
        return "\n  ".join([super().__str__(), *self._listed])

    def as_dict(self) -> dict[str, str]:
        """The same for machines, with all faults in one text."""
        return {**super().as_dict(), "what": " ".join([self.what, *self._listed])}

    @property
    def _listed(self) -> list[str]:
        more = len(self.parts) - _MOST_SHOWN
        return [*map(str, self.parts[:_MOST_SHOWN]), *[f"And {more:,} more."] * (more > 0)]


class Faults(AbstractContextManager["Faults"]):
    """All that is wrong with tables, collected so that it is listed in one go and corrected at once.

    >>> faults = Faults()
    >>> with faults:
    ...     raise TableError("CH301", "a cell is empty.")
    >>> with faults:
    ...     raise TableError("CH308", "has no rows.", where="b.csv")
    >>> faults.refuse()
    Traceback (most recent call last):
    choral.tables.cells.TableFaults: CH328 2 faults:
      CH301 a cell is empty.
      CH308 b.csv has no rows.
    """

    def __init__(self) -> None:
        self._found: list[TableError] = []

    def add(self, fault: TableError) -> None:
        """Keep a fault, or the parts of one that is a list itself."""
        self._found += fault.parts if isinstance(fault, TableFaults) else [fault]

    def __exit__(self, _kind: object, error: object, _trace: object) -> bool:
        if isinstance(error, TableError):
            self.add(error)
            return True
        return False

    def refuse(self) -> None:
        """Raise the one fault that there is, or all of them as CH328; do nothing where there is none."""
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            raise TableFaults(self._found)


class Cells(Collection[str]):
    r"""The cells of a column in their order; a block whose cells hold the separator stays as it came.

    >>> cells = Cells([("25", "38"), ("a", "b\x1fc")])
    >>> len(cells), list(cells)
    (4, ['25', '38', 'a', 'b\x1fc'])
    """

    def __init__(self, blocks: Sequence[Sequence[str]] = ()) -> None:
        self._blocks: list[str | tuple[str, ...]] = []
        self._count = 0
        for block in blocks:
            self.add(block)

    def add(self, cells: Sequence[str]) -> None:
        """Add some cells at the end."""
        text = _BETWEEN.join(cells)
        self._blocks.append(text if text.count(_BETWEEN) == len(cells) - 1 else tuple(cells))
        self._count += len(cells)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(block.split(_BETWEEN) if isinstance(block, str) else block for block in self._blocks)

    def __contains__(self, cell: object) -> bool:
        return any(cell == other for other in self)

    def numbers(self) -> NDArray[np.float64] | None:
        """The cells as finite numbers, as `float` reads them; None where one of them may be none.

        >>> Cells([("1", " 2.5 ")]).numbers().tolist(), Cells([("1", "")]).numbers()
        ([1.0, 2.5], None)
        """
        try:
            parts = [_numbers(block) for block in self._blocks]
        except (DeprecationWarning, ValueError):
            return None
        found = np.concatenate([np.empty(0), *parts])
        return found if len(found) == self._count and bool(np.isfinite(found).all()) else None


def _numbers(block: str | tuple[str, ...]) -> NDArray[np.float64]:
    """The numbers of a block, or whatever error says that there is something else in it."""
    if isinstance(block, str):
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # numpy's, where a text does not end with its numbers
            found = np.fromstring(block, dtype=np.float64, sep=_BETWEEN)
        if not (found == -1).any():  # which numpy also makes of blanks
            return found
        block = tuple(block.split(_BETWEEN))
    return np.array([float(cell) for cell in block])


class Remembered(dict[str, Value], Generic[Value]):
    """What a function says of each text, asked once for each different one: columns repeat themselves.

    >>> lengths = Remembered(len)
    >>> lengths["abc"], lengths["abc"], len(lengths)
    (3, 3, 1)
    """

    def __init__(self, of: Callable[[str], Value]) -> None:
        super().__init__()
        self._of = of

    def __missing__(self, text: str) -> Value:
        value = self[text] = self._of(text)
        return value


def each(of: Callable[[Any], Value], cells: Collection[Any]) -> Iterator[Value]:
    """What a function says of each cell; of a file's cells, which are all texts, it is asked once per text."""
    return map(Remembered(of).__getitem__ if isinstance(cells, Cells) else of, cells)


DateOrder = Literal["iso", "day first", "month first"]
DATE_ORDERS: tuple[DateOrder, ...] = ("iso", "day first", "month first")
_EPOCH = date(1970, 1, 1).toordinal()
_ISO = re.compile(r"(\d{4})[-/.](\d\d?)[-/.](\d\d?)(?:[T ].*)?")
_OTHER = re.compile(r"(\d\d?)[-/.](\d\d?)[-/.](\d{4})(?:[T ].*)?")


def order_of(texts: Iterable[str]) -> DateOrder | None:
    """The order of year, month and day that these dates show; None where they do not show it. For simulations only.

    A day above 12 shows where the day is, so one row decides how all others are read. Dates that no one order fits
    show none.

    >>> order_of(["2024-01-31"]), order_of(["03/04/2024", "31/12/2023"]), order_of(["03/04/2024"])
    ('iso', 'day first', None)
    """
    parts = [found.groups() for text in texts if (found := _OTHER.fullmatch(text.strip()))]
    if not parts:
        return "iso"
    day_first, month_first = any(int(one) > 12 for one, _, _ in parts), any(int(two) > 12 for _, two, _ in parts)
    if day_first == month_first:
        return None
    return "day first" if day_first else "month first"


def day_of(text: object) -> float | None:
    """The days from 1970-01-01 to a date such as 2024-01-31; None for what is none.

    >>> day_of("1970-01-02"), day_of("soon")
    (1.0, None)
    """
    return day_in(text, "iso")


def day_in(cell: object, order: DateOrder) -> float | None:
    """The days from 1970-01-01 to the date in a cell, by itself; None for what is no date in this order.

    Dates that begin with the year are read in every order.

    >>> day_in("02.01.1970", "day first"), day_in("02.01.1970", "iso")
    (1.0, None)
    """
    if isinstance(cell, date):  # and datetimes, which are dates too
        return float(cell.toordinal() - _EPOCH)
    text = str(cell).strip()
    if found := _ISO.fullmatch(text):
        year, month, day = map(int, found.groups())
    elif order != "iso" and (found := _OTHER.fullmatch(text)):
        first, second, year = map(int, found.groups())
        day, month = (first, second) if order == "day first" else (second, first)
    else:
        return None
    try:
        return float(date(year, month, day).toordinal() - _EPOCH)
    except ValueError:
        return None


Cell: TypeAlias = Any  # a string from a file, or whatever a data frame holds


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


EMPTY = ("NA", "NaN", "nan", "NULL", "n/a", ".", "?")  # what R, pandas and people write for "no value"
_WITH_COMMA = re.compile(r"[+-]?\d+,\d+")
_EXACT = 2.0**53  # whole numbers up to here are the same as a float
_WITH_STATE = ("utf-7", "utf_7", "hz", "iso2022", "unicode", "raw", "punycode", "idna")  # or with escapes across lines
_NO_NUMBER = math.inf  # stands for a cell that is neither empty nor a finite number


def check_encoding(name: str) -> None:
    """Nothing, or CH102 for an encoding that Python does not have, or in which a row says how the next ones are read.

    >>> check_encoding("cp1252")
    """
    known = "utf-8, utf-16, cp1252 (Windows), latin-1"
    try:
        "".encode(name)
        found = codecs.lookup(name).name
    except (LookupError, UnicodeError):
        raise ConfigError("CH102", f"encoding = {name!r}.", fix=f"Known, for example: {known}.") from None
    if found.startswith(_WITH_STATE):
        raise ConfigError(
            "CH102",
            f"encoding = {name!r}.",
            why="In it, one row can change how all later rows are read.",
            fix=f"Save the file as UTF-8. Known, for example: {known}.",
        )


@dataclass(frozen=True, kw_only=True)
class Format:
    """How a table is written; each of its cells is read by this and by nothing else, whatever the other rows hold.

    What is left open is found in the header line of a file, or has its usual value.

    >>> Format(delimiter=";").over(Format(delimiter=",", decimal=".")).delimiter
    ';'
    """

    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    dates: DateOrder | None = None
    outcome: str | None = None  # this file's own column in the label's place: sites may predict different things
    empty: tuple[str, ...] | None = None  # the texts that stand for no value, as well as a blank

    def __post_init__(self) -> None:
        for name, allowed in (("decimal", (".", ",")), ("dates", DATE_ORDERS)):
            if getattr(self, name) not in (None, *allowed):
                known = " or ".join(f'"{one}"' for one in allowed)
                raise ConfigError("CH102", f"{name} = {getattr(self, name)!r}.", fix=f"Must be {known}.")
        check_encoding(self.encoding or "utf-8")

    def over(self, other: "Format") -> "Format":
        """The same, with what another format says where this one leaves it open."""
        return replace(other, **self.said)

    @property
    def said(self) -> dict[str, Any]:
        """What it does not leave open, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(EMPTY if self.empty is None else self.empty)

    @cached_property
    def _calls_numbers_empty(self) -> bool:
        """Whether one of the words for "no value" could be read as a number, as -9 is."""
        return any(map(is_finite_number, self._words))

    def is_missing(self, cell: Cell) -> bool:
        """True for a cell without a value: a blank, what data frames use for it, or one of the words for it.

        >>> [Format().is_missing(cell) for cell in ("NA", " . ", None, "no", 0)]
        [True, True, True, False, False]
        """
        if is_missing(cell):
            return True
        text = isinstance(cell, str)
        return (text or self._calls_numbers_empty) and level_of(cell) in self._words

    def number(self, cell: Cell) -> float | None:
        """The number in a cell; NaN where it has no value, None where it has one that is no finite number.

        >>> comma = Format(decimal=",")
        >>> comma.number("27,5"), comma.number("27.5"), comma.number("NA"), comma.number("many")
        (27.5, 27.5, nan, None)
        """
        if self.is_missing(cell):
            return math.nan
        if self.decimal == "," and isinstance(cell, str) and _WITH_COMMA.fullmatch(cell.strip()):
            cell = cell.replace(",", ".")
        return float(cell) if is_finite_number(cell) else None

    def day(self, cell: Cell) -> float | None:
        """The days from 1970-01-01 to the date in a cell; NaN where it has no value, None where it is no date.

        >>> Format(dates="day first").day("02.01.1970"), Format().day("02.01.1970"), Format().day("NA")
        (1.0, None, nan)
        """
        return math.nan if self.is_missing(cell) else day_in(cell, self.dates or "iso")

    def numbers(self, cells: Collection[Cell]) -> NDArray[np.float64]:
        """The number in each cell: NaN where it has no value, infinity where it has one that is no finite number."""
        found = None
        if not self._calls_numbers_empty:
            found = cells.numbers() if isinstance(cells, Cells) else _of_plain_numbers(cells)
        return _each_number(self.number, cells) if found is None else found

    def days(self, cells: Collection[Cell]) -> NDArray[np.float64]:
        """The day in each cell, as `numbers` has them."""
        return _each_number(self.day, cells)


OPEN = Format()
Parts: TypeAlias = Sequence[tuple[Collection[Cell], Format]]  # one column of several tables, each with its own format


def _of_plain_numbers(cells: Collection[Cell]) -> NDArray[np.float64] | None:
    """The cells as floats where all of them are whole numbers or floats, which are read without any choice."""
    if not set(map(type, cells)) <= {int, float}:
        return None
    try:
        return np.array(list(cells), dtype=np.float64)
    except OverflowError:
        return None


def _each_number(of: Callable[[Cell], float | None], cells: Collection[Cell]) -> NDArray[np.float64]:
    def found(cell: Cell) -> float:
        number = of(cell)
        return _NO_NUMBER if number is None else number

    return np.fromiter(each(found, cells), dtype=np.float64, count=len(cells))


def level_of(cell: Cell) -> str:
    """The level that a cell names: its text, in the one form that does not depend on the type of a column.

    A whole number is the same as a float (pandas makes 1 into 1.0 where a cell is empty), and a day at midnight as a
    time.

    >>> level_of(" yes "), level_of(1.0), level_of(True), level_of(Decimal("2.50")), level_of(datetime(2024, 1, 31))
    ('yes', '1', 'True', '2.5', '2024-01-31')
    """
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, Decimal) and cell.is_finite():
        return f"{cell:f}".rstrip("0").rstrip(".") if "." in f"{cell:f}" else f"{cell:f}"
    if isinstance(cell, datetime) and cell == cell and cell.tzinfo is None and cell.time() == time():
        return date.isoformat(cell.date())
    return str(cell)


def is_inexact(cell: Cell) -> bool:
    """Whether a cell is a float beyond 2⁵³: where it stands for a name, which whole number it was is lost.

    Where one cell of a column is empty, some programs turn all its whole numbers into floats.

    >>> is_inexact(2.0**53), is_inexact(2**53), is_inexact(1.0)
    (True, False, False)
    """
    return isinstance(cell, float) and abs(cell) >= _EXACT


def is_finite_number(cell: Cell) -> bool:
    """Return whether Python reads a cell as a finite number."""
    try:
        return math.isfinite(float(cell))
    except (TypeError, ValueError, OverflowError):
        return False
