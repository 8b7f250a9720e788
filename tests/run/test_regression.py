"""Labels that are numbers: squared error from a table, a file or arrays, through every step that classes go through."""

import json

import numpy as np
import onnxruntime
import pandas as pd
import pytest

import choral
from choral.cli import main
from choral.core.errors import ChoralError, TableError
from choral.output.onnx import export_onnx
from choral.planner import plan_for
from choral.record import read_run
from choral.report import page
from choral.report.live import live_page
from choral.run.runs import Run
from choral.tables import sources
from tests.run.small import SETTINGS, study

LOW, HIGH = 1000.0, 5000.0


def numbers(count=240, features=4, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1, 1, size=(count, features)).astype(np.float32)
    return rows, 3000 + 900 * rows[:, 0] - 500 * rows[:, 1] + 100 * rng.normal(size=count)


MODELS = {"linear": {}, "mlp": {"model": "mlp", "hidden": [5]}}
BOUNDS = {"label_bounds": [LOW, HIGH]}
LEARNING = {**SETTINGS, **BOUNDS, "epsilon": 50.0, "rounds": 20}


def test_one_step_without_noise_is_the_step_of_least_squares_by_hand():
    rows, labels = numbers()
    settings = {"epsilon": None, "noise": 0.0, "sampling": "partition", "clip": 1e6, "local_steps": 1, "rounds": 1}
    reported = study((rows, labels), **BOUNDS, **settings, cohort=6, batch=32, step_size=0.25)
    run = Run("simulation", reported)
    run.finish()
    train = reported.split.train
    steps = []
    for device in range(6):
        x, y = train.features_of(device).astype(np.float64), train.labels_of(device)
        assert len(x) == 32  # 80 % of 40 rows, so the batch is all of them
        # f = ½(x·w + b − y)² at w = b = 0 has the gradient −y·(x, 1); y is the label on the scale from −1 to 1.
        steps.append(0.25 * np.append(y @ x, y.sum()) / 32)
    assert np.allclose(run.parameters, np.mean(steps, axis=0), atol=6 * reported.codec.grid)
    scaled = (labels - LOW) / (HIGH - LOW) * 2 - 1
    assert sorted(reported.data.records.labels) == pytest.approx(sorted(scaled), abs=1e-6)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_simulate_equals_rehearse_to_the_integer(model, seed):
    fast, real = (
        Run(kind, study(numbers(seed=seed), **BOUNDS, **MODELS[model], seed=seed), drop=0.1).finish()
        for kind in ("simulation", "rehearsal")
    )
    assert np.array_equal(fast.parameters, real.parameters)
    assert (fast.test, fast.privacy) == (real.test, real.privacy)


def test_an_unseeded_rehearsal_learns_numbers_too():
    result = choral.rehearse(numbers(), **{**LEARNING, "seed": None})
    assert result.test["r2"] > 0.5


@pytest.mark.parametrize("model", MODELS)
def test_predict_and_score_are_in_the_labels_unit_and_score_is_r2(model):
    rows, labels = numbers()
    result = choral.fit(rows, labels, **LEARNING, **MODELS[model])
    predicted = result.predict(rows)
    assert predicted.shape == (240,)
    assert predicted.min() < 2800 < np.median(predicted) < 3200 < predicted.max()
    # 1 − Σ(y − ŷ)²/Σ(y − ȳ)², as scikit-learn's r2_score defines it.
    r2 = 1 - np.square(labels - predicted).sum() / np.square(labels - labels.mean()).sum()
    assert result.score(rows, labels) == pytest.approx(r2)
    assert r2 > 0.5
    with pytest.raises(ChoralError, match="CH102 the label is a number"):
        result.predict_proba(rows)


def test_the_test_metrics_are_those_of_the_hold_out_in_the_labels_unit():
    reported = study(numbers(), **LEARNING)
    result = Run("simulation", reported).finish()
    held = reported.split.test
    weights, bias = result.parameters[:-1].astype(np.float64), float(result.parameters[-1])
    error = (held.features @ weights + bias - held.labels) * (HIGH - LOW) / 2
    labels = held.labels * (HIGH - LOW) / 2
    assert result.test["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-4)
    assert result.test["r2"] == pytest.approx(1 - np.mean(error**2) / np.var(labels), rel=1e-4)
    assert result.test["loss"] == pytest.approx(np.mean((error / ((HIGH - LOW) / 2)) ** 2) / 2, rel=1e-3)
    assert set(result.test) == {"r2", "rmse", "loss"}


STAYS = """\
[privacy]
epsilon = 8.0
delta = 1e-4
[federation]
devices = 4
cohort = 4
rounds = 4
[local]
steps = 10
batch = 16
step_size = 0.4
clip = 1.0
[data]
csv = "stays.csv"
label = "cost"
label_bounds = [0, 100]
[data.columns.age]
bounds = [0, 100]
[run]
seed = 3
"""


@pytest.fixture
def stays(tmp_path, monkeypatch):
    age = np.random.default_rng(0).uniform(20, 90, 240)
    pd.DataFrame({"age": age, "cost": age * 0.9}).to_csv(tmp_path / "stays.csv", index=False)
    (tmp_path / "choral.toml").write_text(STAYS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("verb", ["simulate", "rehearse"])
def test_a_toml_is_run_verified_resumed_and_reported(verb, stays, capsys):
    assert main([verb, "choral.toml", "--out", "out", "--compare"]) == 0
    shown = capsys.readouterr().out
    assert "PLAN   linear with 2 parameters" in shown
    assert "\nR² " in shown
    assert "RMSE" in shown
    assert "accuracy" not in shown
    assert main(["verify", "out"]) == 0
    record = read_run("out")
    assert record.about.data.label_bounds == (0, 100)
    assert record.about.data.classes == ()
    assert record.result.baselines.without_privacy > 0.9
    text = page(record)
    assert "R² per round" in text
    assert "This page shows the R² on a hold-out" in text
    assert "ccuracy" not in text.split("</style>")[1]
    assert "R² " in live_page(record)["progress"]
    assert 'utility: "R² ' in (stays / "out" / "privacy.yaml").read_text()


@pytest.mark.usefixtures("stays")
def test_the_quiet_line_and_the_json_name_the_figures(capsys):
    assert main(["simulate", "choral.toml", "--out", "one", "--quiet"]) == 0
    assert capsys.readouterr().out.startswith("R² ")
    assert main(["simulate", "choral.toml", "--out", "two", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["test"]) == {"r2", "rmse", "loss"}


@pytest.mark.parametrize("model", MODELS)
def test_onnxruntime_predicts_the_same_numbers(model, tmp_path):
    rows, labels = numbers()
    result = choral.simulate((rows, labels), **LEARNING, **MODELS[model], out=tmp_path / "run")
    session = onnxruntime.InferenceSession(export_onnx(tmp_path / "run"), providers=["CPUExecutionProvider"])
    (label,) = session.run(None, {"features": rows})
    assert label == pytest.approx(result.predict(rows), rel=1e-5)
    assert json.loads(session.get_modelmeta().custom_metadata_map["label_bounds"]) == [LOW, HIGH]


BAD = {
    "no bounds": ({"label_bounds = [0, 100]\n": ""}, '[model]\nkind = "linear"\n', "CH304", "Declare label_bounds"),
    "bounds the wrong way": ({"[0, 100]\n[data.c": "[100, 0]\n[data.c"}, "", "CH102", "low below high"),
    "three bounds": ({"[0, 100]\n[data.c": "[0, 1, 2]\n[data.c"}, "", "CH102", "[low, high]"),
    "classes too": ({'label = "cost"\n': 'label = "cost"\nclasses = ["a"]\n'}, "", "CH104", "Keep label_bounds or"),
    "a logistic model": ({}, '[model]\nkind = "logistic"\n', "CH104", 'kind = "linear"'),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings_are_refused_with_their_line_and_a_way_out(case, stays, capsys):
    changes, more, code, fix = BAD[case]
    text = STAYS + more
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (stays / "choral.toml").write_text(text)
    assert main(["simulate", "choral.toml", "--out", "out"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"{code} choral.toml:")
    assert fix in error
    assert not (stays / "out").exists()


@pytest.mark.parametrize(("cell", "code"), [("", "CH301"), ("much", "CH303"), ("nan", "CH301")])
def test_a_label_that_is_no_number_is_refused_without_its_value(cell, code, stays):
    frame = pd.read_csv(stays / "stays.csv", dtype=str)
    frame.loc[7, "cost"] = cell
    frame.to_csv(stays / "stays.csv", index=False)
    with pytest.raises(TableError, match=f'^{code} .*stays.csv column "cost": .*row 8') as caught:
        choral.simulate("choral.toml")
    assert "much" not in str(caught.value)


def test_labels_outside_their_bounds_move_to_the_nearer_one_and_the_data_says_so_by_its_bounds():
    data = sources.load((np.eye(40), np.linspace(-50, 150, 40)), label_bounds=[0, 100], devices=2)
    assert data.records.labels.dtype == np.float32
    assert (data.records.labels.min(), data.records.labels.max()) == (-1, 1)
    assert data.columns_from == "declared"
    assert data.classes == ()


def test_numbers_without_bounds_and_labels_of_the_wrong_shape_are_refused():
    for labels, bounds in ((np.linspace(0, 1, 40), None), (np.zeros((40, 2)), [0, 1]), (np.zeros(39), [0, 1])):
        with pytest.raises(TableError, match=r"CH312 .*label_bounds"):
            sources.load((np.eye(40), labels), label_bounds=bounds, devices=2)


def test_label_skew_gives_devices_different_parts_of_the_range():
    labels = np.random.default_rng(1).uniform(0, 100, 4000)
    given = {"label_bounds": [0, 100], "devices": 4, "seed": 1}
    largest = []  # share of one tenth of the range in a device's rows
    for partition in ("even", "label-skew"):
        records = sources.load((np.ones((4000, 1)), labels), **given, partition=partition, skew=0.2).records
        assert len(records.labels) == 4000
        shares = [
            np.histogram(records.labels_of(device), 10, (-1, 1))[0] / records.sizes[device] for device in range(4)
        ]
        largest.append(np.max(shares))
    assert 0.1 < largest[0] < 0.13 < 0.2 < largest[1]


def test_the_planner_knows_the_shape_of_least_squares():
    reported = plan_for(epsilon=2.0, devices=8, rows=1000, features=27, model="linear", sampling="partition")
    # Rows of length 27^(1/3) = 3: the Hessian xxᵀ has the length 9, so steps are stable up to 2/9; labels spread
    # evenly over −1…1 have the mean square 1/3, so a record's gradient has about the length √(1/3)·3 = 1.73.
    assert reported.plan.step_size <= 0.23
    assert reported.plan.clip == 1.7
    network = plan_for(epsilon=2.0, devices=8, rows=1000, features=27, model="mlp", classes=0, sampling="partition")
    assert network.plan.clip == 1.7
    for wrong in ({"model": "logistic", "classes": 0}, {"model": "mlp", "classes": 1}):
        with pytest.raises(ChoralError, match="CH200 classes"):
            plan_for(epsilon=2.0, devices=8, rows=1000, features=27, **wrong)
