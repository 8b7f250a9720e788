"""Poisson-sampled Gaussian steps (Rule S5): their privacy loss distribution and Rényi divergences.

One step, one record: N(1, z²) with probability q = batch/rows, else N(0, z²), against the same with −1; z is
noise·batch/clip. docs/accounting.md proves that this pair dominates, and that `Composed.deltas` are upper bounds in the
arithmetic that is done here ("Losses on a grid"): cells are rounded up, tails and the errors of transforms are added.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from choral.core.zcdp import best_epsilon, gdp_epsilon, root

Steps = Mapping[tuple[float, float], int]  # (noise multiplier z, probability q) -> number of steps

# The least of δ that is kept per step for what transforms may take; where their proven error is more, that is taken.
_LEAST_ERROR = 1e-15
_FINEST_GRID, _COARSEST_GRID = 2.0**-30, 2.0**-4
_MOST_POINTS = 2**24
# Below this the amplification is worth nothing (ε is in the thousands) and grids grow without bound.
_LEAST_NOISE = 0.02
LARGEST_EPSILON = 500.0  # of a curve: beyond it e^ε no longer fits a float, and no curve is of use
UNIT = 2.0**-53  # u: what one operation in float64 may be off by, relatively
_REACH = 13.0  # deviations of noise within which losses are laid on the grid; beyond them a loss counts as infinite
_TAIL = -60.0  # the logarithm of the mass that may lie outside the window of a transform, under the tilted law
_TILTED = tuple(0.5 * 1.2**power for power in range(24))  # slopes of the bounds on tails, in 1/deviation


@dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """The law of one step's privacy loss: probabilities of `lower`·width and of the points after it, and of infinity.

    `raise_by` is what floats may have taken from each loss: so much is added to a composed ε per step.
    """

    width: float
    lower: int
    probabilities: Any
    infinite: float
    raise_by: float

    @cached_property
    def points(self) -> Any:  # noqa: ANN401 - an array
        """The losses themselves, exact, since the width is a power of two."""
        return (self.lower + np.arange(len(self.probabilities))) * self.width

    def log_moment(self, tilt: float) -> float:
        """ln E[e^{tilt·loss}] over the finite losses."""
        terms = np.log(self.probabilities, where=self.probabilities > 0, out=np.full(len(self.points), -np.inf))
        terms += tilt * self.points
        top = float(np.max(terms))
        return top + math.log(float(np.sum(np.exp(terms - top))))


def _spans(z: float, q: float, x: Any) -> Any:  # noqa: ANN401 - an array
    """The privacy loss at x of one sampled step."""
    up, down = ((2 * side * x - 1) / (2 * z * z) for side in (1, -1))
    if q == 1:
        return up - down
    rest = math.log1p(-q)
    return np.logaddexp(rest, math.log(q) + up) - np.logaddexp(rest, math.log(q) + down)


def _places(z: float, q: float, losses: Any) -> Any:  # noqa: ANN401 - an array
    """Where one sampled step has these losses: x = z²(ℓ/2 + asinh((1−q)·sinh(ℓ/2)·e^{1/2z²}/q))."""
    if q == 1:
        return z * z * losses / 2
    half = np.abs(losses) / 2
    log_sinh = half + np.log(-np.expm1(-2 * half), where=half > 0, out=np.full(len(half), -np.inf)) - math.log(2)
    inner = log_sinh + math.log1p(-q) + 1 / (2 * z * z) - math.log(q)
    bent = np.where(
        inner < -1, np.arcsinh(np.exp(np.minimum(inner, 0))), np.logaddexp(inner, 0.5 * np.logaddexp(0, 2 * inner))
    )
    return z * z * (losses / 2 + np.copysign(bent, losses))


@lru_cache(maxsize=64)
def of_step(z: float, q: float, width: float) -> Losses:
    """One Poisson-sampled step, N(1, z²) with probability q against N(−1, z²), else N(0, z²), rounded up to the grid.

    The mass of each cell is shared between its two ends so that neither P nor Q gains or loses ("connect the dots",
    Doroshenko et al. 2022). What floats may take from a cell is added to it, at its upper end.

    >>> step = of_step(1.2, 0.1, 2.0**-6)
    >>> bool(0 < sum(step.probabilities) - 1 < 1e-12), step.infinite < 1e-30
    (True, True)
    """
    from scipy.special import ndtr

    highest = math.ceil(float(_spans(z, q, np.array([1 + _REACH * z]))[0]) / width)
    nodes = np.arange(-highest, highest + 1)
    places = _places(z, q, nodes * width)
    exact = (1 - q, q)

    def tails(side: float) -> tuple[Any, Any, Any]:
        """The mass above each place and below it, where noise is around 0 and around `side`, and their error."""
        steps = (places / z, (places - side) / z)
        above, below = (
            sum(share * ndtr(sign * at) for share, at in zip(exact, steps, strict=True)) for sign in (-1, 1)
        )
        # `ndtr` is within (y² + 8)u of the smaller tail, of which e^{−y²/2} is taken; a sum of two adds a few more.
        off = sum(share * ndtr(-np.abs(at)) * (at * at + 16) * UNIT for share, at in zip(exact, steps, strict=True))
        return above, below, off

    def cells(side: float) -> tuple[Any, Any]:
        """The mass between places that follow each other, by the smaller tails, and what it may be off by."""
        above, below, off = tails(side)
        mass = np.where(places[:-1] > 0, above[:-1] - above[1:], below[1:] - below[:-1])
        # Around 0 a difference of two sums that are not small is rounded by their last bits.
        larger = np.where(places[:-1] > 0, above[:-1], below[1:])
        return np.maximum(mass, 0), off[:-1] + off[1:] + 8 * UNIT * larger

    (mass, off), (other, other_off) = cells(1.0), cells(-1.0)
    mass = mass + off
    with np.errstate(over="ignore", invalid="ignore"):
        least = np.maximum(other - other_off, 0) * (1 - 8 * UNIT)
        left = mass - np.where(
            least > 0, np.exp(nodes[:-1] * width) * (1 - 4 * np.abs(nodes[:-1]) * width * UNIT) * least, 0
        )
    upper = np.clip(left / -math.expm1(-width) * (1 + 8 * UNIT), 0, mass)
    above, below, off = tails(1.0)
    probabilities = np.zeros(len(nodes))
    probabilities[1:] += upper
    probabilities[:-1] += mass - upper
    probabilities[0] += below[0] + off[0]
    missed = np.max(np.abs(_spans(z, q, places) - nodes * width))
    floats = 16 * UNIT * (1 + (2 * (1 + _REACH * z) + 1) / (2 * z * z) - math.log(q) - (math.log1p(-q) if q < 1 else 0))
    return Losses(
        width=width,
        lower=-highest,
        probabilities=probabilities * (1 + 4 * UNIT),
        infinite=float(above[-1] + off[-1]),
        raise_by=float(missed) + floats,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Composed:
    """So many steps of each kind together; δ at an ε, never too small, `floor` being the least that is added."""

    parts: tuple[tuple[Losses, int], ...]
    floor: float

    @property
    def steps(self) -> int:
        """How many steps there are in all."""
        return sum(count for _, count in self.parts)

    @cached_property
    def raised(self) -> float:
        """What floats may have taken from the losses of all steps."""
        return math.fsum(count * losses.raise_by for losses, count in self.parts)

    def log_moment(self, tilt: float) -> float:
        """ln E[e^{tilt·loss}] of all steps together, over finite losses."""
        return math.fsum(count * losses.log_moment(tilt) for losses, count in self.parts)

    def tilt_for(self, delta: float) -> float:
        """The tilt whose Chernoff bound gives the least ε at δ: around there, transforms lose least."""
        log_inverse = -math.log(delta)

        def bound(t: float) -> float:
            tilt = math.exp(t)
            return (self.log_moment(tilt) + log_inverse - math.log1p(tilt) + tilt * math.log(tilt / (1 + tilt))) / tilt

        best = min((0.7 * k for k in range(-8, 14)), key=bound)
        width = 0.7
        while width > 0.1:
            width /= 2
            best = min((best - width, best, best + width), key=bound)
        return math.exp(best)

    def tilted(self, tilt: float) -> "Tilted":
        """The law of the sum of losses, weighed by e^{tilt·loss}, by one transform for each kind of step."""
        width = self.parts[0][0].width
        first = sum(count * losses.lower for losses, count in self.parts)
        last = first + sum(count * (len(losses.probabilities) - 1) for losses, count in self.parts)
        moment = self.log_moment(tilt)
        spread = self._spread(tilt)
        low, high = first * width, last * width
        for slope in (each / spread for each in _TILTED):
            high = min(high, (self.log_moment(tilt + slope) - moment - _TAIL) / slope)
            low = max(low, -(self.log_moment(tilt - slope) - moment - _TAIL) / slope)
        start = max(first, math.floor(low / width) - 1)
        stop = min(last, math.ceil(high / width) + 1)
        size = 2 ** max(4, (stop - start).bit_length())
        levels = math.log2(size)
        product, lost, grown, slack = np.ones(size, complex), 0.0, 0.0, 0.0
        for losses, count in self.parts:
            own = losses.log_moment(tilt)
            law = losses.probabilities * np.exp(tilt * losses.points - own)
            slack += count * UNIT * (4 * tilt * float(np.max(np.abs(losses.points))) + 4 * abs(own) + 8)
            folded = np.zeros(-(-len(law) // size) * size)
            folded[: len(law)] = law
            folded = folded.reshape(-1, size).sum(axis=0)
            error = levels * 8 * UNIT * float(np.sqrt(np.sum(folded**2))) + 4 * UNIT
            lost, grown = lost + count * error, grown + count * math.log1p(math.sqrt(size) * error)
            product *= power(np.fft.fft(folded), count)
        found = np.fft.ifft(product)
        whole = float(np.sqrt(np.sum(np.abs(found) ** 2)))
        error = lost * math.exp(grown) + (4 * self.steps + 8 * levels) * UNIT * whole * 1.01
        return Tilted(
            tilt=tilt,
            width=width,
            start=start,
            law=np.maximum(np.roll(found.real, -((start - first) % size)), 0),
            log_scale=moment,
            error=error,
            slack=slack,
            infinite=-math.expm1(math.fsum(count * math.log1p(-losses.infinite) for losses, count in self.parts)),
            floor=self.floor,
        )

    def _spread(self, tilt: float) -> float:
        """The deviation of the tilted sum, or an upper bound on it: any slope of a tail is sound."""
        variance = 0.0
        for losses, count in self.parts:
            law = losses.probabilities * np.exp(tilt * losses.points - losses.log_moment(tilt))
            mean = float(np.sum(law * losses.points))
            variance += count * float(np.sum(law * (losses.points - mean) ** 2))
        return max(math.sqrt(variance), self.parts[0][0].width)


def power(values: Any, count: int) -> Any:  # noqa: ANN401 - an array
    """values^count by squaring: at most 2·count products, each off by √5·u.

    >>> power(2.0, 10)
    1024.0
    """
    result = None
    while True:
        if count % 2:
            result = values if result is None else result * values
        count //= 2
        if not count:
            return result
        values = values * values


@dataclass(frozen=True, kw_only=True, eq=False)
class Tilted:
    """A composed law under a tilt: `error` bounds its distance in L2 from the exact one, `slack` relative errors."""

    tilt: float
    width: float
    start: int
    law: Any
    log_scale: float
    error: float
    slack: float
    infinite: float
    floor: float

    @cached_property
    def _sums(self) -> tuple[Any, Any]:
        """Of every point on: the masses, weighed by e^{−tilt·x} and by e^{−(tilt+1)·x}, x from the start."""
        x = np.arange(len(self.law)) * self.width
        return _from_each_on(self.law * np.exp(-self.tilt * x)), _from_each_on(self.law * np.exp(-(self.tilt + 1) * x))

    def deltas(self, epsilons: Sequence[float] | Any) -> Any:  # noqa: ANN401 - an array
        """Upper bounds on δ at these ε."""
        at = np.asarray(epsilons, float)
        place = np.clip(np.floor(at / self.width) + 1 - self.start, 0, len(self.law)).astype(int)
        masses, others = self._sums
        ahead = at - self.start * self.width  # from the start of the window to ε
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            inside = np.maximum(masses[place] - np.exp(np.minimum(ahead, 700.0)) * others[place], 0)
            # Sums of positive terms in blocks, their difference, and weights whose exponents are rounded.
            rough = 4 * UNIT * (math.sqrt(len(self.law)) + 8) + 4 * UNIT * self.tilt * len(self.law) * self.width
            inside = inside + rough * 2 * masses[place] + 1e-304  # the last for weights that vanish in float64
            scale = self.log_scale - self.tilt * self.start * self.width
            inside = np.exp(np.minimum(scale + np.log(inside), 700.0))
            beyond = np.exp(np.minimum(self.log_scale - self.tilt * at, 700.0)) * self.lost
        exponents = abs(self.log_scale) + self.tilt * (abs(self.start * self.width) + np.abs(at))
        inside = inside * (1 + 8 * UNIT * (exponents + 8)) * math.exp(self.slack)
        return np.minimum(1.0, self.infinite + inside + np.maximum(beyond * math.exp(self.slack), self.floor))

    @cached_property
    def lost(self) -> float:
        """What the transforms' error and the tails outside the window can weigh, per e^{−tilt·ε}.

        The weights e^{−tilt·y}(1 − e^{−y}), y > 0, have a known sum of squares and a known largest value.
        """
        tilt, size = self.tilt, len(self.law)
        most = 1 / (1 + tilt) if tilt > 0 else 1.0
        squares = float(size)
        if tilt > 0:
            squares = min(squares, 1 / (self.width * tilt * (2 * tilt + 1) * (2 * tilt + 2)) + most * most)
        return math.sqrt(squares) * self.error + 2 * math.exp(_TAIL) * most


def _from_each_on(values: Any) -> Any:  # noqa: ANN401 - an array
    """The sums from each place to the end, and 0: in blocks, so that no sum is rounded often."""
    block = 2 ** (int(math.log2(len(values))) // 2)
    table = values.reshape(-1, block)
    within = np.cumsum(table[:, ::-1], axis=1)[:, ::-1]
    after = np.append(np.cumsum(within[::-1, 0])[::-1][1:], 0.0)
    return np.append((within + after[:, None]).ravel(), 0.0)


@lru_cache(maxsize=256)
def _spread(noise_multiplier: float, probability: float) -> float:
    """Root mean square of one step's privacy loss, which sets how fine its grid must be."""
    x = np.linspace(-1 - 12 * noise_multiplier, 1 + 12 * noise_multiplier, 4001)
    log_p, log_q = _log_densities(x, noise_multiplier, probability)
    weight = np.exp(log_p)
    return float(np.sqrt(np.sum(weight * (log_p - log_q) ** 2) / np.sum(weight)))


def _log_densities(x: Any, noise_multiplier: float, probability: float) -> tuple[Any, Any]:  # noqa: ANN401 - arrays
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


def _epsilon_below(most: float, whole: Composed, delta: float) -> float:
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


def composed(steps: Steps, mu: float, interval: float) -> Composed:
    """The losses of all steps and of a μ-Gaussian mechanism together, on a grid of this width."""
    parts = [(of_step(z, q, interval), count) for (z, q), count in steps.items()]
    if mu > 0:
        parts.append((of_step(2 / mu, 1.0, interval), 1))  # N(±1, z²) is μ-Gaussian for μ = 2/z
    return Composed(parts=tuple(parts), floor=_error(steps))


def renyi(noise_multiplier: float, probability: float, order: float) -> float:
    """Rényi divergence of one Poisson-sampled step at an order above 1, or more by what floats may lose (Rule S5).

    >>> round(renyi(2.0, 1.0, 3.0), 9)  # without sampling: order · (2/z)² / 2
    1.5
    """
    # Analytic up to ±πz² off the axis, where the mixture has its zeros: trapezoids converge geometrically.
    step = min(noise_multiplier / 4, noise_multiplier**2 / 2)
    low, high = -1 - 40 * noise_multiplier, 2 * order + 40 * noise_multiplier
    x, step = np.linspace(low, high, math.ceil((high - low) / step) + 1, retstep=True)
    log_p, log_q = _log_densities(x, noise_multiplier, probability)
    terms = order * log_p - (order - 1) * log_q
    # A logarithm of a density is off by a few units of the numbers that it is made of, whatever is left of them.
    sizes = 0.5 * ((np.abs(x) + 1) / noise_multiplier) ** 2 + abs(math.log(probability)) + 8
    terms += 4 * UNIT * (2 * order - 1) * (sizes + abs(math.log(noise_multiplier)))
    top = float(np.max(terms))
    whole = top + math.log(float(np.sum(np.exp(terms - top))) * float(step))
    return (whole + 4 * UNIT * (abs(top) + math.log2(len(x)))) / (order - 1)


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
