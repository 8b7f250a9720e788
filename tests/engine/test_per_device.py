"""Simulated rounds by a trainer that is not JAX: same draws as the compiled engine, and independent of the cohort."""

from dataclasses import replace

import numpy as np
import pytest

from choral.core.codec import Codec
from choral.core.errors import TrainingError
from choral.core.plan import Plan, SecureSum
from choral.engine.compiled import CompiledEngine
from choral.engine.per_device import PerDeviceEngine
from choral.learning import models
from choral.learning.trainer import JaxTrainer
from choral.tables.records import Records

PLAN = Plan(devices=5, cohort=4, rounds=3, rows=20, batch=5, local_steps=2, step_size=0.4, clip=1.0, noise=0.2)
MODEL = models.logistic(3)
DRAW = np.random.default_rng(0)
RECORDS = Records.of([(str(n), DRAW.normal(size=(20 + n, 3)), DRAW.integers(0, 2, 20 + n)) for n in range(5)])
CODEC = Codec.for_plan(PLAN, SecureSum.for_cohort(4), MODEL.size)


class ByJax(JaxTrainer):
    """JAX itself as the trainer of another framework."""


def engine(kind=PerDeviceEngine, trainer=ByJax, **changes):
    model = replace(MODEL, trainer=trainer) if kind is PerDeviceEngine else MODEL
    plan = replace(PLAN, **changes)
    return kind(model=model, records=RECORDS, plan=plan, codec=CODEC, seed=3)


def test_it_draws_the_batches_and_the_noise_of_the_compiled_engine():
    cohort, start = np.array([0, 2, 3, 4]), MODEL.start(0)
    mine, other = engine(), engine(CompiledEngine)
    for number in (1, 2):
        ours, theirs = (one.updates(start, number, cohort) for one in (mine, other))
        assert np.abs(ours).max() > 0.01 and ours == pytest.approx(theirs, abs=1e-6)
    assert np.array_equal(mine.dither(1, 3), other.dither(1, 3))
    assert mine.rounds_of.tolist() == other.rounds_of.tolist() == [2, 0, 2, 2, 2]


def test_a_sum_is_that_of_the_devices_own_integers_whoever_else_takes_part():
    start, one, other = MODEL.start(0), engine(), engine()
    summed = one.train(start, 1, np.array([1, 2, 4]))
    alone = [other.updates(start, 1, np.array([device]))[0] for device in (1, 2, 4)]
    words = [CODEC.encode(update, other.dither(1, device)) for device, update in zip((1, 2, 4), alone, strict=True)]
    assert summed.count == 3
    assert np.array_equal(summed.total, sum(CODEC.decode(word, MODEL.size, count=1) for word in words))


class Spoilt(JaxTrainer):
    def train(self, parameters, batches, noise):
        return super().train(parameters, batches, noise) * np.float32(np.nan)


def test_an_update_that_is_not_finite_ends_the_round():
    with pytest.raises(TrainingError, match="CH700 round 1: 2 of 2 updates are not finite"):
        engine(trainer=Spoilt).train(MODEL.start(0), 1, np.array([0, 1]))
