"""Numbers for noise in every step where several classes have many weights; every step sees all rows (rule S1)."""

import math
from dataclasses import dataclass

# Chosen on made-up tables of many shapes, never on a real one (decision 0046).
_STEPS = 100  # in all rounds: one per round, since sites that take several between two sums drift apart
_PULL = 0.25  # the clip, as a share of a row's length
_NOISE = 2.0  # that all steps together leave on a row's score where nothing damps it
_LONGEST = 50.0  # most that one step may move a row's score


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
    local_steps = 1 if rounds is None else math.ceil(_STEPS / rounds)
    rounds = _STEPS if rounds is None else rounds
    clip = float(f"{_PULL * row_length:.2g}")
    moved = _NOISE * rows * mu * math.sqrt(devices) / (2 * rounds * local_steps)  # a row's score, by one step
    step_size = float(f"{min(moved, _LONGEST) / (row_length * clip):.2g}")
    return EveryStepNumbers(rounds=rounds, local_steps=local_steps, clip=clip, step_size=step_size)
