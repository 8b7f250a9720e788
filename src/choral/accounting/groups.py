"""What several rows of one person cost together, where the unit of privacy is one record.

docs/accounting.md proves the bounds ("Several rows of one person").
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from choral.core.events import Event, Gaussian, Poisson, Zcdp, epsilon_of
from choral.core.plan import require_whole
from choral.core.zcdp import SMALLEST_DELTA

EXAMPLE = 5  # rows of one person, where nobody asks for another number


def of_rows(events: Sequence[Event], rows: int, delta: float) -> float:
    """ε at δ of events for so many records replaced together; the events' own δ are for one record and not counted.

    A μ-Gaussian for one record is a kμ-Gaussian for k of them, and ρ-zCDP becomes k²ρ-zCDP. Of other events it is only
    used that (ε, δ) for one record is (kε, δ(e^{kε} − 1)/(e^ε − 1)) for k of them.

    >>> events = [Gaussian(mu=0.1)]
    >>> of_rows(events, 5, 1e-5) == epsilon_of([Gaussian(mu=0.5)], 1e-5)
    True
    >>> sampled = [Poisson(noise_multiplier=5.0, probability=0.1, steps=130)]
    >>> round(epsilon_of(sampled, 1e-5), 2), round(of_rows(sampled, 5, 1e-5), 1)
    (1.8, 13.9)
    """
    rows, events = require_whole("rows", rows), [replace(event, delta=0.0) for event in events]
    if rows == 1:
        return epsilon_of(events, delta)
    if all(isinstance(event, Gaussian | Zcdp) for event in events):
        return epsilon_of([_scaled(event, rows) for event in events], delta)
    plain = [_scaled(event, rows) for event in map(_unsampled, events)]
    bounds = [_by_steps(events, rows, delta)]
    if all(isinstance(event, Gaussian | Zcdp) for event in plain):
        bounds.append(epsilon_of(plain, delta))
    return min(bounds)


def at_two_sites(events: Sequence[Event], delta: float) -> float:
    """ε at δ for a person with one record at each of two sites, of which each has these events.

    >>> at_two_sites([Gaussian(mu=0.3)], 1e-5) == epsilon_of([Gaussian(mu=0.3 * 2**0.5)], 1e-5)
    True
    """
    return epsilon_of([*events, *events], delta)


def _unsampled(event: Event) -> Event:
    """A sampled event without its sampling, which costs no less."""
    if isinstance(event, Poisson):
        return Gaussian(mu=2 * math.sqrt(event.steps) / event.noise_multiplier)
    return event


def _scaled(event: Event, rows: int) -> Event:
    if isinstance(event, Gaussian):
        return Gaussian(mu=rows * event.mu)
    return Zcdp(rho=rows**2 * event.rho) if isinstance(event, Zcdp) else event


def _by_steps(events: Sequence[Event], rows: int, delta: float) -> float:
    """The least kε₁ for which δ₁(e^{kε₁} − 1)/(e^{ε₁} − 1) ≤ δ, where δ₁ is what the events have at ε₁."""

    def tried(less: float) -> tuple[float, bool]:
        """ε₁ at δ·e^{−less}, and whether that is enough: every one that is gives a bound."""
        one = epsilon_of(events, delta * math.exp(-less))
        grown = (rows - 1) * one + math.log(-math.expm1(-rows * one) / -math.expm1(-one)) if one > 0 else math.log(rows)
        return one, grown <= less

    low, high = 0.0, 1.0
    while not tried(high)[1]:
        low, high = high, 2 * high
        if delta * math.exp(-high) < 4 * SMALLEST_DELTA:
            return math.inf
    while high - low > 2e-3 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if tried(middle)[1] else (middle, high)
    return rows * tried(high)[0]
