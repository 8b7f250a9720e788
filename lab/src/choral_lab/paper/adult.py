"""What the devices hold in one repeat: Adult dealt and split again, its numbers scaled by constants, or left raw."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal

import numpy as np

import choral
from choral_lab import research

Kind = Literal["logistic", "network", "regularised"]
Columns = Literal["narrow", "wide", "raw"]
NAMES: dict[Kind, str] = {"logistic": "Logistic regression", "network": "Network 32-16"}
DEVICES, COHORT = 16, 10
COLLUDERS = 2  # of a cohort, wherever the secure sum is counted on
ROWS = 2440  # the 2441 of 80 % of 3052 is prime: no batch except the whole would divide it
HIDDEN = (32, 16)
L2 = 0.01  # λ of the regularised logistic regression, whose constants Theorem 2 needs

# Narrow: ranges that include most working people, declared, not computed; a value outside counts as the nearer end.
# Wide is what comes with choral, which includes everybody. Raw: the whole range on a linear scale, and then undone.
RANGES = {
    "age": ((15, 65), (0, 100)),
    "fnlwgt": ((0, 400_000), (0, 1_500_000)),
    "education-num": (None, (1, 16)),
    "capital-gain": ((0, 15_000), (0, 99_999)),
    "capital-loss": ((0, 3_000), (0, 5_000)),
    "hours-per-week": ((20, 60), (0, 100)),
}
NARROW = {name: narrow for name, (narrow, _) in RANGES.items() if narrow}
WHOLE = {name: whole for name, (_, whole) in RANGES.items()}
BOUNDS: dict[Columns, dict[str, tuple[int, int]]] = {"narrow": NARROW, "wide": {}, "raw": WHOLE}
# Scaled, 6 numbers lie within ±1, 8 levels and the intercept are 1: ‖x‖² ≤ 15, and two-logit softmax has L ≤ ‖x‖²/2.
ROW_LENGTH = math.sqrt(15)
SMOOTHNESS = 15 / 2
SMOOTH: dict[tuple[Kind, Columns], float] = {("logistic", "narrow"): SMOOTHNESS, ("logistic", "wide"): SMOOTHNESS}
# σ = 1e-5 on steps of size 1 is forty grid steps wide; steps on raw columns are ten thousand times smaller.
GRIDS: dict[Columns, float] = {"narrow": 2.0**-22, "wide": 2.0**-22, "raw": 2.0**-36}
MODELS: dict[Kind, Callable[[int], research.Model]] = {
    "logistic": research.logistic,
    "network": partial(research.mlp, hidden=HIDDEN),
    "regularised": lambda features: research.regularised(research.logistic(features), L2),
}


@cache
def split(repeat: int, columns: Columns = "narrow") -> research.Split:
    """The rows of every device to train on, to choose by and to judge by; those to train on are cut to one number.

    >>> set(split(0).train.sizes.tolist()), set(split(0).validation.sizes.tolist())
    ({2440}, {305})
    """
    declared = {name: {"bounds": list(bounds)} for name, bounds in BOUNDS[columns].items()}
    data = choral.load_adult(devices=DEVICES, seed=repeat, columns=declared)
    features = data.records.features
    if columns == "raw":
        low, high = np.array([WHOLE.get(name, (-1, 1)) for name in data.features]).T
        features = (low + (features + 1.0) / 2 * (high - low)).astype(np.float32)
    parts = research.hold_out(replace(data.records, features=features), seed=repeat)
    train = parts.train
    cut = [(name, train.features_of(i)[:ROWS], train.labels_of(i)[:ROWS]) for i, name in enumerate(train.names)]
    return replace(parts, train=research.Records.of(cut))


@cache
def task(kind: Kind, columns: Columns = "narrow") -> research.Task:
    """A model on these columns."""
    return research.Task(
        name=f"{kind}, {columns} columns",
        devices=DEVICES,
        rows=ROWS,
        split=lambda repeat: split(repeat, columns),
        model=MODELS[kind],
        smoothness=SMOOTH.get((kind, columns)),
        grid=GRIDS[columns],
    )


def experiment(kind: Kind, **settings: Any) -> research.Experiment:  # noqa: ANN401 - the fields of an experiment
    """An experiment with the paper's cohort on narrow columns.

    >>> experiment("logistic", rounds=20, local_steps=10, batch=488, step_size=1.0).plan().batches_per_pass
    5
    """
    return research.Experiment(task=task(kind), cohort=COHORT, colluders=COLLUDERS, **settings)
