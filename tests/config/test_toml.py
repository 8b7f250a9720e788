"""TOML that choral writes for people reads back and stays readable; settings are found on lines counted by hand."""

import tomllib

import pytest

from choral.config.toml import line_of, to_toml


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


TEXT = """\
# a comment
[run]
seed = 3
"name" = "a"

[data]
csv = "a.csv"
[data.columns.age]
bounds = [0, 1]
[ privacy ]
epsilon = 2.0
"""


@pytest.mark.parametrize(
    ("table", "key", "line"),
    [("run", "seed", 3), ("run", "name", 4), ("data", "csv", 7), ("data", "columns", 6), ("privacy", "epsilon", 11),
     ("run", "", 2), ("privacy", "", 10), ("data", "label", 6)],
)  # fmt: skip
def test_a_key_is_found_on_its_line_and_one_that_is_missing_on_the_line_of_its_table(table, key, line):
    assert line_of("choral.toml", TEXT, table, key) == f"choral.toml:{line}"


def test_a_table_that_is_not_there_is_the_file():
    assert line_of("choral.toml", TEXT, "local", "steps") == "choral.toml"


@pytest.mark.parametrize("text", ["privacy.epsilon = 2.0", "privacy = { epsilon = 2.0 }", "'privacy'.'epsilon' = 2"])
def test_keys_with_dots_and_inline_tables_are_found_too(text):
    assert line_of("choral.toml", f"\n{text}\n", "privacy", "epsilon") == "choral.toml:2"


def test_a_key_of_another_table_is_not_taken_for_it():
    assert line_of("choral.toml", "[run]\nseed = 1\n[data]\nseed = 2\n", "data", "seed") == "choral.toml:4"
    assert line_of("choral.toml", "[run]\nseeds = 1\nseed = 2\n", "run", "seed") == "choral.toml:3"
