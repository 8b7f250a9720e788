"""What the same rows give without privacy, to each device by itself, and without any model: lines to judge a run by."""

import numpy as np
from numpy.typing import NDArray

from choral.learning.converged import converged
from choral.learning.evaluate import Evaluation, evaluate, explained
from choral.learning.persons import rows_of
from choral.record import Baselines
from choral.run.study import Study
from choral.run.watch import Watch, unwatched
from choral.tables.records import Records

MOST_ALONE = 20  # devices that are trained by themselves; of more, so many are drawn


def baselines(study: Study, watch: Watch = unwatched) -> Baselines:
    """The run's figure of merit for three others: all rows pooled, each device alone, and always the same answer.

    All are judged on the run's test rows. The first two are trained to convergence, with a ridge, or an end, that
    validation rows choose: everybody's, or the device's own.
    """
    split = study.split
    together, chosen = _whole(_training_rows(study)), _whole(split.validation)
    pooled = [_judged(study, converged(study.model, together, chosen)) for _ in watch([0], total=1, label="NO NOISE")]
    numbers = _some(study.plan.devices, study.seed)
    own: list[Evaluation] = []
    for number in watch(numbers, total=len(numbers), label="EACH ALONE"):
        own.append(_alone(study, int(number)))
    areas = [one.auc for one in own if one.auc is not None]
    return Baselines(
        without_privacy=_merit(pooled[0]),
        alone=float(np.mean([_merit(one) for one in own])),
        alone_devices=len(own),
        most_common=_same_answer(study),
        alone_loss=round(float(np.mean([one.loss for one in own])), 6) if study.data.target is None else None,
        alone_auc=round(float(np.mean(areas)), 6) if areas else None,
    )


def _training_rows(study: Study) -> Records:
    """The rows that are trained on, one by one, also where a unit of the plan is a person with several."""
    train = study.split.train
    return rows_of(train) if study.plan.protects.groups_rows else train


def _alone(study: Study, device: int) -> Evaluation:
    """The figures of a model that a device makes from its own rows, and chooses by them."""
    train, chosen = _training_rows(study), study.split.validation
    rows = Records.of([("", train.features_of(device), train.labels_of(device))], classes=train.classes)
    judges = Records.of([("", chosen.features_of(device), chosen.labels_of(device))], classes=train.classes)
    return _judged(study, converged(study.model, rows, judges))


def _some(devices: int, seed: int) -> NDArray[np.int64]:
    """All devices, or so many of them at random."""
    if devices <= MOST_ALONE:
        return np.arange(devices)
    return np.sort(np.random.default_rng([seed, 0xA10E]).choice(devices, MOST_ALONE, replace=False))


def _whole(records: Records) -> Records:
    """The rows of all devices as those of one."""
    return Records.of([("all", records.features, records.labels)], classes=records.classes)


def _same_answer(study: Study) -> float:
    """The figure of always saying the training rows' most common class, or their mean."""
    train, test = study.split.train.labels, study.split.test.labels
    if study.data.target is None:
        return float(np.mean(test == np.bincount(train).argmax()))
    return explained(float(np.square(test - train.mean(dtype=np.float64)).sum()), test) or 0.0


def _judged(study: Study, parameters: NDArray[np.float32]) -> Evaluation:
    return evaluate(study.model, parameters, study.split.test)


def _merit(found: Evaluation) -> float:
    return (found.r2 if found.accuracy is None else found.accuracy) or 0.0
