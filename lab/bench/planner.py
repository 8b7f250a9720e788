"""The planner's settings next to the best of a grid: `python -m bench.planner [--quick] [--json] [--data DIR]`.

Real tables over five sites, even and with shares of 50/28/14/6/2 %, δ = 1e-5 against everyone, one record replaced;
`--data DIR` adds GUSTO-I, School and Heart over their own sites. Accuracy on held-out rows, or R² of a number, mean
over splits and some draws of the noise. `planner` is what `choral.simulate` reaches with every number proposed. `best`
is the best setting of a grid of at least 200: found by test rows on some splits, and judged on the others, where
`planner`, `alone` and the rest are judged as well. `gap` is best − planner, `gap_error` its standard error over these
splits. `best_where_found`, `planner_there` and `gap_there` are the same on the splits that the best was found on, where
it is the luckiest of hundreds. `more` is what the planner gains over the next smaller ε, split by split over all of
these splits and at least ten, with its standard error: of two splits it would say nothing.
`never_worse_with_more_budget` says that no such gain is below −2 errors. `alone` and
`without_privacy` are trained to convergence, `most_common` is always the most common class. `expected` is the verdict
before the run, from public numbers, and `happened` the one that the figures give.

`--quick` takes two and two splits, at most 1,500 rows of a table, and a smaller grid. `--keep FILE` writes what is
known after every table; a table that FILE has is not measured again, and grids are kept split by split.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bench.harness import NoFigureError
from bench.planner_grid import DELTA, EPSILONS, FRESH_DRAWS, FULL, QUICK, Best, Effort, best_of, study_of
from bench.real_tables import IN_FOLDER, PACKAGED, RealTable
from bench.side_by_side import ends_of, merits
from choral.planner.prospect import happened
from choral.record import Baselines, Measured
from choral.record.outcome import merit
from choral.run.planning import prospect_of
from choral.run.runs import Run, baselines
from choral.run.study import Study

LEAST_SPLITS = 10  # on which more budget is compared with less
MARGINS = {"accuracy": 0.01, "r2": 0.03}  # within which a model is on par with a site alone, as `happened` has it


@dataclass(frozen=True, kw_only=True)
class OneRun:
    """The proposal at one ε on one split, next to the baselines of the same rows."""

    planner: float
    skewed: float | None
    baselines: Baselines
    expected: str | None
    test_rows: int  # 0 where a number is predicted


def simulated(study: Study, draws: int) -> float:
    """What the study's own plan reaches on its test rows, in the mean over draws of batches and noise.

    Settings are trained side by side, which is the same and quicker; where noisy steps weigh sites by their rows, they
    are simulated one after the other.
    """
    if study.plan.weighed:
        runs = [Run("simulation", replace(study, seed=1000 * draw + study.seed)) for draw in range(1, draws + 1)]
        return statistics.fmean(merit(run.finish().test)[1] for run in runs)
    plans, rng = [study.plan] * (FRESH_DRAWS * draws), np.random.default_rng([study.seed, 0x9A4])
    server = "averaged" if study.plan.once else "mean"
    models = ends_of(study.model, study.split.train, plans, rng)[server]
    return float(merits(study.model, models, study.split.test).mean())


def planner_alone(table: RealTable, effort: Effort, seed: int) -> dict[float, float]:
    """What the planner's own numbers reach on one split, ε by ε."""
    draws = effort.draws(len(table.frame))
    return {epsilon: simulated(study_of(table, epsilon, seed), draws) for epsilon in EPSILONS}


def proposed(table: RealTable, effort: Effort, seed: int) -> dict[float, OneRun]:
    """The planner's own numbers and the baselines on one split, ε by ε."""
    draws, found = effort.draws(len(table.frame)), {}
    others = baselines(study_of(table, EPSILONS[0], seed))
    for epsilon in EPSILONS:
        study = study_of(table, epsilon, seed)
        expected, rows = prospect_of(study), len(study.split.test.labels)
        planner = simulated(study, draws)  # before the other sites of the same seed are dealt
        skewed = study_of(table, epsilon, seed, skewed=True) if table.sites_are_made else None
        found[epsilon] = OneRun(
            planner=planner, skewed=simulated(skewed, draws) if skewed else None, baselines=others,
            expected=expected.kind if expected else None, test_rows=rows if study.model.classes else 0,
        )  # fmt: skip
    return found


def _error(figures: Sequence[float]) -> float | None:
    """The standard error of a mean over splits."""
    return statistics.stdev(figures) / math.sqrt(len(figures)) if len(figures) > 1 else None


def agrees(expected: str | None, gain: float, error: float, margin: float) -> bool:
    """Whether a gain that is known up to twice its standard error does not contradict what was expected.

    >>> [agrees(kind, -0.025, 0.004, 0.01) for kind in ("worse", "on par", "better")]
    [True, False, False]
    >>> agrees("on par", -0.025, 0.01, 0.01)
    True
    """
    low, high = gain - 2 * error, gain + 2 * error
    fits = {"worse": low < -margin, "on par": low <= margin and high >= -margin, "better": high > margin}
    return expected is not None and fits[expected]


def figures_in(runs: Sequence[dict[float, OneRun]]) -> list[dict[float, float]]:
    """What the planner's own numbers reached, split by split and ε by ε."""
    return [{epsilon: run.planner for epsilon, run in one.items()} for one in runs]


def with_gains(found: dict[str, Any], reached: Sequence[dict[float, float]]) -> dict[str, Any]:
    """The figures by ε, each but the first with what it gains over the next smaller ε, split by split."""
    for smaller, larger in pairwise(EPSILONS):
        gains = [one[larger] - one[smaller] for one in reached]
        found[f"{larger:g}"] |= {
            "more": round(statistics.fmean(gains), 4),
            "more_error": round(_error(gains) or 0.0, 4),
        }
    return found


def _described(runs: Sequence[OneRun]) -> dict[str, Any]:
    """The proposal's figures at one ε, and the verdicts about it."""
    planner = statistics.fmean(one.planner for one in runs)
    alone, without, common = (
        statistics.fmean(getattr(one.baselines, name) for one in runs)
        for name in ("alone", "without_privacy", "most_common")
    )
    rows = sum(one.test_rows for one in runs)
    name, error = ("accuracy", math.sqrt(planner * (1 - planner) / rows)) if rows else ("r2", None)
    verdict = happened(
        {name: planner}, Measured(rows=rows, error=error), Baselines(without_privacy=without, alone=alone)
    )
    spread = _error([one.planner - (one.baselines.alone or 0.0) for one in runs]) or 0.0
    skewed = [one.skewed for one in runs if one.skewed is not None]
    expected = runs[0].expected
    return {
        "planner": round(planner, 4), "skewed": round(statistics.fmean(skewed), 4) if skewed else None,
        "alone": round(alone, 4), "without_privacy": round(without, 4), "most_common": round(common, 4),
        "gain": round(planner - alone, 4), "gain_error": round(spread, 4), "expected": expected,
        "happened": verdict and verdict.kind, "agrees": agrees(expected, planner - alone, spread, MARGINS[name]),
    }  # fmt: skip


def _beside(runs: Sequence[OneRun], there: Sequence[float], best: Best, validated: Best) -> dict[str, Any]:
    """The grid's figures at one ε, and how far the proposal is from them, on other splits and `there`, on its own."""
    gaps = [figure - one.planner for figure, one in zip(best.by_seed, runs, strict=True)]
    error, planner_there = _error(gaps), statistics.fmean(there)
    return {
        "best": round(statistics.fmean(best.by_seed), 4), "best_setting": best.setting, "settings": best.settings,
        "gap": round(statistics.fmean(gaps), 4), "gap_error": error and round(error, 4),
        "best_by_validation": round(statistics.fmean(validated.by_seed), 4),
        "best_where_found": round(best.where_found, 4), "planner_there": round(planner_there, 4),
        "gap_there": round(best.where_found - planner_there, 4),
    }  # fmt: skip


def measure(table: RealTable, effort: Effort) -> dict[str, Any]:
    """Everything about one table, ε by ε."""
    table = table.sampled(effort.most_rows)
    there = [planner_alone(table, effort, seed) for seed in effort.chosen_on]
    runs = [proposed(table, effort, seed) for seed in effort.judged_on]
    found: dict[str, Any] = {}
    for at in EPSILONS:
        here, best = [one[at] for one in runs], best_of(table, effort, at)
        validated = best_of(table, effort, at, by="validation")
        found[f"{at:g}"] = _described(here) | _beside(here, [one[at] for one in there], best, validated)
    others = [planner_alone(table, effort, seed) for seed in range(2 * effort.seeds, LEAST_SPLITS)]
    return {"rows": len(table.frame), "epsilon": with_gains(found, [*there, *figures_in(runs), *others])}


def tables(folder: Path | None) -> dict[str, Callable[[], RealTable]]:
    """How each table is had, by its name."""
    inside = {name: partial(_in_folder, make, folder) for name, make in IN_FOLDER.items()}
    return {**PACKAGED, **inside}


def _in_folder(make: Callable[[Path], RealTable], folder: Path | None) -> RealTable:
    if folder is None:
        raise NoFigureError("--data names no folder that has it")
    return make(folder)


def _each(makers: dict[str, Callable[[], RealTable]], effort: Effort, kept: "Kept") -> None:
    """Measure each table that is not kept yet and print it as it comes; one that can't be had is None with a reason."""
    for name, make in makers.items():
        if name in kept.datasets:
            continue
        started = time.perf_counter()
        try:
            kept.datasets[name] = measure(make(), effort)
        except (NoFigureError, FileNotFoundError) as error:
            kept.datasets[name], kept.because[name] = None, str(error)
            continue
        kept.write()
        for epsilon, row in kept.datasets[name]["epsilon"].items():
            print(name, epsilon, json.dumps(row), file=sys.stderr, flush=True)
        print(name, f"{time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What is known so far, in a file if there is one; of tables that are None why."""

    file: Path | None
    datasets: dict[str, Any] = field(default_factory=dict)
    because: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, file: Path | None) -> "Kept":
        """What the file has, if it is there."""
        known = json.loads(file.read_text())["datasets"] if file is not None and file.exists() else {}
        return cls(file=file, datasets=known)

    def write(self) -> None:
        """Write it, if there is a file."""
        if self.file is not None:
            self.file.write_text(json.dumps({"datasets": {name: one for name, one in self.datasets.items() if one}}))

    def summary(self) -> dict[str, Any]:
        """The tables, how many verdicts before a run were right, and the largest distance from the best of a grid."""
        rows = [row for table in self.datasets.values() if table for row in table["epsilon"].values()]
        figures: dict[str, Any] = {
            "datasets": self.datasets, "verdicts": len(rows), "verdicts_right": sum(row["agrees"] for row in rows),
            "verdicts_same_kind": sum(row["expected"] == row["happened"] for row in rows), "because": self.because,
        }  # fmt: skip
        gains = [row for row in rows if "more" in row]  # files of earlier runs have none
        figures["never_worse_with_more_budget"] = bool(gains) and all(
            row["more"] >= -2 * row["more_error"] for row in gains
        )
        figures["worst_gap"] = max((row["gap"] for row in rows), default=None)
        figures["worst_gap_there"] = max((row["gap_there"] for row in rows), default=None)
        return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two and two splits, at most 1,500 rows, a smaller grid")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder with gusto, school and heart.csv.xz")
    parser.add_argument("--only", nargs="*", metavar="TABLE", help="these tables")
    parser.add_argument("--seeds", type=int, help="another number of splits to choose on")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write after every table, and go on from there")
    args = parser.parse_args()
    effort: Effort = QUICK if args.quick else FULL
    effort = effort if args.seeds is None else replace(effort, seeds=args.seeds)
    makers = {name: make for name, make in tables(args.data).items() if not args.only or name in args.only}
    kept = Kept.of(args.keep)
    _each(makers, effort, kept)
    if args.json:
        print(json.dumps(kept.summary() | {"seeds": effort.seeds, "delta": DELTA}))


if __name__ == "__main__":
    main()
