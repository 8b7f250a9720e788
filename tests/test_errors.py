"""One tree of refusals: a code that is listed, one printable line, and an exit status by its branch."""

import pytest

from choral.core import errors
from choral.core.errors import CODES, ChoralError, ConfigError, LedgerError, NotReadyError, SumError

BRANCHES = {
    "1": "ConfigError", "2": "PlanError", "3": "TableError", "4": "LedgerError", "5": "SumError", "6": "TrustError",
    "7": "TrainingError", "8": "StorageError", "9": "DeploymentError",
}  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_every_code_belongs_to_a_branch_whose_status_says_whether_anything_was_started(code):
    branch = getattr(errors, BRANCHES[code[2]])
    assert branch.exit_status == (2 if code[2] in "123" else 1)
    assert str(branch(code, "what.")) == f"{code} what."


def test_a_code_that_is_not_listed_cannot_be_raised():
    with pytest.raises(KeyError, match="CH999 is not listed"):
        ConfigError("CH999", "what.")


def test_a_message_is_one_line_in_the_order_code_place_what_why_and_fix():
    error = LedgerError("CH401", "what.", fix="fix.", why="why.", where="a.ledger")
    assert str(error) == "CH401 a.ledger what. why. fix."
    assert error.as_dict() == {"code": "CH401", "where": "a.ledger", "what": "what.", "why": "why.", "fix": "fix."}


@pytest.mark.parametrize("part", ["what", "where", "why", "fix"])
def test_characters_that_move_a_cursor_or_are_not_seen_are_written_out(part):
    texts = {"what": "what.", part: "a\x1b[2J\nb\u202ec"}
    error = ConfigError("CH101", texts.pop("what"), **texts)
    assert str(error).isprintable() and r"\x1b" in str(error) and r"\n" in error.as_dict()[part]


def test_a_turn_that_nobody_was_charged_for_is_a_sum_that_failed_too():
    assert issubclass(NotReadyError, SumError) and issubclass(SumError, ChoralError)
