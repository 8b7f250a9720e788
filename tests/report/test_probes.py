"""choral verify on probes.jsonl: what was changed there is found, also by whoever renews the hashes."""

import json
import shutil

import pytest

from choral.cli import main
from choral.report import write_report
from choral.report.verify import verify
from choral.run.folder import RunFolder, hashes
from choral.run.runs import Run
from tests.run.small import rows, study


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    probed = study(rows(480, 70), devices=12, cohort=12, rounds=3, robust=True, colluders=1)
    Run("simulation", probed, folder=RunFolder.create(path)).finish()
    return path


def changed(folder, change):
    """The folder with a changed probes.jsonl, whose hash the result names; put back by the caller."""
    path, result = folder / "probes.jsonl", folder / "result.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    reported = json.loads(result.read_text())
    reported["files"] = hashes(folder)
    result.write_text(json.dumps(reported))


def test_an_untouched_run_verifies_and_says_that_refusals_follow_from_the_answers(folder):
    verdict = verify(folder)
    assert verdict.good
    assert any("follows from the devices' answers" in finding.check for finding in verdict)


def _louder(lines):
    device = next(iter(lines[1]["answers"]))
    lines[1]["answers"][device] = [1000 * number for number in lines[1]["answers"][device]]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (_louder, "round 2: refused does not follow from the answers"),
        (lambda lines: lines[0].update(refused={"device 01": "length"}), "round 1: refused does not follow"),
        (lambda lines: lines[2].update(named={"device 01": 3}), "round 3: named does not follow"),
        (lambda lines: lines[0].update(seed="00" * 32), "round 1: the probes do not follow from the uploads"),
        (lambda lines: lines[0].update(seed="from nowhere"), "probes.jsonl"),
        (lambda lines: lines.pop(), "one line for each round"),
        (lambda lines: lines[0]["answers"].pop("device 01"), "a device is in the sum that did not answer"),
    ],
)
def test_what_was_changed_in_the_answers_or_in_what_follows_is_found(folder, change, wrong):
    before = {name: (folder / name).read_bytes() for name in ("probes.jsonl", "result.json")}
    try:
        changed(folder, change)
        found = [line for finding in verify(folder) for line in finding.wrong]
        assert any(wrong in line for line in found), found
    finally:
        for name, content in before.items():
            (folder / name).write_bytes(content)


def test_suspects_are_reported_with_their_evidence_and_so_is_nobody(folder, capsys):
    assert main(["server", "suspects", str(folder)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "answered in 3 rounds" in said and "nobody" in said and "only an opened turn is proof" in said
    assert main(["server", "suspects", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == 3


def test_the_report_has_a_section_on_the_answers_and_says_that_nobody_is_suspected(folder, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    text = write_report(copy).read_text()
    assert "What devices answered" in text and "Evidence stands against nobody." in text
    assert "32 random projections of its noisy update in 3 rounds" in text
    assert verify(copy).good


def test_a_named_device_is_in_the_report_with_its_rule_and_round(folder, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    lines = [json.loads(line) for line in (copy / "probes.jsonl").read_text().splitlines()]
    loud = [line | {"answers": {**line["answers"], "device 03": _loud(line)}} for line in lines]
    again = [line | {"round": number} for number, line in enumerate([loud[0], loud[1], loud[1], loud[1]], start=1)]
    (copy / "probes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in again))
    text = write_report(copy).read_text()
    assert "named in round 4" in text and "only an opened turn is proof" in text


def _loud(line):
    return [30 * number for number in line["answers"]["device 03"]]
