"""mean and moments: means, variances and second moments of columns from one sum, and what follows from them.

With a target, moments give a linear regression, and without one they give correlations.
"""

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from choral.asking.answer import Answer, ByReference, around, too_few, with_value
from choral.asking.cells import Filter, bounded, filled, filter_of, levels
from choral.asking.parameters import Integers, Parameters, Rows, Summand, bad
from choral.tables.columns import Categorical, Numeric

MEAN_UNIT = 2**12  # x = 1 in φ's units
SQUARES = 1665  # thousandths: w = 1.665 is the largest weight, cut off, at which x² does not lengthen the distance
CENTRE = 4640  # c = 1.1328, (1 + w²)/2w: from (0, c) a row with x = 0 is as far as one with x = ±1, and none is farther
ROWS = 6751  # e = 1.6482, √(4 − c²) cut off: so a row that counts is at most 2 from one that does not
# Of the first version: φ = 0 for rows that do not count, and, only under a filter, v = 0.477 for those that do.
FIRST_ROWS = 477 * MEAN_UNIT // 1000


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
            x, there = on_grid(bounded(rows, self.column), self.column, MEAN_UNIT)
            squares = (SQUARES * x * x + 500 * MEAN_UNIT) // (1000 * MEAN_UNIT) - CENTRE
            there &= self.keeps.keeps(rows)
            vectors = np.stack([x, squares, np.full_like(x, ROWS)])
            return np.asarray(np.where(there, vectors, 0).sum(axis=1), dtype=np.int64)

        return Summand(
            length=self.length,
            l2=2 * MEAN_UNIT + 1,
            largest=ROWS if self.counts_empty else SQUARES * MEAN_UNIT // 1000 + 1,
            columns=tuple(dict.fromkeys((self.column.name, *self.keeps.columns))),
            total=total,
        )

    def _moments(self, total: Integers | NDArray[np.float64], rows: int, deviation: float) -> "_Moments":
        """The rows that count and their mean x and x², from a sum of either version."""
        square = MEAN_UNIT * SQUARES / 1000
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
            first=float(total[0]) / MEAN_UNIT / count,
            second=(float(total[1]) + centre * count) / square / count,
            second_by_count=centre / square,
            sds=(deviation / MEAN_UNIT / count, deviation / square / count),
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
        square = MEAN_UNIT * SQUARES / 1000 / 3
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


UNIT = 2**10  # a product of 1 in φ's units
MOST = 32  # columns
FLOOR = 3.0  # deviations of the noise below which an eigenvalue or a variance counts as 0
Matrix = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Moments(ByReference):
    """Σ of u·uᵀ with u = (x, a), x in [−1, 1]^F and a = √F/2; in place of the entry a², the number F + a² counts rows.

    Off-diagonal entries are weighted by √2, so that φ's distance is that of the matrices: ‖uuᵀ − vvᵀ‖² =
    ‖u‖⁴ + ‖v‖⁴ − 2(u·v)² ≤ 2(F + a²)². A row without a value has φ = 0, and ‖uuᵀ‖² + (F + a²)² is not more.
    Rounding to whole numbers adds at most 1 in each of k coordinates: √k.
    """

    columns: tuple[Numeric, ...]  # a column of two levels stands here as a number from 0 to 1
    coded: tuple[Categorical | None, ...]
    target: int | None = None
    is_filled: bool = False  # a model's, which takes a declared `missing` for what has no number
    counts_empty: bool = True

    @classmethod
    def read(cls, given: Parameters) -> "Moments":
        """`moments` of `columns`; of them, `target` is regressed on the others."""
        target = given.column("target") if "target" in given.given else None
        return cls.over(given, given.names("columns", least=2, most=MOST), target)

    @classmethod
    def over(
        cls, given: Parameters, names: tuple[str, ...], target: str | None = None, *, is_filled: bool = False
    ) -> "Moments":
        """The moments of these columns."""
        if target is not None and target not in names:
            raise bad(f"{given.name}: the target is not among the columns.", "Name it in columns, too.")
        coded = tuple(_two_levels(given, name) for name in names)
        return cls(
            columns=tuple(
                given.of(name, Numeric) if code is None else Numeric(name=name, low=0, high=1)
                for name, code in zip(names, coded, strict=True)
            ),
            coded=coded,
            target=None if target is None else names.index(target),
            is_filled=is_filled,
            counts_empty=given.counts_empty,
        )

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """The entries of u·uᵀ that are added up; number F stands for a."""
        return [*itertools.combinations_with_replacement(range(len(self.columns)), 2),
                *((place, len(self.columns)) for place in range(len(self.columns)))]  # fmt: skip

    @cached_property
    def weights(self) -> Matrix:
        """Of the entries: φ = weight · u_i · u_j, where u has 1 in place of a."""
        intercept = math.sqrt(len(self.columns)) / 2
        return np.array(
            [
                UNIT * (1.0 if one == other else math.sqrt(2)) * (intercept if other == len(self.columns) else 1.0)
                for one, other in self.pairs
            ]
        )

    @property
    def square(self) -> int:
        """What counts a row: R² + a² in φ's units, where R² = F."""
        return 5 * len(self.columns) * UNIT // 4

    def summand(self) -> Summand:
        """The entries of u·uᵀ, rounded, and the number of rows."""
        first, second = np.array(self.pairs).T

        def total(rows: Rows) -> Integers:
            scaled = np.stack([*self.scaled(rows), np.ones(rows.rows)])
            entries = np.rint(self.weights[:, None] * scaled[first] * scaled[second])
            there = ~np.isnan(scaled).any(axis=0)
            found = np.where(there, entries, 0).astype(np.int64).sum(axis=1)
            return np.append(found, self.square * there.sum()).astype(np.int64)

        return Summand(
            length=len(self.pairs) + self.counts_empty,
            # Rounding moves an entry by at most ½, and the float product before it by less than a thousandth.
            l2=math.sqrt(2) * 1.25 * len(self.columns) * UNIT + 1.001 * math.sqrt(len(self.pairs)),
            largest=max(math.ceil(self.weights.max()), self.square if self.counts_empty else 0),
            columns=tuple(column.name for column in self.columns),
            total=total,
        )

    def scaled(self, rows: Rows) -> list[Matrix]:
        """The columns from −1 to 1; NaN where there is no number."""
        found = []
        for column, code in zip(self.columns, self.coded, strict=True):
            if code is None:
                values = (filled if self.is_filled else bounded)(rows, column)
            else:
                places = levels(rows, code)
                values = np.where(places < 0, np.nan, places)
            found.append(np.clip((values - column.low) / column.unit - 1, -1.0, 1.0))
        return found

    def estimate(self, total: Integers | NDArray[np.float64], *, rows: int, deviation: float) -> Answer:
        """Correlations of all pairs of columns, or the regression on the target."""
        count, count_sd = self.counted(total, rows=rows, deviation=deviation)
        second, spread = self.matrices(total, rows=rows, deviation=deviation)
        about = (with_value(count, count_sd, rows=rows),) if self.counts_empty else ()
        if self.target is None:
            return replace(self._correlations(second, spread, count), about=about)
        return replace(self._regression(second, spread, count, self.target), about=about)

    def counted(self, total: Integers | NDArray[np.float64], *, rows: int, deviation: float) -> tuple[float, float]:
        """How many rows have a value in every column, and the deviation of the noise in that."""
        if not self.counts_empty:
            return float(rows), 0.0
        return max(float(total[-1]) / self.square, 1.0), deviation / self.square

    def matrices(self, total: Integers | NDArray[np.float64], *, rows: int, deviation: float) -> tuple[Matrix, Matrix]:
        """The mean of (x, 1)·(x, 1)ᵀ over the rows with all values, and the deviation of the noise in each entry.

        Results do not change if all entries are multiplied by one number, so the noise of the count of rows is that of
        the last entry, which is 1.
        """
        count, count_sd = self.counted(total, rows=rows, deviation=deviation)
        size = len(self.columns) + 1
        second, spread = np.eye(size), np.zeros((size, size))
        for (one, other), weight, value in zip(self.pairs, self.weights, total, strict=False):
            second[one, other] = second[other, one] = value / weight / count
            spread[one, other] = spread[other, one] = deviation / weight / count
        spread[-1, -1] = count_sd / count
        return second, spread

    def _correlations(self, second: Matrix, spread: Matrix, rows: float) -> Answer:
        means, mean_sd = second[-1, :-1], spread[-1, :-1]
        covariance = second[:-1, :-1] - np.outer(means, means)
        variances = np.diag(covariance)
        own_sd = np.hypot(np.diag(spread)[:-1], 2 * means * mean_sd)
        found: list[dict[str, object]] = []
        lost: list[str] = []
        for one, other in itertools.combinations(range(len(self.columns)), 2):
            row: dict[str, object] = {"column": self.columns[one].name, "with": self.columns[other].name}
            pair = [one, other]
            if np.any(variances[pair] <= FLOOR * own_sd[pair]):
                lost.append(f'"{row["column"]}" with "{row["with"]}"')
                continue
            scale = math.sqrt(variances[one] * variances[other])
            r = float(np.clip(covariance[one, other] / scale, -1 + 1e-9, 1 - 1e-9))
            # ∂r by each noisy moment: the product, the two squares, the two means.
            by_mean = [
                (-means[second_one] + r * means[first_one] * scale / variances[first_one]) / scale
                for first_one, second_one in (pair, pair[::-1])
            ]
            noise = math.hypot(
                spread[one, other] / scale,
                *(r / 2 / variances[place] * spread[place, place] for place in pair),
                *(slope * mean_sd[place] for slope, place in zip(by_mean, pair, strict=True)),
                spread[-1, -1]
                * (means[one] * means[other] / scale - r / 2 * float(np.sum(means[pair] ** 2 / variances[pair]))),
            )
            z = math.atanh(r)  # on Fisher's scale, where the error of sampling is 1/√(N − 3) for normal columns
            wide = math.hypot(1 / math.sqrt(max(rows - 3, 1)), noise / (1 - r * r))
            ends = around(z, wide)
            interval = {"estimate": r, "low": math.tanh(ends["low"]), "high": math.tanh(ends["high"])}
            found.append({**row, **interval, "noise_sd": noise})
        return _identified(found, lost)

    def _regression(self, second: Matrix, spread: Matrix, rows: float, target: int) -> Answer:
        inputs = [place for place in range(len(second)) if place != target]
        gram, gram_sd = second[np.ix_(inputs, inputs)], spread[np.ix_(inputs, inputs)]
        cross, cross_sd = second[inputs, target], spread[inputs, target]
        values, basis = np.linalg.eigh(gram)
        floor = FLOOR * float(np.linalg.norm(gram_sd, axis=1).max())  # about the largest eigenvalue of the noise
        inverse = (basis / np.maximum(values, max(floor, 1e-12))) @ basis.T
        slopes = inverse @ cross
        residual = second[target, target] - 2 * slopes @ cross + slopes @ gram @ slopes
        residual = min(max(float(residual), 0.0), 4.0)
        # The noise of (cross − gram·slopes); an entry off the diagonal stands in two of its rows.
        noise = gram_sd**2 * np.outer(slopes, slopes)
        noise[np.diag_indices_from(noise)] = cross_sd**2 + gram_sd**2 @ slopes**2
        covariance = residual * inverse / rows + inverse @ noise @ inverse
        own = self._own_units(inputs, target)
        estimates = own @ slopes
        estimates[-1] += self.columns[target].low + self.columns[target].unit
        deviations = np.sqrt(np.einsum("ij,jk,ik->i", own, covariance, own))
        names = [self.columns[place].name for place in inputs[:-1]]
        if not values[0] > floor:
            return _identified([], [f'"{name}"' for name in names])
        found: list[dict[str, object]] = []
        for name, value, sd in zip([*names, "(intercept)"], estimates.tolist(), deviations.tolist(), strict=True):
            found.append({"term": name, **around(value, sd)})
        return _identified(found, [])

    def _own_units(self, inputs: list[int], target: int) -> Matrix:
        """The matrix from slopes of scaled columns to slopes and intercept in the columns' own units."""
        unit = self.columns[target].unit
        columns = [self.columns[place] for place in inputs[:-1]]
        own = np.diag([*(unit / column.unit for column in columns), unit])
        own[-1, :-1] = [-unit * (column.low / column.unit + 1) for column in columns]
        return own

    def reference(self, rows: int) -> NDArray[np.float64]:
        """Columns that do not depend on each other, each spread evenly over its bounds."""
        entries = np.array([rows / 3 if one == other else 0.0 for one, other in self.pairs]) * self.weights
        return np.append(entries, [float(rows * self.square)] * self.counts_empty)


def _two_levels(given: Parameters, name: str) -> Categorical | None:
    column = given.columns[name]
    if not isinstance(column, Categorical):
        return None
    if len(column.levels) != 2:
        raise bad(
            f'{given.name}: column "{name}" has {len(column.levels)} levels.', "Ask for numbers, or for two levels."
        )
    return column


def _identified(rows: list[dict[str, object]], lost: list[str]) -> Answer:
    """The numbers that are identified; those that are not have no interval, so they are named and not shown."""
    said = (f"Not identified at this ε: {', '.join(lost)}.",) if lost else ()
    return Answer(rows=rows, is_rough=bool(lost), sentences=said)
