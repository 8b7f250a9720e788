"""mean: the mean and the variance of one column from one sum, in which the squares ride for nothing."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from choral.asking.answer import Answer, ByReference, around, too_few
from choral.asking.cells import bounded
from choral.asking.filters import Filter, filter_of
from choral.asking.parameters import Parameters
from choral.asking.summand import Integers, Rows, Summand
from choral.learning.columns import Numeric

UNIT = 2**12  # x = 1 in φ's units
SQUARES = 1665  # thousandths: w = 1.665 is the largest weight, cut off, at which x² does not lengthen the distance
ROWS = 477  # thousandths: v = 0.477, so that (1, w, v) is no longer than 2


@dataclass(frozen=True, kw_only=True)
class ColumnMean(ByReference):
    """The mean and the variance of a declared number, over the rows that a filter keeps.

    φ = U·(x, w·x², v) with x in −1 … 1, in whole numbers; the last coordinate only where a filter hides the number of
    rows. Two rows are at most 2U + 1 apart: 2U before squares are rounded, which moves their difference by at most 1.
    """

    column: Numeric
    keeps: Filter

    @classmethod
    def read(cls, given: Parameters) -> "ColumnMean":
        """`mean` of `column`."""
        return cls(column=given.of(given.column("column"), Numeric), keeps=filter_of(given))

    def summand(self) -> Summand:
        """(x, w·x²) and, under a filter, v for each row that it keeps."""
        length = 2 if self.keeps.is_everything else 3

        def total(rows: Rows) -> Integers:
            x, there = on_grid(bounded(rows, self.column), self.column, UNIT)
            squares = (SQUARES * x * x + 500 * UNIT) // (1000 * UNIT)
            counted = np.full_like(x, ROWS * UNIT // 1000)
            there &= self.keeps.keeps(rows)
            vectors = np.stack([x, squares, counted][:length])
            return np.asarray(np.where(there, vectors, 0).sum(axis=1), dtype=np.int64)

        return Summand(
            length=length,
            l2=2 * UNIT + 1,
            largest=SQUARES * UNIT // 1000 + 1,
            columns=tuple(dict.fromkeys((self.column.name, *self.keeps.columns))),
            total=total,
        )

    def estimate(self, total: Integers | NDArray[np.float64], *, rows: int, deviation: float) -> Answer:
        """Mean and variance; the sampling error of the variance takes the largest fourth moment in the bounds."""
        weight = ROWS * UNIT // 1000
        count = float(rows) if self.keeps.is_everything else float(total[2]) / weight
        count_sd = 0.0 if self.keeps.is_everything else deviation / weight
        if count <= 3 * count_sd or count < 2:
            raise too_few("the noise is larger than what it hides.", "Ask with a larger ε, or about more rows.")
        first, second = float(total[0]) / UNIT / count, float(total[1]) / (UNIT * SQUARES / 1000) / count
        variance = second - first**2
        # What a variance can be at this mean, for the error of sampling: the noise may have put it outside.
        possible = min(max(variance, 0.0), max(1 - first**2, 0.0))
        sd_first, sd_second = deviation / UNIT / count, deviation / (UNIT * SQUARES / 1000) / count
        sd_rows = count_sd / count
        mean_sd = math.hypot(math.sqrt(possible / count), sd_first, first * sd_rows)
        fourth = (1 + min(abs(first), 1.0)) ** 2 * possible  # (x − m)⁴ ≤ (1 + |m|)²·(x − m)² within the bounds
        variance_sd = math.hypot(
            math.sqrt(max(fourth - possible**2, 0.0) / count),
            sd_second,
            2 * first * sd_first,
            (second - 2 * first**2) * sd_rows,
        )
        unit = self.column.unit
        mean = around(
            self.column.low + unit * (first + 1), unit * mean_sd, least=self.column.low, most=self.column.high
        )
        squared = around(unit**2 * variance, unit**2 * variance_sd, least=0.0, most=unit**2)
        name = self.column.name
        found: list[dict[str, object]] = [
            {"column": name, "quantity": "mean", **mean, "noise_sd": unit * math.hypot(sd_first, first * sd_rows)},
            {"column": name, "quantity": "variance", **squared, "noise_sd": unit**2 * sd_second},
        ]
        return Answer(rows=found, is_rough=variance <= 3 * sd_second)

    def reference(self, rows: int) -> NDArray[np.float64]:
        """Numbers spread evenly over the declared bounds; under a filter, half of the rows."""
        count = rows if self.keeps.is_everything else rows / 2
        return np.array([0.0, UNIT * SQUARES / 1000 / 3, ROWS * UNIT // 1000][: self.summand().length]) * count


def on_grid(found: NDArray[np.float64], column: Numeric, unit: int) -> tuple[Integers, NDArray[np.bool_]]:
    """Numbers within bounds as whole numbers from −unit to unit, and which are there at all; the others are 0.

    >>> on_grid(np.array([0.0, 75.0, np.nan]), Numeric(name="age", low=0, high=100), 4)[0].tolist()
    [-4, 2, 0]
    """
    scaled = np.rint(unit * ((found - column.low) / column.unit - 1))
    there = ~np.isnan(scaled)
    return np.where(there, scaled, 0).clip(-unit, unit).astype(np.int64), there
