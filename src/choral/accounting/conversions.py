"""Concentrated privacy as people read it: ρ of a Gaussian, and the ways from ρ to (ε, δ) and back.

Pure floats in log space, so that ε from 1e-6 to 1e4 and δ from 1e-300 to 0.5 come out right without any library.
"""

import math
from typing import Literal

from choral.core.errors import PlanError
from choral.core.plan import require_number, require_one_of, require_whole
from choral.core.private_sums import FAILURE, SumPrice
from choral.core.zcdp import epsilon_of_rho, gdp_epsilon, gdp_log_delta, require_delta, root

Conversion = Literal["paper", "optimal", "exact"]
CONVERSIONS: tuple[Conversion, ...] = ("paper", "optimal", "exact")
_SMALLEST_EPSILON, _LARGEST_EPSILON = 1e-12, 1e12  # far beyond use


def gaussian(*, sensitivity: float, noise: float) -> float:
    """ρ = Δ²/2σ² of a Gaussian mechanism (Lemma 1).

    >>> gaussian(sensitivity=2.0, noise=2.0)
    0.5
    """
    ratio = require_number("sensitivity", sensitivity) / require_number("noise", noise)
    return 0.5 * ratio * ratio


def convert(*, rho: float, delta: float, conversion: Conversion = "optimal") -> float:
    """ε of ρ-zCDP at δ: `paper` (Lemma 3), `optimal` (Canonne, Kamath, Steinke 2020), `exact` (Gaussians only).

    >>> [round(convert(rho=0.5, delta=1e-5, conversion=name), 4) for name in CONVERSIONS]
    [5.2985, 4.7284, 4.3772]
    """
    rho, delta = require_number("rho", rho, closed=True), require_delta(delta)
    require_one_of("conversion", conversion, CONVERSIONS)
    if rho == 0:
        return 0.0
    if conversion == "paper":
        return rho + 2 * math.sqrt(rho * -math.log(delta))
    if conversion == "optimal" or rho > 1e20:  # where the conversions agree to nine digits
        return epsilon_of_rho(rho, delta)
    return gdp_epsilon(math.sqrt(2 * max(rho, 1e-290)), delta)


def rho_for(*, epsilon: float, delta: float, conversion: Conversion = "optimal") -> float:
    """The largest ρ that stays within (ε, δ); the inverse of `convert`.

    >>> round(convert(rho=rho_for(epsilon=2.0, delta=1e-5), delta=1e-5), 9)
    2.0
    """
    epsilon, delta = require_number("epsilon", epsilon), require_delta(delta)
    require_one_of("conversion", conversion, CONVERSIONS)
    if not _SMALLEST_EPSILON <= epsilon <= _LARGEST_EPSILON:
        raise PlanError("CH200", f"epsilon = {epsilon:g}.", fix="Must be from 1e-12 to 1e12.")
    if conversion == "paper":
        log_inverse = -math.log(delta)
        return (epsilon / (math.sqrt(log_inverse + epsilon) + math.sqrt(log_inverse))) ** 2
    if conversion == "optimal":
        return _optimal_rho(epsilon, delta)
    mu = gdp_mu(epsilon, delta)
    return 0.5 * mu * mu


def _optimal_rho(epsilon: float, delta: float) -> float:
    target = -math.log(delta)

    def excess(t: float) -> float:
        u = math.exp(t)
        return (target - math.log1p(u)) / u * (2 + 1 / u) - math.log1p(1 / u) - epsilon

    # At ln(1+u) = ln 1/δ the excess is −ln(1+1/u) − ε < 0; it grows without bound as u falls.
    high = math.log(math.expm1(target)) if target < 700 else target
    low = high - 1.0
    while excess(low) <= 0:
        low -= 1.0
    u = math.exp(root(excess, low, low + 1.0))
    return (target - math.log1p(u)) / u / u


def gdp_mu(epsilon: float, delta: float) -> float:
    """The largest μ whose exact (ε, δ) curve passes below this point.

    >>> round(gdp_mu(1.0, 0.12693673750664397), 9)
    1.0
    """
    log_delta = math.log(delta)
    reach = math.sqrt(-2 * log_delta)
    low = 2 * epsilon / (math.sqrt(reach * reach + 2 * epsilon) + reach)  # where a = √(2 ln 1/δ)
    high = low
    while gdp_log_delta(epsilon / high, high) < log_delta:
        high *= 2
    if high == low:
        low /= 2
    return root(lambda mu: gdp_log_delta(epsilon / mu, mu) - log_delta, low, high)


def price_of_sums(
    *, epsilon: float | None, epsilon_sum: float | None, delta: float, most: int, noises: int = 1
) -> SumPrice:
    """The price at which so many private sums stay within ε against everyone and within the ε of sums, where given.

    >>> round(price_of_sums(epsilon=1.0, epsilon_sum=None, delta=1e-5, most=10).mu, 4)
    0.0848
    """
    require_whole("most", most)
    limits = [
        gdp_mu(require_number("epsilon", limit), delta - most * FAILURE) * math.sqrt(counted)
        for limit, counted in ((epsilon, 1), (epsilon_sum, noises))
        if limit is not None
    ]
    if not limits:
        raise PlanError("CH103", "questions have no epsilon.", fix="Set epsilon, epsilon_sum, or both in [ask].")
    return SumPrice(mu=min(limits) / math.sqrt(most) / (1 + 1e-9), noises=noises, most=most)
