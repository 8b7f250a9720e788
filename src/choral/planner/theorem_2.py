"""The corrected Theorem 2: how near a run gets to a minimum. docs/convergence.md has its proof."""

import math
from dataclasses import dataclass

_TAKEN = "devices' records are taken as drawn from one source, and clipping as inactive"


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """An upper bound in four parts, and whether the run fulfils the step-size condition that it stands on."""

    kind: str = "non_convex"
    version: str = "corrected"
    of: str = "mean squared gradient norm over the averaged iterates"
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
        of = {"kind": self.kind, "version": self.version, "of": self.of}
        return of | {"bound": self.bound} | parts | {"valid": self.valid, "because": self.because}


def largest_step_size(*, smoothness: float, local_steps: int = 1) -> float:
    """The largest η that the condition allows: the positive root of 5ηL + 6τ²η²L² = 1.

    >>> largest_step_size(smoothness=1.0, local_steps=2)
    0.125
    """
    # The root in its form without cancellation: 2c/(b + √(b² + 4ac)).
    return 2.0 / (5.0 + math.sqrt(25.0 + 24.0 * local_steps**2)) / smoothness


def step_condition(*, step_size: float, smoothness: float, local_steps: int = 1, factor: int = 6) -> float:
    """5ηL + 6τ²η²L², which the bound needs to be at most 1; the paper prints 3 for the factor 6.

    >>> round(step_condition(step_size=0.018, smoothness=10.0, factor=3), 4)
    0.9972
    """
    x = step_size * smoothness
    return 5 * x + factor * (local_steps * x) ** 2


def condition_in_words(*, step_size: float, smoothness: float, local_steps: int, factor: int = 6) -> str:
    """The step-size condition with its numbers, and the largest step size where it is broken."""
    condition = step_condition(step_size=step_size, smoothness=smoothness, local_steps=local_steps, factor=factor)
    left = f"5ηL + {factor}τ²η²L² = {condition:.4g}"
    if condition <= 1:
        return f"{left} is at most 1"
    most = largest_step_size(smoothness=smoothness, local_steps=local_steps)
    return f"{left} is above 1; the corrected bound holds up to η = {most:.4g}, here η = {step_size:.4g}"


def theorem_2(
    *,
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
) -> Convergence:
    """The bound after K = Tτ steps for a loss that need not be convex; the caller has checked the numbers.

    >>> numbers = dict(initial_gap=0.0, step_size=0.018, smoothness=10.0, steps=1000, noise=0.3)
    >>> round(theorem_2(dimension=1, cohort=1, batch=1, **numbers).bound, 6)
    0.0162
    """
    x, beta, tau = step_size * smoothness, gradient_deviation, local_steps
    local = 2 * beta**2 / (3 * batch) + dimension * noise**2 * (cohort + 1) / (3 * cohort)
    condition = step_condition(step_size=step_size, smoothness=smoothness, local_steps=tau)
    because = condition_in_words(step_size=step_size, smoothness=smoothness, local_steps=tau)
    return Convergence(
        start=2 * initial_gap / (step_size * steps),
        sampling=x * beta**2 / batch,
        noise=x * dimension * noise**2 / cohort,
        drift=(tau - 1) * (2 * tau - 1) * x**2 * local,
        condition=condition,
        valid=condition <= 1,
        because=f"{because}; {_TAKEN}" if condition <= 1 else because,
    )
