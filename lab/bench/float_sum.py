# ruff: noqa: E402
"""Whether float32 keeps within its bounds on this processor: `PYTHONPATH=src python3 lab/bench/float_sum.py [--json]`.

Needs JAX and NumPy only. It tries what docs/accounting.md claims under "Arithmetic" on whatever processor JAX prefers:
how far one record moves the sum of the worst rows, the bits of pieces that it is not in, sums of pieces in float64,
and the norm of clipped gradients. The exit status is 1 if a bound is passed.
"""

import argparse
import json
import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # run as a file, this one would otherwise hide other modules

import jax
import jax.numpy as jnp
import numpy as np

from bench.peers import bare  # noqa: F401 - before the engine, for machines with little installed
from choral.learning import fused, models, rounding
from choral.learning.clipped import clipped_sum
from choral.learning.local import COMPILED, local_update, plus, zeros_in_double
from choral.learning.recipe import Recipe, sensitivity_factor

STACK = models.logistic(2)
FOUR = models.logistic(2, 4)
OWN = models.own(STACK.init, STACK.loss, STACK.predict, features=2)
MODELS = {"dense": STACK, "four classes": FOUR, "general": OWN}


def clip_of(model: models.Model) -> float:
    """A clip above the norm of the gradient at θ = 0 of a row (±8, 0): √65 times that of the slopes, √½ or √¾."""
    return math.sqrt(65 * (0.75 if model is FOUR else 0.5)) * (1 + 1e-5)


def worst_rows(count: int) -> tuple[np.ndarray[Any, Any], int]:
    """Rows whose sum stands just above or just below a power of two by one record's word, and the record's place."""
    reach = 2 ** int(math.log2(count / 2))
    rows = np.zeros((count, 2), np.float32)
    rows[: reach + 1, 0], rows[reach + 1 :, 0] = 8, -2 * 0.51 * 4 * reach * 2.0**-24
    return rows, reach


def moved(model: models.Model, count: int) -> dict[str, float]:
    """By how many G the sum moves when the record is turned around and when it is left out, and what is allowed."""
    rows, place = worst_rows(count)
    recipe = Recipe(steps=1, batch=count, step_size=1.0, clip=clip_of(model))
    given = (jnp.ones(count, jnp.int32), np.int32([count]), jnp.zeros((2, 4), jnp.uint32))

    @partial(jax.jit, compiler_options=COMPILED)
    def update(features: Any, batch: Any) -> Any:  # noqa: ANN401
        labels, counts, keys = given
        return local_update(model, recipe, jnp.zeros(model.size), features, labels, batch, jnp.asarray(counts), keys)

    turned, everyone = rows.copy(), np.arange(count, dtype=np.int32)[None]
    turned[place] *= -1
    others = everyone.copy()
    others[0, place] = -1
    first, second, third = (
        np.asarray(update(jnp.asarray(features), batch), dtype=np.float64) * count / clip_of(model)
        for features, batch in ((rows, everyone), (turned, everyone), (rows, others))
    )
    factor = sensitivity_factor(model, count)
    return {"replaced": float(np.linalg.norm(first - second)), "replaced_most": 2 * factor,
            "left_out": float(np.linalg.norm(first - third)), "left_out_most": factor}  # fmt: skip


def pieces_with_other_bits(model: models.Model, rows: int = 128, count: int = 64) -> int:
    """How many pieces that do not hold a replaced record have other sums when it is replaced, or at a second call."""
    draw = np.random.default_rng(1)
    tree = model.unravel(jnp.asarray((draw.normal(size=model.size) * 0.1).astype(np.float32)))
    features = draw.normal(size=(count, rows, model.features)).astype(np.float32)
    labels = jnp.asarray(draw.integers(0, 2, (count, rows)))

    @partial(jax.jit, compiler_options=COMPILED)
    def sums(features: Any) -> Any:  # noqa: ANN401
        one = partial(clipped_sum, model, tree, used=jnp.ones(rows, bool), clip=1.0)
        return jax.lax.map(lambda piece: model.ravel(one(*piece)), (features, labels))

    changed = features.copy()
    changed[7, 3] *= -1e3
    first, again, other = (np.asarray(sums(jnp.asarray(each))) for each in (features, features, changed))
    differ = (first != other).any(axis=1)
    assert differ[7]  # else nothing was tried
    return int(differ.sum() - 1 + (first != again).any(axis=1).sum())


def in_double(count: int = 5000) -> dict[str, float]:
    """How far a sum of pieces in float64 is from the exact one, and what is allowed, in the worst of 100 columns."""
    draw = np.random.default_rng(2)
    parts = (draw.normal(size=(count, 100)) * 10.0 ** draw.uniform(-6, 6, (count, 100))).astype(np.float32)

    def add(total: Any, part: Any) -> Any:  # noqa: ANN401
        return plus(total, part), None

    def added(parts: Any) -> Any:  # noqa: ANN401
        return jax.lax.scan(add, zeros_in_double(parts[0]), parts)[0]

    totals = np.asarray(jax.jit(added, compiler_options=COMPILED)(parts))
    errors = [math.fsum([*map(float, parts[:, column]), -float(totals[column])]) for column in range(100)]
    allowed = 2.0**-53 * np.cumsum(np.abs(parts, dtype=np.float64), axis=0).sum(axis=0)
    worst = int(np.argmax(np.abs(errors) / allowed))
    return {"error": abs(errors[worst]), "error_most": float(allowed[worst])}


def clipped_norm(model: models.Model) -> dict[str, float]:
    """The longest of 200 clipped gradients, in units of G, and what is allowed."""
    draw = np.random.default_rng(3)
    tree = model.unravel(jnp.asarray((draw.normal(size=model.size) * 0.3).astype(np.float32)))
    rows = (draw.normal(size=(200, model.features)) * 10.0 ** draw.uniform(-1, 6, (200, 1))).astype(np.float32)

    @partial(jax.jit, compiler_options=COMPILED)
    def alone(row: Any) -> Any:  # noqa: ANN401
        return model.ravel(clipped_sum(model, tree, row[None], jnp.zeros(1, jnp.int32), jnp.array([True]), 1.0))

    longest = max(float(np.linalg.norm(np.asarray(alone(row), np.float64))) for row in jnp.asarray(rows))
    return {"longest": longest, "longest_most": 1 + rounding.of_dense_stack(model.widths)}


def by_kernel(lanes: int = 8, rows: int = 384) -> dict[str, float]:
    """The sum of a step's own kernel: its error in units of what one rounding allows, and lanes with other bits.

    Every second row all but undoes the one before it. A lane whose rows stay the same must keep its bits when another
    lane's change, and at a second call.
    """
    draw = np.random.default_rng(4)
    inputs, slopes = (draw.normal(size=(lanes, rows, size)).astype(np.float32) for size in (100, 70))
    inputs[:, 1::2] = -inputs[:, ::2] * (1 + 2.0**-12)
    slopes[:, 1::2] = slopes[:, ::2]
    still = (np.zeros((lanes, 100, 70), np.float32), jnp.asarray(slopes), jnp.zeros((lanes, 4), jnp.uint32))
    step = partial(fused.noisy_step, size=np.float32(1), spread=np.float32(0), start=0)
    steps = jax.jit(jax.vmap(step), compiler_options=COMPILED)
    other = inputs.copy()
    other[5, 3] *= -1e3
    first, again, changed = (np.asarray(steps(still[0], one, *still[1:])) for one in (inputs, inputs, other))
    wide = [one.astype(np.float64) for one in (inputs, slopes)]
    exact, size = (np.einsum("lki,lkj->lij", *parts) for parts in (wide, map(np.abs, wide)))
    allowed = rounding.UNIT * np.abs(exact) + 2 * rows * 2.0**-53 * size
    differ = (first != changed).any(axis=(1, 2))
    assert differ[5]  # else nothing was tried
    return {"error": float((np.abs(first + exact) / allowed).max()), "error_most": 1.0,
            "other_bits": int(differ.sum() - 1 + (first != again).any(axis=(1, 2)).sum()),
            "other_bits_most": 0}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="the whole result as JSON")
    asked = parser.parse_args()
    wide = models.mlp(104, (64, 32))
    found: dict[str, Any] = {"device": str(jax.devices()[0]), "jax": jax.__version__}
    for name, model in MODELS.items():
        found |= {f"{name} {count}": moved(model, count) for count in (384, 2440, 65_536)}
    found |= {"pieces": {"other_bits": pieces_with_other_bits(wide), "other_bits_most": 0}}
    found |= {"float64": in_double(), "clipped": clipped_norm(wide), "kernel": by_kernel()}
    parts = [part for part in found.values() if isinstance(part, dict)]
    found["holds"] = all(
        part[name] <= part[f"{name}_most"] for part in parts for name in part if f"{name}_most" in part
    )
    print(json.dumps(found) if asked.json else "\n".join(f"{name}: {part}" for name, part in found.items()))
    return 0 if found["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
