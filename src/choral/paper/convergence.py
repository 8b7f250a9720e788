"""How runs converge: by noise and by local steps over 100 rounds, and Theorem 2 beside what is measured."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

import choral
from choral.convergence_bounds import VERSIONS, largest_step_size, logistic_constants
from choral.paper.experiment import L2, Curve, Experiment, Kind, Shelf, gradient_at_start, last, paired, rows_of, spread
from choral.paper.panels import line, panel

BASE: dict[str, Experiment] = {
    "logistic": Experiment(
        model="logistic", rounds=100, local_steps=10, batch=244, step_size=0.5, clip=3.0, of_training=True
    ),
    "network": Experiment(
        model="network", rounds=100, local_steps=5, batch=244, step_size=1.0, clip=3.0, of_training=True
    ),
}
# As printed, and a grid on which noise is seen: scaled columns need more of it.
NOISES: dict[str, dict[str, tuple[float, ...]]] = {
    "logistic": {"printed": (1e-5, 1e-4, 5e-4, 1e-3), "wider": (0.01, 0.03, 0.1, 0.3)},
    "network": {"printed": (1e-4, 1e-3, 5e-3, 1e-2), "wider": (0.03, 0.1, 0.3)},
}
STEPS = {"logistic": (1, 5, 10, 40), "network": (1, 5, 10, 20)}
STEPS_NOISE = {"logistic": {"printed": 1e-3, "wider": 0.1}, "network": {"printed": 1e-2, "wider": 0.1}}
SECOND = {"logistic": ("train_loss", "training loss"), "network": ("squared_gradient_norm", "‖∇f‖²")}


def convergence(kind: Kind, shelf: Shelf, *, quick: bool) -> dict[str, Any]:
    """Accuracy and training loss (network: ‖∇f‖²) over the rounds, by noise and by local steps."""
    base = replace(BASE[kind], rounds=10, looks=2) if quick else BASE[kind]
    result: dict[str, Any] = {"panels": []}
    for grid, noises in NOISES[kind].items():
        # The ends of the grids are enough for a quick look.
        levels, steps = ((noises[0], noises[-1]), STEPS[kind][:2]) if quick else (noises, STEPS[kind])
        by_noise = {f"σ = {noise:g}": shelf.curves(replace(base, noise=noise)) for noise in levels}
        level = STEPS_NOISE[kind][grid]
        by_steps = {f"τ = {tau}": shelf.curves(replace(base, noise=level, local_steps=tau)) for tau in steps}
        result[grid] = {
            "by_noise": _ends(kind, by_noise),
            "by_local_steps": _ends(kind, by_steps),
            "most_noise_minus_least": _difference(kind, by_noise, -1),
            "most_steps_minus_one_at_the_end": _difference(kind, by_steps, -1),
            "most_steps_minus_one_at_first_look": _difference(kind, by_steps, 0),
        }
        result["panels"] += _panels(kind, f"τ = {base.local_steps}, {grid} grid", by_noise)
        result["panels"] += _panels(kind, f"σ = {level:g}, {grid} grid", by_steps)
    return result


def _ends(kind: Kind, lines: dict[str, list[Curve]]) -> dict[str, Any]:
    return {
        name: {measure: spread(last(curves, measure)) for measure in ("test_accuracy", SECOND[kind][0])}
        for name, curves in lines.items()
    }


def _difference(kind: Kind, lines: dict[str, list[Curve]], look: int) -> dict[str, Any]:
    """The last line of a grid minus its first, repeat by repeat."""
    first, *_, final = lines.values()
    return {
        measure: paired([one[measure][look] for one in final], [one[measure][look] for one in first])
        for measure in ("test_accuracy", SECOND[kind][0])
    }


def _panels(kind: Kind, title: str, lines: dict[str, list[Curve]]) -> list[dict[str, Any]]:
    second, words = SECOND[kind]
    return [
        panel(
            title,
            "round",
            label,
            [line(name, curves, measure) for name, curves in lines.items()],
            log_y=measure == "squared_gradient_norm",
        )
        for measure, label in (("test_accuracy", "test accuracy"), (second, words))
    ]


BOUNDED = Experiment(
    model="regularised",
    rounds=100,
    local_steps=1,
    batch=244,
    step_size=1.0,
    clip=10.0,  # above every gradient of these rows: the theorem knows no clip
    noise=0.3,
    sampling="poisson",
    looks=100,
    of_training=True,
)


def bounds(shelf: Shelf, *, quick: bool) -> dict[str, Any]:
    """The mean of ‖∇f‖² so far beside Theorem 2, published and corrected, where L and β are known.

    f* is at least 0, and at least f(θ) − ‖∇f(θ)‖²/(2λ) at every look, by strong convexity.
    """
    result: dict[str, Any] = {"panels": []}
    rows, labels = rows_of(0)
    known = logistic_constants(np.hstack([rows, np.ones((len(rows), 1))]), labels, l2=L2, sampling="poisson")
    for steps in (1, 5):
        size = largest_step_size(smoothness=known.smoothness, local_steps=steps)
        experiment = replace(BOUNDED, local_steps=steps, step_size=size, rounds=10 if quick else BOUNDED.rounds)
        curves = shelf.curves(experiment)
        gap = math.log(2) - min(map(_least_loss, curves))
        lines: dict[str, list[Curve]] = {
            "measured": [_running_mean(experiment, n, one) for n, one in enumerate(curves)]
        }
        for version in VERSIONS:
            told = [
                choral.convergence(
                    kind="non_convex",
                    version=version,
                    initial_gap=gap,
                    step_size=size,
                    smoothness=known.smoothness,
                    steps=int(number) * steps,
                    noise=experiment.noise,
                    dimension=2 * (rows.shape[1] + 1),
                    cohort=experiment.cohort,
                    batch=experiment.batch,
                    local_steps=steps,
                    gradient_deviation=known.gradient_deviation,
                ).bound
                for number in curves[0]["round"]
            ]
            lines[f"Theorem 2, {version}"] = [{"round": curves[0]["round"], "mean": told}]
        result[f"τ = {steps}"] = {
            "step_size": size,
            "smoothness": known.smoothness,
            "gradient_deviation": known.gradient_deviation,
            "initial_gap": gap,
            **{name: spread([one["mean"][-1] for one in found]) for name, found in lines.items()},
        }
        shown = [line(name, found, "mean") for name, found in lines.items()]
        title = f"Regularised logistic regression, τ = {steps}, σ = {experiment.noise:g}"
        result["panels"].append(panel(title, "round", "mean of ‖∇f‖² so far", shown, log_y=True))
    return result


def _least_loss(seen: Curve) -> float:
    """A lower bound on f* from one run.

    >>> _least_loss({"train_loss": [0.7, 0.5], "squared_gradient_norm": [0.1, 0.002]})
    0.4
    """
    looks = zip(seen["train_loss"], seen["squared_gradient_norm"], strict=True)
    return max(0.0, *(loss - norm / (2 * L2) for loss, norm in looks))


def _running_mean(experiment: Experiment, repeat: int, seen: Curve) -> Curve:
    """The mean of ‖∇f‖² over the starts of the rounds so far, as the theorem has it."""
    norms = [gradient_at_start(experiment, repeat), *seen["squared_gradient_norm"][:-1]]
    return {"round": seen["round"], "mean": list(np.cumsum(norms) / np.arange(1, len(norms) + 1))}
