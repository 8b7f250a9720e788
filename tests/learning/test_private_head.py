"""A head at home: private parameters are constants during a run, fitted at the site after it, and never sent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import choral
from choral.core.errors import TrainingError
from choral.learning.personal import ALONE, SHARED, Standing, fitted, fitted_head, judged_whole, personal, with_head

FEATURES, HIDDEN = 4, 3


def with_a_head_at_home(features, classes, private=("head",)):
    def init(seed):
        keys = jax.random.split(jax.random.key(seed), 2)
        return {
            "body": 0.5 * jax.random.normal(keys[0], (features, HIDDEN)),
            "head": 0.5 * jax.random.normal(keys[1], (HIDDEN, classes)),
        }

    def predict(parameters, rows):
        return jnp.tanh(rows @ parameters["body"]) @ parameters["head"]

    def loss(parameters, row, label):
        return -jax.nn.log_softmax(predict(parameters, row[None])[0])[label]

    return choral.model(init, loss, predict, features=features, classes=classes, name="shared body", private=private)


MODEL = with_a_head_at_home(FEATURES, 2)


def rows_of(count, seed=0, turned=False):
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1, 1, (count, FEATURES)).astype(np.float32)
    return features, ((features[:, 0] + 0.2 * rng.normal(size=count) > 0) != turned).astype(np.int32)


def test_the_vector_that_devices_train_holds_the_body_alone():
    assert MODEL.size == FEATURES * HIDDEN and MODEL.whole.size == MODEL.size + 2 * HIDDEN
    assert set(MODEL.unravel(jnp.asarray(MODEL.start(0)))) == {"body"}
    features, _ = rows_of(5)
    tree = MODEL.unravel(jnp.asarray(MODEL.start(0)))
    assert np.allclose(MODEL.predict(tree, features), MODEL.whole.predict({**tree, **MODEL.private}, features))


def test_the_head_of_a_site_is_the_minimiser_on_its_rows_and_the_body_is_the_shared_one():
    rows, shared = rows_of(80), MODEL.start(3)
    own = fitted(MODEL, shared, rows, 1.0)
    tree = MODEL.whole.unravel(jnp.asarray(own))
    assert np.array_equal(np.ravel(tree["body"]), shared)

    def value(head):
        losses = jax.vmap(MODEL.whole.loss, in_axes=(None, 0, 0))({**tree, "head": head}, *rows)
        return losses.sum() + 0.5 * jnp.square(head - MODEL.private["head"]).sum()

    assert np.abs(jax.grad(value)(tree["head"])).max() < 0.02 < np.abs(jax.grad(value)(MODEL.private["head"])).max()
    assert Standing.of(MODEL, own, rows).loss < Standing.of(MODEL, shared, rows).loss


def test_sites_whose_labels_mean_the_opposite_share_a_body_and_each_has_a_head_that_fits():
    shared = MODEL.start(3)
    for turned in (False, True):
        own = personal(MODEL, shared, rows_of(80, 1, turned), rows_of(40, 2, turned), kappa=1.0)
        assert Standing.of(MODEL, own.parameters, rows_of(400, 3, turned)).accuracy > 0.8


def test_the_ends_of_kappa_and_a_site_with_one_class():
    shared, rows = MODEL.start(3), rows_of(40)
    at_start = with_head(MODEL, shared, np.ravel(MODEL.private["head"]))
    assert np.array_equal(fitted(MODEL, shared, rows, SHARED), at_start)
    same = rows[0], np.ones(40, np.int32)
    assert np.array_equal(fitted_head(MODEL, shared, same, 1.0, 1.0), at_start)
    # Alone it is fitted to that class all the same: it loses less than a head of zeros, which loses log 2.
    assert Standing.of(MODEL, fitted(MODEL, shared, same, ALONE), same).loss < 0.65 < np.log(2)
    assert not np.array_equal(fitted(MODEL, shared, rows, ALONE), fitted(MODEL, shared, rows, 1.0))
    for whole, part in ((at_start, shared), (shared, at_start)):  # both vectors are judged with the head of the run
        assert np.allclose(judged_whole(MODEL, whole, rows)[0], judged_whole(MODEL, part, rows)[0], atol=1e-6)


@pytest.mark.parametrize("private", [["tail"], ["body", "head"], ["head", "head2"]])
def test_names_that_are_no_parameters_or_all_of_them_are_refused(private):
    with pytest.raises(TrainingError, match=r"CH701.*private.*body, head"):
        with_a_head_at_home(FEATURES, 2, private)


def test_a_head_that_is_trained_between_the_steps_would_carry_a_row_past_the_clip():
    """Why it stays a constant: one replaced row moves every other row's gradient by way of an unclipped head."""
    features, labels = rows_of(60, 5)
    others = features.copy(), labels.copy()
    others[0][0], others[1][0] = 50 * features[0], 1 - labels[0]  # one record replaced
    body, clip = MODEL.unravel(jnp.asarray(MODEL.start(3))), 0.1

    def clipped_sum(rows, head):
        loss = lambda tree, x, y: MODEL.whole.loss({**tree, "head": head}, x, y)  # noqa: E731 - a function of the head
        gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(body, *map(jnp.asarray, rows))["body"]
        flat = gradients.reshape(len(gradients), -1)
        return (flat * jnp.minimum(1, clip / jnp.linalg.norm(flat, axis=1, keepdims=True))).sum(0)

    def trained(rows):
        head = MODEL.private["head"]
        slope = jax.grad(lambda h: jax.vmap(MODEL.whole.loss, (None, 0, 0))({**body, "head": h}, *rows).sum())
        for _ in range(20):
            head = head - 0.5 * slope(head)
        return head

    tables = ((features, labels), others)
    constant = [clipped_sum(rows, MODEL.private["head"]) for rows in tables]
    moving = [clipped_sum(rows, trained(rows)) for rows in tables]
    assert float(jnp.linalg.norm(constant[0] - constant[1])) <= 2 * clip
    assert float(jnp.linalg.norm(moving[0] - moving[1])) > 2 * clip
