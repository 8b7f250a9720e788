"""A trainer that is not JAX: logistic regression in NumPy, from a device's rows to the opened sum."""

from dataclasses import replace

import numpy as np
import pytest

from choral.core.errors import TrainingError
from choral.core.plan import Plan
from choral.engine.compiled import CompiledEngine
from choral.learning import models, noise, streams
from choral.learning.batches import drawer_of
from choral.learning.recipe import Recipe, noise_on_sum
from choral.learning.trainer import JaxTrainer
from choral.run.runs import Run
from tests.run.small import rows, study


class NumpyLogistic:
    """Softmax regression in double precision, as `learning.trainer.Trainer` asks for it."""

    def __init__(self, model, recipe, features, labels):
        self.model, self.recipe = model, recipe
        self.rows = np.concatenate([features, np.ones((len(features), 1))], axis=1)  # the last weight is the bias
        self.answers = np.eye(model.classes)[labels]
        self.sent = []

    def train(self, parameters, batches, noise):
        start = parameters.astype(np.float64).reshape(-1, self.model.classes)
        spread, weights = noise_on_sum(self.model, self.recipe, batches.rows.shape[-1]), start.copy()
        for chosen, count, drawn in zip(batches.rows[0], batches.counts[0], noise, strict=False):
            used = chosen[:count][chosen[:count] >= 0]
            total = self._clipped_sum(weights, self.rows[used], self.answers[used])
            noisy = total + spread * drawn.reshape(weights.shape)
            weights = weights - self.recipe.step_size * noisy / self.recipe.batch
        self.sent.append((weights - start).ravel().astype(np.float32))
        return self.sent[-1]

    def _clipped_sum(self, weights, rows, answers):
        scores = rows @ weights
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        slopes = powers / powers.sum(axis=1, keepdims=True) - answers
        gradients = rows[:, :, None] * slopes[:, None, :]
        norms = np.sqrt(np.square(gradients).sum(axis=(1, 2), keepdims=True))
        return (gradients * np.minimum(1, self.recipe.clip / np.maximum(norms, 1e-300))).sum(axis=0)


def test_numpy_and_jax_take_the_same_steps_on_the_same_batches_and_noise():
    """To float32's own errors: updates are below 1, and JAX's have 24 bits."""
    plan = Plan(devices=2, cohort=2, rounds=2, rows=60, batch=12, local_steps=4, step_size=0.5, clip=0.7, noise=0.1)
    features, labels = rows(60)
    model, recipe, drawer = models.logistic(4), Recipe.of(plan), drawer_of(plan)
    room = drawer.room(60)
    given = (np.array([60]), np.array([0]), np.array([3], np.uint64))
    batches = drawer.draw(*given, lambda _: streams.secure_words((1, 4, room)), room)
    drawn = noise.secure_normal((5, model.size))
    start = np.random.default_rng(1).normal(size=model.size).astype(np.float32)
    ours, theirs = (
        kind(model, recipe, features, labels.astype(np.int32)).train(start, batches, drawn)
        for kind in (JaxTrainer, NumpyLogistic)
    )
    assert np.abs(theirs).max() > 0.01
    assert ours == pytest.approx(theirs, abs=1e-5)


def test_a_rehearsal_sums_what_numpy_computed_under_real_masks(monkeypatch):
    trainers = []

    def made(*given):
        trainers.append(NumpyLogistic(*given))
        return trainers[-1]

    monkeypatch.setattr(JaxTrainer, "train", lambda *_: pytest.fail("JAX has trained"))
    own = study(seed=None, rounds=1)
    own = replace(own, model=replace(own.model, trainer=made))
    result = Run("rehearsal", own).finish()
    assert len(trainers) == 6
    sent = [update for trainer in trainers for update in trainer.sent]
    assert len(sent) == 4  # the cohort
    # Each update is rounded to the grid by less than one step of it.
    assert np.abs(result.parameters - own.model.start(0) - np.mean(sent, axis=0)).max() < own.codec.grid
    assert result.privacy.against_everyone.rule == "S5"


def test_a_simulation_and_a_rehearsal_by_another_framework_have_the_same_integers_and_are_near_those_of_jax():
    own = study()
    other = replace(own, model=replace(own.model, trainer=NumpyLogistic))
    simulated, rehearsed = (Run(kind, other).finish() for kind in ("simulation", "rehearsal"))
    assert simulated.parameters.tobytes() == rehearsed.parameters.tobytes()
    # The same batches, noise and dither as the compiled engine: only float32 differs from float64.
    assert simulated.parameters == pytest.approx(Run("simulation", own).finish().parameters, abs=1e-4)


def test_what_compiles_a_model_refuses_another_framework():
    own = study()
    model = replace(own.model, trainer=NumpyLogistic)
    with pytest.raises(TrainingError, match='CH701 the model "logistic" has its own trainer'):
        CompiledEngine(model=model, records=own.split.train, plan=own.plan, codec=own.codec, seed=1)
