"""Verbs that have several phases, such as `choral server run`: one parser for each, with the common flags."""

import argparse
from collections.abc import Callable

Phase = Callable[[argparse.Namespace], int]


def phases(parser: argparse.ArgumentParser) -> Callable[[str, Phase, str], argparse.ArgumentParser]:
    """A function that adds a phase: its name, what does it, and its line in the help."""
    group = parser.add_subparsers(title="phases", metavar="PHASE", required=True)

    def add(name: str, does: Phase, line: str) -> argparse.ArgumentParser:
        phase = group.add_parser(name, help=line, description=line[:1].upper() + line[1:] + ".")
        phase.set_defaults(phase=does)
        # After the phase's name too; left out there, what stands before it counts.
        phase.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object")
        phase.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show an error's traceback")
        return phase

    return add
