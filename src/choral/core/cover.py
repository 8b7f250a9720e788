"""What a study counts as where studies are chosen one after the other: one Gaussian, or one ρ, and a leak.

A study's own uploads are fixed beforehand, so its loss distribution is known. What comes after it is not, and loss
distributions must not be composed over such choices. One Gaussian that is no better than the whole study can be: its μ²
adds up whatever is chosen next, and when. docs/accounting.md proves it ("Composition over runs").
"""

import math
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal

from choral.core import poisson
from choral.core.events import Event, Gaussian, Poisson, Skellam, Zcdp, skellam_divergence

# What adds up in a ledger. It follows from the studies that were reserved before the first charge, and never changes.
Currency = Literal["mu", "rho", "rho at whole orders"]

POINTS = 2**13  # points at which a study's curve is compared with a Gaussian's
_ROUNDING = 1e-6  # what is added to the least μ, far more than floats can take from it


def currency_of(fixed: Iterable[Event]) -> Currency:
    """What adds up in a ledger with these events in its fixed part.

    >>> currency_of([Gaussian(mu=0.1)]), currency_of([Zcdp(rho=0.1)])
    ('mu', 'rho')
    """
    fixed = tuple(fixed)
    if any(isinstance(event, Skellam) for event in fixed):
        return "rho at whole orders"
    return "rho" if any(isinstance(event, Zcdp) and event.rho > 0 for event in fixed) else "mu"


def counted(events: Iterable[Event], currency: Currency, slack: float) -> Gaussian | Zcdp:
    """What a study with these uploads counts as; `slack` is the leak that is granted where its kind does not add up.

    >>> counted([Gaussian(mu=0.3), Gaussian(mu=0.4)], "mu", 1e-8)
    Gaussian(mu=0.5, delta=0.0)
    >>> steps = Poisson(noise_multiplier=4.5, probability=0.1, steps=130)
    >>> round(counted([steps], "mu", 1e-8).mu, 3)
    0.506
    """
    uploads = Counter(events)
    own = math.fsum(event.delta * count for event, count in uploads.items())
    exact = [_exact(event, currency) for event in uploads]
    if None not in exact:
        rho = math.fsum(count * (each or 0.0) for count, each in zip(uploads.values(), exact, strict=True))
        return _of(rho, own, currency)
    mu = least_mu(frozenset(uploads.items()), slack)
    return _of(0.5 * mu * mu, own + slack, currency)


def together(parts: Iterable[Gaussian | Zcdp], currency: Currency) -> Gaussian | Zcdp:
    """All that was counted in a currency, as one.

    >>> together([Gaussian(mu=0.3, delta=1e-9), Gaussian(mu=0.4)], "mu")
    Gaussian(mu=0.5, delta=1e-09)
    """
    parts = tuple(parts)
    rho = math.fsum(0.5 * part.mu * part.mu if isinstance(part, Gaussian) else part.rho for part in parts)
    return _of(rho, math.fsum(part.delta for part in parts), currency)


def _of(rho: float, delta: float, currency: Currency) -> Gaussian | Zcdp:
    return Gaussian(mu=math.sqrt(2 * rho), delta=delta) if currency == "mu" else Zcdp(rho=rho, delta=delta)


def _exact(event: Event, currency: Currency) -> float | None:
    """The ρ of an event whose kind adds up in this currency, or None."""
    if isinstance(event, Gaussian):
        return 0.5 * event.mu * event.mu
    if isinstance(event, Poisson) and event.probability == 1:
        return 2 * event.steps / event.noise_multiplier / event.noise_multiplier
    if isinstance(event, Zcdp) and currency != "mu":
        return event.rho
    if isinstance(event, Skellam) and currency == "rho at whole orders":
        # sup over whole α ≥ 2 of the divergence over α, each of its two forms bounded by itself.
        squared, variance = event.l2 * event.l2, event.variance
        fine = squared / (2 * variance * variance) + 0.75 * event.l1 / (variance * variance)
        return event.releases * (squared / (2 * variance) + min(fine, 0.75 * event.l1 / variance))
    return None


@lru_cache(maxsize=256)
def least_mu(uploads: frozenset[tuple[Event, int]], slack: float) -> float:
    """The least μ, rounded up, with δ_study(ε) ≤ (1 − slack)·δ_μ(ε) + slack for all ε ≥ 0, in both directions.

    Then the study is a post-processing of one μ-Gaussian and a leak of this chance (Blackwell 1951).

    >>> round(least_mu(frozenset({(Poisson(noise_multiplier=4.5, probability=0.1, steps=10), 13)}), 1e-8), 3)
    0.506
    """
    import numpy as np
    from scipy.special import ndtr

    cap, (epsilons, deltas) = _cap(uploads), curve_of(uploads, slack)
    if not len(epsilons):
        return cap
    # Between two points both curves fall: the study's is at most its value at the left, the Gaussian's at least at the
    # right. From the last point on, the slack alone is enough.
    study, at = deltas[:-1], epsilons[1:]
    growth = np.exp(at)

    def covers(mu: float) -> bool:
        gaussian = ndtr(0.5 * mu - at / mu) - growth * ndtr(-0.5 * mu - at / mu)
        return bool(np.all(study <= (1 - slack) * (gaussian - 1e-15) + slack))

    low, high = 1e-9, 1e-9
    while not covers(high):
        low, high = high, 2 * high
        if high > min(cap, 1e6):
            return cap
    while high - low > 1e-7 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if covers(middle) else (middle, high)
    return min(cap, high * (1 + _ROUNDING))


def _cap(uploads: frozenset[tuple[Event, int]]) -> float:
    """A μ that is always enough: sampled steps without their sampling; infinite where there is none."""
    rhos = []
    for event, count in uploads:
        if isinstance(event, Poisson):
            event = Poisson(noise_multiplier=event.noise_multiplier, probability=1.0, steps=event.steps)
        rhos.append(count * (math.inf if (rho := _exact(event, "mu")) is None else rho))
    return math.sqrt(2 * math.fsum(rhos))


def curve_of(uploads: frozenset[tuple[Event, int]], slack: float) -> tuple[Any, Any]:
    """Points ε from 0 up to where δ is the slack, and upper bounds on the study's δ there; none where it can't be."""
    import numpy as np

    steps: Counter[tuple[float, float]] = Counter()
    mu_squared, whole = 0.0, False
    others: list[tuple[Zcdp | Skellam, int]] = []
    for event, count in uploads:
        if isinstance(event, Poisson) and event.probability < 1:
            steps[event.noise_multiplier, event.probability] += count * event.steps
        elif isinstance(event, Zcdp | Skellam):
            others.append((event, count))
            whole = whole or isinstance(event, Skellam)
        else:
            mu_squared += 2 * count * (_exact(event, "mu") or 0.0)
    if not others:
        return poisson.curve(steps, mu=math.sqrt(mu_squared), least=slack, points=POINTS)
    orders = np.arange(2.0, 514.0) if whole else 1 + np.geomspace(1e-2, 1e4, 512)
    divergences = np.array([_divergence(order, steps, mu_squared, others) for order in orders])
    # The inverse of the conversion of Canonne, Kamath and Steinke (2020), Proposition 12; every order alone is sound.
    above = orders - 1
    starts = above * (divergences + np.log1p(-1 / orders)) - np.log(orders)
    most = float(np.min((starts - math.log(slack)) / above))
    if not most < poisson.LARGEST_EPSILON:
        return np.empty(0), np.empty(0)
    epsilons = np.linspace(0.0, max(most, 0.0) * (1 + 1e-12) + 1e-300, POINTS)
    exponents = np.full(POINTS, 0.0)
    for start, slope in zip(starts, above, strict=True):
        np.minimum(exponents, start - slope * epsilons, out=exponents)
    return epsilons, np.exp(exponents)


def _divergence(
    order: float, steps: poisson.Steps, mu_squared: float, others: list[tuple[Zcdp | Skellam, int]]
) -> float:
    total = 0.5 * mu_squared * order + poisson.divergence(steps, order)
    for event, count in others:
        if isinstance(event, Zcdp):
            total += count * event.rho * order
        else:
            each = skellam_divergence(order, l1=event.l1, l2=event.l2, variance=event.variance)
            total += count * event.releases * each
    return total
