"""Models on sums: which sum is asked for next, given those that were opened, until the model is there.

Everything here follows from opened sums alone, so each state is public, and anybody can compute it again.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from choral.asking import IN_PLACE_OF_TRAINING
from choral.asking.answer import Answer, Expected, Kind, ModelRound, Z, around, with_value
from choral.asking.parameters import Integers, Rows, Summand, bad
from choral.asking.question import Question
from choral.core.printable import count

Vector: TypeAlias = NDArray[np.float64]
_GRID = 2.0**20  # states are whole multiples of 1/2^20, so that other machines compute exactly the same ones


@dataclass(frozen=True, kw_only=True, eq=False)
class NextSum:
    """The sum that a model needs next, and the public state that it is asked at."""

    question: Question
    state: Vector | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenedSum:
    """A sum with its noise, in φ's own units, over so many rows."""

    total: Vector
    rows: int
    deviation: float


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedModel:
    """What follows from all sums: a model's numbers, effects with their noise, and how well it does on other rows."""

    state: Vector
    effects: Answer
    scores: Callable[[Rows], Vector] | None = None
    judged: Callable[[Rows], dict[str, float]] = lambda _rows: {}


Fitting: TypeAlias = Generator[NextSum, OpenedSum, FittedModel]


@dataclass(frozen=True, kw_only=True)
class SumModel(ABC):
    """A model that is made from several sums, with its parameters read."""

    question: Question

    @property
    @abstractmethod
    def sums(self) -> int:
        """How many sums it takes."""

    @property
    @abstractmethod
    def questions(self) -> tuple[Question, ...]:
        """Its sums, each once; the last one is that of its rounds."""

    @abstractmethod
    def expected(self, *, rows: int, deviation: float) -> Expected:
        """How far the noise moves what it says; `deviation` is that of its last sum, in φ's units."""

    @abstractmethod
    def fit(self) -> Fitting:
        """The sums one after the other, then the model."""


class FittedRound(ModelRound, Protocol):
    """A round of a model that predicts: what its weights are multiplied by, and how many rounds there are."""

    ranks: ClassVar[bool]  # whether it orders rows by their hazard, and knows no classes

    @property
    def rounds(self) -> int:
        """How many rounds the model takes."""

    @property
    def weights_length(self) -> int:
        """How many weights stand at the end of its state."""

    def at(self, state: Vector | None) -> Self:
        """The round at this state, or CH102."""

    def coordinates(self, rows: Rows) -> Vector:
        """What the weights are multiplied by, rows × coordinates."""


Round = TypeVar("Round", bound=FittedRound)


@dataclass(frozen=True, kw_only=True)
class RoundModel(SumModel, Generic[Round]):
    """A model that takes some sums before its first round, and one per round."""

    round: Round

    @property
    @abstractmethod
    def steps(self) -> tuple[str, ...]:
        """Its sums by name, each once."""

    @property
    @abstractmethod
    def before(self) -> int:
        """The sums before the first round."""

    @property
    def sums(self) -> int:
        """Those before, and one per round."""
        return self.before + self.round.rounds

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions of its steps."""
        return tuple(step_of(self.question, step) for step in self.steps)


def driven(fitting: Fitting, ask: Callable[[NextSum], OpenedSum]) -> FittedModel:
    """The model, from whoever opens the sums: all devices, or a register that has them already."""
    try:
        step = next(fitting)
        while True:
            step = fitting.send(ask(step))
    except StopIteration as end:
        model: FittedModel = end.value
        return model


def settled(state: Vector) -> Vector:
    """The state on a grid that is coarse for machines and fine for models.

    >>> settled(np.array([0.1 + 1e-12])) == settled(np.array([0.1]))
    array([ True])
    """
    return np.asarray(np.rint(state * _GRID) / _GRID)


def step_of(question: Question, step: str, **more: float) -> Question:
    """The question of one of its sums: the same parameters, and some that only the sum has."""
    return question.with_parameters({**question.parameters, **more}, name=f"{question.name}_{step}")


MOMENTUM = 0.8
# Constants of the catalogue, never chosen on data: tuned once, on UCI Adult, over ten splits.
RATE, CAP = 4.0, 4.0
ROUNDS, MOST_ROUNDS = IN_PLACE_OF_TRAINING["additive"].rounds, 200
ROUNDS_OF_TRENDS = 80  # of models without cells for numbers: they have less noise to gather, and settle more slowly
PACE = 0.016  # tuned on parts of UCI Adult and GUSTO-I of 3,000 to 36,700 rows


@dataclass(frozen=True, kw_only=True)
class Descent:
    """Where a model is after some of its rounds: a value that each opened sum moves on.

    >>> start = Descent.start(length=1, rounds=2)
    >>> first = start.after(np.array([4.0]), rows=2, steps=np.array([0.5]))
    >>> second = first.after(np.array([0.0]), rows=2, steps=np.array([0.5]))
    >>> first.weights.tolist(), second.weights.tolist(), second.model.tolist()
    ([1.0], [1.8], [1.8])
    """

    weights: Vector
    velocity: Vector
    rounds: int
    momentum: float = MOMENTUM
    done: int = 0
    late: Vector = field(default_factory=lambda: np.zeros(0))  # the sum of the iterates of the last half

    @classmethod
    def start(cls, *, length: int, rounds: int, momentum: float = MOMENTUM) -> "Descent":
        """Before the first round: all weights are 0."""
        zero = np.zeros(length)
        return cls(weights=zero, velocity=zero, rounds=rounds, momentum=momentum, late=zero)

    def after(self, total: Vector, *, rows: float, steps: Vector) -> "Descent":
        """After a round whose sum of gradients, in gradients' own unit, is `total`."""
        velocity = self.momentum * self.velocity + steps * total / rows
        weights = self.weights + velocity
        late = self.late + weights if self.done >= self.rounds // 2 else self.late
        return replace(self, weights=weights, velocity=velocity, done=self.done + 1, late=late)

    @property
    def model(self) -> Vector:
        """The mean of the last half of the iterates; before that half, the last iterate."""
        averaged = self.done - self.rounds // 2
        return self.late / averaged if averaged > 0 else self.weights


def noise_gain(rounds: int, momentum: float = MOMENTUM) -> float:
    """How many times the noise of one step the noise of the mean of the last half is, where no later step corrects it.

    A step's noise moves all later iterates by (1 − m^k)/(1 − m). Where the loss is curved, each of these numbers is
    smaller: with constant curvature it is m^(k/2)·U_k(x) with |x| ≤ (1 + m)/2√m, and the Chebyshev polynomial U_k is
    largest at that end, which is no curvature at all.

    >>> noise_gain(1), round(noise_gain(2, momentum=0.0), 3)  # two steps, of which the last iterate is taken
    (1.0, 1.414)
    """
    reach = np.cumsum(momentum ** np.arange(rounds))
    late = range(rounds // 2, rounds)
    moved = [sum(reach[at - step] for at in late if at >= step) / len(late) for step in range(rounds)]
    return float(np.linalg.norm(moved))


def linear_rate(columns: int) -> float:
    """The rate of a linear model over so many columns: squares are steeper than logistic losses, the more so the longer
    a row is, and a larger rate would not settle.

    >>> linear_rate(3)
    0.5
    """
    return 2.0 / (columns + 1)


def slowed(rate: float, *, noise: float, momentum: float = MOMENTUM) -> float:
    """The rate, or a smaller one where the noise is large: what large steps would go on to learn is mostly noise.

    `noise` is the deviation of the noise in a round's mean gradient, which is public. At a rate of η, R rounds move the
    weights by at most ηR/(1 − m) times the mean of their gradients, whose noise is τ = noise/√R; (PACE/τ)² is as far as
    they go. So a model over few rows stops early, whatever its number of rounds.

    >>> slowed(4.0, noise=0.0), round(slowed(4.0, noise=0.01), 2)
    (4.0, 0.51)
    """
    return min(rate, (1 - momentum) * (PACE / noise) ** 2) if noise else rate


def steps_of(counts: Vector, *, trends: int, rows: int, deviation: float, cap: float = CAP) -> Vector:
    """The step of each coordinate of a design, in rates: more for cells that hold fewer rows, and at most `cap`.

    `counts` are the noisy counts of all cells, of this deviation; trends and the intercept have a step of 1.

    >>> counts = np.array([460.0, 0.0])
    >>> steps_of(counts, trends=1, rows=1000, deviation=10.0, cap=8.0).tolist()
    [1.0, 2.0, 8.0, 1.0]
    """
    cells = np.minimum(rows / np.maximum(counts + 4 * deviation, 1.0), cap)
    return np.concatenate([np.ones(trends), cells, [1.0]])


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What a model counts before its first round: a sum that needs no state."""

    kind: Kind

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


@dataclass(frozen=True)
class RowCounts:
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


BLIND = 0.5  # in log-odds or the logarithm of a hazard: the effect of a risk that is common knowledge


def planned(spread: float, rounds: int, before: int) -> Expected:
    """Say how far the noise of all rounds moves an effect, before anything is asked."""
    after = count(rounds, "round")
    first = f"{before} sums, then " if before > 1 else "one sum, then " if before else ""
    blind = " That hides effects of a usual size: use fewer columns or cells, or a larger epsilon." * (spread > BLIND)
    return Expected(
        width=2 * Z * spread,
        sentence=f"It takes {first}{after}. The noise of all rounds moves an effect by a deviation of at most "
        f"{spread:.3g}.{blind}",
    )


def effect(column: str, cell: str, value: float, spread: float) -> dict[str, object]:
    """Return one row of an answer: an effect with its interval."""
    return {"column": column, "cell": cell, **around(float(value), float(spread)), "noise_sd": float(spread)}


_BLOCK = 1000  # rows that are compared with all others at a time


def concordance(risk: NDArray[np.float64], time: NDArray[np.float64], died: NDArray[np.bool_]) -> float:
    """Harrell's c: pairs are comparable where one is seen to die before the other; equal risks count for half.

    >>> concordance(np.array([2.0, 1.0, 1.0]), np.array([1.0, 2.0, 3.0]), np.array([True, True, False]))
    0.833...
    """
    right = pairs = 0.0
    for start in range(0, len(time), _BLOCK):
        part = slice(start, start + _BLOCK)
        first = (time[part, None] < time) & died[part, None]
        pairs += first.sum()
        right += (first & (risk[part, None] > risk)).sum() + 0.5 * (first & (risk[part, None] == risk)).sum()
    return float(right / pairs) if pairs else math.nan
