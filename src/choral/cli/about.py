"""Verbs about choral itself: what an error code means, and what a shell needs to complete a command."""

import argparse
import json
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources

from choral.cli import terminal
from choral.cli.phases import Verb
from choral.core.errors import CODES, ConfigError

SHELLS = ("bash", "zsh", "fish")


def _configure_explain(parser: argparse.ArgumentParser) -> None:
    """Which code."""
    parser.add_argument("code", nargs="?", metavar="CODE", help="a code, such as CH401 (default: list all)")


def _explain(args: argparse.Namespace) -> int:
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


EXPLAIN = Verb(
    about="""Explain an error code: what it looks like, where it comes from, and the way out.

Without a code, it lists all of them.
""",
    configure=_configure_explain,
    run=_explain,
)


def _configure_completion(parser: argparse.ArgumentParser) -> None:
    """Which shell."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that asks")


def _complete(args: argparse.Namespace) -> int:
    """Print the script for the shell, made from the parsers themselves."""
    words = dict(_words())
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](words)
    print(json.dumps({"shell": args.shell, "script": script}) if args.json else script)
    return 0


Words = Mapping[str, list[tuple[str, str]]]  # what has been typed so far -> each word that may follow, with its help


def _words() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Every verb and phase with the words that may follow it, read from their parsers."""
    from choral.cli import VERBS, available_verbs, verb_parser

    yield "", list(VERBS.items())
    for verb in available_verbs():
        yield from _followers(verb, verb_parser(verb))


def _followers(typed: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    following: list[tuple[str, str]] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            lines = {choice.dest: choice.help or "" for choice in action._choices_actions}
            following += [(name, lines.get(name, "")) for name in action.choices]
            for name, phase in action.choices.items():
                yield from _followers(f"{typed} {name}", phase)
        elif action.option_strings:
            following.append((action.option_strings[-1], action.help or ""))
        elif action.choices:
            following += [(str(choice), "") for choice in action.choices]
    yield typed, following


def _quoted(text: str) -> str:
    """A text between single quotation marks, for any of the shells."""
    return "'" + text.replace("\\", "").replace("'", "’") + "'"


def _bash(words: Words) -> str:
    cases = "\n".join(
        f"    {_quoted(typed)}) words={_quoted(' '.join(w for w, _ in following))} ;;"
        for typed, following in words.items()
    )
    return f"""\
# Completion of choral for bash: source <(choral completion bash)
_choral() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} typed= words= known
  if (( COMP_CWORD > 1 )); then typed=${{COMP_WORDS[1]}}; fi
  known={_quoted("|" + "|".join(words) + "|")}
  if (( COMP_CWORD > 2 )) && [[ $known == *"|$typed ${{COMP_WORDS[2]}}|"* ]]; then typed+=" ${{COMP_WORDS[2]}}"; fi
  case $typed in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if [[ $typed && $word != -* ]]; then COMPREPLY+=($(compgen -f -- "$word")); fi
}}
complete -o filenames -F _choral choral"""


def _zsh(words: Words) -> str:
    def described(following: list[tuple[str, str]]) -> str:
        return " ".join(_quoted(f"{word}:{line}" if line else word) for word, line in following)

    cases = "\n".join(f"    {_quoted(typed)}) following=({described(after)}) ;;" for typed, after in words.items())
    return f"""\
#compdef choral
_choral() {{
  local typed= known; local -a following
  (( CURRENT > 2 )) && typed=${{words[2]}}
  known={_quoted("|" + "|".join(words) + "|")}
  (( CURRENT > 3 )) && [[ $known == *"|$typed ${{words[3]}}|"* ]] && typed+=" ${{words[3]}}"
  case $typed in
{cases}
  esac
  _describe 'choral' following
  [[ -n $typed ]] && _files
}}
if [[ $funcstack[1] == _choral ]]; then _choral "$@"; else compdef _choral choral; fi"""


def _fish(words: Words) -> str:
    lines = ["# Completion of choral for fish"]
    for typed, following in words.items():
        verb, _, phase = typed.partition(" ")
        seen = f"__fish_seen_subcommand_from {verb}" if verb else "__fish_use_subcommand"
        when = f"{seen}; and __fish_seen_subcommand_from {phase}" if phase else seen
        for word, line in following:
            kind = f"-l {word.removeprefix('--')}" if word.startswith("--") else f"-a {_quoted(word)}"
            if word.startswith("-") and not word.startswith("--"):
                kind = f"-s {word.removeprefix('-')}"
            files = " -f" if not verb else ""
            lines.append(f"complete -c choral{files} -n {_quoted(when)} {kind} -d {_quoted(line)}")
    return "\n".join(lines)


COMPLETION = Verb(
    about="""Print what a shell needs to complete choral's verbs, phases, flags and files.""",
    epilog="""\
how to use it:
  source <(choral completion bash)
  choral completion zsh > "${fpath[1]}/_choral"
  choral completion fish > ~/.config/fish/completions/choral.fish""",
    configure=_configure_completion,
    run=_complete,
)
