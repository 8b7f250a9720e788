"""Which runs of a sweep are trained together, and in which order groups of them begin."""

from collections.abc import Hashable, Sequence
from operator import itemgetter
from typing import Protocol, TypeVar

from choral_lab.research.sweep import MOST_REPEATS, MOST_RUNS

TOGETHER = 6  # runs of one group: with many more of them their models leave a core's cache
NEAR_SIZES = (TOGETHER, TOGETHER + 1, TOGETHER - 1, TOGETHER - 2)


class Trainable(Protocol):
    """What is looked at of an experiment."""

    @property
    def noise_is_added(self) -> str: ...  # noqa: D102
    @property
    def rounds(self) -> int: ...  # noqa: D102
    @property
    def cohort(self) -> int: ...  # noqa: D102
    @property
    def local_steps(self) -> int: ...  # noqa: D102
    @property
    def batch(self) -> int: ...  # noqa: D102


One = TypeVar("One", bound=Trainable)
Program = TypeVar("Program", bound=Hashable)
Runs = Sequence[tuple[One, int]]  # of one form, each with its repeat
Grouped = tuple[Program, Runs[One]]  # what is compiled for a group, and the group


def in_groups(alike: Runs[One], *, mixed: bool = False) -> list[Runs[One]]:
    """Runs in groups of one size if one is near that divides them, so that little is compiled.

    Those with noise once are one group. `mixed` runs fill compiled calls of a fixed number of runs and of repeats.
    """
    if mixed:
        return _in_calls(alike)
    if alike[0][0].noise_is_added == "once":
        return [alike]
    whole = [size for size in NEAR_SIZES if len(alike) % size == 0]
    size = whole[0] if whole else -(-len(alike) // -(-len(alike) // TOGETHER))
    return [alike[start : start + size] for start in range(0, len(alike), size)]


def _in_calls(alike: Runs[One]) -> list[Runs[One]]:
    """Runs of few repeats together, so that calls are full before they have as many repeats as they may."""
    calls: list[list[tuple[One, int]]] = [[]]
    for run in sorted(alike, key=itemgetter(1)):
        repeats = {repeat for _, repeat in [*calls[-1], run]}
        if len(calls[-1]) == MOST_RUNS or len(repeats) > MOST_REPEATS:
            calls.append([])
        calls[-1].append(run)
    return list(calls)


def in_order(groups: Sequence[Grouped[Program, One]]) -> list[Grouped[Program, One]]:
    """The first group of every form comes first, so that no group waits while another compiles what both need.

    Then come the largest, so that no core is idle at the end.
    """
    first: dict[tuple[Program, int], Grouped[Program, One]] = {}
    later = []
    for one in groups:
        form, group = one
        if first.setdefault((form, len(group)), one) is not one:
            later.append(one)
    return [*first.values(), *sorted(later, key=lambda one: -work(one[1]))]


def work(group: Sequence[tuple[Trainable, int]]) -> int:
    """About how much a group has to do: the rows of all its steps."""
    first, _ = group[0]
    return len(group) * first.rounds * first.cohort * first.local_steps * first.batch
