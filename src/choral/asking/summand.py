"""What a question adds up: one whole-valued vector φ per row, with a bound on how far one row can move the sum."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

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
