"""choral device doctor, result and metrics: text for people, one JSON object for machines, and exit codes."""

import json
from types import SimpleNamespace

import pytest

from choral.cli import main
from choral.cli.approval import agreed, compare, spaced
from choral.deploy.approving import DrawnNumber, check_of, drawn_for, keep_typed, last_drawn


@pytest.fixture
def hill(ended_study, tmp_path):
    return ended_study.copy(tmp_path).homes["hill"].path


def said(capsys, *words):
    status = main([*map(str, words), "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_a_result_is_a_page_that_can_be_checked_again(hill, capsys):
    assert main(["device", "result", "--home", str(hill)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "STUDY hearts: over, and signed by hill" in text
    assert "one record replaced, rules S5, against the server and all other devices together" in text
    assert said(capsys, "device", "result", "--home", hill)[1]["model_file"] == str(next((hill / "models").iterdir()))
    page = hill / "result.html"
    assert main(["device", "result", "--home", str(hill), "--check", str(page)]) == 0
    assert "AGREES" in capsys.readouterr().out
    page.write_text(page.read_text().replace("&quot;paid&quot;:3", "&quot;paid&quot;:2"))
    assert said(capsys, "device", "result", "--home", hill, "--check", page) == (
        1,
        {"agrees": False, "differs_in": ["paid"], "notes": []},
    )


def test_a_status_after_the_end_says_that_the_study_is_over(hill, capsys):
    assert main(["device", "status", "--home", str(hill)]) == 0
    text = capsys.readouterr().out
    assert "FINISHED  the study is over" in text
    assert "CUT OFF" not in text and "WAITING" not in text


def test_metrics_go_to_a_file_that_a_collector_may_read(hill, capsys, tmp_path):
    assert main(["device", "metrics", "--home", str(hill)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# HELP choral_agent_up")
    out = tmp_path / "choral.prom"
    assert main(["device", "metrics", "--home", str(hill), "--out", str(out)]) == 0
    assert out.read_text() == printed
    assert out.stat().st_mode & 0o777 == 0o644


def test_the_doctor_ends_with_1_where_something_is_in_the_way(hill, capsys):
    pytest.importorskip("flwr", reason="an extra of choral's")
    assert said(capsys, "device", "doctor", "--home", hill)[0] == 0  # a server that is not up is not in the way
    hill.chmod(0o755)
    status, found = said(capsys, "device", "doctor", "--home", hill)
    assert (status, found["ready"]) == (1, False)
    assert [one["check"] for one in found["checks"] if one["state"] == "wrong"] == ["keys"]
    assert main(["device", "doctor", "--home", str(hill)]) == 1
    assert "NOT READY" in capsys.readouterr().out


@pytest.fixture
def drawn(tmp_path):
    """A home that was shown a study of three sites."""
    keep_typed(tmp_path, DrawnNumber(study="5e" * 32, device="hill", others=("harbour", "lake"), number="417093"))
    return tmp_path


def closed(_):
    return None


def test_the_owner_types_the_numbers_one_after_the_other_and_sees_each_check_at_once(drawn):
    typed = {"Six digits of harbour: ": "582 044", "Six digits of lake: ": ""}
    check = check_of(bytes.fromhex("5e" * 32), ("hill", "417093"), ("harbour", "582044"))
    assert list(compare(drawn, typed.__getitem__)) == [
        f"CHECK     {spaced(check)} with harbour: both must see the same",
        "MISSING   lake: not compared, so nobody sees a false key there",
    ]


def test_digits_are_asked_for_again_at_their_site_and_what_was_typed_before_stays(drawn):
    asked, typed = [], iter(["582044", "12345", "six", "", "123456"])

    def answer(prompt):
        asked.append(prompt)
        return next(typed)

    lines = list(compare(drawn, answer))
    assert asked == ["Six digits of harbour: "] + 3 * ["Six digits of lake: "]
    assert [line[:5] for line in lines] == ["CHECK", "CH614", "CH614", "MISSI"]
    again = list(compare(drawn, answer))
    assert asked[4:] == ["Six digits of lake: "] and [line[:5] for line in again] == ["CHECK", "CHECK"]
    assert list(compare(drawn, closed)) == again  # nothing is asked any more


def test_numbers_that_were_typed_belong_to_the_study_that_was_shown_and_no_other(drawn):
    list(compare(drawn, lambda _: "582044"))
    assert last_drawn(drawn).missing == []
    other = SimpleNamespace(digest=b"t" * 32, roster=[SimpleNamespace(id=name) for name in ("harbour", "hill", "lake")])
    assert drawn_for(drawn, "hill", other).missing == ["harbour", "lake"]
    assert list(compare(drawn, closed)) == ["MISSING   harbour, lake: not compared, so nobody sees a false key there"]


def test_yes_approves_in_any_case_and_anything_else_is_asked_again_up_to_three_times():
    for word in ("yes", "YES", "Yes", "y", "Y"):
        assert agreed(lambda _, word=word: word) is True
    for word in ("no", "N", "NO"):
        assert agreed(lambda _, word=word: word) is False
    answers = iter(["", "yess", "yes"])
    assert agreed(lambda _: next(answers)) is True
    answers = iter(["", "ja", "yess", "yes"])
    assert agreed(lambda _: next(answers)) is None and list(answers) == ["yes"]
    assert agreed(closed) is None
