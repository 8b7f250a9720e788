"""Rule S6: what rounding to a grid costs, and the discrete noises that make a sum of integers exact.

Sensitivities, noise and variance are in units of the grid; l2 and l1 bound the change of the integer vector.
"""

import math
from dataclasses import dataclass

from choral.core.errors import PlanError
from choral.core.plan import require_number, require_whole


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """What rounding each update before the sum adds to one release: ε more, and δ times e^(ε/2).

    `kappa` bounds the relative change of any probability, per coordinate.
    """

    kappa: float
    epsilon: float


def rounding(*, grid: float, noise: float, coordinates: int, honest_noises: int) -> Rounding:
    """The cost of rounding each noisy update to the grid before the sum (Rule S6); `noise` is ησ, that of the update.

    >>> rounding(grid=0.25, noise=0.75, coordinates=10**9, honest_noises=2).epsilon < 1e-28
    True
    """
    ratio = require_number("noise", noise) / require_number("grid", grid)
    require_whole("coordinates", coordinates)
    require_whole("honest_noises", honest_noises)
    if ratio < 3:
        raise PlanError(
            "CH204",
            f"a grid of {grid:g} is too coarse for an update noise of {noise:g}.",
            why="Rounding before the sum would show through the other devices' noise.",
            fix=f"Use a grid of at most {noise / 3:g}.",
        )
    # Further honest devices in the sum are independent of the record: adding them is post-processing.
    kappa = relative_change(honest_noises, ratio)
    return Rounding(kappa=kappa, epsilon=coordinates * (math.log1p(kappa) - math.log1p(-kappa)))


def relative_change(count: int, ratio: float) -> float:
    """Σ exp(−2π²s²(|k|² − (Σk)²/r)) over integer vectors k up to constant ones, k ≠ 0, bounded from above."""
    if count == 1:  # rounding a single update is post-processing
        return 0.0
    # Up to a constant vector |Σk| ≤ r/2, so the exponent is at least |k|²/2; the 2r shortest vectors are exact.
    shortest = 2 * count * math.exp(-2 * (math.pi * ratio) ** 2 * (1 - 1 / count))
    p = math.exp(-((math.pi * ratio) ** 2))
    others = 2 * count * p / (1 - p)
    return shortest + 0.5 * others * others * math.exp(others) + others * p


def discrete_gaussian(*, l1: float, l2: float, coordinates: int, noise: float, honest_noises: int) -> float:
    """ρ of a sum with discrete Gaussian noise from each device (Kairouz, Liu, Steinke 2021, Proposition 14; Rule S6).

    >>> round(discrete_gaussian(l1=100.0, l2=10.0, coordinates=1000, noise=5.0, honest_noises=4), 9)
    0.5
    """
    _sensitivities(l1, l2)
    require_whole("coordinates", coordinates)
    require_whole("honest_noises", honest_noises)
    if require_number("noise", noise) < 0.5:
        raise PlanError(
            "CH204", f"discrete noise of {noise:g} grid steps.", fix="Use a grid of at most twice the noise."
        )
    # What sets a sum of discrete Gaussians apart from a discrete Gaussian of the sum's variance.
    gap = 10 * math.fsum(math.exp(-2 * (math.pi * noise) ** 2 * k / (k + 1)) for k in range(1, honest_noises))
    spread = math.sqrt(honest_noises) * noise
    scaled, scaled_l1 = l2 / spread, l1 / spread
    by_l1 = scaled * scaled + 2 * scaled_l1 * gap + coordinates * gap * gap
    by_l2 = (scaled + math.sqrt(coordinates) * gap) ** 2
    return 0.5 * min(by_l1, by_l2)


def skellam_divergence(order: float, *, l1: float, l2: float, variance: float) -> float:
    """Rényi divergence at a whole order of a sum with Skellam noise (Agarwal, Kairouz, Liu 2021, Corollary 3.6).

    >>> round(skellam_divergence(2, l1=100.0, l2=10.0, variance=1e4), 9)
    0.01000225
    """
    _sensitivities(l1, l2)
    require_number("variance", variance)
    if not (2 <= order < math.inf and order == math.floor(order)):
        raise PlanError("CH200", f"order = {order!r}.", fix="The bound on Skellam noise holds for whole orders from 2.")
    squared = l2 * l2
    fine = ((2 * order - 1) * squared + 6 * l1) / (4 * variance * variance)
    return order * squared / (2 * variance) + min(fine, 1.5 * l1 / variance)


def _sensitivities(l1: float, l2: float) -> None:
    require_number("l1", l1)
    require_number("l2", l2)
    if l1 < l2:
        raise PlanError("CH204", f"l1 = {l1:g} is below l2 = {l2:g}.", fix="No vector has a smaller l1 than l2 norm.")
