"""Where the published Theorem 1 fails: two federations whose measured ε lies above the one that it claims.

Both have the paper's numbers: 16 devices of 2,440 records, cohorts of 10, 10 local steps on full batches, δ = 1e-4.
Noise is what the published formula asks for. docs/audit.md explains the two constructions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from choral.accounting.account import account_of
from choral.accounting.calibrate import noise_for
from choral.accounting.proofs import smooth
from choral.core.errors import ConfigError
from choral.core.exposure import exposure_of
from choral.core.plan import Plan, SecureSum, require_whole
from choral.record import Account, ClaimOfSums, EveryoneClaim, FormulaValue
from choral.run.folder import Watch, unwatched
from choral_lab.audit.bounds import Tally, false_alarm_rate, least_epsilon
from choral_lab.audit.trainings import Array, Construction, Rows, logistic, mean_clipped, relu_network, scores

DELTA = 1e-4
ROWS = 2440


@dataclass(frozen=True, kw_only=True)
class Case:
    """All that is fixed before the first training: the federation, the test, N, the confidence, and what is claimed."""

    name: str
    construction: Construction
    threshold: float
    trainings: int
    confidence: float
    seed: int
    account: Account
    proved: EveryoneClaim | ClaimOfSums  # the smallest ε that holds

    @property
    def published(self) -> FormulaValue:
        """What Theorem 1 gives."""
        return self.account.paper


@dataclass(frozen=True, kw_only=True)
class Refutation:
    """A case with its counts; `lower_bound` holds with the case's confidence."""

    case: Case
    tally: Tally

    @property
    def lower_bound(self) -> float:
        """ε is at least this at the case's δ."""
        return least_epsilon(self.tally, delta=self.case.account.delta, confidence=self.case.confidence)

    def as_dict(self) -> dict[str, object]:
        """The finding for machines; every ε is for the replacement of one record."""
        case = self.case
        return {
            "case": case.name,
            "lower_bound": self.lower_bound,
            "confidence": case.confidence,
            "published_epsilon": case.published.epsilon,
            "proved_epsilon": case.proved.epsilon,
            "delta": case.account.delta,
            "trainings": 2 * case.trainings,
            "published_rule": "Theorem 1",
            "published_because": case.published.because,
            "proved_rule": case.proved.rule,
            "adversary": case.proved.adversary,
            "adjacency": case.account.adjacency,
            "threshold": case.threshold,
            "false_alarms": self.tally.false_alarms,
            "hits": self.tally.hits,
            "seed": case.seed,
            "plan": case.construction.plan.to_dict(),
        }


def _plan(epsilon: float, *, rounds: int, clip: float, step_size: float) -> Plan:
    """The paper's numbers, with the noise for which Theorem 1 claims ε."""
    common: dict[str, Any] = {
        "rounds": rounds, "local_steps": 10, "cohort": 10, "devices": 16, "rows": ROWS, "batch": ROWS, "clip": clip,
        "sampling": "partition", "passes": "reshuffle", "step_size": step_size,
    }  # fmt: skip
    return Plan(noise=noise_for(epsilon=epsilon, delta=DELTA, rule="paper", **common), **common)


def _account(plan: Plan, *, smoothness: float | None = None, convex: bool = False) -> Account:
    """The account of a device that takes part in every round, where nobody colludes and nobody drops out."""
    everybody = SecureSum(cohort=plan.cohort, smallest_sum=plan.cohort, threshold=plan.cohort - 1)
    part = exposure_of(plan, everybody, rows=plan.rows, rounds=plan.rounds)
    return account_of(smooth(part, smoothness=smoothness, convex=convex), DELTA)


def convex(epsilon: float, trainings: int, confidence: float, seed: int) -> Case:
    """Logistic regression with one weight, in the 13 rounds that a device has of 20 (Rule S3 is tight here).

    The device's other records are zeros, so its noise and its record's signal add up over ten steps. The other devices
    hold both labels in equal parts: each of their steps forgets where it started, and only their last noise is left.
    """
    # ‖x‖ ≤ R makes the loss R²/4-smooth, and η ≤ 8/R² keeps its steps non-expansive.
    radius, step_size, clip = 4.0, 0.5, 1.6
    plan = _plan(epsilon, rounds=13, clip=clip, step_size=step_size)
    forgetful = 2 / math.sqrt(step_size)  # η·x²/4 = 1: a step leads to the minimum, from anywhere near it

    def score(sent: Array, total: Array) -> Array:
        unknown: Array = total[0] + np.float32(plan.cohort - 1) * sent[0]  # the others send −θ each, and noise
        return unknown

    accounted = _account(plan, smoothness=radius**2 / 4, convex=True)
    summed = accounted.proved.with_secure_sum
    assert summed is not None  # noqa: S101 - Rule S3 holds for this plan
    signal = plan.rounds * plan.local_steps * step_size * clip / ROWS  # by which one record moves the score, either way
    spread = step_size * plan.noise * math.sqrt(plan.rounds * (plan.local_steps + plan.cohort - 1))
    rate = false_alarm_rate(2 * signal / spread, trainings=trainings, delta=DELTA, confidence=confidence)
    return Case(
        name="theorem-1-convex",
        construction=Construction(
            plan=plan,
            loss=logistic,
            start=(0.0,),
            device=(Rows(count=ROWS - 1, x=0.0),),
            others=(Rows(count=ROWS // 2, x=forgetful, y=1.0), Rows(count=ROWS // 2, x=forgetful, y=-1.0)),
            worlds=(Rows(count=1, x=radius, y=-1.0), Rows(count=1, x=radius, y=1.0)),
            score=score,
        ),
        threshold=-signal - spread * float(ndtri(rate)),
        proved=summed,
        account=accounted,
        trainings=trainings,
        confidence=confidence,
        seed=seed,
    )


def network(epsilon: float, trainings: int, confidence: float, seed: int) -> Case:
    """A network with one ReLU, in one round: the unit dies, or not, by one record (Rule S1 is nearly tight here).

    The device's records push the unit's weight down to zero in nine steps, in which its record's signal adds up. In the
    tenth an active unit is pushed once more, a dead one is not: a difference far above all noise of all devices.
    """
    plan = _plan(epsilon, rounds=1, clip=1.0, step_size=0.02)
    accounted = _account(plan)
    pushes = plan.local_steps - 1
    signal = pushes * plan.step_size * plan.clip / ROWS
    spread = plan.step_size * plan.noise * math.sqrt(pushes)
    rate = false_alarm_rate(2 * signal / spread, trainings=trainings, delta=DELTA, confidence=confidence)
    construction = Construction(
        plan=plan,
        loss=relu_network,
        start=(0.0, 1.0),
        device=(Rows(count=ROWS - 1, x=1.0, y=-1.0),),
        others=(Rows(count=ROWS, x=0.0),),
        worlds=(Rows(count=1, x=50.0, y=-1.0), Rows(count=1, x=50.0, y=1.0)),
        score=lambda _, total: -total[0],
    )
    level = _weight_that_dies(construction, pushes)
    # In the first world the unit is to be alive after nine steps as often as a false alarm is wanted.
    start = level + signal + spread * float(ndtri(rate))
    return Case(
        name="theorem-1-network",
        construction=replace(construction, start=(start, 1.0)),
        threshold=start + 0.25 * plan.step_size,  # half of one more push, whose gradient is one half
        proved=accounted.proved.against_everyone,
        account=accounted,
        trainings=trainings,
        confidence=confidence,
        seed=seed,
    )


def _weight_that_dies(construction: Construction, pushes: int) -> float:
    """The weight from which so many steps without noise lead to zero."""
    low, high = 0.0, construction.plan.step_size * pushes
    while high - low > 1e-12:
        middle = 0.5 * (low + high)
        parameters: Any = np.array([[middle], [1.0]])
        for _ in range(pushes):
            parameters = parameters - construction.plan.step_size * mean_clipped(
                construction, construction.device, parameters
            )
        low, high = (low, middle) if parameters[0, 0] > 0 else (middle, high)
    return high


# Name -> how to arrange it, and the trainings of each world that take well under a minute on two cores.
CASES: dict[str, tuple[Callable[[float, int, float, int], Case], int]] = {
    "theorem-1-convex": (convex, 400_000),
    "theorem-1-network": (network, 1_000_000),
}


def arrange(
    name: str, *, epsilon: float = 1.0, trainings: int | None = None, confidence: float = 0.99, seed: int = 0
) -> Case:
    """A case by its name, with the noise for which Theorem 1 claims `epsilon`; nothing is trained yet.

    >>> case = arrange("theorem-1-network")
    >>> round(case.published.epsilon, 3), case.proved.rule
    (1.0, 'S1')
    """
    if name not in CASES:
        raise ConfigError("CH102", f'unknown case "{name}".', fix=f"Known: {', '.join(CASES)}.")
    require_whole("seed", seed, least=0)
    make, usual = CASES[name]
    return make(epsilon, usual if trainings is None else trainings, confidence, seed)


def measure(case: Case, watch: Watch = unwatched) -> Refutation:
    """Train both worlds so often as the case says, and count."""
    first, second = (
        scores(case.construction, world, trainings=case.trainings, seed=case.seed, watch=watch) for world in (0, 1)
    )
    return Refutation(case=case, tally=Tally.of(first, second, case.threshold))
