"""The table of what works with what, made by trying: `python -m docs.hooks.works_with` writes it into the page.

Every cell is tried: a plan of the rule, the model as its unit of privacy needs it, and the engine of a simulation.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from choral.core.codec import Codec
from choral.core.errors import ChoralError
from choral.core.plan import Plan, SecureSum
from choral.learning import models
from choral.learning.models import Model
from choral.learning.persons import model_of_units
from choral.run.places import engine_of
from choral.tables.records import Records
from docs.hooks import works_where

PAGE = Path(__file__).parents[1] / "what-works.md"
MARKS = ("works with", "works where")
ROWS, SHAPE = 40, (8, 8)

BASE = Plan(devices=4, cohort=4, rounds=2, rows=ROWS, batch=10, local_steps=4, step_size=0.1, clip=1.0, noise=1.0)
ONCE: dict[str, Any] = {"noise_is_added": "once", "row_length": 3.0, "batch": ROWS, "sampling": "partition"}
CASES: dict[str, dict[str, Any]] = {
    "S1: batches that are a partition": {"sampling": "partition"},
    "S2: one step, counted with the secure sum": {"sampling": "partition", "local_steps": 1, "batch": ROWS},
    "S4: a device's whole update clipped": {"unit": "device"},
    "S4 with an adaptive clip": {"unit": "device", "clip_quantile": 0.5},
    "S5: Poisson batches, the default": {},
    "S5 with persons as units": {"unit": "person", "rows_per_person": 2},
    "S5 with sites weighed by rows": {"weighing": "rows"},
    "S6: whole-number noise": {"sampling": "partition", "local_steps": 1, "law": "discrete_gaussian"},
    "S7: noise once": ONCE,
}


def _jax_own() -> Model:
    stack = models.mlp(16, (4,), 2)
    return models.own(stack.init, stack.loss, stack.predict, features=16)


def _with_trainer() -> Model:
    return replace(_jax_own(), trainer=lambda *_: SimpleNamespace(train=None))  # type: ignore[arg-type, return-value]


def _torch() -> Model:
    from torch import nn

    from choral.learning.torch_door import own

    return own(nn.Sequential(nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 2)), nn.functional.cross_entropy, features=16)


MODELS: dict[str, Callable[[], Model]] = {
    "`logistic`, `linear`": lambda: models.logistic(16),
    "`mlp`": lambda: models.mlp(16, (4,), 2),
    "`cnn`": lambda: models.cnn(SHAPE, (2, 2, 4), 2),
    "own model in JAX": _jax_own,
    "`choral.torch`": _torch,
    "own trainer": _with_trainer,
}


def works(model: Model, changes: dict[str, Any]) -> bool:
    """Whether a simulation with this model and this plan can be made."""
    try:
        plan = replace(BASE, **changes)
        trained = model_of_units(model, plan)
        rng, shape = np.random.default_rng(0), trained.row
        devices = [(str(one), rng.uniform(-0.1, 0.1, (ROWS, *shape)), np.arange(ROWS) % 2) for one in range(4)]
        codec = Codec.for_plan(plan, SecureSum.for_cohort(4), trained.size)
        split = SimpleNamespace(train=Records.of(devices))
        study = SimpleNamespace(model=model, trained=trained, plan=plan, codec=codec, split=split, seed=1)
        engine_of(study)  # type: ignore[arg-type]
    except ChoralError:
        return False
    return True


def table() -> str:
    """All cases, one per line, with a column for each kind of model."""
    made = {name: make() for name, make in MODELS.items()}
    lines = ["| | " + " | ".join(made) + " |", "|---" * (len(made) + 1) + "|"]
    for name, changes in CASES.items():
        cells = ["yes" if works(model, changes) else "no" for model in made.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _place(mark: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {mark} -->\n)(.*?)(<!-- end -->)", re.S)


def shown(mark: str) -> str:
    """The table that the page has at this mark."""
    found = _place(mark).search(PAGE.read_text())
    if found is None:
        raise LookupError(f"{PAGE.name} has no place for {mark}")
    return found.group(2)


if __name__ == "__main__":
    text = PAGE.read_text()
    for mark, made in zip(MARKS, (table(), works_where.table()), strict=True):
        text = _place(mark).sub(lambda place, made=made: place.group(1) + made + place.group(3), text)
        print(made, file=sys.stderr)
    PAGE.write_text(text)
