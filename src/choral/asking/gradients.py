"""logistic, linear and additive: models on sums of full-batch gradients, clipped row by row."""

import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from choral.asking.answer import Answer, Expected
from choral.asking.cells import MOST_BINS, USUAL_BINS, TableAxis, axis_of, bounded, filled, levels, scaled
from choral.asking.cross_tables import ManyTables
from choral.asking.fitting import (
    CAP,
    MOST_ROUNDS,
    RATE,
    ROUNDS,
    ROUNDS_OF_TRENDS,
    Counted,
    Descent,
    FittedModel,
    Fitting,
    NextSum,
    OpenedSum,
    RoundModel,
    RowCounter,
    RowCounts,
    Vector,
    concordance,
    effect,
    finite,
    linear_rate,
    noise_gain,
    planned,
    settled,
    slowed,
    step_of,
    steps_of,
)
from choral.asking.parameters import Integers, Parameters, Rows, Summand, bad
from choral.asking.question import Question
from choral.tables.columns import Categorical, Numeric

Matrix = NDArray[np.float64]


class Encoded(NamedTuple):
    """A table by a design: trends and cells of each row, its target, and whether all of it could be read."""

    trends: Matrix  # (numbers, rows), from −1 to 1
    places: Integers  # (columns with cells, rows), counted over all cells of the design
    target: NDArray[np.float64]
    there: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Design:
    """Which coordinates a row has: a trend and `bins` cells (or none) per number, a cell per level, an intercept."""

    columns: tuple[Numeric | Categorical, ...]
    target: Numeric | Categorical
    bins: int = 0

    @classmethod
    def read(cls, given: Parameters, *, target: Numeric | Categorical, bins: int) -> "Design":
        """The design over the columns that the parameter `columns` names."""
        names = given.names("columns")
        if target.name in names:
            raise bad(f"{given.name}: the target is among the columns.", "Leave it out of columns.")
        return cls(columns=tuple(map(given.known, names)), target=target, bins=bins)

    @cached_property
    def numbers(self) -> tuple[Numeric, ...]:
        """The columns that have a trend."""
        return tuple(column for column in self.columns if isinstance(column, Numeric))

    @cached_property
    def axes(self) -> tuple[TableAxis, ...]:
        """The columns that have cells."""
        return tuple(
            axis_of(column, self.bins, is_filled=True)
            for column in self.columns
            if self.bins or isinstance(column, Categorical)
        )

    @cached_property
    def cells(self) -> int:
        """The cells of all columns."""
        return sum(len(axis.labels) for axis in self.axes)

    @property
    def length(self) -> int:
        """The coordinates: trends, cells, intercept, in this order."""
        return len(self.numbers) + self.cells + 1

    def encoded(self, rows: Rows) -> Encoded:
        """The table by this design; kept as long as the table is, since every round reads it again."""
        kept = _KEPT.setdefault(rows, {})
        if self not in kept:
            kept[self] = self._encode(rows)
        return kept[self]

    def _encode(self, rows: Rows) -> Encoded:
        trends = np.array([scaled(filled(rows, column), column) for column in self.numbers])
        trends = trends.reshape(len(self.numbers), rows.rows)
        found = np.array([axis.places(rows) for axis in self.axes], dtype=np.int64).reshape(len(self.axes), rows.rows)
        starts = np.cumsum([0, *(len(axis.labels) for axis in self.axes)])[:-1].astype(np.int64)
        if isinstance(self.target, Categorical):
            place = levels(rows, self.target)
            target = np.where(place < 0, np.nan, place)
        else:
            target = scaled(bounded(rows, self.target), self.target)
        there = ~np.isnan(target) & ~np.isnan(trends).any(axis=0) & (found >= 0).all(axis=0)
        return Encoded(
            trends=np.nan_to_num(trends),
            places=np.maximum(found, 0) + starts[:, None],
            target=np.nan_to_num(target),
            there=there,
        )


_KEPT: weakref.WeakKeyDictionary[Rows, dict[Design, Encoded]] = weakref.WeakKeyDictionary()

UNIT = 2**12  # a gradient of 1 in φ's units


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
    ranks: ClassVar[bool] = False

    @classmethod
    def read(cls, given: Parameters) -> "GradientRound":
        """A round of `logistic`, of `linear`, whose target is a number, or of `additive`, where numbers have cells."""
        kind = given.name.partition("_")[0]
        bins = given.whole("bins", least=2, most=MOST_BINS, usual=USUAL_BINS) if kind == "additive" else 0
        target = given.of(given.column("target"), Numeric) if kind == "linear" else _two_levels(given)
        design = Design.read(given, target=target, bins=bins)
        return cls(
            design=design,
            clip=given.number("clip", above=0, most=64, usual=1),
            weight=given.number("weight", above=0, most=1, usual=1) if bins else 1.0,
            rounds=given.whole("rounds", least=1, most=MOST_ROUNDS, usual=ROUNDS if bins else ROUNDS_OF_TRENDS),
            weights=np.zeros(design.length),
            counts_empty=given.counts_empty,
        )

    @classmethod
    def counting(cls, given: Parameters) -> Counted:
        """The counts of the design's cells, by which its steps are set."""
        axes = cls.read(given).design.axes
        if not axes:
            raise bad("the model has no cells to count.", "Go on with its rounds.")
        return Counted(kind=ManyTables(axes=axes))

    @property
    def state_length(self) -> int:
        """One weight per coordinate."""
        return self.design.length

    @property
    def weights_length(self) -> int:
        """The state has nothing else."""
        return self.design.length

    def at(self, state: NDArray[np.float64] | None) -> "GradientRound":
        """The round at this model, or CH102 where it is none of this design."""
        return replace(self, weights=finite(state, self.state_length))

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


def _two_levels(given: Parameters) -> Categorical:
    column = given.of(given.column("target"), Categorical)
    if len(column.levels) != 2:
        raise bad(f'{given.name}: the target "{column.name}" has {len(column.levels)} levels.', "Use one with two.")
    return column


@dataclass(frozen=True, kw_only=True)
class GradientModel(RoundModel[GradientRound]):
    """`logistic`, `linear` and `additive`: counts of cells once, then one full gradient per round."""

    @classmethod
    def read(cls, question: Question, given: Parameters) -> "GradientModel":
        """The model of this name, with the parameters of its rounds."""
        return cls(question=question, round=GradientRound.read(given))

    @property
    def before(self) -> int:
        """The sums before the first round."""
        return 1 if self.round.design.axes else 0

    @property
    def steps(self) -> tuple[str, ...]:
        """Its sums by name."""
        return ("cells", "round") if self.before else ("round",)

    def expected(self, *, rows: int, deviation: float) -> Expected:
        """How far the noise of rounds moves the effect of a level or of half a range; `deviation` is in φ's units."""
        rate = self.rate * (CAP if self.round.design.axes else 1.0)
        spread = rate * noise_gain(self.round.rounds) * deviation / UNIT / rows
        return planned(spread, self.round.rounds, self.before)

    @property
    def rate(self) -> float:
        """The step of trends, at most; that of cells is up to `CAP` times as large."""
        return RATE if self.round.is_logistic else linear_rate(len(self.round.design.columns))

    def fit(self) -> Fitting:
        """The sums one after the other, then the model."""
        own, design = self.round, self.round.design
        counted = OpenedSum(total=np.zeros(0), rows=1, deviation=0.0)
        if design.axes:
            counted = yield NextSum(question=step_of(self.question, "cells"))
        steps = steps_of(counted.total, trends=len(design.numbers), rows=counted.rows, deviation=counted.deviation)
        position, is_slow, spreads = Descent.start(length=design.length, rounds=own.rounds), False, []
        counts = RowCounts()
        for _ in range(own.rounds):
            opened = yield NextSum(question=step_of(self.question, "round"), state=settled(position.weights))
            gradient, rows = counts.taken(own.counter, opened)
            noise = opened.deviation / UNIT / rows
            rate = slowed(self.rate, noise=noise)
            position = position.after(gradient / UNIT, rows=rows, steps=rate * steps)
            is_slow |= rate < self.rate
            spreads.append(rate * noise)
        model = own.at(settled(position.model))
        spread = steps * noise_gain(own.rounds) * float(np.mean(spreads))
        return FittedModel(
            state=model.weights,
            effects=replace(_effects(model, spread, is_slow=is_slow), about=counts.about),
            scores=model.predicted,
            judged=_judged_by(model),
        )


_ABOUT = (
    "Intervals are about the noise alone, at its most: rounds that correct each other are not counted.",
    "The effect of a number is for half of its declared range.",
)
_SLOW = "The noise made the steps smaller, so effects are nearer to 0 than those of a model without noise."


def _effects(model: GradientRound, spread: Vector, *, is_slow: bool) -> Answer:
    """What each column does to the score; a number with cells has its effect in the middle of each."""
    design, weights, found = model.design, model.weights, list[dict[str, object]]()
    trend = {column.name: place for place, column in enumerate(design.numbers)}
    if not design.bins:
        found += [effect(name, "slope", weights[place], spread[place]) for name, place in trend.items()]
    place = len(trend)
    for axis, scale in zip(design.axes, model.scales.tolist(), strict=True):
        for number, label in enumerate(axis.labels):
            value, sd, more = scale * weights[place], scale * spread[place], dict[str, object]()
            if isinstance(axis.column, Numeric):
                edges = (axis.column.low, *axis.cuts, axis.column.high)
                more["value"] = middle = (edges[number] + edges[number + 1]) / 2
                at, own = float(scaled(np.array([middle]), axis.column)[0]), trend[axis.column.name]
                value, sd = value + at * weights[own], math.hypot(sd, at * spread[own])
            found.append(effect(axis.column.name, label, value, sd) | more)
            place += 1
    found.append(effect("(intercept)", "", weights[-1], spread[-1]))
    about = _ABOUT[:1] if design.bins else _ABOUT
    return Answer(rows=found, sentences=(*about, _SLOW) if is_slow else about)


def _judged_by(model: GradientRound) -> Callable[[Rows], dict[str, float]]:
    def judged(rows: Rows) -> dict[str, float]:
        encoded = model.design.encoded(rows)
        found, truth = model.predicted(rows)[encoded.there], encoded.target[encoded.there]
        if model.is_logistic:
            ones = truth > 0.5  # the area under the curve is the concordance of scores and classes
            return {"auc": concordance(found, -truth, ones), "accuracy": float(np.mean((found > 0.5) == ones))}
        unit = model.design.target.unit if isinstance(model.design.target, Numeric) else 1.0
        return {"rmse": float(np.sqrt(np.mean((found - truth) ** 2)) * unit)}

    return judged
