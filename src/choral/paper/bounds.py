"""Theorem 2, published and corrected, beside the mean of ‖∇f‖² that is measured, where L and β are known."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

import choral
from choral import research
from choral.paper.adult import L2, experiment
from choral.paper.claims import of_bounds

BASE = experiment(
    "regularised",
    rounds=100,
    local_steps=1,
    batch=244,
    step_size=1.0,
    clip=10.0,  # above every gradient of these rows: the theorem knows no clip
    noise=0.3,
    sampling="poisson",
    looks=100,
    also=("train_loss", "squared_gradient_norm"),
)


def bounds(shelf: research.Shelf, *, quick: bool) -> dict[str, Any]:
    """The mean of ‖∇f‖² so far beside both bounds.

    f* is at least 0, and at least f(θ) − ‖∇f(θ)‖²/(2λ) at every look, by strong convexity.
    """
    result, panels = {}, []
    train = BASE.task.split(0).train
    rows = np.hstack([train.features, np.ones((len(train.features), 1))])
    known = research.logistic_constants(rows, train.labels, l2=L2, sampling="poisson")
    for steps in (1, 5):
        size = research.largest_step_size(smoothness=known.smoothness, local_steps=steps)
        one = replace(BASE, local_steps=steps, step_size=size, rounds=10 if quick else BASE.rounds)
        curves = shelf.curves(one)
        rounds, gap = curves[0]["round"], math.log(2) - min(map(_least_loss, curves))
        lines = {"measured": [_running_mean(one, repeat, seen) for repeat, seen in enumerate(curves)]}
        for version in ("published", "corrected"):
            told = [
                choral.convergence(
                    kind="non_convex",
                    version=version,
                    initial_gap=gap,
                    step_size=size,
                    smoothness=known.smoothness,
                    steps=int(number) * steps,
                    noise=one.noise,
                    dimension=2 * rows.shape[1],
                    cohort=one.cohort,
                    batch=one.batch,
                    local_steps=steps,
                    gradient_deviation=known.gradient_deviation,
                ).bound
                for number in rounds
            ]
            lines[f"Theorem 2, {version}"] = [{"round": rounds, "mean": told}]
        result[f"τ = {steps}"] = {
            "step_size": size,
            "smoothness": known.smoothness,
            "gradient_deviation": known.gradient_deviation,
            "initial_gap": gap,
            **{name: research.spread(research.last(found, "mean")) for name, found in lines.items()},
        }
        shown = [research.line(name, found, "mean", extremes=True) for name, found in lines.items()]
        title = f"Regularised logistic regression, τ = {steps}, σ = {one.noise:g}"
        panels.append(research.panel(title, "round", "mean of ‖∇f‖² so far", shown, log_y=True))
    return {**result, "claims": of_bounds(result), "panels": panels}


def _least_loss(seen: research.Curve) -> float:
    """A lower bound on f* from one run.

    >>> _least_loss({"train_loss": [0.7, 0.5], "squared_gradient_norm": [0.1, 0.002]})
    0.4
    """
    looks = zip(seen["train_loss"], seen["squared_gradient_norm"], strict=True)
    return max(0.0, *(loss - norm / (2 * L2) for loss, norm in looks))


def _running_mean(one: research.Experiment, repeat: int, seen: research.Curve) -> research.Curve:
    """The mean of ‖∇f‖² over the starts of the rounds so far, as the theorem has it."""
    norms = [one.gradient_at_start(repeat), *seen["squared_gradient_norm"][:-1]]
    return {"round": seen["round"], "mean": list(np.cumsum(norms) / np.arange(1, len(norms) + 1))}
