"""How good a model is, on rows that nobody trained on; the figures have no noise."""

import math
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from choral.learning.evaluate import decide, evaluate, predict, squared_gradient_norm
from choral.record import MERITS, Measured
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


def measured(study: Study, parameters: NDArray[np.float32]) -> Measured | None:
    """How sure the accuracy on the study's test rows is, and the recall of each class; None without such rows."""
    rows = study.split.test
    count = len(rows.labels)
    if not count:
        return None
    if study.data.target is not None:
        return Measured(rows=count)
    shares = np.bincount(rows.labels, minlength=len(study.data.classes)) / count
    right = decide(predict(study.model, parameters, rows.features)) == rows.labels
    share = float(right.mean())
    recall = {
        name: round(float(right[rows.labels == number].mean()), 6)
        for number, name in enumerate(study.data.classes)
        if (rows.labels == number).any()
    }
    return Measured(
        rows=count,
        error=round(math.sqrt(share * (1 - share) / count), 6),
        recall=recall,
        rarest=round(float(shares.min()), 6),
        loss_error=round(evaluate(study.model, parameters, rows).loss_error, 6),
    )
