"""A model trained to convergence without noise: what the same rows give to whoever may look at all of them.

A linear model's loss is convex, so its minimum is found by Newton's method or L-BFGS, and the ridge is the one of a
few that is best on the validation rows. Any other model is trained by Adam until the loss on those rows stops falling.
"""

import math
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from choral.learning.evaluate import evaluate
from choral.learning.models import Model
from choral.tables.records import Labels, Records

_RIDGES = (30.0, 3.0, 0.3, 0.03, 0.003)  # over the number of rows, on standardised features; the strongest first
_GAIN = 1e-4  # of the loss on validation rows, below which a weaker ridge is not worth its time
_CONSTANT, _NEAR = 1e-6, 1e-8  # a feature's spread that is none, and a gain of the loss that is none
_MOST_STEPS, _MOST_NEWTON, _ENOUGH = 30, 500, 4000  # steps of Newton's method, features that it takes, rows
_BATCH, _STEP, _MOST_EPOCHS, _PATIENCE = 128, 0.003, 200, 8  # of Adam


def converged(model: Model, train: Records, validation: Records, *, seed: int = 0) -> NDArray[np.float32]:
    """The parameters of a model that was trained on these rows until nothing more was gained.

    >>> from choral.learning.models import linear
    >>> rows = Records.of([("a", [[-1.0], [0.0], [1.0]], [-0.5, 0.5, 1.5])], classes=0)
    >>> np.allclose(converged(linear(1), rows, rows), [1.0, 0.5], atol=0.02)
    True
    """
    return _convex(model, train, validation) if len(model.widths) == 2 else _adam(model, train, validation, seed)


def _convex(model: Model, train: Records, validation: Records) -> NDArray[np.float32]:
    """The minimum for each ridge, from the strongest on and each from where the last one ended; the best on validation.

    Where there is nothing to choose by, one of the middle is taken.
    """
    rows = train.features
    # In float64 a column that is the same in all rows has no spread; float32 would give it one, and a huge weight.
    centre, spread = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
    scale = np.where(spread > _CONSTANT, spread, 1.0)
    scaled = standardised(rows, centre, scale)
    outputs = 1 if model.classes in (0, 2) else model.classes
    minimised = newton if outputs == 1 and scaled.shape[1] <= _MOST_NEWTON else lbfgs
    place = best = np.zeros((scaled.shape[1], outputs))
    least = math.inf
    for ridge in _RIDGES if len(validation.labels) else _RIDGES[2:3]:
        place = minimised(place, rows=scaled, labels=train.labels, ridge=ridge / len(rows), classes=model.classes)
        judged = validation if len(validation.labels) else train
        loss = regularised_loss(
            place, rows=standardised(judged.features, centre, scale), labels=judged.labels, classes=model.classes
        )
        if loss[0] > least - _GAIN:
            break  # a weaker ridge gains nothing any more
        best, least = place, loss[0]
    weights = best[:-1] / scale[:, None]
    return _as_parameters(model, weights, best[-1] - centre @ weights)


def standardised(
    rows: NDArray[np.float32], centre: NDArray[np.floating[Any]], scale: NDArray[Any]
) -> NDArray[np.float32]:
    """The rows, each feature centred and scaled, with a feature of ones at the end for the intercept."""
    return np.concatenate([(rows - centre) / scale, np.ones((len(rows), 1))], axis=1, dtype=np.float32)


def newton(
    place: NDArray[np.float64], *, rows: NDArray[np.float32], labels: Labels, ridge: float, classes: int
) -> NDArray[np.float64]:
    """The minimum of a model with one output by Newton's steps, each halved until the loss falls."""
    every = max(1, len(rows) // _ENOUGH)  # the gradient is exact; for the curvature some thousand rows do
    some = rows[::every]
    value, gradient, curvature = regularised_loss(place, rows=rows, labels=labels, ridge=ridge, classes=classes)
    for _ in range(_MOST_STEPS):
        matrix = some.T @ (some * curvature[::every].astype(np.float32)) / len(some)
        step = np.linalg.solve(matrix + (ridge + _CONSTANT) * np.eye(len(matrix)), gradient)
        if float((step * gradient).sum()) < _NEAR:
            break
        for halved in (1.0, 0.5, 0.25, 0.125, 0.0625):
            tried = regularised_loss(place - halved * step, rows=rows, labels=labels, ridge=ridge, classes=classes)
            if tried[0] < value:
                break
        else:
            break  # as low as float32 can tell
        place, (value, gradient, curvature) = place - halved * step, tried
    return place


def lbfgs(
    place: NDArray[np.float64], *, rows: NDArray[np.float32], labels: Labels, ridge: float, classes: int
) -> NDArray[np.float64]:
    """The minimum by L-BFGS, for many outputs or features: their second derivatives would not fit."""
    from scipy.optimize import minimize

    def objective(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, gradient, _ = regularised_loss(
            flat.reshape(place.shape), rows=rows, labels=labels, ridge=ridge, classes=classes
        )
        return value, gradient.ravel()

    options = {"maxiter": 300, "gtol": 1e-5}
    found: NDArray[np.float64] = minimize(objective, place.ravel(), jac=True, method="L-BFGS-B", options=options).x
    return found.reshape(place.shape)


def regularised_loss(
    place: NDArray[np.float64], *, rows: NDArray[np.float32], labels: Labels, classes: int, ridge: float = 0.0
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """The mean loss with its ridge, its gradient, and each row's curvature; two classes have one output.

    The ridge leaves the intercept alone.
    """
    outputs = (rows @ place.astype(np.float32)).astype(np.float64)
    curvature = np.ones_like(outputs)
    if classes > 2:
        top = outputs.max(axis=1, keepdims=True)
        powers = np.exp(outputs - top)
        total = powers.sum(axis=1, keepdims=True)
        chosen = np.arange(len(labels)), labels
        loss = float(np.mean((np.log(total) + top)[:, 0] - outputs[chosen]))
        slopes = powers / total
        slopes[chosen] -= 1
    elif classes == 2:
        loss = float(np.mean(np.logaddexp(0, outputs[:, 0]) - labels * outputs[:, 0]))
        chance = 0.5 * (1 + np.tanh(0.5 * outputs))
        slopes, curvature = chance - labels[:, None], chance * (1 - chance)
    else:
        slopes = outputs - labels[:, None]
        loss = float(0.5 * np.mean(np.square(slopes)))
    pulled = np.concatenate([place[:-1], np.zeros((1, place.shape[1]))])
    gradient = (rows.T @ slopes.astype(np.float32)).astype(np.float64) / len(rows) + ridge * pulled
    return loss + 0.5 * ridge * float(np.square(pulled).sum()), gradient, curvature


def _as_parameters(model: Model, weights: NDArray[np.float64], bias: NDArray[np.float64]) -> NDArray[np.float32]:
    """The flat vector of the model; a softmax over two classes has half of the one output's weights on each side."""
    if model.widths[-1] == 2:
        weights, bias = np.concatenate([-weights, weights], axis=1) / 2, np.concatenate([-bias, bias]) / 2
    return np.concatenate([weights.ravel(), bias]).astype(np.float32)


def _adam(model: Model, train: Records, validation: Records, seed: int) -> NDArray[np.float32]:
    """The parameters that were best on the validation rows, or the last where there are none."""
    rng, count = np.random.default_rng(seed), len(train.labels)
    place: NDArray[np.floating[Any]] = model.start(seed)
    best, least, since = place, math.inf, 0
    first: NDArray[np.floating[Any]] = np.zeros_like(place)
    second, step = first, 0
    for _ in range(_MOST_EPOCHS):
        for _ in range(-(-count // _BATCH)):
            rows = rng.integers(0, count, _BATCH)  # of one size, so that devices share one compiled step
            slope = _mean_slope(model, place, train.features[rows], train.labels[rows])
            step += 1
            first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope * slope
            place = place - _STEP * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        loss = evaluate(model, place.astype(np.float32), validation if len(validation.labels) else train).loss
        best, least, since = (place, loss, 0) if loss < least - 1e-4 else (best, least, since + 1)
        if since == _PATIENCE:
            break
    return np.asarray(best, dtype=np.float32)


def _mean_slope(
    model: Model, place: NDArray[np.floating[Any]], rows: NDArray[np.float32], labels: Labels
) -> NDArray[np.floating[Any]]:
    """The gradient of the mean loss of these rows."""
    if model.outside is not None:
        weights = np.full(len(rows), 1 / len(rows), np.float32)
        return model.outside.gradient(place.astype(np.float32), rows, labels, weights)
    return np.asarray(_slope(model, place, rows, labels))


@partial(jax.jit, static_argnames=("model",))
def _slope(model: Model, parameters: Array, rows: Array, labels: Array) -> Array:
    def loss(flat: Array) -> Array:
        return jax.vmap(model.loss, in_axes=(None, 0, 0))(model.unravel(flat), rows, labels).mean()

    slope: Array = jax.grad(loss)(parameters)
    return slope
