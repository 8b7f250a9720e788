"""A run folder may come from anybody: only plain files of the folder itself are read, and only in their form."""

import os

import pytest

from choral.core.errors import StorageError
from choral.record.reader import MOST_BYTES, inside, of_right_form, read_json, read_lines

LINE = b'{"round": 1, "seconds": 0.1, "cohort": [0], "included": [0], "test": {}, "note": ""}\n'


@pytest.mark.parametrize("name", ["../run.json", "/etc/passwd", "ledgers/../../a", ""])
def test_a_name_that_leads_out_of_the_folder_is_refused(name, tmp_path):
    with pytest.raises(StorageError, match=r"CH802 .*is no name of a file in this folder"):
        inside(tmp_path, name)


def test_links_pipes_and_files_that_are_too_large_are_refused(tmp_path):
    (tmp_path / "here.json").write_text("{}")
    (tmp_path / "link.json").symlink_to(tmp_path / "here.json")
    (tmp_path / "away").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "large", "wb") as file:
        file.truncate(MOST_BYTES + 1)  # takes no room on the disk
    for name, why in (
        ("link.json", "is no plain file"),
        ("pipe", "is no plain file"),
        ("away/here.json", "is not a real folder"),
        ("large", f"has {MOST_BYTES + 1:,} bytes"),
    ):
        with pytest.raises(StorageError, match=f"CH802 .*{why}"):
            inside(tmp_path, name)
    assert inside(tmp_path, "here.json").read_text() == "{}"
    assert inside(tmp_path, "not there") == tmp_path / "not there"


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "is not there"), (b"{", "can't be read as JSON"), (b"[1]", "is not a JSON object"),
     (b"[" * 100_000, "can't be read as JSON")],
)  # fmt: skip
def test_a_file_that_holds_no_json_object_is_refused(content, why, tmp_path):
    if content is not None:
        (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(StorageError, match=f"CH802 .*run.json {why}"):
        read_json(tmp_path / "run.json")


def test_a_last_line_that_a_crash_cut_off_is_passed_over_and_any_other_is_refused(tmp_path):
    path = tmp_path / "rounds.jsonl"
    assert list(read_lines(path)) == []
    path.write_bytes(LINE + LINE[:20])
    assert [line.round for line in read_lines(path)] == [1]
    path.write_bytes(LINE[:20] + b"\n" + LINE)
    with pytest.raises(StorageError, match=r"CH802 .*rounds.jsonl line 1 is not JSON"):
        list(read_lines(path))


def test_values_that_no_run_writes_are_refused_by_the_kind_of_error_and_never_by_value(tmp_path):
    with pytest.raises(StorageError, match=r"CH802 .*a file does not have the form") as raised, of_right_form(tmp_path):
        bytes.fromhex("secret")
    assert "ValueError" in str(raised.value) and "secret" not in str(raised.value)
