"""From ρ, μ and Rényi divergences to (ε, δ): what the curve of a Gaussian says, and what moments prove.

Pure floats in log space, so that ε from 1e-6 to 1e4 and δ from 1e-300 to 0.5 come out right without any library.
"""

import math
from collections.abc import Callable

from choral.core.errors import PlanError
from choral.core.plan import require_number

# Where the conversions are right to nine digits and more; the ends are far beyond use.
SMALLEST_DELTA, LARGEST_DELTA = 1e-300, 0.999999


def require_delta(delta: object) -> float:
    """δ as a float within the range of the conversions, or a PlanError.

    >>> require_delta(1e-5)
    1e-05
    """
    number = require_number("delta", delta, below=1.0)
    if not SMALLEST_DELTA <= number <= LARGEST_DELTA:
        raise PlanError("CH200", f"delta = {number:g}.", fix=f"Must be from {SMALLEST_DELTA:g} to {LARGEST_DELTA:g}.")
    return number


# Optimal conversion: ε = inf over α = 1+u of ρα + (ln 1/δ − ln α)/(α−1) + ln(1−1/α). Its derivative in α vanishes
# exactly where ρu² + ln(1+u) = ln 1/δ, monotone in u; there ε = ρ(1+2u) − ln(1+1/u). Any u gives a valid bound.


def epsilon_of_rho(rho: float, delta: float) -> float:
    """ε of ρ-zCDP at δ by the optimal conversion (Canonne, Kamath, Steinke 2020).

    >>> round(epsilon_of_rho(0.5, 1e-5), 4)
    4.7284
    """
    if rho == 0:
        return 0.0
    if rho > 1e20:  # where all conversions agree to nine digits, and this one, of Lemma 3, is the largest
        return rho + 2 * math.sqrt(rho * -math.log(delta))
    rho = max(rho, 1e-290)  # below that, numbers lose their digits
    target = -math.log(delta)
    high = math.sqrt(target / rho)
    # In ln u, since u spans from 1e-300 to 1e300.
    low = min(math.log(high), math.log(math.expm1(min(target, 700.0)))) - 1.0
    while rho * math.exp(2 * low) + math.log1p(math.exp(low)) > target:
        low -= 1.0
    u = math.exp(root(lambda t: rho * math.exp(2 * t) + math.log1p(math.exp(t)) - target, low, math.log(high)))
    epsilon = rho * (1 + u) + (target - math.log1p(u)) / u - math.log1p(1 / u)
    return max(0.0, epsilon)


def gdp_log_delta(epsilon_over_mu: float, mu: float) -> float:
    """ln δ of μ-Gaussian DP at ε = μ·(ε/μ), from an integral of positive terms: nothing cancels.

    >>> round(math.exp(gdp_log_delta(1.0, 1.0)), 9)
    0.126936738
    """
    # δ = Φ(−a) − e^ε Φ(−a−μ), a = ε/μ − μ/2, is φ(a)·∫₀^∞ e^{−at−t²/2}(1−e^{−μt})dt. With t = exp(s − e^{−s}) both
    # tails fall doubly exponentially, where the trapezoidal rule converges geometrically.
    a = epsilon_over_mu - 0.5 * mu
    if a < _CERTAIN:
        return 0.0
    total = 0.0
    for step, (t, weight) in enumerate(_NODES):
        term = weight * math.exp(-t * (a + 0.5 * t)) * -math.expm1(-mu * t)
        total += term
        if step > len(_NODES) // 2 and term < 1e-18 * total:
            break
    return -0.5 * a * a - _HALF_LOG_TWO_PI + math.log(total)


_CERTAIN = -9.0  # Φ(9) is 1 to the last bit of a double
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
_STEP = 1 / 32
_NODES = tuple(
    (math.exp(s - math.exp(-s)), _STEP * math.exp(s - math.exp(-s)) * (1 + math.exp(-s)))
    for s in (_STEP * k for k in range(-120, 120))
)


def gdp_epsilon(mu: float, delta: float) -> float:
    """The exact ε of μ-Gaussian DP at δ.

    >>> round(gdp_epsilon(1.0, 0.12693673750664397), 9)
    1.0
    """
    log_delta = math.log(delta)
    if gdp_log_delta(0.0, mu) <= log_delta:
        return 0.0
    # δ ≤ Φ(−a) ≤ e^{−a²/2} bounds a, and with it ε/μ = a + μ/2.
    high = 0.5 * mu + math.sqrt(-2 * log_delta)
    if mu > 1e11:  # where that bound is right to nine digits
        return mu * high
    low = max(0.0, 0.5 * mu + _CERTAIN)
    return mu * root(lambda ratio: gdp_log_delta(ratio, mu) - log_delta, low, high)


def best_epsilon(divergence: Callable[[float], float], delta: float, *, whole_orders: bool = False) -> float:
    """The least ε that any Rényi order proves at δ (Canonne, Kamath, Steinke 2020, Proposition 12).

    >>> round(best_epsilon(lambda order: 0.5 * order, 1e-5), 4)
    4.7284
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


def root(function: Callable[[float], float], low: float, high: float, *, tolerance: float = 1e-15) -> float:
    """The zero of a monotone function between low and high, to a relative tolerance (Ridders 1979).

    >>> round(root(lambda x: x * x - 2, 1, 2), 12)
    1.414213562373
    """
    at_low, at_high = function(low), function(high)
    if at_low == 0 or at_high == 0:
        return low if at_low == 0 else high
    if (at_low > 0) == (at_high > 0):
        raise ValueError("no change of sign in the bracket")
    for _ in range(200):
        middle = 0.5 * (low + high)
        at_middle = function(middle)
        scale = math.sqrt(at_middle * at_middle - at_low * at_high)
        if at_middle == 0 or scale == 0:
            return middle
        point = middle + (middle - low) * math.copysign(at_middle, at_low * at_middle) / scale
        at_point = function(point)
        if at_point == 0:
            return point
        for x, value in sorted(((middle, at_middle), (point, at_point))):
            if (value > 0) == (at_low > 0):
                low, at_low = max(low, x), value
            elif x <= high:
                high, at_high = x, value
                break
        if high - low <= tolerance * max(abs(low), abs(high)):
            break
    return 0.5 * (low + high)
