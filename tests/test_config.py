"""choral.toml is read strictly: each complaint has a code, a line and a way out."""

import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from choral.config import Job, job_of, parse, read
from choral.config.settings import settings_of
from choral.core.errors import ConfigError

GOOD = """\
[privacy]      # one table a room
epsilon = 2.0
delta = 1e-5
[federation]
devices = 16
cohort = 10
rounds = 20
[local]
steps = 10
batch = 244
step_size = 0.5
clip = 1.0
[data]
csv = "sites/*.csv"
label = "income"
[data.columns.age]
bounds = [0, 100]
[model]
kind = "mlp"
hidden = [64, 32]
[run]
seed = 42
"""


def test_the_example_of_the_documentation_is_read():
    job = parse(GOOD)
    assert (job.privacy.epsilon, job.federation.cohort, job.local.steps, job.model.hidden) == (2.0, 10, 10, [64, 32])
    assert job.data.columns == {"age": {"bounds": [0, 100]}}
    assert job.where("local", "batch") == "choral.toml:10"
    assert job.where("data", "skew") == "choral.toml:13", "a key that is not there is looked for in its table"
    assert job.where("nowhere", "skew") == "choral.toml"
    assert job.where("data.columns", "age") == "choral.toml:16"


BAD = {
    "unknown key": (("epsilon", "epsilom"), "CH101", 2, 'Did you mean "epsilon"?'),
    "unknown table": (("[local]", "[locale]"), "CH101", 8, 'Did you mean "local"?'),
    "key in the wrong table": (("steps = 10", "rounds = 10"), "CH101", 9, "It belongs in [federation]."),
    "key outside any table": (("[privacy]      # one table a room\n", ""), "CH101", 1, "It belongs in [privacy]."),
    "nan": (("1e-5", "nan"), "CH102", 3, "Suggested: 1e-5"),
    "infinity": (("0.5", "inf"), "CH102", 11, "finite number above 0"),
    "delta of one": (("1e-5", "1.0"), "CH102", 3, "below 1"),
    "text for a number": (("2.0", '"2.0"'), "CH102", 2, "Must be a finite number"),
    "float for a whole number": (("rounds = 20", "rounds = 20.0"), "CH102", 7, "Must be a whole number"),
    "true for a number": (("rounds = 20", "rounds = true"), "CH102", 7, "Must be a whole number"),
    "zero rounds": (("rounds = 20", "rounds = 0"), "CH102", 7, "at least 1"),
    "more rounds than any array holds": (("rounds = 20", "rounds = 9223372036854775808"), "CH102", 7, "below 2^63"),
    "negative clip": (("clip = 1.0", "clip = -1.0"), "CH102", 12, "above 0"),
    "unknown choice": (("clip = 1.0", 'sampling = "poison"'), "CH102", 12, 'Must be "poisson" or "partition".'),
    "unknown model": (('kind = "mlp"', 'kind = "logstic"'), "CH102", 19, 'Did you mean "logistic"?'),
    "a list of the wrong things": (("[64, 32]", "[64, 0]"), "CH102", 20, "Suggested: [64, 32]"),
    "a column that is no table": (
        ("[data.columns.age]\nbounds = [0, 100]", "columns = 3"),
        "CH102",
        16,
        "a table for each",
    ),
    "cohort above devices": (("cohort = 10", "cohort = 17"), "CH104", 6, "Use at most 16."),
    "two sources": (('label = "income"', 'builtin = "adult"'), "CH104", 15, "Keep one."),
    "both epsilon and noise": (("delta = 1e-5", "noise = 0.1"), "CH104", 3, "Keep epsilon"),
    "no epsilon": (("epsilon = 2.0\n", ""), "CH103", 1, "Set epsilon"),
    "mlp without sizes": (("hidden = [64, 32]\n", ""), "CH103", 18, "hidden = [64, 32]"),
    "bad TOML": (("cohort = 10", "cohort 10"), "CH100", 6, "toml.io"),
    "a key twice": (("cohort = 10", "devices = 10"), "CH100", 6, "toml.io"),
    "an open quote at the end": (("seed = 42", 'name = "x'), "CH100", 22, "toml.io"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_malformed_configuration_is_refused_with_code_line_and_fix(case):
    (old, new), code, line, fix = BAD[case]
    assert GOOD.count(old) >= 1
    with pytest.raises(ConfigError) as caught:
        parse(GOOD.replace(old, new, 1))
    assert (caught.value.code, caught.value.where) == (code, f"choral.toml:{line}")
    assert fix in caught.value.fix
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(("content", "what"), [(None, "is not there"), (b"\xff\xfe", "not UTF-8")])
def test_a_file_that_cannot_be_read_is_refused(tmp_path, content, what):
    path = tmp_path / "choral.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=what) as caught:
        read(path)
    assert caught.value.code == "CH105"


def test_a_mark_that_an_editor_puts_before_the_text_is_passed_over(tmp_path):
    path = tmp_path / "choral.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert read(path).privacy == parse(GOOD).privacy


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = 1" + "0" * 5000])
def test_what_is_too_deep_or_too_long_to_be_read_is_no_toml(text):
    with pytest.raises(ConfigError, match=r"CH100 choral\.toml:1 is not valid TOML"):
        parse(text)


def test_a_whole_number_that_no_float_holds_is_refused():
    with pytest.raises(ConfigError, match=r"CH102 .* Must be a finite number above 0"):
        parse(f"privacy.epsilon = 1{'0' * 400}")


def test_paths_are_relative_to_the_file(tmp_path):
    (tmp_path / "choral.toml").write_text(GOOD)
    assert read(tmp_path / "choral.toml").folder == tmp_path


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": np.float64(2.0)},
        {"epsilon": 2.0, "columns": {"age": {"bounds": (0, 100), "missing": None}}},
        {"epsilon": 2.0, "name": "a\x7fb"},
    ],
)
def test_whatever_settings_are_given_as_the_text_that_a_run_keeps_of_them_can_be_read(settings):
    job = job_of(**settings)
    assert parse(job.text).privacy.epsilon == 2.0 and parse(job.text).run.name == job.run.name


def test_settings_by_name_make_the_same_job_as_the_file_that_they_are_written_into():
    columns = {'age of "x"': {"bounds": [0, 100.5], "missing": 3}, "sex": {"levels": ["F", "Mä"]}}
    job = job_of(epsilon=1e-3, local_steps=5, hidden=[8], model="mlp", columns=columns, seed=7, csv="a b.csv")
    again = parse(job.text)
    assert (again.privacy, again.local, again.data, again.model, again.run) == (
        job.privacy, job.local, job.data, job.model, job.run
    )  # fmt: skip


def test_an_unknown_setting_gets_a_suggestion():
    with pytest.raises(ConfigError, match='unknown setting "epsilom"'):
        job_of(epsilom=2)


def test_every_setting_is_documented_and_nothing_else():
    text = (Path(__file__).parent.parent / "docs" / "configuration.md").read_text()
    for table in fields(Job):
        if table.name in ("source", "text", "origin", "maker"):
            continue
        section = text.split(f"## [{table.name}]")[1].split("\n## ")[0]
        rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
        documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
        assert documented == set(settings_of(table.type)), table.name


@pytest.mark.parametrize(
    "unit", ['unit = "person"\n[data]\nperson = "p"\nrows_per_person = 5', 'unit = "device"\n[data]\nlabel = "y"']
)
def test_questions_are_refused_where_the_unit_is_larger_than_a_record(unit):
    local = "[federation]\ncohort = 4\nrounds = 2\n[local]\nsteps = 2\nbatch = 5\nstep_size = 0.5\nclip = 1.0\n"
    with pytest.raises(ConfigError, match=r"CH104 .*\[ask\] with \[privacy\] unit"):
        parse(f"[privacy]\nepsilon = 2.0\n{unit}\n{local}[ask]\nepsilon = 1.0\n")


@pytest.mark.parametrize("key", ["classes", "ignore", "device_column", "limit_column", "person", "delimiter"])
def test_a_setting_of_a_table_is_refused_for_the_table_that_comes_with_choral(key):
    value = ["a", "b"] if key in ("classes", "ignore") else ";"
    with pytest.raises(ConfigError, match=rf"CH104 .*builtin = \"adult\" and {key}"):
        job_of(builtin="adult", epsilon=1.0, **{key: value})
