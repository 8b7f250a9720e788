"""List run folders: what each one trained, how good it is, what it cost, and whether it is finished.

Every folder below PATH that holds a run.json is listed, the latest first.
"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from choral.cli import terminal
from choral.core.printable import escaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from choral.record import RunRecord

DEEPEST = 4  # folders below PATH: a study's runs are two below it


def configure(parser: argparse.ArgumentParser) -> None:
    """Where to look."""
    parser.add_argument("path", nargs="?", type=Path, default=Path("runs"), help="where to look (default runs)")


def run(args: argparse.Namespace) -> int:
    """Find the runs and list them."""
    from choral.core.errors import StorageError

    if not args.path.is_dir():
        fix = "Give the folder that holds your runs: choral runs PATH."
        raise StorageError("CH802", "is no folder.", where=str(args.path), fix=fix)
    found = sorted(_found(args.path), key=lambda one: one["started"], reverse=True)
    if args.json:
        print(json.dumps({"runs": found}))
        return 0
    terminal.say(*(_lines(found) if found else [f"there is no run in {escaped(str(args.path))}"]))
    return 0


def _found(path: Path) -> "Iterator[dict[str, str]]":
    from choral.core.errors import ChoralError
    from choral.record import read_run

    patterns = ["/".join(["*"] * depth + ["run.json"]) for depth in range(DEEPEST + 1)]
    for file in sorted(file for pattern in patterns for file in path.glob(pattern)):
        try:
            yield _about(read_run(file.parent))
        except ChoralError as error:  # of one folder; the others are listed all the same
            yield {"folder": str(file.parent), "started": "", "state": f"can't be read: {error.code}"}


def _about(record: "RunRecord") -> dict[str, str]:
    from choral.cli.training import headline
    from choral.report.words import goodness

    about, result = record.about, record.result
    described = {
        "folder": str(record.folder),
        "started": about.started,
        "state": "finished" if result is not None else f"round {len(record.rounds)} of {about.plan.rounds}",
        "kind": about.kind,
        "name": about.name,
        "model": about.model.kind,
        "devices": str(about.plan.devices),
    }
    if result is None:
        return described
    return described | {"test": goodness(result.test, 4) if result.test else "", "privacy": headline(result.privacy)}


def _lines(found: "list[dict[str, str]]") -> "Iterator[str]":
    for one in found:
        yield escaped(one["folder"])
        parts = [one.get(key, "") for key in ("state", "kind", "model", "test")]
        yield "  " + " · ".join(escaped(part) for part in parts if part)
        if "privacy" in one:
            yield f"  {escaped(one['privacy'])}"
