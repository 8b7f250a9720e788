"""Weighs the house: lines, files, switches, types and words, each with its limit. `make check` fails above one.

`python -m tools.weigh` weighs this working tree. `--at REVISION` or `--at FOLDER` weighs another one, and given several
times it shows them in columns. What is counted, and how, stands in tools/weigh.toml, with how near its patterns come to
the figures of 0.2.0 that the goals began with.
"""

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LIMITS = Path(__file__).with_suffix(".toml")


def imported_by(tree: ast.Module, modules: set[str]) -> Iterator[str]:
    """Every module of choral that a file imports, at its top or inside of a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            named = [f"{node.module}.{one.name}" for one in node.names]
            yield from (one if one in modules else node.module for one in named)


@dataclass(frozen=True, kw_only=True)
class House:
    """A checkout, and how it is counted."""

    root: Path
    how: dict[str, Any]

    @cached_property
    def product(self) -> dict[str, str]:
        """Every module of src, by its name, with its text."""
        return texts(self.root / "src")

    @cached_property
    def lab(self) -> dict[str, str]:
        """Every module of the lab likewise."""
        return texts(self.root / "lab" / "src")

    @cached_property
    def rooms(self) -> dict[str, int]:
        """Lines by room of the product and by package of the lab, the heaviest first."""
        found: Counter[str] = Counter()
        for name, text in self.product.items():
            found[room_of(name)] += text.count("\n")
        for name, text in self.lab.items():
            found[".".join(name.split(".")[:2])] += text.count("\n")
        return dict(found.most_common())

    @cached_property
    def switches(self) -> dict[str, tuple[int, int]]:
        """Lines that switch on a variant, and the files they stand in, by variant."""
        found = {}
        for variant, pattern in self.how["switches"].items():
            hits = [
                len([line for line in text.splitlines() if re.search(pattern, line)]) for text in self.product.values()
            ]
            found[variant] = (sum(hits), len([one for one in hits if one]))
        return found

    @cached_property
    def run_types(self) -> dict[str, int]:
        """Classes with many public numbers of a run among their fields: how many fields each has."""
        public, found = set(self.how["public_numbers"]), {}
        for name, text in self.product.items():
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef):
                    fields = fields_of(node)
                    if len(public & set(fields)) >= self.how["public_numbers_of_a_run_type"]:
                        found[f"{name}:{node.name}"] = len(fields)
        return found

    @cached_property
    def engines(self) -> list[str]:
        """Where a cohort is trained."""
        found = []
        for name, text in self.product.items():
            if room_of(name) in self.how["engine_rooms"]:
                lines = [line for pattern in self.how["engine"] for line in re.findall(f"(?m){pattern}", text)]
                found += [f"{name}: {line}" for line in lines]
        return found

    @cached_property
    def satellites(self) -> list[str]:
        """The modules that one other imports, where both are in one room."""
        names, importers = set(self.product), {name: set[str]() for name in self.product}
        for name, text in self.product.items():
            for one in set(imported_by(ast.parse(text), names)) & names - {name}:
                importers[one].add(name)
        return [one for one, by in importers.items() if len(by) == 1 and room_of(*by) == room_of(one)]

    @cached_property
    def tables_load(self) -> list[str]:
        """Functions that load tables and take more settings one by one than anybody can keep in mind."""
        found = []
        for name, text in self.product.items():
            if room_of(name) in self.how["table_rooms"]:
                functions = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.FunctionDef)]
                counts = [len(one.args.args) + len(one.args.kwonlyargs) for one in functions if one.name == "load"]
                found += [f"{name}:load" for count in counts if count > self.how["most_parameters"]]
        return found

    @cached_property
    def device_run(self) -> list[str]:
        """What a site's process loads over a whole study, which a test pins; before it did, at its import."""
        pinned: Path = self.root / self.how["loaded"]
        if pinned.exists():
            return pinned.read_text().split()
        script = (
            f"import json, sys; sys.path[:0] = {[str(self.root / 'src')]!r}; import {self.how['site']}; "
            "print(json.dumps(sorted(one for one in sys.modules if one.split('.')[0] == 'choral')))"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603
        loaded: list[str] = json.loads(done.stdout)
        return loaded

    @cached_property
    def figures(self) -> dict[str, int]:
        """Every figure that has a limit."""
        lines = {name: text.count("\n") for name, text in self.product.items()}
        pages = [path.read_text() for path in (self.root / "docs").rglob("*.md")]
        return {
            "core": sum(count for name, count in lines.items() if room_of(name) == "core"),
            "product": sum(lines.values()),
            "lab": sum(text.count("\n") for text in self.lab.values()),
            "files": len(lines),
            "device_run": len(self.device_run),
            "switches": sum(count for count, _ in self.switches.values()),
            "run_types": len(self.run_types),
            "engines": len(self.engines),
            "satellites": len(self.satellites),
            "tables_load": len(self.tables_load),
            "words": sum(len(text.split()) for text in pages),
        }

    def to_dict(self) -> dict[str, Any]:
        """All that is counted, as JSON."""
        return {
            "figures": self.figures,
            "rooms": self.rooms,
            "switches": {name: {"lines": lines, "files": files} for name, (lines, files) in self.switches.items()},
            "run_types": self.run_types,
            "engines": self.engines,
            "satellites": self.satellites,
            "tables_load": self.tables_load,
            "device_run": self.device_run,
        }


def room_of(module: str) -> str:
    """The room of a module: the second part of its name, or nothing at the door of choral."""
    return ".".join(module.split(".")[1:2])


def texts(source: Path) -> dict[str, str]:
    """The texts of the modules below a folder that is on the path, by their names."""
    paths = {path: path.relative_to(source).with_suffix("").parts for path in sorted(source.rglob("*.py"))}
    return {".".join(parts).removesuffix(".__init__"): path.read_text() for path, parts in paths.items()}


def fields_of(node: ast.ClassDef) -> list[str]:
    """The annotated names of a class, which are the fields of a record."""
    annotated = [one for one in node.body if isinstance(one, ast.AnnAssign)]
    return [ast.unparse(one.target) for one in annotated if "ClassVar" not in ast.unparse(one.annotation)]


def checked_out(where: str, folder: Path) -> Path:
    """The folder of a state: itself, or the files of a revision, taken from git into a folder that is thrown away."""
    if (Path(where) / "src" / "choral").is_dir():
        return Path(where).resolve()
    done = subprocess.run(["git", "archive", where], cwd=ROOT, capture_output=True, check=False)  # noqa: S603, S607
    if done.returncode:
        raise SystemExit(f"git has no {where!r}: {done.stderr.decode().strip()}")
    out = folder / where.replace("/", "_")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(out, filter="data")
    return out


def tightened(text: str, figures: dict[str, int]) -> str:
    """The limits lowered to the figures, where these are lower, but never below a goal."""
    for name, figure in figures.items():
        found = re.search(rf"(?ms)^\[{name}\]\n.*?^limit = (\d+)\ngoal = (\d+)$", text)
        if found and max(figure, int(found[2])) < int(found[1]):
            text = text[: found.start(1)] + str(max(figure, int(found[2]))) + text[found.end(1) :]
    return text


def table(columns: dict[str, House], limits: dict[str, Any]) -> Iterator[str]:
    """The lines of the table: every figure of each state, with its limit and its goal."""
    heads = [*columns, "limit", "goal"]
    yield " " * 64 + "".join(f"{head[-12:]:>13}" for head in heads)
    for name in next(iter(columns.values())).figures:
        row = [*(house.figures[name] for house in columns.values()), limits[name]["limit"], limits[name]["goal"]]
        yield f"{name:12}{limits[name]['what']:52}" + "".join(f"{one:13,}" for one in row)
    for title, part in (("lines of room", "rooms"), ("switches on", "switches")):
        names = dict.fromkeys(name for house in columns.values() for name in getattr(house, part))
        for name in names:
            counts = [getattr(house, part).get(name, 0) for house in columns.values()]
            shown = [f"{one:13,}" if isinstance(one, int) else f"{f'{one[0]} in {one[1]}':>13}" for one in counts]
            yield f"  {title} {name or 'choral':48}".ljust(64) + "".join(shown)


def main() -> int:
    """Weigh what was named, and say where it is too heavy."""
    parser = argparse.ArgumentParser(prog="python -m tools.weigh", description=__doc__.splitlines()[0])
    parser.add_argument("--at", action="append", metavar="STATE", help="a revision or a folder, in place of this tree")
    parser.add_argument("--json", action="store_true", help="print all that was counted, the names too, as JSON")
    parser.add_argument("--tighten", action="store_true", help="lower limits to the figures of this tree")
    given = parser.parse_args()
    limits = tomllib.loads(LIMITS.read_text())
    how = limits.pop("count")
    with tempfile.TemporaryDirectory() as folder:
        states = given.at or [str(ROOT)]
        columns = {
            "now" if one == str(ROOT) else one: House(root=checked_out(one, Path(folder)), how=how) for one in states
        }
        if given.json:
            print(json.dumps({name: house.to_dict() for name, house in columns.items()}, indent=1))
        else:
            print(*table(columns, limits), sep="\n")
        figures = list(columns.values())[-1].figures
    if given.at:
        return 0
    if given.tighten:
        LIMITS.write_text(tightened(LIMITS.read_text(), figures))
        return 0
    heavy = [name for name, figure in figures.items() if figure > limits[name]["limit"]]
    for name in heavy:
        print(
            f"{name}: {figures[name]:,} is above its limit of {limits[name]['limit']:,} ({limits[name]['what']}).",
            "Take as much out elsewhere, or say in docs/decisions why not and raise the limit there.",
            file=sys.stderr,
        )
    return int(bool(heavy))


if __name__ == "__main__":
    raise SystemExit(main())
