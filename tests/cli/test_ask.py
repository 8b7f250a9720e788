"""choral ask: a question typed, its answer with interval and privacy, the register, training and verify after it."""

import json

import pytest

import choral
from choral.cli import main
from choral.record import read_run
from choral.report.live import live_page
from tests.run.test_inquiry import frame

TOML = """\
privacy.epsilon = 4.0
privacy.delta = 1e-4
[ask]
epsilon = 2.0
most = 4
[federation]
devices = 6
cohort = 4
rounds = 2
colluders = 0
[local]
steps = 1
batch = 20
step_size = 0.5
clip = 1.0
sampling = "partition"
[data]
csv = "people.csv"
label = "sick"
classes = ["no", "yes"]
[data.columns]
age.bounds = [0, 100]
smoker.levels = ["no", "yes"]
sex.levels = ["f", "m"]
[run]
seed = 5
"""


@pytest.fixture
def job(tmp_path):
    frame().to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "choral.toml").write_text(TOML)
    return tmp_path / "choral.toml"


def reported(capsys, *words):
    status = main([str(word) for word in words])
    printed = capsys.readouterr()
    return status, printed.out + printed.err


def test_questions_then_training_then_verify_in_one_folder(job, capsys, tmp_path):
    out = tmp_path / "study"
    status, text = reported(capsys, "ask", job, "table", "smoker", "--by", "sex", "--out", out)
    assert status == 0 and "yes · m" in text and "95 %:" in text
    for part in ("rule S8, δ = 0.0001, one record replaced", "against the server and all other devices together",
                 "against a server that sees only sums", "1 of 4 questions is asked"):  # fmt: skip
        assert part in " ".join(text.split())
    assert max(map(len, text.split("\n")[:-2])) <= 80
    status, again = reported(capsys, "ask", out, "table", "smoker", "--by", "sex", "--json")
    assert json.loads(again)["privacy"]["from_register"] is True
    status, planned = reported(capsys, "ask", out, "count", "--where", "age>=60", "--plan")
    assert status == 0 and "nothing was asked" in planned and "1 of 4" in planned
    assert reported(capsys, "verify", out)[0] == 0
    assert reported(capsys, "ask", out, "count", "--where", "age>=60", "--where", "sex=f")[0] == 0
    status, trained = reported(capsys, "resume", out, "--quiet")
    assert status == 0 and "rule S1 and S8" in trained
    status, verified = reported(capsys, "verify", out)
    assert status == 0 and "ok  every question was asked as the study allows" in verified
    page = (out / "report.html").read_text()
    assert "Questions asked" in page and "answers to a question" in page and "rule S8, δ = 0.0001" in page
    assert reported(capsys, "ask", out, "count", "--where", "sex=m")[0] == 1  # signed and hashed: nothing is added


@pytest.mark.parametrize(("change", "complaint"), [
    ({"scale": 1024}, "sensitivity, factor and noise are not those of the question"),
    ({"l2": 1.0}, "sensitivity, factor and noise are not those of the question"),
    ({"question": '{"name":"table","parameters":{"columns":["sex"]}}'}, "do not say what was asked"),
    ({"number": 3}, "question 3 was answered, but not charged"),
])  # fmt: skip
def test_verify_finds_what_was_changed_in_the_register(job, capsys, tmp_path, change, complaint):
    out = tmp_path / "study"
    reported(capsys, "ask", job, "table", "smoker", "--by", "sex", "--out", out)
    line = json.loads((out / "questions.jsonl").read_text())
    (out / "questions.jsonl").write_text(json.dumps(line | change) + "\n")
    status, text = reported(capsys, "verify", out)
    assert status == 1 and complaint in " ".join(text.split())


@pytest.mark.parametrize(("words", "code", "status"), [
    (["count", "--where", "age"], "CH102", 2),
    (["table", "weight"], "CH321", 2),
    (["trees"], "CH608", 1),
    (["table", "smoker", "--set", "cuts={"], "CH102", 2),
    (["table", "smoker", "--by", "site"], "CH102", 2),
])  # fmt: skip
def test_a_question_that_can_not_be_asked_is_one_line_and_leaves_nothing_charged(
    job, capsys, words, code, status, tmp_path
):
    out = tmp_path / "study"
    found, text = reported(capsys, "ask", job, *words, "--out", out)
    assert found == status and text.startswith(code)
    assert not (out / "ledgers").exists()


def test_python_asks_with_the_names_of_the_catalogue(job, tmp_path):
    asked = choral.study(job, out=tmp_path / "study")
    counts = asked.ask.table(columns=["smoker"], where="age>=60")
    assert list(counts.frame.smoker) == ["no", "yes"] and counts.is_rough is False and counts.test is None
    assert choral.study(tmp_path / "study").ask.table(columns=["smoker"], where=["age>=60"]).privacy.from_register
    assert asked.plan.count(where="sex=f").deviation > 0
    with pytest.raises(AttributeError, match="there is no question 'tree'"):
        asked.ask.tree()


def test_a_model_is_planned_asked_for_shown_on_the_report_and_verified(job, capsys, tmp_path):
    out, words = tmp_path / "study", ["additive", "age", "smoker", "--target", "sick", "--bins", "4"]
    status, text = reported(capsys, "ask", job, *words, "--plan")
    assert status == 0 and "It takes one sum, then 3 rounds." in " ".join(text.split())
    assert "of the 4 sums of this model" in " ".join(text.split()) and "nothing is charged" in text
    status, text = reported(capsys, "ask", job, *words, "--out", out)
    assert status == 0 and "on rows that the model was not made from: auc 0." in text and "4 of 4 questions" in text
    assert "In which direction does a model of" in live_page(read_run(out))["questions"]
    assert reported(capsys, "resume", out)[0] == 0
    assert reported(capsys, "verify", out)[0] == 0
    assert reported(capsys, "report", out)[0] == 0
    page = (out / "report.html").read_text()
    assert "Effect of age on the log-odds" in page and "4 of them were sums of models" in page
    assert "on sums (What is a model of" in (out / "privacy.yaml").read_text()
    line = json.loads((out / "models.jsonl").read_text())
    line["state"][0] += 1.0
    (out / "models.jsonl").write_text(json.dumps(line) + "\n")
    status, text = reported(capsys, "verify", out)
    assert status == 1 and "does not follow from the register" in " ".join(text.split())


def test_a_distribution_is_plotted_and_a_count_is_not(job, tmp_path):
    asked = choral.study(job, out=tmp_path / "study")
    assert asked.ask.cdf(column="age", bins=8).plot(tmp_path / "age.svg").read_text().startswith("<svg")
    with pytest.raises(choral.core.errors.ConfigError, match='CH104 "count" has no curve'):
        asked.ask.count(where="age>=60").plot()


def test_a_plan_without_ask_takes_half_of_epsilon_for_questions_and_says_so(job, capsys, tmp_path):
    job.write_text(TOML.replace("[ask]\nepsilon = 2.0\nmost = 4\n", ""))
    status, text = reported(capsys, "ask", job, "table", "smoker", "--plan")
    assert status == 0 and "nothing may be asked yet" in " ".join(text.split()) and "nothing was asked" in text
    status, plain = reported(capsys, "ask", job, "table", "smoker", "--plan", "--json")
    assert status == 0 and "[ask] epsilon = 2 and most = 20" in json.loads(plain)["assumed"]
    status, refused = reported(capsys, "ask", job, "table", "smoker", "--out", tmp_path / "none")
    assert status == 2 and refused.startswith("CH103")
