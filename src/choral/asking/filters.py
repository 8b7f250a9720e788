"""`where`: a conjunction of declared levels and ranges. It never changes l2: a row that it excludes has φ = 0."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from choral.asking.cells import bounded, levels
from choral.asking.parameters import Parameters, bad
from choral.asking.summand import Rows
from choral.core.errors import TableError
from choral.tables.columns import Categorical, Numeric

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
