"""What a device has lost and may still lose, in memory: studies are reserved whole, and charged upload by upload.

Composing what somebody chooses after having seen results is no matter of loss distributions. So a study reserves all
that it can cost before its first upload. What was reserved before the ledger's first charge was chosen before anything
was seen, and is composed exactly; every later study counts as one Gaussian (or one ρ) and a leak, which add up whatever
is chosen next. docs/accounting.md proves it, docs/ledger.md says it in plain words.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from choral.core.cover import counted, currency_of, together
from choral.core.display import figures_up
from choral.core.entries import Charge, Reservation
from choral.core.errors import LedgerError
from choral.core.events import Event, Gaussian, Zcdp, epsilon_of
from choral.core.exposure import ADJACENCY, EVERYONE, MIXED_ADJACENCY, SUMS
from choral.core.plan import Budget

LEAK = 1 / 16  # the share of δ that is kept for the leaks of later studies, once there are any
_SLACKS = (1 / 32, 1 / 4)  # of that share, what a later study may take to be covered by a Gaussian


@dataclass(kw_only=True, eq=False)
class ReservedStudy:
    """A reservation and what was charged of it; `counted` is None in the fixed part, which is composed exactly."""

    plan: str
    uploads: tuple[Event, ...]
    counted: Gaussian | Zcdp | None
    open: bool  # False: a charge that reserved only itself, or what a ledger of version 1 holds
    charged: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.left = Counter(self.uploads) - Counter(self.charged)


class Balance:
    """A device's limit, reservations and charges, in memory: what a ledger is without its file.

    >>> balance = Balance(device="site-a", limit=Budget(epsilon=1.0, delta=1e-5))
    >>> balance.reserve(Reservation(rule="S1", plan="9f3c", uploads=(Gaussian(mu=0.15),) * 3))
    >>> balance.take(Charge(rule="S1", plan="9f3c", round=1, event=Gaussian(mu=0.15)))
    >>> round(balance.epsilon, 4), round(balance.reserved, 4)
    (0.5299, 0.9663)
    """

    def __init__(self, *, device: str, limit: Budget) -> None:
        self.device = device
        self.charges: list[Charge] = []
        self.studies: list[ReservedStudy] = []
        self.by_version_1 = False  # whether the charges were composed by the rule of version 1, which is not proved
        self._limit = limit
        self._seen: set[tuple[str, int, int]] = set()
        self._made: Counter[tuple[str, int | None]] = Counter()  # charges of a plan, and of each of its rounds
        self._reserved: float | None = None

    @property
    def limit(self) -> Budget:
        """The most that the device's records may lose."""
        return self._limit

    @limit.setter
    def limit(self, limit: Budget) -> None:
        """Set another limit; what was reserved and spent stays."""
        self._limit, self._reserved = limit, None

    @property
    def reserved(self) -> float:
        """ε at the limit's δ of everything that is reserved, used or not: the figure that is proved."""
        if self._reserved is None:
            self._reserved = self._composed(self._fixed, self._later) if self.studies else self._running()
        return self._reserved

    @property
    def epsilon(self) -> float:
        """ε of what was charged so far: what is proved if nobody chose by results where to stop."""
        return self._running()

    def epsilon_with(self, event: Event) -> float:
        """The proved ε after one more event that nobody has reserved; nothing is charged."""
        return self._with("", (event,))[0]

    @property
    def open_plans(self) -> tuple[str, ...]:
        """The plans with a reservation, in the order of their first."""
        return tuple(dict.fromkeys(study.plan for study in self.studies if study.open))

    def left_of(self, plan: str) -> Counter[Event]:
        """The uploads of a plan that are reserved and not charged yet, each as often as it may still be made."""
        open_ones = [study.left for study in self.studies if study.plan == plan and study.open]
        return sum(open_ones, Counter())

    def charges_of(self, plan: str, round_number: int | None = None) -> int:
        """How many charges a plan has, or one of its rounds; the work of asking does not grow with the ledger."""
        return self._made[plan, round_number]

    def uploads_of(self, plan: str) -> int:
        """How many uploads a plan has reserved or made, in all."""
        return sum(len(study.uploads) for study in self.studies if study.plan == plan)

    # Composition

    @property
    def _fixed(self) -> list[Event]:
        return [event for study in self.studies if study.counted is None for event in study.uploads]

    @property
    def _later(self) -> list[Gaussian | Zcdp]:
        return [study.counted for study in self.studies if study.counted is not None]

    def _with(self, plan: str, uploads: tuple[Event, ...]) -> tuple[float, Gaussian | Zcdp | None]:
        """ε of all reservations with one more, and what that one counts as; None while the fixed part is still open."""
        if self._fixes(plan):
            return self._composed([*self._fixed, *uploads], []), None
        fixed, later = self._fixed, self._later
        prices = [counted(uploads, currency_of(fixed), share * LEAK * self.limit.delta) for share in _SLACKS]
        small, large = (self._composed(fixed, [*later, price]) for price in prices)
        # Computed before the first upload, so either may be taken; the larger leak only where it is worth it.
        return (large, prices[1]) if large < 0.99 * small else (small, prices[0])

    def _fixes(self, plan: str) -> bool:
        """Whether what this plan reserves now was settled before anything was seen.

        A ledger of version 1 with a single plan goes on with it: its rounds were all of one kind, up to the limit.
        """
        if not self.charges:
            return True
        went_on = self.by_version_1 and not self._later and not any(study.open for study in self.studies)
        return went_on and all(charge.plan == plan for charge in self.charges)

    def _composed(self, fixed: list[Event], later: list[Gaussian | Zcdp]) -> float:
        delta = self.limit.delta
        if not later:
            return epsilon_of(fixed, delta)
        # Leaks have a separate share of δ: who could trade them for μ² would have both, each where it pays.
        whole = together(later, currency_of(self._fixed))
        if whole.delta > LEAK * delta:
            return math.inf
        return epsilon_of([*fixed, replace(whole, delta=0.0)], (1 - LEAK) * delta)

    def _running(self, *more: Event) -> float:
        """ε of the charges alone, and of further ones of the fixed part."""
        if not self.studies:
            return epsilon_of([*(charge.event for charge in self.charges), *more], self.limit.delta)
        used = [study for study in self.studies if study.charged]
        fixed = [event for study in used if study.counted is None for event in study.charged]
        return self._composed([*fixed, *more], [study.counted for study in used if study.counted is not None])

    # Reservations

    def epsilon_of_reservation(self, reservation: Reservation) -> float:
        """The proved ε with one more reservation; nothing is reserved."""
        return self._with(reservation.plan, reservation.uploads)[0]

    def admissible(self, reservation: Reservation) -> Gaussian | Zcdp | None:
        """What a reservation would count as (None: composed exactly), or CH401 or CH408 beyond the limit."""
        after, price = self._with(reservation.plan, reservation.uploads)
        if not after <= self.limit.epsilon:  # so that NaN is refused too
            raise self._beyond(f"the study's {len(reservation.uploads)} uploads", after, reservation)
        return price

    def reserve(self, reservation: Reservation) -> None:
        """Reserve a study's uploads, or refuse them and stay as before."""
        self.admit(reservation, self.admissible(reservation))

    def affordable(self, reservation: Reservation) -> int:
        """How many of the uploads, from the first on, the limit can pay for."""
        low, high = 0, len(reservation.uploads) + 1
        while high - low > 1:
            middle = (low + high) // 2
            fits = self._with(reservation.plan, reservation.uploads[:middle])[0] <= self.limit.epsilon
            low, high = (middle, high) if fits else (low, middle)
        return low

    def releasable(self, plan: str) -> bool:
        """Whether a reservation can be given back: nothing of it was charged, and nobody counts on its being fixed."""
        mine = [study for study in self.studies if study.plan == plan and study.open]
        return any(self._unused(study) for study in mine)

    def release(self, plan: str) -> None:
        """Give back what a plan reserved and can give back."""
        self.studies = [study for study in self.studies if not (study.plan == plan and self._unused(study))]
        self._reserved = None

    def _unused(self, study: ReservedStudy) -> bool:
        return study.open and not study.charged and (study.counted is not None or not self.charges)

    def admit(self, reservation: Reservation, price: Gaussian | Zcdp | None) -> None:
        """Note a reservation that was admissible, with what it counts as; without a price that is computed again."""
        plan, uploads = reservation.plan, reservation.uploads
        if price is None:
            price = self._with(plan, uploads)[1]
        self.studies.append(ReservedStudy(plan=plan, uploads=uploads, counted=price, open=True))
        self._reserved = None

    def adopt(self) -> None:
        """Go on with the charges of version 1: the first plan's are the fixed part, every other plan is a study."""
        if self.studies or not self.charges:
            self.by_version_1 = bool(self.charges)
            return
        plans: dict[str, list[Event]] = {}
        for charge in self.charges:
            plans.setdefault(charge.plan, []).append(charge.event)
        for plan, charged in plans.items():
            price = self._with(plan, tuple(charged))[1] if self.studies else None
            study = ReservedStudy(plan=plan, uploads=tuple(charged), counted=price, open=False, charged=charged)
            self.studies.append(study)
        self._reserved = None

    # Charges

    def check(self, charge: Charge) -> None:
        """Refuse a charge that was made already (CH405), is not reserved (CH409) or beyond the limit (CH401, CH408)."""
        if (charge.plan, charge.round, charge.attempt) in self._seen:
            raise LedgerError(
                "CH405",
                f"device {self.device} refuses round {charge.round}: attempt {charge.attempt} of this plan was charged "
                "already. Nothing was sent.",
                why="One charge pays for one upload.", fix="Ask again with the next attempt, and fresh noise.",
            )  # fmt: skip
        if self._study_of(charge) is None:
            if charge.plan in self.open_plans:
                raise self._used_up(charge)
            after = self._with(charge.plan, (charge.event,))[0]
        elif self.reserved <= self.limit.epsilon:
            return
        else:  # the limit was lowered after the reservation
            after = self._running(charge.event)
        if not after <= self.limit.epsilon:  # so that NaN is refused too
            raise self._beyond(f"round {charge.round}", after, charge)

    def price_of(self, charge: Charge) -> Gaussian | Zcdp | None:
        """What a charge that nobody has reserved counts as by itself; None where it is reserved or the first of all."""
        return None if self._study_of(charge) is not None else self._with(charge.plan, (charge.event,))[1]

    def take(self, charge: Charge) -> None:
        """Count a charge, or refuse it and stay as before."""
        self.check(charge)
        self.count(charge, self.price_of(charge))

    def _study_of(self, charge: Charge) -> ReservedStudy | None:
        """The study that has reserved this upload."""
        for study in self.studies:
            if study.open and study.plan == charge.plan and study.left[charge.event] > 0:
                return study
        return None

    def count(self, charge: Charge, price: Gaussian | Zcdp | None = None) -> None:
        """Note a charge without checking it: what was charged was sent."""
        study = self._study_of(charge)
        if study is not None:
            study.left[charge.event] -= 1
            study.charged.append(charge.event)
        elif not self.by_version_1 or self.studies:
            alone = (charge.event,)
            if price is None:
                price = self._with(charge.plan, alone)[1]
            self.studies.append(
                ReservedStudy(plan=charge.plan, uploads=alone, counted=price, open=False, charged=[*alone])
            )
            self._reserved = None
        self._seen.add((charge.plan, charge.round, charge.attempt))
        self._made.update([(charge.plan, None), (charge.plan, charge.round)])
        self.charges.append(charge)

    def _beyond(self, what: str, after: float, entry: Charge | Reservation) -> LedgerError:
        held = "spent" if self.reserved <= self._running() else "reserved"
        error = LedgerError(
            "CH401",
            f"device {self.device} refuses {what}: it has {held} ε = {figures_up(self.reserved, 4)} of "
            f"{self.limit.epsilon:.4g}; this would make {figures_up(after, 4)} (δ = {self.limit.delta:.3g}, "
            f"{_shared((*self.adjacencies, entry.adjacency))}, rule {entry.rule}, against {entry.adversary}).",
            why="Nothing was sent.",
            fix="Only the data owner can raise the limit.",
        )
        if entry.adversary == SUMS:
            return LedgerError("CH408", error.what, why=error.why, fix=error.fix)
        return error

    def _used_up(self, charge: Charge) -> LedgerError:
        reserved = sum(len(study.uploads) for study in self.studies if study.open and study.plan == charge.plan)
        return LedgerError(
            "CH409",
            f"device {self.device} refuses round {charge.round}: the study reserved {reserved} uploads, and this one "
            "is not among those that are left.",
            why="Nothing was sent.",
            fix="What was approved is used up. More of it takes another study, and another approval.",
        )

    @property
    def adversaries(self) -> tuple[str, ...]:
        """Against whom the charges were computed; ε holds against the one that all of them name."""
        return tuple(dict.fromkeys(charge.adversary for charge in self.charges)) or (EVERYONE,)

    @property
    def adjacencies(self) -> tuple[str, ...]:
        """What neighbours differ in, by the charges."""
        return tuple(dict.fromkeys(charge.adjacency for charge in self.charges))

    @property
    def adjacency(self) -> str:
        """What neighbours differ in for the ε of all charges together."""
        return _shared(self.adjacencies)

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules of the charges, in the order of their first use."""
        return tuple(dict.fromkeys(charge.rule for charge in self.charges))

    @property
    def terms(self) -> str:
        """What all charges cover together, by which rules and against whom; empty without any."""
        rules = f"rule{'s' * (len(self.rules) > 1)} {', '.join(self.rules)}"
        return f"{self.adjacency}, {rules}, against {' and '.join(self.adversaries)}" if self.charges else ""


def _shared(adjacencies: Iterable[str]) -> str:
    """What charges of these adjacencies cover together: where they differ, what every one of them covers."""
    different = set(adjacencies) or {ADJACENCY}
    return different.pop() if len(different) == 1 else MIXED_ADJACENCY
