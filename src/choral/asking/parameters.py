"""The parameters of a question, read one by one, and what a question adds up: φ, and how far one row can move it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from choral.asking.question import FIRST, VERSION
from choral.core.errors import ConfigError, TableError
from choral.tables.columns import Categorical, Numeric
from choral.tables.reading import Table

Integers: TypeAlias = NDArray[np.int64]
Rows: TypeAlias = Table
# By name. None: the name is declared and the range is not known to anybody; only the question `bounds` reads it.
DeclaredColumns: TypeAlias = Mapping[str, Numeric | Categorical | None]


@dataclass(frozen=True, kw_only=True)
class Summand:
    """A whole-valued vector φ of each row, and two bounds that hold for every row that could be in a table.

    `l2` bounds the Euclidean distance of φ between any two rows, and `largest` bounds |φ| of one row in each
    coordinate, both in φ's own units. φ is a function of one row, its place, N and public parameters, and of no other
    row. A row that a filter excludes has φ = 0; one without a value is left out of the answer, and φ says so.
    """

    length: int
    l2: float
    largest: int
    columns: tuple[str, ...]
    total: Callable[[Rows], Integers]


ONE_SITE = "site"  # no question is asked by it: each answer would have one site's noise and nobody else's
MOST_COLUMNS = 64
Kind = TypeVar("Kind", Numeric, Categorical)


def bad(what: str, fix: str) -> ConfigError:
    """CH102 for a parameter."""
    return ConfigError("CH102", what, fix=fix)


class Parameters:
    """Reads the parameters of one question against the declared columns; `end` refuses those that nobody read.

    >>> sex = Categorical(name="sex", levels=("f", "m"))
    >>> given = Parameters("table", {"columns": ["sex"], "bins": 3}, {"sex": sex})
    >>> given.names("columns"), given.whole("bins", least=2, most=8, usual=4)
    (('sex',), 3)
    """

    def __init__(
        self, name: str, given: Mapping[str, object], columns: DeclaredColumns, *, version: int = VERSION
    ) -> None:
        self.name, self.given, self.columns, self.version = name, given, columns, version
        self._read: set[str] = set()

    @property
    def counts_empty(self) -> bool:
        """Whether φ says which rows have no value, as it does from the second version on."""
        return self.version > FIRST

    def take(self, key: str) -> object:
        """The value as it is, or None if it is not given."""
        self._read.add(key)
        return self.given.get(key)

    def end(self) -> None:
        """Refuses every key that was not read."""
        if unknown := sorted(set(self.given) - self._read):
            raise bad(f'{self.name}: unknown parameter "{unknown[0]}".', f"Known: {', '.join(sorted(self._read))}.")

    def names(self, key: str, *, least: int = 1, most: int = MOST_COLUMNS) -> tuple[str, ...]:
        """So many different names of declared columns."""
        value = self.take(key)
        listed = [value] if isinstance(value, str) else [] if value is None else value
        if not (isinstance(listed, Sequence) and all(isinstance(one, str) for one in listed)):
            raise bad(f"{self.name}: {key} is not a list of names.", f'For example {key} = ["age"].')
        if not (least <= len(listed) <= most and len(set(listed)) == len(listed)):
            raise bad(f"{self.name}: {key} has {len(listed)} names.", f"Use {least} to {most}, each once.")
        for name in listed:
            self._declared(name)
        return tuple(listed)

    def column(self, key: str) -> str:
        """The name of one declared column."""
        return self.names(key, most=1)[0]

    def strata(self) -> tuple[str, ...]:
        """The columns of `by`; never the site itself."""
        if ONE_SITE in (self.given.get("by"), *_items(self.given.get("by"))):
            raise bad(
                f'{self.name}: by = "{ONE_SITE}" would give each site its own answer, with its own noise alone.',
                "Ask by a column that several sites share, such as a region.",
            )
        return self.names("by", least=0)

    def of(self, name: str, kind: type[Kind]) -> Kind:
        """The declared column of this name, if it is of this kind."""
        column = self._declared(name)
        if not isinstance(column, kind):
            needed = "bounds = [low, high]" if kind is Numeric else "levels = [...]"
            raise bad(f'{self.name}: column "{name}" is not declared with {needed}.', "Ask about another column.")
        if isinstance(column, Numeric) and column.dates:
            raise bad(f'{self.name}: column "{name}" holds dates.', "Ask about a column of numbers, such as an age.")
        return column

    def known(self, name: str) -> Numeric | Categorical:
        """The declared column of this name, if its range or its levels are declared."""
        column = self._declared(name)
        return column if isinstance(column, Categorical) else self.of(name, Numeric)

    def number(self, key: str, *, above: float, most: float, usual: float | None = None) -> float:
        """A number in (above, most]."""
        value = self.take(key)
        value = usual if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not above < value <= most:
            raise bad(f"{self.name}: {key} is not a number in range.", f"Use more than {above:g} and at most {most:g}.")
        return float(value)

    def whole(self, key: str, *, least: int, most: int, usual: int) -> int:
        """A whole number from `least` to `most`."""
        value = self.take(key)
        value = usual if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or value != math.floor(value):
            raise bad(f"{self.name}: {key} is not a whole number.", f"Use {least} to {most:,}.")
        if not least <= value <= most:
            raise bad(f"{self.name}: {key} = {value:g}.", f"Use {least} to {most:,}.")
        return int(value)

    def _declared(self, name: str) -> Numeric | Categorical | None:
        if name not in self.columns:
            raise TableError(
                "CH321",
                f'column "{name}" is not declared for questions.',
                fix="Ask about a declared column, or have the column declared and approved.",
            )
        return self.columns[name]


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()
