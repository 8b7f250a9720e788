"""The figures of each site and of each group in words, after a run in one process; no file of the run holds them."""

import argparse
from typing import TYPE_CHECKING

from choral.core.printable import escaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from choral.run.breakdown import GroupFigures
    from choral.run.result import Result
    from choral.run.study import Study

MOST_GROUPS = 20
Found = dict[str, "list[GroupFigures]"]


def configure(parser: argparse.ArgumentParser) -> None:
    """The flag."""
    parser.add_argument(
        "--by", action="append", metavar="NAME", help='also print figures per "site", or per level of a column'
    )


def check(study: "Study", args: argparse.Namespace) -> None:
    """Nothing, or what is wrong with --by, before anything is trained."""
    from choral.run.breakdown import check_groups

    for name in getattr(args, "by", None) or ():
        check_groups(name, study.data.columns, study.split.test)


def asked(result: "Result", args: argparse.Namespace) -> Found:
    """The figures that --by asks for."""
    from choral.run.breakdown import SITE, by_column, by_site

    names = getattr(args, "by", None) or ()
    return {name: by_site(result) if name == SITE else by_column(result, name) for name in names}


def as_object(found: Found) -> dict[str, list[dict[str, object]]]:
    """The same for machines."""
    return {
        name: [{"name": one.name, "rows": one.rows, **one.figures} for one in groups] for name, groups in found.items()
    }


def lines(found: Found) -> "Iterator[str]":
    """A line for each site or group, with its test rows and its figures."""
    for name, groups in found.items():
        figures = list(dict.fromkeys(figure for one in groups for figure in one.figures))
        yield ""
        yield f"BY {escaped(name).upper()}   on test rows; not private, written nowhere"
        yield f"  {'':14}{'rows':>8}" + "".join(f"{figure:>10}" for figure in figures)
        for one in groups[:MOST_GROUPS]:
            shown = "".join(f"{one.figures[key]:10.3f}" if key in one.figures else f"{'–':>10}" for key in figures)
            yield f"  {escaped(one.name)[:14]:14}{one.rows:8,}{shown}"
        if len(groups) > MOST_GROUPS:
            yield f"  … and {len(groups) - MOST_GROUPS} more with --json"
