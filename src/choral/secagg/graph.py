"""Who masks with whom: everybody, or a Harary graph on a permutation drawn from the round's context.

The sparse graph is claimed against a curious server only: a lying one can try contexts until the graph suits it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from choral.errors import PlanError
from choral.secagg.keys import digest


@dataclass(frozen=True)
class Graph:
    """The neighbourhoods of a cohort in one round; `degree` None joins everybody.

    >>> Graph(("a", "b", "c", "d", "e"), b"ctx", degree=2).neighbours("a")
    ('b', 'e')
    """

    cohort: tuple[str, ...]
    context: bytes
    degree: int | None = None

    def __post_init__(self) -> None:
        if self.degree is not None and not (0 < self.degree < len(self.cohort) and self.degree % 2 == 0):
            raise PlanError(
                "CH200",
                f"{self.degree} neighbours in a cohort of {len(self.cohort)}.",
                fix="Must be even, at least 2 and below the size of the cohort.",
            )

    @cached_property
    def _circle(self) -> Sequence[str]:
        """The cohort in the order of a hash that nobody knows before the last nonce is drawn."""
        return sorted(self.cohort, key=lambda id: digest("graph", self.context, id.encode()))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {id: place for place, id in enumerate(self._circle)}

    def neighbours(self, id: str) -> tuple[str, ...]:
        """The sorted neighbours of a device of the cohort."""
        if self.degree is None:
            return tuple(other for other in self.cohort if other != id)
        here, size = self._places[id], len(self.cohort)
        steps = range(1, self.degree // 2 + 1)
        return tuple(sorted(self._circle[(here + sign * step) % size] for step in steps for sign in (1, -1)))
