"""Models on sums: the same integers in both ways, one charge per sum, resumed from the register, refused in time."""

import json
import math

import numpy as np
import pandas
import pytest

from choral.asking.question import FIRST, VERSION, Question
from choral.core.errors import ChoralError, LedgerError, TrustError
from choral.core.events import epsilon_of
from choral.core.ledger import Ledger
from choral.record import AnsweredQuestion, read_sum_models
from choral.run.inquiry import Inquiry
from choral.run.modelling import AskedTables, measured, planned_model
from choral.tables.reading import Table
from tests.run.test_inquiry import inquiry, study

COLUMNS = {
    "age": {"bounds": [0, 100]},
    "smoker": {"levels": ["no", "yes"]},
    "days": {"bounds": [0, 1000]},
    "died": {"levels": ["0", "1"]},
}
SICK = {"columns": ["age", "smoker"], "target": "sick"}
LOGISTIC = Question(name="logistic", parameters={**SICK, "rounds": 3})
ADDITIVE = Question(name="additive", parameters={**SICK, "rounds": 2, "bins": 4})
LINEAR = Question(name="linear", parameters={"columns": ["smoker"], "target": "age", "rounds": 2})
HAZARD = Question(
    name="hazard", parameters={"columns": ["age"], "time": "days", "event": "died", "bins": 4, "rounds": 2}
)


def frame(rows=600, seed=0):
    rng = np.random.default_rng(seed)
    age, smoker = rng.uniform(0, 100, rows), rng.choice(["no", "yes"], rows, p=[0.7, 0.3])
    risk = (age - 50) / 12 + 2 * (smoker == "yes")
    days = rng.exponential(800 * np.exp(-risk / 2))
    return pandas.DataFrame(
        {
            "age": age.round(1),
            "smoker": smoker,
            "sick": np.where(risk + rng.logistic(size=rows) > 0.6, "yes", "no"),
            "days": np.minimum(days, 900).round(),
            "died": (days < 900).astype(int),
        }
    )


def asked_study(**ask):
    return study(frame(), ask={"epsilon": 50.0, "most": 12, **ask}, columns=COLUMNS, epsilon=60.0)


@pytest.fixture(scope="module")
def settled():
    return asked_study()


def charges(folder):
    return [Ledger.read(path).balance.charges for path in sorted((folder / "ledgers").glob("*.ledger"))]


@pytest.mark.parametrize(
    "question",
    [LOGISTIC, HAZARD, *(pytest.param(one, marks=pytest.mark.long) for one in (ADDITIVE, LINEAR))],
    ids=["logistic", "hazard", "additive", "linear"],
)
def test_a_simulation_and_a_rehearsal_make_the_same_model_of_the_same_integers(settled, tmp_path, question):
    ways = [inquiry(settled, tmp_path / kind, kind) for kind in ("simulation", "rehearsal")]
    one, other = (way.ask(question) for way in ways)
    totals = [[(known.question, known.state, known.total) for known in way.register.answered] for way in ways]
    assert totals[0] == totals[1] and len(totals[0]) == one.privacy.sums
    assert one.model.state.tolist() == other.model.state.tolist() and one.rows == other.rows
    assert charges(tmp_path / "simulation") == charges(tmp_path / "rehearsal")


def test_the_charge_of_all_rounds_is_the_composition_that_is_printed(settled, tmp_path):
    reported = inquiry(settled, tmp_path).ask(LOGISTIC).privacy
    for paid in charges(tmp_path):
        assert [charge.round for charge in paid] == [1, 2, 3, 4]  # the counts of cells, and three rounds
        assert reported.epsilon == epsilon_of([charge.event for charge in paid], reported.delta)
        assert reported.epsilon_sum == epsilon_of([charge.summed for charge in paid], reported.delta)
    # Gaussians of one μ add up in squares; a closed form that the code does not use.
    price = inquiry(settled, tmp_path).terms.price
    assert math.isclose(math.hypot(*[price.mu] * 4), price.mu * 2)
    assert (reported.sums, reported.asked, reported.from_register) == (4, 4, False)


def test_a_model_predicts_rows_that_it_was_not_made_from_and_is_kept(settled, tmp_path):
    found = inquiry(settled, tmp_path).ask(LOGISTIC)
    assert found.figures["auc"] > 0.75
    (kept,) = read_sum_models(tmp_path)
    assert kept.numbers == (1, 2, 3, 4) and list(kept.state) == found.model.state.tolist()
    tables = AskedTables.of(settled)
    assert kept.rows == sum(table.rows for table in tables.train) == 600 - tables.test.rows
    assert tables.test.rows == 60
    by_name = {(row["column"], row["cell"]): row["estimate"] for row in found.rows}
    assert by_name["age", "slope"] > 0 and by_name["smoker", "yes"] > by_name["smoker", "no"]
    assert all(row["low"] < row["estimate"] < row["high"] for row in found.rows)


def test_a_figure_that_test_rows_do_not_define_is_left_out(settled, tmp_path):
    model = inquiry(settled, tmp_path).ask(LOGISTIC).model
    rows = {name: cells[:5] for name, cells in frame().query("sick == 'no'").to_dict("list").items()}
    assert set(measured(model, Table(source="one class", columns=rows))) == {"accuracy"}


def test_a_hazard_model_orders_lives_and_a_linear_one_has_an_error_in_the_targets_unit(settled, tmp_path):
    hazard = inquiry(settled, tmp_path / "h").ask(HAZARD)
    assert hazard.privacy.sums == 6 and hazard.figures["c_index"] > 0.6
    linear = inquiry(settled, tmp_path / "l").ask(LINEAR)
    assert 20 < linear.figures["rmse"] < 40  # ages are even from 0 to 100, which has a deviation of 29


def test_the_same_model_again_costs_nothing_and_what_was_begun_goes_on(settled, tmp_path):
    whole = inquiry(settled, tmp_path / "whole").ask(LOGISTIC)
    begun = inquiry(settled, tmp_path / "begun")

    def broken(items, *, total, label):
        assert (total, label) == (4, "SUMS")
        yield from (item for item in items if item < 2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begun.ask(LOGISTIC, watch=broken)
    assert [len(paid) for paid in charges(tmp_path / "begun")] == [2] * 6
    # Without its number of rounds: that of the model that was begun is taken.
    found = inquiry(settled, tmp_path / "begun").ask(Question(name="logistic", parameters=SICK))
    assert found.model.state.tolist() == whole.model.state.tolist() and found.question.parameters["rounds"] == 3
    again = inquiry(settled, tmp_path / "begun").ask(LOGISTIC)
    assert again.privacy.from_register and again.rows == whole.rows and again.figures == whole.figures
    assert [len(paid) for paid in charges(tmp_path / "begun")] == [4] * 6
    assert len(list(read_sum_models(tmp_path / "begun"))) == 1


def test_rounds_are_planned_from_what_is_left_and_too_few_are_refused_before_a_charge(tmp_path):
    settled = asked_study(most=4)
    asked = inquiry(settled, tmp_path)
    asked.ask(Question(name="count", parameters={"where": [{"column": "age", "at_least": 60}]}))
    found = asked.ask(Question(name="logistic", parameters=SICK))
    assert found.question.parameters["rounds"] == 2 and found.privacy.sums == 3  # one question, counts, two rounds
    with pytest.raises(LedgerError, match="CH407 the model takes 6 more sums, and 0 of 4 questions are left"):
        asked.ask(HAZARD)
    assert [len(paid) for paid in charges(tmp_path)] == [4] * 6


def test_a_site_approves_models_by_their_name_and_no_sum_goes_by_another(tmp_path):
    asked = inquiry(asked_study(names=["count", "logistic"]), tmp_path)
    for name in ("additive", "hazard"):
        with pytest.raises(TrustError, match="CH608"):
            asked.ask(Question(name=name, parameters=SICK))
    for step in ("additive_round", "additive_cells", "hazard_table", "tables", "logistic_trees"):
        with pytest.raises(TrustError, match="CH608"):
            asked.terms.read(Question(name=step, parameters=SICK).canonical())
    assert asked.terms.read(Question(name="logistic_round", parameters=SICK).canonical()).state == 4
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("kind", "state"), [
    ("simulation", np.full(4, np.nan)), ("simulation", np.array([0, 0, np.inf, 0])), ("simulation", np.zeros(3)),
    ("simulation", np.zeros(0)), ("simulation", np.full(4, 2e6)), ("rehearsal", np.full(4, np.nan)),
    ("rehearsal", np.zeros(5)),
], ids=["nan", "infinite", "short", "none", "huge", "nan, rehearsed", "long, rehearsed"])  # fmt: skip
def test_a_state_that_is_no_model_is_refused_and_nobody_pays(settled, tmp_path, monkeypatch, kind, state):
    monkeypatch.setattr("choral.asking.gradients.settled", lambda _: state)
    # A rehearsed server does not look at it: each device refuses, and the turn fails before anybody has paid.
    code = "CH102" if kind == "simulation" else "CH503" if len(state) == 4 else "CH600"
    with pytest.raises(ChoralError, match=code):
        inquiry(settled, tmp_path, kind).ask(LOGISTIC)
    assert [len(paid) for paid in charges(tmp_path)] == [1] * 6  # the counts of cells, which have no state


@pytest.mark.parametrize("changed", [
    {"columns": ["weight"]}, {"columns": ["sick"]}, {"target": "age"}, {"rounds": 0}, {"trees": 3}, {"where": []},
], ids=str)  # fmt: skip
def test_a_bad_model_is_refused_before_anything_is_written(settled, tmp_path, changed):
    with pytest.raises(ChoralError, match=r"CH102|CH321"):
        inquiry(settled, tmp_path).ask(Question(name="logistic", parameters={**SICK, **changed}))
    assert not list(tmp_path.iterdir())


def test_what_is_kept_of_a_model_follows_from_the_register(settled, tmp_path):
    inquiry(settled, tmp_path).ask(ADDITIVE)
    lines = [json.loads(line) for line in (tmp_path / "questions.jsonl").read_text().splitlines()]
    assert [len(line.get("state", "")) for line in lines] == [0, 64, 64]
    assert Inquiry("simulation", settled, folder=tmp_path).ask(ADDITIVE).privacy.from_register


@pytest.mark.parametrize("given", [{}, {"rounds": 3}])
def test_a_model_that_the_first_version_began_is_read_as_of_that_version(settled, tmp_path, given):
    asked = inquiry(settled, tmp_path)
    wanted = Question(name="logistic", parameters={**SICK, **given})
    assert planned_model(wanted, asked.terms, asked.register, used=0).question.version == VERSION
    step = Question(name="logistic_round", parameters={**SICK, "rounds": 3}, version=FIRST)
    asked.register.answered.append(
        AnsweredQuestion(number=1, question=step.canonical().decode(), words=step.words(), at="", included=(0,),
                         rows=9, l2=8192.0, factor=1, scale=1, total=(0,) * 4)
    )  # fmt: skip
    found = planned_model(wanted, asked.terms, asked.register, used=1).question
    assert found.version == FIRST and found.parameters["rounds"] == 3
    with pytest.raises(TrustError, match="CH333"):  # what is left of it would be another sum
        asked.ask(wanted)
