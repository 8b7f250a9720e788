"""hazard: a proportional-hazards model on sums, at a public baseline hazard and a public whitening."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from choral.asking import IN_PLACE_OF_TRAINING
from choral.asking.answer import Answer, Expected
from choral.asking.cells import counted
from choral.asking.fitting import (
    MOST_ROUNDS,
    Counted,
    Descent,
    FittedModel,
    Fitting,
    NextSum,
    RoundModel,
    RowCounter,
    RowCounts,
    Vector,
    concordance,
    effect,
    finite,
    noise_gain,
    planned,
    settled,
    step_of,
)
from choral.asking.moments import Moments
from choral.asking.parameters import Integers, Parameters, Rows, Summand, bad
from choral.asking.question import Question
from choral.asking.survival import Lives, Survival

MOST_COLUMNS = 24  # the state has a square matrix of them
# Constants of the catalogue, never chosen on data.
UNIT = 2**10  # a score of 1 in φ's units; smaller than for gradients, since scores are longer
ROUNDS, STEP = IN_PLACE_OF_TRAINING["hazard"].rounds, 0.8
# How often second moments are asked for: their mean has as little noise as one answer at three times the price.
TAKES = IN_PLACE_OF_TRAINING["hazard"].before - 1


@dataclass(frozen=True, kw_only=True)
class HazardState:
    """What the rounds need of earlier sums: the cumulative hazard at the bins' ends, means, whitening, weights."""

    hazard: Vector  # at the end of each bin
    means: Vector
    whitening: Vector  # (columns, columns)
    weights: Vector  # of the whitened columns, and an intercept

    def packed(self) -> Vector:
        """All numbers in one vector, as a turn carries it."""
        return np.concatenate([self.hazard, self.means, self.whitening.ravel(), self.weights])

    @classmethod
    def unpacked(cls, state: Vector, *, bins: int, columns: int) -> "HazardState":
        """The state in such a vector."""
        hazard, means, whitening, weights = np.split(state, np.cumsum([bins, columns, columns**2]))
        return cls(hazard=hazard, means=means, whitening=whitening.reshape(columns, columns), weights=weights)

    @staticmethod
    def length(*, bins: int, columns: int) -> int:
        """How many numbers it has."""
        return bins + columns + columns**2 + columns + 1


@dataclass(frozen=True, kw_only=True)
class HazardRound:
    """φ = (res + ½)·u with res = clip(event − Λ(t)·e^(β·u), −2, 1): at most 3/2·‖u‖ long, so two rows are 3R apart.

    u = (W(x − m) cut to `radius`, 1), so ‖u‖ ≤ R = √(radius² + 1). Numbers are cut off towards zero, and the length is
    checked in whole numbers, as in rounds of gradients.
    """

    table: Survival
    moments: Moments
    radius: float
    rounds: int
    state: HazardState
    ranks: ClassVar[bool] = True

    @classmethod
    def read(cls, given: Parameters) -> "HazardRound":
        """`hazard_round` of `time` and `event` by `columns`, in the bins of a survival table."""
        table = Survival.read(given)
        if table.arms.axes or not table.keeps.is_everything:
            raise bad("hazard_round: by or where is given.", "A model is of all rows: leave them out.")
        names = given.names("columns", most=MOST_COLUMNS)
        if {table.time.name, table.event.name} & set(names):
            raise bad("hazard_round: the time or the event is among the columns.", "Leave it out of columns.")
        length = HazardState.length(bins=table.bins, columns=len(names))
        return cls(
            table=table,
            moments=Moments.over(given, names, is_filled=True),
            radius=given.number("radius", above=0, most=64, usual=1.2 * math.sqrt(len(names))),
            rounds=given.whole("rounds", least=1, most=MOST_ROUNDS, usual=ROUNDS),
            state=HazardState.unpacked(np.zeros(length), bins=table.bins, columns=len(names)),
        )

    @classmethod
    def counting(cls, given: Parameters) -> Counted:
        """`hazard_table`: the survival table of the same parameters."""
        return Counted(kind=cls.read(given).table)

    @classmethod
    def measuring(cls, given: Parameters) -> Counted:
        """`hazard_moments`: the second moments of the columns; asked several times, for the mean of the answers."""
        given.whole("take", least=1, most=TAKES, usual=1)
        return Counted(kind=cls.read(given).moments)

    @property
    def state_length(self) -> int:
        """The numbers of a state."""
        return HazardState.length(bins=self.table.bins, columns=len(self.moments.columns))

    @property
    def weights_length(self) -> int:
        """One weight per column, and an intercept."""
        return len(self.moments.columns) + 1

    def at(self, state: Vector | None) -> "HazardRound":
        """The round at this state, or CH102 where it has another length or a number that is not finite."""
        numbers = finite(state, self.state_length)
        columns = len(self.moments.columns)
        return replace(self, state=HazardState.unpacked(numbers, bins=self.table.bins, columns=columns))

    @cached_property
    def counter(self) -> RowCounter:
        """The length of φ in whole numbers, and what counts the rows that have every value."""
        longest = math.ceil(1.5 * math.sqrt(self.radius**2 + 1) * UNIT)
        return RowCounter(longest=longest, is_there=self.table.counts_empty)

    def summand(self) -> Summand:
        """The scores of all rows, added up."""

        def total(rows: Rows) -> Integers:
            u, there = self._whitened(rows)
            life = self.table.lives(rows)
            edges, hazard = [0.0, *self.table.edges], [0.0, *self.state.hazard]
            passed = np.interp(life.time, edges, hazard)
            happened = life.happened & (life.time <= self.table.until)
            risk = passed * np.exp(np.clip(self.state.weights @ u, -30.0, 30.0))
            residual = np.clip(happened - risk, -2.0, 1.0)
            whole = np.trunc(UNIT * (residual + 0.5) * u).astype(np.int64)
            fits = there & life.there & ((whole**2).sum(axis=0) <= self.counter.longest**2)
            return self.counter.added(np.where(fits, whole, 0).sum(axis=1), fits)

        return Summand(
            length=len(self.moments.columns) + 1 + self.counter.is_there,
            l2=2.0 * self.counter.longest,
            largest=self.counter.largest,
            columns=(self.table.time.name, self.table.event.name, *(c.name for c in self.moments.columns)),
            total=total,
        )

    def _whitened(self, rows: Rows) -> tuple[Vector, NDArray[np.bool_]]:
        scaled = np.stack(self.moments.scaled(rows))
        there = np.asarray(~np.isnan(scaled).any(axis=0))
        z = self.state.whitening @ (np.nan_to_num(scaled) - self.state.means[:, None])
        z = z * np.minimum(1.0, self.radius / np.maximum(np.linalg.norm(z, axis=0), 1e-12))
        return np.concatenate([z, np.ones((1, rows.rows))]), there

    def lives(self, rows: Rows) -> Lives:
        """The rows as they were watched; those that lack a value of any column are not there."""
        life = self.table.watched(rows)
        return life._replace(there=life.there & self._whitened(rows)[1])

    def risk(self, rows: Rows) -> Vector:
        """The logarithm of each row's hazard, relative to the baseline."""
        return np.asarray(self.state.weights @ self._whitened(rows)[0])

    def coordinates(self, rows: Rows) -> Vector:
        """What the weights are multiplied by, rows × coordinates: whitened columns, and 1."""
        return self._whitened(rows)[0].T


def prepared(
    table: Survival, cells: Vector, moments: Moments, total: Vector, *, rows: int, deviations: tuple[float, float]
) -> tuple[HazardState, float, bool]:
    """The state before the first round, the share of rows with an event, and whether rows could be whitened.

    `cells` and `total` are the opened sums of `table` and `moments`, with noise of these two deviations.
    """
    at_risk, events = table.counted(cells, rows=rows)
    clear = at_risk > np.maximum(3 * deviations[0] * math.sqrt(len(cells)), 1.0)
    hazard = np.cumsum(np.where(clear, np.maximum(events, 0) / np.maximum(at_risk, 1.0), 0.0))
    second, spread = moments.matrices(total, rows=rows, deviation=deviations[1])
    means = second[-1, :-1]
    covariance = second[:-1, :-1] - np.outer(means, means)
    values, basis = np.linalg.eigh(covariance)
    noise = float(spread.diagonal().max())
    floor = max(2 * math.sqrt(len(means)) * noise, 1e-9)
    is_white = bool(floor <= np.median(values))
    if is_white:
        whitening = (basis / np.sqrt(np.maximum(values, 0.0) + floor)) @ basis.T
    else:  # each column by itself: its own variance has less noise than what all columns have together
        whitening = np.diag(1 / np.sqrt(np.maximum(covariance.diagonal(), 0.0) + max(2 * noise, 1e-9)))
    known = counted(cells, table.keeps, rows, deviations[0])[0] if table.counts_empty else float(rows)
    share = max(float(events.sum()) / max(known, 1.0), 1 / rows)
    weights = np.zeros(len(means) + 1)
    return HazardState(hazard=hazard, means=means, whitening=whitening, weights=weights), share, is_white


def score(total: Vector, *, rows: float) -> Vector:
    """Σ res·u from the sum over so many rows, less ½·Σu, which is known, since whitened columns have the mean 0."""
    found = np.asarray(total, dtype=np.float64) / UNIT
    found[-1] -= rows / 2
    return found


@dataclass(frozen=True, kw_only=True)
class HazardModel(RoundModel[HazardRound]):
    """`hazard`: a survival table, second moments, then rounds of scores of whitened rows."""

    @classmethod
    def read(cls, question: Question, given: Parameters) -> "HazardModel":
        """Read `hazard`."""
        return cls(question=question, round=HazardRound.read(given))

    @property
    def before(self) -> int:
        """The sums before the first round."""
        return 1 + TAKES

    @property
    def steps(self) -> tuple[str, ...]:
        """Its sums by name."""
        return ("table", "moments", "round")

    def expected(self, *, rows: int, deviation: float) -> Expected:
        """How far the noise of rounds moves the effect of one deviation of a column, where half of the rows end."""
        gain = noise_gain(self.round.rounds, momentum=0.0)
        return planned(2 * STEP * gain * deviation / UNIT / rows, self.round.rounds, self.before)

    def fit(self) -> Fitting:
        """The sums one after the other, then the model."""
        own, taken = self.round, []
        cells = yield NextSum(question=step_of(self.question, "table"))
        for take in range(1, TAKES + 1):
            taken.append((yield NextSum(question=step_of(self.question, "moments", take=take))))
        moments = np.mean([one.total for one in taken], axis=0)
        deviation = float(np.linalg.norm([one.deviation for one in taken])) / len(taken)
        state, events, is_white = prepared(
            own.table, cells.total, own.moments, moments, rows=cells.rows, deviations=(cells.deviation, deviation)
        )
        position = Descent.start(length=len(state.weights), rounds=own.rounds, momentum=0.0)
        steps, noises, counts = np.full(len(state.weights), STEP / events), [], RowCounts()
        for _ in range(own.rounds):
            at = settled(replace(state, weights=position.weights).packed())
            opened = yield NextSum(question=step_of(self.question, "round"), state=at)
            found, rows = counts.taken(own.counter, opened)
            position = position.after(score(found, rows=rows), rows=rows, steps=steps)
            noises.append(opened.deviation / UNIT / rows)
        model = own.at(settled(replace(state, weights=position.model).packed()))
        noise = steps[0] * noise_gain(own.rounds, momentum=0.0) * float(np.mean(noises))
        return FittedModel(
            state=model.state.packed(),
            effects=replace(_hazards(model, noise, is_white=is_white), about=counts.about),
            scores=model.risk,
            judged=_ordered_by(model),
        )


_OF_HAZARDS = (
    "Intervals are about the noise of rounds alone, at its most; that of the whitening is not in them.",
    "The effect of a number is for half of its declared range.",
    "Rows are cut to a length, so the effect of a rare level is not that of Cox's regression.",
)


def _hazards(model: HazardRound, noise: float, *, is_white: bool) -> Answer:
    """The logarithm of the ratio of hazards for half of each column's range."""
    whitening, names = model.state.whitening, [column.name for column in model.moments.columns]
    values, spreads = whitening.T @ model.state.weights[:-1], noise * np.linalg.norm(whitening, axis=0)
    rows = [effect(*one) for one in zip(names, [""] * len(names), values, spreads, strict=True)]
    plain = (
        ()
        if is_white
        else ("The noise is too large to tell the columns' correlations, so each column is scaled by itself.",)
    )
    return Answer(rows=rows, sentences=(*_OF_HAZARDS, *plain), is_rough=not is_white)


def _ordered_by(model: HazardRound) -> Callable[[Rows], dict[str, float]]:
    def judged(rows: Rows) -> dict[str, float]:
        life = model.lives(rows)
        there = life.there
        return {"c_index": concordance(model.risk(rows)[there], life.time[there], life.happened[there])}

    return judged
