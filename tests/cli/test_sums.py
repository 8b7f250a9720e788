"""simulate, rehearse, resume and plan with [model] kind = "additive" or "hazard"."""

import json

import pytest

from choral.cli import main
from tests.run.test_modelling import frame

TOML = """\
privacy.epsilon = 4.0
privacy.delta = 1e-4
[model]
kind = "hazard"
time = "days"
until = 900
bins = 4
[federation]
devices = 3
rounds = 2
[data]
csv = "people.csv"
label = "died"
classes = ["0", "1"]
ignore = ["sick"]
[data.columns]
age.bounds = [0, 100]
smoker.levels = ["no", "yes"]
days.bounds = [0, 1000]
[run]
seed = 5
"""


@pytest.fixture
def job(tmp_path):
    frame().to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "choral.toml").write_text(TOML)
    return tmp_path / "choral.toml"


def reported(capsys, *words):
    status = main([str(word) for word in words])
    printed = capsys.readouterr()
    return status, printed.out + printed.err


def test_a_hazard_model_is_planned_made_and_verified(job, capsys, tmp_path):
    status, text = reported(capsys, "plan", job)
    assert status == 0 and "4 sums, then 2" in text and "nothing is charged" in text
    status, text = reported(capsys, "simulate", job, "--out", tmp_path / "run")
    assert status == 0 and "c-index" in text and "rule S8, δ = 0.0001, one record replaced" in text
    assert reported(capsys, "verify", tmp_path / "run")[0] == 0
    status, text = reported(capsys, "resume", tmp_path / "run")
    assert status != 0 and "CH800" in text  # it is finished


def test_an_additive_model_has_a_line_for_each_column_and_next_is_the_last(job, capsys, tmp_path):
    text = TOML.replace('kind = "hazard"\ntime = "days"\nuntil = 900\nbins = 4\n', 'kind = "additive"\n')
    job.write_text(text)
    status, printed = reported(capsys, "simulate", job, "--out", tmp_path / "run")
    assert status == 0, printed
    lines = printed.splitlines()
    assert len(lines) < 60
    assert sum(line.startswith("  age ") for line in lines) == 1 and "cells)" in printed
    assert "register and ledgers" not in printed[printed.rindex("NEXT ") :]


def test_a_model_that_was_interrupted_is_resumed_and_pays_for_no_sum_twice(job, capsys, tmp_path, monkeypatch):
    from choral.run.modelling import AnswerRegister

    whole = json.loads(reported(capsys, "simulate", job, "--out", tmp_path / "whole", "--json")[1].splitlines()[-1])
    add = AnswerRegister.add

    def interrupted(self, answered):
        add(self, answered)
        if answered.number == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(AnswerRegister, "add", interrupted)
    assert "choral resume" in reported(capsys, "simulate", job, "--out", tmp_path / "part", "--quiet")[1]
    assert AnswerRegister(tmp_path / "part").last == 3
    status, text = reported(capsys, "resume", tmp_path / "part", "--json")
    assert status == 0 and json.loads(text.splitlines()[-1])["state"] == whole["state"]
    assert AnswerRegister(tmp_path / "part").last == 6


@pytest.mark.parametrize("flag", ["--compare", "--personal"])
def test_flags_of_training_are_refused(job, capsys, tmp_path, flag):
    status, text = reported(capsys, "simulate", job, flag, "--out", tmp_path / "run")
    assert status != 0 and "CH104" in text and not (tmp_path / "run").exists()
