"""percentiles: quantiles of a column whose range nobody knows, in two stages: its bounds, then a curve within them."""

from dataclasses import dataclass, replace

import numpy as np

from choral.asking.answer import Expected
from choral.asking.column_bounds import ColumnBounds
from choral.asking.fitting import FittedModel, Fitting, NextSum, OpenedSum, step_of
from choral.asking.parameters import Parameters
from choral.asking.quantiles import Distribution
from choral.asking.question import Question
from choral.asking.rounds import Counted

TAKES = 4  # how often the curve is asked for: with one sum for the bounds, it has 80 % of what the answer costs


@dataclass(frozen=True, kw_only=True)
class Percentiles:
    """ColumnBounds once, then the curve between them four times, for the mean of the answers."""

    question: Question
    bounds: ColumnBounds
    curve: Distribution  # between made-up ends, until the bounds are there

    @classmethod
    def read(cls, question: Question, given: Parameters) -> "Percentiles":
        """`percentiles` of `column` at `levels`."""
        asked = Parameters(given.name, {**given.given, "low": 0.0, "high": 1.0}, given.columns, version=given.version)
        curve = Distribution.within(asked)
        for key in ("column", "levels", "bins"):
            given.take(key)
        return cls(question=question, bounds=ColumnBounds(names=(curve.column.name,)), curve=curve)

    @staticmethod
    def looking(given: Parameters) -> Counted:
        """`percentiles_bounds`: the first stage."""
        for key in ("levels", "bins"):
            given.take(key)
        return Counted(kind=ColumnBounds(names=(given.column("column"),)))

    @staticmethod
    def counting(given: Parameters) -> Counted:
        """`percentiles_cells`: the second stage, between `low` and `high`."""
        given.whole("take", least=1, most=TAKES, usual=1)
        return Counted(kind=Distribution.within(given))

    @property
    def sums(self) -> int:
        """How many sums it takes."""
        return 1 + TAKES

    @property
    def questions(self) -> tuple[Question, ...]:
        """Its sums, each once."""
        return step_of(self.question, "bounds"), step_of(self.question, "cells", low=0, high=1)

    def expected(self, *, rows: int, deviation: float) -> Expected:
        """The widest interval on a population that is spread evenly over its bounds."""
        expected = self.curve.expected(rows=rows, deviation=deviation / TAKES**0.5)
        sentence = f"It takes 5 sums. {expected.sentence.rstrip('.')}, in parts of the range that is found."
        return Expected(width=expected.width, sentence=sentence)

    def fit(self) -> Fitting:
        """The bounds, then the curve; CH320 where no bound is seen."""
        first = yield NextSum(question=step_of(self.question, "bounds"))
        found = self.bounds.estimate(first.total, rows=first.rows, deviation=first.deviation)
        by_name = {row["quantity"]: row["estimate"] for row in found.rows}
        low, high = float(by_name["lower bound"]), float(by_name["upper bound"])
        if low == high:  # only zeros are seen
            high = low + 1.0
        taken: list[OpenedSum] = []
        for take in range(1, TAKES + 1):
            taken.append((yield NextSum(question=step_of(self.question, "cells", low=low, high=high, take=take))))
        curve = replace(self.curve, column=replace(self.curve.column, low=low, high=high))
        deviation = float(np.linalg.norm([one.deviation for one in taken])) / len(taken)
        answer = curve.estimate(np.mean([one.total for one in taken], axis=0), rows=taken[-1].rows, deviation=deviation)
        return FittedModel(state=np.array([low, high]), effects=answer)
