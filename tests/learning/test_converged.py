"""Models trained to convergence: at the minimum, by closed forms and derivatives, and never by the noise of a plan."""

import numpy as np
import pytest

from choral.learning.converged import converged, lbfgs, newton, regularised_loss, standardised
from choral.learning.evaluate import evaluate
from choral.learning.models import binary, linear, logistic, mlp
from choral.tables.records import Records


def made(classes, *, rows=400, features=5, seed=0):
    """Rows whose label leans on the first features; features of very different spread, and one that is constant."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(rows, features)) * np.geomspace(1, 0.01, features)
    table[:, -1] = 0.25
    score = table[:, 0] + 30 * table[:, 2] + 0.4 * rng.normal(size=rows)
    labels = np.digitize(score, [-0.8, 0.8][: classes - 1]) if classes else np.tanh(score)
    return Records.of([("a", table, labels)], classes=classes)


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_the_solvers_end_where_the_gradient_is_zero(classes):
    """Checked by differences of the loss itself in 64 bits, which know nothing of the solvers' own derivatives."""
    records = made(classes)
    rows = standardised(records.features, records.features.mean(axis=0), np.maximum(records.features.std(axis=0), 0.01))
    problem = {"rows": rows, "labels": records.labels, "ridge": 0.01, "classes": classes}
    start = np.zeros((rows.shape[1], 3 if classes == 3 else 1))
    for solve in (lbfgs, *([newton] if classes < 3 else [])):
        place = solve(start, **problem)
        value, step = regularised_loss(place, **problem)[0], 0.05
        for at in np.ndindex(place.shape):
            for sign in (1, -1):
                moved = place.copy()
                moved[at] += sign * step
                assert regularised_loss(moved, **problem)[0] > value - 1e-7


def test_least_squares_is_what_the_closed_form_gives():
    records = made(0)
    found = converged(linear(5), records, records)
    whole = np.column_stack([records.features, np.ones(len(records.labels))]).astype(np.float64)
    exact = np.linalg.lstsq(whole, records.labels, rcond=None)[0]
    error = float(np.square(whole @ exact - records.labels).mean())
    assert evaluate(linear(5), found, records).rmse ** 2 == pytest.approx(error, rel=1e-3)


@pytest.mark.parametrize("model", [logistic(5), binary(5), logistic(5, 3)])
def test_a_converged_classifier_beats_a_few_small_steps_and_the_most_common_class(model):
    train, test = made(model.classes), made(model.classes, seed=1)
    found = evaluate(model, converged(model, train, train), test)
    common = np.bincount(test.labels).max() / len(test.labels)
    assert found.accuracy > common + 0.2
    assert found.loss < evaluate(model, model.start(0), test).loss


def test_the_ridge_is_chosen_on_the_validation_rows():
    """Twelve rows with forty features of noise: without a ridge they would be learned by heart."""
    rng = np.random.default_rng(5)
    noise = [Records.of([("a", rng.normal(size=(n, 40)), np.arange(n) % 2)]) for n in (12, 200)]
    model = binary(40)
    chosen, by_heart = (converged(model, noise[0], judges) for judges in (noise[1], noise[0]))
    assert np.abs(chosen[:-1]).sum() < 0.5 * np.abs(by_heart[:-1]).sum()


def test_rows_of_one_class_alone_give_a_model_that_always_says_it():
    rows = Records.of([("a", np.random.default_rng(0).normal(size=(30, 4)), np.ones(30, int))])
    assert evaluate(binary(4), converged(binary(4), rows, rows), rows).accuracy == 1.0


def test_a_network_learns_what_no_line_can_separate():
    rng = np.random.default_rng(2)
    table = rng.uniform(-1, 1, (300, 2))
    rows = Records.of([("a", table, (table[:, 0] * table[:, 1] > 0).astype(int))])
    network, line = mlp(2, (16,), 2), logistic(2)
    assert evaluate(network, converged(network, rows, rows), rows).accuracy > 0.9
    assert evaluate(line, converged(line, rows, rows), rows).accuracy < 0.7


def test_a_column_that_is_the_same_in_all_rows_of_a_site_gets_no_weight():
    """Summed in float32 it seems to have a spread, by which its weight would be divided."""
    rng = np.random.default_rng(0)
    features = np.stack([rng.uniform(-1, 1, 2000), np.full(2000, 0.872001)], axis=1).astype(np.float32)
    assert features.std(axis=0)[1] > 1e-6
    rows = Records.of([("a", features, 0.5 * features[:, 0])], classes=0)
    weights = converged(linear(2), rows, rows)
    assert abs(weights[0] - 0.5) < 0.01 and weights[1] == 0
