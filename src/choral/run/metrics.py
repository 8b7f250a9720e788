"""How good a model is, on public rows."""

from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from choral.learning.columns import Numeric
from choral.learning.evaluate import evaluate, squared_gradient_norm
from choral.learning.models import Model
from choral.learning.records import Records
from choral.record import MERITS

MEASURED = (*MERITS, "auc", "rmse", "gradient_norm")


def metrics(
    model: Model,
    parameters: NDArray[np.float32],
    rows: Records,
    target: Numeric | None = None,
    *,
    gradient_norm: bool = False,
) -> dict[str, float]:
    """Every figure that the kind of label has; the error of a number is in the label's own unit.

    `gradient_norm` asks for the squared norm of the loss's gradient on these rows, too.
    """
    found = asdict(evaluate(model, parameters, rows))
    found["gradient_norm"] = squared_gradient_norm(model, parameters, rows) if gradient_norm else None
    if target is not None:
        found["rmse"] *= target.unit
    return {name: round(found[name], 6) for name in MEASURED if found[name] is not None}
