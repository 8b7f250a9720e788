"""Figures from one end to the other, quickly; the full ones against what was measured, in the long tests."""

import argparse
import json
import math
from itertools import count
from types import SimpleNamespace

import pytest

from choral import research
from choral.cli import reproduce as verb
from choral.errors import ConfigError
from choral.paper import figures
from choral.paper.adult import experiment
from choral.paper.figures import FIGURES
from choral.report.png import why_not
from choral.research import figures as timing


def choral_reproduce(*words):
    parser = argparse.ArgumentParser()
    verb.configure(parser)
    parser.add_argument("--json", action="store_true")
    return verb.run(parser.parse_args(words))


def test_a_figure_is_measured_written_and_drawn(tmp_path, capsys):
    assert choral_reproduce("utility-logistic", "--quick", "--json", "--out", str(tmp_path)) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["repeats"] == 2
    for method in ("ours", "dp_sgd", "local_noise", "non_private", "centralised", "each_alone"):
        assert 0.8 < told[method]["test_accuracy"]["mean"] < 0.87
    assert told["dp_fedavg"]["privacy"]["adjacency"] == "all records of one device replaced"
    assert told["proved"]["2"]["privacy"]["proved_against_everyone"]["epsilon"] <= 2.0
    assert told == json.loads((tmp_path / "utility-logistic.json").read_text())
    assert (tmp_path / "utility-logistic-1.svg").read_text().startswith("<svg")
    assert (tmp_path / "utility-logistic-1.png").exists() is (why_not() == "")
    page = (tmp_path / "index.html").read_text()
    assert "utility-logistic" in page
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")


def test_a_convergence_figure_has_its_proved_line_and_its_anchors_in_every_panel(tmp_path, monkeypatch):
    seen = set()

    def curve(one, _, part):
        seen.add(one)
        names = (f"{part}_accuracy", f"{part}_loss", *one.also)
        return {"round": [50.0, 100.0], **{name: [0.7, 0.8] for name in names}}

    monkeypatch.setattr(research.Experiment, "curve", curve)
    monkeypatch.setattr(research.Experiment, "alone", lambda *_: 0.75)
    told = figures.reproduce("convergence-logistic", tmp_path, repeats=2)
    noise, raw = (told["beside"][one]["proved"]["2"]["chosen"][0]["noise"] for one in ("scaled", "raw"))
    notes = [*["", "", ", τ = 10", ", τ = 10"] * 2, *[", same clip"] * 2]
    for panel, note in zip(told["panels"], notes, strict=True):
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


def test_five_repeats_unless_told_otherwise_and_at_most_two_quickly(tmp_path, monkeypatch, capsys):
    first = {"panels": [], "claims": {}, "quick": True}
    seen = []

    def figure(shelf, *, quick):
        seen.append((shelf.repeats, quick))
        return first

    monkeypatch.setitem(figures.FIGURES, "bounds", figure)
    assert choral_reproduce("bounds", "--quick", "--repeats", "1", "--out", str(tmp_path)) == 0
    assert choral_reproduce("bounds", "--out", str(tmp_path)) == 0
    assert seen == [(1, True), (1, True), (5, False), (5, False)]  # once to count the work, once to do it
    printed = capsys.readouterr().out
    assert "SAVED" in printed
    assert "one record replaced" in printed


def test_each_measurement_is_told_with_its_number_and_the_time_left(tmp_path, monkeypatch):
    monkeypatch.setattr(research.Experiment, "curve", lambda *_: {
        "validation_accuracy": [0.8], "validation_loss": [0.4], "test_accuracy": [0.8]})  # fmt: skip

    def figure(shelf, *, quick):
        small = experiment("logistic", rounds=2, local_steps=1, batch=61, step_size=0.5, looks=2)
        research.tuned(shelf, research.grid(small, {"step_size": (0.5, 1.0)}))
        return {"panels": [], "claims": {}, "quick": quick}

    monkeypatch.setitem(figures.FIGURES, "bounds", figure)
    clock = count(step=10)  # ten seconds between two looks at it
    monkeypatch.setattr(timing, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    lines = []
    figures.reproduce("bounds", tmp_path, repeats=2, tell=lines.append)
    assert [line.split("  ")[0].split()[1] for line in lines] == [f"{n}/6" for n in range(1, 7)]
    assert "left" not in lines[0]
    # By hand: after n of 6 at ten seconds each, 6 − n times ten are left.
    told = [line.split("  ")[0].split()[2] for line in lines[1:]]
    assert told == ["00:50", "00:40", "00:30", "00:20", "00:10"]


def test_an_unknown_figure_is_refused_with_those_that_are_known(tmp_path):
    with pytest.raises(ConfigError, match=r"CH101.*utility-logistic"):
        choral_reproduce("figure-9", "--out", str(tmp_path))
    with pytest.raises(ConfigError, match="CH102"):
        choral_reproduce("bounds", "--repeats", "0", "--out", str(tmp_path))


def test_the_help_names_every_figure():
    assert all(name in verb.__doc__ for name in FIGURES)
