"""logistic_round, linear_round and additive_round: one full-batch gradient of a model, clipped row by row."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from choral.asking.cells import MOST_BINS, USUAL_BINS
from choral.asking.column_bounds import ColumnBounds
from choral.asking.cross_tables import ManyTables
from choral.asking.descent import MOST_ROUNDS, ROUNDS, ROUNDS_OF_TRENDS
from choral.asking.design import Design
from choral.asking.moments import Moments
from choral.asking.parameters import Parameters, bad
from choral.asking.quantiles import Distribution
from choral.asking.summand import Integers, Rows, Summand
from choral.asking.survival import Survival
from choral.tables.columns import Categorical, Numeric

UNIT = 2**12  # a gradient of 1 in φ's units


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What a model counts before its first round: a sum that needs no state."""

    kind: ManyTables | Survival | Moments | ColumnBounds | Distribution

    @property
    def state_length(self) -> int:
        """None."""
        return 0

    def at(self, state: NDArray[np.float64] | None) -> "Counted":
        """The same, or CH102 for a state."""
        if state is not None and len(state):
            raise bad("a state is given for a sum that has none.", "Send none.")
        return self

    def summand(self) -> Summand:
        """φ of what is counted."""
        return self.kind.summand()


@dataclass(frozen=True, kw_only=True)
class RowCounter:
    """The last number of a model's φ: ⌊√3·`longest`⌋ for a row that has every value, 0 for one that has not.

    Two rows with it are as far apart as without it, and the others have φ = 0, at most √(1 + 3) = 2 times `longest`
    away. So it costs nothing. `longest` is the most that the rest of φ can have. The first version had no such number.
    """

    longest: int
    is_there: bool

    @property
    def weight(self) -> int:
        """What a row counts."""
        return math.isqrt(3 * self.longest**2)

    @property
    def largest(self) -> int:
        """The largest number of a row."""
        return self.weight if self.is_there else self.longest

    def added(self, total: Integers, there: NDArray[np.bool_]) -> Integers:
        """The sum with the number of rows."""
        return np.append(total, self.weight * there.sum()).astype(np.int64)

    def taken_off(
        self, total: NDArray[np.float64], *, rows: int, deviation: float
    ) -> tuple[NDArray[np.float64], float, float]:
        """The sum without it, the number of rows, and the deviation of its noise."""
        if not self.is_there:
            return total, float(rows), 0.0
        return total[:-1], max(float(total[-1]) / self.weight, 1.0), deviation / self.weight


@dataclass(frozen=True, kw_only=True)
class GradientRound:
    """φ = the row's gradient (y − prediction)·x, cut to the length C, on the grid, at the model `weights`.

    Numbers are cut off towards zero, which never lengthens a vector. Then Σn² ≤ (U·C)² is checked in whole numbers,
    and a row that fails it counts as 0. So two rows are at most 2UC apart, whatever floating point did before. One more
    number, the same in all rows that have every value, counts them.
    """

    design: Design
    clip: float
    weight: float  # of the cells of numbers; 1 for levels and the intercept
    rounds: int
    weights: NDArray[np.float64]
    counts_empty: bool = True

    @classmethod
    def logistic(cls, given: Parameters) -> "GradientRound":
        """`logistic_round`: the target is one of two levels."""
        return cls._of(given, target=_two_levels(given), bins=0)

    @classmethod
    def linear(cls, given: Parameters) -> "GradientRound":
        """`linear_round`: the target is a number, scaled from its bounds to −1 … 1."""
        return cls._of(given, target=given.of(given.column("target"), Numeric), bins=0)

    @classmethod
    def additive(cls, given: Parameters) -> "GradientRound":
        """`additive_round`: as logistic_round, where numbers also have cells."""
        bins = given.whole("bins", least=2, most=MOST_BINS, usual=USUAL_BINS)
        return cls._of(given, target=_two_levels(given), bins=bins)

    @classmethod
    def logistic_cells(cls, given: Parameters) -> Counted:
        """`logistic_cells`: the counts of the design's cells, by which its steps are set."""
        return cls.logistic(given).cells

    @classmethod
    def linear_cells(cls, given: Parameters) -> Counted:
        """`linear_cells`: the same."""
        return cls.linear(given).cells

    @classmethod
    def additive_cells(cls, given: Parameters) -> Counted:
        """`additive_cells`: the same."""
        return cls.additive(given).cells

    @classmethod
    def _of(cls, given: Parameters, *, target: Numeric | Categorical, bins: int) -> "GradientRound":
        design = Design.read(given, target=target, bins=bins)
        return cls(
            design=design,
            clip=given.number("clip", above=0, most=64, usual=1),
            weight=given.number("weight", above=0, most=1, usual=1) if bins else 1.0,
            rounds=given.whole("rounds", least=1, most=MOST_ROUNDS, usual=ROUNDS if bins else ROUNDS_OF_TRENDS),
            weights=np.zeros(design.length),
            counts_empty=given.counts_empty,
        )

    @property
    def state_length(self) -> int:
        """One weight per coordinate."""
        return self.design.length

    def at(self, state: NDArray[np.float64] | None) -> "GradientRound":
        """The round at this model, or CH102 where it is none of this design."""
        return replace(self, weights=finite(state, self.state_length))

    @property
    def cells(self) -> Counted:
        """The counts of the design's cells, by which its steps are set."""
        if not self.design.axes:
            raise bad("the model has no cells to count.", "Go on with its rounds.")
        return Counted(kind=ManyTables(axes=self.design.axes))

    @property
    def is_logistic(self) -> bool:
        """Whether the target is a level, and not a number."""
        return isinstance(self.design.target, Categorical)

    @property
    def scales(self) -> NDArray[np.float64]:
        """What a cell of each axis counts: `weight` for those of numbers, 1 for levels."""
        return np.array([self.weight if isinstance(axis.column, Numeric) else 1.0 for axis in self.design.axes])

    @property
    def counter(self) -> "RowCounter":
        """What counts the rows that have every value."""
        return RowCounter(longest=math.ceil(UNIT * self.clip), is_there=self.counts_empty)

    def summand(self) -> Summand:
        """The clipped gradients, added up, and the number of rows."""
        longest = self.counter.longest

        def total(rows: Rows) -> Integers:
            encoded, scales = self.design.encoded(rows), self.scales[:, None]
            residual = encoded.target - self.predicted(rows)
            square = 1 + (encoded.trends**2).sum(axis=0) + float((self.scales**2).sum())
            factor = UNIT * np.sign(residual) * np.minimum(np.abs(residual), self.clip / np.sqrt(square))
            trends, cells = np.trunc(factor * encoded.trends), np.trunc(factor * scales)
            whole = np.concatenate([trends, cells, np.trunc(factor)[None]]).astype(np.int64)
            fits = encoded.there & ((whole**2).sum(axis=0) <= longest**2)
            whole = np.where(fits, whole, 0)
            numbers = len(trends)
            found = np.zeros(self.design.length, dtype=np.int64)
            found[:numbers], found[-1] = whole[:numbers].sum(axis=1), whole[-1].sum()
            # Sums of whole numbers below 2^53 are exact in floats, and bincount adds up nothing else.
            cells = np.bincount(encoded.places.ravel(), weights=whole[numbers:-1].ravel(), minlength=self.design.cells)
            found[numbers:-1] = cells.astype(np.int64)
            return self.counter.added(found, fits)

        return Summand(
            length=self.design.length + self.counts_empty,
            l2=2.0 * longest,
            largest=self.counter.largest,
            columns=(*(column.name for column in self.design.columns), self.design.target.name),
            total=total,
        )

    def predicted(self, rows: Rows) -> NDArray[np.float64]:
        """What the model at `state` predicts for each row."""
        encoded, numbers = self.design.encoded(rows), len(self.design.numbers)
        cells = self.weights[numbers:-1][encoded.places] * self.scales[:, None]
        score = self.weights[-1] + self.weights[:numbers] @ encoded.trends + cells.sum(axis=0)
        if not self.is_logistic:
            return np.asarray(score)
        return np.asarray(0.5 * (1 + np.tanh(score / 2)))  # the logistic function, which can't overflow so

    def coordinates(self, rows: Rows) -> NDArray[np.float64]:
        """What the weights are multiplied by, rows × coordinates: trends, cells and 1. The target is not looked at."""
        unknown = {self.design.target.name: [None] * rows.rows}
        encoded = self.design.encoded(replace(rows, columns={**rows.columns, **unknown}))
        found, numbers = np.zeros((rows.rows, self.design.length)), len(self.design.numbers)
        found[:, :numbers], found[:, -1] = encoded.trends.T, 1.0
        for places, scale in zip(encoded.places, self.scales.tolist(), strict=True):
            found[np.arange(rows.rows), numbers + places] = scale
        return found


def finite(state: NDArray[np.float64] | None, length: int) -> NDArray[np.float64]:
    """The state of a model's round if it is so many finite numbers, else CH102.

    >>> finite(np.array([0.5]), 1).tolist()
    [0.5]
    """
    if state is None or state.shape != (length,):
        raise bad(f"the state of the model is not {length:,} numbers.", "Send the model of this design.")
    found = np.asarray(state, dtype=np.float64)
    if not np.all(np.abs(found) <= 1e6):  # NaN is not, either
        raise bad("a number of the model's state is not finite, or above a million.", "Send a finite model.")
    return found


def _two_levels(given: Parameters) -> Categorical:
    column = given.of(given.column("target"), Categorical)
    if len(column.levels) != 2:
        raise bad(f'{given.name}: the target "{column.name}" has {len(column.levels)} levels.', "Use one with two.")
    return column
