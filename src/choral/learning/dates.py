"""Dates as numbers of days: of a column that is declared as dates, and in an order of day and month that is certain."""

import re
from collections.abc import Collection, Iterable
from datetime import date
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from choral.errors import TableError

DateOrder = Literal["iso", "day first", "month first"]
DATE_ORDERS: tuple[DateOrder, ...] = ("iso", "day first", "month first")
_EPOCH = date(1970, 1, 1).toordinal()
_ISO = re.compile(r"(\d{4})[-/.](\d\d?)[-/.](\d\d?)(?:[T ].*)?")
_OTHER = re.compile(r"(\d\d?)[-/.](\d\d?)[-/.](\d{4})(?:[T ].*)?")


def order_of(texts: Iterable[str]) -> DateOrder | None:
    """The order of year, month and day that these dates show; None where they do not show it.

    A day above 12 shows where the day is. Dates that no one order fits show none.

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


def days_of(
    cells: Collection[Any], order: DateOrder | None, *, source: str, name: str, missing: float | None = None
) -> NDArray[np.float64]:
    """The days from 1970-01-01 to each date; `missing` stands for empty cells. CH316 where a date is none, or unclear.

    >>> days_of(["02.01.1970", "31.01.1970"], None, source="t", name="visit").tolist()
    [1.0, 30.0]
    """
    if order is None:
        order = order_of(cell for cell in cells if isinstance(cell, str))
        if order is None:
            raise TableError(
                "CH316",
                f'column "{name}": its dates do not show whether the day or the month comes first.',
                where=source,
                why="A guess would exchange days and months without anybody noticing.",
                fix='Say dates = "day first" or "month first" (choral device approve … --dates), or write 2024-01-31.',
            )
    found = [_days(cell, order, missing) for cell in cells]
    if None in found:
        raise TableError(
            "CH316",
            f'column "{name}": row {found.index(None) + 1:,} is not a date ({order}).',
            where=source,
            fix="Correct the cell, declare missing = … for empty ones, or say how dates are written with dates = ….",
        )
    return np.array(found, dtype=np.float64)


def day_of(text: object) -> float | None:
    """The days from 1970-01-01 to a date such as 2024-01-31; None for what is none.

    >>> day_of("1970-01-02"), day_of("soon")
    (1.0, None)
    """
    return _days(text, "iso", None)


def _days(cell: object, order: DateOrder, missing: float | None) -> float | None:
    if isinstance(cell, date):  # and datetimes, which are dates too; what is no time differs from itself
        return float(cell.toordinal() - _EPOCH) if cell == cell else missing
    if cell is None or cell != cell or not str(cell).strip():
        return missing
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
