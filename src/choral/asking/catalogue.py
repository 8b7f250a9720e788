"""The questions that choral knows, by name: the one place that decides what a name means."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from choral.asking.answer import Answer, Expected, Kind, ModelRound
from choral.asking.column_bounds import ColumnBounds
from choral.asking.cross_tables import CrossTable, ManyTables
from choral.asking.hazard import HazardRound
from choral.asking.means import ColumnMean
from choral.asking.moments import Moments
from choral.asking.parameters import Parameters
from choral.asking.quantiles import Distribution
from choral.asking.question import Question
from choral.asking.rounds import GradientRound
from choral.asking.summand import DeclaredColumns, Integers, Summand
from choral.asking.survival import Survival
from choral.errors import ConfigError, TrustError

_KINDS: dict[str, Callable[[Parameters], Kind]] = {
    "count": CrossTable.count,
    "table": CrossTable.table,
    "tables": ManyTables.read,
    "mean": ColumnMean.read,
    "moments": Moments.read,
    "bounds": ColumnBounds.read,
    "km": Survival.read,
    "cdf": Distribution.cdf,
    "quantiles": Distribution.quantiles,
}
# Rounds of models: a sum at a public state, which the server takes a step by (choral.asking.descent).
_ROUNDS: dict[str, Callable[[Parameters, NDArray[np.float64] | None], ModelRound]] = {
    "logistic_round": GradientRound.logistic,
    "linear_round": GradientRound.linear,
    "additive_round": GradientRound.additive,
    "hazard_round": HazardRound.read,
}
NAMES, ROUNDS = tuple(_KINDS), tuple(_ROUNDS)


def summand(question: Question, columns: DeclaredColumns, state: NDArray[np.float64] | None = None) -> Summand:
    """What the question adds up; every parameter is checked here, before a table is read.

    >>> from choral.learning.columns import Categorical
    >>> smoker = {"smoker": Categorical(name="smoker", levels=("no", "yes"))}
    >>> summand(Question(name="table", parameters={"columns": ["smoker"]}), smoker).length
    2
    """
    if question.name in _ROUNDS:
        question.canonical()
        given = Parameters(question.name, question.parameters, columns)
        asked = _ROUNDS[question.name](given, state)
        given.end()
        return asked.summand()
    if state is not None:
        raise ConfigError("CH102", f"{question.name}: a state is given.", fix="This question has none.")
    return _kind(question, columns).summand()


def estimate(question: Question, columns: DeclaredColumns, total: Integers, *, rows: int, deviation: float) -> Answer:
    """What an opened sum says; `deviation` is that of the noise in each coordinate, in φ's units.

    >>> from choral.learning.columns import Categorical
    >>> smoker = {"smoker": Categorical(name="smoker", levels=("no", "yes"))}
    >>> question = Question(name="table", parameters={"columns": ["smoker"]})
    >>> estimate(question, smoker, np.array([70, 30]), rows=100, deviation=2.0).rows[0]["high"]
    73.91...
    """
    return _kind(question, columns).estimate(total, rows=rows, deviation=deviation)


def expected(question: Question, columns: DeclaredColumns, *, rows: int, deviation: float) -> Expected:
    """The widest interval that the question's first quantity would have on a plain population of so many rows.

    >>> from choral.learning.columns import Categorical
    >>> smoker = {"smoker": Categorical(name="smoker", levels=("no", "yes"))}
    >>> expected(Question(name="table", parameters={"columns": ["smoker"]}), smoker, rows=100, deviation=2.0).width
    7.83...
    """
    return _kind(question, columns).expected(rows=rows, deviation=deviation)


def _kind(question: Question, columns: DeclaredColumns) -> Kind:
    question.canonical()
    if question.name in _ROUNDS:
        raise ConfigError("CH102", f"{question.name}: a round has no answer by itself.", fix="Fit the model.")
    if question.name not in _KINDS:
        raise TrustError(
            "CH608",
            f'the question "{question.name}" is not in this catalogue.',
            fix=f"It has: {', '.join(NAMES)}.",
        )
    given = Parameters(question.name, question.parameters, columns)
    kind = _KINDS[question.name](given)
    given.end()
    return kind
