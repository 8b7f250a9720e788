"""Questions to a study in one process: charged before rows are read, the same integers in both ways, one ledger."""

import json
import math

import numpy as np
import pandas
import pytest

from choral.asking.question import Question
from choral.config import job_of
from choral.core import codec as whole
from choral.core.errors import ChoralError, ConfigError, LedgerError, SumError, TableError, TrustError
from choral.core.events import epsilon_of
from choral.core.ledger import Ledger
from choral.run import study as settled_study
from choral.run.inquiry import Inquiry
from choral.run.planning import settle
from choral.run.questions import preparation

COLUMNS = {"age": {"bounds": [0, 100]}, "smoker": {"levels": ["no", "yes"]}, "sex": {"levels": ["f", "m"]}}
TABLE = Question(name="table", parameters={"columns": ["smoker"], "by": ["sex"]})
OLD = Question(name="count", parameters={"where": [{"column": "age", "at_least": 60}]})


def frame(rows=600, seed=0):
    rng = np.random.default_rng(seed)
    return pandas.DataFrame(
        {
            "age": rng.uniform(0, 100, rows).round(1),
            "smoker": rng.choice(["no", "yes"], rows, p=[0.7, 0.3]),
            "sex": rng.choice(["f", "m"], rows),
            "sick": rng.choice(["no", "yes"], rows),
        }
    )


def study(rows=None, *, ask=None, **changes):
    settings = {
        "devices": 6, "cohort": 4, "rounds": 2, "local_steps": 1, "batch": 20, "step_size": 0.5, "clip": 1.0,
        "epsilon": 4.0, "delta": 1e-4, "seed": 5, "label": "sick", "classes": ["no", "yes"], "columns": COLUMNS,
        "colluders": 0, "sampling": "partition", "ask": {"epsilon": 2.0, "most": 4} if ask is None else ask, **changes,
    }  # fmt: skip
    return settle(job_of(**settings), frame() if rows is None else rows, keep_tables=True)


@pytest.fixture(scope="module")
def settled():
    return study()


def inquiry(settled, folder, kind="simulation", **given):
    folder.mkdir(exist_ok=True)
    return Inquiry(kind, settled, folder=folder, **given)


def cells(table):
    return [
        int(((table.smoker == smoker) & (table.sex == sex)).sum()) for smoker in ("no", "yes") for sex in ("f", "m")
    ]


def test_a_simulation_and_a_rehearsal_open_the_same_integers(settled, tmp_path):
    ways = [inquiry(settled, tmp_path / kind, kind) for kind in ("simulation", "rehearsal")]
    for question in (TABLE, OLD):
        first, second = (way.ask(question) for way in ways)
        assert first.answer.rows == second.answer.rows
    assert ways[0].register.answered[0].total == ways[1].register.answered[0].total
    charged = [
        [Ledger.read(path).balance.charges for path in sorted((way.folder / "ledgers").glob("*.ledger"))]
        for way in ways
    ]
    assert charged[0] == charged[1] and {len(charges) for charges in charged[0]} == {2}


def test_an_answer_is_near_the_truth_and_counts_every_row_exactly(settled, tmp_path):
    asked = inquiry(settled, tmp_path).ask(TABLE)
    kept = inquiry(settled, tmp_path).register.answered[0]
    assert kept.rows == 600  # never noised, and never a subset
    deviation = kept.scale * math.sqrt(6) / kept.factor
    errors = np.array([row["estimate"] for row in asked.answer.rows]) - cells(frame())
    assert 0 < np.abs(errors).max() < 5 * deviation


def test_the_same_question_again_comes_from_the_register_and_costs_nothing(settled, tmp_path):
    first = inquiry(settled, tmp_path).ask(TABLE)
    again = inquiry(settled, tmp_path).ask(Question(name="table", parameters={"by": ["sex"], "columns": ["smoker"]}))
    assert again.answer.rows == first.answer.rows and again.number == first.number
    assert (first.privacy.from_register, again.privacy.from_register) == (False, True)
    assert len(Ledger.read(tmp_path / "ledgers" / "device-0001.ledger").balance.charges) == 1


def test_what_is_charged_is_the_price_of_the_study_by_rule_s8(settled, tmp_path):
    asked = inquiry(settled, tmp_path)
    reported = asked.ask(OLD).privacy
    ledger = Ledger.read(tmp_path / "ledgers" / "device-0003.ledger")
    (charge,) = ledger.balance.charges
    price = asked.terms.price
    assert (charge.rule, charge.event, charge.summed) == ("S8", price.everyone, price.summed)
    assert reported.epsilon == epsilon_of([price.everyone], 1e-4) and reported.epsilon_sum < reported.epsilon
    assert 0.999 < reported.epsilon_in_all / 2.0 <= 1  # four questions take what [ask] gives them
    # What is reserved, rounds and questions together, is what [privacy] allows.
    assert 3.9 < ledger.balance.reserved <= 4.0


def test_more_questions_than_were_approved_are_refused_and_nobody_pays(tmp_path):
    asked = inquiry(study(ask={"epsilon": 1.0, "most": 1}), tmp_path)
    asked.ask(TABLE)
    with pytest.raises(LedgerError, match=r"CH407 device .* refuses question 2: the study may ask 1"):
        asked.ask(OLD)
    assert asked.ask(TABLE).privacy.from_register  # what was answered stays answered
    assert len(Ledger.read(tmp_path / "ledgers" / "device-0001.ledger").balance.charges) == 1


@pytest.mark.parametrize(("question", "error", "words"), [
    (Question(name="trees"), TrustError, "CH608"),
    (Question(name="table", parameters={"columns": ["weight"]}), TableError, "CH321"),
    (Question(name="table", parameters={"columns": ["smoker"], "by": ["site"]}), ConfigError, "CH102"),
    (Question(name="table", parameters={"columns": ["smoker"], "code": "1"}), ConfigError, "CH102"),
    (Question(name="count", parameters={"where": [{"column": "sex", "levels": ["x"]}]}), TableError, "CH322"),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["simulation", "rehearsal"])
def test_a_bad_question_is_refused_before_anything_is_charged(settled, tmp_path, kind, question, error, words):
    with pytest.raises(error, match=words):
        inquiry(settled, tmp_path, kind).ask(question)
    assert not list(tmp_path.iterdir())


def test_only_approved_names_and_columns_are_answered(tmp_path):
    asked = inquiry(study(ask={"epsilon": 1.0, "names": ["count"], "columns": ["sex"]}), tmp_path)
    with pytest.raises(TrustError, match='CH608 "table" is not among the questions that were approved'):
        asked.ask(TABLE)
    with pytest.raises(TableError, match="CH321"):
        asked.ask(OLD)
    asked.ask(Question(name="count", parameters={"where": [{"column": "sex", "levels": ["f"]}]}))


def test_without_an_epsilon_nothing_may_be_asked(tmp_path):
    with pytest.raises(ConfigError, match=r"CH103 .*\[ask\] has no epsilon"):
        inquiry(study(ask={"most": 3}), tmp_path)


def test_a_turn_that_fails_is_paid_for_and_the_next_attempt_is_a_new_charge(tmp_path):
    settled = study(ask={"epsilon": 1.0, "most": 3, "dropouts": False})
    failing = {kind: inquiry(settled, tmp_path / kind, kind, drop=0.3) for kind in ("simulation", "rehearsal")}
    for asked in failing.values():
        with pytest.raises(SumError, match="CH503"):
            asked.ask(TABLE)
        assert asked.register.answered == []
    paid = [
        [len(Ledger.read(path).balance.charges) for path in sorted((asked.folder / "ledgers").iterdir())]
        for asked in failing.values()
    ]
    assert paid[0] == paid[1] and 0 < sum(paid[0]) < 6
    for kind, asked in failing.items():
        again = inquiry(settled, asked.folder, kind).ask(TABLE)
        assert again.number == 2
        after = [len(Ledger.read(path).balance.charges) for path in sorted((asked.folder / "ledgers").iterdir())]
        assert after == [number + 1 for number in paid[0]]


def test_where_nobody_may_drop_out_more_noises_count_and_the_noise_is_less(tmp_path):
    ask = {"epsilon_sum": 1.0, "most": 2}
    usual, strict = (inquiry(study(ask=ask | {"dropouts": some}), tmp_path) for some in (True, False))
    assert strict.terms.price.noises == 6 > usual.terms.price.noises
    assert strict.terms.price.mu > usual.terms.price.mu


def test_planning_a_question_costs_nothing_and_says_how_wide_its_interval_would_be(settled, tmp_path):
    asked = inquiry(settled, tmp_path)
    planned = asked.plan(TABLE)
    assert planned.expected.width > 2 * planned.deviation and planned.privacy.asked == 0
    assert not list(tmp_path.iterdir())


def test_a_question_that_the_noise_leaves_without_an_answer_is_refused_before_a_charge(tmp_path):
    asked = inquiry(study(ask={"epsilon": 0.05, "most": 4}), tmp_path)
    for question in (
        Question(name="quantiles", parameters={"column": "age"}),
        Question(name="bounds", parameters={"columns": ["age"]}),
    ):
        with pytest.raises(TableError, match="CH320 too few rows for an honest answer"):
            asked.ask(question)
    assert not list(tmp_path.iterdir())


def test_a_study_may_demand_a_crowd_of_rows(tmp_path):
    asked = inquiry(study(ask={"epsilon": 2.0, "most": 4, "smallest_crowd": 601}), tmp_path)
    with pytest.raises(TableError, match=r"CH320 .*600, and smallest_crowd is 601"):
        asked.ask(TABLE)
    assert not list(tmp_path.iterdir())
    inquiry(study(ask={"epsilon": 2.0, "most": 4, "smallest_crowd": 600}), tmp_path).ask(TABLE)


def test_without_a_seed_two_answers_to_one_question_differ(tmp_path):
    settled = study(seed=None)
    one, other = (inquiry(settled, tmp_path / name).ask(TABLE).answer.rows for name in ("a", "b"))
    assert one != other


def test_a_torn_line_of_the_register_is_taken_out_by_the_next_answer(settled, tmp_path):
    asked = inquiry(settled, tmp_path)
    asked.ask(TABLE)
    with (tmp_path / "questions.jsonl").open("ab") as file:
        file.write(b'{"number": 2, "quest')
    inquiry(settled, tmp_path).ask(OLD)
    lines = (tmp_path / "questions.jsonl").read_text().splitlines()
    assert [json.loads(line)["number"] for line in lines] == [1, 2]


def test_arrays_without_columns_can_not_be_asked(tmp_path):
    rng = np.random.default_rng(0)
    rows = (rng.uniform(-1, 1, (240, 3)), rng.integers(0, 2, 240))
    bare = {"label": None, "classes": None, "columns": None}
    settled = study(rows, **bare)
    with pytest.raises(ChoralError, match="CH104 questions need tables"):
        Inquiry("simulation", settled, folder=tmp_path)


def with_commas(folder, *, empty=0.0, devices=1):
    """Files as a German hospital writes them: 27,3 for 27.3, some cells empty and some that hold R's word for it."""
    rng, truth = np.random.default_rng(3), []
    for device in range(devices):
        bmi = rng.normal(27.3, 3, 1200 // devices).clip(10, 60).round(1)
        blank = rng.random(len(bmi)) < empty
        cells = [("" if row % 2 else "NA") if gone else str(value).replace(".", ",")
                 for row, (value, gone) in enumerate(zip(bmi, blank, strict=True))]  # fmt: skip
        lines = [f"{cell};{'yes' if rng.random() < 0.5 else 'no'}" for cell in cells]
        (folder / f"site-{device}.csv").write_text("\n".join(["bmi;sick", *lines]) + "\n")
        truth += bmi[~blank].tolist()
    return np.array(truth)


@pytest.mark.parametrize("devices", [1, 6])
def test_numbers_with_decimal_commas_are_read_as_training_reads_them(tmp_path, devices):
    truth = with_commas(tmp_path, devices=devices)
    source = str(tmp_path / ("site-0.csv" if devices == 1 else "site-*.csv"))
    settled = study(source, columns={"bmi": {"bounds": [10, 60]}}, ask={"epsilon": 400.0, "most": 9}, epsilon=500.0)
    asked = inquiry(settled, tmp_path / "run")
    mean = asked.ask(Question(name="mean", parameters={"column": "bmi"})).rows[0]
    assert mean["low"] <= truth.mean() <= mean["high"] and mean["estimate"] == pytest.approx(truth.mean(), abs=0.3)
    median = asked.ask(Question(name="quantiles", parameters={"column": "bmi", "levels": [0.5]})).rows[0]
    assert median["estimate"] == pytest.approx(np.median(truth), abs=0.5)
    count = asked.ask(Question(name="count", parameters={"where": [{"column": "bmi", "at_least": 27}]})).rows[0]
    assert count["estimate"] == pytest.approx(np.sum(truth >= 27), abs=20)


def test_empty_cells_are_left_out_and_counted_whatever_constant_training_takes_for_them(tmp_path):
    truth = with_commas(tmp_path, empty=0.2)
    columns = {"bmi": {"bounds": [10, 60], "missing": 60}}
    settled = study(str(tmp_path / "site-0.csv"), columns=columns, ask={"epsilon": 400.0, "most": 9}, epsilon=500.0)
    asked = inquiry(settled, tmp_path / "run")
    mean = asked.ask(Question(name="mean", parameters={"column": "bmi"}))
    assert mean.rows[0]["low"] <= truth.mean() <= mean.rows[0]["high"]
    assert mean.rows[0]["estimate"] == pytest.approx(truth.mean(), abs=0.3)
    (about,) = mean.to_dict()["about"]
    assert about["quantity"] == "rows with a value" and about["low"] <= len(truth) <= about["high"] < 1100
    median = asked.ask(Question(name="percentiles", parameters={"column": "bmi", "levels": [0.5], "bins": 64})).rows[0]
    assert median["estimate"] == pytest.approx(np.median(truth), abs=1)


def test_a_question_of_the_first_version_is_not_asked_and_nobody_is_charged(settled, tmp_path):
    with pytest.raises(TrustError, match="CH333"):
        inquiry(settled, tmp_path).ask(Question(name="table", parameters=TABLE.parameters, version=1))
    assert not inquiry(settled, tmp_path).register.answered
    ledgers = [Ledger.read(path) for path in (tmp_path / "ledgers").glob("*.ledger")]
    assert not any(ledger.balance.charges for ledger in ledgers)


def test_a_device_refuses_a_question_of_the_first_version_before_it_reads_or_pays(settled, tmp_path):
    terms = inquiry(settled, tmp_path).terms
    prepare = preparation(terms, ledger=None, table=None, noise=None, note=None)
    with pytest.raises(TrustError, match="CH333"):
        prepare(Question(name="table", parameters=TABLE.parameters, version=1).canonical())
    assert prepare(TABLE.canonical()).length == 2 * 2 + 2  # cells, rows without a value, and rows


@pytest.mark.parametrize("kind", ["simulation", "rehearsal"])
def test_a_device_with_more_rows_than_an_answer_has_room_for_is_refused_before_anybody_pays(
    kind, settled, tmp_path, monkeypatch
):
    largest = max(table.rows for table in settled.data.tables)
    for room, refused in ((largest, False), (largest - 1, True)):
        monkeypatch.setattr(whole, "MOST_ROWS", room)
        monkeypatch.setattr(settled_study, "MOST_ROWS", room)
        folder = tmp_path / str(room)
        if refused:
            with pytest.raises(
                TableError, match=f"CH206 {largest} rows of one device, .* room for {room}. Nothing was"
            ):
                inquiry(settled, folder, kind)
            assert not list(folder.rglob("*.ledger"))
        else:
            assert inquiry(settled, folder, kind).ask(TABLE).answer.rows
