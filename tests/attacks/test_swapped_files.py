"""What was shown is what is approved: a file that is swapped under the screen, or after the call, changes nothing."""

import json

import pytest

from choral.cli import approval, main
from choral.core.errors import TrustError
from choral.deploy import enrolment
from choral.deploy.approving import accept, approve, last_drawn, propose
from choral.deploy.home import Policy
from choral.run.agreement import Agreement
from tests.run.consortium import Consortium, table


@pytest.fixture(scope="module")
def ready(tmp_path_factory):
    return Consortium(tmp_path_factory.mktemp("sites"))


@pytest.fixture
def consortium(ready, tmp_path):
    return ready.copy(tmp_path)


@pytest.fixture(scope="module")
def other(ready):
    """The text of another study of the same sites, which has another run: its digest differs, and nothing else does."""
    text = (ready.study / "study.toml").read_text()
    return text.replace(f'run = "{ready.agreement.file.run}"', f'run = "{"0" * 32}"')


def words(consortium, name, *more):
    home, data = consortium.homes[name].path, consortium.tables[name]
    common = ["--data", data, "--home", home, "--max-epsilon", 20, "--delta", 1e-4]
    return list(map(str, ["device", "approve", consortium.study / "study.toml", *common, *more]))


class Person:
    """Somebody at a terminal who types these lines, and before the last one lets something happen."""

    def __init__(self, *lines, before=lambda: None):
        self.lines, self.before = list(lines), before

    def isatty(self):
        return True

    def readline(self):
        if len(self.lines) == 1:
            self.before()
        return self.lines.pop(0) + "\n"


@pytest.fixture
def at_a_terminal(monkeypatch):
    """A person who types the digits of two others and then yes."""

    def begin(**more):
        monkeypatch.setattr(approval, "can_ask", lambda: True)
        monkeypatch.setattr("sys.stdin", Person("417093", "582044", "yes", **more))

    return begin


@pytest.mark.parametrize(
    ("words_typed", "status"),
    [
        (["417093", "582044", "Yes"], 0),
        (["417093", "582044", "", "what?", "Y"], 0),
        (["417093", "58204", "582044", "YES"], 0),
        (["", "", "no"], 1),
        (["417093", "582044", "", "ja", "ok"], 1),
    ],
)  # fmt: skip
def test_an_approval_at_a_terminal_ends_with_0_only_where_it_was_recorded(
    consortium, monkeypatch, capsys, words_typed, status
):
    monkeypatch.setattr(approval, "can_ask", lambda: True)
    monkeypatch.setattr("sys.stdin", Person(*words_typed))
    assert main(words(consortium, "hill")) == status
    said = capsys.readouterr().out
    assert ("APPROVED" in said, "NOTHING was recorded" in said) == (status == 0, status == 1)
    assert consortium.homes["hill"].has_approved == (status == 0)
    assert "--yes" not in said


def test_digits_of_earlier_sites_need_not_be_typed_again_until_the_owner_has_said_no(consortium, monkeypatch, capsys):
    def said(*typed):
        monkeypatch.setattr(approval, "can_ask", lambda: True)
        monkeypatch.setattr("sys.stdin", Person(*typed))
        main(words(consortium, "hill"))
        return capsys.readouterr().out

    first = said("417093", "x", "x", "x", "", "", "")
    assert first.count("CHECK ") == 1 and first.count("CH614") == 3 and "MISSING   lake" in first
    second = said("582044", "no")  # lake's alone
    assert second.count("CHECK ") == 2 and "Six digits of harbour" not in second
    assert "Six digits of harbour" in said("", "", "no")  # who says no may have typed a wrong number


def drawn(home):
    return (home.path / "compare.json").exists()


def approved_digest(home):
    return home.approval.study


def test_a_study_that_is_swapped_while_it_is_on_the_screen_is_not_approved(consortium, other, at_a_terminal, capsys):
    """Two sites approve, and one of them is given another file between the screen and its yes."""
    file, shown = consortium.study / "study.toml", consortium.agreement.digest.hex()
    at_a_terminal()
    assert main(words(consortium, "hill")) == 0
    assert approved_digest(consortium.homes["hill"]) == shown
    at_a_terminal(before=lambda: file.write_text(other))
    assert main(words(consortium, "lake", "--json")) == 0  # without a question nothing is recorded
    assert main(words(consortium, "lake")) == 1
    assert "CH617" in capsys.readouterr().err
    assert not consortium.homes["lake"].has_approved
    assert not consortium.homes["lake"].ledger_path.exists()


def test_what_is_recorded_is_the_study_that_was_shown_and_not_what_its_file_says_later(consortium, other):
    file, home = consortium.study / "study.toml", consortium.homes["hill"]
    shown = propose(home, file, Policy(epsilon=20.0, delta=1e-4), consortium.tables["hill"])
    text = file.read_text()
    file.write_text(other)
    with pytest.raises(TrustError, match="CH617"):
        accept(home, shown)
    assert not home.has_approved
    file.write_text(text)
    accept(home, shown)
    assert (
        approved_digest(home)
        == consortium.agreement.digest.hex()
        == Agreement.read(home.path / "study.toml").digest.hex()
    )


def test_a_swapped_table_is_not_the_one_that_is_approved(consortium):
    home, file = consortium.homes["hill"], consortium.tables["hill"]
    shown = propose(home, consortium.study / "study.toml", Policy(epsilon=20.0, delta=1e-4), file)
    before = file.read_text()
    try:
        file.write_text(consortium.tables["lake"].read_text())
        accept(home, shown)
        assert home.approval.table == shown.held.table  # and an agent refuses any other (CH313)
    finally:
        file.write_text(before)


def test_what_the_screen_said_of_the_ledger_must_still_hold(consortium):
    home, file = consortium.homes["hill"], consortium.study / "study.toml"
    shown = propose(home, file, Policy(epsilon=20.0, delta=1e-4), consortium.tables["hill"])
    consortium.enrol()
    approve(home, file, Policy(epsilon=9.0, delta=1e-4), consortium.tables["hill"], record=True)
    later = home.approval
    file.write_text(shown.text)
    with pytest.raises(TrustError, match="CH617"):
        accept(home, shown)
    assert home.approval == later and home.open_ledger(home.vault()).limit.epsilon == 9.0


def test_yes_without_a_question_takes_the_study_that_was_compared_and_no_other(consortium, other, capsys):
    def code(*more):
        status = main(words(consortium, "hill", "--json", *more))
        said = json.loads(capsys.readouterr().out)
        return status, said.get("error", {}).get("code")

    file, home = consortium.study / "study.toml", consortium.homes["hill"]
    assert code("--yes") == (1, "CH614")  # nobody has seen a number of it
    assert not drawn(home)
    assert code() == (0, None)
    file.write_text(other)
    assert code("--yes") == (1, "CH614")
    assert last_drawn(home.path).study == consortium.agreement.digest.hex()  # kept: the call was about this one
    assert (home.path / "compared.toml").read_text() == consortium.agreement.text
    assert not home.has_approved and not home.ledger_path.exists()
    file.write_text(consortium.agreement.text)
    assert code("--yes") == (0, None)
    assert approved_digest(home) == consortium.agreement.digest.hex()


def test_the_public_table_that_is_kept_is_the_one_that_was_checked(consortium, tmp_path, monkeypatch):
    """Its file is exchanged for one that does not fit, as soon as it was read."""
    public = table(tmp_path / "public.csv", seed=9)
    good, read = public.read_bytes(), Agreement.table_in

    def checked(study, path):
        found = read(study, path)
        public.write_text("nothing\n1\n")
        return found

    monkeypatch.setattr(Agreement, "table_in", checked)
    enrolment.keep_test(consortium.study, public)
    assert (consortium.study / "test.csv").read_bytes() == good
