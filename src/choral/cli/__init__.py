"""The verbs: each parses, calls one function of a room below, and prints. No logic lives here."""

import argparse
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TextIO

from choral import __version__
from choral.cli.phases import Verb
from choral.cli.terminal import filtered
from choral.core.errors import ChoralError, ConfigError, StorageError

# Verb -> its one line in `choral --help`. The module with the verb is loaded only when the verb is used.
VERBS = {
    "demo": "train on 250 devices of real data, in one process",
    "init": "write a choral.toml for your tables, with blanks to fill in",
    "plan": "propose noise, batches and rounds for a budget, with reasons",
    "account": "show what a given run costs, by every rule, proved and published",
    "simulate": "train by a choral.toml on the fast engine",
    "rehearse": "train by a choral.toml with the whole protocol, in one process",
    "ask": "ask for a count, a table or a survival curve, with noise",
    "resume": "continue a run that was interrupted",
    "predict": "predict for new rows with the model of a finished run",
    "runs": "list run folders, with what each cost and how good it is",
    "verify": "compute every claim of a run again from its ledgers",
    "report": "write the page of a run that a privacy officer signs",
    "export": "write a run's model as ONNX, for other programs",
    "watch": "follow a run live, on a page that only this machine can open",
    "attack": "show what an ordinary server reads from an update, and choral's",
    "audit": "measure a lower bound on ε, and compare it with the claim",
    "reproduce": "measure a figure of the paper again, and draw it",
    "deploy": "try a whole deployment on this machine, over Flower",
    "server": "run a study between organisations, as its coordinator",
    "device": "take part in such a study, as a site with its own data",
    "ledger": "show what a device has spent, and check every line",
    "explain": "explain an error code, with the way out",
    "completion": "print a script that completes choral's verbs and flags",
}

# Verb -> its module, which has it in capitals, where that is not choral.cli.<verb> with the verb alone.
TOGETHER = {
    **dict.fromkeys(("demo", "simulate", "rehearse", "resume"), "training"),
    **dict.fromkeys(("runs", "verify", "report", "export", "watch"), "runs"),
    **dict.fromkeys(("explain", "completion"), "about"),
}
# Verbs of choral-lab, a distribution next to this one, which registers them as entry points of this group.
LAB_VERBS, LAB, VERBS_OF_OTHERS = ("attack", "audit", "reproduce"), "choral_lab", "choral.verbs"
INSTALL_LAB = "in a checkout of choral, run pip install ./lab"

EPILOG = """\
exit status: 0 done · 1 a run failed or a device refused · 2 unusable input
Every ε that choral prints names its rule, its adjacency and its adversary."""


class _Parser(argparse.ArgumentParser):
    """argparse whose complaints are choral's own errors, with a code and a way out."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise ConfigError("CH101", f"{message}.", where=self.prog, fix=f"See {self.prog} --help.")


def verb_parser(name: str) -> argparse.ArgumentParser:
    """The parser of one verb, with the flags that all of them have."""
    verb = _verb(name)
    parser = _Parser(
        prog=f"choral {name}",
        description=_wrapped(verb.about),
        epilog=_wrapped(verb.epilog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verb.configure(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.set_defaults(run=verb.run)
    return parser


def available_verbs() -> list[str]:
    """The verbs that can be used here: all of them, except the lab's where it is not installed."""
    return [verb for verb in VERBS if verb not in LAB_VERBS or find_spec(LAB)]


def _verb(name: str) -> Verb:
    """The verb, out of its module: one of several there, or the module as a whole."""
    if name in TOGETHER:
        found: Verb = getattr(import_module(f"choral.cli.{TOGETHER[name]}"), name.upper())
        return found
    module = _of_lab(name) if name in LAB_VERBS else import_module(f"choral.cli.{name}")
    about, epilog = module.__doc__ or "", getattr(module, "EPILOG", "")
    return Verb(about=about, epilog=epilog, configure=module.configure, run=module.run)


def _of_lab(name: str) -> ModuleType:
    from importlib.metadata import entry_points

    for found in entry_points(group=VERBS_OF_OTHERS, name=name):
        module: ModuleType = found.load()
        return module
    raise ConfigError("CH106", f"choral {name} is part of choral-lab.", fix=f"To get it, {INSTALL_LAB}.")


def _wrapped(text: str) -> str:
    """Prose at the terminal's width; indented lines, which are commands to copy, as they are."""
    width = shutil.get_terminal_size().columns - 1
    paragraphs = [line if line.startswith(" ") else textwrap.fill(line, width) for line in _joined(text)]
    return "\n".join(paragraphs)


def _joined(text: str) -> list[str]:
    """The text's paragraphs as one line each, with blank and indented lines between them."""
    lines: list[str] = []
    for line in text.strip().splitlines():
        going_on = lines and lines[-1] and line and not lines[-1].startswith(" ") and not line.startswith(" ")
        if going_on:
            lines[-1] += " " + line
        else:
            lines.append(line)
    return lines


def _front_parser() -> argparse.ArgumentParser:
    width = max(map(len, VERBS))
    lines = "\n".join(f"  {verb:<{width}}  {line}" for verb, line in VERBS.items())
    if len(available_verbs()) < len(VERBS):
        lines += f"\n\n{', '.join(LAB_VERBS)} are part of choral-lab: {INSTALL_LAB}."
    parser = _Parser(
        prog="choral",
        usage="choral VERB [options]",
        description=f"choral {__version__}: one model over data that stays where it is.\n\nverbs:\n{lines}",
        epilog="choral VERB --help explains a verb.\n\n" + EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"choral {__version__}")
    parser.add_argument("verb", nargs="?", help=argparse.SUPPRESS)
    return parser


def _unknown_verb(verb: str) -> ConfigError:
    import difflib

    close = difflib.get_close_matches(verb, VERBS, n=1)
    hint = f'Did you mean "choral {close[0]}"?' if close else "See choral --help."
    return ConfigError("CH101", f'unknown verb "{verb}".', fix=hint)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit status; errors are one line each, without a traceback.

    >>> main(["--no-such-flag"])
    2
    """
    words = list(sys.argv[1:] if argv is None else argv)
    status = 0
    try:
        with filtered():
            status = _answered(words)
        sys.stdout.flush()  # while a reader that has left can still be met quietly
    except BrokenPipeError:  # `choral … | head` is no error
        for stream in (sys.stdout, sys.stderr):
            _hush_if_unread(stream)
    return status


def _answered(words: list[str]) -> int:
    """The exit status of one verb; its refusals are printed."""
    try:
        return _run(words)
    except BrokenPipeError:
        raise
    except (ChoralError, OSError) as error:
        if "--debug" in words:
            raise
        shown = _of_system(error) if isinstance(error, OSError) else error
        if "--json" in words:
            print(json.dumps({"error": shown.as_dict()}))
        print(shown, file=sys.stderr)
        return shown.exit_status
    except KeyboardInterrupt:
        print(
            "stopped by the keyboard. What is done is kept: choral resume RUN goes on, with a study the same command.",
            file=sys.stderr,
        )
        return 130
    except SystemExit as stop:  # argparse's --help and --version
        return int(stop.code or 0)


def _run(words: list[str]) -> int:
    if not words or words[0].startswith("-"):
        front = _front_parser()
        front.parse_args(words)
        front.print_help()
        return 0
    if words[0] not in VERBS:
        raise _unknown_verb(words[0])
    args = verb_parser(words[0]).parse_args(words[1:])
    status: int = args.run(args)
    return status


def _of_system(error: OSError) -> StorageError:
    """What the system refused, where no room below has better words for it."""
    return StorageError(
        "CH801",
        f"{error.strerror or type(error).__name__}.",
        where=os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else "",
        fix="Fix the path, its permissions or the disk, then try again; --debug shows where it happened.",
    )


def _hush_if_unread(stream: TextIO) -> None:
    """Let what a stream still holds go nowhere if its reader has left: Python would complain at its end."""
    try:
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
