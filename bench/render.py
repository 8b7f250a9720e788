"""The pages that show measured figures, filled from bench/results.json and bench/gpu.json: `python -m bench.render`.

A page marks a figure as `<!-- figure engine.noise_overhead .1f -->1.2<!-- end -->`, a table as `<!-- table engine -->`
to `<!-- end -->`; what stands between is written here. A figure is a path into the results, perhaps divided
(`limits.flops/1e9`), and Python's format for it. `--check` writes nothing and fails if a page would change; a test
does the same, and finds speeds that stand in a page without a mark.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import tables
from bench.setup import HERE

ROOT = HERE.parent
FIGURE = re.compile(r"(<!-- figure (\S+) (\S+) -->)(.*?)(<!-- end -->)", re.S)
TABLE = re.compile(r"(<!-- table (\w+) -->)(.*?)(<!-- end -->)", re.S)
SPEED = re.compile(
    r"\d[\d.,]*\s?(?:ms|µs|ns|s|seconds|minutes|[GM]B/s|[GT]FLOP/s|times (?:faster|slower|as fast))(?![\w/])"
)
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.M | re.S)
# Pages whose figures have their own results file: paper/, held by tests/paper.
ELSEWHERE = ("docs/paper.md",)

Results = dict[str, Any]


def pages(root: Path = ROOT) -> list[Path]:
    """README and every page that a person wrote."""
    found = [root / "README.md", root / "bench/README.md", *sorted((root / "docs").rglob("*.md"))]
    return [page for page in found if str(page.relative_to(root)) not in ELSEWHERE]


def results(root: Path = ROOT) -> Results:
    """Every figure by its path: the benchmarks by name, and `gpu`; nothing where nothing was measured."""
    files = {name: root / f"bench/{name}.json" for name in ("results", "gpu")}
    read = {name: json.loads(path.read_text()) for name, path in files.items() if path.exists()}
    reported = read.get("results", {})
    about = {"about": {name: reported[name] for name in ("at", "machine", "quick")}} if reported else {}
    return {**reported.get("benchmarks", {}), **about, **({"gpu": read["gpu"]} if "gpu" in read else {})}


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
    print("\n".join(stale) or "every page shows the results", file=sys.stderr)
    return int(args.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
