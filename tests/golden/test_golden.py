"""What earlier versions wrote is read, verified and counted as it was: runs, pages, ledgers, studies, digests."""

import json
import shutil
from pathlib import Path

import pytest

from choral.core.ledger import Ledger
from choral.record import read_run
from choral.report.verify import verify
from choral.run.agreement import Agreement

HERE = Path(__file__).parent
SETS = sorted(path.parent for path in HERE.glob("*/expected.json"))
RUNS = [run.parent for one in SETS for run in sorted(one.glob("*/result.json"))]


def named(path):
    return str(path.relative_to(HERE))


def test_there_is_a_set_of_each_released_version_and_of_the_state_before_the_edges_were_changed():
    assert [one.name for one in SETS] == ["0.2.0", "2026-11-19"]
    assert all(len(list(one.glob("*/run.json"))) >= 18 for one in SETS)


@pytest.mark.parametrize("run", RUNS, ids=named)
def test_a_run_is_verified_with_its_page_and_the_epsilon_that_was_signed(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    verdict = verify(copy)
    assert [finding for finding in verdict.findings if finding.wrong] == []
    assert verdict.findings and read_run(copy).finished is not None


@pytest.mark.parametrize("one", SETS, ids=named)
def test_every_ledger_shows_what_it_showed_when_it_was_written(one):
    spent = json.loads((one / "expected.json").read_text())["spent"]
    assert len(spent) > 60
    assert {name: Ledger.read(one / name).balance.epsilon for name in spent} == pytest.approx(spent, rel=1e-9)


@pytest.mark.parametrize("one", SETS, ids=named)
def test_a_study_has_the_digest_and_the_terms_that_its_sites_approved(one):
    digests = json.loads((one / "expected.json").read_text())["digests"]
    agreement = Agreement.read(one / "deployed.study.toml")
    assert agreement.digest.hex() == digests["study"] and agreement.run_name == digests["run"]
    assert agreement.terms.digest.hex() == digests["terms"]


@pytest.mark.parametrize("one", SETS, ids=named)
def test_answers_stay_in_the_register_of_their_study(one):
    lines = [json.loads(line) for line in (one / "asked/questions.jsonl").read_text().splitlines()]
    answers = json.loads((one / "asked/answers.json").read_text())
    assert len(answers) >= 4 and len(lines) >= len(answers)
