"""The server's side of a model on sums: steps with momentum, and the mean of the last half of the iterates."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from choral.asking import IN_PLACE_OF_TRAINING

Vector = NDArray[np.float64]
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
