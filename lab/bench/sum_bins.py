"""Is the proposed number of bins of a survival curve a good one? `python -m bench.sum_bins --fresh [--json]`.

--made: lives that are made up, on which the rule was settled. --fresh: survival tables of SurvSet that the rule was not
made with. The list FRESH, the measure and what counts as success (below) were fixed before any of them was loaded, and
each was run once. Whoever looks at a result here and then changes the rule must find other tables.

The curve is asked for at ε = 1 over five sites (δ = 1e-5, one record replaced, rule S8), against a lying server and its
colluders ("lying"), and where nobody may drop out ("sum"). Nobody says where its time axis ends, so it ends where the
declared range of times does. That range is the longest time rounded up to 1, 2 or 5 times a power of ten, as by a site
that knows the order of the longest time; it is up to 2.5 times too long.

Error: the largest distance between the private curve, with straight lines between its bins, and the Kaplan-Meier curve
of the same rows, at all times at which a tenth of the rows or more are at risk; its mean over 200 noises. Bins that are
too coarse count here, unlike at the ends of bins. It is divided by the error of the number of bins that is best with
hindsight, out of HINDSIGHT. Coverage: of 95 % intervals that are not rough, over 200 samples of rows with new noise.

Success: the error is at most 1.5 times that of hindsight on at least ten of the twelve tables, for "lying" and "sum",
and never more than twice; and the mean coverage over the tables with intervals that are not rough is 93 to 98 %.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from bench.harness import NoFigureError
from bench.sum_curves import NOISES, coverage, whole_table
from bench.sum_settings import terms_of
from bench.sum_tables import SumTable, survset
from choral.asking.catalogue import completed, estimate
from choral.asking.question import Question

SITES, WITHIN, NEVER_BEYOND = 5, 1.5, 2.0
HINDSIGHT = (2, 4, 6, 8, 12, 16, 24, 36, 48)
AT_RISK = 0.1  # of the rows: the curve is judged as far as so many are watched
KINDS = ("lying", "sum")
Vector = NDArray[np.float64]
FRESH = (
    "whas500", "veteran", "GBSG2", "Aids2", "colon", "LeukSurv", "Framingham", "prostateSurvival", "TRACE", "rott2",
    "dataDIVAT1", "smarto",
)  # fmt: skip


def fresh(name: str) -> SumTable:
    """Times and events of a table of SurvSet."""
    return _lives(survset(name)[["time", "event"]])


def made(*, rows: int, shape: float, events: float, cured: float, seed: int) -> SumTable:
    """Weibull lives of this shape, of which some never end, censored evenly so that about this share has its event."""
    chance = np.random.default_rng(seed)
    lives = np.where(chance.random(rows) < cured, np.inf, chance.weibull(shape, rows))
    ends = chance.random(rows)
    longest = next(end for end in np.geomspace(0.01, 300, 400) if np.mean(lives <= ends * end) >= events * (1 - cured))
    time = np.minimum(lives, ends * longest)
    return _lives(pandas.DataFrame({"time": time, "event": (lives <= ends * longest).astype(int)}))


MADE: dict[str, Callable[[], SumTable]] = {
    f"{rows} rows, shape {shape:g}, {events:.0%} events, {cured:.0%} cured": partial(
        made, rows=rows, shape=shape, events=events, cured=cured, seed=place
    )
    for place, (rows, shape, events, cured) in enumerate(
        (rows, shape, events, cured)
        for rows in (300, 1000, 3000, 10_000)
        for shape in (0.6, 1.0, 2.5)
        for events, cured in ((0.15, 0.0), (0.5, 0.0), (0.8, 0.0), (0.9, 0.6))
    )
}


def _lives(frame: pandas.DataFrame) -> SumTable:
    frame = frame[frame["time"] > 0].reset_index(drop=True)
    declared = {"time": {"bounds": [0, rounded_up(float(frame["time"].max()))]}}
    settings = {"label": "event", "classes": ["0", "1"], "columns": declared, "devices": SITES, "cohort": SITES}
    survival = {"time": "time", "event": "event"}
    return SumTable(rows=frame.astype({"event": int}), settings=settings, survival=survival, devices=SITES)


def rounded_up(longest: float) -> float:
    """The least of 1, 2 and 5 times a power of ten that is not below it.

    >>> [rounded_up(longest) for longest in (0.3, 20, 21, 999)]
    [0.5, 20.0, 50.0, 1000.0]
    """
    power = 10.0 ** math.floor(math.log10(longest))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= longest)


def kaplan_meier(table: SumTable) -> tuple[Vector, Vector]:
    """Times, and the share that lives on after each: as long as a tenth of the rows are at risk."""
    time, event = table.rows["time"].to_numpy(float), table.rows["event"].to_numpy(bool)
    times = np.unique(time)
    at_risk = len(time) - np.searchsorted(np.sort(time), times, side="left")
    died = np.array([event[time == one].sum() for one in times])
    kept = at_risk >= AT_RISK * len(time)
    return times[kept], np.cumprod(1 - died / at_risk)[kept]


def error(table: SumTable, kind: str, bins: int) -> float:
    """The mean over noises of the largest distance of the private curve from that of the same rows."""
    question = Question(name="km", parameters={**table.survival, "bins": bins})
    terms, rows, (times, true) = terms_of(table, kind), whole_table(table, ("time", "event")), kaplan_meier(table)
    checked, chance, errors = terms.read(question.canonical()), np.random.default_rng(4), list[float]()
    deviation, total = checked.noise.deviation * np.sqrt(table.devices), checked.summand.total(rows)
    for _ in range(NOISES):
        noisy = total + chance.normal(0, deviation, len(total))
        found = estimate(question, terms.columns, noisy, rows=rows.rows, deviation=deviation).rows  # type: ignore[arg-type]
        ends, curve = [0.0, *(row["time"] for row in found)], [1.0, *(row["estimate"] for row in found)]
        errors.append(float(np.abs(np.interp(times, ends, curve) - true).max()))
    return statistics.mean(errors)


def proposed(table: SumTable, kind: str) -> int:
    """The number of bins that the asker fills in."""
    terms, question = terms_of(table, kind), Question(name="km", parameters=table.survival)
    deviation = terms.read(question.canonical()).noise.deviation * np.sqrt(table.devices)
    filled = completed(question, terms.columns, rows=len(table.rows), deviation=deviation)
    return int(filled.parameters["bins"])  # type: ignore[call-overload]


def judged(table: SumTable, kind: str, draws: int) -> dict[str, Any]:
    """The proposed number of bins next to the best with hindsight, and how often intervals hold."""
    bins = proposed(table, kind)
    errors = {each: error(table, kind, each) for each in sorted({*HINDSIGHT, bins})}
    best = min(errors, key=lambda each: errors[each])
    found: dict[str, Any] = {"rows": len(table.rows), "events": int(table.rows["event"].sum()), "bins": bins}
    found |= {"error": round(errors[bins], 4), "best_bins": best, "best_error": round(errors[best], 4)}
    found["times_best"] = round(errors[bins] / errors[best], 3)
    if draws:
        survival = {**table.survival, "bins": bins}
        asked = SumTable(rows=table.rows, settings=table.settings, survival=survival, devices=table.devices)
        try:
            found["coverage"] = round(coverage(asked, draws, kind), 4)
        except NoFigureError as rough:
            found |= {"coverage": None, "coverage_why": str(rough)}
    return found


def main() -> None:
    """Judge every table, and say how many are within the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--made", action="store_true", help="made-up lives")
    which.add_argument("--fresh", action="store_true", help="tables that the rule was not made with")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()
    tables = MADE if args.made else {name: partial(fresh, name) for name in FRESH}
    found: dict[str, Any] = {}
    for kind in KINDS:
        for name, source in tables.items():
            found[f"{name}, {kind}"] = judged(source(), kind, 0 if args.made else 200)
            print(f"{name}, {kind}", json.dumps(found[f"{name}, {kind}"]), file=sys.stderr, flush=True)
    for kind in KINDS:
        of_kind = [one for name, one in found.items() if name.endswith(f", {kind}")]
        ratios = [one["times_best"] for one in of_kind]
        held = [one["coverage"] for one in of_kind if one.get("coverage") is not None]
        within = sum(ratio <= WITHIN for ratio in ratios)
        found[kind] = {"within": within, "of": len(ratios), "most": max(ratios), "beyond": NEVER_BEYOND}
        found[kind]["coverage"] = round(statistics.mean(held), 4) if held else None
        print(kind, json.dumps(found[kind]), file=sys.stderr)
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
