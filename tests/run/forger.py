"""What somebody can do who was handed a whole run folder and may rewrite every byte of it."""

import json

import numpy as np

from choral.record import read_run
from choral.report import write_report
from choral.report.verify import costs_of
from choral.run.folder import hashes, ledger_file
from choral.run.statement import privacy_statement


def edit(path, change):
    """The JSON file with a change made to its object."""
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def cover_up(folder):
    """Every hash and page made again, so that the folder agrees with itself."""
    edit(folder / "result.json", lambda result: result.update(files=hashes(folder)))
    write_report(folder)


def write_rounds(folder, lines):
    """rounds.jsonl with these lines."""
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def relabel(folder, **about):
    """The folder as a run of another kind, with nothing left in it that would give it away at once."""
    edit(folder / "run.json", lambda reported: reported.update(about))
    if about.get("kind") == "deployment":
        for path in (folder / "ledgers").glob("*"):
            path.unlink()
        edit(folder / "run.json", lambda reported: reported.update(study="0" * 64))
    cover_up(folder)


def boast(folder, accuracy):
    """Another accuracy, in the result and in the last round."""
    lines = [line.to_dict() for line in read_run(folder).rounds]
    lines[-1]["test"]["accuracy"] = accuracy
    write_rounds(folder, lines)
    edit(folder / "result.json", lambda result: result["test"].update(accuracy=accuracy))
    cover_up(folder)


def cut(folder, rounds):
    """Only the first rounds, in ledgers, lines and statement; signatures are left as they were."""
    record = read_run(folder)
    lines = [line.to_dict() for line in record.rounds[:rounds]]
    write_rounds(folder, lines)
    counts = []
    for number in range(len(record.about.devices)):
        path = folder / "ledgers" / ledger_file(number)
        kept = [line for line in path.read_text().splitlines() if _before(line, rounds)]
        counts.append(sum('"kind":"charge"' in line for line in kept))
        path.write_text("".join(f"{line}\n" for line in kept))
    privacy = privacy_statement(costs_of(record), np.array(counts))
    reported = {"rounds_done": rounds, "test": lines[-1]["test"], "wasted": [], "privacy": privacy.to_dict()}
    edit(folder / "result.json", lambda result: result.update(reported))
    cover_up(folder)


def _before(line, rounds):
    body = json.loads(line[65:])
    return body.get("kind") != "charge" or body["round"] <= rounds
