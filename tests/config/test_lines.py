"""Where a setting stands: lines counted by hand, in every way in which TOML lets somebody write a key."""

import pytest

from choral.config.lines import line_of

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
