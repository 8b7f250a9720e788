"""Models on sums, by name: their sums one after the other, and the effects that follow from them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from choral.asking import descent, hazard
from choral.asking.answer import Answer, Expected, Z, around, with_value
from choral.asking.cells import scaled
from choral.asking.concordance import concordance
from choral.asking.descent import Descent, noise_gain, slowed, steps_of
from choral.asking.fitting import FittedModel, Fitting, NextSum, OpenedSum, Vector, settled, step_of
from choral.asking.hazard import HazardRound, prepared, score
from choral.asking.parameters import Parameters
from choral.asking.percentiles import Percentiles
from choral.asking.question import Question
from choral.asking.rounds import UNIT, GradientRound, RowCounter
from choral.asking.summand import DeclaredColumns, Rows
from choral.core.printable import number_of
from choral.tables.columns import Numeric


@dataclass(frozen=True, kw_only=True)
class GradientModel:
    """`logistic`, `linear` and `additive`: counts of cells once, then one full gradient per round."""

    question: Question
    round: GradientRound

    @property
    def before(self) -> int:
        """The sums before the first round."""
        return 1 if self.round.design.axes else 0

    @property
    def sums(self) -> int:
        """How many sums it takes."""
        return self.before + self.round.rounds

    @property
    def questions(self) -> tuple[Question, ...]:
        """Its sums, each once."""
        return tuple(step_of(self.question, step) for step in (["cells"] if self.before else []) + ["round"])

    def expected(self, *, rows: int, deviation: float) -> Expected:
        """How far the noise of rounds moves the effect of a level or of half a range; `deviation` is in φ's units."""
        rate = self.rate * (descent.CAP if self.round.design.axes else 1.0)
        spread = rate * noise_gain(self.round.rounds) * deviation / UNIT / rows
        return _planned(spread, self.round.rounds, self.before)

    @property
    def rate(self) -> float:
        """The step of trends, at most; that of cells is up to `descent.CAP` times as large."""
        return descent.RATE if self.round.is_logistic else descent.linear_rate(len(self.round.design.columns))

    def fit(self) -> Fitting:
        """The sums one after the other, then the model."""
        own, design = self.round, self.round.design
        counted = OpenedSum(total=np.zeros(0), rows=1, deviation=0.0)
        if design.axes:
            counted = yield NextSum(question=step_of(self.question, "cells"))
        steps = steps_of(counted.total, trends=len(design.numbers), rows=counted.rows, deviation=counted.deviation)
        position, is_slow, spreads = Descent.start(length=design.length, rounds=own.rounds), False, []
        counts = _RowCounts()
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


@dataclass(frozen=True, kw_only=True)
class HazardModel:
    """`hazard`: a survival table, second moments, then rounds of scores of whitened rows."""

    question: Question
    round: HazardRound

    @property
    def before(self) -> int:
        """The sums before the first round."""
        return 1 + hazard.TAKES

    @property
    def sums(self) -> int:
        """How many sums it takes."""
        return self.before + self.round.rounds

    @property
    def questions(self) -> tuple[Question, ...]:
        """Its sums, each once."""
        return tuple(step_of(self.question, step) for step in ("table", "moments", "round"))

    def expected(self, *, rows: int, deviation: float) -> Expected:
        """How far the noise of rounds moves the effect of one deviation of a column, where half of the rows end."""
        gain = noise_gain(self.round.rounds, momentum=0.0)
        return _planned(2 * hazard.STEP * gain * deviation / hazard.UNIT / rows, self.round.rounds, self.before)

    def fit(self) -> Fitting:
        """The sums one after the other, then the model."""
        own, taken = self.round, []
        cells = yield NextSum(question=step_of(self.question, "table"))
        for take in range(1, hazard.TAKES + 1):
            taken.append((yield NextSum(question=step_of(self.question, "moments", take=take))))
        moments = np.mean([one.total for one in taken], axis=0)
        deviation = float(np.linalg.norm([one.deviation for one in taken])) / len(taken)
        state, events, is_white = prepared(
            own.table, cells.total, own.moments, moments, rows=cells.rows, deviations=(cells.deviation, deviation)
        )
        position = Descent.start(length=len(state.weights), rounds=own.rounds, momentum=0.0)
        steps, noises, counts = np.full(len(state.weights), hazard.STEP / events), [], _RowCounts()
        for _ in range(own.rounds):
            at = settled(replace(state, weights=position.weights).packed())
            opened = yield NextSum(question=step_of(self.question, "round"), state=at)
            found, rows = counts.taken(own.counter, opened)
            position = position.after(score(found, rows=rows), rows=rows, steps=steps)
            noises.append(opened.deviation / hazard.UNIT / rows)
        model = own.at(settled(replace(state, weights=position.model).packed()))
        noise = steps[0] * noise_gain(own.rounds, momentum=0.0) * float(np.mean(noises))
        return FittedModel(
            state=model.state.packed(),
            effects=replace(_hazards(model, noise, is_white=is_white), about=counts.about),
            scores=model.risk,
            judged=_ordered_by(model),
        )


@dataclass(frozen=True)
class _RowCounts:
    """How many rows have every value that a model needs: each of its rounds counts them, and their mean is taken."""

    found: list[float] = field(default_factory=list)
    deviations: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def taken(self, counter: RowCounter, opened: OpenedSum) -> tuple[Vector, float]:
        """The sum of a round without its count, and the count."""
        total, count, deviation = counter.taken_off(opened.total, rows=opened.rows, deviation=opened.deviation)
        if counter.is_there:
            self.found.append(count)
            self.deviations.append(deviation)
            self.rows.append(opened.rows)
        return total, count

    @property
    def about(self) -> tuple[dict[str, object], ...]:
        """The number of rows, with its interval; nothing for a model of the first version."""
        if not self.found:
            return ()
        spread = float(np.linalg.norm(self.deviations)) / len(self.deviations)
        return (with_value(float(np.mean(self.found)), spread, rows=max(self.rows)),)


SumModel: TypeAlias = GradientModel | HazardModel | Percentiles
_READ: dict[str, Callable[[Question, Parameters], SumModel]] = {
    "logistic": lambda question, given: GradientModel(question=question, round=GradientRound.logistic(given)),
    "linear": lambda question, given: GradientModel(question=question, round=GradientRound.linear(given)),
    "additive": lambda question, given: GradientModel(question=question, round=GradientRound.additive(given)),
    "hazard": lambda question, given: HazardModel(question=question, round=HazardRound.read(given)),
    "percentiles": Percentiles.read,
}


def read_model(question: Question, columns: DeclaredColumns) -> SumModel:
    """The model that a question names, with every parameter checked.

    >>> age, died = Numeric(name="age", low=0, high=100), Numeric(name="died", low=0, high=1)
    >>> asked = Question(name="linear", parameters={"columns": ["age"], "target": "died", "rounds": 3})
    >>> read_model(asked, {"age": age, "died": died}).sums
    3
    """
    question.canonical()
    given = Parameters(question.name, question.parameters, columns, version=question.version)
    model = _READ[question.name](question, given)
    given.end()
    return model


BLIND = 0.5  # in log-odds or the logarithm of a hazard: the effect of a risk that is common knowledge


def _planned(spread: float, rounds: int, before: int) -> Expected:
    after = number_of(rounds, "round")
    first = f"{before} sums, then " if before > 1 else "one sum, then " if before else ""
    blind = " That hides effects of a usual size: use fewer columns or cells, or a larger epsilon." * (spread > BLIND)
    return Expected(
        width=2 * Z * spread,
        sentence=f"It takes {first}{after}. The noise of all rounds moves an effect by a deviation of at most "
        f"{spread:.3g}.{blind}",
    )


_ABOUT = (
    "Intervals are about the noise alone, at its most: rounds that correct each other are not counted.",
    "The effect of a number is for half of its declared range.",
)
_SLOW = "The noise made the steps smaller, so effects are nearer to 0 than those of a model without noise."
_OF_HAZARDS = (
    "Intervals are about the noise of rounds alone, at its most; that of the whitening is not in them.",
    _ABOUT[1],
    "Rows are cut to a length, so the effect of a rare level is not that of Cox's regression.",
)


def _effects(model: GradientRound, spread: Vector, *, is_slow: bool) -> Answer:
    """What each column does to the score; a number with cells has its effect in the middle of each."""
    design, weights, found = model.design, model.weights, list[dict[str, object]]()
    trend = {column.name: place for place, column in enumerate(design.numbers)}
    if not design.bins:
        found += [_effect(name, "slope", weights[place], spread[place]) for name, place in trend.items()]
    place = len(trend)
    for axis, scale in zip(design.axes, model.scales.tolist(), strict=True):
        for number, label in enumerate(axis.labels):
            value, sd, more = scale * weights[place], scale * spread[place], dict[str, object]()
            if isinstance(axis.column, Numeric):
                edges = (axis.column.low, *axis.cuts, axis.column.high)
                more["value"] = middle = (edges[number] + edges[number + 1]) / 2
                at, own = float(scaled(np.array([middle]), axis.column)[0]), trend[axis.column.name]
                value, sd = value + at * weights[own], math.hypot(sd, at * spread[own])
            found.append(_effect(axis.column.name, label, value, sd) | more)
            place += 1
    found.append(_effect("(intercept)", "", weights[-1], spread[-1]))
    about = _ABOUT[:1] if design.bins else _ABOUT
    return Answer(rows=found, sentences=(*about, _SLOW) if is_slow else about)


def _effect(column: str, cell: str, value: float, spread: float) -> dict[str, object]:
    return {"column": column, "cell": cell, **around(float(value), float(spread)), "noise_sd": float(spread)}


def _hazards(model: HazardRound, noise: float, *, is_white: bool) -> Answer:
    """The logarithm of the ratio of hazards for half of each column's range."""
    whitening, names = model.state.whitening, [column.name for column in model.moments.columns]
    values, spreads = whitening.T @ model.state.weights[:-1], noise * np.linalg.norm(whitening, axis=0)
    rows = [_effect(*one) for one in zip(names, [""] * len(names), values, spreads, strict=True)]
    plain = (
        ()
        if is_white
        else ("The noise is too large to tell the columns' correlations, so each column is scaled by itself.",)
    )
    return Answer(rows=rows, sentences=(*_OF_HAZARDS, *plain), is_rough=not is_white)


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


def _ordered_by(model: HazardRound) -> Callable[[Rows], dict[str, float]]:
    def judged(rows: Rows) -> dict[str, float]:
        life = model.lives(rows)
        there = life.there
        return {"c_index": concordance(model.risk(rows)[there], life.time[there], life.happened[there])}

    return judged
