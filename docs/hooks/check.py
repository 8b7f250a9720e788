"""What fails `make docs`, apart from broken links: code that no test runs, public names and error codes without a word.

A hook of mkdocs, and plain functions for the tests: each gives the faults that it finds below a folder, as sentences.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

# A block's language -> the function of tests/test_docs.py that executes it.
EXECUTED = {"bash": "run_bash", "console": "run_console", "python": "run_python", "toml": "run_toml"}
SOURCES = {"src": "choral", "lab/src": "choral_lab"}  # folder -> its package: the product, and the lab next to it
SHOWN = "text"  # formulas and forms: nothing to run
FENCE = re.compile(r"^( *)(`{3,}|~{3,})([^\n`]*)\n(.*?)^\1\2 *$", re.M | re.S)
FOREIGN = re.compile(r'<(?:script|img|link|source|iframe)\b[^>]*?\b(?:src|srcset|href)="(?:https?:)?//[^"]*"', re.I)
COMMAND = re.compile(r"^\s*(?:\$ |>>> |(?:choral|make|pip|python3?|import|from) \S)", re.M)


def pages(root: Path) -> list[Path]:
    """README and every page of the site that a person wrote."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[tuple[int, str, str]]:
    """(line of its first line, language, text) of every fenced block."""
    text = page.read_text()
    for match in FENCE.finditer(text):
        yield text[: match.start()].count("\n") + 2, match.group(3).strip(), match.group(4)


def unexecuted(root: Path) -> list[str]:
    """Blocks that no test runs: of another language, of none, indented, or commands that pass for text."""
    tests = {node.name for node in ast.parse((root / "tests/test_docs.py").read_text()).body
             if isinstance(node, ast.FunctionDef)}  # fmt: skip
    faults = [f"tests/test_docs.py has no {name}" for name in EXECUTED.values() if name not in tests]
    for page in pages(root):
        place = page.relative_to(root)
        for line, language, text in blocks(page):
            if language == SHOWN:
                if COMMAND.search(text):
                    faults.append(f"{place}:{line} is marked as text and holds commands, which no test would run")
            elif language not in EXECUTED:
                faults.append(f'{place}:{line} a block of "{language}", which no test runs')
        without = FENCE.sub(lambda match: "\n" * match.group().count("\n"), page.read_text())
        faults += [f"{place}:{line} an indented block, which no test runs" for line in _indented(without)]
    return faults


def _indented(text: str) -> Iterator[int]:
    """The first line of every block that is code by its indent alone: after a blank line, and not inside a list."""
    lines, inside = ["", *text.splitlines()], False
    for number, (before, line) in enumerate(pairwise(lines), 1):
        if line and not line.startswith(" "):
            inside = bool(re.match(r"[-*+] |\d+[.)] ", line))
        if line.startswith("    ") and line.strip() and not before.strip() and not inside:
            yield number


def sources(root: Path) -> Iterator[tuple[tuple[str, ...], Path]]:
    """The parts of every module's name, with its file: those of choral first, then those of the lab."""
    for folder, package in SOURCES.items():
        for path in sorted((root / folder / package).rglob("*.py")):
            yield path.relative_to(root / folder).with_suffix("").parts, path


def undocumented(root: Path) -> list[str]:
    """Public modules, classes, functions and methods without a docstring; names of the front door that are nowhere."""
    faults = []
    for parts, path in sources(root):
        module = ".".join(parts).removesuffix(".__init__")
        faults += [f"{name} has no docstring" for name in _silent(ast.parse(path.read_text()), module)]
    return faults + [f"choral.{name} is public and defined nowhere" for name in _nowhere(root / "src")]


def _silent(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Iterator[str]:
    form = isinstance(node.body[0], ast.Expr) and getattr(node.body[0].value, "value", None) is ...
    if not ast.get_docstring(node) and not form:  # the methods of a Protocol are explained by its class
        yield name
    for inner in [] if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else node.body:
        if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not inner.name.startswith("_"):
            yield from _silent(inner, f"{name}.{inner.name}")


def front_door(source: Path) -> dict[str, str]:
    """Public name -> its full name in the room that holds it, read off `choral/__init__.py`."""
    top = ast.parse((source / "choral/__init__.py").read_text()).body
    given = {ast.unparse(node.targets[0]): node.value for node in top if isinstance(node, ast.Assign)}
    names, rooms = (ast.literal_eval(given[name]) for name in ("__all__", "_ROOM_OF"))
    places = {name: rooms.get(name, "").partition(":") for name in names if not name.startswith("__")}
    return {name: f"{room}.{inner or name}" if room else "" for name, (room, _, inner) in places.items()}


def _nowhere(source: Path) -> list[str]:
    missing = []
    for name, full in front_door(source).items():
        room, _, inner = full.rpartition(".")
        folder = source.joinpath(*room.split("."))
        path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        if not full or not path.is_file() or inner not in _defined(ast.parse(path.read_text())):
            missing.append(name)
    return missing


def _defined(module: ast.Module) -> set[str]:
    """Every name that a module defines or imports at its top."""
    names = set()
    for node in module.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def codes(root: Path) -> dict[str, str]:
    """Error code -> its line, read off `choral/core/errors.py`."""
    for node in ast.parse((root / "src/choral/core/errors.py").read_text()).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "CODES":
            return dict(ast.literal_eval(node.value))  # type: ignore[arg-type]
    raise LookupError("choral/core/errors.py has no CODES")


def unexplained(root: Path) -> list[str]:
    """Error codes without an entry in src/choral/errors.toml, and entries without a code."""
    explained, listed = tomllib.loads((root / "src/choral/errors.toml").read_text()), codes(root)
    missing = [
        f"{code} ({line}) is not explained in src/choral/errors.toml"
        for code, line in listed.items()
        if code not in explained
    ]
    return missing + [
        f"src/choral/errors.toml explains {code}, which is no code" for code in explained if code not in listed
    ]


def faults(root: Path) -> list[str]:
    """Everything that is wrong, one sentence each."""
    return [*unexecuted(root), *undocumented(root), *unexplained(root)]


def fetched(site: Path) -> list[str]:
    """Pages of a built site that would fetch something from another host when they are opened."""
    return [
        f"{page.relative_to(site)} fetches from another host: {match.group()}"
        for page in sorted(site.rglob("*.html"))
        for match in FOREIGN.finditer(page.read_text())
    ]


def on_post_build(config: Any) -> None:  # noqa: ANN401 - as below
    """Stop if a reader's browser would call somebody else."""
    from mkdocs.exceptions import Abort

    if found := fetched(Path(config.site_dir)):
        raise Abort("\n".join(found))


def on_pre_build(config: Any) -> None:  # noqa: ANN401 - mkdocs' own type, which a test need not have
    """Stop the build at any fault."""
    from mkdocs.exceptions import Abort

    if found := faults(Path(config.config_file_path).parent):
        raise Abort("\n".join(["the documentation is not whole:", *found]))
