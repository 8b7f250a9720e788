"""What a run is compared with: converged models of all rows and of each device, and always the same answer."""

import json

import numpy as np
import pytest

from choral.cli import main
from choral.record import read_run
from choral.report import write_report
from choral.run import runs
from choral.run.folder import RunFolder
from choral.run.runs import Run
from tests.run.small import rows, study


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    Run("simulation", study(rows(1200)), folder=RunFolder.create(folder), compare=True).finish()
    write_report(folder)
    return folder


def test_others_are_judged_on_the_same_rows_by_the_same_figure(compared):
    settled, result = study(rows(1200)), read_run(compared).result
    test, train = settled.split.test.labels, settled.split.train.labels
    assert result.baselines.most_common == pytest.approx(np.mean(test == np.bincount(train).argmax()))
    assert result.baselines.alone_devices == 6
    best = np.mean((settled.split.test.features[:, 0] > 0) == test)  # the rule by which the labels were made
    assert best - 0.03 < result.baselines.without_privacy
    assert result.baselines.most_common < result.baselines.alone <= result.baselines.without_privacy + 0.02


def test_the_result_says_how_sure_its_accuracy_is_and_what_each_class_gets(compared):
    record = read_run(compared)
    measured, accuracy = record.result.measured, record.result.test["accuracy"]
    count = len(study(rows(1200)).split.test.labels)
    assert measured.rows == count
    assert measured.error == pytest.approx((accuracy * (1 - accuracy) / count) ** 0.5, abs=1e-6)
    labels = study(rows(1200)).split.test.labels
    weighted = sum(np.mean(labels == int(name)) * recall for name, recall in measured.recall.items())
    assert weighted == pytest.approx(accuracy, abs=1e-5), "each class by its share of the rows is the accuracy"
    text = (compared / "report.html").read_text()
    assert f"accuracy {accuracy:.3f} ± {measured.error:.3f} (one standard error); AUC " in text
    assert "always the same answer: " in text and f"recall 0 {measured.recall['0']:.2f}" in text


def test_of_many_devices_some_are_drawn_and_their_number_is_reported(monkeypatch):
    monkeypatch.setattr(runs, "MOST_ALONE", 2)
    found = runs.baselines(study())
    assert found.alone_devices == 2
    assert "alone, mean of 2" in found.named()


def test_a_label_that_is_a_number_is_compared_by_its_share_of_variance_and_the_mean_explains_none():
    features, _ = rows(1200)
    target = features[:, 0] + 0.1 * np.random.default_rng(1).normal(size=1200)
    settled = study((features, target), label_bounds=[-2.0, 2.0])
    found = runs.baselines(settled)
    assert found.without_privacy > 0.9 and found.alone > 0.9
    assert -0.1 < found.most_common <= 0.0


def test_machines_get_every_figure(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    features, labels = rows(1200)
    lines = [",".join([*(f"{value:.3f}" for value in row), "no" if label else "yes"]) for row, label in
             zip(features, labels, strict=True)]  # fmt: skip
    (tmp_path / "rows.csv").write_text("a,b,c,d,ill\n" + "\n".join(lines) + "\n")
    columns = "".join(f"[data.columns.{name}]\nbounds = [-1, 1]\n" for name in "abcd")
    (tmp_path / "choral.toml").write_text(
        "[privacy]\nepsilon = 4.0\ndelta = 1e-4\n[federation]\ndevices = 4\nrounds = 2\n[local]\nbatch = 16\n"
        'steps = 1\nstep_size = 0.5\nclip = 1.0\n[data]\ncsv = "rows.csv"\nlabel = "ill"\nclasses = ["no", "yes"]\n'
        + columns
    )
    assert main(["simulate", "choral.toml", "--compare", "--json", "--out", "one"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert (
        set(reported["measured"]["recall"]) == {"no", "yes"}
        and reported["measured"]["error"] > 0
        and "auc" in reported["test"]
    )
    named = {"without_privacy", "alone", "alone_devices", "most_common", "alone_loss", "alone_auc"}
    assert named == set(reported["baselines"])
