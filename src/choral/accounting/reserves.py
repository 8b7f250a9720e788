"""The shares of δ that a run keeps for rare failures: batches beyond their room, rounded coins and long updates."""

import math
from dataclasses import replace

from choral.core.errors import PlanError
from choral.core.plan import MOST_ROUNDED, OUT_OF_RANGE, OVERFLOW, Budget, Plan, require_whole

# How far a record's own coin is from one of probability q in a drawn step, given all other coins, on average over them:
# gaps are logarithms of words of 53 bits. docs/accounting.md proves it for all m and q ("Words of 53 bits").
OWN_COIN = 1195 * 2.0**-53
_LEAST_RATE = 1e-10  # for which it is proved; one row of the most that a device may have is above it
_RESERVED = 1e-3  # of δ: what each kind of rare failure may take of it, and no more than a plan keeps that says nothing
_MOST_OF_DELTA = 0.5  # that the rounding of very many coins may take, together with full batches
_MOST_DRAWS = 10**9
_SLACK = 1e-9  # what rounding may add


def rounded_coin(probability: float) -> float:
    """What the rounding of one drawn step adds to δ: a coin that falls more often than is charged, at its worst.

    >>> rounded_coin(0.1) < 2**-42 < rounded_coin(0.9)
    True
    """
    if probability < _LEAST_RATE:
        return math.inf
    return OWN_COIN / (1 - probability) if probability < 1 else 0.0  # where all are drawn, nothing is rounded


def overflow(*, rows: int, batch: int, capacity: int, together: int = 1) -> float:
    """A bound on the chance, per step, that the other records alone fill a Poisson batch's fixed capacity.

    Add steps × this to δ: given that they don't, the record's own coin is untouched, so S5 holds as it stands. For
    several records `together` it is the chance that the others leave no room for all of them.

    >>> overflow(rows=2440, batch=244, capacity=400) < 1e-20
    True
    """
    rows, batch = require_whole("rows", rows), require_whole("batch", batch, most=rows)
    capacity = require_whole("capacity", capacity, most=rows)
    others, probability = rows - together, batch / rows
    capacity = max(0, capacity + 1 - together)
    if capacity > others:
        return 0.0
    if probability == 1.0 or capacity <= others * probability + 1:
        return 1.0
    log_odds = math.log(probability) - math.log1p(-probability)
    log_term = (
        (math.lgamma(others + 1) - math.lgamma(capacity + 1) - math.lgamma(others - capacity + 1))
        + capacity * log_odds
        + others * math.log1p(-probability)
    )
    # From here each term is at most `ratio` times the one before: a geometric series bounds the whole tail.
    ratio = (others - capacity) / (capacity + 1) * probability / (1 - probability)
    rounding = 4e-16 * math.lgamma(others + 2)  # lgamma's last bits, which a bound may not lose
    return min(1.0, math.exp(log_term + rounding) / (1 - ratio))


def room_chance(plan: Plan, draws: int, probability: float) -> float:
    """What the rounding of coins leaves of a plan's β, in so many drawn batches, for batches that exceed their room."""
    return plan.overflow - min(draws * rounded_coin(probability), MOST_ROUNDED * plan.overflow)


def most_draws(probability: float, delta: float) -> int:
    """How many batches a run may draw with this probability, by what their rounding may take of δ.

    >>> most_draws(0.1, 1e-9) > 3000, most_draws(1.0, 1e-9) == 10**9
    (True, True)
    """
    coin = rounded_coin(probability)
    return int(MOST_ROUNDED * _MOST_OF_DELTA * delta / coin) if coin else _MOST_DRAWS


def _coin(plan: Plan) -> float:
    """What the rounding of one drawn batch of a plan may take of δ, at any device.

    Where the smallest device draws all of its rows, it rounds nothing, and the rounding of one with more rows is
    bounded by what its steps cost without sampling (docs/accounting.md).
    """
    if plan.partitioned or plan.protects.clips_update:
        return 0.0
    rate = plan.batch / plan.rows
    return rounded_coin(rate) if rate < 1 else OWN_COIN


def _draws(plan: Plan) -> int:
    return plan.rounds * plan.mechanism.draws(plan)


def with_reserves(plan: Plan, delta: float) -> Plan:
    """The plan with what it keeps of δ for rare failures: a thousandth for each, or what rounded coins take.

    Of a δ above 1e-5 no more is kept than of that one. Refused (CH204) where the coins would take half of δ.

    >>> plan = Plan(devices=4, cohort=4, rounds=10, rows=10**6, batch=1000, step_size=0.1, clip=1.0, noise=0.0)
    >>> kept = with_reserves(plan, 1e-9)
    >>> kept.overflow < 0.01 * 1e-9, with_reserves(plan, 1e-5) == plan
    (True, True)
    """
    usual = min(OVERFLOW, _RESERVED * delta)
    needed = _draws(plan) * _coin(plan) / MOST_ROUNDED * (1 + _SLACK)
    if needed > _MOST_OF_DELTA * delta:
        raise _too_many_draws(plan, _MOST_OF_DELTA * delta)
    return replace(plan, overflow=max(usual, needed), out_of_range=min(OUT_OF_RANGE, _RESERVED * delta))


def within_draws(plan: Plan) -> Plan:
    """The plan, or CH204 where it draws more Poisson batches than its β pays for."""
    if _draws(plan) * _coin(plan) > MOST_ROUNDED * plan.overflow:
        raise _too_many_draws(plan, plan.overflow)
    return plan


def _too_many_draws(plan: Plan, overflow: float) -> PlanError:
    return PlanError(
        "CH204",
        f"{_draws(plan):,} Poisson batches in a run, {int(MOST_ROUNDED * overflow / _coin(plan)):,} are the most.",
        why=f"The rounding of so many draws would take more than {overflow:g} of δ.",
        fix='Use fewer rounds or local steps, or sampling = "partition", in a new run.',
    )


def spendable(budget: Budget, plan: Plan | None = None) -> Budget:
    """The budget that noise may use up: without the shares of δ that a plan keeps for rare failures.

    Without a plan, those that one of few batches keeps.

    >>> spendable(Budget(epsilon=1.0, delta=1e-5)).delta == 1e-5 - 2e-8
    True
    """
    usual = min(OVERFLOW, _RESERVED * budget.delta), min(OUT_OF_RANGE, _RESERVED * budget.delta)
    overflow, out_of_range = usual if plan is None else (plan.overflow, plan.out_of_range)
    return replace(budget, delta=budget.delta - overflow - out_of_range)
