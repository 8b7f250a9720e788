"""decisions.jsonl is read as it was written, and refused in any other form."""

import json

import pytest

from choral.core.errors import StorageError
from choral.record import Decision, read_decisions

MADE = Decision(device="lake", excluded=True, because="5c" * 32, at="2026-05-04T10:00:00+00:00", signature="00")


def test_a_decision_comes_back_as_it_was_and_a_study_without_any_has_none(tmp_path):
    assert list(read_decisions(tmp_path)) == []
    (tmp_path / "decisions.jsonl").write_text(json.dumps(MADE.to_dict()) + "\n")
    assert list(read_decisions(tmp_path)) == [MADE]


@pytest.mark.parametrize("change", [{"excluded": "yes"}, {"device": 1}, {"more": ""}])
def test_a_decision_of_another_form_is_refused(tmp_path, change):
    (tmp_path / "decisions.jsonl").write_text(json.dumps(MADE.to_dict() | change) + "\n")
    with pytest.raises(StorageError, match="CH802"):
        list(read_decisions(tmp_path))
