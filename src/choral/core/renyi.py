"""From Rényi divergences to (ε, δ), for mixtures that no closed form covers."""

import math
from collections.abc import Callable


def best_epsilon(divergence: Callable[[float], float], delta: float, *, whole_orders: bool = False) -> float:
    """The least ε that any Rényi order proves at δ (Canonne, Kamath, Steinke 2020, Proposition 12).

    >>> from choral.core.zcdp import convert
    >>> round(best_epsilon(lambda order: 0.5 * order, 1e-5) / convert(rho=0.5, delta=1e-5), 6)
    1.0
    """
    log_inverse = -math.log(delta)

    if not divergence(2.0) < 1e290:
        return math.inf

    def bound(t: float) -> float:
        shift = math.exp(t)  # the order less 1, which a float that is near 1 would lose
        if whole_orders:
            shift = max(1.0, math.floor(shift + 0.5))
        order = 1 + shift
        return divergence(order) + (log_inverse - math.log(order)) / shift - math.log1p(1 / shift)

    # Each order alone is sound. The search starts around the one that would suit a Gaussian, and goes far beyond it.
    start = 0.5 * math.log(2 * log_inverse / max(divergence(2.0), 1e-290))
    best = min((start - 4 + 0.5 * k for k in range(33)), key=bound)
    width = 0.5
    while width > 1e-4:
        width /= 2
        best = min((best - width, best, best + width), key=bound)
    return max(0.0, bound(best))
