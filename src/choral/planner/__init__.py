"""From a budget, rows, devices and a model to a whole plan, with the reason for every number."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Unpack

from choral.accounting.proofs import Loss, with_secure_sum
from choral.accounting.reserves import spendable
from choral.accounting.words import words_of
from choral.core.errors import PlanError
from choral.core.exposure import adjacency_of, noises_against
from choral.core.plan import Against, Budget, Plan
from choral.core.printable import figures_up
from choral.planner.numbers import Convergence, largest_step_size
from choral.planner.options import (
    Option,
    check_that_it_learns,
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
from choral.planner.task import CONVEX_LINKS, OF_EVERY_STEP, PlanningTask, Wanted, task_of

Row = tuple[str, str, str, str]  # the fields of a Choice
_TAKE_IT = ' Take it with --against "server and colluders".'


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One number of a plan: its value, why it was chosen, and what moves if it is changed."""

    name: str
    value: str
    why: str
    moves: str


def choices(task: PlanningTask, chosen: Option, other_sampler: Option | None) -> tuple[Choice, ...]:
    """A Choice for every number of the chosen plan."""
    plan, shape, each = chosen.plan, task.shape, chosen.part.rounds
    share, steps = plan.batch / plan.rows, plan.rounds * plan.local_steps
    if plan.once:
        return _choices_once(task, chosen)
    rows = (
        ("rounds", f"{plan.rounds}",
         f"{steps} steps in all, {plan.local_steps} per round, are enough to arrive; a device is in {each} rounds.",
         "More rounds need more noise, and from here on buy little."),
        _cohort(chosen),
        ("local_steps", f"{plan.local_steps}",
         "of several with whole-number noise nothing is proved." if plan.strict else
         "steps on the device between two sums cost no traffic." if plan.local_steps > 1 else
         "one step per round, so that each sum carries the noise of many devices.",
         "One step per round is what lets the secure sum's noise count; several need fewer rounds."),
        ("sampling", plan.sampling, *_sampling(chosen, other_sampler)),
        ("batch", f"{plan.batch:,} of {plan.rows:,}",
         f"each step sees a share of {share:.3g} of the rows." if share < 1 else "each step sees all rows.",
         "Smaller, and the luck of the draw outweighs the noise; larger costs time and hardly lowers the noise."
         if share < 1 else "Smaller batches save time, but add noise themselves or need more of it."),
        ("clip", f"{plan.clip:g}",
         ("a quarter of the length of a row, since many weights carry much noise; rows have length " if task.many else
          "about the length of one record's gradient while the model knows nothing, for rows of length ")
         + f"{shape.length:.2g}" + (" (given)." if "row_length" in task.given else " (a guess: --row-length)."),
         "Noise goes in proportion: half the clip, half the noise, and longer gradients are cut shorter."),
        ("step_size", f"{plan.step_size:g}",
         "so long that all steps together leave a noise of about 2 on the score of a row." if task.many else
         f"balances progress against noise in the corrected bound, at most 2/L = {2 / shape.smoothness:.2g}.",
         "Privacy does not depend on it. Too large, and noise stays in the model; too small, and it does not arrive."),
        *_server(chosen),
        *_law(plan),
        _noise(task, chosen),
    )  # fmt: skip
    return _explained(task, rows)


def _cohort(chosen: Option) -> Row:
    averaged = "A larger one averages more noise, but each device takes part, and pays, more often: it comes out even."
    summed = "A larger one lets each device add less noise, and costs traffic."
    return (
        "cohort",
        f"{chosen.plan.cohort} of {chosen.plan.devices}",
        "as many as hide one device well in the sum.",
        averaged if not chosen.trusts_sum else summed,
    )


def _noise(task: PlanningTask, chosen: Option, on: str = "") -> Row:
    noise, delta = chosen.plan.noise, spendable(task.budget, chosen.plan).delta
    half, twice = (chosen.loss(replace(chosen.part, noise=noise * by)).epsilon(delta) for by in (0.5, 2.0))
    return ("noise", figures_up(noise, 5),
            f"{on}the smallest for which rule {chosen.rule} proves ε = {figures_up(chosen.epsilon, 4)} "
            f"against {chosen.adversary}.",
            f"Half of it: ε = {figures_up(half)}; twice: ε = {figures_up(twice)}.")  # fmt: skip


def _explained(task: PlanningTask, rows: Iterable[Row]) -> tuple[Choice, ...]:
    return tuple(
        Choice(name=name, value=value, why="given." if name in task.given - {"sampling", "law"} else why, moves=moves)
        for name, value, why, moves in rows
    )


def _choices_once(task: PlanningTask, chosen: Option) -> tuple[Choice, ...]:
    """The same where noise is added once."""
    plan = chosen.plan
    rows = (
        ("rounds", f"{plan.rounds}",
         f"a device is in {chosen.part.rounds} rounds; for one total time the noise is damped between them.",
         "A third of them cost 0.5 points of accuracy on made-up tables whose sites differ, and save traffic."),
        _cohort(chosen),
        ("noise_is_added", "once",
         "the model is convex, so one row moves an upload by a known amount however many steps there are.",
         'With "every step" the secure sum counts for one local step per round only.'),
        ("local_steps", f"{plan.local_steps}",
         f"a round lasts T = {plan.local_time:.3g}, in steps below 2/L; a device with more rows takes more of them.",
         "Longer rounds learn more and need noise in proportion."),
        ("row_length", f"{plan.mechanism.own['row_length']:.3g}",
         "given; longer rows are scaled down." if "row_length" in task.given else
         "a guess (--row-length); a choral.toml takes it from its columns, and longer rows are scaled down.",
         "Shorter rows need less noise, if they are not cut off."),
        ("clip", f"{plan.clip:.3g}",
         "how hard one row may pull: a share of the length of a row, so that the loss stays convex.",
         "Noise goes in proportion: half the clip, half the noise, and probabilities are pulled together."),
        ("step_size", f"{plan.step_size:.3g}",
         "T divided by the steps.",
         "It may not pass 2/L, which each device checks: beyond, nothing is proved."),
        ("server", "averaged", "the model is the mean over the later half of the rounds, where noise evens out.",
         "It sees only what is paid for: no ε depends on it."),
        *_law(plan),
        _noise(task, chosen, on="on an upload: "),
    )  # fmt: skip
    return _explained(task, rows)


def _server(chosen: Option) -> tuple[Row, ...]:
    """What the server does with the means, where that is more than adding them."""
    if not chosen.momentum:
        return ()
    return (("server", f"averaged, momentum {chosen.momentum:.2f}",
             "momentum makes up for rounds of one short step, and noise evens out over the later half of the models.",
             "It sees only what is paid for: no ε depends on it."),)  # fmt: skip


def _law(plan: Plan) -> tuple[Row, ...]:
    """The strict mode, where it was asked for."""
    if not plan.strict:
        return ()
    return (("law", plan.law, "noise of whole numbers on the grid, so that no low bit of a float tells anything.",
             "Gaussian noise may be sampled and made in several local steps, so it needs less."),)  # fmt: skip


def _sampling(chosen: Option, other: Option | None) -> tuple[str, str]:
    words = words_of(chosen.plan)
    if other_sampling(chosen.plan) is None:
        return words.why_batches, "Batches of all rows need the least noise."
    if other is None:
        return (
            "every step uses all rows, so how they are drawn makes no difference.",
            "Smaller batches would make it matter.",
        )
    ratio = other.plan.noise / chosen.plan.noise
    return words.why_batches, f"{words_of(other.plan).name} needs {ratio:.2f} times the noise."


def advice(task: PlanningTask, chosen: Option, summed: Option | None, certified: float) -> tuple[str, ...]:
    """What a careful colleague would add."""
    lines = [task.left_once[0].upper() + task.left_once[1:] + "."] if task.left_once else []
    if not chosen.trusts_sum and summed:
        better = summed.guide < 0.9 * chosen.guide
        lines.append(
            f"What trust in the secure sum buys: {summed.name.removesuffix(', sum trusted')} "
            f"{'should learn better' if better else 'gains little'}: guide {summed.guide:.2g} against "
            f"{chosen.guide:.2g}, and ε = {figures_up(summed.epsilon_against_everyone)} against everyone should that "
            f"trust fail.{_TAKE_IT if better else ''}"
        )
        if (of_sum := with_secure_sum(chosen.part)) and isinstance(of_sum, Loss):
            epsilon = of_sum.epsilon(spendable(task.budget, chosen.plan).delta)
            lines.append(f"As planned, ε is {figures_up(epsilon)} against {of_sum.adversary} (rule {of_sum.rule}).")
    elif summed:
        lines.append(
            f"Should the secure sum fail, ε is {figures_up(chosen.epsilon_against_everyone)} against everyone."
        )
    if task.draft.cohort < task.draft.devices:
        each = chosen.part.rounds
        lines.append(f"Counted for {each} rounds a device, all taking turns; who is drawn more often refuses the rest.")
    if not chosen.plan.once and chosen.plan.step_size > certified:
        lines.append(
            f"The corrected Theorem 2 is proved up to step size {certified:.2g}; beyond, the guide is experience."
        )
    if task.model == "mlp":
        lines.append("No such bound is known for networks: the figures of a model without hidden layers guide them.")
    return tuple(lines)


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
        local = option(task, EVERY_STEP, given_noise=not task.trusts_sum and not task.once)
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
    of_sums = next((one for one in (chosen, *rest) if one.trusts_sum), None)
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
    chosen = task.trusts_sum and not task.once
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


def require_company(cohort: int, devices: int, *, where: str = "") -> None:
    """Raise CH204 for a round of one device, where anything is to be protected.

    >>> require_company(2, 16)
    """
    if cohort < 2:
        raise PlanError(
            "CH204",
            f"a cohort of 1 of {devices} devices: its sum would be that device's own update.",
            where=where,
            fix="Use at least 2 devices per round.",
        )
