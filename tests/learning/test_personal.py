"""Personal models: the minimiser, the one-standard-error rule, and what a site keeps where nothing can be chosen."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from choral.core.errors import PlanError, TrainingError
from choral.learning import models
from choral.learning.evaluate import evaluate
from choral.learning.personal import (
    ALONE,
    FACTORS,
    KAPPA,
    SHARED,
    Standing,
    chosen,
    fitted,
    in_words,
    least_lossy,
    personal,
    side_by_side,
)
from choral.tables.records import Records

MODELS = {
    "two logits": models.logistic(3),
    "one logit": models.binary(3),
    "four classes": models.logistic(3, 4),
    "a number": models.linear(3),
}


def rows_of(model, count=60, seed=0, turn=1.0):
    """Rows whose label follows the first feature in the direction of `turn`, with noise."""
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1, 1, (count, 3)).astype(np.float32)
    score = turn * features[:, 0] + 0.3 * rng.normal(size=count)
    if not model.classes:
        return features, np.clip(score, -1, 1).astype(np.float32)
    cuts = np.quantile(score, np.arange(1, model.classes) / model.classes)
    return features, np.digitize(score, cuts).astype(np.int32)


@pytest.mark.parametrize("name", MODELS)
def test_the_minimiser_is_that_of_another_solver_on_the_models_own_loss(name):
    """scipy's BFGS, with the loss that the model was trained by, in JAX."""
    import jax
    import jax.numpy as jnp

    model = MODELS[name]
    rows, shared = rows_of(model), np.random.default_rng(1).normal(size=model.size).astype(np.float32)
    with jax.enable_x64(True):
        ones = jnp.hstack([jnp.asarray(rows[0], jnp.float64), jnp.ones((60, 1))])

        def value(flat, kappa):
            losses = models.losses(model.link, ones @ flat.reshape(4, -1), jnp.asarray(rows[1]))
            return losses.sum() + jnp.square(flat - centre).sum() / (2 * kappa)

        def rescaled(numbers):
            outputs = numbers[0] * (ones @ shared.reshape(4, -1)) + numbers[1:]
            losses = models.losses(model.link, outputs, jnp.asarray(rows[1]))
            return losses.sum() + (numbers[0] - 1) ** 2 / (2 * 0.1) + jnp.square(numbers[1:]).sum() / 2

        tried = jax.jit(jax.value_and_grad(rescaled))
        start = np.concatenate([[1.0], np.zeros(model.size // 4)])
        scale, *shifts = minimize(lambda n: tuple(map(np.asarray, tried(n))), start, jac=True, method="BFGS",
                                  options={"gtol": 1e-10}).x  # fmt: skip
        centre = scale * shared.astype(np.float64)
        centre[-len(shifts) :] += shifts
        both = jax.jit(jax.value_and_grad(value))

        def least(kappa):
            return minimize(lambda w: tuple(map(np.asarray, both(w, kappa))), shared.astype(np.float64),
                            jac=True, method="BFGS", options={"gtol": 1e-9}).x  # fmt: skip

        near, centre = {kappa: least(kappa) for kappa in (0.01, 1.0, 30.0)}, np.zeros(model.size)
        both = jax.jit(jax.value_and_grad(value))  # the centre is another
        alone = least(1.0)
        assert np.allclose(fitted(model, shared, rows, ALONE), alone, atol=5e-6, rtol=1e-5)
        for kappa, found in near.items():
            assert np.allclose(fitted(model, shared, rows, kappa), 0.75 * found + 0.25 * alone, atol=5e-6, rtol=1e-5)
            assert not np.allclose(found, shared, atol=0.01)


def test_of_least_squares_it_is_the_closed_form():
    """¾(XᵀX + I/κ)⁻¹(Xᵀy + c/κ) + ¼(XᵀX + I)⁻¹Xᵀy; c = aθ + b, and (a, b) is the ridge regression of y on Xθ and 1."""
    model = models.linear(3)
    features, labels = rows_of(model)
    x, theta = np.hstack([features, np.ones((60, 1))]).astype(np.float64), np.float32([1, -0.2, 0.3, 0.4])
    said = np.stack([x @ theta, np.ones(60)], axis=1)
    scale, shift = np.linalg.solve(said.T @ said + np.diag([10.0, 1.0]), said.T @ labels + [10.0, 0.0])
    centre = scale * theta.astype(np.float64) + [0, 0, 0, shift]
    near = np.linalg.solve(x.T @ x + np.eye(4) / 0.1, x.T @ labels + centre / 0.1)
    alone = np.linalg.solve(x.T @ x + np.eye(4), x.T @ labels)
    assert np.allclose(fitted(model, theta, (features, labels), 0.1), 0.75 * near + 0.25 * alone, atol=1e-6)


@pytest.mark.parametrize("longer", [0.5, 3.0])
def test_a_shared_model_that_points_the_right_way_and_has_another_length_is_nearly_as_good(longer):
    """Cut slopes and noise change the length of a shared model; the site's rows say which one is right."""
    model = models.binary(3)
    right, rows, judges = shared_for(model, 1.0), rows_of(model, 200, seed=3), rows_of(model, 2000, seed=4)
    losses = [Standing.of(model, fitted(model, factor * right, rows, 0.01), judges).loss for factor in (1.0, longer)]
    unscaled = Standing.of(model, longer * right, judges).loss
    assert losses[1] - losses[0] < 0.3 * (unscaled - losses[0])
    assert unscaled > 1.1 * losses[0]


def test_a_start_where_full_newton_steps_would_diverge_still_ends_at_the_minimum():
    model = models.binary(3)
    rows, far = rows_of(model), np.float32([300, -200, 100, 50])
    near = fitted(model, np.zeros(4, np.float32), rows, 1e5)
    assert np.allclose(fitted(model, far, rows, 1e5), near, atol=0.05)


def test_kappa_goes_from_the_shared_model_to_the_site_alone():
    model = models.binary(3)
    rows, shared = rows_of(model), np.float32([-1, 2, 0, 0.5])
    moved = [np.linalg.norm(fitted(model, shared, rows, kappa) - shared) for kappa in (SHARED, 0.01, 0.1, 1.0, 10.0)]
    assert moved[0] == 0 and moved == sorted(moved)
    other = np.float32([5, 5, 5, 5])
    assert (fitted(model, shared, rows, ALONE) == fitted(model, other, rows, ALONE)).all()


def test_a_network_keeps_its_shared_layers_and_solves_for_its_last_one():
    model = models.mlp(3, (5, 4), 2)
    shared, rows = model.start(1), rows_of(model)
    own = fitted(model, shared, rows, 1.0)
    assert (own[:-10] == shared[:-10]).all() and (own[-10:] != shared[-10:]).all()  # (4 + 1)·2
    before, after = (Standing.of(model, one, rows).loss for one in (shared, own))
    assert after < before
    assert after == pytest.approx(evaluate(model, own, Records.of([("a", *rows)])).loss, abs=1e-5)


def test_a_site_with_one_class_has_the_shared_model_and_a_quarter_of_one_that_always_says_that_class():
    """Its rows say nothing of a direction; alone, the ridge gives it a minimum, and it does not know θ."""
    model, shared = models.logistic(3), np.float32(np.arange(8))
    features, _ = rows_of(model)
    same = features, np.ones(60, np.int32)
    own, alone = personal(model, shared, same, same), fitted(model, shared, same, ALONE)
    assert own.kappa == KAPPA and "one class" in own.because
    both = fitted(model, shared, tuple(np.concatenate([part, part]) for part in same), ALONE)
    assert np.allclose(own.parameters, 0.75 * shared + 0.25 * both, atol=1e-6)
    assert Standing.of(model, alone, same).accuracy == 1
    assert (alone == fitted(model, -shared, same, ALONE)).all()


def test_few_rows_and_a_noisy_shared_model_together_are_better_than_either_in_the_mean_over_sites():
    """40 sites of 12 rows each whose weights are 0.5 from the common ones; θ has as much noise in every number."""
    model, draw = models.binary(6), np.random.default_rng(11)
    common = np.append(draw.normal(0, 1.5, 6), 0.0)
    shared = np.float32(common + draw.normal(0, 0.5, 7))
    losses = []
    for _ in range(40):
        here = common + np.append(draw.normal(0, 0.5, 6), draw.normal())
        features = draw.uniform(-1, 1, (512, 6)).astype(np.float32)
        labels = (draw.uniform(size=512) < 1 / (1 + np.exp(-(features @ here[:-1] + here[-1])))).astype(np.int32)
        rows, judges = (features[:12], labels[:12]), (features[12:], labels[12:])
        found = side_by_side(model, shared, rows, judges, KAPPA)
        losses.append([found[name].loss for name in ("shared", "alone", "personal")])
    means = np.mean(losses, axis=0)
    assert means[2] < means[:2].min() - 0.01


def shared_for(model, turn):
    return fitted(model, np.zeros(model.size, np.float32), rows_of(model, 400, seed=7, turn=turn), 100.0)


@pytest.mark.parametrize("count", [29, 30])
def test_below_30_validation_rows_a_site_has_the_proposed_kappa_whatever_they_say(count):
    """The shared model is wrong for this site, and 30 rows say so clearly."""
    model = models.linear(3)
    shared, train, judges = shared_for(model, -1.0), rows_of(model, 12, seed=1), rows_of(model, count, seed=2)
    kept, because = chosen(model, shared, train, judges, kappa=0.01)
    assert (kept == 0.01) == (count == 29)
    assert ("30 are needed" in because) == (count == 29)


@pytest.mark.parametrize(("share", "expected"), [(0.99, KAPPA), (1.01, 0.3)])
def test_a_site_departs_only_for_a_gain_above_one_standard_error(share, expected):
    """Gains made by hand: their mean is a share of their standard error, which is 1/√63."""
    gains = np.tile([1.0, -1.0], 32) + share / math.sqrt(63)
    lost = {KAPPA: np.full(64, 5.0), 0.3: 5 - gains, ALONE: np.full(64, 5.0), SHARED: np.full(64, 7.0)}
    assert least_lossy(lost, KAPPA) == expected


def test_of_two_that_gain_enough_it_takes_the_better_one():
    lost = {kappa: np.full(40, loss) for kappa, loss in ((KAPPA, 3.0), (SHARED, 2.0), (1.0, 1.0), (ALONE, 2.0))}
    assert least_lossy(lost, KAPPA) == 1.0


def test_after_the_choice_it_is_fitted_on_training_and_validation_rows():
    model, shared = models.linear(3), np.zeros(4, np.float32)
    train, judges = rows_of(model, 20, seed=1), rows_of(model, 20, seed=2)
    both = tuple(np.concatenate(parts) for parts in zip(train, judges, strict=True))
    own = personal(model, shared, train, judges, kappa=0.3)
    assert (own.parameters == fitted(model, shared, both, 0.3)).all()
    assert (own.parameters != fitted(model, shared, train, 0.3)).any()


def test_side_by_side_shows_all_three_in_the_labels_own_unit():
    model = models.linear(3)
    shared, train, judges = shared_for(model, -1.0), rows_of(model, 40, seed=1), rows_of(model, 40, seed=2)
    found = side_by_side(model, shared, train, judges, 10.0, unit=35.0)
    assert found["personal"].loss < found["shared"].loss
    assert found["alone"].rmse == pytest.approx(35 * math.sqrt(2 * found["alone"].loss))


def test_every_candidate_has_words_and_the_repr_shows_no_parameter():
    names = [in_words(kappa) for kappa in (SHARED, *(factor * KAPPA for factor in FACTORS), KAPPA, ALONE)]
    assert len(set(names)) == len(names) == 7
    own = personal(models.linear(3), np.float32([1, 2, 3, 4]), rows_of(models.linear(3)))
    assert repr(own) == "Personal(kappa=0.1)"


def test_what_has_no_known_last_layer_or_a_huge_one_is_refused():
    import jax.numpy as jnp

    mine = models.own(lambda _: jnp.zeros(3), lambda w, x, y: (x @ w - y) ** 2, lambda w, rows: rows @ w[:, None],
                      features=3, classes=0)  # fmt: skip
    with pytest.raises(PlanError, match=r"CH204.*does not know which of its parameters"):
        fitted(mine, np.zeros(3, np.float32), rows_of(models.linear(3)), 0.1)
    with pytest.raises(PlanError, match=r"CH204.*8,200 parameters"):
        fitted(models.logistic(819, 10), np.zeros(8200, np.float32), (np.zeros((2, 819)), np.array([0, 1])), 0.1)
    for kappa in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(PlanError, match="CH200 kappa"):
            personal(models.linear(3), np.zeros(4, np.float32), rows_of(models.linear(3)), kappa=kappa)


def test_rows_far_beyond_any_range_end_in_a_refusal_and_no_traceback():
    features, labels = rows_of(models.binary(3))
    with np.errstate(all="ignore"), pytest.raises(TrainingError, match="CH700"):
        fitted(models.binary(3), np.zeros(4, np.float32), (features * np.float32(np.inf), labels), 0.1)


def test_numbers_next_to_which_the_pull_is_lost_end_in_a_refusal_too():
    """Rows of 1e12: in float64 the matrix of second derivatives is singular."""
    model = models.logistic(3)
    features, labels = rows_of(model, 40)
    with np.errstate(all="ignore"), pytest.raises(TrainingError, match="CH700"):
        fitted(model, np.ones(model.size, np.float32), (np.float32(1e12) * features, labels), KAPPA)


def test_a_site_without_rows_to_learn_from_keeps_the_shared_model():
    shared = np.float32([0.5, -0.25, 1.0])
    nothing = np.zeros((0, 2), np.float32), np.zeros(0, np.float32)
    np.testing.assert_array_equal(fitted(models.linear(2), shared, nothing, 0.1), shared)
