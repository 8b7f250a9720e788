"""Dates as numbers of days: each by itself, in an order of day and month that somebody has said."""

import re
from collections.abc import Iterable
from datetime import date
from typing import Literal

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
