"""Try a deployment on this machine: a real Flower SuperLink and real SuperNodes on loopback, with TLS and keys.

Every site is a separate process with its own keys, table, ledger and limit. Nothing
is downloaded, nothing listens except on 127.0.0.1, and everything is stopped and
removed at the end. For a deployment between machines, see choral server and choral
device.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from choral.accounting.words import up
from choral.cli import terminal
from choral.core.errors import ConfigError, StorageError
from choral.core.printable import count, escaped

if TYPE_CHECKING:
    from choral.deploy.local import LocalResult
    from choral.deploy.serving import StudyStatus

EPILOG = """\
examples:
  choral deploy --local 4 --demo
  choral deploy --local 3 examples/hospitals/choral.toml"""
ROUNDS = 3
OPEN = "every user of this machine can reach Flower's simulation engine while it runs, and run code through it as you"


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of `choral deploy`."""
    parser.add_argument(
        "job",
        type=Path,
        nargs="?",
        metavar="choral.toml",
        help="what to run; one csv is divided among the sites, or each has its own",
    )
    parser.add_argument("--local", type=int, required=True, metavar="N", help="how many sites, at least 3")
    parser.add_argument(
        "--demo", action="store_true", help="UCI Adult, which comes with choral, instead of a choral.toml"
    )
    parser.add_argument(
        "--rounds", type=int, metavar="R", help=f"how many rounds ({ROUNDS} for the demo, else the file's)"
    )
    parser.add_argument(
        "--engine", choices=("superlink", "simulation"), default="superlink",
        help="Flower's SuperLink and SuperNodes (default), or its simulation engine without TLS and node keys",
    )  # fmt: skip
    parser.add_argument(
        "--trust-model", action="append", default=[], metavar="NAME=FILE",
        help="run module:function from FILE, or from an installed package",
    )  # fmt: skip
    parser.add_argument("--as-root", action="store_true", help="with --engine simulation: allow it to run as root")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep the study, the sites and all logs in this new folder"
    )


def run(args: argparse.Namespace) -> int:
    """Set up, run, report, and clean up."""
    if args.demo == (args.job is not None):
        raise ConfigError("CH104", "a choral.toml or --demo: one of them.", fix="choral deploy --local 4 --demo")
    from choral.deploy import local

    # Ended by a service manager or by the keyboard, it still ends what it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _folder(args.keep) as folder:
        with terminal.stages("KEYS", 1, show=not args.json):
            if args.demo:
                deployment = local.of_adult(folder, args.local, args.rounds or ROUNDS)
            else:
                deployment = local.of_job(folder, args.job, args.local, args.rounds, args.trust_model)
        if args.engine == "simulation" and not args.json:
            print(f"NOTE    {OPEN}", file=sys.stderr, flush=True)
        _show(deployment.run(args.engine, as_root=args.as_root), show=not args.json)
        result = deployment.result(kept=args.keep)
    print(json.dumps(result.to_dict()) if args.json else "\n".join(map(terminal.wrap, _lines(result))))
    return 0


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Where everything lies: a short path, for the sockets in it."""
    from choral.deploy.ownership import private

    if keep is not None:
        if keep.exists():
            raise StorageError("CH800", "exists already.", where=str(keep), fix="Choose another folder.")
        yield private(keep).resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="choral-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _show(states: Iterator["StudyStatus"], *, show: bool) -> None:
    """One line on stderr for each thing that happens."""
    last = ""
    for status in states:
        line = status["state"]
        if line == "round":
            line = f"round {status['round']} of {status['rounds_planned']}: {', '.join(status['cohort'])}"
        if show and line != last:
            print(escaped(f"NOW     {line}"), file=sys.stderr, flush=True)
        last = line


def _lines(result: "LocalResult") -> list[str]:
    doors = result.observed
    seen = "no TLS and no node keys: Flower's simulation engine" if doors is None else (
        "plain connections refused: " + _yes(doors["tls"])
        + " · unknown node keys refused: " + _yes(doors["node_authentication"])
        + " · control closed to the outside: " + _yes(doors["control_closed"])
    )  # fmt: skip
    lines = [
        f"FLOWER  {result.flower} · {count(len(result.devices), 'site')}, each its own process · {result.stopped}",
        f"TRIED   {seen}",
    ]
    for number, (seconds, included) in enumerate(zip(result.seconds, result.included, strict=True), start=1):
        lines.append(f"ROUND {number}  {seconds:.1f} s  {', '.join(included)}")
    for name, spent in result.spent.items():
        lines.append(
            f"SPENT   {name}: ε = {up(spent.epsilon)} in {count(spent.charges, 'round')} "
            f"(δ = {spent.delta:g}, {spent.adjacency}, rule {', '.join(spent.rules)}, "
            f"against {' and '.join(spent.adversaries)})"
        )
    return [*lines, f"KEPT    {result.kept}" if result.kept else "KEPT    nothing; --keep DIR keeps it all"]


def _yes(held: bool) -> str:
    return "yes" if held else "NO"
