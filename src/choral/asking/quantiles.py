"""cdf, quantiles and percentiles: how a column is distributed, by sums that go through a root of the running total.

The running total of n cells is the square of a Toeplitz matrix whose first column is f_k = f_(k−1)·(2k − 1)/2k. A row
adds one column of that root, and the server multiplies by the root once more, so that the noise of every threshold
grows with log n only.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from choral.asking.answer import (
    Answer,
    ByReference,
    Expected,
    Z,
    around,
    rising,
    sampling_variance,
    too_few,
    with_value,
)
from choral.asking.cells import bounded, counts, even_edges
from choral.asking.column_bounds import ColumnBounds
from choral.asking.fitting import Counted, FittedModel, Fitting, NextSum, OpenedSum, SumModel, step_of
from choral.asking.parameters import Integers, Parameters, Rows, Summand, bad
from choral.asking.question import Question
from choral.core.errors import TableError
from choral.tables.columns import Categorical, Numeric

UNIT = 2**12  # f_0 = 1 in φ's units
MOST_BINS = 2**12
_FARTHEST = 2.0**32  # from 0 that a number may be: beyond it, bounds tell nothing either
FAR = 3.0  # deviations of a rank's noise from 0 and 1, within which no quantile is given
Vector = NDArray[np.float64]


@lru_cache(maxsize=8)
def root(bins: int) -> Integers:
    """f in whole numbers; what is divided out again is this same sequence, so that rounding adds no bias.

    >>> root(4).tolist()
    [4096, 2048, 1536, 1280]
    """
    steps = np.arange(1, bins)
    exact = np.cumprod(np.concatenate([[1.0], (2 * steps - 1) / (2 * steps)]))
    return np.asarray(np.rint(UNIT * exact), dtype=np.int64)


@lru_cache(maxsize=8)
def sensitivity(bins: int) -> float:
    """max ‖c_0 − c_j‖ over the columns of the root: c_i − c_j is c_0 − c_(j−i) moved down and cut off.

    Rows without a number have the last column, so φ is never 0.
    """
    column = root(bins)
    squares = np.cumsum(column**2)
    overlaps = np.correlate(column, column, "full")[bins:]  # with j = 1, 2, …
    apart = squares[-1] + squares[-2::-1] - 2 * overlaps
    return math.sqrt(int(apart.max()))


@lru_cache(maxsize=8)
def undoing(bins: int) -> Vector:
    """The first column of (running total)·(root)⁻¹, as the power series 1/((1 − x)·f(x))."""
    series = np.diff(root(bins), prepend=0).astype(np.float64)
    found = np.zeros(bins)
    found[0] = 1 / series[0]
    for place in range(1, bins):
        found[place] = -(series[1 : place + 1] @ found[place - 1 :: -1]) / series[0]
    return found


@dataclass(frozen=True, kw_only=True)
class Distribution(ByReference):
    """The column of the root that belongs to a row's cell; `levels` are the quantiles that are wanted, if any.

    A cell has the numbers above its lower end and up to its upper end. One more, after the last, has the rows without a
    number: the running total before it is how many rows have one, and the last total is the public number of all.
    """

    column: Numeric
    bins: int
    levels: tuple[float, ...] = ()
    counts_empty: bool = True

    @classmethod
    def cdf(cls, given: Parameters) -> "Distribution":
        """`cdf` of `column` at the ends of `bins` cells, which are even on the column's declared scale."""
        column = given.of(given.column("column"), Numeric)
        bins = _bins(column, given.whole("bins", least=2, most=MOST_BINS, usual=64))
        return cls(column=column, bins=bins, counts_empty=given.counts_empty)

    @classmethod
    def quantiles(cls, given: Parameters) -> "Distribution":
        """`quantiles` of `column` at `levels`."""
        return cls._at_levels(given, given.of(given.column("column"), Numeric))

    @classmethod
    def within(cls, given: Parameters) -> "Distribution":
        """The same between `low` and `high`, for a column whose range was asked for and not declared."""
        name, ends = given.column("column"), [given.take(key) for key in ("low", "high")]
        if not all(type(end) in (int, float) and abs(end) <= _FARTHEST for end in ends) or not ends[0] < ends[1]:  # type: ignore[arg-type, operator]
            raise bad(f"{given.name}: low and high are not two rising numbers.", "Ask for the column's bounds first.")
        if isinstance(given.columns[name], Categorical):
            raise bad(f'{given.name}: column "{name}" is declared with levels.', "Ask about a column of numbers.")
        return cls._at_levels(given, Numeric(name=name, low=float(ends[0]), high=float(ends[1])))  # type: ignore[arg-type]

    @classmethod
    def _at_levels(cls, given: Parameters, column: Numeric) -> "Distribution":
        levels = given.take("levels")
        listed = [0.25, 0.5, 0.75] if levels is None else levels
        if not (isinstance(listed, list | tuple) and 0 < len(listed) <= 99 and all(map(_is_level, listed))):
            raise bad("quantiles: levels are not 1 to 99 numbers between 0 and 1.", "For example levels = [0.5].")
        bins = _bins(column, given.whole("bins", least=2, most=MOST_BINS, usual=256))
        return cls(column=column, bins=bins, levels=tuple(map(float, listed)), counts_empty=given.counts_empty)

    @property
    def edges(self) -> Vector:
        """Where the cells begin and end, in the column's own unit; of whole numbers the first has the lowest alone."""
        if not self.column.whole:
            return even_edges(self.column, self.bins)
        wide = int(self.column.high - self.column.low) + 1
        return np.asarray(self.column.low - 1 + np.arange(self.bins + 1) * wide // self.bins, dtype=np.float64)

    @property
    def length(self) -> int:
        """The numbers of an answer."""
        return self.bins + self.counts_empty

    def summand(self) -> Summand:
        """The counts of the cells, times the root."""

        def total(rows: Rows) -> Integers:
            found = bounded(rows, self.column)
            place = np.searchsorted(self.edges[1:-1], found, side="left")  # what is on an edge is at or below it
            cells = counts(np.where(np.isnan(found), self.bins, place).astype(np.int64), self.length)
            return np.convolve(cells, root(self.length))[: self.length]

        return Summand(
            length=self.length, l2=sensitivity(self.length), largest=UNIT, columns=(self.column.name,), total=total
        )

    def estimate(self, total: Integers | NDArray[np.float64], *, rows: int, deviation: float) -> Answer:
        """The shares at or below each edge, or the quantiles, of the rows that have a number."""
        found = self._shares(np.asarray(total, dtype=np.float64), rows, deviation)
        if found.rows < max(FAR * found.rows_sd, 0.5):
            raise too_few("the noise is larger than the rows with a number.", "Ask with a larger ε, or about more.")
        about = (with_value(found.rows, found.rows_sd, rows=rows),) if self.counts_empty else ()
        spread = np.sqrt(sampling_variance(found.share, found.rows) + found.noise**2)
        if self.levels:
            return self._quantiles(found.share, spread, float(found.noise.max()), about)
        lines: list[dict[str, object]] = [
            {"value": value, **around(one, wide, least=0.0, most=1.0), "noise_sd": sd}
            for value, one, wide, sd in zip(
                self.edges[1:].tolist(),
                np.clip(rising(found.share), 0, 1).tolist(),
                spread.tolist(),
                found.noise.tolist(),
                strict=True,
            )
        ]
        return Answer(rows=lines, about=about, sentences=() if self.counts_empty else (_FIRST,))

    def _shares(self, total: Vector, rows: int, deviation: float) -> "_Shares":
        """The share of rows at or below the end of each cell, and its noise, given the public number of rows."""
        series = undoing(self.length)
        running = np.convolve(series, total)[: self.length]
        variance = np.cumsum(series**2)
        with_last, with_count = _together(series, self.length), _together(series, self.bins)
        regression = with_last / variance[-1]
        known = running + regression * (rows - running[-1])
        left = np.maximum(variance - regression * with_last, 0.0)[: self.bins]
        shared = with_count - (regression * with_last[self.bins - 1])[: self.bins]  # the covariance with the count
        count, count_variance = float(known[self.bins - 1]), float(left[-1]) if self.counts_empty else 0.0
        share = known[: self.bins] / max(count, 1.0)
        noise = np.maximum(left - 2 * share * shared + share**2 * count_variance, 0.0) if self.counts_empty else left
        return _Shares(
            share=share,
            noise=deviation * np.sqrt(noise) / max(count, 1.0),
            rows=count,
            rows_sd=deviation * math.sqrt(count_variance),
        )

    def _quantiles(
        self, share: Vector, spread: Vector, noise: float, about: tuple[Mapping[str, object], ...]
    ) -> Answer:
        """Where the curve, and the ends of its band, pass each level."""
        least = FAR * noise
        if least >= 0.5:
            raise too_few("no quantile stands out of the noise.", "Ask with a larger ε, or about more rows.")
        passes = self._passes_whole if self.column.whole else self._passes
        low_curve = np.minimum.accumulate((share - Z * spread)[::-1])[::-1]
        high_curve = np.maximum.accumulate(share + Z * spread)
        found: list[dict[str, object]] = []
        for level in self.levels:
            if not least <= level <= 1 - least:
                raise TableError(
                    "CH323",
                    f"the level {level:g} of a quantile is nearer to the end than the noise.",
                    fix=f"Ask for levels between {least:.2g} and {1 - least:.2g}.",
                )
            value, low, high = passes(level, rising(share), high_curve, np.maximum(low_curve, 0))
            found.append({"level": level, "estimate": value, "low": low, "high": high, "rank_noise_sd": noise})
        return Answer(rows=found, about=about)

    def _passes(self, level: float, curve: Vector, high_curve: Vector, low_curve: Vector) -> tuple[float, float, float]:
        """Where the curve and the ends of its band pass a level, between edges too."""
        value, low, high = (
            float(np.interp(level, np.concatenate([[0.0], one]), self.edges)) for one in (curve, high_curve, low_curve)
        )
        return value, low, high

    def _passes_whole(
        self, level: float, curve: Vector, high_curve: Vector, low_curve: Vector
    ) -> tuple[float, float, float]:
        """The same in whole numbers: the first at or below which the share lies, and all of both cells of the band."""
        edges = self.edges
        first, last = (min(int(np.searchsorted(one, level)), self.bins - 1) for one in (high_curve, low_curve))
        low, high = float(edges[first]) + 1, float(edges[last + 1])
        value = math.ceil(float(np.interp(level, np.concatenate([[0.0], curve]), edges)) - 1e-9)
        return min(max(value, low), high), low, high

    def reference(self, rows: int) -> NDArray[np.float64]:
        """As many rows in each cell, and none without a number."""
        cells = np.append(np.full(self.bins, rows / self.bins), [0.0] * self.counts_empty)
        return np.asarray(np.convolve(cells, root(self.length))[: self.length], dtype=np.float64)


class _Shares(NamedTuple):
    """The curve of the rows that have a number, and how many these are, with deviations of the noise."""

    share: Vector
    noise: Vector
    rows: float
    rows_sd: float


_FIRST = "A share is of rows below its value: this was asked with choral 0.2.0 or an earlier version."


def _together(series: Vector, place: int) -> Vector:
    """The covariance of the first running totals with the one of this place, from 1: Σ_k s_k·s_(place−1−i+k)."""
    return np.asarray(np.correlate(series[:place], series[:place], "full")[:place])


def _bins(column: Numeric, wanted: int) -> int:
    """How many cells a column has: no more than there are whole numbers."""
    return min(wanted, int(column.high - column.low) + 1) if column.whole else wanted


def _is_level(level: object) -> bool:
    return isinstance(level, int | float) and not isinstance(level, bool) and 0 < level < 1


TAKES = 4  # how often the curve is asked for: with one sum for the bounds, it has 80 % of what the answer costs


@dataclass(frozen=True, kw_only=True)
class Percentiles(SumModel):
    """ColumnBounds once, then the curve between them four times, for the mean of the answers."""

    bounds: ColumnBounds
    curve: Distribution  # between made-up ends, until the bounds are there

    @classmethod
    def read(cls, question: Question, given: Parameters) -> "Percentiles":
        """`percentiles` of `column` at `levels`."""
        asked = Parameters(given.name, {**given.given, "low": 0.0, "high": 1.0}, given.columns, version=given.version)
        curve = Distribution.within(asked)
        for key in ("column", "levels", "bins"):
            given.take(key)
        return cls(question=question, bounds=ColumnBounds(names=(curve.column.name,)), curve=curve)

    @staticmethod
    def looking(given: Parameters) -> Counted:
        """`percentiles_bounds`: the first stage."""
        for key in ("levels", "bins"):
            given.take(key)
        return Counted(kind=ColumnBounds(names=(given.column("column"),)))

    @staticmethod
    def counting(given: Parameters) -> Counted:
        """`percentiles_cells`: the second stage, between `low` and `high`."""
        given.whole("take", least=1, most=TAKES, usual=1)
        return Counted(kind=Distribution.within(given))

    @property
    def sums(self) -> int:
        """How many sums it takes."""
        return 1 + TAKES

    @property
    def questions(self) -> tuple[Question, ...]:
        """Its sums, each once."""
        return step_of(self.question, "bounds"), step_of(self.question, "cells", low=0, high=1)

    def expected(self, *, rows: int, deviation: float) -> Expected:
        """The widest interval on a population that is spread evenly over its bounds."""
        expected = self.curve.expected(rows=rows, deviation=deviation / TAKES**0.5)
        sentence = f"It takes 5 sums. {expected.sentence.rstrip('.')}, in parts of the range that is found."
        return Expected(width=expected.width, sentence=sentence)

    def fit(self) -> Fitting:
        """The bounds, then the curve; CH320 where no bound is seen."""
        first = yield NextSum(question=step_of(self.question, "bounds"))
        found = self.bounds.estimate(first.total, rows=first.rows, deviation=first.deviation)
        by_name = {row["quantity"]: row["estimate"] for row in found.rows}
        low, high = float(by_name["lower bound"]), float(by_name["upper bound"])
        if low == high:  # only zeros are seen
            high = low + 1.0
        taken: list[OpenedSum] = []
        for take in range(1, TAKES + 1):
            taken.append((yield NextSum(question=step_of(self.question, "cells", low=low, high=high, take=take))))
        curve = replace(self.curve, column=replace(self.curve.column, low=low, high=high))
        deviation = float(np.linalg.norm([one.deviation for one in taken])) / len(taken)
        answer = curve.estimate(np.mean([one.total for one in taken], axis=0), rows=taken[-1].rows, deviation=deviation)
        return FittedModel(state=np.array([low, high]), effects=answer)
