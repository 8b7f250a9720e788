"""How open the seams of the code are: `python -m tools.seams [REVISION ...] [--json]`.

It counts lines that compare the name of a variant, untyped dicts, and names that two things share. Give two revisions
to see before and after; `.` is the working tree, which is also what is counted without a revision.
"""

import argparse
import ast
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from docs.hooks.check import front_door
from tools.weigh import ROOT, checked_out

HERE = "."
VARIANTS = "law|sampling|rule|kind|mode|passes|unit|graph|adversary"
COMPARISON = re.compile(rf"""({VARIANTS})(\)|\])? *(==|!=|in) *[\("'\[{{]""")
UNTYPED = "dict[str, Any]"
# Names of modules that may be shared, and why.
SHARED = {
    **dict.fromkeys(("account", "device", "ledger", "runs"), "a verb of the command line"),
    **dict.fromkeys(("personal", "poisson", "questions"), "each room's part of one capability"),
    **dict.fromkeys(("round", "signed", "words"), "what one room has of a thing that another has too"),
    "cells": "the cells of a file, and how a question reads them",
    "local": "local training, and a deployment on the local machine",
}
Signed = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Seams:
    """The counts of one state of the code; `comparisons` are lines, by the first variant that a line names.

    `switches` are the comparisons in the syntax tree: they include `about["kind"] == "deployment"`, `law is SKELLAM`
    and `match law`, and exclude comparisons with None and text in docstrings.
    """

    lines: int
    modules: int
    comparisons: int
    comparisons_of: dict[str, int]
    switches: int
    untyped: int
    untyped_in_signatures: int
    untyped_in_public_signatures: int
    classes_twice: dict[str, list[str]]
    modules_twice: dict[str, list[str]]


@contextmanager
def sources(revision: str) -> Iterator[Path]:
    """The folder `src` of a revision, or of the working tree."""
    if revision == HERE:
        yield ROOT / "src"
        return
    with tempfile.TemporaryDirectory() as folder:
        yield checked_out(revision, Path(folder)) / "src"


def count(source: Path) -> Seams:
    """The counts over every Python file below this folder."""
    texts = {path.relative_to(source).as_posix(): path.read_text() for path in sorted(source.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    compared: dict[str, int] = dict.fromkeys(VARIANTS.split("|"), 0)
    for line in "\n".join(texts.values()).splitlines():
        if found := COMPARISON.search(line):
            compared[found.group(1)] += 1
    nodes = ((node, path) for path, tree in trees.items() for node in ast.walk(tree))
    classes = ((node.name, path) for node, path in nodes if isinstance(node, ast.ClassDef))
    modules = ((Path(path).stem, path) for path in texts if not Path(path).name.startswith("__"))
    return Seams(
        lines=sum(len(text.splitlines()) for text in texts.values()),
        modules=len(texts),
        comparisons=sum(compared.values()),
        comparisons_of=compared,
        switches=sum(_switches(node) for tree in trees.values() for node in ast.walk(tree)),
        untyped=sum(text.count(UNTYPED) for text in texts.values()),
        untyped_in_signatures=sum(map(_untyped, _signatures(trees.values()))),
        untyped_in_public_signatures=sum(map(_untyped, _public(source, trees))),
        classes_twice=_twice(classes),
        modules_twice=_twice(modules),
    )


def _switches(node: ast.AST) -> bool:
    if isinstance(node, ast.Match):
        return _named(node.subject) in VARIANTS.split("|")
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    nothing = any(isinstance(side, ast.Constant) and side.value is None for side in sides)
    return not nothing and any(_named(side) in VARIANTS.split("|") for side in sides)


def _named(value: ast.expr) -> str:
    """What a value is called: a variable, an attribute, or a key."""
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_]):
            return name
    return ""


def _twice(named: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    places = defaultdict(list)
    for name, path in named:
        places[name].append(path)
    return {name: paths for name, paths in sorted(places.items()) if len(paths) > 1}


def _signatures(trees: Iterable[ast.Module]) -> Iterator[ast.expr]:
    """Every annotation of a function's arguments and result."""
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, Signed):
                yield from _annotations(node)


def _annotations(function: Signed) -> Iterator[ast.expr]:
    given = function.args
    everything = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    yield from (one.annotation for one in everything if one is not None and one.annotation is not None)
    if function.returns is not None:
        yield function.returns


def _public(source: Path, trees: dict[str, ast.Module]) -> Iterator[ast.expr]:
    """The annotations that whoever writes `import choral` meets: functions, and the public face of classes."""
    for full in front_door(source).values():
        room, _, name = full.rpartition(".")
        inner = room.replace(".", "/")
        tree = trees.get(f"{inner}.py") or trees.get(f"{inner}/__init__.py")
        for node in tree.body if tree else ():
            if isinstance(node, Signed) and node.name == name:
                yield from _annotations(node)
            elif isinstance(node, ast.ClassDef) and node.name == name:
                yield from _face(node)


def _face(node: ast.ClassDef) -> Iterator[ast.expr]:
    for inner in node.body:
        if isinstance(inner, Signed) and (inner.name == "__init__" or not inner.name.startswith("_")):
            yield from _annotations(inner)
        elif isinstance(inner, ast.AnnAssign) and not ast.unparse(inner.target).startswith("_"):
            yield inner.annotation


def _untyped(annotation: ast.expr) -> int:
    return ast.unparse(annotation).count(UNTYPED)


def _with_reason(name: str) -> str:
    return f"{name} ({SHARED[name]})" if name in SHARED else name


def _of_variant(name: str, seams: Seams) -> int:
    return seams.comparisons_of[name]


def table(counted: dict[str, Seams]) -> str:
    """The counts as a table of Markdown, a column for each revision."""
    rows = [("", *(revision if revision != HERE else "now" for revision in counted)), ("---", *["---:"] * len(counted))]
    counts: list[tuple[str, Callable[[Seams], int]]] = [
        ("lines of src", lambda seams: seams.lines),
        ("modules", lambda seams: seams.modules),
        ("lines that compare a variant", lambda seams: seams.comparisons),
        *((f"- {name}", partial(_of_variant, name)) for name in VARIANTS.split("|")),
        ("comparisons of a variant in the syntax tree", lambda seams: seams.switches),
        (f"`{UNTYPED}`", lambda seams: seams.untyped),
        ("- in signatures", lambda seams: seams.untyped_in_signatures),
        ("- in public signatures", lambda seams: seams.untyped_in_public_signatures),
        ("class names used twice", lambda seams: len(seams.classes_twice)),
        ("module names used twice", lambda seams: len(seams.modules_twice)),
    ]
    for title, value in counts:
        rows.append((title, *(f"{value(seams):,}" for seams in counted.values())))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    twice = [
        f"{revision if revision != HERE else 'now'}, {what} used twice: {', '.join(map(_with_reason, names))}"
        for revision, seams in counted.items()
        for what, names in (("classes", seams.classes_twice), ("modules", seams.modules_twice))
        if names
    ]
    return "\n".join([*(f"| {line} |" for line in lines), "", *twice])


def main() -> None:
    """Print the counts of each revision."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revisions", nargs="*", default=[HERE], help="what git knows, or . for the working tree")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    counted = {}
    for revision in arguments.revisions or [HERE]:
        with sources(revision) as folder:
            counted[revision] = count(folder)
    if arguments.json:
        print(json.dumps({revision: asdict(seams) for revision, seams in counted.items()}, indent=1))
    else:
        print(table(counted))


if __name__ == "__main__":
    main()
