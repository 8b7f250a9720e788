"""Numbers for noise once (rule S7), from public numbers alone: how long a round lasts, how hard a record may pull."""

import math
from dataclasses import dataclass

from choral.plan import Budget
from choral.privacy.calibrate import spendable
from choral.privacy.mechanisms.noise_once import CONVEX, MARGIN
from choral.privacy.zcdp import rho_for

ROUNDS_EACH = 5  # of every device: more rounds gained little at one total time
GENTLE, HARD = 0.3, 0.5  # slopes: how hard one record may pull, in units of the row's length
_BALANCE = 1.5  # where the noise that is left on a row's score and unfinished learning are about even
_MOST_STEPS = 2000  # local steps of a device over a whole run


@dataclass(frozen=True, kw_only=True)
class OnceNumbers:
    """What is proposed: rounds, the clip G, and the local steps and their size for the smallest device."""

    rounds: int
    clip: float
    local_steps: int
    step_size: float


def once_numbers(
    budget: Budget,
    *,
    link: str,
    classes: int,
    devices: int,
    cohort: int,
    rows: int,
    row_length: float,
    rounds: int | None = None,
    slope: float | None = None,
    honest_noises: int = 1,
) -> OnceNumbers:
    """The numbers for a budget; `honest_noises` is 1 if ε is to hold against everyone.

    The noise that a total time 𝒯 leaves on a row's score is 2sR²𝒯/(mμ√(n·r_eff)). It is held at 1.5: with less of it
    learning is unfinished, with more of it the noise is too large. The slope s is gentle, unless the most steps that a
    device should take allow a harder one.

    >>> once_numbers(Budget(epsilon=1.0, delta=1e-5), link="softmax", classes=2, devices=16, cohort=10, rows=1952,
    ...              row_length=15**0.5).local_steps
    87
    """
    unit_smoothness, unit_gradient = CONVEX[link]
    smoothness, longest = unit_smoothness * row_length**2, unit_gradient * row_length
    rounds = math.ceil(ROUNDS_EACH * devices / cohort) if rounds is None else rounds
    left = spendable(budget)
    mu = math.sqrt(2 * rho_for(epsilon=left.epsilon, delta=left.delta, conversion="exact"))
    most_time = _MOST_STEPS * 2 / smoothness
    two_outputs = link == "softmax" and classes == 2  # they pull apart twice as fast as one, at twice the smoothness
    width = math.sqrt(2) if two_outputs else 1.0

    def total_time(gradient: float) -> float:
        score = 2 * gradient * row_length / (rows * mu * math.sqrt(devices * honest_noises))
        return _BALANCE / (score * width)

    if classes > 2:
        clip = longest
    else:
        gentle, hard = (width * one * row_length for one in ((GENTLE, HARD) if slope is None else (slope, slope)))
        clip = gentle if total_time(gentle) <= most_time else hard
    local_time = min(total_time(clip), most_time) / rounds
    local_steps = max(1, math.ceil(local_time * smoothness / (2 * MARGIN)))
    return OnceNumbers(rounds=rounds, clip=clip, local_steps=local_steps, step_size=local_time / local_steps)
