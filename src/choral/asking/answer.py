"""What a question's noisy sum says: rows of numbers, each with an interval that includes the noise."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from choral.asking.parameters import Integers, Summand
from choral.core.errors import TableError
from choral.core.printable import count
from choral.tables.reading import frame_of

Z = NormalDist().inv_cdf(0.975)  # intervals are of 95 %


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The rows of an answer: every number has its interval in `…_low` and `…_high`, that of `estimate` in low and high.

    `is_rough` is True where an interval rests on an approximation that the noise makes doubtful. `test` has the
    statistic of a test where the question has one, and `block` has text to paste into a study's file. `about` says how
    many rows the answer is about, in one line or in one per column: those that match and have a value.
    """

    rows: list[dict[str, Any]]
    is_rough: bool = False
    sentences: tuple[str, ...] = ()
    test: Mapping[str, float] | None = None
    block: str = ""
    labels: tuple[str, ...] = field(default=("estimate",))  # the columns of `rows` that have an interval
    about: tuple[Mapping[str, Any], ...] = ()

    @property
    def frame(self) -> Any:  # noqa: ANN401  pandas is optional, so its type can't be named
        """The rows as a data frame of pandas, or CH106 where pandas is not installed.

        >>> Answer(rows=[{"estimate": 3.0, "low": 1.0, "high": 5.0}]).frame.high.tolist()
        [5.0]
        """
        return frame_of(self.rows)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """How wide an interval would be, from the noise and from sampling, on a population that the sentence describes.

    A width of infinity says that nothing could be answered.
    """

    width: float
    sentence: str


class ModelRound(Protocol):
    """One sum of a model with its parameters read."""

    @property
    def state_length(self) -> int:
        """How many numbers the public state has at which it is asked."""

    def at(self, state: NDArray[np.float64] | None) -> "ModelRound":
        """The sum at this state, or CH102."""

    def summand(self) -> Summand:
        """φ and its bounds, which no state changes."""


class Kind(Protocol):
    """One kind of question with its parameters read: what it adds up, what the sum says, what a plan may expect."""

    def summand(self) -> Summand:
        """φ and its bounds."""

    def estimate(self, total: Integers | NDArray[np.float64], *, rows: int, deviation: float) -> Answer:
        """What a sum with this noise says about so many rows."""

    def expected(self, *, rows: int, deviation: float) -> Expected:
        """How wide its intervals would be."""


class ByReference(ABC):
    """A kind whose plan shows the intervals that it would have on a plain population."""

    @abstractmethod
    def reference(self, rows: int) -> NDArray[np.float64]:
        """The sum on a plain population of so many rows."""

    @abstractmethod
    def estimate(self, total: Integers | NDArray[np.float64], *, rows: int, deviation: float) -> Answer:
        """What a sum with this noise says about so many rows."""

    def expected(self, *, rows: int, deviation: float) -> Expected:
        """The widest interval of the first quantity of the answer; CH323 for a level that the noise does not allow."""
        try:
            found = self.estimate(self.reference(rows), rows=rows, deviation=deviation).rows
        except TableError as error:
            if error.code != "CH320":  # too few rows
                raise
            found = []
        widths = [row["high"] - row["low"] for row in found if row.get("quantity") == found[0].get("quantity")]
        width = float(max(widths, default=math.inf))
        said = f"intervals are {width:.3g} wide" if math.isfinite(width) else "nothing could be answered"
        return Expected(width=width, sentence=f"On a plain population of {count(rows, 'row')}, {said}.")


def around(estimate: float, spread: float, *, least: float = -np.inf, most: float = np.inf) -> dict[str, float]:
    """An estimate and its interval, cut off at what is possible.

    >>> around(1.0, 2.0, least=0.0)
    {'estimate': 1.0, 'low': 0.0, 'high': 4.919...}
    """
    ends = {"estimate": estimate, "low": estimate - Z * spread, "high": estimate + Z * spread}
    return {name: min(max(value, least), most) for name, value in ends.items()}


def with_value(count: float, spread: float, *, rows: int, **named: str) -> dict[str, Any]:
    """How many of so many rows an answer is about, with its interval.

    >>> with_value(90.0, 10.0, rows=100)
    {'quantity': 'rows with a value', 'estimate': 90.0, 'low': 70.4..., 'high': 100.0}
    """
    return {**named, "quantity": "rows with a value", **around(count, spread, least=0.0, most=float(rows))}


def sampling_variance(share: NDArray[np.float64], rows: float) -> NDArray[np.float64]:
    """The variance of a share of so many rows: p(1 − p)/N, and no less than that of one row in them.

    >>> sampling_variance(np.array([0.5, 0.0]), 100).tolist()
    [0.0025, 0.0001]
    """
    p = np.clip(share, 0.0, 1.0)
    return np.asarray(np.maximum(p * (1 - p), 1 / rows) / rows)


def renamed(name: str, interval: Mapping[str, float]) -> dict[str, float]:
    """An interval under another name than `estimate`.

    >>> renamed("share", {"estimate": 0.5, "low": 0.4, "high": 0.6})
    {'share': 0.5, 'share_low': 0.4, 'share_high': 0.6}
    """
    return {name if key == "estimate" else f"{name}_{key}": value for key, value in interval.items()}


def too_few(what: str, fix: str) -> TableError:
    """CH320: the noise leaves nothing that could be said honestly."""
    return TableError("CH320", f"too few rows for an honest answer: {what}", fix=fix)


Vector = NDArray[np.float64]


def rising(values: Vector) -> Vector:
    """The rising sequence that is nearest in squares: neighbours out of order are joined until none is.

    >>> rising(np.array([1.0, 3.0, 2.0, 4.0])).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    means: list[float] = []
    sizes: list[int] = []
    for value in values.tolist():
        mean, size = value, 1
        while means and means[-1] > mean:
            mean, size = (mean * size + means[-1] * sizes[-1]) / (size + sizes[-1]), size + sizes[-1]
            means.pop()
            sizes.pop()
        means.append(mean)
        sizes.append(size)
    return np.repeat(means, sizes)


def falling(values: Vector) -> Vector:
    """The falling sequence that is nearest in squares.

    >>> falling(np.array([1.0, 0.5, 0.7])).tolist()
    [1.0, 0.6, 0.6]
    """
    return -rising(-values)
