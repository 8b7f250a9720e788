"""Write the report of a run again: report.html for people, privacy.yaml for registries.

A run writes both when it ends; this verb makes them anew from the run's folder,
also for a run that was stopped or is still under way.
"""

import argparse
import json

from choral.report import write_report


def configure(parser: argparse.ArgumentParser) -> None:
    """The run's folder."""
    parser.add_argument("folder", metavar="RUN", help="the run's folder")


def run(args: argparse.Namespace) -> int:
    """Write both files and say where the report is."""
    report = str(write_report(args.folder))
    print(json.dumps({"report": report}) if args.json else report)
    return 0
