"""How runs converge over 100 rounds: by noise and by local steps, next to a proved ε and to Theorem 2."""

import math
from dataclasses import replace

import numpy as np

from choral_lab import research
from choral_lab.paper.adult import L2, NAMES, Kind, experiment, split, task
from choral_lab.paper.claims import of_convergence

ALIKE = {"rounds": 100, "batch": 244, "clip": 3.0}
BASE = {
    "logistic": experiment("logistic", local_steps=10, step_size=0.5, also=("train_loss",), **ALIKE),
    "network": experiment("network", local_steps=5, step_size=1.0, also=("squared_gradient_norm",), **ALIKE),
}
# As printed, and a grid on which noise is seen: scaled columns need more of it.
NOISES = {
    "logistic": {"printed": (1e-5, 1e-4, 5e-4, 1e-3), "wider": (0.01, 0.03, 0.1, 0.3)},
    "network": {"printed": (1e-4, 1e-3, 5e-3, 1e-2), "wider": (0.01, 0.03, 0.1, 0.3)},
}
STEPS = {"logistic": (1, 5, 10, 40), "network": (1, 5, 10, 20)}
STEPS_NOISE = {"logistic": {"printed": 1e-3, "wider": 0.1}, "network": {"printed": 1e-2, "wider": 0.1}}
# Where the printed noises matter: weights for numbers in the hundreds of thousands, and a clip as small as they are.
RAW = replace(BASE["logistic"], step_size=0.1, clip=1e-3, task=task("logistic", "raw"))
ON_RAW = {"logistic": RAW}
# To compare with every grid: the same with Poisson batches and the noise that a proof against everyone asks for.
PROVED, DELTA = {"logistic": 2.0, "network": 4.0}, 1e-5
# For Theorem 2, which knows no clip: this one lies above every gradient of these rows.
EVERY_ROUND = {"sampling": "poisson", "looks": 100, "also": ("train_loss", "squared_gradient_norm")}
BOUNDED = {"batch": 244, "clip": 10.0, "noise": 0.3, **EVERY_ROUND}


def convergence(kind: Kind, measurements: research.Measurements, *, quick: bool) -> research.Found:
    """Accuracy and training loss (network: ‖∇f‖²) over the rounds, by noise and by local steps."""
    base = replace(BASE[kind], rounds=10, looks=2) if quick else BASE[kind]
    name, tau, measures = NAMES[kind], f"τ = {base.local_steps}", ("test_accuracy", *base.also)
    raw = None if quick else ON_RAW.get(kind)
    # Without privacy raw columns are as clipped as with: without a clip such steps leave every range.
    free = {"scaled": replace(base, clip=math.inf), **({} if raw is None else {"raw": raw})}
    private = {name: replace(one, sampling="poisson") for name, one in (("scaled", base), ("raw", raw)) if one}
    grids, panels = {}, []
    # A quick look is at the grid on which noise is seen, with one curve in both of its panels.
    levels, steps = STEPS_NOISE[kind], (1, base.local_steps) if quick else STEPS[kind]
    shown: dict[str, tuple[float, ...]] = {**NOISES[kind]}
    if quick:
        shown = {"wider": (shown["wider"][0], levels["wider"])}
    # All at once, since runs with as many local steps go through the rows together.
    lines = [replace(base, noise=noise) for noises in shown.values() for noise in noises]
    lines += [replace(base, noise=levels[grid], local_steps=some) for grid in shown for some in steps]
    lines += [replace(raw, noise=noise) for noise in NOISES[kind]["printed"] if raw]
    proved = research.budgeted([*private.values()], "proved", [PROVED[kind]], DELTA)
    lines += map(research.all_in_one_place, free.values())  # nothing is chosen here, so it is known which
    measurements.ahead([(lines, "test"), ([*free.values(), *proved], "validation")])
    compared = {
        name: research.anchors(measurements, [one], private=[private[name]], epsilons=[PROVED[kind]], delta=DELTA)
        for name, one in free.items()
    }
    for grid, noises in shown.items():
        level, by_noise = levels[grid], measurements.varied(base, "noise", "σ", noises)
        by_steps = measurements.varied(replace(base, noise=level), "local_steps", "τ", steps)
        one, *_, most = by_steps.values()
        grids[grid] = {
            "columns": "scaled",
            "noise": level,
            **_of_noise(by_noise, measures),
            "by_local_steps": research.ends(by_steps, measures),
            "most_steps_minus_one_at_the_end": research.differences(most, one, measures),
            "most_steps_minus_one_at_first_look": research.differences(most, one, measures, look=0),
        }
        panels += compared["scaled"].panels(f"{name}, {tau}, {grid} grid", by_noise)
        panels += compared["scaled"].panels(f"{name}, σ = {level:g}", by_steps, note=f", {tau}")
    if raw is not None:
        by_noise = measurements.varied(raw, "noise", "σ", NOISES[kind]["printed"])
        grids["printed, raw"] = {"columns": "raw", **_of_noise(by_noise, measures)}
        panels += compared["raw"].panels(f"{name}, {tau}, printed grid, raw columns", by_noise)
    results = {columns: one.results() for columns, one in compared.items()}
    claims = of_convergence(f"{name}, {base.rounds} rounds", grids, results)
    return research.Found(results={**grids, "beside": results}, claims=claims, panels=panels)  # in records


def _of_noise(lines: dict[str, list[research.Curve]], measures: tuple[str, ...]) -> dict[str, object]:
    (_, least), *others = lines.items()
    over = {name: research.differences(one, least, measures) for name, one in others}
    return {"by_noise": research.ends(lines, measures), "noise_minus_least": over}


def bounds(measurements: research.Measurements, *, quick: bool) -> research.Found:
    """Theorem 2, published and corrected, next to the mean of ‖∇f‖² that is measured, where L and β are known."""
    results, claims, panels, train = {}, {}, [], split(0).train
    rows = np.hstack([train.features, np.ones((len(train.features), 1))])
    known = research.logistic_constants(rows, train.labels, l2=L2, sampling="poisson")
    bounded = {}
    for steps in (1, 5):
        size = research.largest_step_size(smoothness=known.smoothness, local_steps=steps)
        rounds = 10 if quick else 100
        bounded[steps] = experiment("regularised", local_steps=steps, step_size=size, rounds=rounds, **BOUNDED)
    measurements.together([*bounded.values()], "test")
    for steps, one in bounded.items():
        # All weights start at 0, where the loss of two classes is ln 2.
        found, lines = research.theorem_2(measurements, one, known, start_loss=math.log(2))
        name, title = f"τ = {steps}", f"Regularised logistic regression, τ = {steps}, σ = {one.noise:g}"
        about = f"regularised logistic regression, λ = {L2}, σ = {one.noise:g}, 100 rounds, {name}"
        results[name] = found
        claims[f"Theorem 2 bounds the mean of ‖∇f‖² ({about})"] = research.bounded(found)
        panels.append(research.panel(title, lines, research.SO_FAR, log_y=True))
    return research.Found(results=results, claims=claims, panels=panels)
