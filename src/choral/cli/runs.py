"""Verbs about runs that exist: list them, verify one, write its report or its model, and watch it."""

import argparse
import json
import webbrowser
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from choral.cli import terminal
from choral.cli.phases import Verb
from choral.core.printable import escaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from choral.record import RunRecord
    from choral.report.verify import Verdict

DEEPEST = 4  # folders below PATH: a study's runs are two below it


def _configure_runs(parser: argparse.ArgumentParser) -> None:
    """Where to look."""
    parser.add_argument("path", nargs="?", type=Path, default=Path("runs"), help="where to look (default runs)")


def _list_runs(args: argparse.Namespace) -> int:
    """Find the runs and list them."""
    from choral.core.errors import StorageError

    if not args.path.is_dir():
        fix = "Give the folder that holds your runs: choral runs PATH."
        raise StorageError("CH802", "is no folder.", where=str(args.path), fix=fix)
    found = sorted(_found(args.path), key=lambda one: one["started"], reverse=True)
    lines = _list_lines(found) if found else [f"there is no run in {escaped(str(args.path))}"]
    return terminal.answer(args, {"runs": found}, *lines)


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


def _list_lines(found: "list[dict[str, str]]") -> "Iterator[str]":
    for one in found:
        yield escaped(one["folder"])
        parts = [one.get(key, "") for key in ("state", "kind", "model", "test")]
        yield "  " + " · ".join(escaped(part) for part in parts if part)
        if "privacy" in one:
            yield f"  {escaped(one['privacy'])}"


RUNS = Verb(
    about="""List run folders: what each one trained, how good it is, what it cost, and whether it is finished.

Every folder below PATH that holds a run.json is listed, the latest first.
""",
    configure=_configure_runs,
    run=_list_runs,
)


def _configure_verify(parser: argparse.ArgumentParser) -> None:
    """The flags of `choral verify`."""
    parser.add_argument("run_folder", metavar="RUN", help="the run folder")
    parser.add_argument(
        "--roster",
        nargs="+",
        default=[],
        metavar="FILE",
        help="the devices' keys from another source: study.toml, cards, an earlier signatures.json",
    )
    parser.add_argument(
        "--receipts", nargs="+", default=[], metavar="FILE", help="receipts of sites: HOME/receipts/*.json"
    )


def _verify(args: argparse.Namespace) -> int:
    """Verify, print a line for every check, and last what that proves."""
    from choral.report.verify import verify

    watch = partial(terminal.progress, show=not args.json)
    verdict = verify(args.run_folder, watch, roster=args.roster, receipts=args.receipts)
    print(json.dumps(_as_dict(verdict)) if args.json else _page(verdict))
    return 0 if verdict.good else 1


def _as_dict(verdict: "Verdict") -> dict[str, object]:
    checks = [
        {"check": finding.check, "wrong": list(finding.wrong), "notes": list(finding.notes)} for finding in verdict
    ]
    return {
        "verified": verdict.good,
        "checks": checks,
        "signed": list(verdict.signed),
        "not_signed": verdict.unsigned,
        "keys": verdict.keys,
        "proved": verdict.proved,
        "trusted": verdict.trusted,
    }


def _page(verdict: "Verdict") -> str:
    from choral.record import traits

    lines = []
    for finding in verdict:
        lines.append(f"{'no' if finding.wrong else 'ok':>3}  {finding.check}")
        lines += [f"       {line}" for line in (*finding.wrong, *finding.notes)]
    lines = [terminal.wrap(line) for line in map(escaped, lines)]
    if verdict.keys is not None:
        first, second = terminal.digits(verdict.keys)
        lines += [f"{'STUDY' if traits(verdict.kind).deployed else 'KEYS':<10}{first.strip()}", second]
    end = f"verified. Proved: {verdict.proved}. Taken on trust: {verdict.trusted}."
    if not verdict.good:
        wrong = sum(bool(finding.wrong) for finding in verdict)
        end = f"NOT verified: {wrong} of {len(verdict.findings)} checks found something wrong, so nothing was proved."
    return "\n".join([*lines, escaped(end)])


VERIFY = Verb(
    about="""Compute every claim of a run again: each ε from the ledgers, every hash, every
signature.

A folder can't prove whose keys signed it. --roster compares them with keys
from another source, --receipts with what sites kept when they signed. The last line
says what was proved and what was taken on trust. The exit status is 0 if all of it
agrees, and 1 if anything does not.
""",
    epilog="""\
examples:
  choral verify runs/20261115-161529-demo
  choral verify RUN --roster study.toml
  choral verify RUN --receipts hospital-a.json hospital-b.json""",
    configure=_configure_verify,
    run=_verify,
)


def _configure_report(parser: argparse.ArgumentParser) -> None:
    """The run's folder, and whether to open the report."""
    parser.add_argument("folder", metavar="RUN", help="the run's folder")
    parser.add_argument("--open", action="store_true", help="open the report in the browser")


def _write_report(args: argparse.Namespace) -> int:
    """Write both files and say where the report is."""
    from choral.report import write_report

    report = write_report(args.folder)
    print(json.dumps({"report": str(report)}) if args.json else report)
    if args.open:
        webbrowser.open(report.resolve().as_uri())
    return 0


REPORT = Verb(
    about="""Write the report of a run again: report.html for people, privacy.yaml for
registries.

A run writes both when it ends; this verb makes them again from the run's
folder, and report.html also for a run that was stopped or is under way.
""",
    configure=_configure_report,
    run=_write_report,
)


def _configure_export(parser: argparse.ArgumentParser) -> None:
    """The run's folder, and where the file goes."""
    parser.add_argument("folder", metavar="RUN", help="the run's folder")
    parser.add_argument("--onnx", metavar="FILE", type=Path, help="the file to write (default RUN/model.onnx)")


def _export(args: argparse.Namespace) -> int:
    """Write the file and say where it is."""
    from choral.output.onnx import export_onnx

    path = export_onnx(args.folder, args.onnx)
    print(json.dumps({"onnx": str(path)}) if args.json else path)
    return 0


EXPORT = Verb(
    about="""Write a finished run's model in a format that other programs read: ONNX, for the built-in models.

The graph takes encoded features (float32, rows × features, or rows × the shape of an image) and gives each row's
class number and the probability of every class; or, for a label that is a number, that number. The names of classes
and features, and how columns become features, are in the file's metadata. Needs an extra:

  pip install 'choral[onnx]'
""",
    configure=_configure_export,
    run=_export,
)


def _configure_watch(parser: argparse.ArgumentParser) -> None:
    """The run's folder, the port, and whether to open a browser."""
    parser.add_argument("folder", metavar="RUN", help="the run's folder")
    parser.add_argument("--as", dest="side", metavar="SIDE", help="show only what the server or device:NAME knows")
    parser.add_argument("--port", type=int, default=0, help="a port of this machine; 0 takes any (default)")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def _watch(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    from choral.report import serve

    # Ctrl-C is the usual way to leave, not a failure.
    with (
        suppress(KeyboardInterrupt),
        serve(args.folder, port=args.port, open_browser=args.open, viewpoint=args.side) as live,
    ):
        print(json.dumps({"url": live.url}) if args.json else f"{live.url}  (Ctrl-C ends the page)", flush=True)
        live.wait()
    return 0


WATCH = Verb(
    about="""Follow a run on a live page in the browser, on this machine only.

The page shows the curve, each device's budget, who is in the round, and what
the server can and can't see; with --as, only what one side of the run knows:

    choral watch RUN --as server
    choral watch RUN --as "device:device 02"

The address contains a random token: do not share
it. Ctrl-C ends the page; the run goes on.
""",
    configure=_configure_watch,
    run=_watch,
)
