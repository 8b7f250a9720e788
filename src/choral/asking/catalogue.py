"""The questions that choral knows, by name: the one place that decides what a name means."""

from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray

from choral.asking.answer import Answer, Expected, Kind
from choral.asking.parameters import Parameters
from choral.asking.question import Question
from choral.asking.summand import DeclaredColumns, Integers, Summand
from choral.asking.tables import CrossTable
from choral.errors import ConfigError, TrustError

_KINDS: dict[str, Callable[[Parameters], Kind]] = {
    "count": CrossTable.count,
    "table": CrossTable.table,
}
NAMES = tuple(_KINDS)


def summand(question: Question, columns: DeclaredColumns, state: NDArray[np.float64] | None = None) -> Summand:
    """What the question adds up; every parameter is checked here, before a table is read.

    >>> from choral.learning.columns import Categorical
    >>> smoker = {"smoker": Categorical(name="smoker", levels=("no", "yes"))}
    >>> summand(Question(name="table", parameters={"columns": ["smoker"]}), smoker).length
    2
    """
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
    """The widest interval that the question would have on a plain population of so many rows.

    >>> from choral.learning.columns import Categorical
    >>> smoker = {"smoker": Categorical(name="smoker", levels=("no", "yes"))}
    >>> expected(Question(name="table", parameters={"columns": ["smoker"]}), smoker, rows=100, deviation=2.0).width
    7.83...
    """
    kind = _kind(question, columns)
    answer = kind.estimate(kind.reference(rows), rows=rows, deviation=deviation)
    width = max(cast(float, row["high"]) - cast(float, row["low"]) for row in answer.rows)
    return Expected(width=width, sentence=f"On a plain population of {rows:,} rows, intervals are {width:.3g} wide.")


def _kind(question: Question, columns: DeclaredColumns) -> Kind:
    question.canonical()
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
