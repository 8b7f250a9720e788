"""Run folders and ledgers that choral 0.1.0 wrote still verify, and still show the figures that were signed then."""

import json
import shutil
from pathlib import Path

import pytest

from choral.cli import main
from choral.privacy.ledger import Ledger

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
    assert (len(ledger.balance.charges), ledger.balance.rules) == (3, ("S5",))
