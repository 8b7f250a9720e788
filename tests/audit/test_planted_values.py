"""Fifty planted values, in cells of every kind, never appear in what people or machines are told."""

import contextlib
import io
import json
import logging
import traceback

import pytest

from choral import simulate
from choral.cli import main
from choral.errors import ChoralError
from choral.learning.tables import load

PLANTED = [f"canary-{number:02}-{'aeiou'[number % 5] * 3}" for number in range(40)]
PLANTED += [str(7_310_000 + 1117 * number) for number in range(10)]
COLUMNS = {
    "age": {"bounds": [0, 100]},
    "job": {"levels": ["a", "b"]},
}


def table(folder, name, changed):
    """100 good rows, with one cell of some column replaced by the planted value, or a whole line by a broken one."""
    lines = [f"{20 + row % 50},{'ab'[row % 2]},{'xy'[row // 3 % 2]}" for row in range(100)]
    column, value = changed
    if column == "line":
        lines[50] = value
    else:
        cells = lines[50].split(",")
        cells[("age", "job", "label").index(column)] = value
        lines[50] = ",".join(cells)
    path = folder / name
    path.write_text("age,job,label\n" + "\n".join(lines) + "\n")
    return path


BROKEN = [("age", "{}"), ("job", "{}"), ("label", "{}"), ("line", "{},{},{},{}"), ("line", '"{}'), ("age", "nan {}")]


@pytest.mark.parametrize("column", BROKEN, ids=str)
def test_no_refusal_of_a_table_shows_a_planted_cell(tmp_path, column, capfd):
    where, form = column
    for number, value in enumerate(PLANTED):
        if where == "age" and value.isdigit() and form == "{}":
            continue  # a number is a legal cell: it is moved to its bound
        path = table(tmp_path, f"site-{number}.csv", (where, form.replace("{}", value)))
        with pytest.raises(ChoralError) as refused:
            load(path, label="label", classes=["x", "y"], columns=COLUMNS, devices=4)
        told = "".join(traceback.format_exception(refused.value)) + json.dumps(refused.value.as_dict())
        assert value not in told
    assert not any(value in stream for stream in capfd.readouterr() for value in PLANTED)


def test_no_verb_shows_a_planted_cell_with_or_without_debug(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    path = table(tmp_path, "sites.csv", ("job", PLANTED[0]))
    job = tmp_path / "choral.toml"
    job.write_text(
        f'[privacy]\nepsilon = 2.0\n[federation]\ndevices = 4\n[data]\ncsv = "{path.name}"\nlabel = "label"\n'
        'classes = ["x", "y"]\n[data.columns.age]\nbounds = [0, 100]\n[data.columns.job]\nlevels = ["a", "b"]\n'
    )
    for words in (["simulate", str(job)], ["simulate", str(job), "--json"], ["simulate", str(job), "--debug"]):
        told = io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            try:
                assert main(words) != 0
            except ChoralError as error:  # --debug lets it pass
                told.write("".join(traceback.format_exception(error)))
        assert "CH311" in told.getvalue()
        assert PLANTED[0] not in told.getvalue() + caplog.text


def test_a_whole_run_writes_and_says_no_planted_number(tmp_path, capfd, caplog):
    # Ages of ten rows are planted numbers, moved to their bound; nothing that a run leaves behind may hold one.
    caplog.set_level(logging.DEBUG)
    planted = PLANTED[40:]
    lines = [
        f"{planted[row] if row < 10 else 20 + row % 50},{'ab'[row % 2]},{'xy'[row // 3 % 2]}" for row in range(200)
    ]
    path = tmp_path / "people.csv"
    path.write_text("age,job,label\n" + "\n".join(lines) + "\n")
    result = simulate(
        str(path), label="label", classes=["x", "y"], columns=COLUMNS, epsilon=4.0, delta=1e-4, devices=4, cohort=3,
        rounds=2, steps=2, batch=8, step_size=0.5, clip=1.0, out=tmp_path / "run",
    )  # fmt: skip
    told = [repr(result), *capfd.readouterr(), caplog.text]
    told += [file.read_bytes().decode("latin1") for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert len(told) > 5
    for value in planted:
        assert not any(value in text for text in told)
