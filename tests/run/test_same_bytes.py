"""Same seed, same machine: the same bytes in every file but for times, by both engines; without a seed, not."""

import re
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from choral.cli import main
from choral.core import ledger
from choral.record import read_run
from choral.report.verify import verify
from choral.run import folder, runs
from choral.run.folder import RunFolder
from tests.run.test_runs import clinics  # noqa: F401 - a fixture

VERBS = ("simulate", "rehearse")


def run(verb, name, *more):
    assert main([verb, "choral.toml", "--out", name, "--quiet", "--drop", "0.1", *more]) == 0


def files(folder):
    """Every file of a run but for the devices' vaults, which hold their keys."""
    paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return {str(path): (folder / path).read_bytes() for path in paths if path.parts[0] != "devices"}


@pytest.fixture
def stopped_clock(monkeypatch):
    """A clock that stands still: what then differs is no time."""
    still = SimpleNamespace(now=lambda _=None: datetime(2026, 11, 15, tzinfo=UTC))
    monkeypatch.setattr(folder, "datetime", still)
    monkeypatch.setattr(ledger, "datetime", still)
    monkeypatch.setattr(runs, "time", SimpleNamespace(monotonic=lambda: 0.0))


@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize("verb", VERBS)
def test_with_a_clock_that_stands_still_every_file_is_the_same_byte_for_byte(verb, clinics):  # noqa: F811
    run(verb, "one")
    run(verb, "two")
    one, two = files(clinics / "one"), files(clinics / "two")
    assert {"report.html", "privacy.yaml", "model.safetensors", "result.json", "ledgers/device-0001.ledger"} <= set(one)
    assert {name for name in one.keys() | two.keys() if one.get(name) != two.get(name)} == set()


@pytest.mark.parametrize("verb", VERBS)
def test_the_report_is_the_same_but_for_times_and_for_hashes_of_files_that_hold_times(verb, clinics):  # noqa: F811
    pages = []
    for name in ("one", "two"):
        run(verb, name)
        text = (clinics / name / "report.html").read_text()
        assert "SIMULATION" in text
        text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)
        pages.append(re.sub(r"(run\.json|rounds\.jsonl) <code>[0-9a-f]{16}</code>", "HASH", text))
    assert pages[0] == pages[1]


@pytest.mark.usefixtures("stopped_clock")
def test_a_seed_on_the_command_line_is_the_seed_of_the_file_and_another_one_differs(clinics):  # noqa: F811
    run("rehearse", "file")
    text = (clinics / "choral.toml").read_text()
    (clinics / "choral.toml").write_text(text.replace("seed = 3\n", ""))
    run("rehearse", "flag", "--seed", "3")
    run("rehearse", "other", "--seed", "4")
    models = [files(clinics / name)["model.safetensors"] for name in ("file", "flag", "other")]
    assert models[0] == models[1] != models[2]


@pytest.mark.usefixtures("clinics")
def test_a_run_seeded_by_the_flag_is_resumed_in_mid_run_to_the_same_end(monkeypatch):
    command = ["simulate", "choral.toml", "--quiet", "--seed", "8", "--out"]
    assert main([*command, "whole"]) == 0
    real = RunFolder.add_round

    def stop(folder, *given):
        real(folder, *given)
        raise KeyboardInterrupt

    with monkeypatch.context() as stopped:
        stopped.setattr(RunFolder, "add_round", stop)
        assert main([*command, "cut"]) == 130
    assert len(read_run("cut").rounds) == 1
    assert main(["resume", "cut", "--quiet"]) == 0
    whole, cut = read_run("whole"), read_run("cut")
    assert whole.result.files["model.safetensors"] == cut.result.files["model.safetensors"]
    assert whole.result.rounds_done == 2


@pytest.mark.usefixtures("clinics")
def test_a_seed_that_is_none_is_refused(capsys):
    assert main(["simulate", "choral.toml", "--out", "x", "--seed", "-1"]) == 2
    assert capsys.readouterr().err.startswith("CH102 --seed run.seed = -1.")


def test_keys_come_from_no_seed_so_nobody_signs_a_seeded_rehearsal_and_its_page_says_why(
    clinics,  # noqa: F811
    capsys,
    monkeypatch,
):
    vaults, real = [], RunFolder.finish

    def finish(folder, result):
        vaults.extend(path.read_bytes() for path in (folder.path / "devices").rglob("vault"))
        real(folder, result)

    monkeypatch.setattr(RunFolder, "finish", finish)
    assert main(["rehearse", "choral.toml", "--out", "seeded"]) == 0
    assert "server got   masked words; not kept" in capsys.readouterr().out
    text = (clinics / "choral.toml").read_text()
    (clinics / "choral.toml").write_text(text.replace("seed = 3\n", ""))
    # Without a seed nobody knows who drops out: here nobody does, so that no round can fail.
    assert main(["rehearse", "choral.toml", "--out", "fresh", "--quiet"]) == 0
    assert not (clinics / "seeded" / "signatures.json").exists()
    assert (clinics / "fresh" / "signatures.json").exists()
    checks = {name: [finding.check for finding in verify(name)] for name in ("seeded", "fresh")}
    assert set(checks["fresh"]) - set(checks["seeded"]) == {"every device signed the whole record"}
    pages = {name: (clinics / name / "report.html").read_text() for name in checks}
    assert "masks come from fresh keys and never repeat" in pages["seeded"]
    assert "received by the server" in pages["fresh"]
    assert read_run("seeded").result.sight.received is None
    assert len(vaults) == len(set(vaults)) == 8, "fresh keys in every run"
    assert not any((clinics / name / "devices").exists() for name in checks), "and none is left"
