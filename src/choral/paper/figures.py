"""The figures by their names: each measured, written as a results file, and drawn."""

import json
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import choral
from choral.errors import ConfigError
from choral.paper import adult
from choral.paper.convergence import bounds, convergence
from choral.paper.page import write_page
from choral.paper.panels import chart_of
from choral.paper.tuning import Counting, Shelf
from choral.paper.utility import tradeoff, utility
from choral.report.charts import alone
from choral.report.png import png_of
from choral.run.folder import write_whole

Figure = Callable[..., dict[str, Any]]
FIGURES: dict[str, Figure] = {
    "convergence-logistic": partial(convergence, "logistic"),
    "convergence-network": partial(convergence, "network"),
    "utility-logistic": partial(utility, "logistic"),
    "utility-network": partial(utility, "network"),
    "tradeoff-logistic": partial(tradeoff, "logistic"),
    "tradeoff-network": partial(tradeoff, "network"),
    "bounds": bounds,
}


def _timed(name: str, total: int, tell: Callable[[str], object]) -> Callable[[str], None]:
    """Tells of each measurement which of how many it is, and about how long the rest will take."""
    began, done = time.monotonic(), 0

    def said(what: str) -> None:
        nonlocal done
        left = round((time.monotonic() - began) / done * (total - done)) if done else None
        done += 1
        tell(f"{name} {done}/{total}" + ("" if left is None else f" {left // 60:02}:{left % 60:02} left") + f"  {what}")

    return said


def reproduce(
    name: str, out: Path, *, repeats: int = 5, quick: bool = False, tell: Callable[[str], object] = lambda _: None
) -> dict[str, Any]:
    """Measure one figure, or go on with it; NAME.json, charts and index.html lie in `out` then."""
    if name not in FIGURES:
        raise ConfigError("CH101", f'unknown figure "{name}".', fix=f"Known: {', '.join(FIGURES)}, all.")
    if not 1 <= repeats <= 100:
        raise ConfigError("CH102", f"repeats = {repeats}.", where="choral reproduce", fix="Use 1 to 100.")
    repeats = min(repeats, 2) if quick else repeats
    counting = Counting(out / "curves", repeats)
    FIGURES[name](counting, quick=quick)
    found = FIGURES[name](Shelf(out / "curves", repeats, tell=_timed(name, len(counting.missing), tell)), quick=quick)
    result = {
        "figure": name,
        **found,
        "repeats": repeats,
        "seeds": list(range(repeats)),
        "quick": quick,
        "features": adult.described(),
        "versions": {"choral": choral.__version__, "jax": version("jax"), "numpy": version("numpy")},
    }
    write_whole(out / f"{name}.json", (json.dumps(result, indent=1) + "\n").encode())
    for number, panel in enumerate(result["panels"], start=1):
        chart = chart_of(panel)
        write_whole(out / f"{name}-{number}.svg", alone(chart).encode())
        if picture := png_of(chart):
            write_whole(out / f"{name}-{number}.png", picture)
    write_page(out, [one for one in FIGURES if (out / f"{one}.json").exists()])
    return result
