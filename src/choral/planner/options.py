"""Ways to spend a budget, each with the exact noise that its rule needs. Closed forms choose, the rules prove."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from choral.errors import PlanError
from choral.plan import Plan, Sampling
from choral.planner.task import Task, Trust
from choral.privacy.calibrate import most_rounds, smallest_noise
from choral.privacy.exposure import Exposure
from choral.privacy.rules import ADJACENCY, Loss, against_everyone, with_secure_sum
from choral.privacy.shown import figures_up

_ROUNDS = (5, 10, 15, 20, 30, 40, 50, 75, 100)
_LOCAL_STEPS = (1, 2, 5, 10)  # what worked in practice; the bound itself would allow few
_NEAR_BEST = 1.15  # fewer rounds win until they cost more than this
_ARRIVED = 0.003  # or until this share of where a run starts is left: runs on real tables gained little beyond it
_RULE: dict[Trust, str] = {"nobody": "proved", "secure_sum": "with_secure_sum"}
_AGAINST: dict[Trust, str] = {"nobody": "against everyone", "secure_sum": "secure sum trusted"}
_RULES: dict[Trust, str] = {"nobody": "S1 or S5", "secure_sum": "S2 or S5"}


@dataclass(frozen=True, kw_only=True)
class Option:
    """One way to spend the budget: a plan, what is proved of it and against whom, and how well it should learn."""

    name: str
    plan: Plan
    part: Exposure
    trust: Trust
    rule: str
    adversary: str
    certificate: str
    epsilon: float
    epsilon_against_everyone: float
    guide: float  # start, sampling and noise of the corrected bound: smaller is better

    def to_dict(self) -> dict[str, Any]:
        """The option as plain values."""
        plain = asdict(self)
        del plain["part"]
        return plain

    def loss(self, part: Exposure) -> Loss:
        """What this option's rule proves of a changed exposure."""
        return _loss(self.trust, part)


def _loss(trust: Trust, part: Exposure) -> Loss:
    return (with_secure_sum(part) if trust == "secure_sum" else None) or against_everyone(part)


def option(
    task: Task, name: str, *, trust: Trust = "nobody", local_steps: int | None = None, given_noise: bool = False
) -> Option:
    """The option with the fewest rounds that come near the best guide, calibrated exactly."""
    rounds, steps = _shape_of_run(task, trust, local_steps)
    noise = task.screened_noise(rounds, steps, summed=trust == "secure_sum")
    # One step a round is cheap enough for all rows, and then closed forms do.
    whole = trust == "secure_sum" and task.batch is None
    batch = task.rows if whole else task.fitting_batch(rounds, steps, noise)
    return calibrated(task, name, trust, rounds, steps, batch, task.sampling, given_noise=given_noise)


def _shape_of_run(task: Task, trust: Trust, local_steps: int | None) -> tuple[int, int]:
    found = []
    for rounds, steps, noise in _candidates(task, trust, local_steps):
        # Compared with batches of all rows: how many rows a step needs is a question for later.
        step_size = task.fitting_step_size(rounds, steps, task.rows, noise)
        found.append((task.guide(rounds, steps, task.rows, noise, step_size).bound, rounds, steps))
    enough = max(_NEAR_BEST * min(found)[0], _ARRIVED * task.shape.standstill)
    _, rounds, steps = min((one for one in found if one[0] <= enough), key=lambda one: (one[1], one[0]))
    return rounds, steps


def _candidates(task: Task, trust: Trust, local_steps: int | None = None) -> Iterator[tuple[int, int, float]]:
    """(rounds, local steps, noise) of every run that the user's numbers leave open, the noise by closed form."""
    wanted = local_steps or task.local_steps
    for rounds in _ROUNDS if task.rounds is None else (task.rounds,):
        for steps in _LOCAL_STEPS if wanted is None else (wanted,):
            yield rounds, steps, task.screened_noise(rounds, steps, summed=trust == "secure_sum")


def calibrated(
    task: Task, name: str, trust: Trust, rounds: int, local_steps: int, batch: int, sampling: Sampling, *,
    given_noise: bool = False,
) -> Option:  # fmt: skip
    """An option with these numbers and the smallest noise that its rule proves, or the user's own noise."""
    part = Exposure(
        rounds=task.rounds_each(rounds), local_steps=local_steps, cohort=task.cohort, devices=task.devices,
        rows=task.rows, batch=batch, noise=1.0, clip=task.clip, sampling=sampling, colluders=task.colluders,
        dropouts=task.dropouts, law=task.law,
    )  # fmt: skip
    # Refused (CH204) where nothing is proved of the secure sum.
    part = replace(part, noise=float(figures_up(smallest_noise(part, task.calibrated, _RULE[trust]), 5)))
    if given_noise and task.noise is not None:
        _check_given_noise(task, part, trust)
        part = replace(part, noise=task.noise)
    loss, everyone = _loss(trust, part), against_everyone(part)
    step_size = task.fitting_step_size(rounds, local_steps, batch, part.noise)
    plan = Plan(
        devices=task.devices, cohort=task.cohort, rounds=rounds, rows=task.rows, batch=batch, step_size=step_size,
        clip=task.clip, noise=part.noise, local_steps=local_steps, sampling=sampling, passes=part.passes, law=task.law,
    )  # fmt: skip
    delta = task.calibrated.delta
    epsilon = loss.epsilon(delta)
    return Option(
        name=name, plan=plan, part=part, rule=loss.rule, adversary=loss.adversary, certificate=loss.certificate,
        trust=trust, epsilon=epsilon,
        epsilon_against_everyone=epsilon if trust == "nobody" else everyone.epsilon(delta),
        guide=task.guide(rounds, local_steps, batch, part.noise, step_size).bound,
    )  # fmt: skip


def _check_given_noise(task: Task, needed: Exposure, trust: Trust) -> None:
    if task.noise is None or task.noise >= needed.noise:
        return
    budget, part = task.calibrated, replace(needed, noise=task.noise)
    reached = _loss(trust, part).epsilon(budget.delta)
    ways = [f"noise = {needed.noise:g}", f"epsilon = {figures_up(reached)}"]
    if _loss(trust, replace(part, rounds=1)).epsilon(budget.delta) <= budget.epsilon:
        ways.append(f"rounds = {most_rounds(part, budget, _RULE[trust]) * task.devices // task.cohort}")
    raise unreachable(task, f"noise = {task.noise:g}", reached, " or ".join(ways))


def unreachable(task: Task, given: str, reached: float, ways: str) -> PlanError:
    """CH201: what can't be had, what can, and which change would reach it."""
    rule = _RULES[task.trust] if task.law == "gaussian" else "S6"
    return PlanError(
        "CH201",
        f"epsilon {task.budget.epsilon:g} is not reachable with {given}. Reachable now: ε ≥ {figures_up(reached)} "
        f"(δ = {task.budget.delta:g}, {ADJACENCY}, rule {rule}, {_AGAINST[task.trust]}).",
        fix=f"Use {ways}.",
    )


def check_that_it_learns(task: Task) -> None:
    """Refuse a budget (CH201) whose noise would drown everything: the guide would say no more than standing still."""
    if _learns(task):
        return
    reached, rows = task.budget.epsilon, task.rows
    while not _learns(replace(task, budget=replace(task.budget, epsilon=reached))):
        reached *= 1.1
    while not _learns(replace(task, rows=rows)):
        rows = math.ceil(rows * 1.1)
    given = f"{task.devices} devices of {task.rows:,} rows: the noise would drown what they learn"
    raise unreachable(task, given, reached, f"epsilon = {figures_up(reached)}, or {rows:,} rows a device")


def _learns(task: Task) -> bool:
    return any(not task.drowned(*candidate) for candidate in _candidates(task, task.trust))


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
    return tuple((at, loss.epsilon(delta)) for at, loss in losses if loss is not None)
