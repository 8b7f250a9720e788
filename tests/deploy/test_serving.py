"""The conductor: rounds over sockets, each on disk as it ends; restarts, refusals, stops and what it may claim."""

import contextlib
import json

import msgspec
import numpy as np
import pytest

from choral.backends import local_socket
from choral.cli import main
from choral.core.errors import ConfigError, DeploymentError, StorageError, SumError
from choral.core.ledger import Ledger
from choral.core.messages import VERSION, Call, Close, Omega, Turn, Upload, decode, encode, pack, unpack
from choral.core.plan import Budget
from choral.core.signed import REQUEST_HEAD, committed
from choral.core.terms import ENVELOPE_BYTES
from choral.deploy.agent import Agent
from choral.deploy.enrolment import keep_test
from choral.deploy.services import serve_study
from choral.deploy.serving import close, conduct, status, stop
from choral.record import read_run
from choral.report import write_report
from choral.report.verify import verify
from choral.run.runs import resume
from choral.run.statement import privacy_statement
from tests.run.consortium import JOB, NAMES, Consortium, Sockets, agents, as_server, table


def charges(home):
    return [(charge.round, charge.attempt) for charge in Ledger.read(home.ledger_path).balance.charges]


def run_of(consortium):
    return read_run(next((consortium.study / "runs").iterdir()))


def turns(transport, terms):
    """The turns of all OMEGAs that were sent, in their order."""
    found = []
    for frame in transport.seen:
        with contextlib.suppress(Exception):
            message, _ = decode(frame, vector_bytes=terms.model_bytes, records_bytes=terms.records_bytes)
            if isinstance(message, Omega):
                found.append(message.turn)
    return found


@pytest.fixture(scope="module")
def approved(tmp_path_factory):
    made = Consortium(tmp_path_factory.mktemp("three"))
    made.approve()
    return made


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    # Four that count no colluder: one of them may then drop out.
    job = JOB.replace("cohort = 3", "cohort = 4\ncolluders = 0").replace("rounds = 3", "rounds = 2")
    made = Consortium(tmp_path_factory.mktemp("four"), names=(*NAMES, "moor"), job=job)
    made.approve()
    return made


@pytest.fixture
def consortium(approved, tmp_path):
    return approved.copy(tmp_path)


class Losing(Sockets):
    """Sockets on which chosen exchanges are lost on the way back: everybody has uploaded, nobody is heard."""

    def __init__(self, homes, lost=(), crash=None):
        super().__init__(homes)
        self.lost, self.crash, self.count = set(lost), crash, 0

    def answers(self, outbox):
        self.count += 1
        replies = list(super().answers(outbox))
        if self.count == self.crash:
            raise KeyboardInterrupt
        return [] if self.count in self.lost else replies


def test_a_study_runs_to_its_end_and_a_round_takes_two_exchanges(consortium):
    keep_test(consortium.study, table(consortium.folder / "public.csv", seed=77))
    transport = Losing(consortium.homes)
    with agents(consortium.homes):
        consortium.conductor(transport).run()
    record = run_of(consortium)
    # An agreement on keys, the first call, then OMEGA and FINAL of three rounds, then CLOSE.
    assert transport.count == 3 + 1 + 2 * 3 + 1
    assert [line.included for line in record.rounds] == [(0, 1, 2)] * 3
    assert all(charges(home) == [(1, 0), (2, 0), (3, 0)] for home in consortium.homes.values())
    assert record.result.stopped == "all rounds are done"
    assert 0.4 < record.result.test["accuracy"] <= 1
    assert record.about.kind == "deployment"
    assert not record.about.seeded
    assert status(consortium.study)["took_part"] == dict.fromkeys(NAMES, 3)
    assert [finding.wrong for finding in verify(record.folder)] == [()] * 7
    with pytest.raises(StorageError, match=r"CH802.*deployment"):
        resume(record.folder)
    with pytest.raises(StorageError, match="CH800"):
        conduct(str(consortium.study), transport)
    with pytest.raises(StorageError, match="CH800"):
        next(serve_study(consortium.study, as_root=True))  # before any process is started


def test_the_server_claims_what_the_plan_allows_at_most_and_no_ledger_says_more(consortium):
    with agents(consortium.homes):
        consortium.conductor(Sockets(consortium.homes)).run()
    reported = run_of(consortium).result
    claimed = reported.privacy.against_everyone.epsilon
    assert claimed == consortium.agreement.settled.costs.spent(0, 3, 1e-4)
    for home in consortium.homes.values():
        # 80 rows each, and the plan is for 60.
        assert 0 < Ledger.read(home.ledger_path).balance.epsilon < claimed <= 4.0
    assert "ledger" in reported.claim
    assert "number of rows" not in json.dumps(reported.to_dict()["releases"])


def test_a_crash_of_the_server_repeats_no_turn_and_loses_no_charge(consortium):
    # After three exchanges for keys, the seventh in all carries round 2's model out;
    # everybody uploads, and the server dies before it hears.
    with agents(consortium.homes):
        first = Losing(consortium.homes, crash=7)
        with pytest.raises(KeyboardInterrupt):
            consortium.conductor(first).run()
        second = Sockets(consortium.homes)
        consortium.conductor(second).run()
    assert turns(first, consortium.agreement.terms)[-1] == Turn(2, 0)
    assert turns(second, consortium.agreement.terms)[0] == Turn(2, 1)
    record = run_of(consortium)
    assert [line.round for line in record.rounds] == [1, 2, 3]
    assert record.rounds[1].wasted == (0, 1, 2)
    # Four uploads, three of them in a sum; the server counts all four.
    assert all(charges(home) == [(1, 0), (2, 0), (2, 1), (3, 0)] for home in consortium.homes.values())
    assert [device.rounds for device in record.result.privacy.devices] == [4, 4, 4]
    assert [finding.wrong for finding in verify(record.folder)] == [()] * 7


def test_a_drop_out_that_is_retried_never_shows_a_figure_above_a_limit_without_saying_why(consortium):
    # After three exchanges for keys, the sixth is round 1's FINAL:
    # all have paid, the attempt fails, and the server counts four uploads.
    with agents(consortium.homes):
        consortium.conductor(Losing(consortium.homes, lost=[6])).run()
    record = run_of(consortium)
    devices = record.result.privacy.devices
    assert [(one.planned, one.rounds, one.retried, one.full) for one in devices] == [(3, 4, 1, False)] * 3
    assert all(one.epsilon > one.limit == 4.0 for one in devices), "the server's bound, at the plan's 60 rows"
    ledgers = [Ledger.read(home.ledger_path).balance for home in consortium.homes.values()]
    assert all(len(ledger.charges) == 4 and ledger.epsilon < ledger.limit.epsilon == 4.0 for ledger in ledgers)
    text = write_report(record.folder).read_text()
    assert "4 / 3 · 1 retried<" in text and "· full" not in text and "would pass the limit of" not in text
    assert text.count("A figure above a limit, here of 3 devices, is an upper bound of the server") == 1
    assert "so it is above the limit of 3 devices; no ledger passes its own limit" in text
    assert [finding.wrong for finding in verify(record.folder)] == [()] * 7


def test_a_site_is_full_when_its_own_ledger_has_said_so(consortium):
    home = consortium.homes["lake"]
    with Agent(home) as agent:
        two, three = (agent.costs.spent(0, rounds, 1e-4) for rounds in (2, 3))
        agent.ledger.set_limit(Budget(epsilon=(two + three) / 2, delta=1e-4))
    with agents(consortium.homes):
        consortium.conductor(Sockets(consortium.homes)).run()
    record = run_of(consortium)
    assert record.result.refused == {"lake": "CH401"}
    assert [one.name for one in record.result.privacy.devices if one.full] == ["lake"]
    assert verify(record.folder).good


def test_the_turn_is_on_disk_before_anything_of_it_is_sent(consortium):
    seen = []

    class Looking(Sockets):
        def answers(self, outbox):
            tried = [json.loads(path.read_text())["round"] for path in (consortium.study / "runs").glob("*/turn.json")]
            seen.extend(tried or [0])  # keys are agreed on before the first turn
            return super().answers(outbox)

    with agents(consortium.homes):
        consortium.conductor(Looking(consortium.homes)).run()
    assert seen == [0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3]  # the last one is the end, in which nothing is charged


def test_uploads_of_an_attempt_that_fails_are_counted(consortium):
    # After three exchanges for keys, the sixth is round 1's FINAL:
    # nobody's shares arrive, so the attempt fails after all have paid.
    with agents(consortium.homes):
        consortium.conductor(Losing(consortium.homes, lost=[6])).run()
    record = run_of(consortium)
    assert record.rounds[0].wasted == (0, 1, 2)
    assert "attempt 1" in record.rounds[0].note
    assert [device.rounds for device in record.result.privacy.devices] == [4, 4, 4]


def test_a_device_that_cannot_pay_says_so_before_the_others_are_charged(consortium):
    made, home = consortium, consortium.homes["lake"]
    with home.open_ledger(home.vault()) as ledger:  # the owner has thought better of it since the approval
        ledger.set_limit(Budget(epsilon=0.01, delta=1e-4))
    with agents(made.homes):
        made.conductor(Sockets(made.homes)).run()
    record = run_of(made)
    assert record.result.refused == {"lake": "CH401"}
    assert "after round 0 of 3: too few devices are willing to go on (lake CH401)" in record.result.stopped
    assert charges(made.homes["hill"]) == []
    assert status(made.study)["gone"] == {"lake": "CH401"}


def test_a_device_that_can_pay_for_no_further_round_still_opens_the_one_under_way(consortium):
    home = consortium.homes["lake"]
    with Agent(home) as agent:
        two, three = (agent.costs.spent(0, rounds, 1e-4) for rounds in (2, 3))
        agent.ledger.set_limit(Budget(epsilon=(two + three) / 2, delta=1e-4))
    with agents(consortium.homes):
        consortium.conductor(Sockets(consortium.homes)).run()
    record = run_of(consortium)
    # Round 2's FINAL carries the call for round 3, which it can't pay for: it opens, and refuses when it is called.
    assert [line.included for line in record.rounds] == [(0, 1, 2), (0, 1, 2)]
    assert all(not line.wasted for line in record.rounds)
    assert all(len(charges(home)) == 2 for home in consortium.homes.values())
    assert "lake CH401" in record.result.stopped


def test_a_device_that_refuses_for_good_is_not_called_again_and_the_others_go_on(four, tmp_path):
    made = four.copy(tmp_path)
    home = made.homes["moor"]
    with home.open_ledger(home.vault()) as ledger:
        ledger.set_limit(Budget(epsilon=0.01, delta=1e-4))
    transport = Sockets(made.homes)
    with agents(made.homes):
        made.conductor(transport).run()
    record = run_of(made)
    assert [line.included for line in record.rounds] == [(0, 1, 2), (0, 1, 2)]  # a sum needs three of four
    assert record.rounds[0].refused == {"moor": "CH401"}
    assert record.rounds[1].cohort == (0, 1, 2)


def test_a_device_of_another_version_is_left_out_and_the_others_go_on(four, tmp_path):
    made = four.copy(tmp_path)

    class AnotherVersion(Sockets):
        """What one device says, whatever that is, is of a version that is not out yet."""

        def answers(self, outbox):
            for number, reply in super().answers(outbox):
                yield number, reply[:4] + b"\x63\x00" + reply[6:] if number == 3 else reply

    with agents(made.homes):
        made.conductor(AnotherVersion(made.homes)).run()
    record = run_of(made)
    assert [line.included for line in record.rounds] == [(0, 1, 2), (0, 1, 2)]
    assert record.result.refused == {"moor": "CH602"}
    assert charges(made.homes["moor"]) == []


def test_a_device_that_is_gone_costs_its_share_and_not_the_round(four, tmp_path):
    made = four.copy(tmp_path)
    here = {name: made.homes[name] for name in NAMES}
    with agents(here):
        made.conductor(Sockets(made.homes)).run()
    assert [line.included for line in run_of(made).rounds] == [(0, 1, 2), (0, 1, 2)]


class Patient(Sockets):
    """A transport that notes how long the server would wait."""

    waits: tuple[float, ...] = ()

    def gather(self, needed, *, patience, looked=lambda: None):
        self.waits += (patience,)
        return super().gather(needed, patience=patience, looked=looked)


def test_a_server_that_can_do_without_nobody_waits_once_as_long_as_it_says(approved, four, tmp_path):
    for made, waits in (
        (approved, (2.0,)),
        (four, (30.0, 2.0)),
    ):  # the server's patience; a deadline for all comes first
        transport = Patient(made.homes)
        with pytest.raises(DeploymentError, match="CH903"):
            made.copy(tmp_path / made.study.parent.name).conductor(transport).run()
        assert transport.waits == waits


def test_too_few_devices_are_reported_and_the_run_goes_on_later(consortium):
    with pytest.raises(DeploymentError, match="CH903"):
        consortium.conductor(Sockets(consortium.homes)).run()
    assert status(consortium.study)["state"] == "failed"
    with agents(consortium.homes):
        consortium.conductor(Sockets(consortium.homes)).run()
    assert status(consortium.study)["state"] == "finished"


def test_a_round_that_fails_again_and_again_ends_the_run_for_now(consortium):
    with agents(consortium.homes):
        # Three exchanges for keys, READY, then OMEGA and FINAL of two attempts:
        # FINAL is lost each time. Each attempt is called for itself.
        with pytest.raises(SumError, match=r"CH503.*round 1 failed 2 times"):
            consortium.conductor(Losing(consortium.homes, lost=[6, 9])).run()
        assert status(consortium.study)["state"] == "failed"
    assert charges(consortium.homes["hill"]) == [(1, 0), (1, 1)]


def test_a_round_that_no_device_pays_for_any_more_is_passed_over_when_the_run_goes_on(consortium):
    with agents(consortium.homes):
        with pytest.raises(SumError, match=r"CH503.*round 1 failed 2 times"):
            consortium.conductor(Losing(consortium.homes, lost=[6, 9])).run()
        consortium.conductor(Sockets(consortium.homes)).run()
    first, second, *_ = run_of(consortium).rounds
    assert first.included == () and first.wasted == (0, 0, 1, 1, 2, 2) and "passed over" in first.note
    assert second.included == (0, 1, 2)
    assert charges(consortium.homes["hill"])[:3] == [(1, 0), (1, 1), (2, 0)]
    assert status(consortium.study)["state"] == "finished"
    assert not any(finding.wrong for finding in verify(run_of(consortium).folder))


def test_a_device_that_breaks_the_protocol_is_named_left_out_and_called_no_more(four, tmp_path):
    made = four.copy(tmp_path)

    class Spoiling(Sockets):
        """The last device's envelopes hold nothing that anybody could open."""

        def answers(self, outbox):
            for number, reply in super().answers(outbox):
                yield number, (spoilt(made, reply) if number == 3 else reply)

    with agents(made.homes):
        made.conductor(Spoiling(made.homes)).run()
    record = run_of(made)
    assert [line.included for line in record.rounds] == [(0, 1, 2), (0, 1, 2)]
    liar = made.agreement.terms.ids[3]
    assert record.rounds[0].broke_the_protocol == {liar: "sealed shares that do not open what it committed to"}
    assert record.result.refused == {liar: "CH606"}
    for name in set(made.homes) - {liar}:
        assert charges(made.homes[name]) == [(1, 0), (1, 1), (2, 0)]
    assert charges(made.homes[liar]) == [(1, 0)]


def spoilt(made, reply):
    terms = made.agreement.terms
    message, vector = decode(reply, vector_bytes=terms.upload_bytes, records_bytes=terms.records_bytes)
    if not isinstance(message, Upload):
        return reply
    bonds = unpack(message.bonds, terms.bond_bytes, most=4)
    empty = {number: bytes(ENVELOPE_BYTES) + bond[ENVELOPE_BYTES:] for number, bond in bonds.items()}
    return encode(msgspec.structs.replace(message, bonds=pack(empty)), vector)


def test_a_stop_ends_after_the_round_with_the_model_so_far(consortium):
    class Stopping(Sockets):
        def answers(self, outbox):
            stop(consortium.study)
            return super().answers(outbox)

    with agents(consortium.homes):
        consortium.conductor(Stopping(consortium.homes)).run()
    record = run_of(consortium)
    assert len(record.rounds) == 1
    assert record.result.stopped == "after round 1 of 3: the coordinator stopped it"
    assert (record.folder / "model.safetensors").exists()


def test_a_run_that_has_not_begun_or_is_over_is_not_stopped_and_so_not_used_up(consortium):
    with pytest.raises(StorageError, match=r"CH802.* has not begun"):
        stop(consortium.study)
    with agents(consortium.homes):
        consortium.conductor(Sockets(consortium.homes)).run()
    assert len(run_of(consortium).rounds) == 3
    with pytest.raises(StorageError, match=r"CH800.* is finished"):
        stop(consortium.study)


def test_two_servers_on_one_run_are_refused(consortium):
    conductor = consortium.conductor(Sockets(consortium.homes))
    with conductor.run_folder.locked(), pytest.raises(StorageError, match=r"CH800.*in use"):
        conductor.run()


def test_the_cohorts_of_two_servers_are_not_the_same_twice(consortium):
    seeds = {consortium.conductor(Sockets(consortium.homes)).study.seed for _ in range(8)}
    assert len(seeds) == 8


def test_the_seed_that_draws_a_deployments_cohorts_is_written_nowhere(consortium):
    conductor = consortium.conductor(Sockets(consortium.homes))
    with agents(consortium.homes):
        conductor.run()
    seed = str(conductor.study.seed)
    assert seed not in repr(conductor.study)
    written = [path.read_bytes() for path in consortium.study.rglob("*") if path.is_file()]
    assert written and not any(seed.encode() in content for content in written)


def test_the_sum_is_what_the_sites_computed(consortium):
    sent = {name: [] for name in NAMES}
    with agents(consortium.homes) as running:
        for name, agent in running.items():

            def noted(model, name=name, real=agent.trainer.update):
                sent[name].append(real(model))
                return sent[name][-1]

            agent.trainer.update = noted
        conductor = consortium.conductor(Sockets(consortium.homes))
        conductor.run()
    _, after = conductor.run_folder.checkpoint()
    start = conductor.study.model.start(0)
    assert [len(sent[name]) for name in NAMES] == [3, 3, 3]
    moved = np.mean([sent[name] for name in NAMES], axis=0).sum(axis=0)
    # Each of three sums is rounded to the grid, by less than a step for each of three devices.
    assert np.abs(after - start - moved).max() < 3 * conductor.study.codec.grid


def test_a_study_may_learn_a_number(tmp_path):
    job = JOB.replace('label = "sick"', 'label = "pulse"').replace(
        'classes = ["no", "yes"]', "label_bounds = [30, 220]"
    )
    job = job.replace("[data.columns.pulse]\nbounds = [30, 220]\n", "").replace("rounds = 3", "rounds = 2")
    made = Consortium(tmp_path, job=job)
    made.approve()
    keep_test(made.study, table(tmp_path / "public.csv", seed=77))
    with agents(made.homes):
        made.conductor(Sockets(made.homes)).run()
    record = run_of(made)
    assert set(record.result.test) == {"r2", "loss", "rmse"}
    assert json.loads((record.folder / "model.json").read_text())["label_bounds"] == [30, 220]
    assert [finding.wrong for finding in verify(record.folder)] == [()] * 7


def test_a_door_takes_what_the_studys_terms_allow_and_does_not_wait_for_more(consortium):
    home, most = consortium.homes["hill"], 1 + REQUEST_HEAD + consortium.agreement.terms.frame_bytes
    assert most < 10_000  # a model of four numbers, and the records of three devices
    with agents({"hill": home}):
        assert b"CH622" in local_socket.ask(
            home.socket, local_socket.FRAME + bytes(most - 1), timeout=20
        )  # read, and not the server's
        with pytest.raises(DeploymentError, match=r"CH901"):
            local_socket.ask(home.socket, local_socket.FRAME + bytes(most), timeout=20)


# The end of a run


def finished(consortium, transport=None):
    with agents(consortium.homes):
        consortium.conductor(transport or Sockets(consortium.homes)).run()
    folder = run_of(consortium).folder
    write_report(folder)
    return folder


def receipts_of(consortium):
    return [path for home in consortium.homes.values() for path in (home.path / "receipts").iterdir()]


def test_every_site_signs_the_end_and_keeps_what_it_signed(consortium, capsys):
    folder = finished(consortium)
    assert "3 of 3 devices signed the whole record." in (folder / "report.html").read_text()
    assert main(["verify", str(folder), "--roster", str(consortium.study / "study.toml")]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert (
        "3 of 3 sites signed the study, the model, their payments and this record with the keys of the roster" in last
    )
    assert last.endswith(
        "the server's own account of the rounds and its test figures, as they stood when the sites signed."
    )
    cards = [str(consortium.folder / f"{name}.card") for name in NAMES]
    for name, card in zip(NAMES, cards, strict=True):
        (consortium.folder / f"{name}.card").write_text(consortium.homes[name].card().text)
        assert json.loads(next((consortium.homes[name].path / "receipts").iterdir()).read_text())["paid"] == 3, card
    assert main(["verify", str(folder), "--roster", *cards]) == 0
    capsys.readouterr()
    assert main(["verify", str(folder), "--receipts", *map(str, receipts_of(consortium))]) == 0
    assert "3 receipts compared" in capsys.readouterr().out


def test_the_number_that_verify_shows_is_the_one_that_the_sites_approved(consortium):
    assert verify(finished(consortium)).keys == consortium.agreement.safety_number


def test_a_receipt_opens_to_the_sites_own_ledger_and_the_server_learns_only_its_commitment(consortium):
    folder = finished(consortium)
    for home, entry in zip(
        consortium.homes.values(), json.loads((folder / "signatures.json").read_text())["devices"], strict=True
    ):
        kept = json.loads(next((home.path / "receipts").iterdir()).read_text())
        receipt = Ledger.read(home.ledger_path).receipt
        assert kept["ledger"] == f"{receipt.entries}:{receipt.seal}"
        assert entry["salt"] is None and receipt.seal not in (folder / "signatures.json").read_text()
        assert committed(receipt.entries, receipt.seal, bytes.fromhex(kept["salt"])).hex() == entry["receipt"]


def test_a_site_that_is_away_at_the_end_is_named_and_costs_its_signature_only(four, tmp_path, capsys):
    made = four.copy(tmp_path)
    with agents({name: made.homes[name] for name in NAMES}):
        made.conductor(Sockets(made.homes)).run()
    folder = run_of(made).folder
    write_report(folder)
    assert (
        "3 of 4 devices signed the whole record: harbour, hill, lake. Not signed: moor (did not answer)."
        in (folder / "report.html").read_text()
    )
    assert main(["verify", str(folder)]) == 0
    reported = capsys.readouterr().out
    assert "ok  3 of 4 sites signed the whole record\n       moor has not signed: did not answer\n" in reported
    assert "what was paid by moor, who did not sign" in reported.splitlines()[-1]


class AtTheEnd(Sockets):
    """Sockets that do something with the exchange in which sites sign."""

    def __init__(self, homes, change):
        super().__init__(homes)
        self.change = change

    def answers(self, outbox):
        frames = list(outbox.values())
        if b"chrl" in bytes(frames[0][:4]) and frames[0][11:12] in (b"\x14", b"\x18"):  # the tags of CLOSE
            return self.change(super().answers, outbox)
        return super().answers(outbox)


@pytest.mark.parametrize("how", ["silence", "failure", "nonsense"])
def test_whatever_happens_while_sites_sign_the_run_has_its_result_and_is_not_verified_by_nobody(consortium, how):
    def change(exchange, outbox):
        if how == "failure":
            raise DeploymentError("CH900", "the link is gone.")
        return [] if how == "silence" else [(number, b"nonsense") for number, _ in exchange(outbox)]

    folder = finished(consortium, AtTheEnd(consortium.homes, change))
    assert len(run_of(consortium).rounds) == 3
    reported = {"silence": "did not answer", "failure": "did not answer", "nonsense": "CH600"}[how]
    assert {entry["why"] for entry in json.loads((folder / "signatures.json").read_text())["devices"]} == {reported}
    wrong = [line for finding in verify(folder) for line in finding.wrong]
    assert wrong == ["no site signed it: nothing shows that this was a deployment"]


def test_a_signature_of_another_site_is_none(consortium):
    def swapped(exchange, outbox):
        replies = dict(exchange(outbox))
        message, _ = decode(replies[1], vector_bytes=0, records_bytes=10**6)
        return [(0, encode(msgspec.structs.replace(message, device=0))), (1, replies[1])]

    folder = finished(consortium, AtTheEnd(consortium.homes, swapped))
    entries = json.loads((folder / "signatures.json").read_text())["devices"]
    assert [entry["why"] for entry in entries] == ["CH606", "", "did not answer"]


def test_a_site_that_has_signed_the_end_takes_no_turn_any_more_also_after_a_restart(consortium):
    finished(consortium)
    home = consortium.homes["hill"]
    with Agent(home) as agent:
        reply = as_server(agent, encode(Call(turn=Turn(4, 0))))
        assert decode(reply, vector_bytes=0, records_bytes=0)[0].code == "CH605"
        assert charges(home) == [(1, 0), (2, 0), (3, 0)]


def test_no_site_signs_an_end_before_a_turn_that_it_paid_for(consortium):
    with agents({"hill": consortium.homes["hill"]}) as running:
        device = running["hill"].device
        device.vault.change(turn=Turn(3, 0))
        early = encode(Close(turn=Turn(2, 0), record=bytes(32)), bytes(device.terms.model_bytes))
        reply = decode(device.answer(early), vector_bytes=0, records_bytes=0)[0]
        assert (reply.code, device.vault.memory.turn) == ("CH605", Turn(3, 0))
        assert "before a turn that was paid for here" in str(device.refusal)


def test_a_server_that_dies_while_sites_sign_ends_the_run_when_it_is_started_again(consortium):
    class Dying(AtTheEnd):
        def __init__(self, homes):
            super().__init__(homes, self.die)

        def die(self, exchange, outbox):
            list(exchange(outbox))  # everybody has signed
            raise KeyboardInterrupt

    with agents(consortium.homes):
        conductor = consortium.conductor(Dying(consortium.homes))
        conductor.gone = {2: "CH401"}  # so that it ends early, and a restart would call everybody again
        with pytest.raises(KeyboardInterrupt):
            conductor.run()
        consortium.conductor(Sockets(consortium.homes)).run()
    record = run_of(consortium)
    assert record.result.stopped == "after round 0 of 3: too few devices are willing to go on (lake CH401)"
    assert verify(record.folder).good


def test_an_upload_that_a_site_paid_for_and_that_never_arrived_is_in_the_claim(four, tmp_path):
    made = four.copy(tmp_path)

    class LostUpload(Sockets):
        """The fourth site's first upload is lost on its way."""

        lost = False

        def answers(self, outbox):
            for number, reply in super().answers(outbox):
                if number == 3 and reply[4] == VERSION and len(reply) > 200 and not self.lost:
                    self.lost = True
                else:
                    yield number, reply

    folder = finished(made, LostUpload(made.homes))
    record = read_run(folder)
    assert record.rounds[0].included == (0, 1, 2)
    assert charges(made.homes["moor"]) == [(1, 0), (2, 0)]
    assert record.result.privacy.devices[3].rounds == 2  # not 1, which is all that the server was sent
    assert record.result.wasted == (3,)
    assert verify(folder).good


def test_a_server_that_leaves_a_round_out_of_its_record_is_found_by_what_the_sites_signed(consortium):
    """The sites sign the shortened record, since they can't know better; but they say what they paid for."""
    real = close

    def shortened(folder, terms, transport, result_of, **others):
        return real(folder, terms, transport, result_of, **{**others, "counted": others["counted"] + 1})

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("choral.deploy.serving.close", shortened)
        patched.setattr(
            "choral.run.runs.privacy_statement",
            lambda costs, rounds, **how: privacy_statement(costs, rounds - 1, **how),
        )
        folder = finished(consortium)
    wrong = " ".join(line for finding in verify(folder) for line in finding.wrong)
    assert "harbour: it paid for 3 uploads, and the record counts 2 of them" in wrong


def test_a_deployment_signed_again_by_the_server_alone_is_detected_by_keys_and_by_receipts(
    consortium, tmp_path, capsys
):
    folder = finished(consortium)
    (tmp_path / "forged").mkdir()
    forged = Consortium(tmp_path / "forged")  # the same names and settings; every key was made by one hand
    forged.approve()
    other = finished(forged)
    assert main(["verify", str(other)]) == 0  # it agrees with itself, and its number is another
    capsys.readouterr()
    assert verify(other).keys != verify(folder).keys
    assert main(["verify", str(other), "--roster", str(consortium.study / "study.toml")]) == 1
    reported = " ".join(capsys.readouterr().out.split())
    assert "the run is not one of the study that was given" in reported
    assert "harbour has another key in the roster that was given" in reported
    assert main(["verify", str(other), "--receipts", str(receipts_of(consortium)[0])]) == 1
    reported = " ".join(capsys.readouterr().out.split())
    assert "harbour: its receipt is of another record, model or set of devices" in reported
    assert "harbour: its receipt is signed with another key" in reported


def test_a_runs_name_that_leads_out_of_its_folder_is_refused(consortium):
    path = consortium.study / "study.toml"
    path.write_text(path.read_text().replace(f'run = "{consortium.agreement.file.run}"', 'run = "../../elsewhere"'))
    with pytest.raises(ConfigError, match=r"CH102 .*study.toml the run's name is not 1 to 64 letters"):
        conduct(str(consortium.study), Sockets(consortium.homes))
    assert not (consortium.folder / "elsewhere").exists()
