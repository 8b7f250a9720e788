"""The planner's settings next to the best of a grid: `python -m bench.planner [--quick] [--json] [--data DIR]`.

Real tables over five sites, even and with shares of 50/28/14/6/2 %, δ = 1e-5 against everyone, one record replaced;
`--data DIR` adds GUSTO-I, School and Heart over their own sites. Accuracy on held-out rows, or R² of a number, mean
over seeds. `planner` is what `choral.simulate` reaches with every number proposed, in the mean over some draws of the
noise. `best` is the best setting of a grid of at least 200 **by the very test rows that it is judged on**, so it is
optimistic, in disfavour of the planner; `best_by_validation` is the setting that somebody would have found who tries
the whole grid on validation rows. Either is one setting for all seeds, judged with fresh noise. `gap_error` is the
standard error over seeds of best − planner, seed by seed. `alone` and `without_privacy` are trained to convergence,
`most_common` is always the most common class. `expected` is the verdict before the run, from public numbers, and
`happened` the one that the figures give. `--fresh` asks the same of other tables, without a grid: those of the first
list had a say in the verdict's numbers, those of the second list in nothing. `--quick` takes at most 3,000 rows of a
table, two seeds and a coarser grid of times.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.fresh_tables import FRESH, SECOND
from bench.harness import NoFigureError
from bench.planner_grid import DELTA, EPSILONS, FRESH_DRAWS, FULL, QUICK, Choice, Effort, best_of, study_of
from bench.real_tables import IN_FOLDER, PACKAGED, RealTable
from bench.side_by_side import ends_of, merits
from choral.planner.worth_joining import happened
from choral.record import Baselines, Measured
from choral.record.outcome import merit
from choral.run.baselines import baselines
from choral.run.runs import Run
from choral.run.study import Study

FRESH_SEEDS = 3  # where no grid is searched


@dataclass(frozen=True, kw_only=True)
class OneRun:
    """The proposal at one ε on one split, next to the baselines of the same rows."""

    planner: float
    skewed: float | None
    baselines: Baselines
    expected: str | None
    test_rows: int


def simulated(study: Study, draws: int) -> float:
    """What the study's own plan reaches on its test rows, in the mean over draws of batches and noise.

    Noise once is trained side by side, which is the same and quicker; anything else is simulated one after the other.
    """
    if not study.plan.once:
        runs = [Run("simulation", replace(study, seed=1000 * draw + study.seed)) for draw in range(1, draws + 1)]
        return statistics.fmean(merit(run.finish().test)[1] for run in runs)
    plans, rng = [study.plan] * (FRESH_DRAWS * draws), np.random.default_rng([study.seed, 0x9A4])
    models = ends_of(study.model, study.split.train, plans, rng)["averaged"]
    return float(merits(study.model, models, study.split.test).mean())


def proposed(table: RealTable, effort: Effort, *, also_skewed: bool = True) -> dict[float, list[OneRun]]:
    """The planner's own numbers and the baselines, ε by ε and seed by seed."""
    draws, found = effort.draws(len(table.frame)), {epsilon: list[OneRun]() for epsilon in EPSILONS}
    for seed in range(effort.seeds):
        others = baselines(study_of(table, EPSILONS[0], seed))
        for epsilon in EPSILONS:
            study = study_of(table, epsilon, seed)
            expected, rows = study.prospect, len(study.split.test.labels)
            planner = simulated(study, draws)  # before the other sites of the same seed are dealt
            skewed = study_of(table, epsilon, seed, skewed=True) if also_skewed and table.sites_are_made else None
            found[epsilon].append(OneRun(
                planner=planner, skewed=simulated(skewed, draws) if skewed else None, baselines=others,
                expected=expected.kind if expected else None, test_rows=rows if study.model.classes else 0,
            ))  # fmt: skip
    return found


def _described(runs: list[OneRun]) -> dict[str, Any]:
    """The proposal's figures at one ε, and the verdicts about it."""
    planner = statistics.fmean(one.planner for one in runs)
    alone, without, common = (
        statistics.fmean(getattr(one.baselines, name) for one in runs)
        for name in ("alone", "without_privacy", "most_common")
    )
    rows = sum(one.test_rows for one in runs)
    error = math.sqrt(planner * (1 - planner) / rows) if rows else None
    verdict = happened(
        {"accuracy" if rows else "r2": planner},
        Measured(rows=rows, error=error),
        Baselines(without_privacy=without, alone=alone),
    )
    skewed = [one.skewed for one in runs if one.skewed is not None]
    return {
        "planner": round(planner, 4), "skewed": round(statistics.fmean(skewed), 4) if skewed else None,
        "alone": round(alone, 4), "without_privacy": round(without, 4), "most_common": round(common, 4),
        "error": error and round(error, 4), "expected": runs[0].expected, "happened": verdict and verdict.kind,
    }  # fmt: skip


def _beside(runs: list[OneRun], best: dict[str, Choice]) -> dict[str, Any]:
    """The grid's figures at one ε, and how far the proposal is from them."""
    chosen = best["test"]
    gaps = [there - one.planner for there, one in zip(chosen.by_seed, runs, strict=True)]
    error = statistics.stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else None
    return {
        "best": round(chosen.mean, 4), "best_setting": chosen.setting, "settings": chosen.settings,
        "best_by_validation": round(best["validation"].mean, 4), "gap": round(statistics.fmean(gaps), 4),
        "gap_error": error and round(error, 4),
    }  # fmt: skip


def measure(table: RealTable, effort: Effort) -> dict[str, Any]:
    """Everything about one table, ε by ε."""
    table = table.sampled(effort.most_rows)
    runs, best = proposed(table, effort), best_of(table, effort)
    return {
        "rows": len(table.frame),
        "epsilon": {f"{at:g}": _described(runs[at]) | _beside(runs[at], best[at]) for at in EPSILONS},
    }


def measure_fresh(table: RealTable) -> dict[str, Any]:
    """The verdict and what happened, ε by ε, without a grid; all rows of the table."""
    effort = replace(FULL, seeds=FRESH_SEEDS)
    runs = proposed(table, effort, also_skewed=False)
    return {"rows": len(table.frame), "epsilon": {f"{at:g}": _described(runs[at]) for at in EPSILONS}}


def tables(folder: Path | None) -> dict[str, Callable[[], RealTable]]:
    """How each table is had, by its name."""
    inside = {name: partial(_in_folder, make, folder) for name, make in IN_FOLDER.items()}
    return {**PACKAGED, **inside}


def _in_folder(make: Callable[[Path], RealTable], folder: Path | None) -> RealTable:
    if folder is None:
        raise NoFigureError("--data names no folder that has it")
    return make(folder)


def _each(
    makers: dict[str, Callable[[], RealTable]], how: Callable[[RealTable], dict[str, Any]], because: dict[str, str]
) -> dict[str, Any]:
    """What is measured of each table, reported as it comes; a table that can't be had is None, with its reason."""
    found: dict[str, Any] = {}
    for name, make in makers.items():
        started = time.perf_counter()
        try:
            found[name] = how(make())
        except (NoFigureError, FileNotFoundError) as error:
            found[name], because[name] = None, str(error)
            continue
        for epsilon, row in found[name]["epsilon"].items():
            print(name, epsilon, json.dumps(row), file=sys.stderr, flush=True)
        print(name, f"{time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return found


def _verdicts(results: dict[str, Any]) -> dict[str, int]:
    """How many verdicts before a run were right, of how many."""
    rows = [row for table in results.values() if table for row in table["epsilon"].values()]
    return {"verdicts_right": sum(row["expected"] == row["happened"] for row in rows), "verdicts": len(rows)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two seeds, at most 3,000 rows of a table, a coarser grid")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder with gusto, school and heart.csv.xz")
    parser.add_argument("--fresh", choices=("first", "second"), help="only verdicts, on tables of one of two lists")
    parser.add_argument("--only", nargs="*", metavar="TABLE", help="these tables")
    parser.add_argument("--seeds", type=int, help="another number of seeds")
    args = parser.parse_args()
    effort: Effort = QUICK if args.quick else FULL
    effort = effort if args.seeds is None else replace(effort, seeds=args.seeds)
    because: dict[str, str] = {}
    makers = {"first": FRESH, "second": SECOND, None: tables(args.data)}[args.fresh]
    makers = {name: make for name, make in makers.items() if not args.only or name in args.only}
    results = _each(makers, measure_fresh if args.fresh else partial(measure, effort=effort), because)
    rows = [row for table in results.values() if table for row in table["epsilon"].values()]
    reported: dict[str, Any] = {"datasets": results, **_verdicts(results)}
    if not args.fresh:
        reported["worst_gap"] = max((row["gap"] for row in rows), default=None)
    if args.json:
        seeds = FRESH_SEEDS if args.fresh else effort.seeds
        print(json.dumps(reported | {"because": because, "seeds": seeds, "delta": DELTA}))


if __name__ == "__main__":
    main()
