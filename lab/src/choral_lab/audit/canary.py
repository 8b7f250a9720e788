"""A plan's worst-case canary, trained by the engine itself: a record whose clipped gradient never turns.

Least squares with a label so far off that its gradient is ±G wherever the model is; all other records are zeros. The
plan is run on a small scale: batches of a few records, but its own noise multiplier, steps, rounds and sampling, and
so the same ε. What the other devices add is noise of a known law, drawn as such.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from choral.accounting.account import account_of
from choral.accounting.proofs import rounds_each
from choral.core.codec import Codec
from choral.core.errors import PlanError
from choral.core.exposure import Exposure, exposure_of
from choral.core.mechanisms import PoissonBatches
from choral.core.plan import Plan, SecureSum, require_whole
from choral.engine.compiled import CompiledEngine
from choral.learning.models import linear
from choral.record import ClaimOfSums, EveryoneClaim
from choral.run.folder import Watch, unwatched
from choral.tables.records import Records
from choral_lab.audit.bounds import Tally, held_out, least_epsilon
from choral_lab.audit.steps import by_steps
from choral_lab.audit.white_box import steps_of

Sight = Literal["every noisy step", "server", "colluding server", "final model"]
SIGHTS: tuple[Sight, ...] = ("server", "colluding server", "final model")
Scores = NDArray[np.float64]

TRAININGS = 50_000  # of each world, unless another number is given
LANES = 2048  # devices of each world in one compiled call
FAR_OFF = 10**6  # a label that no noise reaches


@dataclass(frozen=True, kw_only=True)
class View:
    """What one adversary's sight proves about a plan, and what is claimed against that adversary."""

    sight: Sight
    canary: str
    claimed_epsilon: float
    rule: str
    lower_bound: float
    confidence: float
    evidence: Mapping[str, float]

    @property
    def holds(self) -> bool:
        """Whether the claim survives."""
        return self.lower_bound <= self.claimed_epsilon

    def as_dict(self) -> dict[str, object]:
        """The view for machines."""
        return {**asdict(self), "holds": self.holds}


def in_small(plan: Plan) -> Plan:
    """The plan with batches of a few records and the same noise multiplier, for as many devices as one call holds.

    >>> plan = Plan(devices=16, cohort=10, rounds=20, rows=2440, batch=244, local_steps=10, step_size=0.5, clip=1.0,
    ...             noise=0.005)
    >>> in_small(plan).rows, in_small(plan).noise
    (40, 0.305)
    """
    if isinstance(plan.mechanism, PoissonBatches):
        batch = min(plan.batch, 4)
        # No more likely to be drawn than in the plan, so that the bound holds for the plan too.
        rows = -(-batch * plan.rows // plan.batch)
    else:
        batch, rows = 1, plan.batches_per_pass
    noise = plan.noise * plan.batch / batch
    return replace(plan, devices=2 * LANES, cohort=2 * LANES, rows=rows, batch=batch, noise=noise)


def device_scores(
    plan: Plan, *, rounds: int, trainings: int, seed: int, watch: Watch = unwatched
) -> tuple[Scores, Scores]:
    """The canary's coordinate of a device's updates, summed over rounds, in both worlds: all that its steps show."""
    require_whole("trainings", trainings, least=2)
    require_whole("seed", seed, least=0)
    small = in_small(plan)
    features = np.zeros((2 * LANES, small.rows, 1), dtype=np.float32)
    labels = np.zeros((2 * LANES, small.rows), dtype=np.int32)
    features[:, 0] = 1000.0  # so that weight and not intercept takes the signal
    labels[:LANES, 0], labels[LANES:, 0] = -FAR_OFF, FAR_OFF
    records = Records(
        features=features.reshape(-1, 1),
        labels=labels.reshape(-1),
        offsets=np.arange(2 * LANES + 1) * small.rows,
        names=tuple(str(device) for device in range(2 * LANES)),
    )
    model, everybody = linear(1), np.arange(2 * LANES)
    codec = Codec(grid=1.0, largest=1, cohort=2)  # of no effect: updates are taken before they are encoded
    blocks, parts = [], -(-trainings // LANES)
    for block in watch(range(parts), total=parts, label="WORST CASE"):
        engine = CompiledEngine(model=model, records=records, plan=small, codec=codec, seed=seed + block)
        updates = (engine.updates(model.start(), number, everybody)[:, 0] for number in range(1, rounds + 1))
        blocks.append(np.asarray(sum(one.astype(np.float64) for one in updates)).reshape(2, LANES))
    both = np.concatenate(blocks, axis=1)[:, :trainings]
    return both[0], both[1]


def step_scores(
    plan: Plan, *, rounds: int, trainings: int, seed: int, watch: Watch = unwatched
) -> tuple[Scores, Scores]:
    """The log-likelihood ratios of all noisy steps of a device in both worlds: what rules S1 and S5 let be seen."""
    watched, weigh = steps_of(in_small(plan), rounds)
    first, second = (by_steps(watched, weigh, world, trainings=trainings, seed=seed, watch=watch) for world in (0, 1))
    return first, second


def require_gaussian(plan: Plan) -> None:
    """Nothing, or a PlanError for whole noise, which is added where no canary looks: to the integers of an update."""
    if plan.strict:
        raise PlanError(
            "CH204",
            f'an audit of law = "{plan.law}".',
            why="Audits look at updates before they are rounded, and whole-number noise is added after.",
            fix='Audit the same plan with law = "gaussian"; docs/accounting.md proves rule S6.',
        )


def worst_case(
    plan: Plan,
    secure: SecureSum,
    *,
    delta: float,
    trainings: int = TRAININGS,
    confidence: float = 0.99,
    seed: int = 0,
    watch: Watch = unwatched,
) -> list[View]:
    """Lower bounds in every sight; a threshold is chosen on one half of the trainings, judged on the other."""
    require_gaussian(plan)
    rounds = rounds_each(plan)
    part = exposure_of(plan, secure, rows=plan.rows, rounds=rounds)
    claimed = claims(part, delta)
    trial = {"rounds": rounds, "trainings": trainings, "seed": seed}
    device = device_scores(plan, **trial, watch=watch)
    seen: dict[Sight, tuple[Scores, Scores]] = {"every noisy step": step_scores(plan, **trial, watch=watch)}
    rng = np.random.default_rng([seed, 0xA0D17])
    for sight in SIGHTS:
        spread = others_noise(plan, part.honest_noises, rounds, sight)
        first, second = (scores + spread * rng.standard_normal(trainings) for scores in device)
        seen[sight] = first, second
    views = []
    for sight, scores in seen.items():
        threshold, tally = held_out(*scores, delta=delta, confidence=confidence)
        views.append(
            View(
                sight=sight,
                canary="worst case",
                claimed_epsilon=claimed[sight].epsilon,
                rule=claimed[sight].rule,
                lower_bound=least_epsilon(tally, delta=delta, confidence=confidence),
                confidence=confidence,
                evidence=_evidence(tally, threshold, trainings),
            )
        )
    return views


def claims(part: Exposure, delta: float) -> dict[Sight, EveryoneClaim | ClaimOfSums]:
    """The smallest ε that is proved against each sight, with its rule; a final model shows no more than the sums."""
    proved = account_of(part, delta).proved
    everyone, summed = proved.against_everyone, proved.with_secure_sum
    best = everyone if summed is None or summed.epsilon > everyone.epsilon else summed
    return {"every noisy step": everyone, "server": best, "colluding server": everyone, "final model": best}


def _evidence(tally: Tally, threshold: float, trainings: int) -> dict[str, float]:
    return {
        "trainings": 2 * trainings,
        "judged": tally.trainings,
        "threshold": threshold,
        "false_alarms": tally.false_alarms,
        "hits": tally.hits,
    }


def others_noise(plan: Plan, honest_noises: int, rounds: int, sight: Sight) -> float:
    """The standard deviation of what the other honest devices add to a score of the small plan.

    A server that colludes with all others subtracts theirs. Otherwise the worst others lose all noise except their last
    (where the clip leaves room for that), and the final model holds that of every round.
    """
    steps = 1 if plan.noise <= plan.clip / 10 else plan.local_steps
    noises = {
        "colluding server": 0,
        "server": rounds * (honest_noises - 1) * steps,
        "final model": (plan.rounds * honest_noises - rounds) * plan.local_steps,
    }[sight]
    return plan.step_size * in_small(plan).noise * math.sqrt(noises)
