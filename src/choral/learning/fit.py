"""Whether a model, records and a plan go together, asked before anything is compiled."""

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import PlanError, TableError, TrainingError
from choral.core.plan import Plan
from choral.learning.models import Model
from choral.tables.records import Labels, Records, by


def check_compiled(model: Model) -> None:
    """Refuse a model that JAX does not train."""
    if model.trainer is not None:
        raise TrainingError(
            "CH701",
            f'the model "{model.name}" has its own trainer, which the engine can\'t compile.',
            fix="Simulate, rehearse or deploy it; this needs a model in JAX.",
        )


def check_fit(model: Model, records: Records, plan: Plan) -> None:
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


def require_rows(model: Model, plan: Plan, features: NDArray[np.float32], labels: Labels) -> None:
    """Refuse a device's rows that do not go with the model or are fewer than the plan is for."""
    if features.shape != (len(labels), *model.row):
        raise TableError(
            "CH312",
            f"features {features.shape} and labels {labels.shape}, the model takes {by(model.row)} features.",
            fix="Give one label per row, and the columns that the plan names.",
        )
    if len(labels) < plan.least_rows:
        raise TableError(
            "CH305",
            f"this device has {len(labels):,} rows; the plan is for devices of {plan.least_rows:,} or more.",
            fix="Do not take part, or ask for a plan with fewer rows.",
        )
