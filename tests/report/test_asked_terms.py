"""What questions cost stands on the page of a run before its first round is trained."""

from choral.asking.question import Question
from choral.record import read_run
from choral.report.questions import approved, has_questions, reserved, terms_of
from choral.report.report_page import spent
from choral.run.inquiry import begun
from tests.run.test_modelling import frame
from tests.run.test_sum_study import SICK


def test_devices_have_used_what_is_reserved_for_questions_as_soon_as_one_is_asked(tmp_path):
    given = {"epsilon": 4.0, "rounds": 1, "ask": {"epsilon": 1.5, "most": 3}, **SICK}
    inquiry = begun("simulation", frame(), given, out=tmp_path / "run")
    assert not has_questions(read_run(tmp_path / "run")) and reserved(read_run(tmp_path / "run")) == 0
    reported = inquiry.ask(Question(name="count", parameters={"where": [{"column": "age", "at_least": 60}]}))
    record = read_run(tmp_path / "run")
    assert [one.epsilon for one in spent(record)] == [reported.privacy.epsilon_in_all] * 3
    assert 1.49 < reported.privacy.epsilon_in_all <= 1.5


def test_the_page_says_who_approved_and_what(tmp_path):
    given = {"epsilon": 4.0, "rounds": 1, "ask": {"epsilon": 1.5, "most": 3, "names": ["count"]}, **SICK}
    begun("simulation", frame(), given, out=tmp_path / "run")
    about = read_run(tmp_path / "run").about
    said = approved(about, terms_of(about))
    assert said.startswith("Nobody approved them") and "names: count; about these columns: age, smoker, sick" in said
