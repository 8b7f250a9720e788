"""Poisson-sampled Gaussian steps (Rule S5): their privacy loss distribution and Rényi divergences.

One step, one record: N(1, z²) with probability q = batch/rows, else N(0, z²), against the same with −1; z is
noise·batch/clip. docs/accounting.md proves that this pair dominates. Libraries load on first use only.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from choral.core import loss_grid
from choral.core.errors import PlanError
from choral.core.plan import require_number, require_whole
from choral.core.zcdp import best_epsilon, gdp_epsilon, root

Steps = Mapping[tuple[float, float], int]  # (noise multiplier z, probability q) -> number of steps

# The least of δ that is kept per step for what transforms may take; where their proven error is more, that is taken.
_LEAST_ERROR = 1e-15
_FINEST_GRID, _COARSEST_GRID = 2.0**-30, 2.0**-4
_MOST_POINTS = 2**24
# Below this the amplification is worth nothing (ε is in the thousands) and grids grow without bound.
_LEAST_NOISE = 0.02
LARGEST_EPSILON = 500.0  # of a curve: beyond it e^ε no longer fits a float, and no curve is of use


@lru_cache(maxsize=256)
def _spread(noise_multiplier: float, probability: float) -> float:
    """Root mean square of one step's privacy loss, which sets how fine its grid must be."""
    import numpy as np

    x = np.linspace(-1 - 12 * noise_multiplier, 1 + 12 * noise_multiplier, 4001)
    log_p, log_q = _log_densities(x, noise_multiplier, probability)
    weight = np.exp(log_p)
    return float(np.sqrt(np.sum(weight * (log_p - log_q) ** 2) / np.sum(weight)))


def _log_densities(x: Any, noise_multiplier: float, probability: float) -> tuple[Any, Any]:  # noqa: ANN401 - arrays
    import numpy as np

    rest = math.log1p(-probability) if probability < 1 else -math.inf
    rest = rest - 0.5 * (x / noise_multiplier) ** 2
    up, down = (math.log(probability) - 0.5 * ((x - side) / noise_multiplier) ** 2 for side in (1.0, -1.0))
    scale = math.log(noise_multiplier) + 0.5 * math.log(2 * math.pi)
    return np.logaddexp(rest, up) - scale, np.logaddexp(rest, down) - scale


def grid_width(steps: Steps, mu: float, fineness: float) -> float:
    """A grid width at which rounding up widens the composed loss by less than three parts in ten thousand."""
    variance = math.fsum(count * _spread(*step) ** 2 for step, count in steps.items()) + mu * mu
    # A grid adds at most a quarter of its squared width to the variance of each of the composed parts. For steps of one
    # kind it does not depend on their number, so that more steps never cost less.
    width = max(_FINEST_GRID, math.sqrt(variance / (sum(steps.values()) + (mu > 0))) / fineness)
    # A coarser grid is as sound, only wider: no step may need more room than a machine has.
    width = max(width, *(2 * (1 + 12 * z) / (z * z * _MOST_POINTS) for z, _ in steps), 0.0)
    # Powers of two, so that neighbours share their cached parts.
    return min(_COARSEST_GRID, 2.0 ** math.floor(math.log2(width)))


def _gaussian_cap(steps: Steps, mu: float) -> float:
    """The μ of the same steps without sampling, which always dominates them."""
    return math.sqrt(math.fsum(4 * count / (z * z) for (z, _), count in steps.items()) + mu * mu)


def epsilon(steps: Steps, *, delta: float, mu: float = 0.0, fineness: float = 25.0) -> float:
    """ε at δ of Poisson-sampled steps, composed with a μ-Gaussian mechanism (Rule S5).

    >>> round(epsilon({(0.004902 * 244, 0.1): 130}, delta=1e-4), 2)
    8.42
    """
    plain = gdp_epsilon(_gaussian_cap(steps, mu), delta)
    if any(z < _LEAST_NOISE for z, _ in steps):
        return plain
    if _error(steps) > 0.5 * delta:  # too small for transforms; moments have no such floor
        sampled = best_epsilon(lambda order: divergence(steps, order) + 0.5 * mu * mu * order, delta)
    else:
        interval = grid_width(steps, mu, fineness)
        sampled = _epsilon_below(plain, composed(steps, mu, interval), delta)
        if 0 < sampled < 64 * interval:  # few steps and a large δ: the answer itself is of the grid's size
            sampled = _epsilon_below(plain, composed(steps, mu, interval / 8), delta)
    return min(plain, sampled)


def _error(steps: Steps) -> float:
    """The least of δ that is kept for what transforms may take."""
    return _LEAST_ERROR * (10 + sum(steps.values()))


def _epsilon_below(most: float, whole: loss_grid.Composed, delta: float) -> float:
    """The least ε of composed losses at δ, up to a known bound."""
    law = whole.tilted(whole.tilt_for(delta))

    def excess(epsilon: float) -> float:
        return math.log(max(float(law.deltas([epsilon])[0]) / delta, 1e-3))

    if excess(most) >= 0:
        return most
    if excess(-whole.raised) <= 0:  # nothing is lost at this δ, even where floats have taken all that they may
        return 0.0
    found = root(excess, 0.0, most, tolerance=1e-12) * (1 + 1e-12) if excess(0.0) > 0 else 0.0
    return found + whole.raised


def curve(steps: Steps, *, mu: float, least: float, points: int) -> tuple[Any, Any]:
    """So many ε from 0 up to where δ is `least`, and upper bounds on δ there; none where transforms can't tell.

    >>> epsilons, deltas = curve({(4.5, 0.1): 130}, mu=0.0, least=1e-5, points=100)
    >>> round(float(epsilons[-1]), 2), bool(deltas[-1] <= 1e-5)
    (2.02, True)
    """
    import numpy as np

    if _error(steps) > 0.5 * least or any(z < _LEAST_NOISE for z, _ in steps):
        return np.empty(0), np.empty(0)
    whole = composed(steps, mu, grid_width(steps, mu, 25.0))
    most = _epsilon_below(LARGEST_EPSILON, whole, least)
    if most >= LARGEST_EPSILON:
        return np.empty(0), np.empty(0)
    epsilons = np.linspace(0.0, most, points)
    # Each tilt gives a bound at every ε, the best of them around the δ that it is for.
    tilts = [0.0, *(whole.tilt_for(delta) for delta in np.geomspace(0.1, least, 5))]
    below = epsilons - whole.raised
    deltas = np.minimum.reduce([whole.tilted(tilt).deltas(below) for tilt in tilts])
    return epsilons, deltas


def composed(steps: Steps, mu: float, interval: float) -> loss_grid.Composed:
    """The losses of all steps and of a μ-Gaussian mechanism together, on a grid of this width."""
    parts = [(loss_grid.of_step(z, q, interval), count) for (z, q), count in steps.items()]
    if mu > 0:
        parts.append((loss_grid.of_step(2 / mu, 1.0, interval), 1))  # N(±1, z²) is μ-Gaussian for μ = 2/z
    return loss_grid.Composed(parts=tuple(parts), floor=_error(steps))


def renyi(noise_multiplier: float, probability: float, order: float) -> float:
    """Rényi divergence of one Poisson-sampled step at an order above 1, or more by what floats may lose (Rule S5).

    >>> round(renyi(2.0, 1.0, 3.0), 9)  # without sampling: order · (2/z)² / 2
    1.5
    """
    import numpy as np

    # Analytic up to ±πz² off the axis, where the mixture has its zeros: trapezoids converge geometrically.
    step = min(noise_multiplier / 4, noise_multiplier**2 / 2)
    low, high = -1 - 40 * noise_multiplier, 2 * order + 40 * noise_multiplier
    x, step = np.linspace(low, high, math.ceil((high - low) / step) + 1, retstep=True)
    log_p, log_q = _log_densities(x, noise_multiplier, probability)
    terms = order * log_p - (order - 1) * log_q
    # A logarithm of a density is off by a few units of the numbers that it is made of, whatever is left of them.
    sizes = 0.5 * ((np.abs(x) + 1) / noise_multiplier) ** 2 + abs(math.log(probability)) + 8
    terms += 4 * loss_grid.UNIT * (2 * order - 1) * (sizes + abs(math.log(noise_multiplier)))
    top = float(np.max(terms))
    whole = top + math.log(float(np.sum(np.exp(terms - top))) * float(step))
    return (whole + 4 * loss_grid.UNIT * (abs(top) + math.log2(len(x)))) / (order - 1)


def divergence(steps: Steps, order: float) -> float:
    """Rényi divergence of all the steps at an order above 1 (Rule S5).

    >>> round(divergence({(2.0, 1.0): 4}, 3.0), 9)
    6.0
    """
    total = 0.0
    for (z, q), count in steps.items():
        # At such orders, or such small noise, sampling no longer helps, and the plain Gaussian is as good.
        plain = order > 50 + 4 * z * z * (1 - math.log(q)) or z < _LEAST_NOISE
        total += count * (2 * order / (z * z) if plain else renyi(z, q, order))
    return total


def require_steps(noise_multiplier: float, probability: float, steps: int) -> tuple[float, float, int]:
    """The three numbers of a sampled event, checked, or a PlanError that names the one at fault."""
    if isinstance(probability, bool) or not isinstance(probability, int | float) or not 0 < probability <= 1:
        raise PlanError("CH200", f"probability = {probability!r}.", fix="Must be a number above 0 and at most 1.")
    return require_number("noise_multiplier", noise_multiplier), float(probability), require_whole("steps", steps)
