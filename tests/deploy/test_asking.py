"""Questions between organisations: put by the coordinator, asked between rounds, charged and logged at every site."""

import json
from types import SimpleNamespace

import pytest

from choral.asking.catalogue import read_model
from choral.asking.question import Question
from choral.cli import main
from choral.core.errors import ConfigError, RunError, StorageError, TableError, TrustError
from choral.core.ledger import Ledger
from choral.core.masks import Stream
from choral.core.messages import QUESTIONS, Inquire, Refusal, Turn, decode, encode
from choral.deploy.agent import Agent
from choral.deploy.asking import ask_terms, put
from choral.deploy.enrolment import keep_test
from choral.deploy.serving import run_folder
from choral.record import read_run, read_site_questions, read_sum_models
from choral.report.verify import verify
from choral.run import study as settled_study
from choral.run.inquiry import answered
from choral.run.modelling import AnswerRegister, fit
from choral.run.places import Opened
from choral.run.study import plan_of_questions
from tests.run.consortium import JOB, NAMES, Consortium, Sockets, agents, as_server, table

ASKING = JOB.replace("steps = 2", 'steps = 1\nsampling = "partition"').replace("rounds = 3", "rounds = 1")
ASKING += '[ask]\nepsilon = 2.0\nmost = 3\nnames = ["count", "table", "logistic"]\n'
SMOKERS = Question(name="table", parameters={"columns": ["smokes"]})
OLD = Question(name="count", parameters={"where": [{"column": "age", "at_least": 60}]})


@pytest.fixture(scope="module")
def approved(tmp_path_factory):
    made = Consortium(tmp_path_factory.mktemp("asking"), job=ASKING)
    made.approve()
    return made


@pytest.fixture
def consortium(approved, tmp_path):
    return approved.copy(tmp_path)


def folder_of(consortium):
    return run_folder(consortium.study, consortium.agreement).path


def asked(home, study):
    plan = plan_of_questions(study.run_name)
    return [charge.round for charge in Ledger.read(home.ledger_path).balance.charges if charge.plan == plan]


def test_a_question_is_asked_before_the_next_round_and_training_goes_on(consortium, capsys):
    study, folder = consortium.agreement, folder_of(consortium)
    assert put(folder, study, SMOKERS) is None and put(folder, study, OLD) is None
    with agents(consortium.homes):
        consortium.conductor(Sockets(consortium.homes)).run()
    reported = put(folder, study, SMOKERS)
    assert reported.privacy.from_register and {row["smokes"] for row in reported.rows} == {"no", "yes"}
    record = read_run(folder)
    assert len(record.rounds) == 1
    found = verify(folder)
    assert found.good and any("every question was asked" in one.check for one in found)
    for name, home in consortium.homes.items():
        assert asked(home, study) == [1, 2]
        lines = list(read_site_questions(home.path))
        assert {line.words for line in lines} == {SMOKERS.words(), OLD.words()}
        assert main(["device", "questions", "--home", str(home.path)]) == 0
        assert SMOKERS.words() in " ".join(capsys.readouterr().out.split()), name
    kept = [json.loads(line) for line in (folder / "questions.jsonl").read_text().splitlines()]
    assert [line["rows"] for line in kept] == [240, 240]  # three sites of 80 rows: exact, and never one site's
    with pytest.raises(StorageError, match=r"CH800 .*is finished"):
        put(folder, study, Question(name="count", parameters={"where": [{"column": "age", "below": 60}]}))


def test_a_model_is_made_between_rounds_sum_by_sum_and_sites_log_each(consortium):
    study, folder = consortium.agreement, folder_of(consortium)
    model = Question(name="logistic", parameters={"columns": ["age"], "target": "smokes"})
    assert put(folder, study, model) is None  # three questions are left, so it waits with three rounds
    keep_test(consortium.study, table(consortium.study / "public.csv", seed=9))
    with agents(consortium.homes):
        consortium.conductor(Sockets(consortium.homes)).run()
    reported = put(folder, study, model)
    assert reported.privacy.from_register and reported.privacy.sums == 3 and reported.question.parameters["rounds"] == 3
    (kept,) = read_sum_models(folder)
    assert list(kept.state) == reported.model.state.tolist() and kept.rows == 240
    assert reported.figures == kept.figures and 0 <= reported.figures["auc"] <= 1  # on the coordinator's public rows
    assert verify(folder).good
    for home in consortium.homes.values():
        assert asked(home, study) == [1, 2, 3]
        words = {line.words for line in read_site_questions(home.path)}
        assert words == {'In which direction does a model of "smokes" by "age" get better?'}


def test_a_deployed_model_has_the_integers_of_the_simulations_own_function(consortium, monkeypatch, tmp_path):
    monkeypatch.setattr("choral.deploy.agent.Stream", SimpleNamespace(fresh=lambda: Stream(bytes(32))))
    study, folder = consortium.agreement, folder_of(consortium)
    question = Question(name="logistic", parameters={"columns": ["age"], "target": "smokes", "rounds": 2})
    put(folder, study, question)
    with agents(consortium.homes):
        consortium.conductor(Sockets(consortium.homes)).run()
    terms, rows = ask_terms(study), [study.table_in(path) for path in consortium.tables.values()]

    def simulated(checked, state):
        total = sum(checked.codec.noisy(checked.answer(one, state), Stream(bytes(32))) for one in rows)
        return answered(checked, Opened(total=total, included=(0, 1, 2)), 1, state)

    made = fit(read_model(question, terms.columns), terms, AnswerRegister(tmp_path / "nothing"), simulated)
    deployed = AnswerRegister(folder).answered
    assert [one.total for one in made.sums] == [one.total for one in deployed]
    assert [one.state for one in made.sums] == [one.state for one in deployed]


def test_an_answer_of_more_numbers_than_a_small_model_has_fits_its_frames(consortium):
    study, folder = consortium.agreement, folder_of(consortium)
    cuts = [cut / 4 for cut in range(40, 340)]
    long = Question(name="table", parameters={"columns": ["age", "smokes"], "cuts": {"age": cuts}})
    assert put(folder, study, long) is None
    with agents(consortium.homes):
        consortium.conductor(Sockets(consortium.homes)).run()
    assert len(put(folder, study, long).rows) == 602


def test_the_verb_puts_a_question_and_says_that_it_waits(consortium, capsys):
    words = ["ask", str(consortium.study), "table", "smokes"]
    assert main(words) == 0 and "asks it before its next round" in " ".join(capsys.readouterr().out.split())
    assert main([*words, "--json"]) == 0 and json.loads(capsys.readouterr().out)["waiting"] is True
    assert main([*words, "--plan", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert "On a plain population of 180 rows" in planned["sentence"]  # three sites of at least 60 rows
    assert main(["ask", str(consortium.study), "km"]) == 1  # not among the names that [ask] allows


def test_a_question_that_fails_is_reported_and_stops_no_round(consortium):
    study, folder = consortium.agreement, folder_of(consortium)
    put(folder, study, SMOKERS)
    waiting = next((folder / "waiting").iterdir())
    waiting.write_bytes(b'{"name":"km","parameters":{}}')  # by somebody who can write here; no site would answer it
    with agents(consortium.homes):
        consortium.conductor(Sockets(consortium.homes)).run()
    assert len(read_run(folder).rounds) == 1
    with pytest.raises(RunError, match="CH608"):
        put(folder, study, SMOKERS)
    assert all(asked(home, study) == [] for home in consortium.homes.values())


def test_a_site_refuses_what_its_study_may_not_ask_whatever_the_server_says(consortium):
    def answer(agent, question, number):
        frame = encode(Inquire(turn=Turn(QUESTIONS + number, 0), question=question))
        message, _ = decode(as_server(agent, frame), vector_bytes=0, records_bytes=4096)
        return message

    home = consortium.homes[NAMES[0]]
    with agents({NAMES[0]: home}) as running:
        agent = running[NAMES[0]]
        for number, (data, code) in enumerate(
            [
                (b'{"name":"mean","parameters":{"column":"age"}}', "CH608"),
                (b'{"name":"table","parameters":{"columns":["name"]}}', "CH321"),
                (b'{"name": "table","parameters":{"columns":["smokes"]}}', "CH102"),
            ],
            start=1,
        ):
            said = answer(agent, data, number)
            assert isinstance(said, Refusal) and said.code == code
        assert not isinstance(answer(agent, SMOKERS.canonical(), 9), Refusal)
    assert asked(home, consortium.agreement) == []
    assert not list(read_site_questions(home.path))


def test_an_approval_shows_and_reserves_what_may_be_asked(consortium):
    home, study = consortium.homes[NAMES[1]], consortium.agreement
    ledger = Ledger.read(home.ledger_path)
    assert ledger.balance.uploads_of(plan_of_questions(study.run_name)) == 3
    assert ledger.balance.reserved <= 4.0
    with pytest.raises(TrustError, match=r"CH603 .*the policy grants 1"):
        consortium.approve(NAMES[1], epsilon=1.0)


def test_a_site_strikes_names_and_columns_from_what_it_answers(consortium):
    with pytest.raises(ConfigError, match='CH102 "weight" is struck, and the study asks nothing'):
        consortium.approve(NAMES[0], struck=["weight"])
    consortium.approve(NAMES[0], struck=["table", "age"])
    assert consortium.homes[NAMES[0]].approval.policy.struck == ["table", "age"]
    with agents({NAMES[0]: consortium.homes[NAMES[0]]}) as running:
        for question, code in ((SMOKERS, "CH608"), (OLD, "CH321")):
            frame = encode(Inquire(turn=Turn(QUESTIONS + 1, 0), question=question.canonical()))
            said, _ = decode(as_server(running[NAMES[0]], frame), vector_bytes=0, records_bytes=4096)
            assert isinstance(said, Refusal) and said.code == code
    assert asked(consortium.homes[NAMES[0]], consortium.agreement) == []


def test_a_study_that_may_ask_nothing_answers_nothing(tmp_path):
    silent = ASKING.partition("[ask]")[0].replace("cohort = 3", "cohort = 2")
    made = Consortium(tmp_path, names=NAMES[:2], job=silent)
    made.approve(NAMES[0])
    with agents({NAMES[0]: made.homes[NAMES[0]]}) as running:
        frame = encode(Inquire(turn=Turn(QUESTIONS + 1, 0), question=SMOKERS.canonical()))
        message, _ = decode(as_server(running[NAMES[0]], frame), vector_bytes=0, records_bytes=4096)
        assert message.code == "CH608"


@pytest.mark.long
def test_over_flower_every_process_asks_answers_and_makes_a_model(tmp_path):
    pytest.importorskip("flwr", reason="an extra of choral's")
    from choral.deploy.local import LocalDeployment

    tables = {name: table(tmp_path / f"{name}.csv", seed=seed) for seed, name in enumerate(NAMES)}
    (tmp_path / "all").mkdir()
    made = LocalDeployment(tmp_path / "all", ASKING.replace("most = 3", "most = 5"), tables)
    study, folder = made.agreement, run_folder(made.study_folder, made.agreement).path
    model = Question(name="logistic", parameters={"columns": ["age"], "target": "smokes", "rounds": 3})
    cuts = [cut / 4 for cut in range(40, 340)]
    long = Question(name="table", parameters={"columns": ["age", "smokes"], "cuts": {"age": cuts}})
    for question in (SMOKERS, long, model):
        assert put(folder, study, question) is None
    for _ in made.run():
        pass
    assert len(put(folder, study, long).rows) == 602 and len(put(folder, study, SMOKERS).rows) == 2
    reported = put(folder, study, model)
    assert reported.privacy.sums == 3 and len(reported.model.state) == 2
    assert len(read_run(folder).rounds) == 1 and verify(folder).good
    for home in made.homes:
        assert asked(home, study) == [1, 2, 3, 4, 5] and len(list(read_site_questions(home.path))) == 5


def test_a_site_with_more_rows_than_an_answer_has_room_for_is_refused_when_it_approves(tmp_path, monkeypatch):
    asking = Consortium(tmp_path, job=ASKING)
    monkeypatch.setattr(settled_study, "MOST_ROWS", 3)
    with pytest.raises(TableError, match=r"CH206 .* rows of one device, and a question has room for 3\. Nothing was"):
        asking.approve()
    assert not any(home.ledger_path.exists() for home in asking.homes.values())


@pytest.mark.parametrize("columns", ["", 'columns = ["age", "name"]\n'])
def test_a_column_that_only_questions_read_is_approved_with_the_table(tmp_path, columns):
    """The digest of an approval left out columns that training ignores: a question was answered from other cells."""
    job = ASKING.replace('label = "sick"', 'label = "sick"\nignore = ["smokes"]') + columns
    sites = Consortium(tmp_path, job=job)
    sites.approve("hill")
    home, path = sites.homes["hill"], sites.tables["hill"]
    with Agent(home):
        pass
    text = path.read_text()
    path.write_text(text.replace("CANARY1x7,", "another,") if columns else text.replace(",yes,", ",no,", 1))
    assert path.read_text() != text
    with pytest.raises(TableError, match="CH313"):
        Agent(home)
