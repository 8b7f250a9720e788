"""Models on sums as the model of a run: asked for by name, planned with κ, and never trained by mistake."""

import numpy as np
import pytest

import choral
from choral import cli
from choral.asking.catalogue import read_model
from choral.config import job_of, parse
from choral.core.errors import ConfigError, TableError
from choral.output.onnx import export_onnx
from choral.record import read_sum_models
from choral.run.inquiry import begun
from choral.run.modelling import (
    advice,
    kappa_of,
    question_of,
    shape_of,
    sums_of,
    with_proposed_kind,
)
from choral.run.planning import prospect_of, settle
from choral.run.study import declared_columns
from choral.tables.reading import from_frame
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
    assert prospect_of(study) is None


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


@pytest.mark.parametrize("start", [choral.simulate, choral.rehearse])
def test_a_model_on_sums_is_made_from_python_and_predicts_again_when_it_is_opened(start, tmp_path):
    result = start(frame(), epsilon=30.0, model="additive", bins=4, rounds=3, out=tmp_path / "run", **SICK)
    rows = frame(rows=50, seed=9)
    found = result.predict_proba(rows.drop(columns="sick"))
    model = read_model(question_of(config_of(result)), declared_columns(config_of(result)))
    state = np.array(next(iter(read_sum_models(tmp_path / "run"))).state)
    by_sums = model.round.at(state).predicted(from_frame(rows))  # in double precision, as the study's own figures are
    assert found[:, 1] == pytest.approx(by_sums, abs=1e-6) and found.sum(axis=1) == pytest.approx(1)
    assert result.predict(rows).tolist() == [("no", "yes")[int(one > 0.5)] for one in by_sums]
    assert result.record.about.model.kind == "additive" and f"ε ≤ {29.7:.2f} (δ" in repr(result)
    again = choral.open(tmp_path / "run")
    assert (again.predict_proba(rows) == found).all() and again.score(rows, rows.sick) > 0.6
    assert result.report(tmp_path / "r.html").exists()
    assert cli.main(["predict", str(tmp_path / "run"), str(to_csv(rows, tmp_path))]) == 0
    with pytest.raises(ConfigError, match=r'CH102 .* the model "additive" is made from sums'):
        export_onnx(tmp_path / "run")


def to_csv(rows, folder):
    rows.to_csv(folder / "new.csv", index=False)
    return folder / "new.csv"


def config_of(result):
    return parse(result.record.about.job)


def test_a_model_of_hazards_predicts_how_high_the_hazard_of_a_row_is(tmp_path, capsys):
    own = {"label": "died", "classes": ["0", "1"], "ignore": ["sick"], "columns": WATCHED, "time": "days"}
    result = choral.simulate(
        frame(), epsilon=60.0, model="hazard", rounds=2, bins=4, out=tmp_path / "run", **{**SICK, **own}
    )
    rows = frame(rows=50, seed=9)
    found = result.predict(rows.drop(columns=["days", "died"]))
    assert np.corrcoef(found, rows.age)[0, 1] > 0.3  # in this data the hazard grows with the age
    assert cli.main(["predict", str(tmp_path / "run"), str(to_csv(rows, tmp_path))]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["log hazard", f"{found[0]:.6f}".rstrip("0")]
    with pytest.raises(ConfigError, match="CH102 a model of hazards gives no class a probability"):
        result.predict_proba(rows)
    with pytest.raises(ConfigError, match="CH102 a model of hazards has no classes to score"):
        result.score(rows, rows.died)


@pytest.mark.parametrize("option", [{"compare": True}, {"log": "tensorboard"}])
def test_options_of_training_are_refused_for_a_model_on_sums(option, tmp_path):
    with pytest.raises(ConfigError, match=r'CH104 .*with \[model\] kind = "additive", which is made from sums'):
        choral.simulate(frame(), epsilon=30.0, model="additive", out=tmp_path / "run", **option, **SICK)


def test_cells_that_cannot_be_read_and_rows_without_names_are_refused_when_a_model_on_sums_predicts():
    result = choral.simulate(frame(), epsilon=30.0, model="additive", bins=4, rounds=2, **SICK)
    with pytest.raises(TableError, match="CH303"):
        result.predict(frame(rows=5).assign(age="much"))
    with pytest.raises(TableError, match=r"CH312 a ndarray is not a table"):
        result.predict(np.zeros((5, 2), np.float32))


def test_a_job_that_leaves_its_kind_open_is_trained_from_python_where_training_is_proposed():
    named, proposed = (choral.simulate(frame(), epsilon=2.0, rounds=2, model=kind, **SICK) for kind in (None, "auto"))
    assert proposed.parameters.tolist() == named.parameters.tolist()


def test_rounds_of_a_model_on_sums_are_not_gone_on_with_as_those_of_a_training(tmp_path):
    begun("simulation", frame(), {"epsilon": 30.0, "model": "additive", **SICK}, out=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"CH104 .* choral\.study\(RUN, data\)\.ask\.additive"):
        choral.resume(tmp_path / "run", frame())


def test_a_deployment_asks_for_such_a_model_by_a_question():
    from choral.run.agreement import check_deployable

    given = {name: value for name, value in SICK.items() if name not in ("devices", "seed")}
    with pytest.raises(ConfigError, match=r"CH104 .* choral ask STUDY additive"):
        check_deployable(job_of(epsilon=2.0, model="additive", rows=100, **given))
    with pytest.raises(ConfigError, match=r"CH104 .*auto.* approves a model that is named"):
        check_deployable(job_of(epsilon=2.0, model="auto", rows=100, **given))
