"""All rows of a person as one unit: drawn together, their gradients averaged, and the average clipped as one.

A unit is a matrix of `most` rows; behind each row's features stand its label and whether it is used. So whatever trains
on records trains on persons, and every rule that holds for one record replaced holds for one person replaced.
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from choral.core.errors import PlanError
from choral.core.plan import Plan
from choral.learning.models import Model, Tree
from choral.tables.records import Labels, Records, Split, by, hold_out, in_order

LABEL, USED = -2, -1  # where a row's label is in a unit, and whether the row is used


def grouped(features: NDArray[np.float32], labels: Labels, persons: NDArray[Any], most: int) -> NDArray[np.float32]:
    """The units of a table, in the order in which its persons first appear; of each the first `most` rows are used.

    Which rows are used depends on their order in the table alone, never on a value. Places that are left over repeat
    the person's first row and are not used.

    >>> units = grouped(np.float32([[1], [2], [3], [4]]), np.int32([0, 1, 1, 0]), np.array(["b", "a", "b", "b"]), 2)
    >>> units[..., 0].tolist(), units[..., USED].tolist()
    ([[1.0, 3.0], [2.0, 2.0]], [[1.0, 1.0], [1.0, 0.0]])
    """
    first, unit = in_order(persons)
    together = np.argsort(unit, kind="stable")
    starts = np.searchsorted(unit[together], np.arange(len(first)))
    place = np.empty_like(unit)
    place[together] = np.arange(len(unit)) - starts[unit[together]]
    rows = np.concatenate([features, labels[:, None], np.ones((len(labels), 1))], axis=1).astype(np.float32)
    units = np.repeat(rows[first, None], most, axis=1)
    units[..., USED] = 0
    kept = place < most
    units[unit[kept], place[kept]] = rows[kept]
    return units


def grouped_records(records: Records, persons: NDArray[Any], most: int) -> Records:
    """The same devices with persons in place of rows; labels are inside the units."""
    devices = []
    for device, (name, start, end) in enumerate(zip(records.names, records.offsets, records.offsets[1:], strict=False)):
        units = grouped(records.features_of(device), records.labels_of(device), persons[start:end], most)
        devices.append((name, units, np.zeros(len(units))))
    return Records.of(devices, classes=records.classes)


def rows_of(records: Records) -> Records:
    """The used rows of persons, as records of rows.

    >>> rows = Records.of([("a", [[1.0], [2.0], [3.0]], [0, 1, 0])])
    >>> rows_of(grouped_records(rows, np.array([7, 7, 8]), 2)).features.ravel().tolist()
    [1.0, 2.0, 3.0]
    """
    used = [units[units[..., USED] > 0] for units in map(records.features_of, range(records.devices))]
    given = [(name, rows[:, :LABEL], rows[:, LABEL]) for name, rows in zip(records.names, used, strict=True)]
    return Records.of(given, classes=records.classes)


def split_units(
    records: Records, persons: NDArray[Any] | None, most: int | None, seed: int, validation: float, test: float
) -> Split:
    """Units to train on, and rows to choose and to judge by; where units are persons, none has rows in two of them."""
    if persons is None or most is None:
        return hold_out(records, seed=seed, validation=validation, test=test)
    split = hold_out(grouped_records(records, persons, most), seed=seed, validation=validation, test=test)
    return replace(split, validation=rows_of(split.validation), test=rows_of(split.test))


def model_of_units(model: Model, plan: Plan) -> Model:
    """What a device trains: the model itself, one with an adaptive clip, or the mean loss over the rows of a person."""
    known = plan.protects.one_row or (plan.protects.clips_update and model.outside is not None)
    if model.trainer is not None and not known:
        raise PlanError(
            "CH204",
            f'unit = "{plan.unit}" with the model "{model.name}", which has its own trainer.',
            why=f"It is known to clip the gradient of each row, not that of a {plan.unit}.",
            fix='Use unit = "record", or a model that JAX trains.',
        )
    if plan.protects.groups_rows and len(model.row) > 1:
        raise PlanError(
            "CH204",
            f'unit = "{plan.unit}" with rows of {by(model.row)}.',
            why="A column says whose row it is, and only tables have columns.",
            fix='Use unit = "record" or "device", or tables.',
        )
    if plan.mechanism.adaptive:
        return _with_clip(model, plan.clip)
    return _of_persons(model, plan.rows_per_person) if plan.protects.groups_rows else model


@lru_cache(maxsize=32)
def _with_clip(model: Model, first: float) -> Model:
    """The model with one parameter more, which starts as the logarithm of the first clip; no loss depends on it."""

    def init(seed: int) -> Tree:
        return model.init(seed), jnp.full(1, math.log(first), jnp.float32)

    def loss(tree: Tree, row: Array, label: Array) -> Array:
        return model.loss(tree[0], row, label)

    def predict(tree: Tree, rows: Array) -> Array:
        return model.predict(tree[0], rows)

    return replace(model, init=init, loss=loss, predict=predict, fixed=model)


@lru_cache(maxsize=32)  # the same shapes are the same model, and compiled once
def _of_persons(model: Model, most: int) -> Model:
    def loss(tree: Tree, unit: Array, _: Array) -> Array:
        labels, used = unit[:, LABEL].astype(jnp.int32 if model.classes else jnp.float32), unit[:, USED]
        each = jax.vmap(model.loss, in_axes=(None, 0, 0))(tree, unit[:, :LABEL], labels)
        return jnp.sum(used * each) / jnp.sum(used)

    def predict(tree: Tree, units: Array) -> Array:
        return model.predict(tree, units[:, 0, :LABEL])

    shape = (most, model.features + 2)
    return replace(
        model, features=most * shape[1], loss=loss, predict=predict, widths=(), shape=shape, of_rows=model
    )  # fmt: skip
