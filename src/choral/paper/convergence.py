"""How runs converge over 100 rounds: by noise and by local steps, beside a proved ε and beside no privacy."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from choral import research
from choral.paper.adult import NAMES, Kind, experiment, task
from choral.paper.claims import of_convergence

# The measure beside accuracy.
SECOND = {"logistic": ("train_loss", "training loss"), "network": ("squared_gradient_norm", "‖∇f‖²")}
BASE = {
    "logistic": experiment(
        "logistic", rounds=100, local_steps=10, batch=244, step_size=0.5, clip=3.0, also=("train_loss",)
    ),
    "network": experiment(
        "network", rounds=100, local_steps=5, batch=244, step_size=1.0, clip=3.0, also=("squared_gradient_norm",)
    ),
}
# As printed, and a grid on which noise is seen: scaled columns need more of it.
NOISES = {
    "logistic": {"printed": (1e-5, 1e-4, 5e-4, 1e-3), "wider": (0.01, 0.03, 0.1, 0.3)},
    "network": {"printed": (1e-4, 1e-3, 5e-3, 1e-2), "wider": (0.01, 0.03, 0.1, 0.3)},
}
STEPS = {"logistic": (1, 5, 10, 40), "network": (1, 5, 10, 20)}
STEPS_NOISE = {"logistic": {"printed": 1e-3, "wider": 0.1}, "network": {"printed": 1e-2, "wider": 0.1}}
# Where the printed noises matter: weights beside numbers in the hundreds of thousands, and a clip as small as they are.
RAW = replace(BASE["logistic"], step_size=0.1, clip=1e-3, task=task("logistic", "raw"))
# Beside every grid: the same with Poisson batches and the noise that a proof against everyone asks for.
PROVED, DELTA = {"logistic": 2.0, "network": 4.0}, 1e-5

Lines = Mapping[str, list[research.Curve]]


def convergence(kind: Kind, shelf: research.Shelf, *, quick: bool) -> dict[str, Any]:
    """Accuracy and training loss (network: ‖∇f‖²) over the rounds, by noise and by local steps."""
    base = replace(BASE[kind], rounds=10, looks=2) if quick else BASE[kind]
    panels, grids = [], {}
    beside = {"scaled": _Beside.of(shelf, base, replace(base, clip=math.inf), PROVED[kind])}
    # A quick look is at the grid on which noise is seen, with one curve in both of its panels.
    for grid, noises in list(NOISES[kind].items())[1 if quick else 0 :]:
        level = STEPS_NOISE[kind][grid]
        by_noise = _by_noise(shelf, base, (noises[0], level) if quick else noises)
        steps = (1, base.local_steps) if quick else STEPS[kind]
        by_steps = {f"τ = {tau}": shelf.curves(replace(base, noise=level, local_steps=tau)) for tau in steps}
        one, *_, most = by_steps.values()
        grids[grid] = {
            "columns": "scaled",
            "noise": level,
            **_of_noise(kind, by_noise),
            "by_local_steps": _ends(kind, by_steps),
            "most_steps_minus_one_at_the_end": _difference(kind, most, one, -1),
            "most_steps_minus_one_at_first_look": _difference(kind, most, one, 0),
        }
        panels += _panels(kind, f"{NAMES[kind]}, τ = {base.local_steps}, {grid} grid", by_noise, beside["scaled"])
        panels += _panels(
            kind, f"{NAMES[kind]}, σ = {level:g}", by_steps, beside["scaled"], f", τ = {base.local_steps}"
        )
    if kind == "logistic" and not quick:
        by_noise = _by_noise(shelf, RAW, NOISES[kind]["printed"])
        grids["printed, raw"] = {"columns": "raw", **_of_noise(kind, by_noise)}
        beside["raw"] = _Beside.of(shelf, RAW, RAW, PROVED[kind])  # without a clip such steps leave every range
        title = f"{NAMES[kind]}, τ = {base.local_steps}, printed grid, raw columns"
        panels += _panels(kind, title, by_noise, beside["raw"])
    told = {columns: one.told() for columns, one in beside.items()}
    claims = of_convergence(f"{NAMES[kind]}, {base.rounds} rounds", SECOND[kind], grids, told)
    return {**grids, "beside": told, "claims": claims, "panels": panels}


@dataclass(frozen=True, kw_only=True)
class _Beside:
    """What the lines of a grid are compared with: the same at a proved ε, without privacy, in one place, alone."""

    epsilon: float
    proved: research.Method
    free: research.Method
    anchors: dict[str, dict[str, Any]]

    @classmethod
    def of(
        cls, shelf: research.Shelf, base: research.Experiment, free: research.Experiment, epsilon: float
    ) -> "_Beside":
        proved = research.tuned(shelf, [replace(base, sampling="poisson")], "proved", epsilon, DELTA)
        method, anchors = research.anchors(shelf, [free])
        return cls(epsilon=epsilon, proved=proved, free=method, anchors=anchors)

    def told(self) -> dict[str, Any]:
        """For a results file."""
        proved = {f"{self.epsilon:g}": self.proved.told(non_private=self.free)}
        return {"proved": proved, "non_private": self.free.told(), **self.anchors}

    def lines(self, measure: str, note: str, *, extremes: bool) -> list[dict[str, Any]]:
        """The curves for a panel; the noise of the proof stands in its name."""
        proved = f"ε = {self.epsilon:g} PROVED against everyone, σ = {self.proved.chosen[0].noise:.2g}{note}"
        free = f"without privacy{note}" if self.free.chosen[0].clip == math.inf else "without privacy, same clip"
        return [
            research.line(proved, self.proved.curves, measure, extremes=extremes),
            research.line(free, self.free.curves, measure, extremes=extremes, anchor=True),
        ]


def _by_noise(shelf: research.Shelf, base: research.Experiment, noises: tuple[float, ...]) -> Lines:
    return {f"σ = {noise:g}": shelf.curves(replace(base, noise=noise)) for noise in noises}


def _of_noise(kind: Kind, by_noise: Lines) -> dict[str, Any]:
    least, *others = by_noise
    over = {name: _difference(kind, by_noise[name], by_noise[least], -1) for name in others}
    return {"by_noise": _ends(kind, by_noise), "noise_minus_least": over}


def _ends(kind: Kind, lines: Lines) -> dict[str, Any]:
    return {
        name: {one: research.spread(research.last(curves, one)) for one in ("test_accuracy", SECOND[kind][0])}
        for name, curves in lines.items()
    }


def _difference(
    kind: Kind, ours: list[research.Curve], theirs: list[research.Curve], look: int
) -> dict[str, Any]:  # fmt: skip
    """One line minus another, repeat by repeat."""
    return {
        one: research.paired([curve[one][look] for curve in ours], [curve[one][look] for curve in theirs])
        for one in ("test_accuracy", SECOND[kind][0])
    }


def _panels(kind: Kind, title: str, lines: Lines, beside: _Beside, note: str = "") -> list[dict[str, Any]]:
    found = []
    for measure, label in (("test_accuracy", "test accuracy"), SECOND[kind]):
        log = measure == "squared_gradient_norm"
        shown = [research.line(name, curves, measure, extremes=log) for name, curves in lines.items()]
        shown += beside.lines(measure, note, extremes=log)
        levels = research.levels(beside.anchors) if measure == "test_accuracy" else {}
        found.append(research.panel(title, "round", label, shown, anchors=levels, log_y=log))
    return found
