"""The mechanisms of which something is proved, and the one place that decides which of them a plan has."""

from collections.abc import Iterable
from dataclasses import replace

from choral.core import private_sums
from choral.core.exposure import Exposure, in_crowd
from choral.core.mechanisms.clipped_update import CLIPPED_UPDATE, CLIPPED_UPDATES
from choral.core.mechanisms.integer_noise import DISCRETE_GAUSSIAN, SKELLAM
from choral.core.mechanisms.noise_once import NOISE_ONCE
from choral.core.mechanisms.partition import PARTITION
from choral.core.mechanisms.poisson import POISSON
from choral.core.plan import Plan
from choral.core.rules import Loss, Mechanism, adjacency_of

# In the order in which they are asked whether a plan is theirs; a new mechanism is one entry.
MECHANISMS: list[Mechanism] = [*CLIPPED_UPDATES, *NOISE_ONCE, POISSON, PARTITION, DISCRETE_GAUSSIAN, SKELLAM]


def mechanism_of(plan: Plan) -> Mechanism:
    """The mechanism that a plan asks for, or a PlanError where nothing is proved of it.

    >>> plan = Plan(devices=2, cohort=2, rounds=1, rows=8, batch=4, step_size=0.5, clip=1.0, noise=1.0)
    >>> list(mechanism_of(plan).rules)
    ['S5']
    """
    found = next(mechanism for mechanism in MECHANISMS if mechanism.describes(plan))
    found.check(plan)
    return found


def charging(part: Exposure) -> Mechanism:
    """The mechanism by which a device is charged; its own rows may decide."""
    return mechanism_of(part).of_device(part)


def against_everyone(part: Exposure) -> Loss:
    """What is proved of an exposure with no trust in anybody.

    >>> against_everyone(Exposure.of(rounds=13, local_steps=10, cohort=10, devices=16, rows=2440, batch=244,
    ...                              noise=0.004902, clip=1.0, sampling="partition")).rule
    'S1'
    """
    return replace(charging(part).against_everyone(part), adjacency=adjacency_of(part))


def with_secure_sum(part: Exposure) -> Loss | str:
    """What is proved of an exposure with the noise of r_eff devices, or why nothing more is proved.

    >>> loss = with_secure_sum(Exposure.of(rounds=20, local_steps=1, cohort=10, devices=16, rows=100, batch=100,
    ...                                    noise=0.02, clip=1.0, colluders=1))
    >>> loss.rule, loss.event.mu == 2 * 20**0.5 / (100 * 0.02 * 9**0.5)
    ('S2', True)
    """
    if not part.secure_sum:
        return "no secure sum: the server sees every update"
    if part.probes:  # docs/accounting.md, "Probes": what would hide in the sum is not proved of rounded updates
        return f"each device answers {part.probes} probes of its update, so the server sees more than sums"
    loss = charging(part).with_secure_sum(part)
    return loss if isinstance(loss, str) else replace(loss, adjacency=adjacency_of(part))


def of_clipped_updates(part: Exposure) -> Loss:
    """Rule S4 for an exposure whose `clip` and `noise` are those of whole updates.

    >>> part = Exposure.of(rounds=4, local_steps=7, cohort=4, devices=9, rows=10, batch=3, clip=1.0, noise=2.0)
    >>> of_clipped_updates(part).event
    Gaussian(mu=1.0, delta=0.0)
    """
    CLIPPED_UPDATE.check(part)
    return CLIPPED_UPDATE.with_secure_sum(part) if part.secure_sum else CLIPPED_UPDATE.against_everyone(part)


def rules_charged(plan: Plan, sizes: Iterable[int]) -> tuple[str, ...]:
    """The names of all rules by which devices with so many rows are charged, sorted.

    >>> plan = Plan(devices=3, cohort=3, rounds=4, rows=12, batch=12, step_size=0.5, clip=1.0, noise=0.5)
    >>> rules_charged(plan, [12, 40, 40])
    ('S1', 'S5')
    """
    noisy = replace(plan, noise=1.0)  # how much noise there is does not matter
    parts = (in_crowd(noisy, rows=rows, rounds=1, colluders=0, dropouts=0) for rows in set(sizes))
    return tuple(sorted({against_everyone(part).rule for part in parts}))


def rule_in_words(rule: str) -> str:
    """The rule with what it counts, where it is one of choral's own.

    >>> rule_in_words("S1")
    'S1: every noisy step counted on its own'
    """
    known = {name: counted for mechanism in MECHANISMS for name, counted in mechanism.rules.items()}
    known[private_sums.RULE] = private_sums.COUNTED
    return f"{rule}: {known[rule]}" if rule in known else rule
