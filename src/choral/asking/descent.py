"""The server's side of a model on sums: steps with momentum, and the mean of the last half of the iterates."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
MOMENTUM = 0.8


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
    done: int = 0
    late: Vector = field(default_factory=lambda: np.zeros(0))  # the sum of the iterates of the last half

    @classmethod
    def start(cls, *, length: int, rounds: int) -> "Descent":
        """Before the first round: all weights are 0."""
        zero = np.zeros(length)
        return cls(weights=zero, velocity=zero, rounds=rounds, late=zero)

    def after(self, total: Vector, *, rows: int, steps: Vector) -> "Descent":
        """After a round whose sum of gradients, in gradients' own unit, is `total`."""
        velocity = MOMENTUM * self.velocity + steps * total / rows
        weights = self.weights + velocity
        late = self.late + weights if self.done >= self.rounds // 2 else self.late
        return replace(self, weights=weights, velocity=velocity, done=self.done + 1, late=late)

    @property
    def model(self) -> Vector:
        """The mean of the last half of the iterates; before that half, the last iterate."""
        averaged = self.done - self.rounds // 2
        return self.late / averaged if averaged > 0 else self.weights


def cell_steps(counts: Vector, *, rows: int, deviation: float, rate: float, cap: float) -> Vector:
    """The step of each cell, larger where it holds fewer rows: rate·N/(count + 4·deviation), at most `cap`.

    >>> cell_steps(np.array([500.0, 0.0]), rows=1000, deviation=10.0, rate=1.0, cap=8.0).round(2).tolist()
    [1.85, 8.0]
    """
    return np.minimum(rate * rows / np.maximum(counts + 4 * deviation, 1.0), cap)
