"""It says how good a model is for each site and for each group of rows, on test rows that one process holds.

These figures are computed from records without noise, so they are shown and never written into a run's folder.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import ConfigError
from choral.learning.evaluate import area, decide, explained, predict
from choral.run.result import Result, TrainedModel
from choral.tables.columns import Categorical, Numeric
from choral.tables.reading import Table
from choral.tables.records import Labels, Records, numbered
from choral.tables.sources import encode_labels

SITE = "site"


@dataclass(frozen=True, kw_only=True)
class GroupFigures:
    """The figures of one site or group, on so many test rows."""

    name: str
    rows: int
    figures: dict[str, float]


def figures(outputs: NDArray[np.float32], labels: Labels, target: Numeric | None) -> dict[str, float]:
    """Accuracy and, of two classes that are both there, AUC; of a number RMSE and R².

    >>> figures(np.float32([[2.0], [-1.0], [1.0]]), np.array([1, 0, 0]), None)
    {'accuracy': 0.666667, 'auc': 1.0}
    """
    if target is not None:
        errors = np.square(outputs[:, 0].astype(np.float64) - labels)
        found = {"rmse": math.sqrt(float(errors.mean())) * target.unit, "r2": explained(float(errors.sum()), labels)}
    else:
        found = {"accuracy": float(np.mean(decide(outputs) == labels)), "auc": None}
        if outputs.shape[1] <= 2:
            scores = outputs[:, -1] - (outputs[:, 0] if outputs.shape[1] == 2 else 0)
            found["auc"] = area(scores, labels)
    return {name: round(value, 6) for name, value in found.items() if value is not None}


def by_site(result: Result) -> list[GroupFigures]:
    """The figures of each site that has test rows."""
    judged = _judged(result)
    owners = np.repeat(np.arange(judged.devices), judged.sizes)
    return _grouped(result, judged.features, judged.labels, owners, judged.names)


def by_column(result: Result, name: str) -> list[GroupFigures]:
    """The figures of each level of a column that the model reads."""
    judged, first = _judged(result), 0
    wanted = _with_levels(name, result.columns)
    for column in result.columns[: result.columns.index(wanted)]:
        first += len(column.features)
    codes = judged.features[:, first : first + len(wanted.features)].argmax(axis=1)
    return _grouped(result, judged.features, judged.labels, codes, wanted.levels)


def check_groups(name: str, columns: Sequence[Numeric | Categorical], test: Records) -> None:
    """It raises the reason why there will be no figures of these groups: CH104 or CH111."""
    if not len(test.labels):
        raise _no_rows()
    if name != SITE:
        _with_levels(name, columns)


def _with_levels(name: str, columns: Sequence[Numeric | Categorical]) -> Categorical:
    known = {column.name: column for column in columns if isinstance(column, Categorical)}
    if name in known:
        return known[name]
    listed = f"These have levels: {', '.join(known)}. " if known else ""
    raise ConfigError(
        "CH104",
        f'"{name}" is no column with levels that the model reads.',
        fix=f"{listed}For any other column give rows that hold it: choral.open(run).by_group(name, rows=frame).",
    )


def by_table(trained: TrainedModel, table: Table, name: str, label: str) -> list[GroupFigures]:
    """The figures of each value of a column of this table, which also holds the label."""
    target = trained.target or Categorical(name=label, levels=trained.classes)
    numbers, owners = numbered(name, [table])
    features, labels = trained.features_of(table), encode_labels(table, target)
    order = np.argsort(np.argsort(list(numbers)))  # groups by name, as sites are
    return _grouped(trained, features, labels, order[owners], sorted(numbers))


def _judged(result: Result) -> Records:
    if result.judged is None or not len(result.judged.labels):
        raise _no_rows()
    return result.judged


def _no_rows() -> ConfigError:
    return ConfigError(
        "CH111",
        "the test rows of this run are not here.",
        why="A run folder holds no row, and a run that is trained on every row has none to judge by.",
        fix="Give rows with their labels: by_group(name, rows=frame); or keep test above 0 in [data].",
    )


def _grouped(
    trained: TrainedModel,
    features: NDArray[np.float32],
    labels: Labels,
    owners: NDArray[np.int64],
    names: Iterable[str],
) -> list[GroupFigures]:
    outputs = predict(trained.model, trained.parameters, features)
    found = []
    for number, name in enumerate(names):
        mine = owners == number
        if mine.any():
            of_group = figures(outputs[mine], labels[mine], trained.target)
            found.append(GroupFigures(name=name, rows=int(mine.sum()), figures=of_group))
    return found
