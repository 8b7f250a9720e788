"""What a device has lost and may still lose, in memory: studies are reserved whole, and charged upload by upload.

Composing what somebody chooses after having seen results is no matter of loss distributions. So a study reserves all
that it can cost before its first upload. What was reserved before the ledger's first charge was chosen before anything
was seen, and is composed exactly; every later study counts as one Gaussian (or one ρ) and a leak, which add up whatever
is chosen next, and when. docs/accounting.md proves it ("Composition over runs"), docs/ledger.md says it in plain words.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

from choral.core.entries import Charge, Reservation
from choral.core.errors import LedgerError
from choral.core.events import Event, Gaussian, Poisson, Skellam, Zcdp, epsilon_of, skellam_divergence
from choral.core.exposure import ADJACENCY, EVERYONE, MIXED_ADJACENCY, SUMS
from choral.core.plan import Budget
from choral.core.printable import figures_up

Price = Gaussian | Zcdp | None  # what a study counts as; None where it is composed exactly
LEAK = 1 / 16  # the share of δ that is kept for the leaks of later studies, once there are any
_SLACKS = (1 / 32, 1 / 4)  # of that share, what a later study may take to be covered by a Gaussian


@dataclass(kw_only=True, eq=False)
class ReservedStudy:
    """A reservation and what was charged of it; `counted` is None in the fixed part, which is composed exactly."""

    plan: str
    uploads: tuple[Event, ...]
    counted: Price
    open: bool  # False: a charge that reserved only itself, or what a ledger of version 1 holds
    charged: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.left = Counter(self.uploads) - Counter(self.charged)


class PrivacyFilter:
    """What studies have reserved and made, by the events that one adversary sees: a privacy filter, by itself.

    So the claim against each adversary holds however studies are chosen.
    """

    def __init__(self, adversary: str, limit: Budget, *, by_version_1: bool) -> None:
        self.adversary = adversary
        self._reserved: float | None = None
        self.studies: list[ReservedStudy] = []
        self._by_version_1 = by_version_1
        self._charged: list[tuple[str, Event]] = []  # each charge's plan and event
        self.set_limit(limit)

    def set_limit(self, limit: Budget) -> None:
        """Set another limit; what was reserved and spent stays."""
        self.limit, self._reserved = limit, None

    @property
    def reserved(self) -> float:
        """ε at the limit's δ of everything that is reserved, used or not: the figure that is proved."""
        if self._reserved is None:
            self._reserved = self._composed(self._fixed, self._later) if self.studies else self.spent()
        return self._reserved

    def spent(self, *more: Event) -> float:
        """ε of what was charged, and of further charges of the fixed part.

        It is proved if nobody chose by results where to stop.
        """
        if not self.studies:
            return epsilon_of([*(event for _, event in self._charged), *more], self.limit.delta)
        used = [study for study in self.studies if study.charged]
        fixed = [event for study in used if study.counted is None for event in study.charged]
        return self._composed([*fixed, *more], [study.counted for study in used if study.counted is not None])

    def with_study(self, plan: str, uploads: tuple[Event, ...]) -> tuple[float, Price]:
        """ε of all reservations with one more, and what that one counts as; None while the fixed part is still open."""
        if self._fixes(plan):
            return self._composed([*self._fixed, *uploads], []), None
        fixed, later = self._fixed, self._later
        prices = [counted(uploads, currency_of(fixed), share * LEAK * self.limit.delta) for share in _SLACKS]
        small, large = (self._composed(fixed, [*later, price]) for price in prices)
        # Computed before the first upload, so either may be taken; the larger leak only where it is worth it.
        return (large, prices[1]) if large < 0.99 * small else (small, prices[0])

    @property
    def _fixed(self) -> list[Event]:
        return [event for study in self.studies if study.counted is None for event in study.uploads]

    @property
    def _later(self) -> list[Gaussian | Zcdp]:
        return [study.counted for study in self.studies if study.counted is not None]

    def _fixes(self, plan: str) -> bool:
        """Whether what this plan reserves now was settled before anything was seen.

        A ledger of version 1 with a single plan goes on with it: its rounds were all of one kind, up to the limit.
        """
        if not self._charged:
            return True
        went_on = self._by_version_1 and not self._later and not any(study.open for study in self.studies)
        return went_on and all(charged == plan for charged, _ in self._charged)

    def _composed(self, fixed: list[Event], later: list[Gaussian | Zcdp]) -> float:
        delta = self.limit.delta
        if not later:
            return epsilon_of(fixed, delta)
        # Leaks have a separate share of δ: who could trade them for μ² would have both, each where it pays.
        whole = together(later, currency_of(self._fixed))
        if whole.delta > LEAK * delta:
            return math.inf
        return epsilon_of([*fixed, replace(whole, delta=0.0)], (1 - LEAK) * delta)

    def study_of(self, plan: str, event: Event) -> ReservedStudy | None:
        """The study of a plan that has reserved such an upload and not made it yet."""
        return next((one for one in self.studies if one.open and one.plan == plan and one.left[event] > 0), None)

    def reserve(self, plan: str, uploads: tuple[Event, ...], price: Price) -> None:
        """Note a study; without a price, what it counts as is computed again."""
        self._add(ReservedStudy(plan=plan, uploads=uploads, counted=price or self._price(plan, uploads), open=True))

    def count(self, plan: str, event: Event, price: Price) -> None:
        """Note a charge: as one of a study's uploads, or as its own study."""
        if (study := self.study_of(plan, event)) is not None:
            study.left[event] -= 1
            study.charged.append(event)
        elif not self._by_version_1 or self.studies:
            price = price or self._price(plan, (event,))
            self._add(ReservedStudy(plan=plan, uploads=(event,), counted=price, open=False, charged=[event]))
        self._charged.append((plan, event))

    def unused(self, plan: str) -> list[ReservedStudy]:
        """What can be given back of a plan: nothing of it was charged, and nobody counts on its being fixed."""
        mine = (study for study in self.studies if study.plan == plan and study.open and not study.charged)
        return [study for study in mine if study.counted is not None or not self._charged]

    def release(self, plan: str) -> None:
        """Give back what a plan reserved and can give back."""
        unused = self.unused(plan)
        self.studies, self._reserved = [study for study in self.studies if study not in unused], None

    def adopt(self) -> None:
        """Go on with the charges of version 1: the first plan's are the fixed part, every other plan is a study."""
        self._by_version_1 = bool(self._charged)
        plans: dict[str, list[Event]] = {}
        for plan, event in self._charged if not self.studies else ():
            plans.setdefault(plan, []).append(event)
        for plan, charged in plans.items():
            price = self.with_study(plan, tuple(charged))[1] if self.studies else None
            self._add(ReservedStudy(plan=plan, uploads=tuple(charged), counted=price, open=False, charged=charged))

    def _price(self, plan: str, uploads: tuple[Event, ...]) -> Price:
        return None if self._fixes(plan) else self.with_study(plan, uploads)[1]

    def _add(self, study: ReservedStudy) -> None:
        self.studies.append(study)
        self._reserved = None


class Balance:
    """A device's limits, reservations and charges, in memory: what a ledger is without its file.

    There is one limit for each adversary that a limit is about, and an upload must stay within all of them. Where
    nothing better is proved against a server that sees only sums, an upload counts there with the same event.

    >>> balance = Balance(device="site-a", limit=Budget(epsilon=1.0, delta=1e-5))
    >>> balance.reserve(Reservation(rule="S1", plan="9f3c", uploads=(Gaussian(mu=0.15),) * 3))
    >>> balance.take(Charge(rule="S1", plan="9f3c", round=1, event=Gaussian(mu=0.15), summed=Gaussian(mu=0.05)))
    >>> round(balance.epsilon, 4), round(balance.reserved, 4), round(balance.against(SUMS).spent(), 4)
    (0.5299, 0.9663, 0.16)
    """

    def __init__(
        self, *, device: str, limit: Budget, sum_epsilon: float | None = None, by_version_1: bool = False
    ) -> None:
        self.device = device
        self.charges: list[Charge] = []
        self.by_version_1 = by_version_1
        self.adopted = False  # whether charges of version 1 go on by the present rule
        self._seen: set[tuple[str, int, int]] = set()
        self._made: Counter[tuple[str, int | None]] = Counter()  # charges of a plan, and of each of its rounds
        self._filters: dict[str, PrivacyFilter] = {}
        self._happened: list[Callable[[PrivacyFilter], object]] = []  # what a filter that is asked for late has missed
        self.set_limit(limit, sum_epsilon)

    def set_limit(self, limit: Budget, sum_epsilon: float | None = None) -> None:
        """Set all limits; δ is one for all of them, and the sum has a limit only if one is given."""
        self.limits = {EVERYONE: limit}
        if sum_epsilon is not None:
            self.limits[SUMS] = replace(limit, epsilon=sum_epsilon)
        for adversary, kept in self._filters.items():
            kept.set_limit(self.limits.get(adversary, limit))

    @property
    def limit(self) -> Budget:
        """The limit against everyone."""
        return self.limits[EVERYONE]

    @property
    def sum_epsilon(self) -> float | None:
        """The limit against a server that sees only sums, where there is one."""
        return self.limits[SUMS].epsilon if SUMS in self.limits else None

    def against(self, adversary: str) -> PrivacyFilter:
        """What counts against one adversary: kept from the start where it has a limit, else from when it is asked for.

        >>> Balance(device="site-a", limit=Budget(epsilon=1.0, delta=1e-5)).against(SUMS).reserved
        0.0
        """
        if adversary not in self._filters:
            made = PrivacyFilter(adversary, self.limits.get(adversary, self.limit), by_version_1=self.by_version_1)
            self._filters[adversary] = made
            for happened in self._happened:
                happened(made)
        return self._filters[adversary]

    @property
    def _limiting(self) -> list[PrivacyFilter]:
        return [self.against(adversary) for adversary in self.limits]

    def _note(self, happened: Callable[[PrivacyFilter], object]) -> None:
        for kept in {*self._limiting, *self._filters.values()}:
            happened(kept)
        self._happened.append(happened)

    @property
    def reserved(self) -> float:
        """ε against everyone of everything that is reserved, used or not: the figure that is proved."""
        return self.against(EVERYONE).reserved

    @property
    def epsilon(self) -> float:
        """ε against everyone of what was charged so far."""
        return self.against(EVERYONE).spent()

    @property
    def open_plans(self) -> tuple[str, ...]:
        """The plans with a reservation, in the order of their first."""
        return tuple(dict.fromkeys(study.plan for study in self.against(EVERYONE).studies if study.open))

    def left_of(self, plan: str) -> Counter[Event]:
        """The uploads of a plan that are reserved and not charged yet, each as often as it may still be made."""
        open_ones = [study.left for study in self.against(EVERYONE).studies if study.plan == plan and study.open]
        return sum(open_ones, Counter())

    def charges_of(self, plan: str, round_number: int | None = None) -> int:
        """How many charges a plan has, or one of its rounds; the work of asking does not grow with the ledger."""
        return self._made[plan, round_number]

    def uploads_of(self, plan: str) -> int:
        """How many uploads a plan has reserved or made, in all."""
        return sum(len(study.uploads) for study in self.against(EVERYONE).studies if study.plan == plan)

    # Reservations

    def reserve(self, reservation: Reservation) -> None:
        """Reserve a study's uploads, or refuse them and stay as before."""
        self.admit(reservation, self.admissible(reservation))

    def admissible(self, reservation: Reservation) -> dict[str, Price]:
        """What a reservation would count as by each limit (None: composed exactly), or CH401 or CH408 beyond one."""
        prices = {}
        for kept in self._limiting:
            after, prices[kept.adversary] = kept.with_study(*_shown(reservation, kept))
            if not after <= kept.limit.epsilon:  # so that NaN is refused too
                raise self._beyond(f"the study's {len(reservation.uploads)} uploads", after, reservation, kept)
        return prices

    def within(self, reservation: Reservation, *, slack: float = 1.0) -> bool:
        """Whether a reservation stays within all limits, each stretched by this factor."""
        fits = (kept.with_study(*_shown(reservation, kept))[0] <= kept.limit.epsilon * slack for kept in self._limiting)
        return all(fits)

    def affordable(self, reservation: Reservation) -> int:
        """How many of the uploads, from the first on, all limits can pay for."""
        low, high = 0, len(reservation.uploads) + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.within(reservation.first(middle)) else (low, middle)
        return low

    def admit(self, reservation: Reservation, prices: Mapping[str, Price]) -> None:
        """Note a reservation that was admissible, with what it counts as."""
        self._note(lambda kept: kept.reserve(*_shown(reservation, kept), prices.get(kept.adversary)))

    def release(self, plan: str) -> None:
        """Give back what a plan reserved and can give back."""
        self._note(lambda kept: kept.release(plan))

    # Charges

    def check(self, charge: Charge) -> None:
        """Refuse a charge that was made already (CH405), is not reserved (CH409) or beyond a limit (CH401, CH408)."""
        if (charge.plan, charge.round, charge.attempt) in self._seen:
            raise LedgerError(
                "CH405",
                f"device {self.device} refuses round {charge.round}: attempt {charge.attempt} of this plan was charged "
                "already. Nothing was sent.",
                why="One charge pays for one upload.", fix="Ask again with the next attempt, and fresh noise.",
            )  # fmt: skip
        for kept in self._limiting:
            plan, uploads = _shown(charge, kept)
            if kept.study_of(plan, *uploads) is None:
                if plan in self.open_plans:
                    raise self._used_up(charge)
                after = kept.with_study(plan, uploads)[0]
            elif kept.reserved <= kept.limit.epsilon:
                continue
            else:  # the limit was lowered after the reservation
                after = kept.spent(*uploads)
            if not after <= kept.limit.epsilon:  # so that NaN is refused too
                raise self._beyond(f"round {charge.round}", after, charge, kept)

    def prices_of(self, charge: Charge) -> dict[str, Price]:
        """What a charge that nobody has reserved counts as by each limit; None where it is reserved or the first."""
        seen = {kept: _shown(charge, kept) for kept in self._limiting}
        return {
            kept.adversary: None if kept.study_of(plan, *uploads) is not None else kept.with_study(plan, uploads)[1]
            for kept, (plan, uploads) in seen.items()
        }

    def take(self, charge: Charge) -> None:
        """Count a charge, or refuse it and stay as before."""
        self.check(charge)
        self.count(charge, self.prices_of(charge))

    def count(self, charge: Charge, prices: Mapping[str, Price]) -> None:
        """Note a charge without checking it: what was charged was sent."""

        def happened(kept: PrivacyFilter) -> None:
            plan, (event,) = _shown(charge, kept)
            kept.count(plan, event, prices.get(kept.adversary))

        self._note(happened)
        self._seen.add((charge.plan, charge.round, charge.attempt))
        self._made.update([(charge.plan, None), (charge.plan, charge.round)])
        self.charges.append(charge)

    def adopt(self) -> None:
        """Go on with the charges of version 1, where there are any, by the present rule."""
        self.adopted = True
        if self.by_version_1:
            self._note(PrivacyFilter.adopt)
            self.by_version_1 = bool(self.charges)

    def _beyond(self, what: str, after: float, entry: Charge | Reservation, kept: PrivacyFilter) -> LedgerError:
        adjacency = shared([*(charge.adjacency for charge in self.charges), entry.adjacency])
        held = "spent" if kept.reserved <= kept.spent() else "reserved"
        against = SUMS if kept.adversary == SUMS else entry.adversary
        error = LedgerError(
            "CH401",
            f"device {self.device} refuses {what}: it has {held} ε = {figures_up(kept.reserved, 4)} of "
            f"{kept.limit.epsilon:.4g}; this would make {figures_up(after, 4)} (δ = {kept.limit.delta:.3g}, "
            f"{adjacency}, rule {entry.rule}, against {against}).",
            why="Nothing was sent.",
            fix="Only the data owner can raise the limit.",
        )
        return LedgerError("CH408", error.what, why=error.why, fix=error.fix) if kept.adversary == SUMS else error

    def _used_up(self, charge: Charge) -> LedgerError:
        studies = self.against(EVERYONE).studies
        reserved = sum(len(study.uploads) for study in studies if study.open and study.plan == charge.plan)
        return LedgerError(
            "CH409",
            f"device {self.device} refuses round {charge.round}: the study reserved {reserved} uploads, and this one "
            "is not among those that are left.",
            why="Nothing was sent.",
            fix="What was approved is used up. More of it takes another study, and another approval.",
        )


def _shown(entry: Charge | Reservation, kept: PrivacyFilter) -> tuple[str, tuple[Event, ...]]:
    """The plan of an entry, and its uploads as the adversary sees them."""
    return entry.plan, entry.uploads_against(kept.adversary)


def shared(adjacencies: Iterable[str]) -> str:
    """What charges of these adjacencies cover together: where they differ, what every one of them covers."""
    different = set(adjacencies) or {ADJACENCY}
    return different.pop() if len(different) == 1 else MIXED_ADJACENCY


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

    from choral.core import poisson  # like NumPy for curves alone: a ledger is read and charged without them

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

    def divergence(order: float) -> float:
        total = 0.5 * mu_squared * order + poisson.divergence(steps, order)
        for event, count in others:
            if isinstance(event, Zcdp):
                total += count * event.rho * order
            else:
                each = skellam_divergence(order, l1=event.l1, l2=event.l2, variance=event.variance)
                total += count * event.releases * each
        return total

    divergences = np.array([divergence(order) for order in orders])
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
