"""Models on sums as the model of a run: asked for by name, planned with κ, and never trained by mistake."""

import pytest

import choral
from choral.config import job_of
from choral.errors import ConfigError
from choral.run.study import settle
from choral.run.sum_study import advice, kappa_of, question_of, shape_of, sums_of
from tests.run.test_modelling import frame

SICK = {
    "label": "sick", "classes": ["no", "yes"], "devices": 3, "delta": 1e-4, "seed": 1,
    "columns": {"age": {"bounds": [0, 100]}, "smoker": {"levels": ["no", "yes"]}}, "ignore": ["days", "died"],
}  # fmt: skip


def test_the_question_names_all_declared_columns_except_the_label():
    job = job_of(epsilon=2.0, model="additive", bins=6, **SICK)
    asked = question_of(job)
    assert asked.parameters == {"columns": ["age", "smoker"], "target": "sick", "rounds": 20, "bins": 6}
    # A trend, six cells, two levels and the intercept; one sum counts the cells.
    assert (shape_of(job).parameters, sums_of(job)) == (1 + 6 + 2 + 1, 21)


def test_the_noise_of_a_cell_is_reported_with_the_proposal():
    job = job_of(epsilon=2.0, model="additive", **SICK)
    study = settle(job, frame())
    # By hand: 2·0.7·√3·24·√3/(μ·480), where ε = 2 at δ = 1e-4 is μ = 0.5766; four fifths of 600 rows are trained on.
    assert kappa_of(study) == pytest.approx(2 * 0.7 * 3**0.5 * 24 * 3**0.5 / (0.5766 * 480), rel=1e-3)
    assert "above 0.02" in advice(study)[0] and 'kind = "logistic"' in advice(study)[0]
    trained = settle(job_of(epsilon=2.0, **SICK), frame())
    assert "Training is proposed" in advice(trained)[0]
    assert study.prospect is None


def test_python_says_how_to_ask_for_a_model_that_is_not_trained():
    with pytest.raises(ConfigError, match=r"CH104 .* study\.ask\.additive"):
        choral.simulate(frame(), epsilon=2.0, model="additive", **SICK)


def test_a_deployment_asks_for_such_a_model_by_a_question():
    from choral.run.agreement import check_deployable

    given = {name: value for name, value in SICK.items() if name not in ("devices", "seed")}
    with pytest.raises(ConfigError, match=r"CH104 .* choral ask STUDY additive"):
        check_deployable(job_of(epsilon=2.0, model="additive", rows=100, **given))
