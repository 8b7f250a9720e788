import numpy as np
import pytest

from choral.core.errors import TableError, TrainingError
from choral.learning import evaluate, models
from choral.tables.records import Records

DRAW = np.random.default_rng(4)
RECORDS = Records.of(
    [(f"d{n}", DRAW.normal(size=(size, 5)), DRAW.integers(0, 2, size)) for n, size in enumerate([7, 1, 30, 12])]
)
MODELS = [models.logistic(5), models.binary(5), models.mlp(5, (4,), 2)]


def parameters(model):
    return DRAW.normal(size=model.size).astype(np.float32)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize("chunk", [5, 35, 10**6])
def test_chunks_of_any_size_give_the_same_figures(model, chunk, monkeypatch):
    theta = np.linspace(-1, 1, model.size, dtype=np.float32)
    whole = evaluate.evaluate(model, theta, RECORDS)
    norm = evaluate.squared_gradient_norm(model, theta, RECORDS)
    monkeypatch.setattr(evaluate, "CHUNK", chunk)
    parts = evaluate.evaluate(model, theta, RECORDS)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-6)
    assert evaluate.mean_loss(model, theta, RECORDS) == parts.loss
    assert (parts.accuracy, parts.auc) == (whole.accuracy, pytest.approx(whole.auc, abs=1e-6))
    assert evaluate.squared_gradient_norm(model, theta, RECORDS) == pytest.approx(norm, rel=1e-5)


def test_loss_accuracy_and_auc_are_those_of_plain_numpy():
    model = models.binary(5)
    theta = parameters(model)
    score = RECORDS.features.astype(np.float64) @ theta[:5] + theta[5]
    y = RECORDS.labels
    found = evaluate.evaluate(model, theta, RECORDS)
    assert found.loss == pytest.approx(np.mean(np.log1p(np.exp(-np.where(y == 1, score, -score)))), rel=1e-5)
    assert found.accuracy == np.mean((score > 0) == (y == 1))
    # By definition: pairs of a one and a zero in the right order.
    assert found.auc == pytest.approx(np.mean(score[y == 1][:, None] > score[y == 0]), abs=1e-6)


def test_auc_counts_ties_half():
    # Pairs (one, zero): (1, 1) half, (1, 0) right, (2, 1) right, (2, 0) right: 3.5 of 4.
    assert evaluate.area(np.float32([1, 2, 1, 0]), np.int32([1, 1, 0, 0])) == 0.875
    assert evaluate.area(np.float32([1, 2]), np.int32([1, 1])) is None


def test_the_gradient_norm_weighs_devices_equally_whatever_their_size():
    model = models.linear(5)
    theta = parameters(model)
    gradient = np.zeros(6)
    for device in range(4):
        x, y = RECORDS.features_of(device).astype(np.float64), RECORDS.labels_of(device)
        error = x @ theta[:5] + theta[5] - y
        gradient += np.append(x.T @ error, error.sum()) / len(y) / 4
    assert evaluate.squared_gradient_norm(model, theta, RECORDS) == pytest.approx(gradient @ gradient, rel=1e-5)


def test_a_loss_that_is_not_finite_is_reported():
    model = models.linear(5)
    with pytest.raises(TrainingError, match="CH700 the loss of the model is not finite"):
        evaluate.evaluate(model, np.full(6, 1e30, dtype=np.float32), RECORDS)


def test_rows_that_do_not_fit_the_model_are_refused():
    with pytest.raises(TableError, match="CH312 the rows have 5 features, the model takes 4"):
        evaluate.evaluate(models.linear(4), np.zeros(5, np.float32), RECORDS)
    with pytest.raises(TableError, match="CH308"):
        evaluate.evaluate(models.linear(5), np.zeros(6, np.float32), Records.of([("a", np.zeros((0, 5)), [])]))
