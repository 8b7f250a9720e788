"""Which runs of a sweep are trained together, and in which order groups of them begin."""

from collections.abc import Hashable, Sequence
from typing import Protocol, TypeVar

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
Grouped = tuple[Hashable, Sequence[One], int]  # what is compiled for a group, the group, and its repeat


def in_groups(alike: Sequence[One]) -> list[Sequence[One]]:
    """Experiments in groups of one size if one is near that divides them, so that little is compiled.

    Those with noise once are one group.
    """
    if alike[0].noise_is_added == "once":
        return [alike]
    whole = [size for size in NEAR_SIZES if len(alike) % size == 0]
    size = whole[0] if whole else -(-len(alike) // -(-len(alike) // TOGETHER))
    return [alike[start : start + size] for start in range(0, len(alike), size)]


def in_order(groups: Sequence[Grouped[One]]) -> list[Grouped[One]]:
    """The first group of every form comes first, so that no group waits while another compiles what both need.

    Then come the largest, so that no core is idle at the end.
    """
    first: dict[tuple[Hashable, int], Grouped[One]] = {}
    later = []
    for one in groups:
        form, group, _ = one
        if first.setdefault((form, len(group)), one) is not one:
            later.append(one)
    return [*first.values(), *sorted(later, key=lambda one: -work(one[1]))]


def work(group: Sequence[Trainable]) -> int:
    """About how much a group has to do: the rows of all its steps."""
    first = group[0]
    return len(group) * first.rounds * first.cohort * first.local_steps * first.batch
