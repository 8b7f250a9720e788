"""A device's two balances: against everyone, and against a server that sees only sums. Both limits hold.

Where nothing better is proved of the secure sum, an upload counts in both with the same event. Each balance is a filter
by itself, so each of the two claims holds however studies are chosen.
"""

from collections.abc import Callable
from dataclasses import replace

from choral.core.balance import Balance
from choral.core.entries import Charge, Reservation
from choral.core.events import Gaussian, Zcdp
from choral.core.plan import Budget

Price = Gaussian | Zcdp | None


class Balances:
    """The balance against everyone, and the one of sums, which is computed when somebody asks for it or limits it.

    >>> both = Balances(device="site-a", limit=Budget(epsilon=4.0, delta=1e-5), sum_epsilon=1.0)
    >>> both.take(Charge(rule="S2", plan="9f3c", round=1, event=Gaussian(mu=0.8), summed=Gaussian(mu=0.2)))
    >>> round(both.everyone.epsilon, 2), round(both.sums.epsilon, 2)
    (3.39, 0.73)
    """

    def __init__(self, *, device: str, limit: Budget, sum_epsilon: float | None = None) -> None:
        self.everyone = Balance(device=device, limit=limit)
        self.sum_epsilon = sum_epsilon
        self.adopted = False  # whether charges of version 1 go on by the present rule
        self._sums: Balance | None = None
        self._history: list[Callable[[Balance], object]] = []  # what has happened, as the balance of sums sees it

    @property
    def sums(self) -> Balance:
        """The balance against a server that sees only sums."""
        if self._sums is None:
            self._sums = Balance(device=self.everyone.device, limit=self._sum_limit)
            self._sums.by_version_1 = self.everyone.by_version_1
            for happened in self._history:
                happened(self._sums)
        return self._sums

    @property
    def _sum_limit(self) -> Budget:
        limit = self.everyone.limit
        return limit if self.sum_epsilon is None else replace(limit, epsilon=self.sum_epsilon)

    def set_limit(self, limit: Budget, sum_epsilon: float | None = None) -> None:
        """Set both limits; δ is one for both, and the sum has a limit only if one is given."""
        self.everyone.limit, self.sum_epsilon = limit, sum_epsilon
        if self._sums is not None:
            self._sums.limit = self._sum_limit

    def _note(self, happened: Callable[[Balance], object]) -> None:
        self._history.append(happened)
        if self._sums is not None:
            happened(self._sums)

    # Reservations

    def reserve(self, reservation: Reservation) -> None:
        """Reserve a study's uploads, or refuse them and stay as before."""
        self.admit(reservation, *self.admissible(reservation))

    def admissible(self, reservation: Reservation) -> tuple[Price, Price]:
        """What a reservation would count as in each balance, or CH401 or CH408 where it would pass either limit."""
        price = self.everyone.admissible(reservation)
        return price, None if self.sum_epsilon is None else self.sums.admissible(reservation.of_sums)

    def affordable(self, reservation: Reservation) -> int:
        """How many of the uploads, from the first on, both limits can pay for."""
        count = self.everyone.affordable(reservation)
        if self.sum_epsilon is None:
            return count
        return min(count, self.sums.affordable(reservation.of_sums))

    def within(self, reservation: Reservation, *, slack: float) -> bool:
        """Whether a reservation stays within both limits, each stretched by this factor."""
        pairs = [(self.everyone, reservation)]
        if self.sum_epsilon is not None:
            pairs.append((self.sums, reservation.of_sums))
        return all(one.epsilon_of_reservation(entry) <= one.limit.epsilon * slack for one, entry in pairs)

    def admit(self, reservation: Reservation, price: Price = None, of_sums: Price = None) -> None:
        """Note a reservation that was admissible, with what it counts as."""
        self.everyone.admit(reservation, price)
        self._note(lambda sums: sums.admit(reservation.of_sums, of_sums))

    def release(self, plan: str) -> None:
        """Give back what a plan reserved and can give back."""
        self.everyone.release(plan)
        self._note(lambda sums: sums.release(plan))

    # Charges

    def check(self, charge: Charge) -> None:
        """Refuse a charge that either balance refuses."""
        self.everyone.check(charge)
        if self.sum_epsilon is not None:
            self.sums.check(charge.of_sums)

    def prices_of(self, charge: Charge) -> tuple[Price, Price]:
        """What a charge that nobody has reserved counts as by itself, in each balance."""
        of_sums = None if self.sum_epsilon is None else self.sums.price_of(charge.of_sums)
        return self.everyone.price_of(charge), of_sums

    def take(self, charge: Charge) -> None:
        """Count a charge, or refuse it and stay as before."""
        self.check(charge)
        self.count(charge, *self.prices_of(charge))

    def count(self, charge: Charge, price: Price = None, of_sums: Price = None) -> None:
        """Note a charge without checking it: what was charged was sent."""
        self.everyone.count(charge, price)
        self._note(lambda sums: sums.count(charge.of_sums, of_sums))

    def adopt(self) -> None:
        """Go on with the charges of version 1 by the present rule."""
        self.adopted = True
        self.everyone.adopt()
        self._note(Balance.adopt)
