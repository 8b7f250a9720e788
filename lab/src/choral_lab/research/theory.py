"""Theorem 2 next to what is measured, and what it needs to know of a loss."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from choral.learning.models import Model, Tree
from choral_lab.convergence_bounds import VERSIONS, Constants, convergence
from choral_lab.research.experiment import Curve, Experiment
from choral_lab.research.measurements import Measurements
from choral_lab.research.repeats import Spread, last, spread
from choral_lab.research.verdicts import number

SO_FAR = "mean of ‖∇f‖² so far"


@cache  # the same model is compiled once
def regularised(model: Model, l2: float) -> Model:
    """The model with l2/2 · ‖θ‖² in its loss, which makes a convex one strongly convex.

    >>> from choral.learning.models import linear
    >>> tree, row, label = [(jnp.ones((1, 1)), jnp.ones(1))], jnp.ones(1), jnp.float32(2)
    >>> [float(one.loss(tree, row, label)) for one in (linear(1), regularised(linear(1), 0.5))]
    [0.0, 0.5]
    """

    def loss(tree: Tree, x: jax.Array, y: jax.Array) -> jax.Array:
        return model.loss(tree, x, y) + 0.5 * l2 * sum(jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(tree))

    # Without its widths: the closed form of a dense stack's gradients knows nothing of the new term.
    return replace(model, loss=loss, widths=(), name="regularised")


def _least_loss(seen: Curve, *, strong_convexity: float) -> float:
    """A lower bound on f* from one run: 0, and f(θ) − ‖∇f(θ)‖²/(2λ) at every look, by strong convexity.

    >>> _least_loss({"train_loss": [0.7, 0.5], "squared_gradient_norm": [0.1, 0.002]}, strong_convexity=0.01)
    0.4
    """
    looks = zip(seen["train_loss"], seen["squared_gradient_norm"], strict=True)
    return max(0.0, *(loss - norm / (2 * strong_convexity) for loss, norm in looks))


def theorem_2(
    measurements: Measurements, experiment: Experiment, known: Constants, *, start_loss: float
) -> tuple[dict[str, float | Spread], dict[str, list[Curve]]]:
    """The mean of ‖∇f‖² over the starts of the rounds so far, next to either bound: for a results file, and as lines.

    Of a strongly convex loss, whose minimum is bounded from below by what the runs saw. The experiment looks at
    every round, and also at `train_loss` and `squared_gradient_norm`.
    """
    curves = measurements.curves(experiment)
    gap = start_loss - min(_least_loss(seen, strong_convexity=known.strong_convexity) for seen in curves)
    rounds, (_, _, start) = curves[0]["round"], experiment.task.begun(0)
    lines: dict[str, list[Curve]] = {"measured": []}
    for repeat, seen in enumerate(curves):
        norms = [experiment.gradient_at_start(repeat), *seen["squared_gradient_norm"][:-1]]
        lines["measured"].append({"round": rounds, SO_FAR: list(np.cumsum(norms) / np.arange(1, len(norms) + 1))})
    for version in VERSIONS:
        bounds = [
            convergence(
                kind="non_convex",
                version=version,
                initial_gap=gap,
                step_size=experiment.step_size,
                smoothness=known.smoothness,
                steps=int(done) * experiment.local_steps,
                noise=experiment.noise,
                dimension=len(start),
                cohort=experiment.cohort,
                batch=experiment.batch,
                local_steps=experiment.local_steps,
                gradient_deviation=known.gradient_deviation,
            ).bound
            for done in rounds
        ]
        lines[f"Theorem 2, {version}"] = [{"round": rounds, SO_FAR: bounds}]
    about: dict[str, float | Spread] = {
        "step_size": experiment.step_size,
        "smoothness": known.smoothness,
        "gradient_deviation": known.gradient_deviation,
        "initial_gap": gap,
    }
    return about | {name: spread(last(found, SO_FAR)) for name, found in lines.items()}, lines


def bounded(compared: Mapping[str, Any]) -> tuple[str, str]:
    """Which bounds no repeat is above, as a verdict; and the figures.

    >>> ends = {"Theorem 2, published": {"mean": 0.5}, "Theorem 2, corrected": {"mean": 2.0}}
    >>> bounded({"measured": {"mean": 1.0, "each": [0.75, 1.25]}, **ends})[1]
    'measured 1.0000, published 0.5000, corrected 2.0000'
    """
    bounds: dict[str, float] = {version: compared[f"Theorem 2, {version}"]["mean"] for version in VERSIONS}
    holds = " and ".join(version for version, bound in bounds.items() if max(compared["measured"]["each"]) <= bound)
    verdict = f"{holds}: holds here, in every repeat; in general only the corrected one does"
    ends = {"measured": compared["measured"]["mean"], **bounds}
    return verdict if holds else "does not hold", ", ".join(f"{name} {number(end)}" for name, end in ends.items())
