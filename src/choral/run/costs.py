"""What rounds cost the devices of a plan, from public numbers alone: so that anybody can work it out again."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from choral.learning.batches import OVERFLOW
from choral.plan import Budget, Plan, SecureSum
from choral.privacy import rules
from choral.privacy.events import Event, Gaussian, Zcdp, epsilon_of
from choral.privacy.exposure import Exposure
from choral.privacy.ledger import Charge, Reservation

NO_LIMIT = 1e9  # ε of a ledger that counts but never refuses
OUT_OF_RANGE = 1e-8  # the share of δ for updates that leave the codec's range, over a whole run


@dataclass(frozen=True, kw_only=True, eq=False)
class Costs:
    """The plan, the secure sum, and each device's name, rows and limit; from these every ε of a run follows."""

    plan: Plan
    secure: SecureSum
    rows: NDArray[np.int64]
    limits: tuple[Budget, ...]
    names: tuple[str, ...]

    @property
    def private(self) -> bool:
        """Whether there is noise, and so anything to account for."""
        return self.plan.noise > 0

    def exposure(self, device: int, rounds: int) -> Exposure:
        """What this device's records are exposed to in so many rounds."""
        return exposure_of(self.plan, self.secure, rows=int(self.rows[device]), rounds=rounds)

    def event(self, device: int, rounds_before: int) -> Event:
        """What one more round costs this device, after so many; rare failures of batch room and range included."""
        return _one_round(self.exposure(device, 1), rounds_before, self.charged_delta(1))

    def charged_delta(self, rounds: int) -> float:
        """The share of δ that so many rounds take for rare failures of batch room and range, whoever looks on."""
        return rounds * (OVERFLOW + OUT_OF_RANGE) / self.plan.rounds

    def epsilon_of_sums(self, part: Exposure, delta: float) -> float | None:
        """ε of an exposure with the secure sum, what the rounds take of δ left out; None where nothing is proved."""
        loss = rules.with_secure_sum(part)
        if loss is None:
            return None
        epsilon = epsilon_of([replace(loss.event, delta=self.charged_delta(part.rounds))], delta)
        return epsilon if math.isfinite(epsilon) else None

    def charge(self, device: int, rounds_before: int, *, run: str, round: int, attempt: int) -> Charge:
        """What a device is charged for one upload of a run, after so many in the same run."""
        event = self.event(device, rounds_before)
        by = self.rule(device)
        return Charge(rule=by.rule, plan=run, round=round, attempt=attempt, event=event, adversary=by.adversary)

    def reservation(self, device: int, uploads: range, *, run: str) -> Reservation:
        """What a device reserves for these uploads of a run, counted from 0: their number is fixed before the first."""
        by = self.rule(device)
        events = tuple(self.event(device, before) for before in uploads)
        return Reservation(rule=by.rule, plan=run, uploads=events, adversary=by.adversary)

    def rule(self, device: int) -> rules.Loss:
        """The rule by which this device is charged, proved against the server and all others; its own rows decide."""
        return rules.against_everyone(self.exposure(device, 1))

    @property
    def every_rule(self) -> tuple[str, ...]:
        """The names of all rules by which somebody is charged, sorted: a batch of all rows is no sample of them."""
        first_of_size = np.unique(self.rows, return_index=True)[1]
        return tuple(sorted({self.rule(int(device)).rule for device in first_of_size}))

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
        """ε of this device after so many rounds, composed from the events that its ledger holds."""
        return epsilon_of([self.event(device, before) for before in range(rounds)], delta)

    def spent_by_all(self, rounds: NDArray[np.int64]) -> list[float]:
        """ε of each device after its own number of rounds, at its own limit's δ."""
        known: dict[tuple[int, int, float], float] = {}
        spent = []
        for device, (own, size, limit) in enumerate(zip(rounds, self.rows, self.limits, strict=True)):
            key = (int(own), int(size), limit.delta)
            if key not in known:
                known[key] = self.spent(device, int(own), limit.delta)
            spent.append(known[key])
        return spent


def exposure_of(plan: Plan, secure: SecureSum, *, rows: int, rounds: int) -> Exposure:
    """The exposure of a device with so many rows in so many rounds of a plan."""
    honest = secure.honest_noises(secure.adversary)
    return Exposure(
        rounds=rounds,
        local_steps=plan.local_steps,
        cohort=plan.cohort,
        devices=plan.devices,
        rows=rows,
        batch=plan.batch,
        noise=plan.noise,
        clip=plan.clip,
        sampling=plan.sampling,
        passes=plan.passes,
        colluders=secure.colluders,
        dropouts=plan.cohort - secure.colluders - honest,
        step_size=plan.step_size,
        law=plan.law,
    )


def _one_round(part: Exposure, rounds_before: int, extra: float) -> Event:
    """The event of one round: passes that continue cost a device only the uses of a record that this round adds."""
    if part.sampled:
        return rules.poisson_steps(
            steps=part.local_steps, rows=part.rows, batch=part.batch, noise=part.noise, clip=part.clip, overflow=extra
        )
    uses = part.uses_per_round
    if part.passes == "continue":
        steps, per_pass = part.local_steps, part.batches_per_pass
        uses = -(-(rounds_before + 1) * steps // per_pass) - -(-rounds_before * steps // per_pass)
    if uses == 0:
        return Gaussian(mu=0.0, delta=extra) if part.law == "gaussian" else Zcdp(rho=0.0, delta=extra)
    if part.law != "gaussian":
        whole = rules.whole_noise(law=part.law, uses=uses, batch=part.batch, noise=part.noise, clip=part.clip)
        return replace(whole, delta=extra)
    one = rules.local_composition(uses=uses, batch=part.batch, noise=part.noise, clip=part.clip)
    return Gaussian(mu=one.mu, delta=extra)


def most_uploads(planned: int) -> int:
    """How many uploads a study may make of which so many are planned: a quarter more, at least two, for what fails.

    >>> most_uploads(3), most_uploads(13)
    (5, 17)
    """
    return planned + max(2, -(-planned // 4))


def rounds_each(plan: Plan) -> int:
    """How many rounds a device takes part in when all take part equally often, rounded up."""
    return -(-plan.rounds * plan.cohort // plan.devices)
