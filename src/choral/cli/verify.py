"""Compute every claim of a run again: each ε from the ledgers, every hash, every
signature.

A folder can't prove whose keys signed it. --roster compares them with keys
from another source, --receipts with what sites kept when they signed. The last line
says what was proved and what was taken on trust. The exit status is 0 if all of it
agrees, and 1 if anything does not.
"""

import argparse
import json
from functools import partial
from typing import TYPE_CHECKING

from choral.cli import terminal
from choral.core.printable import escaped
from choral.record import traits

if TYPE_CHECKING:
    from choral.report.verify import Verdict

EPILOG = """\
examples:
  choral verify runs/20261115-161529-demo
  choral verify RUN --roster study.toml
  choral verify RUN --receipts hospital-a.json hospital-b.json"""


def configure(parser: argparse.ArgumentParser) -> None:
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


def run(args: argparse.Namespace) -> int:
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
