"""Write the report of a run again: report.html for people, privacy.yaml for
registries.

A run writes both when it ends; this verb makes them again from the run's
folder, and report.html also for a run that was stopped or is under way.
"""

import argparse
import json
import webbrowser

from choral.report import write_report


def configure(parser: argparse.ArgumentParser) -> None:
    """The run's folder, and whether to open the report."""
    parser.add_argument("folder", metavar="RUN", help="the run's folder")
    parser.add_argument("--open", action="store_true", help="open the report in the browser")


def run(args: argparse.Namespace) -> int:
    """Write both files and say where the report is."""
    report = write_report(args.folder)
    print(json.dumps({"report": str(report)}) if args.json else report)
    if args.open:
        webbrowser.open(report.resolve().as_uri())
    return 0
