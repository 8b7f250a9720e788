"""White-box cases: an adversary that sees all that a rule grants it, against a record as bad as the rule allows.

Nothing but the noise is between this adversary and the record, so what it measures comes near to what is proved. If a
rule, its noise or the engine were wrong by some percent, these audits would say so.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from choral.accounting.calibrate import loss_under, smallest_noise
from choral.accounting.proofs import Loss
from choral.core.codec import Codec
from choral.core.exposure import Exposure, exposure_of
from choral.core.mechanisms import PoissonBatches
from choral.core.plan import Budget, Plan, SecureSum
from choral.learning.recipe import Recipe
from choral.run.folder import Watch, unwatched
from choral_lab.audit.steps import Scores, Watched, Weigh, by_steps, by_sums
from choral_lab.audit.verdict import Finding, Trial

DELTA = 1e-2  # of what is counted: at a smaller one rarer events decide than some 100,000 trainings show
TRAININGS = 400_000
COMPANY = 10  # devices of a round, where sums are opened
PARAMETERS = 2  # of the canary's model: a weight and an intercept
UPDATE_CLIP = 0.5  # of rule S4: less than the local steps can move a model, so that every update is clipped


@dataclass(frozen=True, kw_only=True)
class WhiteBox:
    """A case before its first training; `watched.recipe` and `codec` are what really trains and encodes."""

    name: str
    sees: str
    trial: Trial
    watched: Watched
    weigh: Weigh
    codec: Codec | None = None  # where sums are opened, and not every step is seen
    honest: int = 1

    def scores(self, world: int, watch: Watch = unwatched) -> Scores:
        """The log-likelihood ratios of the trainings of one world."""
        trial = {"trainings": self.trial.trainings, "seed": self.trial.seed}
        if self.codec is None:
            return by_steps(self.watched, self.weigh, world, **trial, watch=watch)
        return by_sums(self.watched, self.weigh, self.codec, self.honest, world, **trial, watch=watch)

    def measure(self, watch: Watch = unwatched) -> Finding:
        """Train both worlds as often as the trial says, and judge."""
        return self.trial.judge(self.scores(0, watch), self.scores(1, watch))

    def as_dict(self) -> dict[str, object]:
        """What was set up, for machines."""
        return {"case": self.name, "sees": self.sees, "plan": self.watched.plan.to_dict()}


def always_there(deviation: float) -> Weigh:
    """The weight of what is seen where the canary pulls by ±1 whenever it is used, under Gaussian noise.

    >>> always_there(2.0)(np.array([1.0, 1.0]), np.array([True, False])).tolist()
    [0.5, 0.0]
    """
    return lambda pull, used: np.where(used, 2 * pull / deviation**2, 0.0)


def perhaps_there(deviation: float, probability: float) -> Weigh:
    """The same where nobody but the device knows whether the canary was drawn: a ratio of two mixtures.

    >>> perhaps_there(2.0, 1.0)(np.array([1.0]), np.array([True])).tolist() == [0.5]
    True
    """

    def weigh(pull: Scores, _: object) -> Scores:
        up, down = ((2 * side * pull - 1) / (2 * deviation**2) for side in (1, -1))
        rest = math.log1p(-probability) if probability < 1 else -math.inf
        drawn = math.log(probability)
        return np.asarray(np.logaddexp(rest, drawn + up) - np.logaddexp(rest, drawn + down))

    return weigh


def steps_of(plan: Plan, rounds: int) -> tuple[Watched, Weigh]:
    """The canary in so many rounds of a plan whose every noisy step is seen, and the weight of what a step shows."""
    watched = Watched(plan=plan, recipe=Recipe.of(plan), rounds=rounds, reach=plan.step_size * plan.clip / plan.batch)
    multiplier = plan.noise * plan.batch / plan.clip
    if isinstance(plan.mechanism, PoissonBatches):
        return watched, perhaps_there(multiplier, plan.batch / plan.rows)
    return watched, always_there(multiplier)


def _with_noise(plan: Plan, secure: SecureSum, rule: str, budget: Budget) -> tuple[Exposure, Loss]:
    """A device in all rounds of the plan, with the least noise for a budget, and what is proved of it."""
    part = exposure_of(plan, secure, rounds=plan.rounds, rows=plan.rows)
    part = replace(part, noise=smallest_noise(part, budget, rule))
    loss = loss_under(rule, part)
    assert isinstance(loss, Loss)  # noqa: S101 - these are rules that are proved
    return part, loss


def _plan(**other: Any) -> Plan:  # noqa: ANN401 - the fields of a plan
    usual: dict[str, Any] = {"devices": COMPANY, "cohort": COMPANY, "rounds": 2, "rows": 4, "batch": 4,
                             "step_size": 0.5, "clip": 1.0, "noise": 1.0, "sampling": "partition"}  # fmt: skip
    return Plan(**{**usual, **other})


Parts = tuple[Loss, dict[str, Any]]  # what is proved, and the rest of the case


def _seen_step_by_step(plan: Plan, budget: Budget) -> Parts:
    part, loss = _with_noise(plan, SecureSum.for_cohort(plan.cohort), "proved", budget)
    watched, weigh = steps_of(replace(plan, noise=part.noise), plan.rounds)
    return loss, {"watched": watched, "weigh": weigh}


def _s1(budget: Budget) -> Parts:
    """8 steps, of which every record enters 4."""
    return _seen_step_by_step(_plan(rows=8, local_steps=4), budget)


def _s5(budget: Budget) -> Parts:
    """8 steps, each of which draws a record with probability 1/4."""
    return _seen_step_by_step(_plan(batch=1, local_steps=4, sampling="poisson"), budget)


def _s2(budget: Budget) -> Parts:
    """Sums of the least company that a lying server can open."""
    return _seen_as_sums(_plan(), budget, together=True)


def _s6(budget: Budget) -> Parts:
    """A device's own integers with their whole noise, which is all that leaves it."""
    return _seen_as_sums(_plan(law="discrete_gaussian"), budget, together=False)


def _seen_as_sums(plan: Plan, budget: Budget, *, together: bool) -> Parts:
    """What is seen of sums with the noise of all honest devices together, or of one device alone."""
    secure = SecureSum.for_cohort(plan.cohort)
    part, loss = _with_noise(plan, secure, "with_secure_sum" if together else "proved", budget)
    plan = replace(plan, noise=part.noise)
    honest = part.honest_noises if together else 1
    return loss, {
        "watched": steps_of(plan, plan.rounds)[0],
        "weigh": always_there(part.noise_multiplier * math.sqrt(honest)),
        "codec": Codec.for_plan(plan, secure, PARAMETERS),
        "honest": honest,
    }


def _s4(budget: Budget) -> Parts:
    """Every record of one device replaced, and updates that are clipped as a whole."""
    plan, secure = _plan(local_steps=3), SecureSum.for_cohort(COMPANY)
    # What rule S4 and the codec know of such an update: at most its clip, and its noise.
    update = replace(plan, local_steps=1, step_size=1.0, clip=UPDATE_CLIP)
    part, loss = _with_noise(update, secure, "clipped_updates", budget)
    recipe = replace(Recipe.of(plan), noise=0.0, update_clip=UPDATE_CLIP, update_noise=part.noise)
    return loss, {
        "watched": Watched(plan=plan, recipe=recipe, rounds=plan.rounds, reach=UPDATE_CLIP, whole_device=True),
        "weigh": always_there(part.noise / UPDATE_CLIP * math.sqrt(part.honest_noises)),
        "codec": Codec.for_plan(replace(update, noise=part.noise), secure, PARAMETERS),
        "honest": part.honest_noises,
    }


# Name -> (what the adversary sees, how the case is made).
WHITE_BOX: dict[str, tuple[str, Callable[[Budget], Parts]]] = {
    "s1": ("every noisy step, and which of them use the record", _s1),
    "s2": ("every opened sum", _s2),
    "s4": ("every opened sum of clipped updates", _s4),
    "s5": ("every noisy step", _s5),
    "s6": ("the device's own integers with their whole noise", _s6),
}


def white_box(
    name: str,
    *,
    epsilon: float = 1.0,
    delta: float = DELTA,
    trainings: int | None = None,
    confidence: float = 0.99,
    seed: int = 0,
) -> WhiteBox:
    """A case by its name, with the least noise for which its rule proves `epsilon`; nothing is trained yet.

    >>> case = white_box("s5", epsilon=2.0)
    >>> case.trial.loss.rule, 1.99 < case.trial.epsilon <= 2.0
    ('S5', True)
    """
    sees, make = WHITE_BOX[name]
    loss, parts = make(Budget(epsilon=epsilon, delta=delta))
    many = TRAININGS if trainings is None else trainings
    trial = Trial(loss=loss, delta=delta, trainings=many, confidence=confidence, seed=seed)
    return WhiteBox(name=name, sees=sees, trial=trial, **parts)
