"""How good the model of a run is, on its public test rows."""

from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from choral.learning.evaluate import evaluate
from choral.run.folder import MERITS
from choral.run.study import Study

MEASURED = (*MERITS, "auc", "rmse")


def metrics(study: Study, parameters: NDArray[np.float32]) -> dict[str, float]:
    """Every figure that the kind of label has; the error of a number is in the label's own unit."""
    found = asdict(evaluate(study.model, parameters, study.split.test))
    if study.data.target is not None:
        found["rmse"] *= study.data.target.unit
    return {name: round(found[name], 6) for name in MEASURED if found[name] is not None}
