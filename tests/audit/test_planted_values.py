"""Fifty planted values, names, cells and paths, never appear in what people or machines receive."""

import contextlib
import io
import json
import logging
import traceback

import numpy as np
import pytest

from choral.backends.wire import MemoryTransport
from choral.cli import main
from choral.config import job_of, parse
from choral.core.errors import ChoralError
from choral.record import read_run
from choral.report.live import live_page
from choral.run.planning import settle
from choral.tables.sources import load
from tests.run.small import SETTINGS

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
        reported = "".join(traceback.format_exception(refused.value)) + json.dumps(refused.value.as_dict())
        assert value not in reported
    assert not any(value in stream for stream in capfd.readouterr() for value in PLANTED)


def reported_by(words):
    """What a verb says, with the traceback where --debug lets an error pass."""
    reported = io.StringIO()
    with contextlib.redirect_stdout(reported), contextlib.redirect_stderr(reported):
        try:
            status = main(words)
        except ChoralError as error:
            reported.write("".join(traceback.format_exception(error)))
            status = error.exit_status
    return status, reported.getvalue()


def job(columns, seed=None, **more):
    """The text of a choral.toml."""
    settings = {**SETTINGS, "rounds": 2, "seed": seed, "csv": "people.csv", "label": "label", "classes": ["x", "y"]}
    return job_of(**settings, columns=columns, **more).text


@pytest.mark.parametrize("flags", [[], ["--json"], ["--debug"]], ids=str)
def test_no_verb_shows_a_planted_cell_with_or_without_debug(tmp_path, monkeypatch, caplog, flags):
    caplog.set_level(logging.DEBUG)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "choral.toml").write_text(job(COLUMNS))
    for value in PLANTED:
        table(tmp_path, "people.csv", ("job", value))
        status, reported = reported_by(["simulate", "choral.toml", *flags])
        assert status == 2 and "CH311" in reported and ("Traceback" in reported) == ("--debug" in flags)
        assert value not in reported + caplog.text


NAMES = [f"Canary Person {number:02}" for number in range(20)]
HUGE = [
    str(731_000_117_000 + 1117 * number) for number in range(10)
]  # moved to their bound; no digest has 12 such digits
EXACT = [f"{41 + number}.{73117 + 991 * number}" for number in range(10)]  # within the bounds
FOLDERS = [f"canary-folder-{number}" for number in range(10)]
RUNS = ("run", "run-2", "run-3")
VERBS = [["rehearse", "choral.toml", "--out", "run"], ["simulate", "choral.toml", "--out", "run-2"]]
VERBS += [["rehearse", "seeded.toml", "--out", "run-3", "--drop", "0.15"]]
VERBS += [
    [verb, path, *flags]
    for verb, path in [
        ("report", "run"),
        ("verify", "run"),
        ("ledger", "run/ledgers/device-0001.ledger"),
        ("resume", "run"),
    ]
    for flags in ([], ["--json"], ["--debug"])
]
SITES = [f"canary-site-{number}" for number in range(6)]  # ids of devices: in the roster, and where it is shown


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Runs of planted people, deep in planted folders: where that is, all that was said, and every frame."""
    deep = tmp_path_factory.mktemp("planted").joinpath(*FOLDERS)
    deep.mkdir(parents=True)
    columns = {**COLUMNS, "weight": {"bounds": [0, 150]}}
    for name, seed in (("choral.toml", None), ("seeded.toml", 1)):
        (deep / name).write_text(job(columns, seed, device_column="site", ignore=["name"]))
    ages, weights = HUGE * 6 + ["30"] * 180, ["70.5"] * 60 + EXACT * 18  # more often than the hold-out takes them
    lines = [
        f"{NAMES[row % 20]},{SITES[row % 6]},{ages[row]},{weights[row]},{'ab'[row % 2]},{'xy'[row // 3 % 2]}"
        for row in range(240)
    ]
    (deep / "people.csv").write_text("name,site,age,weight,job,label\n" + "\n".join(lines) + "\n")
    frames, said = [], []
    exchange, log = MemoryTransport.exchange, io.StringIO()

    def tapped(self, outbox):
        frames.extend(bytes(frame) for frame in outbox.values())
        for number, reply in exchange(self, outbox):
            frames.append(bytes(reply))
            yield number, reply

    handler = logging.StreamHandler(log)
    logging.getLogger().addHandler(handler)
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.chdir(deep)
            patched.setattr(MemoryTransport, "exchange", tapped)
            patched.setattr(logging.getLogger(), "level", logging.DEBUG)
            for words in VERBS:
                status, reported = reported_by(words)
                assert status == (words[0] == "resume"), reported  # a finished run is refused
                said.append(reported)
            said.append(repr(live_page(read_run("run"))))
    finally:
        logging.getLogger().removeHandler(handler)
    return deep, [*said, log.getvalue()], frames


def test_no_frame_of_a_rehearsal_holds_a_planted_value_or_a_row_as_the_device_encodes_it(planted):
    _, _, frames = planted
    # Four devices are asked three times in each of two rounds, and answer; with drop-outs there are more kinds to see.
    assert len(frames) > 2 * 2 * 4 * 3
    assert {frame[11] for frame in frames} == {1, 2, 3, 4, 5, 6, 7, 8}  # the tags of all messages but a refusal
    sent = b"|".join(frames)
    for value in (*NAMES, *HUGE, *EXACT, *FOLDERS, *SITES):  # devices go by number: not even their ids travel
        for form in (value.encode(), value.encode("utf-16-le"), value.encode().hex().encode()):
            assert form not in sent
    # Age 30 of 0 to 100 is −0.4, and a weight w of 0 to 150 is w/75 − 1: two numbers that stand side by side in a row.
    for weight in EXACT:
        for pair in ((-0.4, float(weight) / 75 - 1), (float(weight) / 75 - 1, -0.4)):
            assert np.array(pair, "<f4").tobytes() not in sent and np.array(pair, "<f8").tobytes() not in sent


def test_nothing_that_a_run_says_or_leaves_behind_holds_a_planted_value(planted):
    deep, said, _ = planted
    paths = [path for run in RUNS for path in (deep / run).rglob("*") if path.is_file()]
    files = {str(path.relative_to(deep)): path.read_bytes() for path in paths}
    reported = "|".join([*said, *(content.decode("latin1") for content in files.values())])
    for value in (*NAMES, *HUGE, *EXACT, *FOLDERS):
        assert value not in reported
    # Ids stand where the roster is shown, in the device's own ledger, and in vaults, which know their peers.
    named = {name for name, content in files.items() if SITES[0].encode() in content}
    named = {name for name in named if "/devices/" not in name}
    pages = ("run.json", "result.json", "report.html", "ledgers/device-0001.ledger")
    assert named == {
        "run/signatures.json",  # of the rehearsal without a seed; nobody signs the other
        *(f"{run}/{name}" for run in RUNS for name in pages),
    }


def test_a_report_names_the_file_of_the_data_and_not_where_it_lies(planted):
    people = planted[0] / "people.csv"
    text = (planted[0] / "choral.toml").read_text()
    assert settle(parse(text.replace("people.csv", str(people)))).source == "people.csv"
