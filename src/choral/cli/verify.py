"""Work every claim of a run out again: each ε from the ledgers, every hash, every signature.

Exit status 0 if the run is as it says, 1 if anything is not.
"""

import argparse
import json
from functools import partial

from choral.cli import terminal
from choral.printable import escaped


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of `choral verify`."""
    parser.add_argument("run_folder", metavar="RUN", help="the run folder")


def run(args: argparse.Namespace) -> int:
    """Verify and print a line for every check."""
    from choral.report.verify import verify

    findings = verify(args.run_folder, partial(terminal.progress, show=not args.json))
    good = all(not finding.wrong for finding in findings)
    if args.json:
        checks = [{"check": finding.check, "wrong": list(finding.wrong)} for finding in findings]
        print(json.dumps({"verified": good, "checks": checks}))
        return 0 if good else 1
    for finding in findings:
        print(escaped(f"{'no' if finding.wrong else 'ok':>3}  {finding.check}"))
        for line in finding.wrong:
            print(escaped(f"       {line}"))
    print("verified" if good else "NOT verified")
    return 0 if good else 1
