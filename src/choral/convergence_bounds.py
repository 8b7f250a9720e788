"""Theorem 2 and the convex lemma: how near a run gets to a minimum, as published and as its proof supports it.

docs/convergence.md has the counterexample to the published form and the proof of the corrected one.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from choral.core.errors import PlanError
from choral.core.plan import SAMPLINGS, Sampling, require_number, require_one_of, require_whole

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Kind = Literal["non_convex", "convex"]
Version = Literal["published", "corrected"]
KINDS: tuple[Kind, ...] = ("non_convex", "convex")
VERSIONS: tuple[Version, ...] = ("published", "corrected")

WHAT = {
    "non_convex": "mean squared gradient norm over the averaged iterates",
    "convex": "mean excess loss over the averaged iterates, the first one left out",
}


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """An upper bound in four parts, and whether the run fulfils the step-size condition that it stands on."""

    kind: Kind
    version: Version
    start: float  # what is left of f(θ⁰) − f*
    sampling: float  # batches instead of all records: β²/γ
    noise: float  # the noise that stays in the average: dσ²/r
    drift: float  # local models that walk apart between two averages; 0 for τ = 1
    condition: float  # left side of the step-size condition; at most 1 is needed
    valid: bool
    because: str

    @property
    def bound(self) -> float:
        """The sum of the four parts."""
        return self.start + self.sampling + self.noise + self.drift

    def to_dict(self) -> dict[str, object]:
        """The bound and its parts as plain values."""
        parts = {name: getattr(self, name) for name in ("start", "sampling", "noise", "drift")}
        of = {"kind": self.kind, "version": self.version, "of": WHAT[self.kind]}
        return of | {"bound": self.bound} | parts | {"valid": self.valid, "because": self.because}


def step_condition(
    *, step_size: float, smoothness: float, local_steps: int = 1, version: Version = "corrected"
) -> float:
    """5ηL + 3τ²η²L² as published, 5ηL + 6τ²η²L² as corrected; both bounds need a value of at most 1.

    >>> round(step_condition(step_size=0.018, smoothness=10.0, version="published"), 4)
    0.9972
    """
    x = step_size * smoothness
    return 5 * x + (3 if version == "published" else 6) * (local_steps * x) ** 2


def largest_step_size(*, smoothness: float, local_steps: int = 1) -> float:
    """The largest η that the corrected condition allows: the positive root of 5ηL + 6τ²η²L² = 1.

    >>> largest_step_size(smoothness=1.0, local_steps=2)
    0.125
    """
    # The root in its form without cancellation: 2c/(b + √(b² + 4ac)).
    return 2.0 / (5.0 + math.sqrt(25.0 + 24.0 * local_steps**2)) / smoothness


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
    sigma = require_number("noise", noise, closed=True)
    beta = require_number("gradient_deviation", gradient_deviation, closed=True)
    k, d, r = require_whole("steps", steps), require_whole("dimension", dimension), require_whole("cohort", cohort)
    gamma, tau = require_whole("batch", batch), require_whole("local_steps", local_steps)

    # The proof has ηL/2 · V once more than the paper prints: published halves both variances by mistake.
    half = 0.5 if version == "published" else 1.0
    x = eta * smooth
    start = 2 * gap / (eta * k)
    sampling, noisy = half * x * beta**2 / gamma, half * x * d * sigma**2 / r
    drift = (tau - 1) * (2 * tau - 1) * x**2 * (2 * beta**2 / (3 * gamma) + d * sigma**2 * (r + 1) / (3 * r))
    if kind == "convex":
        curve = _strong_convexity(strong_convexity, smooth)
        # The same recursion, contracted: every variance term comes down by 2λ.
        sampling, noisy, drift = (part / (2 * curve) for part in (sampling, noisy, drift))
        start = max(0.0, 1 - eta * curve) * gap / (k * eta * curve)
    condition = step_condition(step_size=eta, smoothness=smooth, local_steps=tau, version=version)
    valid, because = _standing(version, condition, eta, smooth, tau)
    return Convergence(
        kind=kind, version=version, start=start, sampling=sampling, noise=noisy, drift=drift,
        condition=condition, valid=valid, because=because,
    )  # fmt: skip


def _strong_convexity(value: float | None, smoothness: float) -> float:
    if value is None:
        raise PlanError("CH204", 'kind = "convex" without strong_convexity.', fix="Give λ, for example the L2 weight.")
    curve = require_number("strong_convexity", value)
    if curve > smoothness:
        raise PlanError("CH204", f"strong_convexity = {curve:g} is above smoothness = {smoothness:g}.",
                        fix="λ is at most L for every loss: check which is which.")  # fmt: skip
    return curve


def _standing(version: Version, condition: float, eta: float, smooth: float, tau: int) -> tuple[bool, str]:
    factor = 3 if version == "published" else 6
    left = f"5ηL + {factor}τ²η²L² = {condition:.4g}"
    if condition > 1:
        most = largest_step_size(smoothness=smooth, local_steps=tau)
        return False, f"{left} is above 1; the corrected bound holds up to η = {most:.4g}, here η = {eta:.4g}"
    if version == "published":
        return False, f"{left} is at most 1, but the printed bound has a counterexample (docs/convergence.md)"
    return True, f"{left} is at most 1; devices' records are taken as drawn from one source, and clipping as inactive"


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
