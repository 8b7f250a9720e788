"""How good a model is, on public rows."""

from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from choral.learning.evaluate import evaluate, squared_gradient_norm
from choral.record import MERITS
from choral.run.study import Study

MEASURED = (*MERITS, "auc", "rmse", "gradient_norm")


def metrics(study: Study, parameters: NDArray[np.float32]) -> dict[str, float]:
    """Every figure that the kind of label has, on the study's test rows; none where there are no such rows."""
    model, rows, target = study.model, study.split.test, study.data.target
    if not len(rows.labels):
        return {}
    found = asdict(evaluate(model, parameters, rows))
    wanted = study.job.run.gradient_norm
    found["gradient_norm"] = squared_gradient_norm(model, parameters, rows) if wanted else None
    if target is not None:
        found["rmse"] *= target.unit  # the error of a number is in the label's own unit
    return {name: round(found[name], 6) for name in MEASURED if found[name] is not None}
