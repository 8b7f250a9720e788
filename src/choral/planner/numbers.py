"""Numbers of a plan from a budget: noise once (rule S7), one noisy step per round, many weights, and Theorem 2.

They follow from public numbers alone: how long training lasts, and how hard a record may pull.
"""

import math
from dataclasses import dataclass
from typing import TypedDict, Unpack

from choral.accounting.conversions import rho_for
from choral.accounting.reserves import spendable
from choral.core.mechanisms import CONVEX, MARGIN
from choral.core.plan import LEAST_PROBES, Budget

UNEQUAL = 2  # times the rows of the smallest device: where a typical one has so many, rows weigh
EASY = 8.0  # the ε that proposals are made for when the noise was chosen by hand
_PROBES = ((128, 32), (64, 16))  # from so many parameters on, so many probes
_OPENED_TURNS = 2  # that a failed check, or an audit, may open
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


# Chosen on made-up tables of many shapes, never on a real one (decision 0046).
_STEPS_OF_MANY = 100  # in all rounds: one per round, since sites that take several between two sums drift apart
_PULL_OF_MANY = 0.25  # the clip, as a share of a row's length
_NOISE_OF_MANY = 2.0  # that all steps together leave on a row's score where nothing damps it
_LONGEST_OF_MANY = 50.0  # most that one step may move a row's score


@dataclass(frozen=True, kw_only=True)
class EveryStepNumbers:
    """What is proposed: rounds, local steps per round, the clip, and the size of a step."""

    rounds: int
    local_steps: int
    clip: float
    step_size: float


def many_weights_numbers(
    *, mu: float, devices: int, rows: int, row_length: float, rounds: int | None = None
) -> EveryStepNumbers:
    """The numbers for a budget of `mu`, with as many steps per round as given `rounds` need.

    T steps of size η with clip C leave a noise of 2RηTC/(mμ√n) on the score of a row of length R, however many they
    are. It is held at a constant, so that weights move as far as the data and the budget are worth.

    >>> numbers = many_weights_numbers(mu=0.5, devices=5, rows=230, row_length=65**0.5)
    >>> numbers.rounds, numbers.local_steps, numbers.clip, numbers.step_size
    (100, 1, 2.0, 0.16)
    """
    local_steps = 1 if rounds is None else math.ceil(_STEPS_OF_MANY / rounds)
    rounds = _STEPS_OF_MANY if rounds is None else rounds
    clip = float(f"{_PULL_OF_MANY * row_length:.2g}")
    moved = _NOISE_OF_MANY * rows * mu * math.sqrt(devices) / (2 * rounds * local_steps)  # a row's score, by one step
    step_size = float(f"{min(moved, _LONGEST_OF_MANY) / (row_length * clip):.2g}")
    return EveryStepNumbers(rounds=rounds, local_steps=local_steps, clip=clip, step_size=step_size)


_TAKEN = "devices' records are taken as drawn from one source, and clipping as inactive"


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """An upper bound in four parts, and whether the run fulfils the step-size condition that it stands on."""

    kind: str = "non_convex"
    version: str = "corrected"
    of: str = "mean squared gradient norm over the averaged iterates"
    start: float  # what is left of f(θ⁰) − f*
    sampling: float  # batches instead of all records: β²/γ
    noise: float  # the noise that stays in the average: dσ²/r
    drift: float  # local models that walk apart between two averages; 0 for τ = 1
    condition: float  # left side of the step-size condition; at most 1 is needed
    valid: bool
    because: str

    @property
    def bound(self) -> float:
        """The sum of the four parts."""
        return self.start + self.sampling + self.noise + self.drift

    def to_dict(self) -> dict[str, object]:
        """The bound and its parts as plain values."""
        parts = {name: getattr(self, name) for name in ("start", "sampling", "noise", "drift")}
        of = {"kind": self.kind, "version": self.version, "of": self.of}
        return of | {"bound": self.bound} | parts | {"valid": self.valid, "because": self.because}


def largest_step_size(*, smoothness: float, local_steps: int = 1) -> float:
    """The largest η that the condition allows: the positive root of 5ηL + 6τ²η²L² = 1.

    >>> largest_step_size(smoothness=1.0, local_steps=2)
    0.125
    """
    # The root in its form without cancellation: 2c/(b + √(b² + 4ac)).
    return 2.0 / (5.0 + math.sqrt(25.0 + 24.0 * local_steps**2)) / smoothness


def step_condition(*, step_size: float, smoothness: float, local_steps: int = 1, factor: int = 6) -> float:
    """5ηL + 6τ²η²L², which the bound needs to be at most 1; the paper prints 3 for the factor 6.

    >>> round(step_condition(step_size=0.018, smoothness=10.0, factor=3), 4)
    0.9972
    """
    x = step_size * smoothness
    return 5 * x + factor * (local_steps * x) ** 2


def condition_in_words(*, step_size: float, smoothness: float, local_steps: int, factor: int = 6) -> str:
    """The step-size condition with its numbers, and the largest step size where it is broken."""
    condition = step_condition(step_size=step_size, smoothness=smoothness, local_steps=local_steps, factor=factor)
    left = f"5ηL + {factor}τ²η²L² = {condition:.4g}"
    if condition <= 1:
        return f"{left} is at most 1"
    most = largest_step_size(smoothness=smoothness, local_steps=local_steps)
    return f"{left} is above 1; the corrected bound holds up to η = {most:.4g}, here η = {step_size:.4g}"


def theorem_2(
    *,
    initial_gap: float,
    step_size: float,
    smoothness: float,
    steps: int,
    noise: float,
    dimension: int,
    cohort: int,
    batch: int,
    local_steps: int = 1,
    gradient_deviation: float = 0.0,
) -> Convergence:
    """The bound after K = Tτ steps for a loss that need not be convex; the caller has checked the numbers.

    >>> numbers = dict(initial_gap=0.0, step_size=0.018, smoothness=10.0, steps=1000, noise=0.3)
    >>> round(theorem_2(dimension=1, cohort=1, batch=1, **numbers).bound, 6)
    0.0162
    """
    x, beta, tau = step_size * smoothness, gradient_deviation, local_steps
    local = 2 * beta**2 / (3 * batch) + dimension * noise**2 * (cohort + 1) / (3 * cohort)
    condition = step_condition(step_size=step_size, smoothness=smoothness, local_steps=tau)
    because = condition_in_words(step_size=step_size, smoothness=smoothness, local_steps=tau)
    return Convergence(
        start=2 * initial_gap / (step_size * steps),
        sampling=x * beta**2 / batch,
        noise=x * dimension * noise**2 / cohort,
        drift=(tau - 1) * (2 * tau - 1) * x**2 * local,
        condition=condition,
        valid=condition <= 1,
        because=f"{because}; {_TAKEN}" if condition <= 1 else because,
    )


class Probing(TypedDict):
    """How a plan probes uploads: projections that a device answers, and turns that may be opened."""

    probes: int
    opened_turns: int


def probes_for(parameters: int) -> Probing:
    """The probes that are proposed for a model of so many parameters.

    >>> probes_for(10), probes_for(210)
    ({'probes': 8, 'opened_turns': 2}, {'probes': 32, 'opened_turns': 2})
    """
    probes = next((count for least, count in _PROBES if parameters >= least), LEAST_PROBES)
    return {"probes": probes, "opened_turns": _OPENED_TURNS}
