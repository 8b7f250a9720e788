"""What rounds cost the devices of a plan, from public numbers alone: so that anybody can compute it again."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from choral.accounting.proofs import Loss, against_everyone, rules_charged, with_secure_sum
from choral.core.entries import UploadCosts
from choral.core.events import Event, epsilon_of
from choral.core.exposure import Exposure
from choral.core.plan import Against, Budget, Plan, SecureSum
from choral.core.private_sums import SumPrice

NO_LIMIT = 1e9  # ε of a ledger that counts but never refuses


@dataclass(frozen=True, kw_only=True, eq=False)
class Costs:
    """The plan, the secure sum, and each device's name, rows and limit; from these every ε of a run follows.

    `against` says which figure a limit is about: the one against everyone, or the one with the secure sum.
    """

    plan: Plan
    secure: SecureSum
    rows: NDArray[np.int64]
    limits: tuple[Budget, ...]
    names: tuple[str, ...]
    against: Against = "everyone"
    questions: SumPrice | None = None  # of a study that may also ask: all of them count, asked or not

    @property
    def private(self) -> bool:
        """Whether there is noise, and so anything to account for."""
        return self.plan.noise > 0

    def of(self, device: int) -> UploadCosts:
        """What each upload costs this device; the same for all devices of one size."""
        rows = int(self.rows[device])
        if rows not in self._of_size:
            self._of_size[rows] = UploadCosts(plan=self.plan, secure=self.secure, rows=rows)
        return self._of_size[rows]

    @cached_property
    def _of_size(self) -> dict[int, UploadCosts]:
        return {}

    def counted_event(self, device: int, rounds_before: int) -> Event:
        """What one more round takes of this device's limit."""
        cost = self.of(device)
        summed = cost.sum_event(rounds_before) if self.trusts_sum else None
        return cost.event(rounds_before) if summed is None else summed

    @property
    def trusts_sum(self) -> bool:
        """Whether limits are about the figure with the secure sum."""
        return self.against != "everyone"

    def ledger_limits(self, device: int) -> tuple[Budget, float | None]:
        """The limits of this device's ledger: against everyone, and with the secure sum where its limit is about that.

        A limit that is about the secure sum leaves the figure against everyone without one: it is counted only.
        """
        limit = self.limits[device]
        return (replace(limit, epsilon=NO_LIMIT), limit.epsilon) if self.trusts_sum else (limit, None)

    def charged_delta(self, rounds: int) -> float:
        """The share of δ that so many rounds take for rare failures of batch room and range, whoever looks on."""
        return self.of(0).charged_delta(rounds)

    def epsilon_of_sums(self, part: Exposure, delta: float) -> float | None:
        """ε of an exposure with the secure sum, what the rounds take of δ left out; None where nothing is proved."""
        loss = with_secure_sum(part)
        if isinstance(loss, str):
            return None
        asked = () if self.questions is None else (self.questions.reserved_of_sums,)
        charged = loss.event.delta + self.charged_delta(part.rounds) + part.rounds * self.secure.failure
        epsilon = epsilon_of([replace(loss.event, delta=charged), *asked], delta)
        return epsilon if math.isfinite(epsilon) else None

    def rule(self, device: int) -> Loss:
        """The rule by which this device is charged, proved against the server and all others; its own rows decide."""
        return against_everyone(self.of(device).exposure(1))

    def rule_of_sums(self, device: int) -> str:
        """The rule that counts the secure sum for this device; empty where nothing is proved by it."""
        loss = with_secure_sum(self.of(device).exposure(1))
        return "" if isinstance(loss, str) else loss.rule

    def limited_by(self, device: int) -> Loss:
        """The rule of the figure that this device's limit is about, and whom it is proved against."""
        part = self.of(device).exposure(1)
        summed = with_secure_sum(part) if self.trusts_sum else ""
        return against_everyone(part) if isinstance(summed, str) else summed

    @property
    def every_rule(self) -> tuple[str, ...]:
        """The names of all rules by which somebody is charged, sorted: a batch of all rows is no sample of them."""
        return rules_charged(self.plan, self.rows.tolist())

    @cached_property
    def allowed_rounds(self) -> NDArray[np.int64]:
        """How many rounds each device's limit pays for; devices of one size and limit have one answer."""
        if not self.private:
            return np.full(len(self.limits), self.plan.rounds)
        known: dict[tuple[int, Budget], int] = {}
        for device, limit in enumerate(self.limits):
            key = (int(self.rows[device]), limit)
            if key not in known:
                known[key] = self._affordable(device, limit)
        return np.array([known[int(size), limit] for size, limit in zip(self.rows, self.limits, strict=True)])

    def _affordable(self, device: int, limit: Budget) -> int:
        """The most rounds, at most the plan's, whose events together stay within the limit."""
        low, high = 0, self.plan.rounds + 1
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.spent(device, middle, limit.delta) <= limit.epsilon
            low, high = (middle, high) if fits else (low, middle)
        return low

    def spent(self, device: int, rounds: int, delta: float) -> float:
        """ε of this device after so many rounds and all questions, by the figure that its limit is about."""
        if not self.trusts_sum:
            return self.spent_against_everyone(device, rounds, delta)
        asked = () if self.questions is None else (self.questions.reserved_of_sums,)
        return epsilon_of([*(self.counted_event(device, before) for before in range(rounds)), *asked], delta)

    def spent_against_everyone(self, device: int, rounds: int, delta: float) -> float:
        """The same against the server and all others, composed from the events that its ledger holds or reserves."""
        asked = () if self.questions is None else (self.questions.reserved,)
        return epsilon_of([*(self.of(device).event(before) for before in range(rounds)), *asked], delta)

    def spent_by_all(self, rounds: NDArray[np.int64]) -> list[float]:
        """ε of each device after its own number of rounds, at its own limit's δ."""
        return self._each(self.spent, rounds)

    def spent_by_all_against_everyone(self, rounds: NDArray[np.int64]) -> list[float]:
        """The same against the server and all others."""
        return self._each(self.spent_against_everyone, rounds)

    def _each(self, figure: Callable[[int, int, float], float], rounds: NDArray[np.int64]) -> list[float]:
        """A figure of each device; devices of one size and as many rounds have one answer."""
        known: dict[tuple[int, int, float], float] = {}
        spent = []
        for device, (own, size, limit) in enumerate(zip(rounds, self.rows, self.limits, strict=True)):
            key = (int(own), int(size), limit.delta)
            if key not in known:
                known[key] = figure(device, int(own), limit.delta)
            spent.append(known[key])
        return spent


def most_uploads(planned: int) -> int:
    """How many uploads a study may make of which so many are planned: a quarter more, at least two, for what fails.

    >>> most_uploads(3), most_uploads(13)
    (5, 17)
    """
    return planned + max(2, -(-planned // 4))


def spare_uploads(planned: int) -> int:
    """For how many failed attempts a limit must have room: one in ten planned rounds, at least one.

    >>> spare_uploads(3), spare_uploads(12), spare_uploads(40)
    (1, 2, 4)
    """
    return max(1, -(-planned // 10))
