"""Rounds of a whole cohort on one machine: `compiled` trains many devices in one call, `per_device` one after another.

Masks are left out, since they cancel. The sum is taken in the codec's integers, so it equals the secure sum bit for
bit.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import PlanError, TableError, TrainingError
from choral.core.masks import Stream
from choral.core.plan import Plan
from choral.tables.records import Records, by

if TYPE_CHECKING:
    from choral.learning.models import Model


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


def check_compiled(model: "Model") -> None:
    """Refuse a model that JAX does not train."""
    if model.trainer is not None:
        raise TrainingError(
            "CH701",
            f'the model "{model.name}" has its own trainer, which the engine can\'t compile.',
            fix="Simulate, rehearse or deploy it; this needs a model in JAX.",
        )


def check_fit(model: "Model", records: Records, plan: Plan) -> None:
    """Refuse a model, records and a plan that do not go together."""
    if records.shape != model.row:
        raise TableError(
            "CH312",
            f"the rows have {by(records.shape)} features, the model takes {by(model.row)}.",
            fix="Make the model for the features that the table has.",
        )
    if plan.devices != records.devices:
        raise PlanError(
            "CH204", f"the plan is for {plan.devices} devices, the records are of {records.devices}.",
            fix="Give both the same number.",
        )  # fmt: skip
    if len(records.features) >= 2**31:
        raise TableError(
            "CH312", f"{len(records.features):,} rows in one process.", fix="Use fewer than 2,147,483,648."
        )
    if model.classes and len(records.labels):
        least, most = int(records.labels.min()), int(records.labels.max())
        if least < 0 or most >= model.classes:
            raise TableError(
                "CH311",
                f"labels lie outside the {model.classes} classes of the model.",
                fix=f"Number the classes from 0 to {model.classes - 1}.",
            )
