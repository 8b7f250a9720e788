"""Figures from one end to the other, quickly; the full ones against what was measured, in the long tests."""

import argparse
import io
import json
import math
import sys
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest

from choral.core.errors import ConfigError
from choral_lab import research
from choral_lab.paper import figures
from choral_lab.paper.adult import ROWS, experiment
from choral_lab.paper.claims import NOT_CONVEX
from choral_lab.paper.figures import FIGURES
from choral_lab.paper.utility import TRADEOFF
from choral_lab.research import results as timing
from choral_lab.research.pictures import why_not
from choral_lab.verbs import reproduce as verb


def minus(ours, theirs):
    """The differences of two methods, repeat by repeat."""
    pairs = zip(ours["test_accuracy"]["each"], theirs["test_accuracy"]["each"], strict=True)
    return [round(one - other, 6) for one, other in pairs]


def choral_reproduce(*words):
    parser = argparse.ArgumentParser()
    verb.configure(parser)
    parser.add_argument("--json", action="store_true")
    return verb.run(parser.parse_args(words))


@pytest.mark.long
def test_a_figure_is_measured_written_and_drawn(tmp_path, capsys):
    assert choral_reproduce("utility-logistic", "--quick", "--json", "--out", str(tmp_path)) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["repeats"] == 2
    for method in ("ours", "dp_sgd", "local_noise", "non_private", "centralised", "each_alone"):
        assert 0.8 < reported[method]["test_accuracy"]["mean"] < 0.87
    rules = {name: reported[name]["privacy"]["published"]["rule"] for name in ("ours", "dp_sgd", "local_noise")}
    assert rules == {"ours": "paper", "dp_sgd": "dp_sgd", "local_noise": "paper_without_secure_sum"}
    for other in ("dp_sgd", "local_noise", "non_private"):
        assert reported[f"ours_minus_{other}"]["each"] == minus(reported["ours"], reported[other])
    claim, verdict, figures = reported["claims"][0]
    assert claim.endswith("several local steps beat DP-SGD")
    assert verdict.startswith(("holds", "tie", "does not hold"))
    assert figures.startswith(f"ours {reported['ours']['test_accuracy']['mean']:.4f}, DP-SGD 0.8")
    assert reported["dp_fedavg"]["privacy"]["adjacency"] == "all records of one device replaced"
    assert reported["proved"]["2"]["privacy"]["proved_against_everyone"]["epsilon"] <= 2.0
    once = reported["noise_once"]["2"]["privacy"]["proved_with_secure_sum"]
    assert (once["rule"], once["adversary"]) == ("S7", "a server that sees only sums, helped by 2 of the devices")
    assert reported["published_at_proved_epsilon"]["2"]["privacy"]["published"]["epsilon"] == pytest.approx(2.0)
    three = reported["panels"][-1]
    assert three["title"] == "Logistic regression: one ε = 2, three rules (δ = 1e-5, one record replaced)"
    assert [line["name"].split(":")[0] for line in three["lines"][1:]] == ["Theorem 1", "S5", "S7"]
    assert all(line["name"] in (tmp_path / "utility-logistic-3.svg").read_text() for line in three["lines"])
    assert reported == json.loads((tmp_path / "utility-logistic.json").read_text())
    assert (tmp_path / "utility-logistic-1.svg").read_text().startswith("<svg")
    assert (tmp_path / "utility-logistic-1.png").exists() is (why_not() == "")
    page = (tmp_path / "index.html").read_text()
    assert "utility-logistic" in page
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")


def test_a_trade_off_compares_its_lines_at_every_epsilon_each_tuned_by_its_own_rule(tmp_path, monkeypatch):
    seen = {}

    def curve(one, _, part):
        # As if noise, samples and steps made the accuracy: every line ends elsewhere.
        accuracy = 0.9 - one.noise - (one.sampling == "poisson") / 50 - (one.local_steps == 1) / 40
        seen[accuracy] = one
        return {"round": [5.0, 10.0], f"{part}_accuracy": [0.5, accuracy], f"{part}_loss": [0.7, 0.4]}

    monkeypatch.setattr("choral_lab.research.measurements.train_together", lambda *_: ())
    monkeypatch.setattr(research.Experiment, "curve", curve)
    monkeypatch.setattr(research.Experiment, "alone", lambda *_: 0.75)
    reported = figures.reproduce("tradeoff-network", tmp_path, repeats=1, quick=True)
    ends = {name: reported[name]["10"]["test_accuracy"]["each"][0] for name in (
        "with_secure_sum", "without_secure_sum", "dp_sgd", "proved", "proved_with_secure_sum")}  # fmt: skip
    base = replace(TRADEOFF["network"][0], rounds=10, clip=3.0)
    one_step, sampled = replace(base, local_steps=1, batch=ROWS), replace(base, sampling="poisson")
    assert {name: seen[end] for name, end in ends.items()} == {
        "with_secure_sum": base.within("paper", epsilon=10.0, delta=1e-4),
        "without_secure_sum": base.within("paper_without_secure_sum", epsilon=10.0, delta=1e-4),
        "dp_sgd": one_step.within("dp_sgd", epsilon=10.0, delta=1e-4),
        "proved": sampled.within("proved", epsilon=10.0, delta=1e-4),
        "proved_with_secure_sum": one_step.within("with_secure_sum", epsilon=10.0, delta=1e-4),
    }
    for pair, ours, theirs in (
        ("with_minus_without", "with_secure_sum", "without_secure_sum"),
        ("with_minus_dp_sgd", "with_secure_sum", "dp_sgd"),
        ("proved_minus_published", "proved", "with_secure_sum"),
        ("secure_sum_minus_everyone", "proved_with_secure_sum", "proved"),
    ):
        for epsilon in ("0.5", "10"):
            assert reported[pair][epsilon]["each"] == minus(reported[ours][epsilon], reported[theirs][epsilon])
    for epsilon in ("0.5", "10"):
        assert reported["proved_minus_non_private"][epsilon]["each"] == minus(
            reported["proved"][epsilon], reported["non_private"]
        )
    assert "noise_once" not in reported
    assert any("S7" in claim and NOT_CONVEX in verdict for claim, verdict, _ in reported["claims"])
    (panel,) = reported["panels"]
    assert [line["points"][1] for line in panel["lines"]] == [[10.0, round(end, 6)] for end in ends.values()]
    assert panel["anchors"] == {"without privacy": 0.9, "all rows in one place": 0.875, "each device alone": 0.75}


def test_a_trade_off_of_a_convex_model_has_noise_once_with_the_secure_sum_at_the_same_epsilons(tmp_path, monkeypatch):
    def curve(one, _, part):
        accuracy = 0.9 - (0.01 if one.noise_is_added == "once" else 0.02)
        return {"round": [5.0, 10.0], f"{part}_accuracy": [0.5, accuracy], f"{part}_loss": [0.7, 0.4]}

    monkeypatch.setattr("choral_lab.research.measurements.train_together", lambda *_: ())
    monkeypatch.setattr(research.Experiment, "curve", curve)
    monkeypatch.setattr(research.Experiment, "alone", lambda *_: 0.75)
    reported = figures.reproduce("tradeoff-logistic", tmp_path, repeats=1, quick=True)
    assert (
        list(reported["noise_once"]) == list(reported["proved"]) == list(reported["with_secure_sum"]) == ["0.25", "10"]
    )
    for epsilon, one in reported["noise_once"].items():
        proved = one["privacy"]["proved_with_secure_sum"]
        assert proved["rule"] == "S7"
        assert 0.99 * float(epsilon) < proved["epsilon"] <= float(epsilon)
        assert one["privacy"]["delta"] == reported["proved"][epsilon]["privacy"]["delta"] == 1e-4
        for other in ("everyone", "published"):
            assert reported[f"noise_once_minus_{other}"][epsilon]["each"] == [0.01]
    _, three = reported["panels"]
    ends = [(line["name"].split(":")[0], line["points"][-1]) for line in three["lines"]]
    assert ends == [("Theorem 1", [10.0, 0.88]), ("S5", [10.0, 0.88]), ("S7", [10.0, 0.89])]
    assert all(line["name"] in (tmp_path / "tradeoff-logistic-2.svg").read_text() for line in three["lines"])


def test_a_convergence_figure_has_its_proved_line_and_its_anchors_in_every_panel(tmp_path, monkeypatch):
    seen = set()

    def curve(one, _, part):
        seen.add(one)
        names = (f"{part}_accuracy", f"{part}_loss", *one.also)
        return {"round": [50.0, 100.0], **{name: [0.7, 0.8] for name in names}}

    monkeypatch.setattr("choral_lab.research.measurements.train_together", lambda *_: ())
    monkeypatch.setattr(research.Experiment, "curve", curve)
    monkeypatch.setattr(research.Experiment, "alone", lambda *_: 0.75)
    reported = figures.reproduce("convergence-logistic", tmp_path, repeats=2)
    noise, raw = (reported["beside"][one]["proved"]["2"]["chosen"][0]["noise"] for one in ("scaled", "raw"))
    notes = [*["", "", ", τ = 10", ", τ = 10"] * 2, *[", same clip"] * 2]
    for panel, note in zip(reported["panels"], notes, strict=True):
        *others, proved, free = panel["lines"]
        assert len(others) == 4
        if note == ", same clip":
            assert proved["name"] == f"ε = 2 PROVED against everyone, σ = {raw:.2g}"
        else:
            assert proved["name"] == f"ε = 2 PROVED against everyone, σ = {noise:.2g}{note}"
        assert (free["name"], free["anchor"]) == (f"without privacy{note}", True)
        levels = {"all rows in one place": 0.8, "each device alone": 0.75} if panel["y"] == "test accuracy" else {}
        assert panel["anchors"] == levels
    proved = {one for one in seen if one.sampling == "poisson"}
    assert {(one.rounds, one.local_steps, one.batch, one.step_size, one.clip, one.noise) for one in proved} == {
        (100, 10, 244, 0.5, 3.0, noise),
        (100, 10, 244, 0.1, 1e-3, raw),
    }
    assert {(one.task.name, one.clip) for one in seen if one.noise == 0} == {
        ("logistic, narrow columns", math.inf),
        ("logistic, raw columns", 1e-3),
    }


def test_five_repeats_unless_set_otherwise_and_at_most_two_quickly(tmp_path, monkeypatch, capsys):
    first = research.Found(results={}, claims={}, panels=[])
    seen = []

    def figure(measurements, *, quick):
        seen.append((measurements.repeats, quick))
        return first

    monkeypatch.setitem(figures.FIGURES, "bounds", figure)
    assert choral_reproduce("bounds", "--quick", "--repeats", "1", "--out", str(tmp_path)) == 0
    assert choral_reproduce("bounds", "--out", str(tmp_path)) == 0
    assert seen == [(1, True), (1, True), (5, False), (5, False)]  # once to count the work, once to do it
    printed = capsys.readouterr().out
    assert "SAVED" in printed
    assert "one record replaced" in printed


def test_each_measurement_is_reported_with_its_number_and_the_time_left(tmp_path, monkeypatch):
    monkeypatch.setattr("choral_lab.research.measurements.train_together", lambda *_: ())
    monkeypatch.setattr(research.Experiment, "curve", lambda *_: {
        "validation_accuracy": [0.8], "validation_loss": [0.4], "test_accuracy": [0.8]})  # fmt: skip

    def figure(measurements, *, quick):  # noqa: ARG001 - as every figure is called
        small = experiment("logistic", rounds=2, local_steps=1, batch=61, step_size=0.5, looks=2)
        research.tuned(measurements, research.grid(small, {"step_size": (0.5, 1.0)}))
        return research.Found(results={}, claims={}, panels=[])

    monkeypatch.setitem(figures.FIGURES, "bounds", figure)
    clock = count(step=10)  # ten seconds between two looks at it
    monkeypatch.setattr(timing, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    lines = []
    figures.reproduce("bounds", tmp_path, repeats=2, tell=lines.append)
    assert [line.split("  ")[0].split()[1] for line in lines] == [f"{n}/6" for n in range(1, 7)]
    assert "left" not in lines[0]
    # By hand: after n of 6 at ten seconds each, 6 − n times ten are left.
    reported = [line.split("  ")[0].split()[2] for line in lines[1:]]
    assert reported == ["00:50", "00:40", "00:30", "00:20", "00:10"]


def test_an_unknown_figure_is_refused_with_those_that_are_known(tmp_path):
    with pytest.raises(ConfigError, match=r"CH101.*utility-logistic"):
        choral_reproduce("figure-9", "--out", str(tmp_path))
    with pytest.raises(ConfigError, match="CH102"):
        choral_reproduce("bounds", "--repeats", "0", "--out", str(tmp_path))


def test_the_help_names_every_figure():
    assert all(name in verb.__doc__ for name in FIGURES)


@pytest.mark.parametrize("quiet", [False, True])
def test_progress_takes_one_line_and_leaves_nothing_on_the_screen(quiet, tmp_path, monkeypatch, capsys):
    class Screen(io.StringIO):
        def isatty(self):
            return True

    def measured(name, _, *, tell, **__):
        tell("a long line, " * 20)
        return {"figure": name, "repeats": 1, "panels": []}

    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("choral_lab.paper.figures.reproduce", measured)
    assert choral_reproduce("bounds", "--out", str(tmp_path), *["--quiet"] * quiet) == 0
    shown = screen.getvalue().split("\r\x1b[K")
    assert shown[-1] == ""
    assert all(len(line) < 80 for line in shown)
    assert len(shown) == (1 if quiet else 3)
    assert (capsys.readouterr().out == f"SAVED {tmp_path / 'index.html'}\n") is quiet
