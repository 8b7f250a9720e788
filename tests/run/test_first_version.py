"""Run folders and ledgers that choral 0.1.0 wrote still verify, and still show the figures that were signed then."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from choral.accounting.ledger_statement import rules_of
from choral.cli import main
from choral.core.codec import Codec
from choral.core.ledger import Ledger
from choral.core.plan import Plan, SecureSum
from choral.run.agreement import Agreement
from choral.run.study import codec_of

FIRST = Path(__file__).parents[1] / "vectors" / "first_version"
RUNS = ("simulated", "rehearsed", "strict", "deployed", "hearts")


@pytest.mark.parametrize("name", RUNS)
def test_a_run_folder_of_the_first_version_verifies(name, tmp_path, capsys):
    run = shutil.copytree(FIRST / name, tmp_path / name)
    assert main(["verify", str(run)]) == 0
    assert "verified" in capsys.readouterr().out


@pytest.mark.parametrize("name", ("rehearsed", "strict"))
def test_ledgers_of_the_first_version_show_what_their_run_signed(name):
    signed = json.loads((FIRST / name / "result.json").read_text())
    ledgers = sorted((FIRST / name / "ledgers").iterdir())
    spent = [Ledger.read(path).balance.epsilon for path in ledgers]
    assert len(ledgers) == 4
    assert max(spent) == pytest.approx(signed["privacy"]["against_everyone"]["epsilon"], rel=1e-9)


def test_a_sites_ledger_of_the_first_version_shows_what_the_deployment_printed():
    ledger = Ledger.read(FIRST / "site_ledger" / "ledger")
    # "SPENT site-4: ε = 1.61 in 3 rounds" stood on the screen; figures there are rounded up.
    assert 1.60 < ledger.balance.epsilon <= 1.61
    assert (len(ledger.balance.charges), rules_of(ledger.balance)) == (3, ("S5",))


def test_a_study_that_was_approved_before_keeps_its_digest_its_reserves_and_the_range_of_its_codec():
    folder = Path(__file__).parents[1] / "vectors" / "present_version" / "deployment"
    study, recorded = Agreement.read(folder / "study.toml"), json.loads((folder / "run.json").read_text())
    assert study.plan.digest == recorded["plan_digest"]
    assert (study.plan.codec, study.plan.overflow, study.plan.out_of_range) == (1, 1e-8, 1e-8)
    assert (
        study.terms.digest.hex() == "4eb1868345335c63ad7b7a7efb55456ee519a5e46274de3014b2395acd371a0e"
    )  # of 0.2.0, too
    before, now = study.terms.codec, codec_of(replace(study.plan, codec=2), study.secure, study.settled.model)
    assert (before.grid, before.largest) == (2.0**-22, 5967364)  # as 0.2.0 computed them
    assert now.grid * now.largest > 2 * before.grid * before.largest  # 12 rows are drawn, and 40 fit


def test_a_plan_of_before_has_the_codec_of_before_bit_for_bit():
    """As 0.2.0 computed them: of a Poisson plan, one with momentum, one where rows weigh, and noise once."""
    shape = {"devices": 16, "cohort": 10, "rounds": 20, "rows": 2440, "batch": 244, "step_size": 0.5, "clip": 1.0,
             "noise": 0.02}  # fmt: skip
    kinds = [
        {"local_steps": 10},
        {"local_steps": 10, "momentum": 0.9},
        {"local_steps": 10, "weighing": "rows"},
        {"batch": 2440, "sampling": "partition", "noise_is_added": "once", "row_length": 2.0},
    ]
    codecs = [Codec.for_plan(Plan.from_dict(shape | kind), SecureSum.for_cohort(10), 210) for kind in kinds]
    assert [(codec.grid, codec.largest, codec.noise_in_grid) for codec in codecs] == [
        (2.0**-20, 5535975, 10485.76),
        (2.0**-17, 6919968, 1310.72),
        (2.0**-16, 5261200, 40.96),
        (2.0**-19, 4286990, 10485.76),
    ]
