import dataclasses

import numpy as np
import pytest

from choral.errors import TableError, TrainingError
from choral.learning import models
from choral.learning.trainer import Trainer
from choral.plan import Plan
from tests.learning import reference

DRAW = np.random.default_rng(2)
FEATURES = DRAW.normal(size=(40, 5)).astype(np.float32)
LABELS = DRAW.integers(0, 2, 40).astype(np.int32)
MODEL = models.mlp(5, (4,), 2)
PLAN = Plan(devices=3, cohort=3, rounds=4, rows=40, batch=10, local_steps=3, step_size=0.2, clip=0.5, noise=0.3)


def trainer(**changes):
    return Trainer(**{"model": MODEL, "plan": PLAN, "features": FEATURES, "labels": LABELS, **changes})


def test_a_device_follows_the_papers_algorithm_with_noise_that_it_drew_itself(monkeypatch):
    monkeypatch.setattr("os.urandom", lambda count: bytes(count))  # a stream that can be drawn again
    from choral.learning import noise, sampling, streams

    start = MODEL.start(1)
    found = trainer().update(start)
    batches = sampling.poisson(np.array([40]), 10, streams.secure_words((1, 3, trainer().room)))
    drawn = noise.secure_normal((4, MODEL.size)).astype(np.float64)
    expected = reference.local_update(
        MODEL.widths,
        "softmax",
        start,
        FEATURES,
        LABELS,
        [batches.rows[0, step, : batches.counts[0, step]] for step in range(3)],
        drawn[:3],
        step_size=0.2,
        clip=0.5,
        sigma=0.3,
        batch=10,
    )
    assert np.abs(found - expected).max() <= 1e-5


def test_two_updates_are_never_the_same_and_differ_by_their_noise():
    one = trainer()
    first, second = one.update(MODEL.start(1)), one.update(MODEL.start(1))
    assert (first != second).all()
    # η σ √τ √2 = 0.2·0.3·√3·√2 = 0.147; clipped gradients add at most 2·η τ G = 0.6 in norm over 34 coordinates.
    assert 0.08 < (first - second).std() < 0.3


def test_passes_that_continue_use_every_record_equally_and_survive_a_restart():
    plan = dataclasses.replace(PLAN, sampling="partition", passes="continue", local_steps=2)  # 4 batches a pass
    one = trainer(plan=plan)
    one.update(MODEL.start(1))
    again = trainer(plan=plan, rounds=one.rounds, order=one.order)
    again.update(MODEL.start(1))
    assert (one.uses.of_row + again.uses.of_row).tolist() == [1] * 40


def test_neither_records_nor_the_secret_order_are_printed():
    one = trainer()
    assert repr(one) == "Trainer(mlp, 40 rows, 0 rounds)"
    assert str(one.order) not in repr(one)


def test_what_can_not_be_trained_is_refused():
    with pytest.raises(TableError, match="CH305 this device has 20 rows; the plan is for devices of 40"):
        trainer(features=FEATURES[:20], labels=LABELS[:20])
    with pytest.raises(TableError, match="CH312"):
        trainer(features=FEATURES[:, :4])
    with pytest.raises(TrainingError, match="CH700 round 1: the update is not finite"):
        trainer(plan=dataclasses.replace(PLAN, step_size=1e38, noise=1e30)).update(MODEL.start(1))
