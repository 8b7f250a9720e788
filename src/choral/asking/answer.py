"""What a question's noisy sum says: rows of numbers, each with an interval that includes the noise."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from choral.asking.summand import Integers, Summand
from choral.errors import ConfigError, TableError

Z = NormalDist().inv_cdf(0.975)  # intervals are of 95 %


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The rows of an answer: every number has its interval in `…_low` and `…_high`, that of `estimate` in low and high.

    `is_rough` is True where an interval rests on an approximation that the noise makes doubtful. `test` has the
    statistic of a test where the question has one, and `block` has text to paste into a study's file.
    """

    rows: list[dict[str, object]]
    is_rough: bool = False
    sentences: tuple[str, ...] = ()
    test: Mapping[str, float] | None = None
    block: str = ""
    labels: tuple[str, ...] = field(default=("estimate",))  # the columns of `rows` that have an interval

    @property
    def frame(self) -> Any:  # noqa: ANN401  pandas is optional, so its type can't be named
        """The rows as a data frame of pandas, or CH106 where pandas is not installed.

        >>> Answer(rows=[{"estimate": 3.0, "low": 1.0, "high": 5.0}]).frame.high.tolist()
        [5.0]
        """
        try:
            import pandas
        except ImportError:
            raise ConfigError("CH106", "a data frame needs pandas.", fix="pip install pandas, or use .rows") from None
        return pandas.DataFrame(self.rows)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """How wide an interval would be, from the noise and from sampling, on a population that the sentence describes."""

    width: float
    sentence: str


class Kind(Protocol):
    """One kind of question with its parameters read: what it adds up, and what the sum says."""

    def summand(self) -> Summand:
        """φ and its bounds."""

    def estimate(self, total: Integers | NDArray[np.float64], *, rows: int, deviation: float) -> Answer:
        """What a sum with this noise says about so many rows."""

    def reference(self, rows: int) -> NDArray[np.float64]:
        """The sum on a plain population of so many rows, on which a plan shows its intervals."""


def around(estimate: float, spread: float, *, least: float = -np.inf, most: float = np.inf) -> dict[str, float]:
    """An estimate and its interval, which is cut off at what is possible.

    >>> around(1.0, 2.0, least=0)
    {'estimate': 1.0, 'low': 0, 'high': 4.919...}
    """
    low, high = estimate - Z * spread, estimate + Z * spread
    return {"estimate": estimate, "low": min(max(low, least), most), "high": max(min(high, most), least)}


def renamed(name: str, interval: Mapping[str, float]) -> dict[str, float]:
    """An interval under another name than `estimate`.

    >>> renamed("share", {"estimate": 0.5, "low": 0.4, "high": 0.6})
    {'share': 0.5, 'share_low': 0.4, 'share_high': 0.6}
    """
    return {name if key == "estimate" else f"{name}_{key}": value for key, value in interval.items()}


def too_few(what: str, fix: str) -> TableError:
    """CH320: the noise leaves nothing that could be said honestly."""
    return TableError("CH320", f"too few rows for an honest answer: {what}", fix=fix)
