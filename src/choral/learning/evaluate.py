"""How good a model is: loss, accuracy, AUC, errors and ‖∇f‖² over all devices, in chunks, apart from training.

These figures are computed from records without noise. In a deployment each of them is itself a release.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from choral.core.errors import TableError, TrainingError
from choral.learning.models import Model
from choral.tables.records import Labels, Records, by

CHUNK = 2**22  # numbers in a chunk of rows


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The mean loss; of classes the share of right answers, and of two the area under the ROC curve; of numbers errors.

    `rmse` is the root of the mean squared error, `r2` the share of the labels' variance that is explained.
    """

    loss: float
    loss_error: float = 0.0  # the standard error of the mean loss
    accuracy: float | None = None
    auc: float | None = None
    rmse: float | None = None
    r2: float | None = None
    rows: int


def evaluate(model: Model, parameters: NDArray[np.float32], records: Records) -> Evaluation:
    """Loss over every row of the records, and the figures that the kind of label has.

    >>> from choral.learning.models import binary
    >>> rows = Records.of([("a", [[-1.0], [2.0]], [0, 1])])
    >>> evaluate(binary(1), np.float32([5.0, 0.0]), rows).accuracy
    1.0
    """
    total, of_losses, right, squares, scores, count = 0.0, 0.0, 0, 0.0, [], len(records.labels)
    for features, labels, weights in _chunks(records, model):
        losses, outputs = _judged(model, parameters, features, labels)
        used = weights > 0
        total += float(losses.astype(np.float64)[used].sum())
        of_losses += float(np.square(losses.astype(np.float64)[used]).sum())
        found = outputs[used]
        if model.classes:
            right += int((decide(found) == labels[used]).sum())
        else:
            squares += float(np.square(found[:, 0].astype(np.float64) - labels[used]).sum())
        if model.classes == 2:
            scores.append(found[:, -1] - (found[:, 0] if found.shape[1] == 2 else 0))
    _require_finite(total + squares)
    if not model.classes:
        return Evaluation(
            loss=total / count,
            rmse=math.sqrt(squares / count),
            r2=explained(squares, np.asarray(records.labels)),
            rows=count,
        )
    mean = total / count
    return Evaluation(
        loss=mean,
        loss_error=math.sqrt(max(of_losses / count - mean**2, 0.0) / count),
        accuracy=right / count,
        auc=area(np.concatenate(scores), np.asarray(records.labels)) if scores else None,
        rows=count,
    )


def mean_loss(model: Model, parameters: NDArray[np.float32], records: Records) -> float:
    """The loss of `evaluate` alone, for who looks at many models: to put all scores in order takes as long again.

    >>> from choral.learning.models import linear
    >>> mean_loss(linear(1), np.float32([0.0, 0.0]), Records.of([("a", [[1.0], [1.0]], [2, 4])], classes=0))
    5.0
    """
    total = 0.0
    for features, labels, weights in _chunks(records, model):
        losses, _ = _judged(model, parameters, features, labels)
        total += float(losses.astype(np.float64)[weights > 0].sum())
    _require_finite(total)
    return total / len(records.labels)


def check_loss(model: Model, parameters: NDArray[np.float32], records: Records) -> None:
    """Refuse a user's own model whose loss is not finite at the start: clipping would hide it behind noise."""
    model, some = model.fixed or model, slice(0, 64)
    rows = Records.of([("", records.features[some], records.labels[some])], classes=records.classes)
    evaluate(model, parameters[: model.size], rows)


def _require_finite(total: float) -> None:
    if not np.isfinite(total):
        raise TrainingError(
            "CH700",
            "the loss of the model is not finite on these rows.",
            why="The parameters have diverged, or the features are not finite.",
            fix="Use a smaller step size, and check the table's ranges.",
        )


def predict(model: Model, parameters: NDArray[np.float32], rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The model's outputs for these rows.

    >>> from choral.learning.models import linear
    >>> predict(linear(1), np.float32([2.0, 1.0]), np.float32([[3.0]])).tolist()
    [[7.0]]
    """
    given = np.asarray(rows, dtype=np.float32)
    if model.outside is not None:
        return model.outside.outputs(parameters, given)
    return np.asarray(_outputs(model, parameters, given))


def decide(outputs: NDArray[np.float32]) -> NDArray[np.int64]:
    """The class of each row: the largest output, or the sign of the only one.

    >>> decide(np.float32([[0.1, 2.0], [1.0, 0.0]])).tolist(), decide(np.float32([[3.0], [-1.0]])).tolist()
    ([1, 0], [1, 0])
    """
    if outputs.shape[1] == 1:
        return (outputs[:, 0] > 0).astype(np.int64)
    best: NDArray[np.int64] = outputs.argmax(axis=1)
    return best


def explained(squares: float, labels: Labels) -> float | None:
    """R²: 1 less the sum of squared errors over that of always saying the mean; None where all labels are the same.

    >>> explained(1.0, np.array([1.0, 3.0])), explained(1.0, np.array([2.0, 2.0]))
    (0.5, None)
    """
    spread = float(np.square(labels - labels.mean(dtype=np.float64)).sum())
    return 1 - squares / spread if spread else None


def area(scores: NDArray[np.float32], labels: Labels) -> float | None:
    """The chance that a row of class 1 has a higher score than one of class 0, ties counted half.

    >>> area(np.float32([0.1, 0.9, 0.5, 0.5]), np.int32([0, 1, 0, 1]))
    0.875
    """
    ones = int((labels == 1).sum())
    zeros = len(labels) - ones
    if not ones or not zeros:
        return None
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    below = np.cumsum(counts) - counts
    ranks = below[place] + (counts[place] + 1) / 2  # the mean rank of equal scores
    return float((ranks[labels == 1].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def squared_gradient_norm(model: Model, parameters: NDArray[np.float32], records: Records) -> float:
    """‖∇f(θ)‖² for f the mean over devices of each device's mean loss, as in Theorem 2.

    >>> from choral.learning.models import linear
    >>> rows = Records.of([("a", [[1.0]], [2]), ("b", [[0.0], [0.0]], [0, 0])])
    >>> squared_gradient_norm(linear(1), np.float32([0.0, 0.0]), rows)
    2.0
    """
    gradient = np.zeros(model.size, dtype=np.float64)
    for features, labels, weights in _chunks(records, model):
        gradient += weighted_gradient(model, parameters, features, labels, weights).astype(np.float64)
    return float(gradient @ gradient)


def _chunks(records: Records, model: Model) -> Iterator[tuple[NDArray[np.float32], Labels, NDArray[np.float32]]]:
    """Rows, labels and weights in chunks of one shape; the weights of all rows together are each device's 1/(n·m).

    Of a last chunk that is not full only the next power of two is computed: few shapes, and few rows for nothing.
    """
    count = len(records.labels)
    if count == 0:
        raise TableError("CH308", "there are no rows to evaluate on.", fix="Give a table with rows.")
    if records.shape != model.row:
        raise TableError(
            "CH312",
            f"the rows have {by(records.shape)} features, the model takes {by(model.row)}.",
            fix="Evaluate on a table with the columns of the training table.",
        )
    size = min(count, max(1, CHUNK // model.widest))
    filled, flat = records.sizes > 0, ((0, 0),) * len(records.shape)
    weight = np.repeat(1 / (filled.sum() * np.maximum(records.sizes, 1)), records.sizes).astype(np.float32)
    for start in range(0, count, size):
        rows = slice(start, min(start + size, count))
        left = rows.stop - rows.start
        missing = min(size, 1 << (left - 1).bit_length()) - left
        if not missing:  # no copy, which would take as long as to evaluate
            yield np.asarray(records.features[rows]), np.asarray(records.labels[rows]), weight[rows]
            continue
        yield (
            np.pad(records.features[rows], ((0, missing), *flat), mode="edge"),  # a real row: its loss is finite
            np.pad(records.labels[rows], (0, missing), mode="edge"),
            np.pad(weight[rows], (0, missing)),
        )


def weighted_gradient(
    model: Model,
    parameters: NDArray[np.float32],
    rows: NDArray[np.float32],
    labels: Labels,
    weights: NDArray[np.float32],
) -> NDArray[np.float32]:
    """The gradient of the weighted sum of these rows' losses, by JAX or by the framework that the model is of.

    >>> from choral.learning.models import linear
    >>> weighted_gradient(linear(1), np.float32([0, 0]), np.float32([[2]]), np.float32([1]), np.float32([1])).tolist()
    [-2.0, -1.0]
    """
    if model.outside is not None:
        return model.outside.gradient(parameters, rows, labels, weights)
    return np.asarray(_weighted_gradient(model, parameters, rows, labels, weights))


def _judged(
    model: Model, parameters: NDArray[np.float32], rows: NDArray[np.float32], labels: Labels
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Each row's loss and outputs."""
    if model.outside is not None:
        return model.outside.losses(parameters, rows, labels), model.outside.outputs(parameters, rows)
    losses, outputs = _loss_and_outputs(model, parameters, rows, labels)
    return np.asarray(losses), np.asarray(outputs)


@partial(jax.jit, static_argnames=("model",))
def _outputs(model: Model, parameters: Array, rows: Array) -> Array:
    return model.predict(model.unravel(parameters), rows)


@partial(jax.jit, static_argnames=("model",))
def _loss_and_outputs(model: Model, parameters: Array, rows: Array, labels: Array) -> tuple[Array, Array]:
    tree = model.unravel(parameters)
    return jax.vmap(model.loss, in_axes=(None, 0, 0))(tree, rows, labels), model.predict(tree, rows)


@partial(jax.jit, static_argnames=("model",))
def _weighted_gradient(model: Model, parameters: Array, rows: Array, labels: Array, weights: Array) -> Array:
    def weighted(flat: Array) -> Array:
        return jax.vmap(model.loss, in_axes=(None, 0, 0))(model.unravel(flat), rows, labels) @ weights

    gradient: Array = jax.grad(weighted)(parameters)
    return gradient
