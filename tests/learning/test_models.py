import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choral.core.errors import PlanError, TrainingError
from choral.learning import models

ALL = [models.logistic(4, 3), models.binary(4), models.linear(4), models.mlp(4, (5,), 3), models.mlp(4, (5, 6, 2))]


@pytest.mark.parametrize("model", ALL, ids=lambda model: f"{model.name}{model.widths}")
def test_flattening_and_its_inverse_lose_nothing(model):
    flat = jnp.arange(model.size, dtype=jnp.float32)
    assert (model.ravel(model.unravel(flat)) == flat).all()
    # (fan + 1)·out for each layer, by hand.
    assert model.size == sum((fan + 1) * out for fan, out in zip(model.widths[:-1], model.widths[1:], strict=True))


@pytest.mark.parametrize("model", ALL, ids=lambda model: f"{model.name}{model.widths}")
def test_slopes_are_the_gradient_of_the_losses(model):
    outputs = jnp.asarray(np.random.default_rng(0).normal(size=(6, model.widths[-1])) * 3, dtype=jnp.float32)
    labels = jnp.array([0, 1, 0, 1, 1, 0])
    by_jax = jax.grad(lambda out: models.losses(model.link, out, labels).sum())(outputs)
    assert float(jnp.abs(models.slopes(model.link, outputs, labels) - by_jax).max()) < 1e-6


def test_a_two_class_softmax_and_a_sigmoid_are_the_same_model():
    # softmax over (0, z) gives 1/(1 + e^-z): the same loss for z = the difference of the two outputs.
    z = jnp.array([[-30.0], [-1.0], [0.0], [2.0], [40.0]])
    labels = jnp.array([1, 0, 1, 1, 0])
    both = models.losses("softmax", jnp.concatenate([jnp.zeros_like(z), z], axis=1), labels)
    assert both.tolist() == pytest.approx(models.losses("sigmoid", z, labels).tolist(), rel=1e-6)


def test_a_start_depends_on_the_seed_only_and_linear_models_start_at_zero():
    model = models.mlp(4, (5,), 3)
    assert (model.start(1) == model.start(1)).all()
    assert (model.start(1) != model.start(2)).any()
    assert not models.logistic(4, 3).start(1).any()
    assert model.start(1).dtype == np.float32


def init(_):
    return {"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}


def loss(tree, x, y):
    return -jax.nn.log_softmax(x @ tree["w"] + tree["b"])[y]


def predict(tree, rows):
    return rows @ tree["w"] + tree["b"]


def test_a_users_own_model_may_be_any_tree():
    model = models.own(init, loss, predict, features=3, classes=2)
    assert model.size == 8
    assert model.start(0).tolist() == [0, 0, 1, 1, 1, 1, 1, 1]  # leaves by name: b, then w
    assert model.unravel(jnp.arange(8.0))["w"].shape == (3, 2)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"loss": lambda tree, x, y: x @ tree["w"] + y}, TrainingError, r"CH701 the loss .* has shape \(2,\)"),
        ({"loss": lambda tree, x, y: (x[:2] @ tree["w"]).sum() + y}, TrainingError, "CH701 .* does not accept 3 feat"),
        ({"predict": lambda tree, rows: (rows @ tree["w"]).sum(axis=1)}, TrainingError, "CH701 .* predicts shape"),
        ({"predict": lambda tree, rows: (rows @ tree["w"])[:1]}, TrainingError, "CH701 .* predicts shape"),
        ({"init": lambda _: {}}, PlanError, "CH200 .* has 0 parameters"),
    ],
)
def test_a_users_model_of_the_wrong_shape_is_refused_before_training(change, error, says):
    with pytest.raises(error, match=says):
        models.own(**{"init": init, "loss": loss, "predict": predict, "features": 3, "classes": 2, **change})


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True])
def test_layers_without_units_and_models_of_one_class_are_refused(wrong):
    with pytest.raises(PlanError, match="CH200"):
        models.mlp(4, (wrong,), 2)
    with pytest.raises(PlanError, match="CH200"):
        models.logistic(4, 1)
