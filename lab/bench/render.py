"""The pages that show measured figures, filled from bench/results.json and bench/gpu.json: `python -m bench.render`.

A page marks a figure as `<!-- figure engine.noise_overhead .1f -->1.2<!-- end -->`, a table as `<!-- table engine -->`
to `<!-- end -->`; what stands between is written here. A figure is a path into the results, perhaps divided
(`limits.flops/1e9`), and Python's format for it. `--check` writes nothing. It fails if a page would change, and if a
figure was measured with an earlier version of what it depends on (bench/engines.toml). A test does the same, and finds
speeds that stand in a page without a mark.
"""

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import tables
from bench.setup import ROOT

FIGURE = re.compile(r"(<!-- figure (\S+) (\S+) -->)(.*?)(<!-- end -->)", re.S)
TABLE = re.compile(r"(<!-- table (\w+) -->)(.*?)(<!-- end -->)", re.S)
SPEED = re.compile(
    r"\d[\d.,]*\s?(?:ms|µs|ns|s|seconds|minutes|[GM]B/s|[GT]FLOP/s|times (?:faster|slower|as fast))(?![\w/])"
)
NUMBER = re.compile(r"\**[≥≤~+−-]?\d[\d.,\s%±+−-]*(?:to [\d.,\s%±−-]*)?(?:ms|s|kB|MiB)?\**")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.M | re.S)
# Pages whose figures have their own results files, which lab/tests/paper compares.
ELSEWHERE = ("docs/paper.md",)

Results = dict[str, Any]


def pages(root: Path = ROOT) -> list[Path]:
    """README and every page that a person wrote."""
    found = [root / "README.md", root / "lab/bench/README.md", *sorted((root / "docs").rglob("*.md"))]
    return [page for page in found if str(page.relative_to(root)) not in ELSEWHERE]


def results(root: Path = ROOT) -> Results:
    """Every figure by its path: the benchmarks by name, and `gpu`; nothing where nothing was measured."""
    files = {name: root / f"lab/bench/{name}.json" for name in ("results", "gpu")}
    read = {name: json.loads(path.read_text()) for name, path in files.items() if path.exists()}
    reported = read.get("results", {})
    about = {"about": {name: reported[name] for name in ("machine", "quick", "measured")}} if reported else {}
    return {**reported.get("benchmarks", {}), **about, **({"gpu": read["gpu"]} if "gpu" in read else {})}


def engines(root: Path = ROOT) -> dict[str, Any]:
    """What figures depend on, by name: its version, and the benchmarks whose figures a new version may change."""
    return tomllib.loads((root / "lab/bench/engines.toml").read_text())


def outdated(found: Results, versions: dict[str, Any]) -> list[str]:
    """The figures that were measured with an earlier version of what they depend on, one sentence each.

    >>> measured = {"accuracy": {"at": "2026-01-01", "commit": "1a2b", "engines": {"training": 1}}}
    >>> outdated({"about": {"measured": measured}}, {"training": {"version": 2, "figures": ["accuracy"]}})
    ['accuracy was measured on 2026-01-01 (1a2b) with version 1 of training, which has version 2 now']
    """
    measured = found.get("about", {}).get("measured", {})
    return [
        f"{name} was measured on {measured[name]['at']} ({measured[name]['commit']}) with version "
        f"{measured[name]['engines'].get(engine, 0)} of {engine}, which has version {about['version']} now"
        for engine, about in versions.items()
        for name in about["figures"]
        if name in measured and measured[name]["engines"].get(engine, 0) < about["version"]
    ]


def figure(found: Results, path: str, form: str) -> str:
    """One figure as text.

    >>> figure({"limits": {"flops": 2.5e10}}, "limits.flops/1e9", ".1f")
    '25.0'
    """
    name, _, divisor = path.partition("/")
    value: Any = found
    for key in name.split("."):
        value = value[int(key) if isinstance(value, list) else key]
    return format(value / float(divisor or 1) if isinstance(value, int | float) else value, form)


def filled(text: str, found: Results) -> str:
    """The page with every mark filled again."""
    text = FIGURE.sub(lambda at: at[1] + figure(found, at[2], at[3]) + at[5], text)
    return TABLE.sub(lambda at: f"{at[1]}\n\n{tables.shown(at[2], found)}\n\n{at[4]}", text)


def unmarked(text: str) -> Iterator[str]:
    """Speeds that stand in a page with no results behind them; limits and settings are written in words or code."""
    for pattern in (FIGURE, TABLE, CODE):
        text = pattern.sub(lambda at: "\n" * at[0].count("\n"), text)
    for number, line in enumerate(text.splitlines(), 1):
        for match in SPEED.finditer(line):
            yield f"line {number}: {match[0]}"


def typed(text: str) -> Iterator[str]:
    """Cells of tables that are a number and that no result fills.

    >>> list(typed("| first turn | 0.31 ± 0.02 |"))
    ['line 1: 0.31 ± 0.02']
    """
    for pattern in (FIGURE, TABLE, CODE):
        text = pattern.sub(lambda at: "\n" * at[0].count("\n"), text)
    for number, line in enumerate(text.splitlines(), 1):
        for cell in line.strip("|").split("|") if line.startswith("|") else ():
            if NUMBER.fullmatch(cell.strip()):
                yield f"line {number}: {cell.strip()}"


def main(words: Sequence[str] | None = None) -> int:
    """Fill the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page would change")
    args = parser.parse_args(words)
    found, stale = results(), []
    for page in pages():
        text = page.read_text()
        if (new := filled(text, found)) != text:
            stale.append(str(page.relative_to(ROOT)))
            if not args.check:
                page.write_text(new)
    old = outdated(found, engines())
    print("\n".join(stale + old) or "every page shows the results", file=sys.stderr)
    return int(args.check and bool(stale + old))


if __name__ == "__main__":
    sys.exit(main())
