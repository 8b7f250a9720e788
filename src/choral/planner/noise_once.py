"""Numbers for noise once (rule S7), and for one noisy step per round (rule S2), which is the same with one local step.

They follow from public numbers alone: how long training lasts, and how hard a record may pull.
"""

import math
from dataclasses import dataclass
from typing import TypedDict, Unpack

from choral.accounting.conversions import rho_for
from choral.accounting.reserves import spendable
from choral.core.mechanisms import CONVEX, MARGIN
from choral.core.plan import Budget

# Chosen on made-up tables of many shapes (decisions 0030, 0035, 0046 and 0055, which says where real ones had a say).
# Rounds of every device: between them noise is damped, and over the later half of them it evens out. They cost traffic
# and no privacy, and with more of them unlike sites drift less far apart, which shows where data are scarce.
ROUNDS_EACH, _ROUNDS_SCARCE = 20, 60
_LEAST_SHARE = 0.4  # of the noise that is held, where rounds are too few to damp it
# What data and budget are worth together, mμ√(n·r_eff): below the first they are scarce, above the second ample.
_SCARCE, _AMPLE = 250.0, 1000.0
# Slopes where the most steps that a device should take are too short for a gentler one: up to the first as much as is
# needed, beyond it the second, with which half the steps do.
_HARDER = {"softmax": (0.25, 0.5), "sigmoid": (0.25, 0.5), "squared": (0.2, 0.2)}
_MOST_DRIFT = 10  # local time of a squared error times R², for each row per weight
# Local steps of a device over a whole run. The steps of a squared error are half as long as those of a softmax, so
# that these are the same time.
_MOST_STEPS = {"softmax": 2000, "sigmoid": 2000, "squared": 4000}
_NOISE_OF_NUMBERS = 0.8  # on the score of a row, where a device has 1,000 rows with 20 features
_LEAST_ROUNDS, _MOST_ROUNDS = 10, 100  # of one step each
_MOST_MOMENTUM = 0.95


class PlanningConditions(TypedDict, total=False):
    """What both ways are planned from; `honest_noises` is 1 if ε is to hold against everyone."""

    link: str
    classes: int
    features: int
    devices: int
    cohort: int
    rows: int
    row_length: float
    typical_rows: float | None
    rounds: int | None
    slope: float | None
    honest_noises: int


@dataclass(frozen=True, kw_only=True)
class OnceNumbers:
    """What is proposed: rounds, the clip G, and the local steps and their size for the smallest device."""

    rounds: int
    clip: float
    local_steps: int
    step_size: float


@dataclass(frozen=True, kw_only=True)
class Boldness:
    """How hard a record may pull, as a share of its length, what noise is left on a row's score, rounds per device."""

    slope: float
    noise: float
    rounds: int

    @classmethod
    def of(cls, link: str, *, rows: float, worth: float, features: int) -> "Boldness":
        """What suits a device's `rows` and all that data and budget are `worth`, mμ√(n·r_eff).

        Where they are scarce, records pull gently and training lasts longer: with log odds too short a training costs
        more than its noise, which only turns the model. The score of a squared error is the label itself, scaled to
        ±1, so its noise counts in full; more rows and fewer features bear more of it.

        >>> Boldness.of("softmax", rows=90, worth=54, features=30)
        Boldness(slope=0.1, noise=6.0, rounds=60)
        >>> Boldness.of("softmax", rows=2441, worth=2600, features=104)
        Boldness(slope=0.25, noise=4.0, rounds=20)
        >>> Boldness.of("squared", rows=1000, worth=1000, features=20)
        Boldness(slope=0.05, noise=0.8, rounds=60)
        """
        if link == "squared":
            noise = _NOISE_OF_NUMBERS * (rows / 1000) ** 0.35 * (20 / features) ** 0.75
            return cls(slope=0.05, noise=noise, rounds=_ROUNDS_SCARCE)
        ample = min(1.0, max(0.0, math.log(worth / _SCARCE) / math.log(_AMPLE / _SCARCE)))
        rounds = round(_ROUNDS_SCARCE * (ROUNDS_EACH / _ROUNDS_SCARCE) ** ample)
        return cls(slope=0.1 * 2.5**ample, noise=6.0 * (4.0 / 6.0) ** ample, rounds=rounds)


def once_numbers(
    budget: Budget,
    *,
    link: str,
    classes: int,
    features: int,
    devices: int,
    cohort: int,
    rows: int,
    row_length: float,
    typical_rows: float | None = None,
    rounds: int | None = None,
    slope: float | None = None,
    honest_noises: int = 1,
) -> OnceNumbers:
    """The numbers for a budget; `honest_noises` is 1 if ε is to hold against everyone.

    The noise that a total time 𝒯 leaves on a row's score is 2sR²𝒯/(mμ√(n·r_eff)). `Boldness` says at what it is held:
    with less of it learning is unfinished, with more of it the noise is too large. With fewer rounds per device than
    are usual it is less, since less of it is damped. The slope s is larger where the most steps that a device should
    take would be too short. m are the `typical_rows` of a device, on
    average over all of them: a site moves the model in proportion to its rows, and the smallest one, whose `rows` are
    the divisor, decides nothing.

    >>> once_numbers(Budget(epsilon=1.0, delta=1e-5), link="softmax", classes=2, features=104, devices=16, cohort=10,
    ...              rows=1952, row_length=15**0.5).local_steps
    35
    """
    smoothness = CONVEX[link][0] * row_length**2
    left, typical = spendable(budget), rows if typical_rows is None else typical_rows
    mu = math.sqrt(2 * rho_for(epsilon=left.epsilon, delta=left.delta, conversion="exact"))
    worth = typical * mu * math.sqrt(devices * honest_noises)
    bold = Boldness.of(link, rows=typical, worth=worth, features=features)
    rounds = math.ceil(bold.rounds * devices / cohort) if rounds is None else rounds
    most_time = _MOST_STEPS[link] * 2 / smoothness
    if link == "squared":  # devices that differ drift apart within a round, the further the fewer rows a weight has
        most_time = min(most_time, rounds * _MOST_DRIFT * typical / features / row_length**2)
    # A softmax has a gradient √2 times as long; two outputs pull apart twice as fast as one, at twice the smoothness.
    width = math.sqrt(2) if link == "softmax" else 1.0
    faster = width if classes == 2 else 1.0
    damped = min(1.0, max(_LEAST_SHARE, rounds * cohort / devices / ROUNDS_EACH))
    pulled_time = damped * bold.noise * worth / (2 * width * row_length**2 * faster)  # s𝒯, which the noise allows
    if slope is None:
        needed, (hard, hardest) = pulled_time / most_time, _HARDER[link]
        slope = max(bold.slope, needed) if needed <= hard else hardest
    local_time = min(pulled_time / slope, most_time) / rounds * (rows / typical)
    local_steps = max(1, math.ceil(local_time * smoothness / (2 * MARGIN)))
    clip = width * slope * row_length
    return OnceNumbers(rounds=rounds, clip=clip, local_steps=local_steps, step_size=local_time / local_steps)


@dataclass(frozen=True, kw_only=True)
class OneStepNumbers:
    """What is proposed: rounds of one step each, the clip G, the size of a step, and the server's momentum."""

    rounds: int
    clip: float
    step_size: float
    momentum: float


def one_step_numbers(budget: Budget, **conditions: Unpack[PlanningConditions]) -> OneStepNumbers:
    """The numbers for one noisy step per round, with the same total time: momentum makes up for rounds that are short.

    >>> numbers = one_step_numbers(Budget(epsilon=1.0, delta=1e-5), link="softmax", classes=2, features=104, devices=16,
    ...                            cohort=10, rows=1952, row_length=15**0.5, honest_noises=4)
    >>> numbers.rounds, round(numbers.step_size, 3), round(numbers.momentum, 3)
    (100, 0.253, 0.95)
    """
    longest = 2 * MARGIN / (CONVEX[conditions["link"]][0] * conditions["row_length"] ** 2)
    given = conditions.get("rounds")
    whole = once_numbers(budget, **conditions | {"rounds": given})
    total = whole.rounds * whole.local_steps * whole.step_size
    rounds = given or min(_MOST_ROUNDS, max(_LEAST_ROUNDS, math.ceil(total / longest)))
    step_size = min(longest, total / rounds)
    momentum = min(_MOST_MOMENTUM, max(0.0, 1 - step_size * rounds / total))
    return OneStepNumbers(rounds=rounds, clip=whole.clip, step_size=step_size, momentum=momentum)
