"""The estimators are scikit-learn's: its own checks pass, or the list below says why one can't."""

import pickle  # what users do with estimators; choral itself reads no pickles
import sys
from importlib import import_module

import numpy as np
import pandas
import pytest

import choral
from choral.core.errors import ConfigError

pytest.importorskip("sklearn", reason="scikit-learn is an extra: choral[sklearn]")
from sklearn.base import clone
from sklearn.metrics import RocCurveDisplay
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

FEW = "it fits 10 to 15 rows, and two devices need 10 each"
FAILS = {
    "check_n_features_in_after_fitting": FEW,
    "check_estimators_nan_inf": FEW,
    "check_fit2d_1feature": FEW,
}
OF_CLASSES = FAILS | {"check_classifier_data_not_an_array": FEW}
OF_NUMBERS = FAILS | {"check_regressors_no_decision_function": FEW}
NEEDS_SETTING = {"check_array_api_input"}  # skips itself unless SCIPY_ARRAY_API is set


@pytest.mark.long
@pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.SkipTestWarning", "ignore::sklearn.exceptions.EstimatorCheckFailedWarning"
)
@pytest.mark.parametrize(
    ("estimator", "fails"),
    [
        (lambda: choral.Classifier(random_state=0), OF_CLASSES),
        (lambda: choral.Regressor(label_bounds=(-4, 4), random_state=0), OF_NUMBERS),
    ],
    ids=["Classifier", "Regressor"],
)
def test_every_check_of_scikit_learn_passes_or_has_a_reason(estimator, fails):
    found = check_estimator(estimator(), expected_failed_checks=fails)
    by_status = {}
    for check in found:
        by_status.setdefault(check["status"], set()).add(check["check_name"])
    assert by_status["xfail"] == set(fails), "a reason that is no longer needed"
    assert by_status.get("skipped", set()) <= NEEDS_SETTING
    assert set(by_status) <= {"passed", "xfail", "skipped"} and len(by_status["passed"]) >= 30


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, size=(240, 2))
    return features, np.where(features[:, 0] > 0, "yes", "no")


@pytest.fixture(scope="module")
def fitted(data):
    return choral.Classifier(
        epsilon=8, delta=1e-4, devices=3, bounds=(-1, 1), random_state=0, settings={"rounds": 2}
    ).fit(*data)


def test_parameters_are_read_set_and_cloned(fitted):
    other = clone(fitted).set_params(epsilon=1.0)
    assert other.get_params() == {**fitted.get_params(), "epsilon": 1.0}
    assert not hasattr(other, "result_") and "epsilon=8" in repr(fitted)


def test_a_classifier_predicts_classes_and_probabilities_and_says_what_it_cost(fitted, data):
    features, labels = data
    shares = fitted.predict_proba(features)
    assert fitted.classes_.tolist() == ["no", "yes"] and shares.shape == (240, 2)
    assert shares.sum(axis=1) == pytest.approx(1)
    assert (fitted.predict(features) == fitted.classes_[shares.argmax(axis=1)]).all()
    assert fitted.score(features, labels) > 0.85
    claim = fitted.result_.privacy.against_everyone
    assert claim.epsilon <= 8 and claim.rule and fitted.result_.privacy.adjacency == "one record replaced"
    assert len(fitted.result_.record.about.devices) == 3
    assert sum(one.rows for one in fitted.result_.record.about.devices) == 240  # every row is trained on
    assert fitted.result_.record.about.data.columns_from == "declared"


def test_a_pickle_of_a_fitted_estimator_predicts_the_same_and_holds_no_row(fitted, data):
    features, _ = data
    written = pickle.dumps(fitted)
    assert (pickle.loads(written).predict_proba(features) == fitted.predict_proba(features)).all()
    assert not any(row.tobytes() in written or row.astype(np.float32).tobytes() in written for row in features)


@pytest.mark.long
def test_cross_validation(fitted, data):
    assert cross_val_score(fitted, *data, cv=2).min() > 0.7


def test_a_roc_display(fitted, data):
    matplotlib = pytest.importorskip("matplotlib", reason="scikit-learn draws with it")
    matplotlib.use("Agg")
    assert RocCurveDisplay.from_estimator(fitted, *data).roc_auc > 0.9


def test_a_pipeline_with_named_columns_and_sites(data):
    features, labels = data
    frame = pandas.DataFrame(features, columns=["age", "label"])  # a feature may have the name of the label
    sites = np.repeat(["north", "south", "west"], 80)
    step = choral.Classifier(epsilon=8, delta=1e-4, bounds=[(-1, 1), (-2, 2)], random_state=0, settings={"rounds": 2})
    made = make_pipeline(FunctionTransformer(), step).fit(frame, labels, classifier__sites=sites)
    result = made[-1].result_
    assert [one.name for one in result.record.about.devices] == ["north", "south", "west"]
    assert [(column.name, column.high) for column in result.columns] == [("age", 1.0), ("label", 2.0)]


def test_a_regressor_predicts_in_the_unit_of_y(data):
    features, _ = data
    y = 30 + 10 * features[:, 0]
    settings = {"epsilon": 8, "delta": 1e-4, "devices": 2, "random_state": 0}
    made = choral.Regressor(**settings, label_bounds=(20, 40)).fit(features, y)
    assert made.score(features, y) > 0.6 and 20 < made.predict(features).mean() < 40
    assert made.result_.record.about.data.columns_from == "the data"  # without bounds, the result says so
    with pytest.raises(ValueError, match="label_bounds is not given"):
        choral.Regressor(**settings).fit(features, y)


def test_what_choral_refuses_is_a_value_error_here(data):
    features, labels = data
    with pytest.raises(ValueError, match=r"CH102 .*epsilon"):
        choral.Classifier(epsilon=-1.0).fit(features, labels)
    with pytest.raises(ValueError, match=r"bounds have shape \(3, 2\)"):
        choral.Classifier(bounds=[(0, 1)] * 3).fit(features, labels)
    with pytest.raises(ValueError, match="240 rows and 2 sites"):
        choral.Classifier().fit(features, labels, sites=["a", "b"])
    with pytest.raises(ValueError, match="n_samples=12 rows"):
        choral.Classifier().fit(features[:12], labels[:12])
    with pytest.raises(ValueError, match="only one class"):
        choral.Classifier().fit(features, ["a"] * 240)


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "choral.front.estimators")
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(ConfigError, match=r"CH106 estimators need scikit-learn. pip install 'choral\[sklearn\]'"):
        import_module("choral.front.estimators")
