"""The questions that choral knows, by name: the one place that decides what a name means."""

from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from choral.asking.answer import Answer, Expected, Kind, ModelRound
from choral.asking.fitting import SumModel
from choral.asking.parameters import DeclaredColumns, Integers, Parameters, Summand
from choral.asking.question import Question
from choral.core.errors import ConfigError, TrustError

if TYPE_CHECKING:
    from choral.asking.survival import Survival


# What reads the parameters of each name, and its module, which is loaded when such a question is asked.
_KINDS = {
    "count": "cross_tables:CrossTable.count",
    "table": "cross_tables:CrossTable.table",
    "tables": "cross_tables:ManyTables.read",
    "mean": "moments:ColumnMean.read",
    "moments": "moments:Moments.read",
    "bounds": "column_bounds:ColumnBounds.read",
    "km": "survival:Survival.read",
    "cdf": "quantiles:Distribution.cdf",
    "quantiles": "quantiles:Distribution.quantiles",
}
# The sums of models: counts, and rounds at a public state, by which the server takes a step (choral.asking.fitting).
_ROUNDS = {
    "logistic_cells": "gradients:GradientRound.counting",
    "logistic_round": "gradients:GradientRound.read",
    "linear_cells": "gradients:GradientRound.counting",
    "linear_round": "gradients:GradientRound.read",
    "additive_cells": "gradients:GradientRound.counting",
    "additive_round": "gradients:GradientRound.read",
    "hazard_table": "hazard:HazardRound.counting",
    "hazard_moments": "hazard:HazardRound.measuring",
    "hazard_round": "hazard:HazardRound.read",
    "percentiles_bounds": "quantiles:Percentiles.looking",
    "percentiles_cells": "quantiles:Percentiles.counting",
}
_MODELS = {
    "logistic": "gradients:GradientModel.read",
    "linear": "gradients:GradientModel.read",
    "additive": "gradients:GradientModel.read",
    "hazard": "hazard:HazardModel.read",
    "percentiles": "quantiles:Percentiles.read",
}
NAMES, ROUNDS, MODELS = tuple(_KINDS), tuple(_ROUNDS), tuple(_MODELS)
TRAINED = tuple(name for name in ROUNDS if not name.startswith("percentiles_"))  # on rows that judge nothing
ALL_NAMES = NAMES + MODELS  # what a study may allow


def approved_as(name: str) -> str:
    """The name that a site approves for this one: a model's sums go by the model.

    >>> approved_as("hazard_table"), approved_as("km")
    ('hazard', 'km')
    """
    return name.rpartition("_")[0] if name in _ROUNDS else name


def state_length(question: Question, columns: DeclaredColumns) -> int:
    """How many numbers the public state has that the question is asked at; 0 for whatever is no round of a model."""
    return _round(question, columns).state_length if question.name in _ROUNDS else 0


def summand(question: Question, columns: DeclaredColumns, state: NDArray[np.float64] | None = None) -> Summand:
    """What the question adds up; every parameter is checked here, before a table is read.

    >>> from choral.tables.columns import Categorical
    >>> smoker = {"smoker": Categorical(name="smoker", levels=("no", "yes"))}
    >>> summand(Question(name="table", parameters={"columns": ["smoker"]}), smoker).length  # and no value
    3
    """
    if question.name in _ROUNDS:
        return _round(question, columns).at(state).summand()
    if state is not None:
        raise ConfigError("CH102", f"{question.name}: a state is given.", fix="This question has none.")
    return _kind(question, columns).summand()


def estimate(question: Question, columns: DeclaredColumns, total: Integers, *, rows: int, deviation: float) -> Answer:
    """What an opened sum says; `deviation` is that of the noise in each coordinate, in φ's units.

    >>> from choral.tables.columns import Categorical
    >>> smoker = {"smoker": Categorical(name="smoker", levels=("no", "yes"))}
    >>> question = Question(name="table", parameters={"columns": ["smoker"]})
    >>> estimate(question, smoker, np.array([70, 30, 0]), rows=100, deviation=2.0).rows[0]["high"]
    73.91...
    """
    return _kind(question, columns).estimate(total, rows=rows, deviation=deviation)


def expected(question: Question, columns: DeclaredColumns, *, rows: int, deviation: float) -> Expected:
    """The widest interval that the question's first quantity would have on a plain population of so many rows.

    >>> from choral.tables.columns import Categorical
    >>> smoker = {"smoker": Categorical(name="smoker", levels=("no", "yes"))}
    >>> expected(Question(name="table", parameters={"columns": ["smoker"]}), smoker, rows=100, deviation=2.0).width
    7.83...
    """
    return _kind(question, columns).expected(rows=rows, deviation=deviation)


def completed(question: Question, columns: DeclaredColumns, *, rows: int, deviation: float) -> Question:
    """The question with what it leaves open and public numbers decide: the bins of a survival curve.

    >>> from choral.tables.columns import Numeric
    >>> columns = {"days": Numeric(name="days", low=0, high=3652), "died": Numeric(name="died", low=0, high=1)}
    >>> asked = Question(name="km", parameters={"time": "days", "event": "died"})
    >>> [completed(asked, columns, rows=rows, deviation=5.8).parameters["bins"] for rows in (1083, 9000)]
    [16, 48]
    """
    if question.name != "km" or "bins" in question.parameters:
        return question
    bins = cast("Survival", _kind(question, columns)).proposed_bins(rows=rows, deviation=deviation)
    return question.with_parameters({**question.parameters, "bins": bins})


def _read(place: str, question: Question, columns: DeclaredColumns, *more: Question) -> Any:  # noqa: ANN401 - any kind
    """What "module:Class.method" of this room makes of a question's parameters, each of which it must read."""
    question.canonical()
    given = Parameters(question.name, question.parameters, columns, version=question.version)
    module, _, name = place.partition(":")
    found = attrgetter(name)(import_module(f"choral.asking.{module}"))(*more, given)
    given.end()
    return found


def _round(question: Question, columns: DeclaredColumns) -> ModelRound:
    found: ModelRound = _read(_ROUNDS[question.name], question, columns)
    return found


def _kind(question: Question, columns: DeclaredColumns) -> Kind:
    question.canonical()
    if question.name in _ROUNDS:
        raise ConfigError("CH102", f"{question.name}: a round has no answer by itself.", fix="Fit the model.")
    if question.name not in _KINDS:
        raise TrustError(
            "CH608",
            f'the question "{question.name}" is not in this catalogue.',
            fix=f"It has: {', '.join(ALL_NAMES)}.",
        )
    found: Kind = _read(_KINDS[question.name], question, columns)
    return found


def read_model(question: Question, columns: DeclaredColumns) -> SumModel:
    """The model that a question names, with every parameter checked.

    >>> from choral.tables.columns import Numeric
    >>> age, died = Numeric(name="age", low=0, high=100), Numeric(name="died", low=0, high=1)
    >>> asked = Question(name="linear", parameters={"columns": ["age"], "target": "died", "rounds": 3})
    >>> read_model(asked, {"age": age, "died": died}).sums
    3
    """
    found: SumModel = _read(_MODELS[question.name], question, columns, question)
    return found
