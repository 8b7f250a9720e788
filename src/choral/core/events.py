"""What a ledger records, as data, and the ε of any mixture of it: events that are not known are refused."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, get_args

from choral.core.errors import PlanError
from choral.core.plan import require_number, require_whole
from choral.core.zcdp import SMALLEST_DELTA, best_epsilon, epsilon_of_rho, gdp_epsilon, require_delta

_SMALLEST, _LARGEST = 1e-60, 1e60  # far beyond use, and their squares and products still are floats


def _require_useful(name: str, value: float, *, zero: bool = False) -> None:
    """Refuse a number that no mechanism has and with which arithmetic would overflow: as if the entry were damaged."""
    number = require_number(name, value, closed=zero)
    if not (_SMALLEST <= number <= _LARGEST or (zero and number == 0)):
        raise PlanError("CH200", f"{name} = {number:g}.", fix=f"Must be from {_SMALLEST:g} to {_LARGEST:g}.")


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """A mechanism no worse than telling N(0, 1) from N(μ, 1), except for δ (overflow, range, rounding).

    >>> epsilon_of([Gaussian(mu=0.6), Gaussian(mu=0.8)], 1e-5) == epsilon_of([Gaussian(mu=1.0)], 1e-5)
    True
    """

    kind: ClassVar[str] = "gaussian"
    mu: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        _require_useful("mu", self.mu, zero=True)
        require_number("delta", self.delta, below=1.0, closed=True)


@dataclass(frozen=True, kw_only=True)
class Zcdp:
    """A ρ-zCDP mechanism of which nothing more is known, such as distributed discrete noise.

    >>> round(epsilon_of([Zcdp(rho=0.25), Zcdp(rho=0.25)], 1e-5), 4)
    4.7284
    """

    kind: ClassVar[str] = "zcdp"
    rho: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        _require_useful("rho", self.rho, zero=True)
        require_number("delta", self.delta, below=1.0, closed=True)


@dataclass(frozen=True, kw_only=True)
class Poisson:
    """Gaussian steps on Poisson-sampled batches (Rule S5): z = noise·batch/clip, q = batch/rows.

    >>> round(epsilon_of([Poisson(noise_multiplier=1.196088, probability=0.1, steps=130)], 1e-4), 2)
    8.42
    """

    kind: ClassVar[str] = "poisson"
    noise_multiplier: float
    probability: float
    steps: int
    delta: float = 0.0

    def __post_init__(self) -> None:
        _require_useful("noise_multiplier", self.noise_multiplier)
        _require_useful("probability", self.probability)
        if self.probability > 1:
            raise PlanError("CH200", f"probability = {self.probability!r}.", fix="Must be at most 1.")
        require_whole("steps", self.steps)
        require_number("delta", self.delta, below=1.0, closed=True)


@dataclass(frozen=True, kw_only=True)
class Skellam:
    """Sums with Skellam noise of this variance in all, on integers with these sensitivities (Rule S6).

    >>> round(epsilon_of([Skellam(l1=100.0, l2=10.0, variance=1e4, releases=100)], 1e-5), 3)
    4.753
    """

    kind: ClassVar[str] = "skellam"
    l1: float
    l2: float
    variance: float
    releases: int = 1
    delta: float = 0.0

    def __post_init__(self) -> None:
        for name in ("l1", "l2", "variance"):
            _require_useful(name, getattr(self, name))
        require_whole("releases", self.releases)
        require_number("delta", self.delta, below=1.0, closed=True)


Event = Gaussian | Zcdp | Poisson | Skellam
_KINDS: dict[str, type[Event]] = {event.kind: event for event in get_args(Event)}


def to_dict(event: Event) -> dict[str, str | float]:
    """The event as plain values for JSON.

    >>> to_dict(Gaussian(mu=1.5))
    {'kind': 'gaussian', 'mu': 1.5, 'delta': 0.0}
    """
    return {"kind": event.kind, **asdict(event)}


def from_dict(values: Mapping[str, Any]) -> Event:
    """The event that `to_dict` wrote; a kind or a field that is not known is refused, since its cost is unknown.

    >>> from_dict({"kind": "zcdp", "rho": 0.5, "delta": 0.0})
    Zcdp(rho=0.5, delta=0.0)
    """
    kind = _KINDS.get(values.get("kind", ""))
    if kind is None:
        raise PlanError(
            "CH200",
            f"an event of unknown kind {values.get('kind')!r}; its cost is unknown.",
            fix=f"Known: {', '.join(_KINDS)}.",
        )
    names = {field.name for field in fields(kind)}
    given = {name: value for name, value in values.items() if name != "kind"}
    if given.keys() - names or names - {"delta", "releases"} - given.keys():
        raise PlanError(
            "CH200",
            f"a {kind.kind} event with the fields {', '.join(sorted(given))}.",
            fix=f"Must have {', '.join(sorted(names))}.",
        )
    return kind(**given)


def epsilon_of(events: Iterable[Event], delta: float) -> float:
    """ε at δ of all the events together, infinite when their own δ leaves nothing of it.

    Gaussians alone are exact; sampled steps are composed as privacy loss distributions; where a bare zCDP event is
    among them, everything is composed in Rényi or concentrated terms and converted optimally.

    >>> round(epsilon_of([Gaussian(mu=0.5), Poisson(noise_multiplier=2.0, probability=0.1, steps=50)], 1e-5), 2)
    3.71
    """
    require_delta(delta)
    rho, mu_squared, spent = 0.0, 0.0, 0.0
    steps: dict[tuple[float, float], int] = defaultdict(int)
    skellams: Counter[Skellam] = Counter()  # each kind once: what follows does not grow with the rounds of a run
    for event in events:
        spent += event.delta
        if isinstance(event, Gaussian):
            mu_squared += event.mu**2
        elif isinstance(event, Zcdp):
            rho += event.rho
        elif isinstance(event, Skellam):
            skellams[event] += 1
        elif event.probability == 1:
            mu_squared += 4 * event.steps / event.noise_multiplier**2
        else:
            steps[event.noise_multiplier, event.probability] += event.steps
    left = delta - spent
    if left < SMALLEST_DELTA:
        return math.inf
    if not (rho or skellams or steps):
        return gdp_epsilon(math.sqrt(mu_squared), left) if mu_squared > 0 else 0.0
    if not (steps or skellams):
        return epsilon_of_rho(rho + 0.5 * mu_squared, left)
    from choral.core import poisson  # it loads NumPy, without which the two cases above are planned

    if not (rho or skellams):
        return poisson.epsilon(steps, delta=left, mu=math.sqrt(mu_squared))
    rho += 0.5 * mu_squared

    def divergence(order: float) -> float:
        sums = math.fsum(
            count * (each.releases * skellam_divergence(order, l1=each.l1, l2=each.l2, variance=each.variance))
            for each, count in skellams.items()
        )
        return rho * order + poisson.divergence(steps, order) + sums

    return best_epsilon(divergence, left, whole_orders=bool(skellams))


def skellam_divergence(order: float, *, l1: float, l2: float, variance: float) -> float:
    """Rényi divergence at a whole order of a sum with Skellam noise (Agarwal, Kairouz, Liu 2021, Corollary 3.6).

    >>> round(skellam_divergence(2, l1=100.0, l2=10.0, variance=1e4), 9)
    0.01000225
    """
    if l1 < l2:
        raise PlanError("CH204", f"l1 = {l1:g} is below l2 = {l2:g}.", fix="No vector has a smaller l1 than l2 norm.")
    if not (2 <= order < math.inf and order == math.floor(order)):
        raise PlanError("CH200", f"order = {order!r}.", fix="The bound on Skellam noise holds for whole orders from 2.")
    squared = l2 * l2
    fine = ((2 * order - 1) * squared + 6 * l1) / (4 * variance * variance)
    return order * squared / (2 * variance) + min(fine, 1.5 * l1 / variance)
