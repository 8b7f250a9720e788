"""The conductor: rounds over sockets, each on disk as it ends; restarts, refusals, stops and what it may claim."""

import contextlib
import json

import msgspec
import numpy as np
import pytest

from choral.backends import relay
from choral.errors import DeploymentError, StorageError, SumError
from choral.plan import Budget
from choral.privacy.ledger import Ledger
from choral.protocol.messages import Omega, Turn, Upload, decode, encode, pack, unpack
from choral.protocol.terms import ENVELOPE_BYTES
from choral.report.verify import verify
from choral.run.agent import Agent
from choral.run.folder import read_run
from choral.run.runs import resume
from choral.run.services import serve_study
from choral.run.serving import conduct, keep_test, status, stop
from tests.run.consortium import JOB, NAMES, Consortium, Sockets, agents, table


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

    def exchange(self, outbox):
        self.count += 1
        replies = list(super().exchange(outbox))
        if self.count == self.crash:
            raise KeyboardInterrupt
        return [] if self.count in self.lost else replies


def test_a_study_runs_to_its_end_and_a_round_takes_two_exchanges(consortium):
    keep_test(consortium.study, table(consortium.folder / "public.csv", seed=77))
    transport = Losing(consortium.homes)
    with agents(consortium.homes):
        consortium.conductor(transport).run()
    record = run_of(consortium)
    assert transport.count == 1 + 2 * 3  # the first call, then OMEGA and FINAL of three rounds
    assert [line["included"] for line in record.rounds] == [[0, 1, 2]] * 3
    assert all(charges(home) == [(1, 0), (2, 0), (3, 0)] for home in consortium.homes.values())
    assert record.result["stopped"] == "all rounds are done"
    assert 0.4 < record.result["test"]["accuracy"] <= 1
    assert record.about["kind"] == "deployment"
    assert not record.about["seeded"]
    assert status(consortium.study)["took_part"] == dict.fromkeys(NAMES, 3)
    assert [finding.wrong for finding in verify(record.folder)] == [()] * 5
    with pytest.raises(StorageError, match=r"CH802.*deployment"):
        resume(record.folder)
    with pytest.raises(StorageError, match="CH800"):
        conduct(str(consortium.study), transport)
    with pytest.raises(StorageError, match="CH800"):
        next(serve_study(consortium.study, as_root=True))  # before any process is started


def test_the_server_claims_what_the_plan_allows_at_most_and_no_ledger_says_more(consortium):
    with agents(consortium.homes):
        consortium.conductor(Sockets(consortium.homes)).run()
    told = run_of(consortium).result
    claimed = told["privacy"]["against_everyone"]["epsilon"]
    assert claimed == consortium.agreement.costs.spent(0, 3, 1e-4)
    for home in consortium.homes.values():
        # 80 rows each, and the plan is for 60.
        assert 0 < Ledger.read(home.ledger_path).balance.epsilon < claimed <= 4.0
    assert "ledger" in told["claim"]
    assert "number of rows" not in json.dumps(told["releases"])


def test_a_crash_of_the_server_repeats_no_turn_and_loses_no_charge(consortium):
    # The fourth exchange carries round 2's model out; everybody uploads, and the server dies before it hears.
    with agents(consortium.homes):
        first = Losing(consortium.homes, crash=4)
        with pytest.raises(KeyboardInterrupt):
            consortium.conductor(first).run()
        second = Sockets(consortium.homes)
        consortium.conductor(second).run()
    assert turns(first, consortium.agreement.terms)[-1] == Turn(2, 0)
    assert turns(second, consortium.agreement.terms)[0] == Turn(2, 1)
    record = run_of(consortium)
    assert [line["round"] for line in record.rounds] == [1, 2, 3]
    assert record.rounds[1]["wasted"] == [0, 1, 2]
    # Four uploads, three of them in a sum; the server counts all four.
    assert all(charges(home) == [(1, 0), (2, 0), (2, 1), (3, 0)] for home in consortium.homes.values())
    assert [device["rounds"] for device in record.result["privacy"]["devices"]] == [4, 4, 4]
    assert [finding.wrong for finding in verify(record.folder)] == [()] * 5


def test_the_turn_is_on_disk_before_anything_of_it_is_sent(consortium):
    seen = []

    class Looking(Sockets):
        def exchange(self, outbox):
            seen.append(json.loads(next((consortium.study / "runs").glob("*/turn.json")).read_text())["round"])
            return super().exchange(outbox)

    with agents(consortium.homes):
        consortium.conductor(Looking(consortium.homes)).run()
    assert seen == [1, 1, 1, 2, 2, 3, 3]


def test_uploads_of_an_attempt_that_fails_are_counted(consortium):
    # The third exchange is round 1's FINAL: nobody's shares arrive, so the attempt fails after all have paid.
    with agents(consortium.homes):
        consortium.conductor(Losing(consortium.homes, lost=[3])).run()
    record = run_of(consortium)
    assert record.rounds[0]["wasted"] == [0, 1, 2]
    assert "attempt 1" in record.rounds[0]["note"]
    assert [device["rounds"] for device in record.result["privacy"]["devices"]] == [4, 4, 4]


def test_a_device_that_cannot_pay_says_so_before_the_others_are_charged(consortium):
    made, home = consortium, consortium.homes["lake"]
    with home.open_ledger(home.vault()) as ledger:  # the owner has thought better of it since the approval
        ledger.set_limit(Budget(epsilon=0.01, delta=1e-4))
    with agents(made.homes):
        made.conductor(Sockets(made.homes)).run()
    record = run_of(made)
    assert record.result["refused"] == {"lake": "CH401"}
    assert "after round 0 of 3: too few devices are willing to go on (lake CH401)" in record.result["stopped"]
    assert charges(made.homes["hill"]) == []
    assert status(made.study)["gone"] == {"lake": "CH401"}


def test_a_device_that_can_pay_for_no_further_round_still_opens_the_one_under_way(consortium):
    home = consortium.homes["lake"]
    with Agent(home) as agent:
        two, three = (agent._costs.spent(0, rounds, 1e-4) for rounds in (2, 3))
        agent.ledger.set_limit(Budget(epsilon=(two + three) / 2, delta=1e-4))
    with agents(consortium.homes):
        consortium.conductor(Sockets(consortium.homes)).run()
    record = run_of(consortium)
    # Round 2's FINAL carries the call for round 3, which it can't pay for: it opens, and refuses when it is called.
    assert [line["included"] for line in record.rounds] == [[0, 1, 2], [0, 1, 2]]
    assert all("wasted" not in line for line in record.rounds)
    assert all(len(charges(home)) == 2 for home in consortium.homes.values())
    assert "lake CH401" in record.result["stopped"]


def test_a_device_that_refuses_for_good_is_not_called_again_and_the_others_go_on(four, tmp_path):
    made = four.copy(tmp_path)
    home = made.homes["moor"]
    with home.open_ledger(home.vault()) as ledger:
        ledger.set_limit(Budget(epsilon=0.01, delta=1e-4))
    transport = Sockets(made.homes)
    with agents(made.homes):
        made.conductor(transport).run()
    record = run_of(made)
    assert [line["included"] for line in record.rounds] == [[0, 1, 2], [0, 1, 2]]  # a sum needs three of four
    assert record.rounds[0]["refused"] == {"moor": "CH401"}
    assert record.rounds[1]["cohort"] == [0, 1, 2]


def test_a_device_of_another_version_is_left_out_and_the_others_go_on(four, tmp_path):
    made = four.copy(tmp_path)

    class AnotherVersion(Sockets):
        """What one device says, whatever that is, is of a version that is not out yet."""

        def exchange(self, outbox):
            for number, reply in super().exchange(outbox):
                yield number, reply[:4] + b"\x63\x00" + reply[6:] if number == 3 else reply

    with agents(made.homes):
        made.conductor(AnotherVersion(made.homes)).run()
    record = run_of(made)
    assert [line["included"] for line in record.rounds] == [[0, 1, 2], [0, 1, 2]]
    assert record.result["refused"] == {"moor": "CH602"}
    assert charges(made.homes["moor"]) == []


def test_a_device_that_is_gone_costs_its_share_and_not_the_round(four, tmp_path):
    made = four.copy(tmp_path)
    here = {name: made.homes[name] for name in NAMES}
    with agents(here):
        made.conductor(Sockets(made.homes)).run()
    assert [line["included"] for line in run_of(made).rounds] == [[0, 1, 2], [0, 1, 2]]


def test_too_few_devices_are_told_and_the_run_goes_on_later(consortium):
    with pytest.raises(DeploymentError, match="CH903"):
        consortium.conductor(Sockets(consortium.homes)).run()
    assert status(consortium.study)["state"] == "failed"
    with agents(consortium.homes):
        consortium.conductor(Sockets(consortium.homes)).run()
    assert status(consortium.study)["state"] == "finished"


def test_a_round_that_fails_again_and_again_ends_the_run_for_now(consortium):
    with agents(consortium.homes):
        # READY, then OMEGA and FINAL of two attempts: FINAL is lost each time. Each attempt is called for itself.
        with pytest.raises(SumError, match=r"CH503.*round 1 failed 2 times"):
            consortium.conductor(Losing(consortium.homes, lost=[3, 6])).run()
        assert status(consortium.study)["state"] == "failed"
    assert charges(consortium.homes["hill"]) == [(1, 0), (1, 1)]


def test_a_round_that_no_device_pays_for_any_more_is_passed_over_when_the_run_goes_on(consortium):
    with agents(consortium.homes):
        with pytest.raises(SumError, match=r"CH503.*round 1 failed 2 times"):
            consortium.conductor(Losing(consortium.homes, lost=[3, 6])).run()
        consortium.conductor(Sockets(consortium.homes)).run()
    first, second, *_ = run_of(consortium).rounds
    assert first["included"] == [] and first["wasted"] == [0, 0, 1, 1, 2, 2] and "passed over" in first["note"]
    assert second["included"] == [0, 1, 2]
    assert charges(consortium.homes["hill"])[:3] == [(1, 0), (1, 1), (2, 0)]
    assert status(consortium.study)["state"] == "finished"
    assert not any(finding.wrong for finding in verify(run_of(consortium).folder))


def test_a_device_that_breaks_the_protocol_is_named_left_out_and_called_no_more(four, tmp_path):
    made = four.copy(tmp_path)

    class Spoiling(Sockets):
        """The last device's envelopes hold nothing that anybody could open."""

        def exchange(self, outbox):
            for number, reply in super().exchange(outbox):
                yield number, (spoilt(made, reply) if number == 3 else reply)

    with agents(made.homes):
        made.conductor(Spoiling(made.homes)).run()
    record = run_of(made)
    assert [line["included"] for line in record.rounds] == [[0, 1, 2], [0, 1, 2]]
    liar = made.agreement.terms.ids[3]
    assert record.rounds[0]["broke_the_protocol"] == {liar: "sealed shares that do not open what it committed to"}
    assert record.result["refused"] == {liar: "CH606"}
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
        def exchange(self, outbox):
            stop(consortium.study)
            return super().exchange(outbox)

    with agents(consortium.homes):
        consortium.conductor(Stopping(consortium.homes)).run()
    record = run_of(consortium)
    assert len(record.rounds) == 1
    assert record.result["stopped"] == "after round 1 of 3: the coordinator stopped it"
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
    seeds = {consortium.conductor(Sockets(consortium.homes)).seed for _ in range(8)}
    assert len(seeds) == 8


def test_the_sum_is_what_the_sites_computed(consortium):
    sent = {}
    with agents(consortium.homes) as running:
        for name, agent in running.items():
            real = agent.device._train

            def noted(model, round, attempt, name=name, real=real):
                sent[name, round] = real(model, round, attempt)
                return sent[name, round]

            agent.device._train = noted
        conductor = consortium.conductor(Sockets(consortium.homes))
        conductor.run()
    _, after = conductor.run_folder.checkpoint()
    start = conductor.study.model.start(0)
    moved = sum(np.mean([sent[name, round] for name in NAMES], axis=0) for round in (1, 2, 3))
    # Each of three sums is rounded to the grid, by less than a step for each of three devices.
    assert np.abs(after - start - moved).max() < 3 * conductor.study.terms.codec.grid


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
    assert set(record.result["test"]) == {"r2", "loss", "rmse"}
    assert json.loads((record.folder / "model.json").read_text())["label_bounds"] == [30, 220]
    assert [finding.wrong for finding in verify(record.folder)] == [()] * 5


def test_a_door_takes_what_the_studys_terms_allow_and_does_not_wait_for_more(consortium):
    home, most = consortium.homes["hill"], 1 + consortium.agreement.terms.frame_bytes
    assert most < 10_000  # a model of four numbers, and the records of three devices
    with agents({"hill": home}):
        assert b"CH600" in relay.ask(home.socket, relay.FRAME + bytes(most - 1), timeout=20)  # read, and no message
        with pytest.raises(DeploymentError, match=r"CH901"):
            relay.ask(home.socket, relay.FRAME + bytes(most), timeout=20)
