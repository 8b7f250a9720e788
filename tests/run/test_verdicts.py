"""What is said about joining, before and after a run, and who is left out."""

from dataclasses import replace

import msgspec
import numpy as np
import pandas
import pytest

import choral
from choral import cli, config
from choral.core.errors import ChoralError
from choral.core.plan import Budget
from choral.planner.prospect import Prospect, happened, in_words
from choral.record import Baselines, Measured
from choral.report import write_report
from choral.report.verify import verify
from choral.run.planning import settle
from tests.run.forger import edit

RNG = np.random.default_rng(5)
X = RNG.normal(0, 0.4, (1500, 3)).clip(-1, 1)
SITES = np.repeat(["a", "b", "c", "d", "e"], [750, 420, 210, 90, 30])  # 50, 28, 14, 6 and 2 %
FRAME = pandas.DataFrame({"x": X[:, 0], "y": X[:, 1], "z": X[:, 2], "label": (X[:, 0] > 0).astype(int), "site": SITES})
COLUMNS = {name: {"bounds": [-1, 1]} for name in "xyz"}
JOB = {"device_column": "site", "columns": COLUMNS, "classes": ["0", "1"], "epsilon": 2.0, "delta": 1e-4, "seed": 1}


def test_whoever_has_fewer_rows_than_the_federation_asks_for_is_left_out_by_name():
    """80 % of a site's rows are trained on: 600, 336, 168, 72 and 24."""
    study = settle(config.job_of(**JOB, rows=100), FRAME)
    assert study.data.records.names == ("a", "b", "c")
    assert (study.plan.devices, study.plan.rows, study.rows.tolist()) == (3, 100, [600, 336, 168])
    assert study.data.notes[-1] == "left out, with fewer than 100 rows to train on: d (72), e (24)"
    whole = settle(config.job_of(**JOB, rows=24), FRAME)
    assert whole.data.records.names == ("a", "b", "c", "d", "e")
    assert not any("left out" in note for note in whole.data.notes)


def test_a_federation_of_one_is_not_left_over():
    with pytest.raises(ChoralError, match=r"CH305 .* leaves 1 of 5 devices.* at most 336"):
        settle(config.job_of(**JOB, rows=500), FRAME)


def test_a_file_with_small_sites_is_shown_what_leaving_them_out_gains(tmp_path, monkeypatch, capsys):
    """√5/1,200 against √2/936: the noise falls by 19 %."""
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("rows.csv", index=False)
    declared = "".join(f"[data.columns.{name}]\nbounds = [-1, 1]\n" for name in "xyz")
    (tmp_path / "choral.toml").write_text(
        '[data]\ncsv = "rows.csv"\ndevice_column = "site"\nclasses = ["0", "1"]\n[privacy]\nepsilon = 2.0\n'
        f"delta = 1e-4\n{declared}"
    )
    assert cli.main(["plan", "choral.toml"]) == 0
    reported = " ".join(capsys.readouterr().out.split())
    assert "without the 3 smallest the noise on the model falls by 19%: rows = 336 in [federation]" in reported
    assert "VERDICT If sites are alike, expect a model" in reported


@pytest.mark.parametrize(("figure", "kind"), [(0.83, "better"), (0.81, "on par"), (0.79, "on par"), (0.77, "worse")])
def test_a_difference_of_two_standard_errors_is_better_or_worse_and_a_smaller_one_is_neither(figure, kind):
    verdict = happened({"accuracy": figure}, Measured(rows=1600, error=0.01), Baselines(without_privacy=0.9, alone=0.8))
    assert verdict.kind == kind and verdict.gain == pytest.approx(figure - 0.8)


@pytest.mark.parametrize(("figure", "kind"), [(0.84, "better"), (0.82, "on par"), (0.76, "worse")])
def test_three_points_of_explained_variance_are_no_difference(figure, kind):
    found = happened({"r2": figure, "loss": 0.1}, Measured(rows=99), Baselines(without_privacy=0.9, alone=0.8))
    assert found.kind == kind


RARE = Measured(rows=428, error=0.02, recall={"no": 1.0, "yes": 0.0}, rarest=0.24, loss_error=0.01)


@pytest.mark.parametrize(
    ("loss", "auc", "kind"),
    [(0.56, 0.63, "worse"), (0.5, 0.63, "worse"), (0.56, 0.75, "worse"), (0.5, 0.75, "on par"), (0.45, 0.75, "better")],
)
def test_where_a_class_is_rare_log_loss_and_area_decide_and_not_the_accuracy(loss, auc, kind):
    """As on ACTG175 at ε = 2: AUC .63 next to .75 of a site alone, and the accuracy of always the same answer."""
    others = Baselines(without_privacy=0.8, alone=0.76, alone_loss=0.5, alone_auc=0.75)
    found = happened({"accuracy": 0.76, "loss": loss, "auc": auc}, RARE, others)
    assert found.kind == kind and found.same_answer
    said = in_words(found)
    assert f"AUC {auc - 0.75:+.3f}" in said and said.endswith("The model gives always the same answer.")


def test_where_no_class_is_rare_or_an_older_run_did_not_measure_it_the_accuracy_decides():
    others = Baselines(without_privacy=0.8, alone=0.7, alone_loss=0.5, alone_auc=0.75)
    test = {"accuracy": 0.76, "loss": 0.6, "auc": 0.6}
    for measured in (msgspec.structs.replace(RARE, rarest=0.3), Measured(rows=428, error=0.02)):
        found = happened(test, measured, others)
        assert (found.kind, found.less_loss, found.more_auc) == ("better", None, None)
    assert happened(test, RARE, Baselines(without_privacy=0.8, alone=0.7)).kind == "better"  # a run of before


def test_a_run_measures_what_a_verdict_about_a_rare_class_needs(tmp_path):
    frame = FRAME.assign(label=(FRAME.x > 0.45).astype(int))  # 13 %
    result = choral.simulate(frame, **JOB, rounds=2, compare=True, out=tmp_path / "run")
    outcome = result.record.result
    assert 0.05 < outcome.measured.rarest < 0.25 and outcome.measured.loss_error > 0
    assert 0.5 < outcome.baselines.alone_auc <= 1 and outcome.baselines.alone_loss > 0
    assert outcome.verdict.more_auc == pytest.approx(outcome.test["auc"] - outcome.baselines.alone_auc)
    write_report(tmp_path / "run")
    assert "a class is rare" in (tmp_path / "run" / "report.html").read_text()
    assert all(not finding.wrong for finding in verify(tmp_path / "run"))


def test_without_the_figure_of_a_site_alone_there_is_no_verdict():
    assert happened({"accuracy": 0.9}, None, Baselines(without_privacy=None, alone=None)) is None
    assert happened({"loss": 0.1}, None, Baselines(without_privacy=0.9, alone=0.8)) is None


def test_more_sites_a_larger_budget_and_trust_never_lower_what_is_expected():
    few = Prospect(budget=Budget(epsilon=1.0, delta=1e-5), devices=5, rows=90, features=30, classes=2, trusted_noises=3)
    assert few.kind == "worse"
    larger = [
        replace(few, devices=50), replace(few, budget=Budget(epsilon=8.0, delta=1e-5)), replace(few, honest_noises=3),
    ]  # fmt: skip
    assert all(one.advantage > few.advantage for one in larger)
    assert "such sites" in few.sentence and "--personal" in few.sentence


@pytest.mark.parametrize("devices", [2, 3, 10, 200])
def test_n_sites_together_have_n_times_the_rows_of_one_and_can_gain_no_more_than_that(devices):
    """By hand: a site alone is off by D/m, all together by D/(nm). Four times the honest noises halve the noise."""
    one = Prospect(budget=Budget(epsilon=1.0, delta=1e-5), devices=devices, rows=500, features=30, classes=2)
    without_noise = 2 * replace(one, honest_noises=4).advantage - one.advantage
    assert without_noise == pytest.approx(31 / 500 - 31 / (devices * 500), rel=1e-9)


def test_what_joining_is_worth_to_a_site_follows_from_its_own_rows_and_not_from_the_mean():
    """Nine sites of 60 rows and one of 20,000, whose mean of 2,054 said that nobody would gain."""
    sizes = (60,) * 9 + (20_000,)
    mean = Prospect(budget=Budget(epsilon=4.0, delta=1e-5), devices=10, rows=2054, features=30, classes=2)
    unequal = replace(mean, sizes=sizes)
    assert mean.kind == "on par" and unequal.kind == "better"
    assert "better than a site alone for one of 60 rows and on par with a site alone for one of 20,000 rows" in (
        unequal.sentence
    )
    assert "10 sites with 20,540 rows" in unequal.sentence
    assert replace(mean, sizes=(2054,) * 10).sentence == mean.sentence
    small, large = (replace(unequal, sizes=(rows,) * 10).advantage for rows in (60, 20_000))
    assert small - large == pytest.approx(31 / 60 - 31 / 20_000)


def test_a_run_says_whether_joining_was_worth_it_and_a_changed_verdict_is_found(tmp_path):
    result = choral.simulate(FRAME, **JOB, rounds=2, compare=True, out=tmp_path / "run")
    outcome = result.record.result
    assert outcome.verdict == happened(result.test, outcome.measured, result.baselines)
    write_report(tmp_path / "run")
    assert "a site alone" in (tmp_path / "run" / "report.html").read_text()
    assert all(not finding.wrong for finding in verify(tmp_path / "run"))
    edit(tmp_path / "run" / "result.json", lambda reported: reported["verdict"].update(kind="better", gain=0.5))
    assert any("another verdict" in line for finding in verify(tmp_path / "run") for line in finding.wrong)


def test_settings_that_are_hopeless_are_tried_with_a_warning(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("rows.csv", index=False)
    (tmp_path / "choral.toml").write_text(
        '[data]\ncsv = "rows.csv"\ndevice_column = "site"\nclasses = ["0", "1"]\n[privacy]\nepsilon = 0.01\n'
        'delta = 1e-4\nnoise_is_added = "every step"\n[federation]\nrounds = 1\n'
    )
    assert cli.main(["simulate", "choral.toml", "--out", "run"]) == 0
    assert "tried all the same" in capsys.readouterr().out


def test_a_file_whose_steps_put_noise_into_every_one_of_them_is_told_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("rows.csv", index=False)
    text = '[data]\ncsv = "rows.csv"\ndevice_column = "site"\nclasses = ["0", "1"]\n'
    text += "[privacy]\nepsilon = 2.0\ndelta = 1e-4\n"
    said = (
        "noise is added in every step because of batch and steps; to add it once, leave them out or set noise_is_added"
    )
    for more, expected in (("", False), ("[local]\nsteps = 2\nbatch = 10\n", True)):
        (tmp_path / "choral.toml").write_text(text + more)
        assert cli.main(["plan", "choral.toml"]) == 0
        assert (said in " ".join(capsys.readouterr().out.split())) == expected
