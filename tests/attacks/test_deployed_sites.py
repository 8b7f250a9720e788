"""What a server, a network or a careless restore could try with sites that have approved a study, and what it gets."""

import contextlib
import json
import shutil
from collections import Counter

import numpy as np
import pytest

from choral.backends import local_socket
from choral.backends.wire import Wire
from choral.config.toml import to_toml
from choral.core.errors import ChoralError, LedgerError, SumError, TableError, TrainingError
from choral.core.exposure import EVERYONE
from choral.core.ledger import Ledger, Receipt
from choral.core.messages import Call, Offer, Omega, Ready, Refusal, Turn, decode, encode
from choral.deploy.agent import Agent
from choral.deploy.approving import approve
from choral.deploy.home import Home, Policy
from choral.deploy.status import status
from choral.run.agreement import Agreement
from tests.run.consortium import JOB, NAMES, Consortium, agents, as_server

CANARY = "111.7777"  # a pulse that nobody else has, planted in a declared column; names hold CANARY in one that is not
FIRST = Turn(1, 0)


@pytest.fixture(scope="module")
def approved(tmp_path_factory):
    made = Consortium(tmp_path_factory.mktemp("approved"))
    for path in made.tables.values():
        lines = path.read_text().splitlines()
        cells = lines[1].split(",")
        cells[2] = CANARY
        path.write_text("\n".join([lines[0], ",".join(cells), *lines[2:]]) + "\n")
    made.approve()
    return made


@pytest.fixture
def consortium(approved, tmp_path):
    return approved.copy(tmp_path)


class Wiretap:
    """Agents of this process, asked as the relay asks them; every frame is kept, and may be changed on the way."""

    def __init__(self, running, terms, change=None):
        self.agents = [running[name] for name in terms.ids]
        self.frames, self.change = [], change or (lambda _, frame: frame)

    def exchange(self, outbox):
        for number, frame in outbox.items():
            sent = bytes(self.change(number, frame))
            reply = as_server(self.agents[number], sent)
            self.frames += [(number, sent), (number, reply)]
            yield number, reply


@contextlib.contextmanager
def opened(homes):
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(Agent(home)) for name, home in homes.items()}


def attempt(consortium, running, turn=FIRST, *, study=None, change=None):
    """One turn that a server tries with every device; its wiretap, and the sum or why there is none."""
    study = study or consortium.agreement
    wire = Wire(study.terms, Wiretap(running, study.terms, change))
    try:
        wire.agree(turn, range(len(NAMES)))
        return wire, wire.attempt(turn, range(len(NAMES)), study.settled.model.start(0))
    except SumError as error:
        return wire, error


def charged(home):
    return [(charge.round, charge.attempt) for charge in Ledger.read(home.ledger_path).balance.charges]


def say(agent, message, vector=b""):
    terms = agent.study.terms
    reply = as_server(agent, encode(message, vector))
    return decode(reply, vector_bytes=terms.upload_bytes, records_bytes=terms.records_bytes)[0]


def changed(consortium, **changes):
    """The study with other numbers, as a server would like to have them once everybody has approved."""
    import tomllib

    content = tomllib.loads(consortium.agreement.text)
    for table, values in changes.items():
        content[table] |= values
    return Agreement.of(to_toml(content), "study.toml")


def test_a_server_that_runs_a_weaker_plan_gets_nothing_and_nobody_pays(consortium):
    weaker = changed(consortium, plan={"noise": consortium.agreement.plan.noise / 2})
    with opened(consortium.homes) as running:
        wire, error = attempt(consortium, running, study=weaker)
    assert isinstance(error, SumError)
    assert set(wire.findings.refusals.values()) == {"CH603"}
    assert all(charged(home) == [] for home in consortium.homes.values())


def test_a_server_that_changes_the_roster_gets_nothing(consortium, tmp_path):
    extra = Home.join(tmp_path / "spy", consortium.invitation, "spy")
    spied = Consortium.__new__(Consortium)
    spied.__dict__ |= consortium.__dict__ | {"homes": {**consortium.homes, "spy": extra}}
    before = consortium.agreement
    try:
        study = spied.enrol()
    finally:
        (consortium.study / "study.toml").write_text(before.text)
    with opened(consortium.homes) as running:
        wire = Wire(study.terms, Wiretap({**running, "spy": running["hill"]}, study.terms))
        with pytest.raises(SumError):
            wire.attempt(FIRST, [0, 1, 2], study.settled.model.start(0))
    assert set(wire.findings.refusals.values()) == {"CH603"}
    assert all(charged(home) == [] for home in consortium.homes.values())


def test_a_server_that_sends_two_models_opens_nothing(consortium):
    size = consortium.agreement.terms.model_bytes

    def other_model(number, frame):
        with contextlib.suppress(ChoralError):
            message, _ = decode(frame, vector_bytes=size, records_bytes=consortium.agreement.terms.records_bytes)
            if number == 0 and isinstance(message, Omega):
                return frame[:-4] + np.float32(0.5).tobytes()
        return frame

    with opened(consortium.homes) as running:
        _, error = attempt(consortium, running, change=other_model)
    # Its masks were made for another turn than the others': it is left out, and two are too few for a sum.
    assert isinstance(error, SumError)
    assert error.code == "CH503"
    assert "2 of 3 devices" in str(error)
    assert all(charged(home) == [(1, 0)] for home in consortium.homes.values())


def test_a_server_that_asks_twice_is_answered_once(consortium):
    with opened(consortium.homes) as running:
        wire, _ = attempt(consortium, running)
        uploads = [frame for _, frame in wire.transport.frames if len(frame) == len(max(wire.transport.frames)[1])]
        again, error = attempt(consortium, running)
    assert uploads
    assert isinstance(error, SumError)
    assert set(again.findings.refusals.values()) == {"CH605"}
    assert all(charged(home) == [(1, 0)] for home in consortium.homes.values())


def test_frames_of_before_are_refused_after_a_restart(consortium):
    with opened(consortium.homes) as running:
        wire, _ = attempt(consortium, running)
    requests = [frame for number, frame in wire.transport.frames[::2] if number == 1]
    with opened({"hill": consortium.homes["hill"]}) as running:
        agent = running["hill"]
        terms = agent.study.terms
        for frame in requests:
            reply = as_server(agent, frame)
            said, _ = decode(reply, vector_bytes=terms.upload_bytes, records_bytes=terms.records_bytes)
            if not isinstance(said, Offer):  # whoever asks gets a fresh key, which the old offers do not have
                assert isinstance(said, Refusal)
                assert said.code in ("CH604", "CH605")
    assert charged(consortium.homes["hill"]) == [(1, 0)]


def test_a_restart_in_the_middle_of_a_turn_is_a_drop_out_and_the_charge_stays(consortium):
    study, home = consortium.agreement, consortium.homes["hill"]
    requests = []
    with opened(consortium.homes) as running:
        wire, _ = attempt(consortium, running)
        requests = [frame for number, frame in wire.transport.frames[::2] if number == 1]
    home.vault().change(turn=None)  # and as if even the turn had been forgotten: the ledger still knows it
    with Agent(home) as agent:
        refused = say(agent, Call(turn=FIRST))
        final = as_server(agent, requests[-1])
    assert refused.code == "CH405"
    said, _ = decode(final, vector_bytes=study.terms.upload_bytes, records_bytes=study.terms.records_bytes)
    assert said.code == "CH605"
    assert charged(home) == [(1, 0)]


def test_an_old_ledger_put_back_is_refused(consortium):
    home = consortium.homes["hill"]
    kept = home.ledger_path.read_bytes()
    with opened(consortium.homes) as running:
        attempt(consortium, running)
    home.ledger_path.write_bytes(kept)
    with pytest.raises(LedgerError, match="CH402"):
        Agent(home)
    home.ledger_path.unlink()
    with pytest.raises(LedgerError, match="CH402"):
        Agent(home)


def test_an_old_vault_put_back_spends_nothing_twice(consortium):
    home = consortium.homes["hill"]
    kept = (home.path / "vault").read_bytes()
    with opened(consortium.homes) as running:
        attempt(consortium, running)
    (home.path / "vault").write_bytes(kept)
    with Agent(home) as agent:
        assert say(agent, Call(turn=FIRST)).code == "CH405"
        assert isinstance(say(agent, Call(turn=Turn(2, 0))), Ready)


def test_a_home_put_back_whole_is_noticed_only_by_a_receipt_kept_elsewhere(consortium, tmp_path):
    home = consortium.homes["hill"]
    shutil.copytree(home.path, tmp_path / "backup")
    with opened(consortium.homes) as running:
        attempt(consortium, running)
    receipt = Ledger.read(home.ledger_path).receipt
    shutil.rmtree(home.path)
    shutil.copytree(tmp_path / "backup", home.path)
    with Agent(home):
        pass  # nothing in the folder can know; docs/deployment.md says so, and what to keep
    with pytest.raises(LedgerError, match="CH402"):
        Ledger.read(home.ledger_path, receipt=Receipt(entries=receipt.entries, seal=receipt.seal))


def test_approving_an_old_study_again_does_not_make_its_turns_new(consortium):
    home, first = consortium.homes["hill"], consortium.agreement
    with opened(consortium.homes) as running:
        attempt(consortium, running)
    old = (consortium.study / "study.toml").read_text()
    try:
        consortium.enrol()
        settings = Policy(epsilon=9.0, delta=1e-4)
        approve(home, consortium.study / "study.toml", settings, consortium.tables["hill"], record=True)
        (consortium.study / "study.toml").write_text(old)
        approve(home, consortium.study / "study.toml", settings, consortium.tables["hill"], record=True)
    finally:
        consortium.agreement = first
    with Agent(home) as agent:
        assert agent.device.vault.memory.turn is None  # the vault has forgotten the turns of the first study
        assert say(agent, Call(turn=FIRST)).code == "CH405"  # the ledger has not


def test_the_limit_wins_over_a_server_that_never_stops_asking(consortium):
    codes = set()
    with opened(consortium.homes) as running:
        for number in range(1, 30):
            wire, result = attempt(consortium, running, Turn(number, 0))
            codes |= set(wire.findings.refusals.values())
            if isinstance(result, SumError):
                break
        spent = {name: agent.ledger.balance.epsilon for name, agent in running.items()}
        cost = running["hill"].costs.of(0).event(0)
        more = {
            name: agent.ledger.balance.against(EVERYONE).with_study("", (cost,))[0] for name, agent in running.items()
        }
    assert codes == {"CH409"}
    assert number == 4  # three rounds were approved
    assert all(epsilon <= 4.0 for epsilon in spent.values())
    assert all(epsilon > 4.0 for epsilon in more.values())


def test_an_approval_caps_its_own_study_under_a_larger_limit_for_all(consortium):
    """Three rounds were approved, and ε = 9 in all: a server that asks 62 times gets the allowance for retries."""
    for name in consortium.homes:
        consortium.approve(name, epsilon=9.0)
    turns = [Turn(1 + number // 4, number % 4) for number in range(62)]  # rounds 1 to 16, four attempts each
    codes = set()
    with opened(consortium.homes) as running:
        for turn in turns:
            codes |= set(attempt(consortium, running, turn)[0].findings.refusals.values())
        charged = {name: len(agent.ledger.balance.charges) for name, agent in running.items()}
    assert set(charged.values()) == {5}  # three, and two more for what fails
    assert "CH409" in codes
    home, policy = consortium.homes["hill"], Policy(epsilon=9.0, delta=1e-4)
    reported = approve(home, consortium.study / "study.toml", policy, consortium.tables["hill"])
    assert (reported.planned_rounds, reported.uploads) == (3, 5)
    assert Ledger.read(home.ledger_path).balance.reserved == reported.epsilon_uploads < 6.0


def test_a_crash_before_the_vault_has_noted_a_charge_allows_no_third_one(consortium):
    with Agent(consortium.homes["hill"]) as agent:
        for attempt in range(2):
            agent.charge(1, attempt)  # durable in the ledger; then the power fails
        assert agent.device.vault.memory.turn is None
        assert say(agent, Call(turn=Turn(1, 2))).code == "CH607"
        assert isinstance(say(agent, Call(turn=Turn(2, 0))), Ready)


def test_failed_trainings_and_restarts_use_no_record_more_often_than_is_charged(tmp_path, monkeypatch):
    # A partition whose passes continue: 80 rows in 6 batches of 12 and a rest, so six charged steps are one pass, and
    # pay for one use of a record. Every other training fails after it was paid for; an agent may be restarted.
    job = JOB.replace("[data]\n", 'sampling = "partition"\n[data]\n').replace("steps = 2", "steps = 1")
    made = Consortium(tmp_path, job=job.replace("rounds = 3", "rounds = 6"))
    made.approve("hill", epsilon=50.0)
    model = made.agreement.settled.model.start(0)

    def out_of_memory(*_):
        raise MemoryError

    used = np.zeros(80, dtype=int)
    for attempts in ((0, 1), (2, 3, 4), (5,)):
        with Agent(made.homes["hill"]) as agent:
            for attempt in attempts:
                agent.charge(1, attempt)
                if attempt % 2:
                    agent.train(model, 1, attempt)
                    continue
                with monkeypatch.context() as broken, pytest.raises(TrainingError, match="CH700"):
                    broken.setattr(agent.trainer, "_train", out_of_memory)
                    agent.train(model, 1, attempt)
            used += agent.trainer.uses.of_row
    assert (used.sum(), used.max()) == (72, 1)
    assert made.agreement.settled.costs.of(0).event(0).mu > 0
    with Agent(made.homes["hill"]) as agent:
        events = [agent.costs.of(0).event(number) for number in range(6)]
        assert [event.mu > 0 for event in events] == [True] + [False] * 5  # six steps, one use


def exported_again(path, seed):
    """The same table with its rows in another order, as a database may write it the next time."""
    header, *rows = path.read_text().splitlines()
    order = np.random.default_rng(seed).permutation(len(rows))
    path.write_text("\n".join([header, *(rows[row] for row in order)]) + "\n")


def patients(path, batch):
    """Who stands in these rows of the file: the made-up name of each is in a column that nobody reads."""
    rows = path.read_text().splitlines()[1:]
    return [rows[row].split(",")[1] for row in batch]


def one_round(agent, attempt):
    """The rows that a charged round uses."""
    before = agent.trainer.uses.of_row.copy()
    agent.charge(1, attempt)
    agent.train(agent.study.settled.model.start(0), 1, attempt)
    return np.flatnonzero(agent.trainer.uses.of_row - before)


def test_a_table_in_another_order_is_refused_until_it_is_approved_so_no_record_is_used_more_often_than_charged(
    tmp_path,
):
    # Six charged steps are one pass of a partition, and pay for one use of a record. A table whose rows come in another
    # order after each restart would let those six steps meet one patient six times.
    job = JOB.replace("[data]\n", 'sampling = "partition"\n[data]\n').replace("steps = 2", "steps = 1")
    made = Consortium(tmp_path, job=job.replace("rounds = 3", "rounds = 6"))
    home, data = made.homes["hill"], made.tables["hill"]
    made.approve("hill", epsilon=50.0)
    used, refusals = Counter(), 0
    for restart in range(6):
        try:
            with Agent(home) as agent:
                used.update(patients(data, one_round(agent, restart)))
        except TableError as error:
            assert error.code == "CH313"
            refusals += 1
            made.approve("hill", epsilon=50.0)
            with Agent(home) as agent:
                used.update(patients(data, one_round(agent, restart)))
        exported_again(data, seed=restart)
    charges = Ledger.read(home.ledger_path).balance.charges
    paid = sum(charge.event.mu > 0 for charge in charges)  # each pays for one use of every record
    assert len(charges) == 6
    assert max(used.values()) > 1  # somebody was met more than once ...
    assert max(used.values()) <= paid  # ... and never more often than was charged
    assert refusals == 5


def test_an_approval_of_the_same_table_again_goes_on_in_its_pass(tmp_path):
    job = JOB.replace("[data]\n", 'sampling = "partition"\n[data]\n').replace("steps = 2", "steps = 1")
    made = Consortium(tmp_path, job=job.replace("rounds = 3", "rounds = 6"))
    made.approve("hill", epsilon=50.0)
    used = np.zeros(80, dtype=int)
    for restart in range(6):
        with Agent(made.homes["hill"]) as agent:
            used[one_round(agent, restart)] += 1
        made.approve("hill", epsilon=50.0)
    charges = Ledger.read(made.homes["hill"].ledger_path).balance.charges
    assert (used.sum(), used.max(), sum(charge.event.mu > 0 for charge in charges)) == (72, 1, 1)


def test_an_approval_that_was_lost_begins_a_new_pass_since_nobody_knows_the_table_of_the_last_one(tmp_path):
    job = JOB.replace("[data]\n", 'sampling = "partition"\n[data]\n').replace("steps = 2", "steps = 1")
    made = Consortium(tmp_path, job=job)
    home = made.homes["hill"]
    made.approve("hill", epsilon=50.0)
    with Agent(home) as agent:
        one_round(agent, 0)
    (home.path / "approval.json").unlink()
    exported_again(made.tables["hill"], seed=1)
    made.approve("hill", epsilon=50.0)
    with Agent(home) as agent:
        one_round(agent, 1)
    assert [charge.event.mu > 0 for charge in Ledger.read(home.ledger_path).balance.charges] == [True, True]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("yes", "no", 1),  # one cell
        lambda text: text + text.splitlines()[1] + "\n",  # one row more
        lambda text: text.rstrip("\n").rpartition("\n")[0] + "\n",  # one row less
    ],
)
def test_a_table_that_has_changed_in_a_declared_cell_stops_the_agent_and_one_that_has_not_does_not(consortium, change):
    home = consortium.homes["hill"]
    own = consortium.folder / "own.csv"
    own.write_text(consortium.tables["hill"].read_text())
    settings = Policy(epsilon=4.0, delta=1e-4)
    approve(home, consortium.study / "study.toml", settings, own, record=True)
    text = own.read_text()
    lines = [line.split(",") for line in text.split()]
    own.write_text("\n".join(",".join([*line, "new"]) for line in lines) + "\n")  # a column that nobody reads
    with Agent(home):
        pass
    own.write_text(change(text))
    with pytest.raises(TableError, match=r"CH313 .*own\.csv.*approve"):
        Agent(home)
    own.write_text(text)
    with Agent(home):
        pass


def test_an_approval_from_before_tables_were_pinned_has_to_be_given_again(consortium):
    path = consortium.homes["hill"].path / "approval.json"
    reported = json.loads(path.read_text())
    assert reported.pop("table") and reported.pop("since") == 0
    path.write_text(json.dumps(reported))
    with pytest.raises(TableError, match="CH313"):
        Agent(consortium.homes["hill"])


def test_an_agent_does_not_train_twice_for_one_charge(tmp_path):
    job = JOB.replace("[data]\n", 'sampling = "partition"\n[data]\n').replace("steps = 2", "steps = 1")
    made = Consortium(tmp_path, job=job)
    made.approve("hill", epsilon=50.0)
    model = made.agreement.settled.model.start(0)
    with Agent(made.homes["hill"]) as agent, pytest.raises(TrainingError, match=r"CH703 .* charges pay for 0"):
        agent.train(model, 1, 0)
    with Agent(made.homes["hill"]) as agent:
        agent.charge(1, 0)
        agent.train(model, 1, 0)
        with pytest.raises(TrainingError, match=r"CH703 .* used 2 times; charges pay for 1"):
            agent.train(model, 1, 0)


def test_two_trainings_on_the_same_rows_have_their_own_noise(consortium):
    model = consortium.agreement.settled.model.start(0)
    with Agent(consortium.homes["hill"]) as agent:
        first, second = agent.train(model, 1, 0), agent.train(model, 1, 0)
    with Agent(consortium.homes["hill"]) as agent:
        third = agent.train(model, 1, 0)
    assert np.unique([first, second, third], axis=0).shape[0] == 3


def test_what_is_not_of_the_protocol_is_answered_by_a_code_or_not_at_all(consortium):
    with Agent(consortium.homes["hill"]) as agent:
        assert bytes(agent.answer(local_socket.HELLO)) == b"hill"
        terms = agent.study.terms
        newer = encode(Call(turn=FIRST))[:4] + b"\x63\x00" + bytes(40)  # protocol 99
        for junk, code in ((b"", "CH600"), (b"chrl", "CH600"), (b"x" * 100, "CH600"), (newer, "CH602")):
            reply = as_server(agent, junk)
            said, _ = decode(reply, vector_bytes=terms.upload_bytes, records_bytes=terms.records_bytes)
            assert said.code == code
        for junk in (b"", b"Z", b"Zhello"):
            with pytest.raises(ChoralError, match="CH600"):
                agent.answer(junk)


def test_no_value_of_a_table_is_in_any_log_card_study_frame_or_error(consortium, approved):
    errors = []
    table = approved.tables["hill"].read_text()
    assert CANARY in table
    for fault in (
        table.replace("pulse", "p"),
        table.replace(CANARY, f"{CANARY}x"),
        table.replace(",yes,", f",{CANARY},", 1),
    ):
        (consortium.folder / "faulty.csv").write_text(fault)
        with pytest.raises(TableError) as caught:
            approve(
                consortium.homes["hill"],
                consortium.study / "study.toml",
                Policy(epsilon=4.0, delta=1e-4),
                consortium.folder / "faulty.csv",
            )
        errors.append(str(caught.value))
        (consortium.folder / "faulty.csv").unlink()
    with opened(consortium.homes) as running:
        wire, result = attempt(consortium, running)
        assert not isinstance(result, SumError)
        second, _ = attempt(consortium, running)
        updates = [agent.trainer.update(consortium.agreement.settled.model.start(0)) for agent in running.values()]
        reported = [json.dumps(status(agent.home).to_dict()) for agent in running.values()]
    cards = [path.read_bytes() for path in approved.folder.glob("*.card")]
    files = [path.read_bytes() for path in consortium.folder.rglob("*") if path.is_file()]
    frames = [frame for _, frame in (*wire.transport.frames, *second.transport.frames)]
    assert len(files) > 20
    assert len(cards) == 3
    written = b"\n".join([*files, *cards, *frames, *(text.encode() for text in (*errors, *reported))])
    for canary in (CANARY.encode(), b"CANARY", np.float32(CANARY).tobytes(), *(update.tobytes() for update in updates)):
        assert canary not in written
    assert [error[:5] for error in errors] == ["CH302", "CH303", "CH311"]


def test_a_log_holds_codes_and_numbers_and_no_other_words(consortium):
    with agents(consortium.homes) as running:
        attempt(consortium, running)
        attempt(consortium, running)
    words = set()
    for home in consortium.homes.values():
        for line in (home.path / "log.jsonl").read_text().splitlines():
            reported = json.loads(line)
            assert set(reported) <= {
                "at",
                "event",
                "round",
                "attempt",
                "bytes",
                "code",
                "cause",
                "seconds",
                "choral",
                "study",
            }
            words.add(reported["event"])
            assert reported.get("cause", "server") == "server"
    assert words == {
        "started",
        "offer",
        "wrapped",
        "agreed",
        "ready",
        "charged",
        "upload",
        "opening",
        "refusal",
        "stopped",
    }
