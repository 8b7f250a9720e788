"""TOML that choral writes for people: it reads back as the same values, and long texts stay readable."""

import tomllib

import pytest

from choral.config.writing import to_toml


@pytest.mark.parametrize(
    "content",
    [
        {"name": "a", "rows": 9, "noise": 0.5, "seeded": False},
        {"plan": {"rows": 9}, "last": 1},
        {"devices": [{"id": "x", "rows": 1}, {"id": "y", "rows": 2}]},
        {"devices": {"rows": 1, "keys": {"signing": "a", "old": {"signing": "b"}}}, "keys": {"signing": "c"}},
        {"devices": [{"id": "x", "keys": {"signing": "a"}, "tables": [{"rows": 1}, {"rows": 2}]}, {"id": "y"}]},
        {"columns": {"age": {"bounds": [0, 100]}, "heart rate": {"levels": ["a", "b"]}, "": {}}, "none": []},
        {"mixed": [1, {"a b": {"c": [True, 1e-9]}}], "inner": {"devices": [{"x.y": 1}]}},
        {"text": "one\ntwo\n"},
        {"text": "three quotes ''' and\na line"},
        {"text": 'quotes " and \\ and \x1b and \u202e\n'},
        {"text": "\n"},
    ],
)
def test_what_is_written_reads_back(content):
    assert tomllib.loads(to_toml(content)) == content


def test_values_come_before_tables_so_that_none_falls_into_the_table_before_it():
    text = to_toml({"table": {"inner": 1}, "after": 2})
    assert text.index("after") < text.index("[table]")
    assert tomllib.loads(text) == {"table": {"inner": 1}, "after": 2}


def test_what_is_not_there_is_left_out():
    assert to_toml({"a": None, "b": 1}) == "b = 1\n"


def test_a_text_of_several_lines_is_shown_line_by_line_unless_something_in_it_is_not_seen():
    assert to_toml({"job": "[data]\nrows = 1\n"}) == "job = '''\n[data]\nrows = 1\n'''\n"
    assert "\x1b" not in to_toml({"job": "a\n\x1b[2J\n"})
