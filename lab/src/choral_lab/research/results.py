"""A figure from one end to the other: its work counted, measured, written as a results file, and drawn."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any, NotRequired, TypedDict, cast

from choral import __version__
from choral.report.charts import alone
from choral.run.folder import write_whole
from choral_lab.research.measurements import Counting, Measurements
from choral_lab.research.panels import Panel, chart_of
from choral_lab.research.pictures import png_of
from choral_lab.research.verdicts import Claims


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a figure shows: its results by their names, what they say of each claim, and its charts."""

    results: Mapping[str, object]
    claims: Claims
    panels: list[Panel]


Figure = Callable[[Measurements], Found]


class ResultsFile(TypedDict):
    """What every results file has; the results of the figure itself are among these, by their names."""

    figure: str
    claims: list[list[str]]
    panels: list[Panel]
    repeats: int
    seeds: list[int]
    versions: dict[str, str]
    quick: NotRequired[bool]


def measure(
    name: str,
    figure: Figure,
    out: str | Path,
    *,
    repeats: int,
    tell: Callable[[str], object] = lambda _: None,
    **about: Any,  # noqa: ANN401 - plain values
) -> ResultsFile:
    """The results of a figure, gone on with where it was interrupted; NAME.json and its charts lie in `out` then.

    The figure is called twice, first only to count the measurements. `about` goes into the results file as it is.
    """
    out = Path(out)
    counting = Counting(out / "curves", repeats)
    figure(counting)
    said, moved = _timed(name, len(counting.missing), tell)
    found = figure(Measurements(out / "curves", repeats, tell=said, moved=moved))
    versions = {"choral": __version__, "jax": version("jax"), "numpy": version("numpy")}
    claims = {"claims": [[claim, *said] for claim, said in found.claims.items()], "panels": found.panels}
    known = {"repeats": repeats, "seeds": list(range(repeats)), **about, "versions": versions}
    result = cast("ResultsFile", {"figure": name, **found.results, **claims, **known})
    write_whole(out / f"{name}.json", (json.dumps(result, indent=1) + "\n").encode())
    for number, panel in enumerate(result["panels"], start=1):
        chart = chart_of(panel)
        write_whole(out / f"{name}-{number}.svg", alone(chart).encode())
        if picture := png_of(chart):
            write_whole(out / f"{name}-{number}.png", picture)
    return result


def _timed(name: str, total: int, tell: Callable[[str], object]) -> tuple[Callable[[str], None], Callable[[str], None]]:
    """What tells of each measurement which of how many it is, and about how long the rest will take.

    And what tells how far the training for the next ones is, which several threads may do at the same time.
    """
    began, done, one_at_a_time = time.monotonic(), 0, Lock()

    def line(number: int, what: str) -> str:
        left = round((time.monotonic() - began) / done * (total - done)) if done else None
        return (
            f"{name} {number}/{total}" + ("" if left is None else f" {left // 60:02}:{left % 60:02} left") + f"  {what}"
        )

    def said(what: str) -> None:
        nonlocal done
        with one_at_a_time:
            tell(line(done + 1, what))
            done += 1

    def moved(what: str) -> None:
        with one_at_a_time:
            tell(line(done, what))

    return said, moved
