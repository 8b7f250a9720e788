"""How runs converge: by noise and by local steps over 100 rounds, and Theorem 2 beside what is measured."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import choral
from choral.convergence_bounds import VERSIONS, largest_step_size, logistic_constants
from choral.paper.adult import L2, Kind, split
from choral.paper.claims import of_bounds, of_convergence
from choral.paper.experiment import Curve, Experiment, Measure, gradient_at_start
from choral.paper.numbers import last, paired, spread
from choral.paper.panels import line, panel
from choral.paper.tuning import Method, Shelf, anchors_of, levels

SECOND: dict[str, tuple[Measure, str]] = {
    "logistic": ("train_loss", "training loss"),
    "network": ("squared_gradient_norm", "‖∇f‖²"),
}
BASE: dict[str, Experiment] = {
    "logistic": Experiment(
        model="logistic", rounds=100, local_steps=10, batch=244, step_size=0.5, clip=3.0, also=("train_loss",)
    ),
    "network": Experiment(
        model="network", rounds=100, local_steps=5, batch=244, step_size=1.0, clip=3.0, also=("squared_gradient_norm",)
    ),
}
# As printed, and a grid on which noise is seen: scaled columns need more of it.
NOISES: dict[str, dict[str, tuple[float, ...]]] = {
    "logistic": {"printed": (1e-5, 1e-4, 5e-4, 1e-3), "wider": (0.01, 0.03, 0.1, 0.3)},
    "network": {"printed": (1e-4, 1e-3, 5e-3, 1e-2), "wider": (0.01, 0.03, 0.1, 0.3)},
}
STEPS = {"logistic": (1, 5, 10, 40), "network": (1, 5, 10, 20)}
STEPS_NOISE = {"logistic": {"printed": 1e-3, "wider": 0.1}, "network": {"printed": 1e-2, "wider": 0.1}}
# Where the printed noises matter: weights beside numbers in the hundreds of thousands, and a clip as small as they are.
RAW = replace(BASE["logistic"], step_size=0.1, clip=1e-3, columns="raw")
# Beside every grid: the same with Poisson batches and the noise that a proof asks for, and without privacy.
PROVED_EPSILON, PROVED_DELTA = {"logistic": 2.0, "network": 4.0}, 1e-5
NAMES = {"logistic": "Logistic regression", "network": "Network 32-16"}


def convergence(kind: Kind, shelf: Shelf, *, quick: bool) -> dict[str, Any]:
    """Accuracy and training loss (network: ‖∇f‖²) over the rounds, by noise and by local steps."""
    base = replace(BASE[kind], rounds=10, looks=2) if quick else BASE[kind]
    panels, grids = [], {}
    beside = {"scaled": _Beside.of(kind, shelf, base, replace(base, clip=math.inf))}
    # A quick look is at the grid on which noise is seen.
    for grid, noises in list(NOISES[kind].items())[1 if quick else 0 :]:
        by_noise = _by_noise(shelf, base, noises, quick=quick)
        level = STEPS_NOISE[kind][grid]
        steps = STEPS[kind][:2] if quick else STEPS[kind]
        by_steps = {f"τ = {tau}": shelf.curves(replace(base, noise=level, local_steps=tau)) for tau in steps}
        grids[grid] = {
            "columns": "scaled",
            "noise": level,
            **_of_noise(kind, by_noise),
            "by_local_steps": _ends(kind, by_steps),
            "most_steps_minus_one_at_the_end": _difference(kind, list(by_steps.values()), -1),
            "most_steps_minus_one_at_first_look": _difference(kind, list(by_steps.values()), 0),
        }
        title = f"{NAMES[kind]}, τ = {base.local_steps}, {grid} grid"
        panels += _panels(kind, title, by_noise, beside["scaled"])
        panels += _panels(kind, f"{NAMES[kind]}, σ = {level:g}", by_steps, beside["scaled"])
    if kind == "logistic":
        raw = replace(RAW, rounds=base.rounds, looks=base.looks)
        by_noise = _by_noise(shelf, raw, NOISES[kind]["printed"], quick=quick)
        grids["printed, raw"] = {"columns": "raw", **_of_noise(kind, by_noise)}
        # Without a clip, steps on raw columns leave every range.
        beside["raw"] = _Beside.of(kind, shelf, raw, raw)
        title = f"{NAMES[kind]}, τ = {base.local_steps}, printed grid, raw columns"
        panels += _panels(kind, title, by_noise, beside["raw"])
    told = {columns: one.told(kind) for columns, one in beside.items()}
    claims = of_convergence(f"{NAMES[kind]}, {base.rounds} rounds", SECOND[kind][0], grids, told)
    return {**grids, "beside": told, "claims": claims, "panels": panels}


@dataclass(frozen=True, kw_only=True)
class _Beside:
    """What the lines of a grid are compared with: the same at a proved ε, without privacy, in one place, alone."""

    proved: Experiment
    curves: list[Curve]
    free: Method
    anchors: dict[str, dict[str, Any]]
    epsilon: float

    @classmethod
    def of(cls, kind: Kind, shelf: Shelf, base: Experiment, free: Experiment) -> "_Beside":
        epsilon = PROVED_EPSILON[kind]
        proved = replace(base, sampling="poisson").within("proved", epsilon=epsilon, delta=PROVED_DELTA)
        method, anchors = anchors_of(shelf, [free])
        return cls(proved=proved, curves=shelf.curves(proved), free=method, anchors=anchors, epsilon=epsilon)

    def told(self, kind: Kind) -> dict[str, Any]:
        """For a results file."""
        ends = _ends(kind, {"proved": self.curves, "non_private": self.free.curves})
        privacy = self.proved.privacy("proved", PROVED_DELTA)
        proved = {"epsilon": self.epsilon, "noise": self.proved.noise, **ends["proved"], "privacy": privacy}
        proved["minus_non_private"] = _difference(kind, [self.free.curves, self.curves], -1)
        return {"proved": proved, "non_private": ends["non_private"], **self.anchors}

    def lines(self, measure: str, *, extremes: bool) -> list[dict[str, Any]]:
        """The curves for a panel; the noise of a proof stands in its name."""
        name = f"ε = {self.epsilon:g} PROVED against everyone, σ = {self.proved.noise:.2g}"
        clip = "" if self.free.chosen[0].clip == math.inf else ", same clip"
        return [
            line(name, self.curves, measure, extremes=extremes),
            line(f"without privacy{clip}", self.free.curves, measure, extremes=extremes, anchor=True),
        ]


def _by_noise(shelf: Shelf, base: Experiment, noises: tuple[float, ...], *, quick: bool) -> dict[str, list[Curve]]:
    """A line for each noise; the ends of the grid are enough for a quick look."""
    levels = (noises[0], noises[-1]) if quick else noises
    return {f"σ = {noise:g}": shelf.curves(replace(base, noise=noise)) for noise in levels}


def _of_noise(kind: Kind, by_noise: dict[str, list[Curve]]) -> dict[str, Any]:
    least, *others = by_noise
    return {
        "by_noise": _ends(kind, by_noise),
        "noise_minus_least": {name: _difference(kind, [by_noise[least], by_noise[name]], -1) for name in others},
    }


def _ends(kind: Kind, lines: dict[str, list[Curve]]) -> dict[str, Any]:
    return {
        name: {measure: spread(last(curves, measure)) for measure in ("test_accuracy", SECOND[kind][0])}
        for name, curves in lines.items()
    }


def _difference(kind: Kind, lines: list[list[Curve]], look: int) -> dict[str, Any]:
    """The last line of a grid minus its first, repeat by repeat."""
    first, *_, final = lines
    return {
        measure: paired([one[measure][look] for one in final], [one[measure][look] for one in first])
        for measure in ("test_accuracy", SECOND[kind][0])
    }


def _panels(kind: Kind, title: str, lines: dict[str, list[Curve]], beside: _Beside) -> list[dict[str, Any]]:
    found = []
    for measure, label in (("test_accuracy", "test accuracy"), SECOND[kind]):
        log = measure == "squared_gradient_norm"
        shown = [line(name, curves, measure, extremes=log) for name, curves in lines.items()]
        shown += beside.lines(measure, extremes=log)
        anchors = levels(beside.anchors) if measure == "test_accuracy" else {}
        found.append(panel(title, "round", label, shown, anchors=anchors, log_y=log))
    return found


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
    also=("train_loss", "squared_gradient_norm"),
)


def bounds(shelf: Shelf, *, quick: bool) -> dict[str, Any]:
    """The mean of ‖∇f‖² so far beside Theorem 2, published and corrected, where L and β are known.

    f* is at least 0, and at least f(θ) − ‖∇f(θ)‖²/(2λ) at every look, by strong convexity.
    """
    result, panels = {}, []
    rows, labels = split(0).train.features, split(0).train.labels
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
        shown = [line(name, found, "mean", extremes=True) for name, found in lines.items()]
        title = f"Regularised logistic regression, τ = {steps}, σ = {experiment.noise:g}"
        panels.append(panel(title, "round", "mean of ‖∇f‖² so far", shown, log_y=True))
    return {**result, "claims": of_bounds(result), "panels": panels}


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
