"""probes.jsonl is read as it was written, and refused in any other form."""

import json

import pytest

from choral.core.errors import StorageError
from choral.record import PROBES, ProbeLine, read_probes

LINE = ProbeLine(
    round=2,
    attempt=0,
    seed="5c" * 32,
    answers={"a": (1, -(2**62)), "b": (0, 7)},
    refused={"b": "length"},
    named={"b": 4},
    following="AQI=",
    scale=0.5,
)


def test_a_line_comes_back_as_it_was_and_leaves_out_what_is_empty(tmp_path):
    text = json.dumps(LINE.to_dict())
    assert not {"context", "digests", "spared"} & LINE.to_dict().keys()
    (tmp_path / PROBES).write_text(text + "\n" + text[:20])  # a crash left half of the second line
    assert list(read_probes(tmp_path)) == [LINE]
    assert list(read_probes(tmp_path / "elsewhere")) == []


@pytest.mark.parametrize("change", [{"answers": {"a": ["1"]}}, {"round": "2"}, {"more": 1}, {"named": {"b": None}}])
def test_a_line_of_another_form_is_refused(tmp_path, change):
    (tmp_path / PROBES).write_text(json.dumps(LINE.to_dict() | change) + "\n")
    with pytest.raises(StorageError, match="CH802"):
        list(read_probes(tmp_path))
