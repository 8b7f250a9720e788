"""Time: the loop of Algorithm 1 over rounds. Draws the cohort, asks a backend for the sum, takes the server's step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import NotReadyError, SumError
from choral.core.plan import Participation, Plan
from choral.server_step import MEAN, ServerStep, State, mean

MOST_ATTEMPTS = 2  # of one round: each costs every device that uploads, and no device pays for a third
MOST_CALLS = 3  # of one round that ended before anybody was charged


class RoundSum(Protocol):
    """What a round ends in: the included devices' updates, summed, in steps of the codec's grid."""

    @property
    def total(self) -> NDArray[np.signedinteger[Any]]:
        """The sum."""

    @property
    def included(self) -> Sequence[int]:
        """The numbers of the devices whose updates are in it."""


class Backend(Protocol):
    """A place where a round runs; these two methods are all that the loop needs of it."""

    def may_join(self) -> NDArray[np.bool_]:
        """Which devices may be called now."""

    def round(
        self, parameters: NDArray[np.float32], cohort: Sequence[int], *, round_number: int, attempt: int
    ) -> RoundSum:
        """The sum of the cohort's updates, or a SumError that says what was missing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """One round that is over: who was asked, who is in the sum, and the parameters and the server's state after it."""

    round: int
    cohort: tuple[int, ...]
    included: tuple[int, ...]
    parameters: NDArray[np.float32]
    state: State
    note: str = ""


def draw_cohort(
    willing: NDArray[np.intp], counts: NDArray[np.int64], size: int, rng: np.random.Generator, how: Participation
) -> tuple[int, ...]:
    """Line 2 of Algorithm 1: up to `size` of the willing devices, sorted; uniformly, or those that took part least.

    >>> rng = np.random.default_rng(0)
    >>> draw_cohort(np.arange(4), np.array([3, 0, 3, 1]), 2, rng, "balanced")
    (1, 3)
    """
    shuffled = rng.permutation(willing)
    if how == "balanced":
        shuffled = shuffled[np.argsort(counts[shuffled], kind="stable")]
    return tuple(sorted(int(device) for device in shuffled[:size]))


def cohort_of(
    plan: Plan,
    willing: NDArray[np.intp],
    counts: NDArray[np.int64],
    *,
    seed: int,
    round_number: int,
    attempt: int,
    participation: Participation,
) -> tuple[int, ...]:
    """The cohort of a turn: it depends on the seed, the turn, who is willing and, if balanced, who took part how often.

    >>> plan = Plan(devices=4, cohort=2, rounds=9, rows=9, batch=3, step_size=0.5, clip=1.0, noise=1.0)
    >>> turn = {"seed": 1, "round_number": 2, "attempt": 0}
    >>> cohort_of(plan, np.arange(4), np.array([3, 0, 3, 1]), **turn, participation="balanced")
    (1, 3)
    """
    rng = np.random.Generator(np.random.Philox(key=[seed, (round_number << 8) | attempt]))
    return draw_cohort(willing, counts, plan.cohort, rng, participation)


def rounds(
    plan: Plan,
    backend: Backend,
    parameters: NDArray[np.float32],
    *,
    grid: float,
    seed: int,
    smallest_cohort: int = 1,
    participation: Participation = "uniform",
    first: int = 1,
    first_attempt: int = 0,
    counts: NDArray[np.int64] | None = None,
    server: ServerStep = MEAN,
    state: State | None = None,
) -> Iterator[Step]:
    """Algorithm 1 from round `first` on, one Step per round; ends early when too few devices have budget left.

    A run that goes on after a crash draws the same cohorts, if it says who took part how often (`counts`), and moves
    the parameters as it would have done, if it brings the `state` of the server's step after round `first` − 1.
    `first_attempt` is the first that nobody has used of round `first`.
    """
    counts = np.zeros(plan.devices, dtype=np.int64) if counts is None else counts.copy()
    update = np.empty(parameters.shape, np.float32)
    state = server.init(parameters) if state is None else state
    for number in range(first, plan.rounds + 1):
        notes: list[str] = []
        failed = uncharged = 0
        for attempt in count(first_attempt if number == first else 0):
            willing = np.flatnonzero(backend.may_join())
            if len(willing) < smallest_cohort:
                return
            cohort = cohort_of(
                plan, willing, counts, seed=seed, round_number=number, attempt=attempt, participation=participation
            )
            try:
                opened = backend.round(parameters, cohort, round_number=number, attempt=attempt)
            except SumError as error:
                notes.append(f"attempt {attempt + 1}: {error.code} {error.what}")  # to try again is what is done
                uncharged += isinstance(error, NotReadyError)
                failed += not isinstance(error, NotReadyError)
                if failed < MOST_ATTEMPTS and uncharged < MOST_CALLS:
                    continue
                raise SumError(
                    "CH503",
                    f"round {number} failed {len(notes)} times. Last: {notes[-1]}",
                    fix="Find out why devices drop out; then resume. The model of the last round is kept.",
                ) from None
            included = tuple(opened.included)
            move, state = server.update(mean(opened.total, len(included), grid, out=update), state)
            parameters = parameters + move
            counts[list(included)] += 1
            yield Step(
                round=number,
                cohort=cohort,
                included=included,
                parameters=parameters,
                state=state,
                note=" ".join(notes),
            )
            break
