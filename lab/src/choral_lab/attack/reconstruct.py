"""Rows read from an update in closed form: a dense layer's weight gradient over its bias gradient is its input.

For one example the gradient of a first layer is the outer product of the row and the slope at the layer's output, and
the bias gradient is that slope alone (Phong et al. 2017). In a small batch it still holds for every unit that only one
of the rows switched on.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral.learning.models import Model
from choral.tables.columns import Categorical, Numeric, declare

Column = Numeric | Categorical
Cells = dict[str, str]
TOLERANCE = 0.02  # of a feature that should be 0 or 1; what float32 leaves is far below
CLOSE = 0.005  # of a column's range: a number this close counts as read


def adult_columns() -> list[Column]:
    """The columns of the bundled UCI Adult, as its public description declares them.

    >>> [column.name for column in adult_columns()][:3]
    ['age', 'workclass', 'fnlwgt']
    """
    text = (resources.files("choral.tables") / "adult" / "columns.toml").read_text()
    return [declare(name, settings) for name, settings in tomllib.loads(text)["columns"].items()]


def decode(columns: Sequence[Column], row: NDArray[np.floating[Any]]) -> Cells:
    """The cells that a row of features stands for: numbers scaled back, the largest of each column's levels.

    >>> decode([Numeric(name="age", low=0, high=100)], np.array([-0.5]))
    {'age': '25'}
    """
    cells: Cells = {}
    for column, part in _parts(columns, row):
        if isinstance(column, Categorical):
            cells[column.name] = column.levels[int(np.argmax(part))]
        else:
            cells[column.name] = f"{round(_number(column, float(part[0])))}"
    return cells


def _parts(columns: Sequence[Column], row: NDArray[np.floating[Any]]) -> list[tuple[Column, NDArray[np.floating[Any]]]]:
    ends = np.cumsum([len(column.features) for column in columns])
    return list(zip(columns, np.split(row, ends[:-1]), strict=True))


def _number(column: Numeric, scaled: float) -> float:
    """The inverse of `Numeric.encode`; what lies outside is moved to the nearer bound."""
    share = min(1.0, max(0.0, 0.5 * (scaled + 1)))
    span = column.high - column.low
    return column.low + (float(np.expm1(share * np.log1p(span))) if column.scale == "log" else share * span)


def looks_real(columns: Sequence[Column], row: NDArray[np.floating[Any]]) -> bool:
    """Whether every column's part is in range and every level is 0 or 1, one of them 1: no mixture of rows is."""
    for column, part in _parts(columns, row):
        if isinstance(column, Categorical):
            ordered = np.sort(part)
            if abs(ordered[-1] - 1) > TOLERANCE or (len(part) > 1 and np.abs(ordered[:-1]).max() > TOLERANCE):
                return False
        elif not abs(part[0]) <= 1 + TOLERANCE:
            return False
    return True


def candidates(model: Model, update: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """What each unit of the first layer says of its input; the step size cancels."""
    weight, bias = (np.asarray(part, dtype=np.float64) for part in model.unravel(np.asarray(update))[0])  # type: ignore[arg-type]
    used = np.abs(bias) > 1e-12 * np.abs(bias).max(initial=1e-300)
    rows: NDArray[np.float64] = (weight[:, used] / bias[used]).T
    return rows


def label_of(model: Model, update: NDArray[np.floating[Any]]) -> int:
    """The label of the one example: only its own output is pushed up."""
    bias = np.asarray(model.unravel(np.asarray(update))[-1][1])  # type: ignore[arg-type]
    return int(np.argmax(bias))


def best_guess(columns: Sequence[Column], rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The candidate that looks most like a row, by how far its levels are from 0 and 1."""

    def distance(row: NDArray[np.float64]) -> float:
        far = 0.0
        for column, part in _parts(columns, row):
            if isinstance(column, Categorical):
                far += float(np.abs(part - (np.arange(len(part)) == np.argmax(part))).sum())
        return far

    best: NDArray[np.float64] = rows[int(np.argmin([distance(row) for row in rows]))]
    return best


def rows_read(columns: Sequence[Column], rows: NDArray[np.float64]) -> list[Cells]:
    """The rows among the candidates that look real, each once."""
    found: list[NDArray[np.float64]] = []
    for row in rows:
        if looks_real(columns, row) and not any(np.abs(row - other).max() < CLOSE for other in found):
            found.append(row)
    return [decode(columns, row) for row in found]


def cells_matched(columns: Sequence[Column], truth: Mapping[str, str], guess: Mapping[str, str]) -> int:
    """How many cells of a guess are right: levels exactly, numbers to half a percent of their range."""
    return sum(_matches(column, truth[column.name], guess[column.name]) for column in columns)


def _matches(column: Column, truth: str, guess: str) -> bool:
    if isinstance(column, Categorical):
        return truth == guess
    return abs(float(truth) - float(guess)) <= CLOSE * (column.high - column.low)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What somebody read of a row: the cells, and how many of them are right."""

    cells: Cells
    matched: int
    of: int

    @classmethod
    def of_update(
        cls, model: Model, columns: Sequence[Column], update: NDArray[np.floating[Any]], truth: Mapping[str, str]
    ) -> "Reading":
        """The best that the closed form gives for this update."""
        cells = decode(columns, best_guess(columns, candidates(model, update)))
        return cls(cells=cells, matched=cells_matched(columns, truth, cells), of=len(columns))
