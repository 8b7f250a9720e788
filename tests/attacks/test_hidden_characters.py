"""Characters that move a cursor, turn the writing or are not seen: no field of any file brings one to anybody's eyes.

The fields are those that the files hold, found by walking through them, so a new field is tried without a new test.
"""

import copy
import json
import shutil
import tomllib

import numpy as np
import pandas as pd
import pytest

import choral
from choral.cli import main
from choral.config.toml import toml_of
from choral.core.errors import ChoralError
from choral.core.ledger import Ledger
from choral.core.plan import Budget
from choral.record import read_run
from choral.report.live import live_page
from tests.report.runs import make_run
from tests.run.consortium import JOB, Consortium
from tests.run.small import SETTINGS, rows

EVIL = (
    "x\x1b[2J\x1b]0;t\x07\x9b1A"  # clear the screen, set its title, go up a line by one byte of C1
    "\r\x08\x7f"  # go back
    "\u202e\u2066\u200b\u200d\ufeff\u3164\ufe0f\U000e0041"  # turn the writing; be there and not be seen
    "\u2028FORGED\u2029FORGED\x85FORGED\nFORGED"  # begin a line
)
HIDDEN = {character for character in EVIL if not (character.isascii() and character.isprintable())} - {"\n"}
POLICY = ["--max-epsilon", "4", "--delta", "1e-4"]


def harmless(text):
    """Whether a text neither holds a hidden character nor begins a line as a file would have it."""
    return not HIDDEN & set(text) and not any(line.lstrip().startswith("FORGED") for line in text.split("\n"))


def leaves(tree, path=()):
    """The path of every value in a tree of tables and lists."""
    if isinstance(tree, dict | list):
        for key, inner in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(inner, (*path, key))
    else:
        yield path


def tables(tree, path=()):
    """The path of every table in a tree, where a key can be added."""
    if isinstance(tree, dict | list):
        if isinstance(tree, dict):
            yield path
        for key, inner in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from tables(inner, (*path, key))


def at(tree, path):
    for key in path:
        tree = tree[key]
    return tree


def poisoned(tree):
    """The tree with each value replaced in turn, and with a key added to each table in turn."""
    for path in leaves(tree):
        changed = copy.deepcopy(tree)
        at(changed, path[:-1])[path[-1]] = EVIL
        yield changed
    for path in tables(tree):
        changed = copy.deepcopy(tree)
        at(changed, path)[EVIL] = EVIL
        yield changed


def all_poisoned(tree):
    """The tree with every text in it replaced."""
    changed = copy.deepcopy(tree)
    for path in leaves(tree):
        if isinstance(at(tree, path), str):
            at(changed, path[:-1])[path[-1]] = EVIL
    return changed


def toml(tree):
    return "".join(f"{toml_of(str(key))} = {toml_of(value)}\n" for key, value in tree.items())


def said(capsys, *words):
    """The exit status of a verb, after what it printed was looked at."""
    status = main(list(map(str, words)))
    out, err = capsys.readouterr()
    assert harmless(out) and harmless(err), (words, out, err)
    return status


@pytest.fixture(scope="module")
def ready(tmp_path_factory):
    made = Consortium(tmp_path_factory.mktemp("sites"))
    made.approve("hill")
    return made


@pytest.fixture
def consortium(ready, tmp_path):
    return ready.copy(tmp_path)


def approve(consortium, capsys, data=None, study=None):
    words = ["device", "approve", study or consortium.study / "study.toml", "--home", consortium.homes["hill"].path]
    return said(capsys, *words, "--data", data or consortium.tables["hill"], *POLICY)


def test_a_text_with_a_hidden_character_or_a_forged_line_would_be_noticed():
    assert harmless("x\\x1b[2J FORGED\n  plain")
    assert not harmless("x\x1b[2J") and not harmless("a\n  FORGED") and not harmless("a\u202eb")


def test_every_field_of_a_study(consortium, capsys):
    study = tomllib.loads(consortium.agreement.text)
    job = tomllib.loads(study["job"])
    inner = ({**study, "job": toml(changed)} for changed in poisoned(job))
    path, statuses = consortium.folder / "study.toml", []
    for changed in [*poisoned(study), *inner]:
        path.write_text(toml(changed))
        statuses.append(approve(consortium, capsys, study=path))
        shutil.copy(path, consortium.study / "study.toml")
        said(capsys, "server", "status", consortium.study)
    assert len(statuses) > 80
    assert set(statuses) == {1, 2}  # nothing of this is ever approved


def test_every_field_of_an_invitation(ready, consortium, capsys):
    invitation = tomllib.loads((consortium.study / "invitation.toml").read_text())
    cards = [ready.folder / f"{name}.card" for name in consortium.homes]
    for changed in poisoned(invitation):
        path = consortium.study / "invitation.toml"
        path.write_text(toml(changed))
        words = ["device", "join", path, "--name", "new", "--home", consortium.folder / "new"]
        assert said(capsys, *words, "--card", consortium.folder / "new.card") in (1, 2)
        assert said(capsys, "server", "enrol", consortium.study, *cards) in (1, 2)
    assert not (consortium.folder / "new").exists()


def test_every_field_of_a_card(ready, consortium, capsys):
    good = [ready.folder / f"{name}.card" for name in ("harbour", "lake")]
    for changed in poisoned(tomllib.loads((ready.folder / "hill.card").read_text())):
        path = consortium.folder / "hill.card"
        path.write_text(toml(changed))
        assert said(capsys, "server", "enrol", consortium.study, *good, path) in (1, 2)


def test_every_field_of_a_home(consortium, capsys):
    home = consortium.homes["hill"].path
    (home / "log.jsonl").write_text(json.dumps({"at": "now", "event": "refusal", "round": 1, "code": "CH605"}) + "\n")
    for name in ("site.json", "approval.json", "log.jsonl"):
        kept = (home / name).read_text()
        for changed in poisoned(json.loads(kept)):
            (home / name).write_text(json.dumps(changed, ensure_ascii=False) + "\n")
            said(capsys, "device", "status", "--home", home)
            said(capsys, "device", "run", "--systemd", "--home", home)
        (home / name).write_text(kept)


def test_every_column_of_a_table(consortium, capsys):
    header, *body = consortium.tables["hill"].read_text().splitlines()
    path = consortium.folder / "own.csv"
    for name in header.split(","):
        names = ",".join(f'"{EVIL}"' if one == name else one for one in header.split(","))
        path.write_text("\n".join([names, *body]) + "\n")
        assert approve(consortium, capsys, data=path) == (
            0 if name == "name" else 2
        )  # of which nobody reads the latter


def test_a_choral_toml(tmp_path, capsys):
    for changed in poisoned(tomllib.loads(JOB)):
        (tmp_path / "choral.toml").write_text(toml(changed))
        shutil.rmtree(tmp_path / "study", ignore_errors=True)
        words = ["server", "init", tmp_path / "study", "--config", tmp_path / "choral.toml", "--address", "host:1"]
        said(capsys, *words)


def test_names_of_files_and_of_runs_on_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (
        ["simulate", EVIL], ["verify", EVIL], ["ledger", EVIL], [EVIL], ["simulate", f"--{EVIL}"],
        ["device", "join", EVIL, "--name", EVIL], ["server", "status", EVIL], ["server", "init", EVIL],
    ):  # fmt: skip
        assert said(capsys, *words) in (1, 2)


def test_a_ledger(tmp_path, capsys):
    path = tmp_path / "evil.ledger"
    Ledger.open(path, limit=Budget(epsilon=2.0, delta=1e-5), device=EVIL).close()
    assert said(capsys, "ledger", path) == 0


def test_the_devices_columns_and_levels_of_a_simulation(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(size=(240, 2)), columns=["a", EVIL])
    frame["where"] = [f"{EVIL}{row % 6}" for row in range(240)]
    frame["label"] = np.where(frame["a"] > 0.5, EVIL, "no")
    frame.to_csv("rows.csv", index=False)
    federation = {key: SETTINGS[key] for key in ("cohort", "rounds")}
    local = {"steps": 2, "batch": 8, "step_size": 0.5, "clip": 1.0}
    job = {
        "privacy": {"epsilon": 4.0, "delta": 1e-4}, "federation": federation, "local": local,
        "data": {"csv": "rows.csv", "device_column": "where"}, "run": {"name": EVIL, "seed": 1},
    }  # fmt: skip
    (tmp_path / "choral.toml").write_text(toml(job))
    for verb in ("simulate", "simulate --quiet"):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        assert said(capsys, *verb.split(), "choral.toml", "--out", "out") == 0
        assert harmless((tmp_path / "out" / "report.html").read_text())
    assert said(capsys, "verify", "out") == 0


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run folder with every file that a run leaves, and one made up with the demonstration of an attack besides."""
    folder = tmp_path_factory.mktemp("runs")
    choral.rehearse(rows(), **SETTINGS, out=folder / "real")
    make_run(folder / "made-up", attacked=True)
    return folder


def files(folder):
    """Every JSON file of a folder of runs, and each of its first objects."""
    found = [path for path in sorted(folder.rglob("*.json*")) if path.suffix in (".json", ".jsonl")]
    assert {"run.json", "rounds.jsonl", "result.json", "model.json", "attack.json"} <= {path.name for path in found}
    return found


def looked_at(folder, capsys):
    """Verify and report a folder, and look at every page that is made of it."""
    for verb in ("verify", "report"):
        said(capsys, verb, folder)
    if (folder / "report.html").exists():
        assert harmless((folder / "report.html").read_text())
    try:
        pages = [*live_page(read_run(folder)).values()]
    except ChoralError as error:
        pages = [str(error)]
    except (LookupError, TypeError, ValueError, AttributeError):
        pages = []  # a page of a folder that was changed by hand may fail
    assert all(map(harmless, pages))


def look_at_all(finished, capsys, change):
    """Every file's first object in every form that `change` gives it, with all else as it was."""
    for path in files(finished):
        kept = path.read_text()
        first, _, rest = kept.partition("\n") if path.suffix == ".jsonl" else (kept, "", "")
        for changed in change(json.loads(first)):
            text = json.dumps(changed, ensure_ascii=False)
            path.write_text(f"{text}\n{rest}" if path.suffix == ".jsonl" else text)
            looked_at(path.parent, capsys)
        path.write_text(kept)


def test_all_texts_of_each_file_of_a_run_folder(finished, capsys):
    look_at_all(finished, capsys, lambda tree: [all_poisoned(tree)])


@pytest.mark.long
def test_every_field_of_each_file_of_a_run_folder(finished, capsys):
    look_at_all(finished, capsys, poisoned)
