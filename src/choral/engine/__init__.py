"""Rounds of a whole cohort on one machine: `compiled` trains many devices in one call, `per_device` one after another.

Masks are left out, since they cancel. The sum is taken in the codec's integers, so it equals the secure sum bit for
bit.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from choral.core.masks import Stream


class Grid(Protocol):
    """What an engine needs of the codec: the step of the grid, and the most steps of one coordinate of one update."""

    @property
    def grid(self) -> float: ...  # noqa: D102
    @property
    def largest(self) -> int: ...  # noqa: D102


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedSum:
    """What the server learns of a round: the sum of the included updates in grid steps, and how many there are."""

    total: NDArray[np.int64]
    count: int


class TrainsCohorts(Protocol):
    """What a place asks of either engine; `rounds_of` is in how many rounds each device took part."""

    rounds_of: NDArray[np.int64]

    def train(self, parameters: NDArray[np.float32], round_number: int, cohort: NDArray[np.int64], /) -> SimulatedSum:
        """The sum of these devices' updates, and their number."""

    def updates(
        self, parameters: NDArray[np.float32], round_number: int, cohort: NDArray[np.int64]
    ) -> NDArray[np.floating[Any]]:
        """Each device's own update, the very one inside `train`, for a rehearsal, whose devices encode themselves."""

    def dither(self, round_number: int, device: int) -> NDArray[np.float32]:
        """The dither that `train` rounds this device's update with."""

    def noise(self, round_number: int, device: int) -> Stream | None:
        """The keystream of the whole noise that `train` adds to this device's integers; None where there is none."""
