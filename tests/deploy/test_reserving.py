"""The cap of an approval in words, and a ledger's balance as it would be under other limits."""

import json
import re
import shutil

import pytest

from choral.accounting.words import up
from choral.cli import main
from choral.core.events import Gaussian
from choral.core.ledger import Charge, Ledger
from choral.core.plan import Budget
from choral.deploy import approving
from choral.deploy.agent import Agent
from choral.deploy.approving import balance_under, cap_in_words
from choral.deploy.home import Policy
from tests.run.consortium import Consortium, table

LIMIT = Budget(epsilon=2.0, delta=1e-5)


def test_the_cap_says_how_many_uploads_are_for_attempts_that_fail_and_rounds_epsilon_up():
    said = cap_in_words(planned=13, uploads=17, epsilon=2.301, terms="δ = 1e-05, rule S5")
    assert said == (
        "at most 17 uploads (4 more than planned, for attempts that fail), so at most ε = 2.31, "
        "whatever the server asks (δ = 1e-05, rule S5)"
    )
    said = cap_in_words(planned=13, uploads=13, epsilon=2.0, terms="")
    assert "(the limit pays for no more, and each attempt that fails costs a round)" in said


def test_without_a_ledger_a_balance_begins_empty_and_no_file_is_made(tmp_path):
    empty = balance_under(LIMIT, 1.5, tmp_path / "a.ledger", device="hill")
    assert (empty.epsilon, empty.limit, empty.charges) == (0.0, LIMIT, [])
    assert list(tmp_path.iterdir()) == []


def test_other_limits_are_tried_in_memory_and_the_ledger_keeps_its_own(tmp_path):
    path = tmp_path / "a.ledger"
    with Ledger.open(path, device="hill", limit=LIMIT) as ledger:
        ledger.charge(Charge(rule="S1", plan="9f3c", round=1, event=Gaussian(mu=0.1)))
        spent = ledger.balance.epsilon
    before = path.read_bytes()
    tried = balance_under(Budget(epsilon=9.0, delta=1e-5), None, path, device="hill")
    assert (tried.limit.epsilon, len(tried.charges)) == (9.0, 1)
    assert tried.epsilon == spent
    assert path.read_bytes() == before and Ledger.read(path).balance.limit == LIMIT


# The study's smallest site: 60 rows, as many as the plan is made for, and the study's ε as its limit.


@pytest.fixture(scope="module")
def ready(tmp_path_factory):
    made = Consortium(tmp_path_factory.mktemp("sites"))
    made.tables["hill"] = table(made.folder / "small.csv", seed=9, rows=60)
    return made


def approve(consortium, capsys, limit, *more):
    home, study = consortium.homes["hill"].path, consortium.study / "study.toml"
    words = ["device", "approve", study, "--home", home, "--data", consortium.tables["hill"]]
    status = main(list(map(str, [*words, "--max-epsilon", limit, "--delta", 1e-4, "--json", *more])))
    return status, json.loads(capsys.readouterr().out)


def test_a_limit_without_room_for_a_failed_attempt_is_refused_with_the_one_that_has_room(ready, tmp_path, capsys):
    consortium = ready.copy(tmp_path)
    status, said = approve(consortium, capsys, 4)
    assert (status, said["error"]["code"]) == (1, "CH413")
    assert "pays for the 3 planned rounds and 0 failed attempts, 1 is the least" in said["error"]["what"]
    enough = re.search(r"--max-epsilon (\d+\.\d\d) has room for 1", said["error"]["fix"])[1]
    status, said = approve(consortium, capsys, enough)
    assert (status, said["uploads"], said["planned_rounds"]) == (0, 4, 3)
    assert said["epsilon_uploads"] <= float(enough) < said["epsilon_uploads"] + 0.011
    status, said = approve(consortium, capsys, 4, "--no-spare")
    assert (status, said["uploads"]) == (0, 3)


def test_room_is_counted_in_addition_to_what_earlier_studies_took(ready, tmp_path, capsys):
    consortium = ready.copy(tmp_path)
    approving.approve(
        consortium.homes["hill"],
        consortium.study / "study.toml",
        Policy(epsilon=9.0, delta=1e-4),
        consortium.tables["hill"],
        record=True,
    )
    with Agent(consortium.homes["hill"]) as agent:
        agent.charge(1, 0)
    consortium.enrol()
    planned = approve(consortium, capsys, 6)[1]["error"]  # CH401 says what the planned rounds would make of it
    just = up(float(re.search(r"this would make (\d+\.\d+)", planned["what"])[1]))
    _, said = approve(consortium, capsys, just)
    assert said["error"]["code"] == "CH413"
    enough = re.search(r"--max-epsilon (\d+\.\d\d) has room for 1", said["error"]["fix"])[1]
    assert float(just) < float(enough) and approve(consortium, capsys, enough)[0] == 0


def test_the_coordinators_screen_says_which_limit_has_room_for_how_many_attempts(ready, capsys):
    """The same number as the smallest site's own screen asks for."""
    cards = [str(ready.folder / f"{name}.card") for name in ready.homes]
    copy = ready.folder / "again"
    shutil.copytree(ready.study, copy)
    assert main(["server", "enrol", str(copy), *cards, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["failed_attempts"] == 1
    assert main(["server", "enrol", str(copy), *cards]) == 0
    screen = " ".join(capsys.readouterr().out.split())
    limit = up(said["limit_with_failed_attempts"])
    assert f"LIMITS --max-epsilon {limit} at a site of 60 rows has room for 1 attempt that may fail" in screen
    assert approve(ready, capsys, limit)[0] == 0 and approve(ready, capsys, float(limit) - 0.02)[0] == 1
