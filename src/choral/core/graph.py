"""Who masks with whom: everybody, or a Harary graph on a permutation drawn from the round's context.

The sparse graph is claimed against a curious server only: a lying one can try contexts until the graph suits it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import comb, log2
from typing import Any

from choral.core.errors import PlanError
from choral.core.keys import digest
from choral.core.plan import SecureSum, require_number
from choral.core.plan.secure_sum import PRIVACY_BITS

LIVENESS_BITS = 20


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
        check_degree(self.degree, len(self.cohort))

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


def check_degree(degree: int | None, size: int) -> None:
    """Nothing, or CH200 for a number of neighbours that no circle of this size has."""
    if degree is not None and not (0 < degree < size and degree % 2 == 0):
        raise PlanError(
            "CH200",
            f"{degree} neighbours in a cohort of {size}.",
            fix="Must be even, at least 2 and below the size of the cohort.",
        )


def _tail(population: int, marked: int, drawn: int, least: int) -> Fraction:
    """P[X ≥ least] for X hypergeometric: how many of the drawn are marked. Exact."""
    ways = sum(comb(marked, hit) * comb(population - marked, drawn - hit) for hit in range(least, drawn + 1))
    return Fraction(ways, comb(population, drawn))


def _bits(chance: Fraction) -> float:
    """-log2 of a chance, also where it is far below the smallest float."""
    return math.inf if chance == 0 else log2(chance.denominator) - log2(chance.numerator)


@lru_cache(maxsize=256)
def failure_bits(cohort: int, degree: int, threshold: int, colluders: int, dropouts: int) -> tuple[float, float]:
    """(privacy, liveness) in bits of a Harary graph on a random permutation, for so many colluders and drop-outs.

    Privacy fails if some device has `threshold` colluding neighbours, or if those that are left and honest are no
    longer connected: then two runs of degree/2 consecutive devices are missing, at any of C(n, 2) pairs of places.
    Liveness fails if some device has fewer than `threshold` neighbours left.

    >>> [round(bits, 1) for bits in failure_bits(1000, 48, 27, 100, 100)]
    [42.7, 24.7]
    """
    missing = colluders + dropouts
    exposed = cohort * _tail(cohort - 1, colluders, degree, threshold)
    torn = comb(cohort, 2) * Fraction(comb(missing, degree), comb(cohort, degree))
    stuck = cohort * _tail(cohort - 1, dropouts, degree, degree - threshold + 1)
    return _bits(exposed + torn), _bits(stuck)


def require_private(secure: SecureSum, cohort: int) -> None:
    """Nothing, or a PlanError if a cohort of this size could be torn or exposed on the plan's sparse graph.

    >>> require_private(sparse(1000), 1000)
    """
    if secure.neighbours is None:
        return
    privacy, _ = failure_bits(
        cohort, secure.neighbours, secure.threshold, secure.colluders, cohort - secure.smallest_sum
    )
    if privacy < PRIVACY_BITS:
        raise PlanError(
            "CH205",
            f"{secure.neighbours} neighbours and a threshold of {secure.threshold} give {max(privacy, 0):.1f} bits "
            f"of privacy in a cohort of {cohort:,}; {PRIVACY_BITS} are needed.",
            fix=f"Use choral.core.graph.sparse({cohort}), or a complete graph.",
        )


def sparse(cohort: int, *, colluding: float = 0.1, dropping: float = 0.1, **other: Any) -> SecureSum:  # noqa: ANN401
    """The secure sum on the sparsest safe graph: 40 bits of privacy and 20 of liveness against a curious server.

    The privacy holds for every cohort from the smallest sum to the whole.

    >>> sparse(1000).neighbours, sparse(1000).threshold
    (48, 28)
    """
    require_number("colluding", colluding, below=1.0, closed=True)
    require_number("dropping", dropping, below=1.0, closed=True)
    colluders, dropouts = math.ceil(colluding * cohort), math.ceil(dropping * cohort)
    smallest = cohort - dropouts
    for degree in range(2, smallest, 2):
        for threshold in range(1, degree + 1):
            privacy, liveness = failure_bits(cohort, degree, threshold, colluders, dropouts)
            if liveness < LIVENESS_BITS:
                break  # it only falls as the threshold grows
            # The same colluders are a larger part of the smallest cohort that may meet.
            least, _ = failure_bits(smallest, degree, threshold, colluders, 0)
            if min(privacy, least) >= PRIVACY_BITS:
                return SecureSum(
                    cohort=cohort,
                    smallest_sum=smallest,
                    threshold=threshold,
                    colluders=colluders,
                    adversary="curious",
                    graph="harary",
                    neighbours=degree,
                    **other,
                )
    raise PlanError(
        "CH205",
        f"no sparse graph on {cohort:,} devices withstands {colluders} colluders and {dropouts} drop-outs.",
        fix="Use a complete graph.",
    )
