"""Ways to spend a budget, each with the exact noise that its rule needs. Closed forms choose, the rules prove."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace

from choral.accounting.calibrate import calibrated, most_rounds
from choral.accounting.proofs import Loss, against_everyone, with_secure_sum
from choral.accounting.reserves import most_draws, spendable
from choral.core.errors import PlanError
from choral.core.exposure import Exposure, adjacency_of, noises_against
from choral.core.mechanisms import Mechanism, Partition, PoissonBatches
from choral.core.plan import Against, Plan, Sampling
from choral.core.printable import figures_up
from choral.planner.numbers import PlanningConditions, many_weights_numbers, once_numbers, one_step_numbers
from choral.planner.task import CONVEX_LINKS, PlanningTask

_ROUNDS = (5, 10, 15, 20, 30, 40, 50, 75, 100)
_LOCAL_STEPS = (1, 2, 5, 10)  # what worked in practice; the bound itself would allow few
_NEAR_BEST = 1.15  # fewer rounds win until they cost more than this
_ARRIVED = 0.003  # or until this share of where a run starts is left: runs on real tables gained little beyond it
_RULE: dict[Against, str] = {"everyone": "proved", "server and colluders": "with_secure_sum"}
_AGAINST: dict[Against, str] = {"everyone": "against everyone", "server and colluders": "secure sum trusted"}


@dataclass(frozen=True, kw_only=True)
class Option:
    """One way to spend the budget: a plan, what is proved of it and against whom, and how well it should learn."""

    name: str
    plan: Plan
    part: Exposure
    against: Against
    rule: str
    adversary: str
    certificate: str
    epsilon: float
    epsilon_against_everyone: float
    momentum: float  # of the server's steps
    guide: float  # start, sampling and noise of the corrected bound: smaller is better

    @property
    def trusts_sum(self) -> bool:
        """Whether what is proved counts on the secure sum."""
        return self.against != "everyone"

    def to_dict(self) -> dict[str, object]:
        """The option as plain values."""
        plain = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "part"}
        return plain | {"plan": self.plan.flat}

    def loss(self, part: Exposure) -> Loss:
        """What this option's rule proves of a changed exposure."""
        return _loss(self.against, part)


def _loss(against: Against, part: Exposure) -> Loss:
    summed = with_secure_sum(part) if against == "server and colluders" else ""
    return against_everyone(part) if isinstance(summed, str) else summed


def option(
    task: PlanningTask,
    name: str,
    *,
    against: Against = "everyone",
    local_steps: int | None = None,
    given_noise: bool = False,
) -> Option:
    """The option with the fewest rounds that come near the best guide, calibrated exactly.

    Many weights have their own numbers, with batches of all rows.
    """
    if task.many and against == "everyone":
        return _many_option(task, name)
    rounds, steps = _shape_of_run(task, against, local_steps)
    noise = task.screened_noise(rounds, steps, against)
    # One step per round is cheap enough for all rows, and then closed forms do.
    whole = against == "server and colluders" and "batch" not in task.given
    batch = task.draft.rows if whole else task.fitting_batch(rounds, steps, noise)
    plan = replace(task.draft, rounds=rounds, local_steps=steps, batch=batch)
    return solved(task, name, against, plan, given_noise=given_noise)


def _many_option(task: PlanningTask, name: str) -> Option:
    draft = task.draft
    numbers = many_weights_numbers(
        mu=task.mu, devices=draft.devices, rows=draft.rows, row_length=task.shape.length, rounds=task.fixed("rounds")
    )
    plan = replace(draft, batch=draft.rows, **asdict(numbers))
    return solved(task, name, "everyone", plan, learning=plan.step_size)


def once_option(task: PlanningTask, name: str, *, against: Against) -> Option:
    """The option that trains without noise and adds it once, to the upload (rule S7); for convex models."""
    draft, numbers = task.draft, once_numbers(task.budget, **_conditions(task, against))
    plan = replace(
        draft, batch=draft.rows, sampling="partition", noise_is_added="once", row_length=task.shape.length,
        **asdict(numbers),
    )  # fmt: skip
    return solved(task, name, against, plan, learning=plan.step_size)


def one_step_option(task: PlanningTask, name: str) -> Option:
    """The option of one noisy step per round on all rows, with the secure sum and momentum at the server (rule S2)."""
    against: Against = "server and colluders"
    numbers = one_step_numbers(task.budget, **_conditions(task, against))
    plan = replace(
        task.draft, batch=task.draft.rows, sampling="partition", local_steps=1, rounds=numbers.rounds,
        clip=numbers.clip, step_size=numbers.step_size,
    )  # fmt: skip
    moved = numbers.step_size / (1 - numbers.momentum)  # how far a gradient moves the model in the end
    return solved(task, name, against, plan, learning=moved, momentum=numbers.momentum)


def _conditions(task: PlanningTask, against: Against) -> PlanningConditions:
    draft = task.draft
    return {
        "link": CONVEX_LINKS[task.model],
        "classes": task.classes,
        "features": task.features,
        "devices": draft.devices,
        "cohort": draft.cohort,
        "rows": draft.rows,
        "row_length": task.shape.length,
        "rounds": task.fixed("rounds"),
        "honest_noises": noises_against(against, task.honest_noises),
    }


def noise_per_step(plan: Plan) -> float:
    """The noise that, added to every averaged gradient, would move the model as much: σ, or σ_u/√(Tη) if added once."""
    return plan.noise / math.sqrt(plan.local_time * plan.step_size) if plan.once else plan.noise


def _shape_of_run(task: PlanningTask, against: Against, local_steps: int | None) -> tuple[int, int]:
    found = []
    for rounds, steps, noise in _candidates(task, against, local_steps):
        # Compared with batches of all rows: the number of rows that a step needs is decided later.
        step_size = task.fitting_step_size(rounds, steps, task.draft.rows, noise)
        found.append((task.guide(rounds, steps, task.draft.rows, noise, step_size).bound, rounds, steps))
    enough = max(_NEAR_BEST * min(found)[0], _ARRIVED * task.shape.standstill)
    _, rounds, steps = min((one for one in found if one[0] <= enough), key=lambda one: (one[1], one[0]))
    return rounds, steps


def _candidates(
    task: PlanningTask, against: Against, local_steps: int | None = None
) -> Iterator[tuple[int, int, float]]:
    """(rounds, local steps, noise) of every run that the user's numbers leave open, the noise by closed form."""
    wanted, draft = local_steps or task.fixed("local_steps"), task.draft
    several = (1,) if draft.strict else _LOCAL_STEPS  # of several steps with whole noise nothing is proved
    most = most_draws(0.5, task.budget.delta)  # with batches of half of the rows, and with smaller ones
    for rounds in (draft.rounds,) if "rounds" in task.given else _ROUNDS:
        paid = [steps for steps in several if rounds * steps <= most] or [1]
        for steps in paid if wanted is None else (wanted,):
            yield rounds, steps, task.screened_noise(rounds, steps, against)


def solved(
    task: PlanningTask,
    name: str,
    against: Against,
    plan: Plan,
    *,
    given_noise: bool = False,
    learning: float | None = None,
    momentum: float = 0.0,
) -> Option:
    """An option with the plan's numbers and the smallest noise that its rule proves, or the user's own noise.

    `learning` is how far a gradient moves the model in the end, where the plan's step size is chosen already.
    """
    # Refused (CH204) where nothing is proved of the secure sum.
    plan = calibrated(plan, task.budget, rule=_RULE[against], colluders=task.colluders, dropouts=task.dropouts)
    if given_noise and task.noise is not None:
        _check_given_noise(task, task.exposure(plan), against)
        plan = replace(plan, noise=task.noise)
    shape = (plan.rounds, plan.local_steps, plan.batch, noise_per_step(plan))
    if learning is None:
        learning = task.fitting_step_size(*shape)
        plan = replace(plan, step_size=learning)
    part, delta = task.exposure(plan), spendable(task.budget, plan).delta
    loss = _loss(against, part)
    epsilon = loss.epsilon(delta)
    return Option(
        name=name, plan=plan, part=part, rule=loss.rule, adversary=loss.adversary, certificate=loss.certificate,
        against=against, epsilon=epsilon,
        epsilon_against_everyone=epsilon if against == "everyone" else against_everyone(part).epsilon(delta),
        momentum=momentum,
        guide=task.guide(*shape, learning).bound,
    )  # fmt: skip


def _check_given_noise(task: PlanningTask, needed: Exposure, against: Against) -> None:
    if task.noise is None or task.noise >= needed.noise:
        return
    budget, part = spendable(task.budget, needed), replace(needed, noise=task.noise)
    reached = _loss(against, part).epsilon(budget.delta)
    ways = [f"noise = {figures_up(needed.noise, 5)}", f"epsilon = {figures_up(reached)}"]
    if _loss(against, replace(part, rounds=1)).epsilon(budget.delta) <= budget.epsilon:
        ways.append(f"rounds = {most_rounds(part, budget, _RULE[against]) * part.devices // part.cohort}")
    raise unreachable(task, f"noise = {task.noise:g}", reached, " or ".join(ways))


def other_sampling(plan: Plan) -> Sampling | None:
    """The other way to draw batches for the same noise, where both are proved."""
    ways: dict[type[Mechanism], Sampling] = {PoissonBatches: "partition", Partition: "poisson"}
    return ways.get(type(plan.mechanism))


def unreachable(task: PlanningTask, given: str, reached: float, ways: str) -> PlanError:
    """CH201: what can't be had, what can, and which change would reach it."""
    # Which of its law's mechanisms a plan will have is still open.
    rule = " or ".join(("S2" if task.trusts_sum else "S1", "S5", "S7") if task.draft.gaussian else ("S6", "S7"))
    return PlanError(
        "CH201",
        f"epsilon {task.budget.epsilon:g} is not reachable with {given}. Reachable now: ε ≥ {figures_up(reached)} "
        f"(δ = {task.budget.delta:g}, {adjacency_of(task.draft)}, rule {rule}, {_AGAINST[task.against]}).",
        fix=f"Use {ways}.",
    )


def check_that_it_learns(task: PlanningTask) -> None:
    """Refuse a budget (CH201) whose noise would drown everything: the guide would say no more than standing still."""
    if learns(task):
        return
    reached, draft, rows = task.budget.epsilon, task.draft, task.draft.rows
    while not learns(replace(task, budget=replace(task.budget, epsilon=reached))):
        reached *= 1.1
    while not learns(replace(task, draft=replace(draft, rows=rows))):
        rows = math.ceil(rows * 1.1)
    given = f"{draft.devices} devices of {draft.rows:,} rows: the noise would drown what they learn"
    raise unreachable(task, given, reached, f"epsilon = {figures_up(reached)}, or {rows:,} rows per device")


def learns(task: PlanningTask) -> bool:
    """Whether noisy steps can learn more than standing still, by the guide."""
    return any(not task.drowned(*candidate) for candidate in _candidates(task, task.against))


def drowns(task: PlanningTask, plan: Plan) -> bool:
    """Whether the noise of noisy steps is larger than all that they could learn, by the guide."""
    return not plan.once and task.drowned(plan.rounds, plan.local_steps, plan.noise)


def epsilon_by_round(chosen: Option, delta: float, points: int = 8) -> tuple[tuple[int, float], ...]:
    """ε after each of a device's own rounds, at no more than so many of them."""
    last = chosen.part.rounds
    marks = sorted({max(1, round(last * share / points)) for share in range(1, points + 1)})
    return tuple((at, chosen.loss(replace(chosen.part, rounds=at)).epsilon(delta)) for at in marks)


def epsilon_by_colluders(summed: Option, delta: float, points: int = 8) -> tuple[tuple[int, float], ...]:
    """ε of an option that trusts the secure sum, if this many of its cohort tell the server all they know."""
    most = summed.part.cohort - summed.part.dropouts - 1
    marks = sorted({round(most * share / (points - 1)) for share in range(points)})
    losses = ((at, with_secure_sum(replace(summed.part, colluders=at))) for at in marks)
    return tuple((at, loss.epsilon(delta)) for at, loss in losses if isinstance(loss, Loss))
