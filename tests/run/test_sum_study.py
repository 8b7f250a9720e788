"""Models on sums as the model of a run: asked for by name, planned with κ, and never trained by mistake."""

import pytest

import choral
from choral.config import job_of
from choral.errors import ConfigError
from choral.run.study import settle
from choral.run.sum_study import advice, kappa_of, question_of, shape_of, sums_of, with_proposed_kind
from tests.run.test_modelling import frame

SICK = {
    "label": "sick", "classes": ["no", "yes"], "devices": 3, "delta": 1e-4, "seed": 1,
    "columns": {"age": {"bounds": [0, 100]}, "smoker": {"levels": ["no", "yes"]}}, "ignore": ["days", "died"],
}  # fmt: skip

WATCHED = {**SICK["columns"], "days": {"bounds": [0, 900]}}


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
    assert advice(trained)[0].startswith("Proposed: a model that is trained")
    assert study.prospect is None


@pytest.mark.parametrize(
    ("given", "kind", "because"),
    [
        ({"epsilon": 2.0}, None, "κ = 0.364, above 0.02"),
        ({"epsilon": 60.0, "bins": 4}, "additive", "at most 0.02"),
        ({"epsilon": 60.0, "bins": 4, "step_size": 0.1}, None, "describes how it is trained"),
        ({"epsilon": 60.0, "classes": ["no", "yes", "perhaps"]}, None, "two declared classes"),
        ({"epsilon": 2.0, "time": "days", "columns": WATCHED}, "hazard", '"days" says how long each row was watched'),
    ],
)
def test_the_planner_chooses_the_kind_that_a_job_leaves_open_and_says_why(given, kind, because):
    job, (sentence,) = with_proposed_kind(job_of(model="auto", **{**SICK, **given}), frame())
    assert (job.model.kind, job.on_sums, job.run.seed) == (kind, kind is not None, 1)
    assert sentence.startswith("Proposed: ") and because in sentence and "Instead: " in sentence
    assert with_proposed_kind(job) == (job, ())


def test_a_job_that_leaves_its_kind_open_is_trained_from_python_where_training_is_proposed():
    named, proposed = (choral.simulate(frame(), epsilon=2.0, rounds=2, model=kind, **SICK) for kind in (None, "auto"))
    assert proposed.parameters.tolist() == named.parameters.tolist()


def test_python_says_how_to_ask_for_a_model_that_is_not_trained():
    with pytest.raises(ConfigError, match=r"CH104 .* study\.ask\.additive"):
        choral.simulate(frame(), epsilon=2.0, model="additive", **SICK)


def test_a_deployment_asks_for_such_a_model_by_a_question():
    from choral.run.agreement import check_deployable

    given = {name: value for name, value in SICK.items() if name not in ("devices", "seed")}
    with pytest.raises(ConfigError, match=r"CH104 .* choral ask STUDY additive"):
        check_deployable(job_of(epsilon=2.0, model="additive", rows=100, **given))
    with pytest.raises(ConfigError, match=r"CH104 .*auto.* approves a model that is named"):
        check_deployable(job_of(epsilon=2.0, model="auto", rows=100, **given))
