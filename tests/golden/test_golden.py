"""What earlier versions wrote is read, verified and counted as it was: runs, pages, ledgers, studies, digests."""

import json
import shutil
from pathlib import Path

import pytest

from choral.core.errors import ChoralError
from choral.core.ledger import Ledger
from choral.record import read_run
from choral.report.verify import verify
from choral.run.agreement import Agreement

HERE = Path(__file__).parent
SETS = sorted(path.parent for path in HERE.glob("*/expected.json"))
RUNS = [run.parent for one in SETS for run in sorted(one.glob("*/result.json"))]


def named(path):
    return str(path.relative_to(HERE))


# By set: its runs, its ledgers and its studies. 2026-11-19 is the state before the edges were changed, and 2026-11-20
# (609f5ad0) the last one with local optimisers, Skellam noise, packed words and the paper's own sum.
KEPT = {"0.1.0": (9, 51, 5), "0.2.0": (24, 146, 14), "2026-11-19": (18, 104, 1), "2026-11-20": (24, 146, 14)}


# Sums that no later version computes: the terms of such a study are refused with a sentence that says so.
REMOVED = {"studies/packed"}


def studies(one):
    """The digests that each study of a set had when it was written, by its file."""
    expected = json.loads((one / "expected.json").read_text())
    return {"deployed": expected["digests"]} | {f"studies/{name}": a for name, a in expected.get("studies", {}).items()}


def test_there_is_a_set_of_each_released_version_and_of_states_before_much_was_changed():
    spent = {one.name: json.loads((one / "expected.json").read_text())["spent"] for one in SETS}
    found = {one.name: (len(list(one.glob("*/run.json"))), len(spent[one.name]), len(studies(one))) for one in SETS}
    assert found == KEPT
    pages = {one.name: len(list(one.glob("*/report.html"))) for one in SETS}
    assert pages == {"0.1.0": 2, "0.2.0": 7, "2026-11-19": 6, "2026-11-20": 7}


@pytest.mark.parametrize("run", RUNS, ids=named)
def test_a_run_is_verified_with_its_page_and_the_epsilon_that_was_signed(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    verdict = verify(copy)
    assert [finding for finding in verdict.findings if finding.wrong] == []
    assert verdict.findings and read_run(copy).finished is not None


@pytest.mark.parametrize("one", SETS, ids=named)
def test_every_ledger_shows_what_it_showed_when_it_was_written(one):
    spent = json.loads((one / "expected.json").read_text())["spent"]
    assert {name: Ledger.read(one / name).balance.epsilon for name in spent} == pytest.approx(spent, rel=1e-9)


@pytest.mark.parametrize("one", SETS, ids=named)
def test_a_study_has_the_digest_and_the_terms_that_its_sites_approved(one):
    for name, digests in studies(one).items():
        agreement = Agreement.read(one / f"{name}.study.toml")
        found = {"study": agreement.digest.hex(), "run": agreement.run_name, "number": agreement.safety_number}
        if name in REMOVED:
            with pytest.raises(ChoralError, match=r"choral 0\.2 is the last version that runs it"):
                _ = agreement.terms
        else:
            found["terms"] = agreement.terms.digest.hex()
        assert {key: found.get(key, digest) for key, digest in digests.items()} == digests, name


@pytest.mark.parametrize("one", [one for one in SETS if (one / "asked").exists()], ids=named)
def test_answers_stay_in_the_register_of_their_study(one):
    lines = [json.loads(line) for line in (one / "asked/questions.jsonl").read_text().splitlines()]
    answers = json.loads((one / "asked/answers.json").read_text())
    assert len(answers) >= 4 and len(lines) >= len(answers)
