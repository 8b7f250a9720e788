"""From a budget, rows, devices and a model to a whole plan, with the reason for every number."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Unpack

from choral.accounting.proofs import with_secure_sum
from choral.accounting.reserves import spendable
from choral.core.exposure import adjacency_of, noises_against
from choral.core.plan import Against, Budget, Plan, require_company
from choral.planner.numbers import Convergence, PlanningConditions, largest_step_size, once_numbers, one_step_numbers
from choral.planner.options import (
    Option,
    check_that_it_learns,
    drowns,
    epsilon_by_colluders,
    epsilon_by_round,
    learns,
    noise_per_step,
    once_option,
    one_step_option,
    option,
    other_sampling,
    solved,
)
from choral.planner.prospect import Prospect, advice_on_sums
from choral.planner.reasons import Choice, advice, choices
from choral.planner.task import (
    CONVEX_LINKS,
    OF_EVERY_STEP,
    PlanningTask,
    Wanted,
    adds_noise_once,
    left_noise_once,
    many_weights,
    task_of,
    usual_cohort,
)

__all__ = [
    "OF_EVERY_STEP",
    "Choice",
    "Option",
    "PlanningConditions",
    "Proposal",
    "Prospect",
    "adds_noise_once",
    "drowns",
    "left_noise_once",
    "many_weights",
    "once_numbers",
    "one_step_numbers",
    "plan_for",
    "proposal_of",
    "task_of",
    "usual_cohort",
]  # fmt: skip

EVERY_STEP, ONE_STEP = "noise in every step", "one step per round, sum trusted"
ONCE: dict[Against, str] = {"everyone": "noise once", "server and colluders": "noise once, sum trusted"}


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A plan for a budget, the reasons for its numbers, the alternatives and two curves."""

    budget: Budget
    plan: Plan
    chosen: Option
    alternatives: tuple[Option, ...]
    choices: tuple[Choice, ...]
    advice: tuple[str, ...]
    epsilon_by_round: tuple[tuple[int, float], ...]
    epsilon_by_colluders: tuple[tuple[int, float], ...]  # of the option that trusts the secure sum
    certified: Convergence  # the corrected Theorem 2 at the largest step size that it allows here
    certified_step_size: float
    prospect: Prospect | None  # of networks nothing is known

    @property
    def explanation(self) -> tuple[str, ...]:
        """One line a number, in plain words."""
        return tuple(f"{choice.name} = {choice.value}: {choice.why} {choice.moves}" for choice in self.choices)

    def to_dict(self) -> dict[str, object]:
        """Everything as plain values, for `choral plan --json`."""
        return {
            "budget": asdict(self.budget) | {"adjacency": adjacency_of(self.plan)},
            "plan": self.plan.to_dict() | {"digest": self.plan.digest},
            "rounds_each": self.chosen.part.rounds,
            "chosen": self.chosen.to_dict(),
            "alternatives": [option.to_dict() for option in self.alternatives],
            "choices": [asdict(choice) for choice in self.choices],
            "advice": list(self.advice),
            "epsilon_by_round": [{"rounds": at, "epsilon": value} for at, value in self.epsilon_by_round],
            "epsilon_by_colluders": [{"colluders": at, "epsilon": value} for at, value in self.epsilon_by_colluders],
            "verdict": None if self.prospect is None else self.prospect.to_dict(),
            "certified": self.certified.to_dict() | {"step_size": self.certified_step_size},
        }


def plan_for(*, reached: Callable[[], None] = lambda: None, **numbers: Unpack[Wanted]) -> Proposal:
    """A plan within (ε, δ) for these devices and rows; what is given is kept, the rest is proposed.

    Needed are epsilon, devices, rows and features; the names of all others are those of `choral plan --help`. A cohort
    of one is refused, as a run would. `reached` is called four times on the way, for who waits.

    >>> proposed = plan_for(epsilon=1.0, devices=16, rows=2440, features=104, sampling="partition")
    >>> proposed.plan.cohort, proposed.chosen.rule, proposed.chosen.epsilon <= 1.0
    (10, 'S1', True)
    """
    task = task_of(**numbers)
    require_company(task.draft.cohort, task.draft.devices)
    if not task.once:
        check_that_it_learns(task)
    return proposal_of(task, reached)


def proposal_of(task: PlanningTask, reached: Callable[[], None] = lambda: None) -> Proposal:
    """The proposal for a task that is already checked; its cohort may be one device, for runs that protect nothing.

    Whether its noise would drown what is learned is not asked here: whoever wants to see it happen may run it.
    """
    alone = task.draft.cohort < 2
    once = _once(task, alone=alone)
    reached()
    local = None
    if not task.once or learns(task):  # whoever asks for noise in every step has it, whatever comes of it
        local = option(task, EVERY_STEP, given_noise=task.against == "everyone" and not task.once)
    summed = _one_step(task, alone=alone)
    reached()
    ways = {("once", one.against): one for one in once} | {
        ("every step", one.against): one for one in (local, summed) if one
    }
    wanted = "once" if task.once else "every step"
    chosen = ways.get((wanted, task.against)) or ways[wanted, "everyone"]
    other = _other_sampler(task, chosen)
    reached()
    rest = [one for one in ways.values() if one is not chosen]
    of_sums = next((one for one in (chosen, *rest) if one.against != "everyone"), None)
    proposal = _proposal(task, chosen, of_sums, (*rest, *([other] if other else [])), other)
    reached()
    return proposal


def _once(task: PlanningTask, *, alone: bool) -> list[Option]:
    """Noise once against everyone and with the secure sum, where it is asked for or may be proposed."""
    if not task.once:
        return []
    ways: list[Against] = ["everyone"] if alone else ["everyone", "server and colluders"]
    return [once_option(task, ONCE[against], against=against) for against in ways]


def _one_step(task: PlanningTask, *, alone: bool) -> Option | None:
    """One step per round with the secure sum's gain, or None where nobody is there to sum with or nothing is proved."""
    chosen = task.against == "server and colluders" and not task.once
    if alone or (not chosen and isinstance(with_secure_sum(task.exposure(replace(task.draft, local_steps=1))), str)):
        return None
    if task.model in CONVEX_LINKS and not OF_EVERY_STEP & task.given:
        return one_step_option(task, ONE_STEP)
    steps = (task.fixed("local_steps") if chosen else None) or 1
    return option(task, ONE_STEP, against="server and colluders", local_steps=steps, given_noise=chosen)


def _other_sampler(task: PlanningTask, chosen: Option) -> Option | None:
    """The chosen plan with the other way to draw batches, or None where every batch is all rows, or whole noise."""
    plan = chosen.plan
    sampling = other_sampling(plan)
    if plan.batch == plan.rows or sampling is None:
        return None
    return solved(task, f"the same by {sampling}", chosen.against, replace(plan, sampling=sampling))


def _proposal(
    task: PlanningTask, chosen: Option, summed: Option | None, alternatives: tuple[Option, ...], other: Option | None
) -> Proposal:
    plan, delta = chosen.plan, spendable(task.budget, chosen.plan).delta
    local_steps = plan.mechanism.draws(plan)  # without noise they are no steps of Theorem 2
    certified = largest_step_size(smoothness=task.shape.smoothness, local_steps=local_steps)
    step_size = min(plan.step_size, certified) * (1 - 1e-12)  # so that rounding can't lift the condition above 1
    steps = plan.rounds * plan.local_steps
    return Proposal(
        budget=task.budget,
        plan=plan,
        chosen=chosen,
        alternatives=alternatives,
        choices=choices(task, chosen, other),
        advice=advice(task, chosen, summed, certified) + advice_on_sums(task, chosen.against),
        epsilon_by_round=epsilon_by_round(chosen, delta),
        epsilon_by_colluders=epsilon_by_colluders(summed, delta) if summed else (),
        certified=task.bound(steps, local_steps, plan.batch, noise_per_step(plan), step_size),
        certified_step_size=step_size,
        prospect=_prospect(task, chosen),
    )


def _prospect(task: PlanningTask, chosen: Option) -> Prospect | None:
    """What can be expected of the chosen plan, from public numbers."""
    if task.model not in CONVEX_LINKS or task.draft.protects.clips_update:
        return None
    return Prospect(
        budget=task.budget, devices=task.draft.devices, rows=task.draft.rows, features=task.features,
        classes=task.classes, trusted_noises=task.honest_noises,
        honest_noises=noises_against(chosen.against, task.honest_noises),
    )  # fmt: skip
