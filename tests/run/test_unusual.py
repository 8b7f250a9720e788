"""Jobs at the edge of what makes sense: no rows to judge by, one device a round, batches of all rows, wide words."""

import json

import numpy as np
import pytest

import choral
from choral.cli import main
from choral.core.errors import ConfigError, LedgerError, PlanError
from choral.core.ledger import Ledger
from choral.report.report_page import ledger_terms
from choral.run.folder import RunFolder, ledger_file
from choral.run.places import DeviceLedgers
from choral.run.runs import Run, resume
from tests.run.small import SETTINGS, rows, study

JOB = """\
[privacy]
epsilon = 4.0
delta = 1e-4
[federation]
devices = 6
cohort = 4
rounds = 2
[local]
steps = 2
batch = 8
step_size = 0.5
clip = 1.0
[data]
csv = "rows.csv"
test = 0
[data.columns.age]
bounds = [0, 100]
[run]
seed = 3
"""


def test_a_run_on_every_row_says_that_nothing_was_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "choral.toml").write_text(JOB)
    (tmp_path / "rows.csv").write_text("age,label\n" + "".join(f"{n % 90},{n % 90 // 45}\n" for n in range(240)))
    assert main(["simulate", "choral.toml", "--out", "run"]) == 0
    assert "not measured: every row is trained on" in capsys.readouterr().out
    assert json.loads((tmp_path / "run/result.json").read_text())["test"] == {}
    assert main(["verify", "run"]) == 0
    assert main(["simulate", "choral.toml", "--out", "quiet", "--quiet"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("not measured · ε ≤")


@pytest.mark.parametrize("kept", [{"test": 0.0}, {"validation": 0.0}])
def test_a_comparison_without_rows_to_judge_by_is_refused_before_anything_is_trained(kept):
    with pytest.raises(ConfigError, match="CH104 compare, but no rows are kept to judge by"):
        Run("simulation", study(**kept), compare=True)


@pytest.mark.parametrize("few", [{"cohort": 1}, {"devices": 1, "cohort": None}])
def test_a_sum_of_one_device_is_refused(few):
    with pytest.raises(PlanError, match=r"CH204 .*its sum would be that device's own update"):
        study(**few)


def test_one_device_a_round_is_fine_where_nothing_is_protected():
    assert len(choral.simulate(rows(), **{**SETTINGS, "cohort": 1, "epsilon": None, "noise": 0.0}).history) == 3


def test_the_words_that_the_server_got_are_shown_as_wide_as_they_are():
    sight = Run("rehearsal", study(seed=None)).finish().record.result.sight
    words = sight.received
    assert max(words) >= 2**16, "four words of 32 even bits all fall below it once in 2^64 runs"
    assert len(words) == study().codec.length(len(sight.computed))


def test_a_run_that_goes_on_counts_the_seconds_from_its_beginning(tmp_path):
    run = Run("simulation", study(), folder=RunFolder.create(tmp_path / "run"))
    first = next(run.rounds())
    path = tmp_path / "run/rounds.jsonl"
    path.write_text(json.dumps({**first.to_dict(), "seconds": 1000.0}) + "\n")
    lines = resume(tmp_path / "run", rows()).finish().history
    assert [line.seconds >= 1000 for line in lines] == [True] * 3
    assert np.all(np.diff([line.seconds for line in lines]) >= 0)


def test_one_ledger_in_use_leaves_the_others_free_for_the_next_try(tmp_path):
    with DeviceLedgers(study(), tmp_path):
        pass
    with Ledger.open(tmp_path / ledger_file(3)), pytest.raises(LedgerError, match="CH404") as caught:
        DeviceLedgers(study(), tmp_path)
    with DeviceLedgers(study(), tmp_path) as ledgers:
        assert ledgers.on_disk
    assert caught.value.code == "CH404"  # and it is kept till here, as a notebook keeps the last error


def test_batches_of_all_rows_are_charged_and_reported_by_the_rule_that_knows_no_sampling():
    result = choral.simulate(rows(), **{**SETTINGS, "batch": 32})
    assert result.privacy.against_everyone.rule == "S1"
    assert "rule S1: every noisy step counted on its own" in ledger_terms(result.record)
