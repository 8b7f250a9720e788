"""Several runs with noise once through the same rows are each the run that it would be alone."""

from dataclasses import replace

import numpy as np
import pytest

from choral.core.errors import TrainingError
from choral.core.plan import Plan
from choral.learning import models
from choral.learning.once import LocalWork, local_work
from choral.learning.persons import grouped, model_of_units
from choral_lab.research.once_together import local_works

PLAN = Plan(
    devices=4, cohort=4, rounds=2, rows=40, batch=40, local_steps=9, step_size=0.2, clip=1.0, noise=0.1,
    sampling="partition", noise_is_added="once", row_length=3.0,
)  # fmt: skip


@pytest.mark.parametrize("model", [models.logistic(5, 3), models.linear(5)], ids=["softmax", "squared"])
def test_each_run_is_the_one_that_it_is_alone_to_the_last_bits(model):
    draw = np.random.default_rng(1)
    rows = draw.normal(size=(40, 5)).astype(np.float32)
    rows[3] = np.inf  # a row that has no say
    labels = draw.integers(0, 3, 40).astype(np.int32 if model.classes else np.float32)
    starts = [draw.normal(size=model.size).astype(np.float32) for _ in range(3)]
    works = [LocalWork.of(replace(PLAN, clip=clip)) for clip in (0.01, 0.5, 2.0)]
    found = local_works(model, works, starts, rows, labels)
    alone = [local_work(model, work, start, rows, labels) for work, start in zip(works, starts, strict=True)]
    assert np.abs(found - alone).max() <= 1e-13
    assert len({round(float(np.linalg.norm(one)), 6) for one in found}) == 3


@pytest.mark.parametrize(
    ("size", "more"),
    [(100, {"unit": "person", "rows_per_person": 7}), (100, {"parts": 4}), (300, {})],
    ids=["persons whose rows fill no whole block", "parts", "two blocks"],
)
def test_the_same_holds_for_persons_and_for_steps_on_parts_of_the_rows(size, more):
    draw, plan = np.random.default_rng(2), replace(PLAN, rows=size, batch=size, **more)
    labels, features = draw.integers(0, 3, size).astype(np.int32), draw.normal(size=(size, 5)).astype(np.float32)
    model = model_of_units(models.logistic(5, 3), plan)
    if plan.rows_per_person:
        owners = [str(row // 3) for row in range(3 * size)]
        rows, classes = np.repeat(features, 3, axis=0), np.repeat(labels, 3)
        features, labels = grouped(rows, classes, owners, 7), np.zeros(size, np.int32)
    starts = [draw.normal(size=model.size).astype(np.float32) for _ in range(2)]
    works = [LocalWork.of(replace(plan, clip=clip)) for clip in (0.01, 0.5)]
    alone = [local_work(model, work, start, features, labels) for work, start in zip(works, starts, strict=True)]
    assert np.abs(local_works(model, works, starts, features, labels) - alone).max() <= 1e-13


def test_a_model_that_is_too_long_is_refused_in_company_too():
    model = models.logistic(5, 3)
    starts = [np.zeros(model.size, np.float32), np.full(model.size, 1e30, np.float32)]
    with pytest.raises(TrainingError, match="CH700 a model longer than"):
        local_works(model, [LocalWork.of(PLAN)] * 2, starts, np.zeros((40, 5), np.float32), np.zeros(40, np.int32))
