"""Record and replay, the paths after the update: with the update pinned, a replaced training record changes no byte.

Metrics, lines of rounds, run.json, ledgers, the model, the terminal, the logs, the report and the registry entry may
depend on the opened sums, on public hold-out rows and on sizes, and on nothing else. Their declared sensitivity is 0.
"""

import argparse
import json
import logging
import shutil
from datetime import UTC, datetime
from types import SimpleNamespace

import numpy as np
import pandas
import pytest

from choral.cli import training
from choral.config import job_of
from choral.engine.compiled import CompiledEngine
from choral.record import read_run
from choral.report.live import live_page
from choral.run.folder import RunFolder
from choral.run.planning import settle
from choral.run.runs import Run
from choral.tables.records import hold_out
from choral.tables.sources import load
from tests.run.small import SETTINGS

ROWS = 240
COLUMNS = {"age": {"bounds": [0, 100]}, "job": {"levels": ["a", "b", "c"]}}
SAME = {"seed": SETTINGS["seed"], "devices": SETTINGS["devices"]}
JOB = job_of(**SETTINGS, label="label", classes=["x", "y"], columns=COLUMNS)
FILES = {
    "run.json", "rounds.jsonl", "checkpoint.safetensors", "result.json", "model.safetensors", "model.json",
    "report.html", "privacy.yaml", *(f"ledgers/device-{number:04}.ledger" for number in range(1, 7)),
}  # fmt: skip


def table():
    rng = np.random.default_rng(1)
    jobs, labels = rng.choice(list("abc"), ROWS), rng.choice(list("xy"), ROWS)
    return pandas.DataFrame({"age": rng.uniform(0, 100, ROWS), "job": jobs, "label": labels})


def trained_rows():
    """The rows of the table that devices train on: found by their number, the table's only column."""
    numbered = load((np.arange(ROWS, dtype=np.float32)[:, None], np.arange(ROWS) % 2), **SAME)
    return hold_out(numbered.records, seed=SAME["seed"]).train.features[:, 0].astype(int)


def neighbour(rng, rows):
    """The table with one of these rows replaced: by an ordinary record, or one far beyond its declared bounds."""
    other, row = table(), rng.choice(rows)
    age = rng.choice([rng.uniform(0, 100), -1e30, 1e30, 1e-30])
    other.loc[row] = [age, rng.choice(list("abc")), rng.choice(list("xy"))]
    return other


class Clock(datetime):
    """It is always the same time."""

    @classmethod
    def now(cls, tz=None):
        return datetime(2026, 11, 15, tzinfo=tz or UTC)


@pytest.fixture
def reported(tmp_path, monkeypatch, capfd, caplog):
    """Everything that a run on a table leaves behind or says, with the updates and the clock pinned."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr("choral.run.folder.datetime", Clock)
    monkeypatch.setattr("choral.core.ledger.datetime", Clock)
    monkeypatch.setattr("choral.run.runs.time", SimpleNamespace(monotonic=lambda: 0.0))

    def updates(_, parameters, number, cohort):
        return np.random.default_rng([number, *cohort]).normal(0, 0.01, (len(cohort), len(parameters)))

    def total(self, parameters, number, cohort):
        return SimpleNamespace(
            total=np.rint(updates(self, parameters, number, cohort).sum(axis=0) / self.codec.grid).astype(int)
        )

    monkeypatch.setattr(CompiledEngine, "train", total)

    def run(rows, kind="simulation", compare=False):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        caplog.clear()
        run = Run(kind, settle(JOB, rows), folder=RunFolder.create(tmp_path / "run"), drop=0.1, compare=compare)
        with monkeypatch.context() as pinned:
            if kind == "rehearsal":
                pinned.setattr(CompiledEngine, "updates", updates)
            assert training.follow(run, argparse.Namespace(quiet=False, json=False)) == 0
        files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
        said = {str(path.relative_to(tmp_path / "run")): path.read_bytes() for path in files}
        if kind == "rehearsal":
            # Keys are fresh in every run, so the vaults are never the same; nothing else of a seeded run shows them.
            said = {name: content for name, content in said.items() if not name.startswith("devices/")}
        out, err = capfd.readouterr()
        # JAX's own log has shapes and seconds of compilations, which are of the first run only.
        logs = [record.getMessage() for record in caplog.records if not record.name.startswith("jax")]
        return said | {"stdout": out, "stderr": err, "logs": logs, "live page": live_page(read_run(tmp_path / "run"))}

    return run


def changed(first, second):
    assert first.keys() == second.keys()
    return {name for name in first if first[name] != second[name]}


def check(reported, pairs, kind="simulation"):
    rng, rows, plain = np.random.default_rng(0), trained_rows(), reported(table(), kind)
    assert FILES | {"stdout", "stderr", "logs", "live page"} == plain.keys()
    assert "accuracy" in plain["stdout"]
    for _ in range(pairs):
        assert changed(plain, reported(neighbour(rng, rows), kind)) == set()


def test_with_the_update_pinned_a_replaced_training_record_changes_no_byte_of_30_runs(reported):
    check(reported, 30)


def test_the_same_holds_for_rehearsals_but_for_their_keys(reported):
    check(reported, 5, "rehearsal")


@pytest.mark.long
def test_with_the_update_pinned_a_replaced_training_record_changes_no_byte_of_1000_runs(reported):
    check(reported, 1000)


def test_turned_labels_of_the_hold_out_change_the_metrics_but_not_what_is_printed_before(reported):
    # The tests above could fail: hold-out rows are public, metrics are made of them, every path that shows one moves.
    other, held_out = table(), sorted(set(range(ROWS)) - set(trained_rows()))
    other.loc[held_out, "label"] = "x"
    seen = changed(reported(table()), reported(other))
    assert seen == {"rounds.jsonl", "result.json", "report.html", "privacy.yaml", "stdout", "live page"}


def test_only_a_comparison_that_was_asked_for_shows_more_and_says_that_nothing_protects_it(reported):
    other = table()
    other.loc[trained_rows(), "label"] = "x"  # many records: one alone seldom moves an accuracy of 24 rows
    first, second = reported(table(), compare=True), reported(other, compare=True)
    assert changed(first, second) == {"result.json", "report.html", "stdout", "live page"}
    named = [
        release for release in json.loads(first["result.json"])["releases"] if "without privacy" in release["what"]
    ]
    assert [release["protected_by"].split(":")[0] for release in named] == ["nothing"]
