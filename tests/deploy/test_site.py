"""A site's home: keys and files for its owner only, a dry run that sends nothing, a policy that always wins."""

import dataclasses
import json
import os
import stat
import threading

import pytest

from choral.core.errors import (
    ConfigError,
    DeploymentError,
    LedgerError,
    PlanError,
    StorageError,
    TableError,
    TrustError,
)
from choral.core.events import epsilon_of
from choral.core.keys import Identity
from choral.core.ledger import Ledger
from choral.core.plan import Budget
from choral.deploy import approving
from choral.deploy.agent import Agent, Journal, attend
from choral.deploy.enrolment import enrol, prepare
from choral.deploy.home import Home, Invitation, Policy
from choral.deploy.ownership import keep
from choral.deploy.status import status
from choral.run.agreement import Agreement, Enrolled
from choral.tables.cells import EMPTY, OPEN, Format
from tests.run.consortium import JOB, Consortium, table

STUDY = "study.toml"


@pytest.fixture(scope="module")
def ready(tmp_path_factory):
    """A consortium with a study; what a test changes, it changes in homes of its own."""
    return Consortium(tmp_path_factory.mktemp("sites"))


@pytest.fixture
def consortium(ready, tmp_path):
    return ready.copy(tmp_path)


def approve(consortium, name, *, record=False, data=None, written=OPEN, **policy):
    settings = {"epsilon": 4.0, "delta": 1e-4, **policy}
    data = data or consortium.tables[name]
    home, study = consortium.homes[name], consortium.study / STUDY
    return approving.approve(home, study, Policy(**settings), data, record=record, written=written)


def test_a_site_says_how_its_own_file_is_written_and_the_agent_keeps_to_it(consortium, tmp_path):
    """UTF-16 without its mark shows nowhere what it is; the message says what the site itself can do."""
    data, text = tmp_path / "hill.csv", consortium.tables["hill"].read_text()
    data.write_bytes(text.replace(",", "|").encode("utf-16-le"))
    with pytest.raises(TableError, match=r"CH307 .*hill\.csv .*device approve and predict, --encoding"):
        approve(consortium, "hill", data=data)
    written = Format(encoding="utf-16-le")
    reported = approve(consortium, "hill", data=data, written=written, record=True)
    assert reported.rows == approve(consortium, "hill").rows
    pinned = consortium.homes["hill"].approval.written
    assert pinned == Format(encoding="utf-16-le", delimiter="|", decimal=",", dates="iso", empty=EMPTY)
    with Agent(consortium.homes["hill"]):
        pass


def test_everything_at_home_is_for_its_owner_only(consortium):
    approve(consortium, "hill", record=True)
    home = consortium.homes["hill"].path
    with Agent(consortium.homes["hill"]):
        pass
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir() if path.is_file()}
    assert set(modes.values()) == {0o600}
    assert {"vault", "ledger", "node.key", "site.json", "approval.json", "study.toml", "log.jsonl"} <= set(modes)


def test_the_coordinators_folder_is_for_its_owner_only(ready):
    assert stat.S_IMODE(ready.study.stat().st_mode) == 0o700
    assert stat.S_IMODE((ready.study / "server.key").stat().st_mode) == 0o600


def test_a_card_and_an_invitation_hold_nothing_secret(ready):
    home = ready.homes["hill"]
    secret = home.vault().memory.secret
    shown = (ready.folder / "hill.card").read_text() + (ready.study / "study.toml").read_text()
    for part in (secret[:32], secret[32:]):
        assert part.hex() not in shown
    assert "PRIVATE" not in shown


def test_a_dry_run_records_nothing(ready):
    before = {path.name for path in ready.homes["lake"].path.iterdir()}
    approve(ready, "lake")
    # The number is drawn now, so that nobody can choose a study by it.
    assert {path.name for path in ready.homes["lake"].path.iterdir()} - before == {"compare.json", "compared.toml"}
    with pytest.raises(TrustError, match="CH603"):
        Agent(ready.homes["lake"])


def test_a_dry_run_tells_what_leaves_and_what_it_costs(ready):
    reported = approve(ready, "hill")
    study = ready.agreement
    assert (reported.rows, reported.rounds, reported.planned_rounds) == (80, 3, 3)
    # age, pulse, smokes=no, smokes=yes for each of two classes, and two intercepts: 4 × 2 + 2.
    assert reported.parameters == 10
    assert reported.download_bytes == 40
    assert reported.upload_bytes == 4 * (10 + 2)  # and the count and zero lanes
    assert (reported.rule, reported.adjacency) == ("S5", "one record replaced")
    assert reported.adversary == "the server and all other devices together"
    events = [study.settled.costs.of(0).event(number) for number in range(3)]
    # 80 rows of its own: cheaper than the 60 that the plan is for.
    assert 0 < reported.epsilon_planned < epsilon_of(events, 1e-4) <= 4.0
    assert reported.epsilon_a_round < reported.epsilon_planned


def test_a_site_with_the_plans_own_rows_pays_what_the_study_planned(ready):
    data = table(ready.folder / "small.csv", seed=9, rows=60)
    reported = approve(ready, "hill", data=data)
    assert reported.epsilon_planned == ready.agreement.settled.costs.spent(0, 3, 1e-4)
    assert 0.99 * 4.0 < reported.epsilon_planned <= 4.0  # the noise was solved for ε = 4 at δ = 1e-4


@pytest.mark.parametrize(
    ("change", "policy", "what"),
    [
        ({}, {"epsilon": 2.0}, "would cost"),
        ({}, {"delta": 1e-9}, "would cost"),
        ({}, {"crowd": 4}, "hide this device among 3 honest"),
        ({'kind = "logistic"': 'kind = "os:getcwd"'}, {}, "runs the code"),
        ({"epsilon = 4.0": "noise = 0.0"}, {}, "no noise"),
    ],
)
def test_a_study_that_is_weaker_than_the_policy_is_refused(tmp_path, change, policy, what):
    job = JOB + '[model]\nkind = "logistic"\n'
    weak = Consortium(tmp_path, job=job)
    text = (weak.study / STUDY).read_text()
    for old, new in change.items():
        assert old in text
        text = text.replace(old, new)
    if "noise = 0.0" in change.values():
        text = text.replace(f"noise = {weak.agreement.plan.noise!r}", "noise = 0.0")
    (weak.study / STUDY).write_text(text)
    with pytest.raises(TrustError, match=f"CH603.*{what}"):
        approve(weak, "hill", **policy)
    assert not (weak.homes["hill"].path / "approval.json").exists()


def test_a_study_whose_draws_no_delta_pays_for_is_refused_by_the_site_itself(ready, tmp_path):
    """Its coordinator's choral would have refused it; a site does not rely on that. The noise is enough for ε."""
    text, noise = (ready.study / STUDY).read_text(), ready.agreement.plan.noise
    assert text.count("local_steps = 2\n") == 1 and text.count(f"noise = {noise!r}\n") == 1
    text = text.replace("local_steps = 2\n", "local_steps = 30000\n")
    (tmp_path / STUDY).write_text(text.replace(f"noise = {noise!r}\n", f"noise = {1e3 * noise!r}\n"))
    with pytest.raises(PlanError, match=r"CH204 90,000 Poisson batches in a run, 54,\d+ are the most"):
        approving.approve(ready.homes["hill"], tmp_path / STUDY, Policy(epsilon=4.0, delta=1e-4), ready.tables["hill"])


def test_a_secure_sum_for_a_server_that_keeps_the_rules_must_be_allowed(ready, tmp_path):
    text = (ready.study / STUDY).read_text().replace('adversary = "lying"', 'adversary = "curious"')
    (tmp_path / STUDY).write_text(text)
    home, settings = ready.homes["hill"], {"epsilon": 4.0, "delta": 1e-4}
    with pytest.raises(TrustError, match=r"CH603.*follows the protocol"):
        approving.approve(home, tmp_path / STUDY, Policy(**settings), ready.tables["hill"])
    assert approving.approve(home, tmp_path / STUDY, Policy(**settings, curious=True), ready.tables["hill"]).rounds == 3


def test_fewer_rows_than_the_plan_is_for_are_refused(ready):
    with pytest.raises(TableError, match=r"CH305.*59 rows.*60"):
        approve(ready, "hill", data=table(ready.folder / "few.csv", seed=1, rows=59))


def test_a_table_without_a_declared_column_is_refused_and_an_undeclared_one_is_not_read(ready, tmp_path):
    good = ready.tables["hill"].read_text()
    (tmp_path / "no-pulse.csv").write_text(good.replace("pulse", "puls"))
    with pytest.raises(TableError, match=r"CH302.*pulse"):
        approve(ready, "hill", data=tmp_path / "no-pulse.csv")
    (tmp_path / "broken-name.csv").write_text(good.replace("CANARY1x0", ""))  # an empty cell in a column nobody reads
    assert approve(ready, "hill", data=tmp_path / "broken-name.csv").rows == 80


def test_two_orders_of_columns_give_the_same_features(ready, tmp_path):
    lines = [line.split(",") for line in ready.tables["hill"].read_text().split()]
    (tmp_path / "turned.csv").write_text("\n".join(",".join(reversed(line)) for line in lines) + "\n")
    tables = map(ready.agreement.table_in, (ready.tables["hill"], tmp_path / "turned.csv"))
    one, other = map(ready.agreement.encoded, tables)
    assert (one[0] == other[0]).all()
    assert (one[1] == other[1]).all()


def test_a_delta_that_would_let_one_row_be_published_is_refused(ready):
    with pytest.raises(ConfigError, match=r"CH102.*δ = 0.1"):
        approve(ready, "hill", delta=0.1)


def test_another_server_than_that_of_the_invitation_is_refused(ready, tmp_path):
    (tmp_path / "choral.toml").write_text(JOB)
    other = prepare(tmp_path / "other", tmp_path / "choral.toml", "127.0.0.1:9092")
    text = (ready.study / STUDY).read_text().replace(ready.invitation.certificate, other.certificate)
    (tmp_path / STUDY).write_text(text)
    with pytest.raises(TrustError, match=r"CH601.*certificate"):
        approving.approve(ready.homes["hill"], tmp_path / STUDY, Policy(epsilon=4.0, delta=1e-4), ready.tables["hill"])


def test_a_study_with_keys_that_this_device_does_not_have_is_refused(ready, tmp_path):
    stranger = Home.join(tmp_path / "hill", ready.invitation, "hill")
    with pytest.raises(TrustError, match=r"CH601.*keys"):
        approving.approve(stranger, ready.study / STUDY, Policy(epsilon=4.0, delta=1e-4), ready.tables["hill"])


def test_a_second_study_is_refused_when_the_ledger_could_not_pay_for_it(consortium):
    approve(consortium, "hill", record=True)
    home = consortium.homes["hill"]
    study = Agreement.read(home.path / STUDY)
    with home.open_ledger(home.vault()) as ledger:
        ledger.release(study.run_name)
        ledger.reserve(study.settled.costs.of(0).reservation(range(3), run="another run"))
        for number in range(1, 4):
            ledger.charge(
                study.settled.costs.of(0).charge(number - 1, run="another run", round_number=number, attempt=0)
            )
    with pytest.raises(LedgerError, match="CH401"):
        approve(consortium, "hill")
    again = approve(consortium, "hill", epsilon=9.0)
    assert again.epsilon_spent_before > 3.9 and again.terms_before.startswith("one record replaced, rule")


def test_a_new_limit_is_an_entry_in_the_old_ledger(consortium):
    approve(consortium, "hill", record=True)
    approve(consortium, "hill", record=True, epsilon=5.0)
    ledger = Ledger.read(consortium.homes["hill"].ledger_path)
    assert ledger.limit == Budget(epsilon=5.0, delta=1e-4)
    assert [entry["kind"] for entry in ledger.entries] == ["reserve", "limit"]  # the study is reserved once


def test_joining_again_keeps_keys_and_ledger_and_forgets_the_approval(consortium, tmp_path):
    approve(consortium, "hill", record=True)
    home = consortium.homes["hill"]
    (tmp_path / "next.toml").write_text(JOB)
    invitation = prepare(tmp_path / "next", tmp_path / "next.toml", "127.0.0.1:9093")
    with pytest.raises(StorageError, match="CH800"):
        Home.join(home.path, invitation, "hill")
    card = home.card()
    again = Home.join(home.path, Invitation.read(tmp_path / "next" / "invitation.toml"), "hill", again=True)
    assert again.card() == card
    assert again.joined.server.address == "127.0.0.1:9093"
    assert again.ledger_path.exists()
    with pytest.raises(TrustError, match="CH603"):
        Agent(again)


def cut_off(monkeypatch, path, invitation, at, **more):
    """A home whose join ended, as by a power cut, when it was about to write this file."""
    with monkeypatch.context() as patch:

        def keep_or_end(file, text):
            if file.name == at:
                raise KeyboardInterrupt
            keep(file, text)

        for room in ("home", "ownership"):
            patch.setattr(f"choral.deploy.{room}.keep", keep_or_end)
        with pytest.raises(KeyboardInterrupt):
            Home.join(path, invitation, "hill", **more)
    return Home(path)


@pytest.mark.parametrize("at", ["node.key", "authority.pem", "site.json"])
@pytest.mark.parametrize("sealed", [{}, {"passphrase": "correct horse"}])
def test_a_join_that_was_cut_off_goes_on_with_the_keys_that_it_made(ready, tmp_path, monkeypatch, at, sealed):
    home = cut_off(monkeypatch, tmp_path / "home", ready.invitation, at, **sealed)
    made = home.vault(**sealed).memory.secret
    again = Home.join(home.path, ready.invitation, "hill", **sealed)
    assert again.vault(**sealed).memory.secret == made
    assert again.card(**sealed).id == "hill"


def test_keys_that_a_join_left_are_never_replaced_renamed_or_thought_to_be_sealed(ready, tmp_path, monkeypatch):
    home = cut_off(monkeypatch, tmp_path / "home", ready.invitation, "site.json")
    before = (home.path / "vault").read_bytes()
    with pytest.raises(StorageError, match=r'CH800.*the keys of "hill".*cut off.*Go on with --name "hill"'):
        Home.join(home.path, ready.invitation, "lake")
    with pytest.raises(StorageError, match=r"CH803.*not sealed\. Go on without --passphrase-file"):
        Home.join(home.path, ready.invitation, "hill", passphrase="correct horse")
    assert (home.path / "vault").read_bytes() == before


def test_a_home_that_lost_its_site_file_joins_again_with_its_keys_and_ledger_and_approves_anew(consortium):
    approve(consortium, "hill", record=True)
    home = consortium.homes["hill"]
    made = home.vault().memory
    (home.path / "site.json").unlink()
    again = Home.join(home.path, consortium.invitation, "hill")
    assert again.vault().memory == made
    assert again.ledger_path.exists()
    with pytest.raises(TrustError, match="CH603"):
        Agent(again)


def test_a_home_that_lost_its_node_key_joins_again_with_a_new_one_and_keeps_its_identity(consortium):
    home = consortium.homes["hill"]
    before = home.card()
    (home.path / "node.key").unlink()
    after = Home.join(home.path, consortium.invitation, "hill", again=True).card()
    assert (home.path / "node.key").exists()
    assert after.node != before.node
    assert (after.id, after.identity, after.agreement) == (before.id, before.identity, before.agreement)
    assert Home.join(home.path, consortium.invitation, "hill", again=True).card() == after


def test_a_sealed_home_needs_its_passphrase(consortium, tmp_path):
    home = Home.join(tmp_path / "sealed", consortium.invitation, "sealed", passphrase="correct horse")
    assert home.card("correct horse").id == "sealed"
    for wrong in (None, "wrong horse"):
        with pytest.raises(StorageError, match="CH803"):
            home.card(wrong)
    assert b"correct" not in (home.path / "vault").read_bytes()


def test_a_changed_study_file_stops_the_agent(consortium):
    approve(consortium, "hill", record=True)
    path = consortium.homes["hill"].path / STUDY
    path.write_text(path.read_text().replace("deadline = 30.0", "deadline = 31.0"))
    with pytest.raises(TrustError, match=r"CH603.*study\.toml the study is not the one that was approved here"):
        Agent(consortium.homes["hill"])


def test_two_agents_on_one_home_are_refused(consortium):
    approve(consortium, "hill", record=True)
    with Agent(consortium.homes["hill"]), pytest.raises(LedgerError, match="CH404"):
        Agent(consortium.homes["hill"])


def test_an_agent_that_could_not_start_leaves_the_ledger_free(consortium):
    approve(consortium, "hill", record=True)
    data = consortium.tables["hill"]
    kept = data.read_text()
    data.unlink()
    with pytest.raises(TableError, match="CH300"):
        Agent(consortium.homes["hill"])
    data.write_text(kept)
    with Agent(consortium.homes["hill"]):
        pass


def test_a_line_of_the_log_that_a_power_cut_left_unfinished_hides_nothing_after_it(consortium):
    approve(consortium, "hill", record=True)
    home = consortium.homes["hill"]
    journal = Journal(home.path / "log.jsonl")
    journal.note("refusal", round=1, code="CH605")
    with journal.path.open("ab") as file:
        file.write(b'{"at": "2026-11-15T10:00:00", "eve')
    assert status(home).last_refusal["code"] == "CH605"
    journal.note("ready", round=2)  # on the same line as what was left
    journal.note("upload", round=2)
    assert (status(home).last["event"], status(home).last_refusal["round"]) == ("upload", 1)


def test_a_status_reads_the_end_of_a_long_log_only(consortium):
    journal = Journal(consortium.homes["hill"].path / "log.jsonl")
    for number in range(3000):
        journal.note("upload", round=number)
    assert [line["round"] for line in journal.last()[:3]] == [2999, 2998, 2997]
    assert 100 < len(journal.last()) < 3000


def test_a_home_whose_path_no_socket_can_have_says_so_without_a_traceback(consortium, capsys):
    approve(consortium, "hill", record=True)
    home = Home(consortium.homes["hill"].path.rename(consortium.folder / ("h" * 108)))
    with pytest.raises(DeploymentError, match=r"CH901.*longer than 107 bytes\. Use a folder with a shorter path"):
        attend(home, agent_only=True, stop=threading.Event(), tell=print)
    assert "Traceback" not in capsys.readouterr().err


def test_the_approval_names_the_study_and_the_policy(consortium):
    approve(consortium, "hill", record=True, label="heart patients")
    reported = json.loads((consortium.homes["hill"].path / "approval.json").read_text())
    assert reported["study"] == consortium.agreement.digest.hex()
    assert reported["policy"]["label"] == "heart patients"
    assert reported["policy"]["epsilon"] == 4.0


def test_a_home_or_a_study_that_belongs_to_another_user_is_not_taken(consortium, tmp_path, monkeypatch):
    approve(consortium, "hill", record=True)
    mine = os.geteuid()
    there = tmp_path / "of-somebody-else"
    there.mkdir(mode=0o755)
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    uses = [
        lambda: Home.join(there, consortium.invitation, "new"),
        lambda: prepare(there, consortium.folder.parent / "job.toml", "127.0.0.1:1"),
        lambda: approve(consortium, "hill"),
        lambda: Agent(consortium.homes["hill"]),
    ]
    (consortium.folder.parent / "job.toml").write_text(JOB)
    for use in uses:
        with pytest.raises(StorageError, match=rf"CH801 .*belongs to another user \(number {mine}\)"):
            use()
    assert list(there.iterdir()) == [] and stat.S_IMODE(there.stat().st_mode) == 0o755


@pytest.mark.parametrize("order", ["00" * 32, "ec" + "ff" * 30 + "7f"])
def test_a_card_with_an_agreement_key_of_small_order_is_not_enrolled(consortium, order):
    memory = consortium.homes["hill"].vault().memory
    identity = Identity(memory.id, memory.secret)
    weak = dataclasses.replace(identity.bundle, agreement=bytes.fromhex(order))
    fields = weak.id.encode(), weak.identity, weak.agreement
    identity.bundle = dataclasses.replace(weak, signature=identity.sign("bundle", *fields))
    node = consortium.homes["hill"].joined.node
    cards = [Enrolled.of(identity, node), *(consortium.homes[name].card() for name in ("harbour", "lake"))]
    paths = [consortium.folder / f"{card.id}.card" for card in cards]
    for path, card in zip(paths, cards, strict=True):
        path.write_text(card.text)
    with pytest.raises(TrustError, match='CH606 device "hill" shows an agreement key of small order'):
        enrol(consortium.study, paths)
