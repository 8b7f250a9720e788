"""Frames that the server did not sign, or not for this device or not now; answers that their devices did not sign."""

import json
from dataclasses import replace

import pytest

from choral.backends import local_socket
from choral.cli import main
from choral.cli.server import tell_changes
from choral.core import keys as hybrid
from choral.core.errors import DeploymentError, StorageError, TrustError
from choral.core.ledger import Ledger
from choral.core.messages import Call, Close, CloseEarly, Ready, Refusal, Signed, Turn, Upload, decode, encode
from choral.core.signed import REQUEST_HEAD
from choral.deploy.agent import Agent
from choral.deploy.certificates import speaks_with
from choral.deploy.enrolment import SPEAKS
from choral.deploy.services import serve_study
from choral.deploy.serving import COUNTED, speaker_of, status, stop
from choral.deploy.status import status as site_status
from choral.record import read_run
from choral.report.verify import verify
from choral.server.speaker import Speaker, answer_in
from tests.run.consortium import JOB, NAMES, Consortium, Sockets, agents, as_server

FIRST, LAST = Turn(1, 0), Turn(3, 0)


@pytest.fixture(scope="module")
def approved(tmp_path_factory):
    made = Consortium(tmp_path_factory.mktemp("approved"))
    made.approve()
    return made


@pytest.fixture
def consortium(approved, tmp_path):
    return approved.copy(tmp_path)


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """Four that count no colluder: one of them may then be missing."""
    job = JOB.replace("cohort = 3", "cohort = 4\ncolluders = 0").replace("rounds = 3", "rounds = 2")
    made = Consortium(tmp_path_factory.mktemp("four"), names=(*NAMES, "moor"), job=job)
    made.approve()
    return made


def ask(agent, request):
    """What an agent says to the bytes of a request, and whether its card's key signed that for this request."""
    answer = answer_in(
        agent.answer(local_socket.FRAME + request), request[:REQUEST_HEAD], agent.study.roster[agent.name]
    )
    return decode(answer, vector_bytes=0, records_bytes=agent.study.terms.records_bytes)[0]


def a_close(agent, turn=LAST):
    return encode(Close(turn=turn, record=bytes(32)), bytes(agent.study.terms.model_bytes))


def test_a_forged_end_of_a_study_is_refused_by_name_and_the_study_goes_on(consortium):
    screen = []
    with Agent(consortium.homes["hill"], tell=screen.append) as agent:
        forged = [a_close(agent), bytes(REQUEST_HEAD) + a_close(agent)]
        for request in forged:
            said = ask(agent, request)
            assert isinstance(said, Refusal) and (said.code, said.cause) == ("CH622", None)
        assert not consortium.homes["hill"].receipt_path(agent.study).exists()
        assert len(screen) == 1 and screen[0].startswith("CH622 a frame is not one of the study's server")
        assert isinstance(ready(agent, encode(Call(turn=FIRST))), Ready)
    refused = site_status(consortium.homes["hill"]).last_refusal
    assert (refused["code"], refused["cause"]) == ("CH622", "server")


def ready(agent, frame):
    return decode(as_server(agent, frame), vector_bytes=0, records_bytes=agent.study.terms.records_bytes)[0]


def key_in(consortium):
    """The key with which a consortium's server speaks."""
    return speaks_with((consortium.study / SPEAKS).read_text(), consortium.agreement.file.server_key)


def counter_of(speaker):
    """The counter of the next frame, from its head."""
    return int.from_bytes(speaker.head(0, b"")[48:56], "little")


def test_a_frame_for_another_site_or_study_and_one_of_another_key_are_refused(consortium):
    (consortium.folder / "other").mkdir()
    other = Consortium(consortium.folder / "other")
    frame = encode(Call(turn=FIRST))
    with Agent(consortium.homes["hill"]) as agent:
        own, number = speaker_of(consortium.study, agent.study), agent.device.number
        strange = speaker_of(other.study, other.agreement)
        heads = [
            own.head(number + 1, frame),  # its own, which another site repeats
            strange.head(number, frame),
            Speaker(key_in(other), study=agent.study.digest, first=2**63).head(number, frame),
            Speaker(key_in(consortium), study=other.agreement.digest, first=2**63).head(number, frame),
        ]
        assert [ask(agent, head + frame).code for head in heads] == ["CH622"] * 4
        assert isinstance(ask(agent, own.head(number, frame) + frame), Ready)


def test_a_frame_counts_once_also_after_the_site_was_started_again(consortium):
    home, frame = consortium.homes["hill"], encode(Call(turn=FIRST))
    with Agent(home) as agent:
        speaker = speaker_of(consortium.study, agent.study)
        first, second = (speaker.head(agent.device.number, frame) + frame for _ in range(2))
        assert isinstance(ask(agent, second), Ready)
        assert [ask(agent, request).code for request in (first, second)] == ["CH623"] * 2
    with Agent(home) as agent:
        said = [ask(agent, request) for request in (first, second)]
        assert [(one.code, one.turn) for one in said] == [("CH623", FIRST)] * 2
        assert isinstance(ready(agent, frame), Ready)  # and the server's next one is taken


@pytest.mark.parametrize("back", [0, 10**6])
def test_a_server_that_is_started_again_or_restored_uses_no_counter_twice(consortium, monkeypatch, back):
    study = consortium.agreement
    used = counter_of(speaker_of(consortium.study, study))
    path = next(consortium.study.glob(f"runs/*/{COUNTED}"))
    now = json.loads(path.read_text())["starts"]
    if back:
        path.unlink()  # an older copy of the folder, in which it was not yet
    clock = now + back if back else 0.0  # the clock was set back
    monkeypatch.setattr("choral.deploy.serving.time.time", lambda: clock)
    assert counter_of(speaker_of(consortium.study, study)) > used + 2**32 - 1


def test_a_server_whose_key_is_not_the_studys_does_not_begin(consortium):
    other = consortium.folder / "other"
    other.mkdir()
    (consortium.study / SPEAKS).write_text((Consortium(other).study / SPEAKS).read_text())
    with pytest.raises(TrustError, match=r"CH603 the key in speaks\.key is not the one"):
        consortium.conductor(Sockets(consortium.homes))


class StandIn(Sockets):
    """Whoever carries the fourth site's answers puts others in their place; it has not the key of the card."""

    def exchange(self, outbox, heads):
        for number, reply in super().exchange(outbox, heads):
            yield number, reply if number != 3 or len(reply) < 300 else self.changed(reply)

    def changed(self, reply):
        return reply[:-1] + bytes([reply[-1] ^ 1])


def test_an_answer_that_its_device_did_not_sign_is_missing_and_names_nobody(four, tmp_path):
    made = four.copy(tmp_path)
    liar = made.agreement.terms.ids[3]
    with agents(made.homes):
        made.conductor(StandIn(made.homes)).run()
    record = read_run(next((made.study / "runs").iterdir()))
    assert all(set(line.included) <= {0, 1, 2} for line in record.rounds)
    assert not any(line.broke_the_protocol for line in record.rounds)
    assert record.result.refused == {}
    assert any(liar in line.not_proved for line in record.rounds)
    assert verify(record.folder).good


def test_an_end_before_the_last_round_needs_its_reason_and_the_site_shows_it(consortium, capsys):
    class Stopping(Sockets):
        def answers(self, outbox):
            stop(consortium.study)
            return super().answers(outbox)

    with agents(consortium.homes):
        consortium.conductor(Stopping(consortium.homes)).run()
    record = read_run(next((consortium.study / "runs").iterdir()))
    assert record.result.stopped == "after round 1 of 3: the coordinator stopped it" and verify(record.folder).good
    home = consortium.homes["hill"]
    assert site_status(home).ended_early == record.result.stopped
    assert main(["device", "status", "--home", str(home.path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "ENDED early, the server says: after round 1 of 3: the coordinator stopped it" in said
    assert "FINISHED" not in said


def test_forged_frames_of_several_kinds_fill_no_screen(consortium):
    told, frame = [], encode(Call(turn=FIRST))
    with Agent(consortium.homes["hill"], tell=told.append) as agent:
        request = speaker_of(consortium.study, agent.study).head(agent.device.number, frame) + frame
        of_another_version = request[:4] + bytes([2, 0]) + request[6:]
        for _ in range(10):
            assert [ask(agent, one).code for one in (b"", of_another_version)] == ["CH622", "CH602"]
        assert [line[:5] for line in told] == ["CH622", "CH602"]
        assert "anybody may have made it" in told[1]


def test_a_server_whose_clock_is_beyond_all_counters_says_so(consortium, monkeypatch):
    monkeypatch.setattr("choral.deploy.serving.time.time", lambda: float(2**32))
    with pytest.raises(DeploymentError, match=r"CH905 .*clock"):
        speaker_of(consortium.study, consortium.agreement)
    assert not list(consortium.study.glob(f"runs/*/{COUNTED}"))  # and a clock that is right again is taken


def test_a_run_whose_last_round_was_tried_and_not_done_has_ended_early_on_the_screens_of_its_sites(consortium):
    class LastRoundFails(Sockets):
        def answers(self, outbox):
            for number, reply in super().answers(outbox):
                said = decode(reply, vector_bytes=consortium.agreement.terms.upload_bytes, records_bytes=10**6)[0]
                if isinstance(said, Upload) and said.turn.round == 3:
                    stop(consortium.study)  # and nothing arrives
                else:
                    yield number, reply

    with agents(consortium.homes):
        consortium.conductor(LastRoundFails(consortium.homes)).run()
    record = read_run(next((consortium.study / "runs").iterdir()))
    assert record.result.stopped == "after round 2 of 3: the coordinator stopped it"
    assert {site_status(home).ended_early for home in consortium.homes.values()} == {record.result.stopped}


@pytest.mark.parametrize("reason", [b" ", b"\xff\xfe", b"\n\t", b"\xe2\x80\xae"])
def test_a_reason_that_says_nothing_is_none(reason, consortium):
    with Agent(consortium.homes["hill"]) as agent:
        early = CloseEarly(turn=Turn(2, 0), record=bytes(32), reason=reason)
        assert ready(agent, encode(early, bytes(agent.study.terms.model_bytes))).code == "CH625"
        assert isinstance(ready(agent, encode(Call(turn=FIRST))), Ready)


def test_a_site_signs_no_end_before_the_last_round_without_a_reason(consortium):
    with Agent(consortium.homes["hill"]) as agent:
        assert ready(agent, a_close(agent, Turn(2, 0))).code == "CH625"
        assert isinstance(ready(agent, encode(Call(turn=FIRST))), Ready)  # nothing is over
        model = bytes(agent.study.terms.model_bytes)
        early = CloseEarly(turn=Turn(2, 0), record=bytes(32), reason=b"the coordinator stopped it \xff\x1b")
        assert isinstance(ready(agent, encode(early, model)), Signed)
    assert site_status(consortium.homes["hill"]).ended_early.startswith("the coordinator stopped it")


def test_a_server_without_ml_kem_ends_before_its_first_exchange_and_blames_nobody(consortium, monkeypatch):
    transport = Sockets(consortium.homes)
    with agents(consortium.homes) as running, pytest.raises(TrustError, match=r"CH611 .*pip install -U cryptography"):
        monkeypatch.setattr(hybrid, "available", lambda: False)
        consortium.conductor(transport).run()
    assert transport.seen == [] and running["hill"].device.vault.memory.heard == 0
    shown = status(consortium.study)
    assert (shown["code"], shown["gone"]) == ("CH611", {})  # on the server's screen, and not as what its devices said
    with pytest.raises(TrustError, match="CH611"):
        next(serve_study(consortium.study, as_root=True))  # before any process is started
    assert all(not Ledger.read(home.ledger_path).balance.charges for home in consortium.homes.values())


def test_a_servers_status_says_by_which_code_a_site_has_refused_until_it_takes_part_again(four, tmp_path, capsys):
    made = four.copy(tmp_path)
    name, shown, lines = made.agreement.terms.ids[3], [], []

    class Watched(Sockets):
        def answers(self, outbox):
            shown.append(status(made.study))
            yield from super().answers(outbox)

    with agents(made.homes) as running:
        agent = running[name]

        def hear(counter):
            """No frame's counter can be kept in the first round."""
            if status(made.study).get("round") == 1:
                raise StorageError("CH801", "the vault can't be written: No space left on device.")
            agent.device.vault.change(heard=counter)

        agent.listener = replace(agent.listener, hear=hear)
        made.conductor(Watched(made.homes)).run()
    record = read_run(next((made.study / "runs").iterdir()))
    assert [3 in line.included for line in record.rounds] == [False, True]
    assert shown[0]["why"] == {} and {name: "CH801"} in [one["why"] for one in shown] and shown[-1]["why"] == {}
    before = {}
    for one in shown:
        before = tell_changes(before, one)
    lines = capsys.readouterr().out.splitlines()
    full = f"{name}: connected; it last refused by CH801 a file or folder can't be written"
    assert lines == [full, f"{name}: is back"]


def test_a_servers_screen_says_who_is_missing_why_and_that_it_is_back(capsys):
    def looks(connected, *, seen=("hill", "lake"), **why):
        state = {"state": "round", "connected": connected, "why": why, "gone": {}, "excluded": []}
        last_seen = {name: when for name, when in (("hill", "10:00"), ("lake", "10:05")) if name in seen}
        return {**state, "devices": ["hill", "lake"], "last_seen": last_seen}

    before = {}
    for one in (
        looks([], seen=()), looks(["hill"], seen=["hill"]), looks(["hill", "lake"]), looks(["hill"]), looks(["hill"]),
        looks(["hill"], lake="CH905"),
        looks(["hill"], lake="CH901"), looks(["hill", "lake"]), looks(["hill", "lake"]),
    ):  # fmt: skip
        before = tell_changes(before, one)
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "lake: missing since 10:05",
        "lake: missing since 10:05: CH905 a site's clock and its server's differ too much",
        "lake: missing since 10:05: CH901 a device's own process can't be reached",
        "lake: is back",
    ]
