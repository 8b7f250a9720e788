"""What the devices hold in one repeat: Adult dealt and split anew, its numbers scaled by constants, or left raw."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import choral
from choral.learning.models import Model, Tree, logistic, mlp
from choral.learning.records import Records
from choral.learning.splits import Split, hold_out

Kind = Literal["logistic", "network", "regularised"]
Columns = Literal["narrow", "wide", "raw"]
DEVICES = 16
ROWS = 2440  # the 2441 of 80 % of 3052 is prime: no batch but the whole would divide it
HIDDEN = (32, 16)
L2 = 0.01  # λ of the regularised logistic regression, whose constants Theorem 2 needs

# Narrow: ranges that hold most working people, declared, not computed; who lies outside counts as the nearer end.
# Wide is what comes with choral, which holds everybody. Raw: the whole range on a linear scale, and then undone.
BOUNDS: dict[Columns, dict[str, tuple[float, float]]] = {
    "narrow": {
        "age": (15, 65),
        "fnlwgt": (0, 400_000),
        "capital-gain": (0, 15_000),
        "capital-loss": (0, 3_000),
        "hours-per-week": (20, 60),
    },
    "wide": {},
    "raw": {
        "age": (0, 100),
        "fnlwgt": (0, 1_500_000),
        "education-num": (1, 16),
        "capital-gain": (0, 99_999),
        "capital-loss": (0, 5_000),
        "hours-per-week": (0, 100),
    },
}
# Scaled, 6 numbers lie within ±1, 8 levels and the intercept are 1: ‖x‖² ≤ 15, and two-logit softmax has L ≤ ‖x‖²/2.
SMOOTHNESS = 15 / 2


@cache
def split(repeat: int, columns: Columns = "narrow") -> Split:
    """The rows of every device to train on, to choose by and to judge by; those to train on are cut to one number.

    >>> set(split(0).train.sizes.tolist()), set(split(0).validation.sizes.tolist())
    ({2440}, {305})
    """
    declared = {name: {"bounds": list(bounds)} for name, bounds in BOUNDS[columns].items()}
    data = choral.load_adult(devices=DEVICES, seed=repeat, columns=declared)
    parts = hold_out(data.records, seed=repeat)
    train = parts.train
    rows = [(name, train.features_of(i)[:ROWS], train.labels_of(i)[:ROWS]) for i, name in enumerate(train.names)]
    parts = replace(parts, train=Records.of(rows, classes=train.classes))
    if columns != "raw":
        return parts
    return Split(**{part: _raw(getattr(parts, part), data.features) for part in ("train", "validation", "test")})


def _raw(records: Records, features: tuple[str, ...]) -> Records:
    """The numbers as they stand in the table."""
    numbers: Mapping[str, tuple[float, float]] = BOUNDS["raw"]
    ends = np.array([numbers.get(name, (-1.0, 1.0)) for name in features])
    low, high = ends.T
    return replace(records, features=(low + (records.features + 1.0) / 2 * (high - low)).astype(np.float32))


@cache
def model(kind: Kind, features: int) -> Model:
    """One object for each kind: what is compiled for it is kept with it."""
    if kind == "network":
        return mlp(features, HIDDEN)
    plain = logistic(features)
    if kind == "logistic":
        return plain

    def loss(tree: Tree, x: Array, y: Array) -> Array:
        return plain.loss(tree, x, y) + 0.5 * L2 * sum(jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(tree))

    return choral.model(plain.init, loss, plain.predict, features=features, name="regularised")


def described() -> dict[str, Any]:
    """The features of the experiments as plain values, for a results file."""
    return {"hidden": list(HIDDEN), "bounds": {name: list(ends) for name, ends in BOUNDS["narrow"].items()}}
