"""Write a choral.toml for these tables, from their headers and from what their columns look like.

Bounds, levels and classes are left to be filled in: they are public, so they come from what is known beforehand and
never from the rows. No value of a cell is written.
"""

import argparse
import glob
import json
from pathlib import Path
from typing import TYPE_CHECKING

from choral.core.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from choral.tables.columns import Look

EPILOG = """\
  choral init sites/*.csv --label ill
  choral init patients.csv --label ill --out choral.toml"""
FILL_IN = {"number": "bounds = []", "levels": "levels = []"}
DATES = 'dates = ["2000-01-01", "2024-12-31"]  # the first and the last day that can be'
MISSING = 'missing = ""  # FILL IN: what an empty cell counts as, a constant that you choose and not one of the rows'
HINTS = {"number": "[lowest, highest] that can be", "levels": 'every level that can be, ["…", "…"]'}


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of `choral init`."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="CSV or Parquet files, one per site")
    parser.add_argument("--label", required=True, help="the column that is to be predicted")
    parser.add_argument("--out", type=Path, default=Path("choral.toml"), help="the file to write (default choral.toml)")


def run(args: argparse.Namespace) -> int:
    """Look at the columns, write the file, and say what is left to do."""
    looks, partial = _looks(args.files)
    source = _source(args.files)
    if args.label not in looks:
        known = ", ".join(list(looks)[:12])
        only = f" in every file; {_places(partial[args.label])} has it" if args.label in partial else ""
        raise ConfigError(
            "CH104", f'no column is called "{args.label}"{only}.', where="--label", fix=f"There is: {known}."
        )
    try:
        with args.out.open("x", encoding="utf-8") as file:
            file.write(_text(args.files, source, looks, partial, args.label))
    except FileExistsError:
        raise StorageError("CH800", "is there already.", where=str(args.out), fix="Give another --out.") from None
    except OSError as error:
        raise StorageError("CH801", f"can't be written: {error.strerror}.", where=str(args.out), fix="") from None
    if args.json:
        columns = {name: {"kind": look.kind, "words": look.words} for name, look in looks.items()}
        print(json.dumps({"file": str(args.out), "label": args.label, "columns": columns}))
        return 0
    for name, look in looks.items():
        print(f"  {name}: {look.words}" + (" (the label)" if name == args.label else ""))
    print(f"WROTE  {args.out}\nNEXT   fill in every line that says FILL IN, then: choral simulate {args.out}")
    return 0


def _looks(paths: list[Path]) -> "tuple[dict[str, Look], dict[str, list[Path]]]":
    """What each column that all files have looks like, and which files have the others."""
    from choral.tables.cells import Faults
    from choral.tables.columns import looked_at
    from choral.tables.sources import Reading, read_one, together

    tables, faults = {}, Faults()
    for path in paths:
        with faults:
            tables[path] = read_one(path, Reading(guess=True))
    faults.refuse()
    names = dict.fromkeys(name for table in tables.values() for name in table.columns)
    having = {name: [path for path, table in tables.items() if name in table.columns] for name in names}
    common = [name for name, places in having.items() if len(places) == len(tables)]
    partial = {name: places for name, places in having.items() if len(places) < len(tables)}
    return {name: looked_at(together([*tables.values()], name))[0] for name in common}, partial


def _source(paths: list[Path]) -> str:
    """The file, or the narrowest pattern that matches these files and no other; CH104 where there is none."""
    if len(paths) == 1:
        return str(paths[0])
    names, folder = [path.name for path in paths], glob.escape(str(paths[0].parent))
    starts = (names[0][:end] for end in range(len(names[0]), -1, -1))
    start = next(one for one in starts if all(name.startswith(one) for name in names))
    suffix = glob.escape("".join(paths[0].suffixes))
    wide, narrow = f"{folder}/*{suffix}", f"{folder}/{glob.escape(start)}*{suffix}"
    # A prefix that ends a word is no accident: with it, tables written into the folder later are no sites.
    for pattern in (wide, narrow) if start[-1:].isalnum() or not start else (narrow, wide):
        if set(map(Path, glob.glob(pattern))) == set(paths):
            return pattern
    more = len(set(map(Path, glob.glob(narrow))) - set(paths))
    raise ConfigError(
        "CH104",
        f"matches {more:,} more than the {len(paths):,} files that were given, and the study reads all of them.",
        where=narrow,
        fix="Put the files of the study into one folder that holds nothing else.",
    )


def _written(path: Path) -> str:
    """How a file is written, as far as it shows it, in the words of [data]."""
    from choral.config.toml import toml_of
    from choral.tables.reading import resolved

    found = resolved(path, guess=True)
    named = {"delimiter": found.delimiter, "decimal": found.decimal, "encoding": found.encoding}
    return ", ".join(f"{key} = {toml_of(value)}" for key, value in named.items())


def _places(paths: list[Path]) -> str:
    return ", ".join(path.name for path in paths[:3]) + ", …" * (len(paths) > 3)


def _text(paths: list[Path], source: str, looks: "dict[str, Look]", partial: dict[str, list[Path]], label: str) -> str:
    """The choral.toml."""
    from choral.config.toml import toml_of

    kind = "parquet" if paths[0].suffix in (".parquet", ".pq") else "csv"
    several = len(paths) > 1
    number = looks[label].kind == "number" and not looks[label].few
    target = "label_bounds = []" if number else "classes = []"
    hint = HINTS["number"] if number else 'every class that can be, ["…", "…"]'
    lines = [
        "# Written by choral init. What says FILL IN is public: it comes from what is known, and never from the rows.",
        "[privacy]",
        "epsilon = 2.0  # how much one record may show at most, over the whole run",
        "delta = 1e-5",
        "[federation]",
        "# one file per device"
        if several
        else "devices = 5  # FILL IN: how many share this table, or device_column in [data]",
        "[data]",
        f"{kind} = {toml_of(source)}",
        f"label = {toml_of(label)}",
        f"{target}  # FILL IN: {hint}; in the rows it looks like {looks[label].words}",
        *([f"# {path.name}: {_written(path)}" for path in paths] if kind == "csv" else []),
    ]
    for name, look in looks.items():
        if name == label:
            continue
        key = toml_of(name)
        if look.kind in FILL_IN:
            lines += [f"[data.columns.{key}]  # {look.words}", f"{FILL_IN[look.kind]}  # FILL IN: {HINTS[look.kind]}"]
            lines += [MISSING] * look.empty
        elif look.kind == "date":
            lines += [f"# [data.columns.{key}]  # {look.words}; not read unless declared", f"# {DATES}"]
        else:
            lines.append(f"# [data.columns.{key}] is not declared and so not read: {look.words}")
    lines += [f"# [data.columns.{toml_of(name)}] is only in {_places(places)}" for name, places in partial.items()]
    return "\n".join([*lines, "[run]", 'name = "run"']) + "\n"
