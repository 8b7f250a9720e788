"""What takes several sums: which one is asked for next, given those that were opened, until the result is there.

Nothing here is private: every state follows from opened sums alone, so each is public, and can be computed again.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from choral.asking.answer import Answer
from choral.asking.question import Question
from choral.asking.summand import Rows

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
