"""Measure a figure of the paper again, and draw it.

FIGURE is utility-logistic, utility-network, tradeoff-logistic, tradeoff-network,
convergence-logistic, convergence-network, bounds, or all. Results, charts (SVG, and
PNG with the extra png) and index.html go to the folder of --out; what was measured
before is kept, so that an interrupted reproduction goes on where it stopped.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from choral.cli.terminal import unfiltered, width, wrap

if TYPE_CHECKING:
    from choral_lab.research import ResultsFile


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("figure", metavar="FIGURE", help='a figure\'s name, or "all"')
    parser.add_argument("--out", type=Path, default=Path("paper"), help="the folder for results (default: paper)")
    parser.add_argument("--repeats", type=int, default=5, help="splits of the data, each trained on (default: 5)")
    parser.add_argument("--quick", action="store_true", help="2 repeats and fewer settings")
    parser.add_argument("--quiet", action="store_true", help="print only where the results are")


def run(args: argparse.Namespace) -> int:
    """Measure, and print what came out."""
    from choral_lab.paper.figures import ABOUT_EPSILON, FIGURES, reproduce
    from choral_lab.research.pictures import why_not

    names = list(FIGURES) if args.figure == "all" else [args.figure]
    with _progress(show=not (args.json or args.quiet)) as tell:
        found = {name: reproduce(name, args.out, repeats=args.repeats, quick=args.quick, tell=tell) for name in names}
    if args.json:
        print(json.dumps(found if args.figure == "all" else found[args.figure]))
    elif args.quiet:
        print(f"SAVED {args.out / 'index.html'}")
    else:
        print("\n".join(line for name in names for line in _shown(found[name])))
        print(wrap(f"NOTE  {ABOUT_EPSILON}"))
        if missing := why_not():
            print(wrap(f"NOTE  Charts are SVG only: {missing}."))
        print(f"SAVED {args.out / 'index.html'}")
    return 0


@contextmanager
def _progress(*, show: bool) -> Iterator[Callable[[str], None]]:
    """A function that shows one line in place of the last; none of it stays on the screen."""
    stream = unfiltered(sys.stderr) if show and sys.stderr.isatty() else None

    def tell(line: str) -> None:
        if stream:
            print(f"\r\033[K{line[: width() - 1]}", end="", file=stream, flush=True)

    try:
        yield tell
    finally:
        tell("")


def _shown(result: "ResultsFile") -> list[str]:
    """The end of every line of the figure."""
    lines = [f"{result['figure']} · {result['repeats']} repeats · mean ± deviation at the end of each line"]
    for panel in result["panels"]:
        lines.append(f"  {panel['title']}: {panel['y']}")
        for one in panel["lines"]:
            low, high = one["spread"][-1]
            lines.append(f"    {one['name']:<44}{one['points'][-1][1]:>10.4g} ± {(high - low) / 2:.2g}")
    return lines
