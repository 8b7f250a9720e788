"""Figures from one end to the other, quickly; the full ones against what was measured, in the long tests."""

import argparse
import json

import pytest

from choral.cli import reproduce as verb
from choral.errors import ConfigError, StorageError
from choral.paper import experiment, figures
from choral.paper.figures import FIGURES


def choral_reproduce(*words):
    parser = argparse.ArgumentParser()
    verb.configure(parser)
    parser.add_argument("--json", action="store_true")
    return verb.run(parser.parse_args(words))


def test_a_figure_is_measured_written_and_drawn(tmp_path, capsys):
    assert choral_reproduce("utility-logistic", "--quick", "--json", "--out", str(tmp_path)) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["repeats"] == 2
    for method in ("ours", "dp_sgd", "non_private"):
        assert 0.8 < told[method]["test_accuracy"]["mean"] < 0.87
    assert told["proved"]["2"]["privacy"]["proved_against_everyone"]["epsilon"] <= 2.0
    assert told == json.loads((tmp_path / "utility-logistic.json").read_text())
    assert (tmp_path / "utility-logistic-1.svg").read_text().startswith("<svg")
    page = (tmp_path / "index.html").read_text()
    assert "utility-logistic" in page
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")


def test_five_repeats_unless_told_otherwise_and_at_most_two_quickly(tmp_path, monkeypatch, capsys):
    first = {"panels": [], "quick": True}
    seen = []

    def figure(shelf, *, quick):
        seen.append((shelf.repeats, quick))
        return first

    monkeypatch.setitem(figures.FIGURES, "bounds", figure)
    assert choral_reproduce("bounds", "--quick", "--repeats", "1", "--out", str(tmp_path)) == 0
    assert choral_reproduce("bounds", "--out", str(tmp_path)) == 0
    assert seen == [(1, True), (5, False)]
    printed = capsys.readouterr().out
    assert "SAVED" in printed
    assert "one record replaced" in printed


def test_an_unknown_figure_is_refused_with_those_that_are_known(tmp_path):
    with pytest.raises(ConfigError, match=r"CH101.*utility-logistic"):
        choral_reproduce("figure-9", "--out", str(tmp_path))
    with pytest.raises(ConfigError, match="CH102"):
        choral_reproduce("bounds", "--repeats", "0", "--out", str(tmp_path))


def test_a_folder_that_cannot_be_made_and_a_damaged_file_are_told_without_a_traceback(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="CH801"):
        choral_reproduce("bounds", "--out", str(tmp_path / "file"))
    shelf = experiment.Shelf(tmp_path, 1)
    one = experiment.Experiment(model="logistic", rounds=1, local_steps=1, batch=61, step_size=0.5, looks=1)
    first = shelf.curve(one, 0)
    assert shelf.curve(one, 0) == first
    next(tmp_path.glob("*.json")).write_text('{"0": ')
    with pytest.raises(StorageError, match="CH802"):
        shelf.curve(one, 0)


def test_the_help_names_every_figure():
    assert all(name in verb.__doc__ for name in FIGURES)


def test_every_device_trains_on_2440_rows_and_validates_on_305():
    split = experiment._split(0)
    assert set(split.train.sizes.tolist()) == {2440}
    assert set(split.validation.sizes.tolist()) == {305}
