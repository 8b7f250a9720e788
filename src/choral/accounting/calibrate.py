"""Noise for a budget and rounds for a noise, under any rule; the way out when a budget can't be reached.

`calibrated` is what the planner and every run use: its `with_reserves` alone decides how much of δ is kept for rare
failures.

Every result lands between 0.999 and 1.000 times the target: never above it.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, Unpack

from choral.accounting import published
from choral.accounting.conversions import rho_for
from choral.accounting.proofs import (
    Conditions,
    Loss,
    against_everyone,
    exposed,
    of_clipped_updates,
    rounds_each,
    with_secure_sum,
)
from choral.accounting.reserves import spendable, with_reserves
from choral.core.errors import PlanError
from choral.core.events import Event, Gaussian, Poisson, Zcdp, epsilon_of
from choral.core.exposure import Exposure, in_crowd
from choral.core.plan import Budget, Plan, require_number, require_one_of
from choral.core.printable import figures_up

Rule = Literal[
    "proved", "with_secure_sum", "clipped_updates", "paper", "paper_without_secure_sum", "dp_sgd", "dp_sgd_as_printed"
]
PAPER_RULES: dict[str, Callable[[Exposure], published.Published]] = {
    "paper": published.theorem_1,
    "paper_without_secure_sum": published.without_secure_sum,
    "dp_sgd": published.dp_sgd_corrected,
    "dp_sgd_as_printed": published.dp_sgd_as_printed,
}
_PROVED: dict[str, Callable[[Exposure], Loss | str]] = {
    "proved": against_everyone,
    "with_secure_sum": with_secure_sum,
    "clipped_updates": of_clipped_updates,
}
RULES: tuple[str, ...] = (*_PROVED, *PAPER_RULES)

_MOST_ROUNDS = 10**9
_SLACK = 1e-9  # what rounding may add to an ε that was computed to the last bits
_LEAST_LEFT = 1e-3  # of ρ, for the rounds of a study that also asks
_BAND = 5e-4  # how far below its target a search may stop


def calibrated(
    plan: Plan,
    budget: Budget,
    *,
    rule: str = "proved",
    colluders: int = 0,
    dropouts: int = 0,
    other: Gaussian | None = None,
) -> Plan:
    """The plan with the least noise for which every device that takes its turns stays within the budget.

    `other` is the part of the budget that is spent on anything but rounds.

    >>> plan = Plan(devices=16, cohort=10, rounds=20, rows=2440, batch=2440, local_steps=10, step_size=0.5, clip=1.0,
    ...             noise=0.0)
    >>> round(calibrated(plan, Budget(epsilon=1.0, delta=1e-5)).noise, 4)
    0.0349
    """
    plan = replace(with_reserves(plan, budget.delta), noise=1.0)  # where the search starts
    part = in_crowd(plan, rows=plan.rows, rounds=rounds_each(plan), colluders=colluders, dropouts=dropouts)
    if rule == "with_secure_sum" and isinstance(reason := with_secure_sum(part), str):
        raise PlanError(
            "CH204",
            f"nothing is proved of the secure sum here: {reason}.",
            fix='Use one local step, noise_is_added = "once" with a convex model, or against = "everyone".',
        )
    return replace(plan, noise=smallest_noise(part, spendable(budget, plan), rule, other=other))


def loss_under(rule: str, part: Exposure) -> Loss | published.Published:
    """What a rule says of an exposure; an error where it has no certificate."""
    require_one_of("rule", rule, RULES)
    loss = (PAPER_RULES | _PROVED)[rule](part)
    if isinstance(loss, str):
        raise PlanError(
            "CH204",
            f"nothing is proved of the secure sum here: {loss}.",
            fix='Use rule = "proved", local_steps = 1, or a partition with step_size and smoothness.',
        )
    return loss


def smallest_noise(
    part: Exposure,
    budget: Budget,
    rule: str = "proved",
    *,
    most_noise: float = math.inf,
    other: Gaussian | None = None,
) -> float:
    """The least noise with which the exposure stays within the budget; `part.noise` only starts the search.

    With `other`, an event that takes a part of the budget, both together stay within it.

    >>> part = exposed(rounds=13, local_steps=10, cohort=10, devices=16, rows=2440, batch=244, noise=1.0, clip=1.0)
    >>> noise = smallest_noise(part, Budget(epsilon=2.0, delta=1e-5))
    >>> 0.999 <= loss_under("proved", replace(part, noise=noise)).epsilon(1e-5) / 2.0 <= 1.0
    True
    """
    _HYPOTHESES.get(rule, lambda _: None)(part)
    loss = loss_under(rule, part)
    if isinstance(loss, published.Published):
        ratio = loss.rho / rho_for(epsilon=budget.epsilon, delta=budget.delta, conversion="paper")
        noise = part.noise * math.sqrt(ratio) * (1 + _SLACK)
    else:
        noise = _noise_of(loss.event, part, budget, rule, other)
    if noise > most_noise:
        raise _unreachable(replace(part, noise=most_noise), budget, rule, f"noise at most {most_noise:g}")
    return noise


def _noise_of(event: Event, part: Exposure, budget: Budget, rule: str, other: Gaussian | None) -> float:
    """The least noise by the event that a rule charges: in closed form, or by search from a noise that is enough."""
    taken, delta = (0.0, budget.delta) if other is None else (other.mu**2 / 2, budget.delta - other.delta)

    def left(rho: float) -> float:
        if not taken < rho * (1 - _LEAST_LEFT):
            raise PlanError(
                "CH201",
                f"epsilon {budget.epsilon:g} is not reachable: questions take all of it, or nearly.",
                fix="Give [privacy] a larger epsilon, or [ask] a smaller one.",
            )
        return rho - taken

    if isinstance(event, Zcdp):
        rho = left(rho_for(epsilon=budget.epsilon, delta=delta))
        return part.noise * math.sqrt(event.rho / rho) * (1 + _SLACK)

    def epsilon_at(trial: float) -> float:
        if other is None:
            return _epsilon(rule, replace(part, noise=trial), budget.delta)
        loss = loss_under(rule, replace(part, noise=trial))
        return epsilon_of([loss.event, other], budget.delta) if isinstance(loss, Loss) else loss.epsilon(budget.delta)

    mu = math.sqrt(2 * left(rho_for(epsilon=budget.epsilon, delta=delta, conversion="exact")))
    if isinstance(event, Gaussian):
        return part.noise * event.mu / mu * (1 + _SLACK)
    if isinstance(event, Poisson):
        # Without sampling this multiplier would do, so with sampling it is too much.
        enough = part.noise * (2 * math.sqrt(part.rounds * part.local_steps) / mu) / event.noise_multiplier
        return _search(epsilon_at, budget.epsilon, enough)
    # Skellam noise costs a little more than the discrete Gaussian, whose noise has a closed form.
    enough = smallest_noise(replace(part, law="discrete_gaussian"), budget, rule, other=other)
    while epsilon_at(enough) > budget.epsilon:
        enough *= 2
    return _search(epsilon_at, budget.epsilon, enough)


def most_rounds(part: Exposure, budget: Budget, rule: str = "proved") -> int:
    """The most rounds that the exposure's noise allows within the budget; `part.rounds` is not used.

    >>> part = exposed(rounds=1, local_steps=10, cohort=10, devices=16, rows=2440, batch=244, noise=0.02, clip=1.0)
    >>> most_rounds(part, Budget(epsilon=2.0, delta=1e-5))
    15
    """

    def fits(rounds: int) -> bool:
        return _epsilon(rule, replace(part, rounds=rounds), budget.delta) <= budget.epsilon

    if not fits(1):
        raise _unreachable(replace(part, rounds=1), budget, rule, f"noise = {part.noise:g}, even in one round")
    low, high = 1, 2
    while high < _MOST_ROUNDS and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def noise_for(
    *,
    epsilon: float,
    delta: float,
    rule: Rule = "proved",
    most_noise: float | None = None,
    **numbers: Unpack[Conditions],
) -> float:
    """The smallest noise for a budget under a rule, with the numbers of `account` as keywords.

    >>> round(noise_for(epsilon=10.0, delta=1e-4, rule="paper", rounds=13, local_steps=10, cohort=10, devices=16,
    ...                 rows=2440, batch=244, clip=1.0), 6)
    0.004902
    """
    part = exposed(noise=1.0, **numbers)
    most = math.inf if most_noise is None else require_number("most_noise", most_noise)
    return smallest_noise(part, Budget(epsilon=epsilon, delta=delta), rule, most_noise=most)


def _require_whole_passes(part: Exposure) -> None:
    """Refuse to calibrate a partition by Theorem 1 where its hypotheses can't hold: γ | m and E | τ."""
    if part.sampled:
        return
    batches, left = divmod(part.rows, part.batch)
    if left or part.local_steps % batches:
        passes = max(1, part.local_steps // batches)
        rest = f" and {left:,} rows left over" if left else ""
        whole = (
            f"local_steps = {passes * batches} or {(passes + 1) * batches}"
            if not left
            else "a batch that divides the rows"
        )
        raise PlanError(
            "CH202",
            f"local steps = {part.local_steps} do not fill whole passes: {part.rows:,} rows in {batches:,} batches of "
            f"{part.batch:,}{rest}.",
            why="The paper's rule needs whole passes.",
            fix=f'Use {whole}, or sampling = "poisson".',
        )


_HYPOTHESES = {"paper": _require_whole_passes}


def _epsilon(rule: str, part: Exposure, delta: float) -> float:
    return loss_under(rule, part).epsilon(delta)


def _unreachable(part: Exposure, budget: Budget, rule: str, given: str) -> PlanError:
    """CH201 with the ε that is reachable as things stand, and what would help."""
    loss = loss_under(rule, part)
    reachable = loss.epsilon(budget.delta)
    return PlanError(
        "CH201",
        f"epsilon {budget.epsilon:g} is not reachable with {given}. Reachable now: ε ≥ {figures_up(reachable)} "
        f"(rule {rule}, δ = {budget.delta:g}, {loss.adjacency}).",
        fix=_ways_out(part, budget, rule),
    )


def _ways_out(part: Exposure, budget: Budget, rule: str) -> str:
    """The numbers that would reach the budget, the noise always and fewer rounds where they suffice."""
    noise = smallest_noise(part, budget, rule)
    ways = [f"noise = {figures_up(noise, 4)}"]
    if part.rounds > 1 and _epsilon(rule, replace(part, rounds=1), budget.delta) <= budget.epsilon:
        ways.append(f"rounds = {most_rounds(part, budget, rule)}")
    return f"Use {' or '.join(ways)}."


def _search(epsilon_at: Callable[[float], float], target: float, enough: float) -> float:
    """A noise whose ε lies within the band below the target, by secants in log-log, always bracketed."""
    aim = target * (1 - _BAND / 2)

    def excess(log_noise: float) -> float:
        # ε = 0 at large δ has no logarithm; far below the target its exact size does not matter.
        return math.log(max(epsilon_at(math.exp(log_noise)) / aim, 1e-3))

    high = math.log(enough)
    at_high = excess(high)
    if abs(at_high) <= _BAND / 2:
        return enough
    low, at_low = high - 1, excess(high - 1)
    while at_low <= 0:
        high, at_high = low, at_low
        low, at_low = low - 1, excess(low - 1)
    while high - low > 1e-12:
        share = at_low / (at_low - at_high)
        point = low + (high - low) * min(0.95, max(0.05, share))
        at_point = excess(point)
        if abs(at_point) <= _BAND / 2:
            return math.exp(point)
        if at_point > 0:
            low, at_low = point, at_point
        else:
            high, at_high = point, at_point
    return math.exp(high)  # ε jumps past the band here; the noise above the jump is safe
