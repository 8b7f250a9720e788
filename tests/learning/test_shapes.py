"""Rows of any shape: images of 8 × 8 through every room that takes rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choral import model as own_model
from choral.config import job_of
from choral.core.errors import TableError
from choral.learning import models
from choral.learning.evaluate import evaluate, squared_gradient_norm
from choral.run.planning import settle
from choral.run.runs import Run
from choral.run.study import model_of
from choral.tables.records import Records
from tests.run.small import SETTINGS, rows

DRAW = np.random.default_rng(3)
IMAGES = DRAW.uniform(-1, 1, (240, 8, 8)).astype(np.float32)
LABELS = (IMAGES[:, :4].sum(axis=(1, 2)) > IMAGES[:, 4:].sum(axis=(1, 2))).astype(int)


def of_images(features, classes):
    """A 3 × 3 convolution and a linear layer, which need to know what is next to what."""
    height, width = features
    inside = (height - 2, width - 2)

    def init(seed):
        draw = np.random.default_rng(seed)
        return {
            "kernel": draw.normal(0, 0.5, (3, 3)).astype(np.float32),
            "out": np.zeros((inside[0] * inside[1], classes), np.float32),
        }

    def predict(tree, rows):
        found = jax.lax.conv(rows[:, None], tree["kernel"][None, None], (1, 1), "VALID")
        return jnp.tanh(found).reshape(len(rows), -1) @ tree["out"]

    def loss(tree, row, label):
        return -jax.nn.log_softmax(predict(tree, row[None])[0])[label]

    return own_model(init, loss, predict, features=features, classes=classes, name="images")


def flat_twin(features, classes):
    """The same model of the same numbers in a row."""
    square = of_images((8, 8), classes)
    return own_model(
        square.init,
        lambda tree, row, label: square.loss(tree, row.reshape(8, 8), label),
        lambda tree, rows: square.predict(tree, rows.reshape(-1, 8, 8)),
        features=features,
        classes=classes,
    )


def study_of(features, model):
    return settle(job_of(**SETTINGS, model=f"{__name__}:{model.__name__}"), (features, LABELS))


@pytest.fixture
def importable(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _this())


def _this():
    import types

    module = types.ModuleType(__name__)
    module.__dict__.update(globals())
    return module


@pytest.mark.usefixtures("importable")
def test_a_simulation_and_a_rehearsal_of_images_have_the_same_integers_and_those_of_their_flat_twin():
    simulated, rehearsed = (Run(kind, study_of(IMAGES, of_images)).finish() for kind in ("simulation", "rehearsal"))
    assert simulated.parameters.tobytes() == rehearsed.parameters.tobytes()
    flat = Run("simulation", study_of(IMAGES.reshape(240, 64), flat_twin)).finish()
    # The compiler may add up in another order: equal up to a few steps of float32's grid, summed over three rounds.
    assert simulated.parameters == pytest.approx(flat.parameters, abs=1e-4)
    assert simulated.record.about.data.features == 64
    assert simulated.predict(IMAGES[:5]).shape == (5,)
    with pytest.raises(TableError, match=r"CH312 rows have shape \(240, 64\), the model takes 8 × 8 features"):
        simulated.predict(IMAGES.reshape(240, 64))


@pytest.mark.usefixtures("importable")
def test_a_device_by_itself_trains_on_images():
    settings = {**SETTINGS, "seed": None, "rounds": 1}
    study = settle(job_of(**settings, model=f"{__name__}:of_images"), (IMAGES, LABELS))
    assert Run("rehearsal", study).finish().test["accuracy"] >= 0


def test_images_that_are_read_for_each_call_give_the_same_as_those_in_memory(monkeypatch):
    from choral.core.codec import Codec
    from choral.core.plan import Plan, SecureSum
    from choral.engine import processors as feed
    from choral.engine.compiled import CompiledEngine

    records = Records.of([(str(number), IMAGES[number::4], LABELS[number::4]) for number in range(4)])
    plan = Plan(devices=4, cohort=4, rounds=2, rows=60, batch=4, local_steps=2, step_size=0.5, clip=1.0, noise=0.1)
    model, found = of_images((8, 8), 2), []
    for resident in (True, False):
        if not resident:
            monkeypatch.setattr(feed, "RESIDENT", {"cpu": 0})
            monkeypatch.setattr(feed, "ALIGNMENT", 2**62)
        codec = Codec.for_plan(plan, SecureSum.for_cohort(4), model.size)
        engine = CompiledEngine(model=model, records=records, plan=plan, codec=codec, seed=1)
        assert engine.feed.resident == resident
        found.append(engine.train(model.start(0), 1, np.arange(4)).total)
    assert np.array_equal(*found)


def test_figures_of_images_are_those_of_the_same_numbers_in_a_row():
    images = Records.of([("a", IMAGES[:100], LABELS[:100]), ("b", IMAGES[100:], LABELS[100:])])
    flat = Records.of(
        [("a", IMAGES[:100].reshape(100, 64), LABELS[:100]), ("b", IMAGES[100:].reshape(140, 64), LABELS[100:])]
    )
    square, twin = of_images((8, 8), 2), flat_twin(64, 2)
    start = np.random.default_rng(1).normal(size=square.size).astype(np.float32)
    one, other = evaluate(square, start, images), evaluate(twin, start, flat)
    assert (one.accuracy, one.rows) == (other.accuracy, 240)
    assert one.loss == pytest.approx(other.loss, rel=1e-5)
    assert squared_gradient_norm(square, start, images) == pytest.approx(
        squared_gradient_norm(twin, start, flat), rel=1e-4
    )
    with pytest.raises(TableError, match="CH312 the rows have 64 features, the model takes 8 × 8"):
        evaluate(square, start, flat)


@pytest.mark.parametrize("kind", [name for name, kind in models.KINDS.items() if not kind.images])
def test_built_in_models_refuse_rows_that_are_no_list_of_numbers(kind):
    more = {"label_bounds": [0, 1]} if kind == "linear" else {}
    job = job_of(epsilon=2.0, model=kind, hidden=[4] if kind == "mlp" else None, **more)
    with pytest.raises(TableError, match=rf'CH312 .*rows have 8 × 8 features, and the model "{kind}" takes them'):
        model_of(job, shape=(8, 8), classes=0 if more else 2)


def test_a_row_that_is_not_finite_is_named_by_its_number_only():
    spoilt = IMAGES.copy()
    spoilt[7, 3, 3] = np.nan
    with pytest.raises(TableError, match="CH303 features: row 8 is not finite"):
        settle(job_of(**SETTINGS), (spoilt, LABELS))


def test_flat_features_keep_their_names():
    study = settle(job_of(**SETTINGS), rows())
    assert study.data.features == ("x0", "x1", "x2", "x3")
