"""Theorem 2 and the convex lemma: how near a run gets to a minimum, as published and as its proof supports it.

docs/convergence.md has the counterexample to the published form and the proof of the corrected one.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from choral.core.errors import PlanError
from choral.core.plan import SAMPLINGS, Sampling, require_number, require_one_of, require_whole
from choral.planner.numbers import Convergence, condition_in_words, step_condition, theorem_2

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Kind = Literal["non_convex", "convex"]
Version = Literal["published", "corrected"]
KINDS: tuple[Kind, ...] = ("non_convex", "convex")
VERSIONS: tuple[Version, ...] = ("published", "corrected")
PUBLISHED_FACTOR = 3  # of τ²η²L² in the step-size condition; its proof needs 6
EXCESS_LOSS = "mean excess loss over the averaged iterates, the first one left out"


def convergence(
    *,
    kind: Kind,
    version: Version = "corrected",
    initial_gap: float,
    step_size: float,
    smoothness: float,
    steps: int,
    noise: float,
    dimension: int,
    cohort: int,
    batch: int,
    local_steps: int = 1,
    gradient_deviation: float = 0.0,
    strong_convexity: float | None = None,
) -> Convergence:
    """The bound of Theorem 2 (non-convex), or of the convex lemma, after K = Tτ steps.

    >>> numbers = dict(kind="non_convex", initial_gap=0.0, step_size=0.018, smoothness=10.0, steps=1000, noise=0.3,
    ...             dimension=1, cohort=1, batch=1)
    >>> round(convergence(version="published", **numbers).bound, 6), round(convergence(**numbers).bound, 6)
    (0.0081, 0.0162)
    """
    require_one_of("kind", kind, KINDS)
    require_one_of("version", version, VERSIONS)
    gap = require_number("initial_gap", initial_gap, closed=True)
    eta, smooth = require_number("step_size", step_size), require_number("smoothness", smoothness)
    tau = require_whole("local_steps", local_steps)
    found = theorem_2(
        initial_gap=gap,
        step_size=eta,
        smoothness=smooth,
        steps=require_whole("steps", steps),
        noise=require_number("noise", noise, closed=True),
        dimension=require_whole("dimension", dimension),
        cohort=require_whole("cohort", cohort),
        batch=require_whole("batch", batch),
        local_steps=tau,
        gradient_deviation=require_number("gradient_deviation", gradient_deviation, closed=True),
    )
    if version == "published":
        found = _as_published(found, step_size=eta, smoothness=smooth, local_steps=tau)
    if kind == "non_convex":
        return found
    curve = _strong_convexity(strong_convexity, smooth)
    # The same recursion, contracted: every variance term comes down by 2λ.
    variances = {name: getattr(found, name) / (2 * curve) for name in ("sampling", "noise", "drift")}
    start = max(0.0, 1 - eta * curve) * gap / (steps * eta * curve)
    return replace(found, kind=kind, of=EXCESS_LOSS, start=start, **variances)


def _as_published(found: Convergence, *, step_size: float, smoothness: float, local_steps: int) -> Convergence:
    """The bound as printed: its proof has ηL/2 · V once more, so the paper halves both variances by mistake."""
    tau, factor = local_steps, PUBLISHED_FACTOR
    condition = step_condition(step_size=step_size, smoothness=smoothness, local_steps=tau, factor=factor)
    because = condition_in_words(step_size=step_size, smoothness=smoothness, local_steps=tau, factor=factor)
    if condition <= 1:
        because += ", but the printed bound has a counterexample (docs/convergence.md)"
    return replace(
        found,
        version="published",
        sampling=found.sampling / 2,
        noise=found.noise / 2,
        condition=condition,
        valid=False,
        because=because,
    )


def _strong_convexity(value: float | None, smoothness: float) -> float:
    if value is None:
        raise PlanError("CH204", 'kind = "convex" without strong_convexity.', fix="Give λ, for example the L2 weight.")
    curve = require_number("strong_convexity", value)
    if curve > smoothness:
        raise PlanError("CH204", f"strong_convexity = {curve:g} is above smoothness = {smoothness:g}.",
                        fix="λ is at most L for every loss: check which is which.")  # fmt: skip
    return curve


@dataclass(frozen=True, kw_only=True)
class Constants:
    """What the bounds need to know of a loss: L, λ and β, estimated on public rows."""

    smoothness: float
    strong_convexity: float
    gradient_deviation: float


def logistic_constants(
    features: "ArrayLike",
    labels: "ArrayLike | None" = None,
    *,
    classes: int = 2,
    l2: float = 0.0,
    sampling: Sampling = "poisson",
) -> Constants:
    """L, λ and β of logistic regression on public rows: never on the devices' own, which would be a release.

    L = c·λ_max(XᵀX/m) + l2 with c = 1/4 for one logit (`classes=1`) and 1/2 for softmax; λ = l2. With labels β is taken
    at θ = 0: the deviation of one record's gradient, or its root mean square where Poisson sampling makes the number of
    records in a batch random too. Without labels it is a bound from the rows alone.

    >>> logistic_constants([[1.0, 0.0], [0.0, 2.0]], l2=0.5, classes=1)
    Constants(smoothness=1.0, strong_convexity=0.5, gradient_deviation=1.5811388300841898)
    """
    import numpy as np

    rows = np.asarray(features, dtype=float)
    require_whole("classes", classes)
    require_number("l2", l2, closed=True)
    require_one_of("sampling", sampling, SAMPLINGS)
    if rows.ndim != 2 or 0 in rows.shape or not np.isfinite(rows).all():
        raise PlanError(
            "CH204", f"features have shape {rows.shape}.", fix="Give finite rows × columns, at least 1 × 1."
        )
    lengths = (rows**2).sum(axis=1)
    top = float(np.linalg.eigvalsh(rows.T @ rows / len(rows))[-1])
    hessian = 0.25 if classes == 1 else 0.5
    if labels is None:
        # One logit: |p − y| ≤ 1; softmax: ‖p − e_y‖² ≤ 2.
        variance = float(lengths.mean()) * (1 if classes == 1 else 2)
    else:
        error = _error_at_zero(np.asarray(labels), classes, len(rows))
        # A record's gradient is the outer product of its error and its row.
        variance = float(((error**2).sum(axis=1) * lengths).mean())
        if sampling == "partition":
            variance = max(0.0, variance - float(((error.T @ rows / len(rows)) ** 2).sum()))
    return Constants(smoothness=hessian * top + l2, strong_convexity=l2, gradient_deviation=variance**0.5)


def _error_at_zero(labels: Any, classes: int, rows: int) -> Any:  # noqa: ANN401 - NumPy arrays
    import numpy as np

    if labels.shape != (rows,) or not np.isin(labels, np.arange(max(classes, 2))).all():
        raise PlanError(
            "CH204", "labels do not fit the features.", fix=f"Give one of 0 … {max(classes, 2) - 1} per row."
        )
    return (0.5 - labels)[:, None] if classes == 1 else 1.0 / classes - np.eye(classes)[labels.astype(int)]
