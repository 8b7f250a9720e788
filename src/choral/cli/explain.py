"""Explain an error code: what it looks like, where it comes from, and the way out.

Without a code, it lists all of them.
"""

import argparse
import json
import re
import textwrap
import tomllib
from importlib import resources

from choral.cli import terminal
from choral.core.errors import CODES, ConfigError


def configure(parser: argparse.ArgumentParser) -> None:
    """Which code."""
    parser.add_argument("code", nargs="?", metavar="CODE", help="a code, such as CH401 (default: list all)")


def run(args: argparse.Namespace) -> int:
    """Print the code's story, or one line for each code."""
    if args.code is None:
        print(json.dumps(CODES) if args.json else "\n".join(f"{code}  {line}" for code, line in CODES.items()))
        return 0
    code = args.code.upper()
    if code not in CODES:
        raise ConfigError("CH102", f'"{args.code}" is no error code.', fix="choral explain lists all codes.")
    story = tomllib.loads(resources.files("choral").joinpath("errors.toml").read_text(encoding="utf-8"))[code]
    if args.json:
        print(json.dumps({"code": code, "line": CODES[code], **story}))
        return 0
    parts = [f"{code}: {CODES[code]}", *(story[part] for part in ("message", "cause", "way_out") if part in story)]
    # Other pages of the documentation are named, since a terminal follows no link.
    for part in parts:
        terminal.say(*textwrap.wrap(_without_links(part), 79, break_long_words=False), "")
    return 0


def _without_links(text: str) -> str:
    """The text with the words of its links alone.

    >>> _without_links("See [choral.toml](../configuration.md).")
    'See choral.toml.'
    """
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)
