"""mean: the mean and the variance of one column from one sum, in which squares and the count cost nothing."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from choral.asking.answer import Answer, ByReference, around, too_few, with_value
from choral.asking.cells import bounded
from choral.asking.filters import Filter, filter_of
from choral.asking.parameters import Parameters
from choral.asking.summand import Integers, Rows, Summand
from choral.tables.columns import Numeric

UNIT = 2**12  # x = 1 in φ's units
SQUARES = 1665  # thousandths: w = 1.665 is the largest weight, cut off, at which x² does not lengthen the distance
CENTRE = 4640  # c = 1.1328, (1 + w²)/2w: from (0, c) a row with x = 0 is as far as one with x = ±1, and none is farther
ROWS = 6751  # e = 1.6482, √(4 − c²) cut off: so a row that counts is at most 2 from one that does not
# Of the first version: φ = 0 for rows that do not count, and, only under a filter, v = 0.477 for those that do.
FIRST_ROWS = 477 * UNIT // 1000


@dataclass(frozen=True, kw_only=True)
class ColumnMean(ByReference):
    """The mean and the variance of a declared number, over the rows that a filter keeps and that have one.

    φ = U·(x, w·x² − c, e) with x in −1 … 1, in whole numbers, and 0 for all other rows; e counts the rows. Two rows are
    at most 2U + 1 apart: 2U before squares are rounded, which moves their difference by at most 1.
    """

    column: Numeric
    keeps: Filter
    counts_empty: bool = True

    @classmethod
    def read(cls, given: Parameters) -> "ColumnMean":
        """`mean` of `column`."""
        column = given.of(given.column("column"), Numeric)
        return cls(column=column, keeps=filter_of(given), counts_empty=given.counts_empty)

    @property
    def length(self) -> int:
        """The numbers of an answer; the first version left the count out where all rows are asked."""
        return 3 if self.counts_empty or not self.keeps.is_everything else 2

    def summand(self) -> Summand:
        """(x, w·x² − c, e) for each row that counts."""

        def total(rows: Rows) -> Integers:
            x, there = on_grid(bounded(rows, self.column), self.column, UNIT)
            squares = (SQUARES * x * x + 500 * UNIT) // (1000 * UNIT) - CENTRE
            there &= self.keeps.keeps(rows)
            vectors = np.stack([x, squares, np.full_like(x, ROWS)])
            return np.asarray(np.where(there, vectors, 0).sum(axis=1), dtype=np.int64)

        return Summand(
            length=self.length,
            l2=2 * UNIT + 1,
            largest=ROWS if self.counts_empty else SQUARES * UNIT // 1000 + 1,
            columns=tuple(dict.fromkeys((self.column.name, *self.keeps.columns))),
            total=total,
        )

    def _moments(self, total: Integers | NDArray[np.float64], rows: int, deviation: float) -> "_Moments":
        """The rows that count and their mean x and x², from a sum of either version."""
        square = UNIT * SQUARES / 1000
        weight, centre = (ROWS, CENTRE) if self.counts_empty else (FIRST_ROWS, 0)
        is_known = self.length == 2
        count = float(rows) if is_known else float(total[2]) / weight
        count_sd = 0.0 if is_known else deviation / weight
        if count <= 3 * count_sd or count < 2:
            raise too_few("the noise is larger than what it hides.", "Ask with a larger ε, or about more rows.")
        # Σx² takes the count's noise with it, in proportion to c: the count's own part is in `second_by_count`.
        return _Moments(
            rows=count,
            rows_sd=count_sd,
            first=float(total[0]) / UNIT / count,
            second=(float(total[1]) + centre * count) / square / count,
            second_by_count=centre / square,
            sds=(deviation / UNIT / count, deviation / square / count),
        )

    def estimate(self, total: Integers | NDArray[np.float64], *, rows: int, deviation: float) -> Answer:
        """Mean and variance; the sampling error of the variance takes the largest fourth moment in the bounds."""
        found = self._moments(total, rows, deviation)
        count, first, second, sd_rows = found.rows, found.first, found.second, found.rows_sd / found.rows
        sd_first, sd_second = found.sds
        variance = second - first**2
        # What a variance can be at this mean, for the error of sampling: the noise may have put it outside.
        possible = min(max(variance, 0.0), max(1 - first**2, 0.0))
        mean_sd = math.hypot(math.sqrt(possible / count), sd_first, first * sd_rows)
        fourth = (1 + min(abs(first), 1.0)) ** 2 * possible  # (x − m)⁴ ≤ (1 + |m|)²·(x − m)² within the bounds
        variance_sd = math.hypot(
            math.sqrt(max(fourth - possible**2, 0.0) / count),
            sd_second,
            2 * first * sd_first,
            (second - 2 * first**2 - found.second_by_count) * sd_rows,
        )
        unit = self.column.unit
        mean = around(
            self.column.low + unit * (first + 1), unit * mean_sd, least=self.column.low, most=self.column.high
        )
        squared = around(unit**2 * variance, unit**2 * variance_sd, least=0.0, most=unit**2)
        name = self.column.name
        lines: list[dict[str, object]] = [
            {"column": name, "quantity": "mean", **mean, "noise_sd": unit * math.hypot(sd_first, first * sd_rows)},
            {"column": name, "quantity": "variance", **squared, "noise_sd": unit**2 * sd_second},
        ]
        about = (with_value(count, found.rows_sd, rows=rows),) if self.counts_empty else ()
        return Answer(rows=lines, is_rough=variance <= 3 * sd_second, about=about)

    def reference(self, rows: int) -> NDArray[np.float64]:
        """Numbers spread evenly over the declared bounds; under a filter, half of the rows."""
        count = rows if self.keeps.is_everything else rows / 2
        square = UNIT * SQUARES / 1000 / 3
        whole = [0.0, square - CENTRE, ROWS] if self.counts_empty else [0.0, square, FIRST_ROWS][: self.length]
        return np.array(whole) * count


class _Moments(NamedTuple):
    """What a sum says of the scaled numbers of the rows that count, with deviations of the noise."""

    rows: float
    rows_sd: float
    first: float
    second: float
    second_by_count: float  # how much of the mean of x² an error of the count adds, for each part of the count
    sds: tuple[float, float]


def on_grid(found: NDArray[np.float64], column: Numeric, unit: int) -> tuple[Integers, NDArray[np.bool_]]:
    """Numbers within bounds as whole numbers from −unit to unit, and which are there at all; the others are 0.

    >>> on_grid(np.array([0.0, 75.0, np.nan]), Numeric(name="age", low=0, high=100), 4)[0].tolist()
    [-4, 2, 0]
    """
    scaled = np.rint(unit * ((found - column.low) / column.unit - 1))
    there = ~np.isnan(scaled)
    return np.where(there, scaled, 0).clip(-unit, unit).astype(np.int64), there
