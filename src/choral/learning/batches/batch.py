"""A round's batches as arrays, and what every drawer of them can be asked."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import PlanError
from choral.core.plan import Plan
from choral.learning.streams import Words

Rows = NDArray[np.int64]
Source = Callable[[int], Words]  # words of one shape: fresh ones for each number
MOST_ROWS = 2**27  # that one device may use in a round
EMPTY = -1  # at a place that no record was drawn for


@dataclass(frozen=True, kw_only=True, eq=False)
class Batches:
    """The rows of every device and step: `rows[i, t, :counts[i, t]]`; what lies behind is padding and has no weight.

    A place that holds EMPTY has none either. Rows count from each device's own first row: it learns nothing of the
    sizes of others.
    """

    rows: NDArray[np.int32]
    counts: NDArray[np.int32]

    def of(self, some: slice) -> "Batches":
        """Those of some of the devices."""
        return Batches(rows=self.rows[some], counts=self.counts[some])


class Uses(Protocol):
    """How often one device's records have entered a step, held against what its charges pay for."""

    @property
    def of_row(self) -> NDArray[np.uint32]:
        """So often each row was used since counting began."""

    def count(self, batches: Batches, before: int) -> None:
        """Count a round that is charged for, as `before` others are; CH703 if a record is in too many batches."""


class Drawer(Protocol):
    """How a plan's batches are drawn, on the host, for many devices at once; they never depend on a value."""

    @property
    def one_order(self) -> bool:
        """Whether one key of a device fixes the batches of all its rounds; else every round needs its own."""

    def room(self, most_rows: int) -> int:
        """The number of rows for which a batch has room, on devices of at most `most_rows` records."""

    def usual(self, room: int, lanes: int, rare: float) -> int:
        """How much of the room all of so many batches keep to, except with a chance of `rare`."""

    def draw(self, sizes: Rows, before: Rows, key: Words, random: Source | None, room: int) -> Batches:
        """One round's batches for devices of these sizes that took part in `before` rounds.

        `key` is each device's own. `random` gives secret words, (devices, steps, room) at a time; where it is None, as
        in a simulation, everything comes from the key.
        """

    def uses(self, rows: int) -> Uses | None:
        """A count of how often a device's records are used, or None where no number of uses is charged for."""


def within_reason(plan: Plan, room: int) -> int:
    """The room, or CH204 where a device would use more rows in a round than a machine can hold."""
    if room * plan.local_steps > MOST_ROWS:
        raise PlanError(
            "CH204",
            f"{plan.local_steps:,} local steps on batches of {plan.batch:,} are more rows than a round may use.",
            fix=f"Keep local steps × batch below about {MOST_ROWS:,}.",
        )
    return room
