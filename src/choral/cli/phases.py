"""How verbs are declared: a module with several of them, a verb with phases, and a phase that can be a service."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from choral.core.errors import ConfigError

if TYPE_CHECKING:
    from choral.deploy.systemd import Service

Phase = Callable[[argparse.Namespace], int]


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A verb: its prose in `--help`, its flags, and what it does."""

    about: str
    epilog: str = ""
    configure: Callable[[argparse.ArgumentParser], None]
    run: Phase


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


def configure_service(phase: argparse.ArgumentParser) -> None:
    """Declare the flags of a phase that can be a service: print its systemd unit, or put it in its place."""
    way = phase.add_mutually_exclusive_group()
    way.add_argument("--systemd", action="store_true", help="print a systemd unit that does this, and do nothing else")
    way.add_argument("--install-service", action="store_true", help="write that unit where systemd looks for it")
    phase.add_argument("--user", action="store_true", help="with either: make a service of your user, without root")


def is_service(args: argparse.Namespace) -> bool:
    """The phase is to be made a service, and not to be done now."""
    wanted: bool = args.systemd or args.install_service
    if args.user and not wanted:
        raise ConfigError("CH104", "--user says whose service it is.", fix="Add --systemd or --install-service.")
    return wanted


def service_command(*words: str | Path, **flags: str | Path | None) -> tuple[str, ...]:
    """The words that do a phase, with the flags that are given; paths are whole, since systemd starts in none."""
    given: Sequence[str | Path] = [
        part for flag, value in flags.items() if value for part in (f"--{flag.replace('_', '-')}", value)
    ]
    whole = (str(word.resolve()) if isinstance(word, Path) else word for word in (*words, *given))
    return (sys.executable, "-P", "-m", "choral", *whole)  # -P: no code from the folder that it starts in


def show_service(args: argparse.Namespace, service: "Service") -> int:
    """Print the unit, or install it and show what to type next."""
    if args.systemd:
        print(service.unit(user=args.user), end="")
        return 0
    path, lines = service.install(user=args.user), service.start_lines(user=args.user)
    if args.json:
        print(json.dumps({"unit": str(path), "next": lines}))
        return 0
    print(f"WROTE     {path}", f"NEXT      {lines[0]}", f"          {lines[1]}", sep="\n")
    if args.user:
        print("ALSO      loginctl enable-linger, or it ends when you log out")
    return 0
