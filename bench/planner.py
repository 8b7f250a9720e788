"""The planner's settings next to the best of a grid: `python -m bench.planner [--quick] [--json] [--data DIR]`.

Real tables over five sites, even and with shares of 50/28/14/6/2 %, δ = 1e-5 against everyone, one record replaced;
`--data DIR` adds GUSTO-I, School and Heart over their own sites. Accuracy on held-out rows, or R² of a number, mean
over seeds. `planner` is the proposal; `best` is the setting, of a grid of at least 200 (slope, total time, rounds,
server step; noise once), that is best on the validation rows in the mean over seeds, the five best judged once more
with fresh noise. Both are judged on the same test
rows with fresh noise, so that no lucky draw of the noise wins; both run the engine's own compiled local work, many
settings side by side, with the noise that `calibrated` gives. `alone`
and `without_privacy` are a run's baselines, trained to convergence. `expected` is the verdict before the run, from
public numbers, and `happened` the one that the figures give. `--quick` takes at most 3,000 rows of a table, two seeds
and a coarser grid of times.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bench.harness import NoFigureError
from bench.real_tables import IN_FOLDER, PACKAGED, RealTable
from choral import config
from choral.learning.evaluate import evaluate
from choral.learning.once import LocalWork, work_through
from choral.learning.records import Records
from choral.plan import Budget, Plan
from choral.planner.worth_joining import happened
from choral.privacy.calibrate import calibrated
from choral.privacy.mechanisms.noise_once import CONVEX, MARGIN, movement
from choral.record import Baselines, Measured
from choral.run.baselines import baselines
from choral.run.study import Study, settle

EPSILONS, DELTA = (1.0, 2.0, 4.0), 1e-5
DRAWS = 8  # of the noise, where a setting is judged
FINALISTS = 5  # settings of the grid that are judged once more before one of them is chosen
SLOPES, ROUNDS = (0.1, 0.2, 0.3, 0.5, 1.0), (5, 20)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is measured: seeds, the most rows of a table, draws of the noise per split, and total times times R²."""

    seeds: int
    most_rows: int
    draws: int
    times: tuple[float, ...]


QUICK = Effort(seeds=2, most_rows=3000, draws=1, times=tuple(2.0**power for power in range(3, 13)))
FULL = Effort(seeds=5, most_rows=20_000, draws=2, times=tuple(2.0**power for power in range(2, 14)))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A point of the grid; `time` is the total time times R², `slope` the clip as a share of the longest gradient."""

    slope: float
    time: float
    rounds: int

    def plan(self, study: Study) -> Plan:
        """The study's plan with these numbers in place of the proposed ones, before its noise is solved."""
        plan, smoothness = study.plan, CONVEX[study.model.link][0] * study.plan.row_length**2
        width = math.sqrt(2) if study.model.link == "softmax" else 1.0
        local_time = self.time / plan.row_length**2 / self.rounds * plan.rows / float(study.rows.mean())
        steps = max(1, math.ceil(local_time * smoothness / (2 * MARGIN)))
        return replace(
            plan, rounds=self.rounds, clip=width * self.slope * plan.row_length, local_steps=steps,
            step_size=local_time / steps,
        )  # fmt: skip


@partial(jax.jit, static_argnames=("link",))
def _side_by_side(link: Any, starts: Array, rows: Array, labels: Array, numbers: Array, steps: Array) -> Array:  # noqa: ANN401 - a Link
    """The engine's own work on one site, from several models with several clips."""
    weights = jax.numpy.ones(len(labels))
    return jax.vmap(lambda start, some: work_through(link, start, rows, labels, weights, some, steps, 1))(
        starts, numbers
    )


def trained(study: Study, plans: Sequence[Plan], rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    """The models of plans that differ in clip and noise alone, by what the server does with the means."""
    plan, model, train = plans[0], study.model, study.split.train
    shape = (len(plans), model.features + 1, model.size // (model.features + 1))
    now, later = np.zeros(shape), np.zeros(shape)
    noises = np.array([one.noise for one in plans])[:, None, None]
    with jax.enable_x64(True):
        sites = [_site(train, number) for number in range(train.devices)]
        for number in range(plan.rounds):
            total = np.zeros(shape)
            for rows, labels in sites:
                work = LocalWork.of(plan)
                steps = work.steps(model, len(labels))
                rate = work.local_time / steps / work.divisor
                numbers = np.array([[rate, one.clip, one.row_length, one.upload_bound, 0.0] for one in plans])
                total += np.asarray(_side_by_side(model.link, now, rows, labels, numbers, steps))
                total += noises * rng.standard_normal(shape)
            now = now + total / train.devices
            later += now if number >= plan.rounds // 2 else 0
    averaged = later / (plan.rounds - plan.rounds // 2)
    return {"mean": now.reshape(len(plans), -1).astype(np.float32),
            "averaged": averaged.reshape(len(plans), -1).astype(np.float32)}  # fmt: skip


def _site(records: Records, number: int) -> tuple[NDArray[np.float64], NDArray[Any]]:
    features, labels = records.features_of(number), records.labels_of(number)
    return np.concatenate([features, np.ones((len(labels), 1))], axis=1), labels


def _merit(study: Study, parameters: NDArray[np.float32], records: Records) -> float:
    found = evaluate(study.model, parameters, records)
    return float(found.r2 if found.accuracy is None else found.accuracy)  # type: ignore[arg-type]


Figures = dict[tuple[float, tuple[Setting, str]], list[float]]  # of ε, setting and server: merits on validation rows


def grid(study: Study, effort: Effort, seed: int, found: Figures) -> None:
    """Every setting of the grid at every ε, on one split."""
    rng = np.random.default_rng([seed, 0x6121D])
    for total, rounds in product(effort.times, ROUNDS):
        settings = [Setting(slope=slope, time=total, rounds=rounds) for slope in SLOPES]
        keys = [(epsilon, setting) for epsilon in EPSILONS for setting in settings for _ in range(effort.draws)]
        plans = [_with_noise(setting.plan(study), epsilon) for epsilon, setting in keys]
        for server, models in trained(study, plans, rng).items():
            for (epsilon, setting), parameters in zip(keys, models, strict=True):
                merit = _merit(study, parameters, study.split.validation)
                found.setdefault((epsilon, (setting, server)), []).append(merit)


_PRICES: dict[tuple[int, float], float] = {}


def _with_noise(plan: Plan, epsilon: float) -> Plan:
    """As `calibrated` does it: noise goes with what one record moves, so that one search per rounds and ε is enough."""
    key = plan.rounds, epsilon
    if key not in _PRICES:
        solved = calibrated(plan, Budget(epsilon=epsilon, delta=DELTA))
        _PRICES[key] = solved.noise / movement(solved)
    return replace(plan, noise=_PRICES[key] * movement(plan))


def judged(study: Study, plan: Plan, server: str, seed: int, part: Literal["validation", "test"] = "test") -> float:
    """The mean over some fresh draws of the noise, others on test rows than on validation rows."""
    models = trained(study, [plan] * DRAWS, np.random.default_rng([seed, len(part)]))[server]
    rows = study.split.test if part == "test" else study.split.validation
    return statistics.fmean(_merit(study, parameters, rows) for parameters in models)


def proposed(study: Study, seed: int) -> float:
    """The planner's own numbers, on test rows."""
    return judged(study, study.plan, "averaged", seed)


def study_of(table: RealTable, epsilon: float, seed: int, *, skewed: bool = False) -> Study:
    """The table over its sites at this ε, everything else as the planner proposes."""
    settings = table.job(seed=seed, skewed=skewed)
    return settle(config.job_of(**settings, epsilon=epsilon, delta=DELTA, seed=seed), table.frame)


@dataclass(frozen=True, kw_only=True)
class OneRun:
    """The proposal at one ε on one split, next to the baselines of the same rows."""

    planner: float
    alone: float
    without_privacy: float
    skewed: float | None
    expected: str | None
    test_rows: int


def measure(table: RealTable, effort: Effort) -> dict[str, Any]:
    """Everything about one table, ε by ε."""
    found: Figures = {}
    runs: dict[float, list[OneRun]] = {epsilon: [] for epsilon in EPSILONS}
    table = table.sampled(effort.most_rows)
    for seed in range(effort.seeds):
        study = study_of(table, EPSILONS[0], seed)
        grid(study, effort, seed, found)
        others = baselines(study)
        for epsilon in EPSILONS:
            runs[epsilon].append(_run(table, epsilon, seed, others))
    best = {epsilon: _best(table, effort, found, epsilon) for epsilon in EPSILONS}
    return {"epsilon": {f"{epsilon:g}": _told(runs[epsilon], best[epsilon]) for epsilon in EPSILONS}}


def _run(table: RealTable, epsilon: float, seed: int, others: Baselines) -> OneRun:
    study = study_of(table, epsilon, seed)
    skewed = study_of(table, epsilon, seed, skewed=True) if table.sites_are_made else None
    return OneRun(
        planner=proposed(study, seed), alone=others.alone or 0.0, without_privacy=others.without_privacy or 0.0,
        skewed=proposed(skewed, seed) if skewed else None,
        expected=study.prospect.kind if study.prospect else None,
        test_rows=len(study.split.test.labels) if study.model.classes else 0,
    )  # fmt: skip


def _best(table: RealTable, effort: Effort, found: Figures, epsilon: float) -> dict[str, Any]:
    """The setting that is best on validation rows in the mean over seeds, judged on test rows."""
    tried = {key: statistics.fmean(values) for (at, key), values in found.items() if at == epsilon}
    studies = [study_of(table, epsilon, seed) for seed in range(effort.seeds)]

    def mean_of(choice: tuple[Setting, str], part: Literal["validation", "test"]) -> float:
        setting, server = choice
        return statistics.fmean(
            judged(study, _with_noise(setting.plan(study), epsilon), server, seed, part)
            for seed, study in enumerate(studies)
        )

    finalists = sorted(tried, key=lambda choice: tried[choice], reverse=True)[:FINALISTS]
    chosen = max(finalists, key=lambda choice: mean_of(choice, "validation"))
    told = {**asdict(chosen[0]), "server": chosen[1]}
    return {"best": mean_of(chosen, "test"), "best_setting": told, "settings": len(tried)}


def _told(runs: list[OneRun], best: dict[str, Any]) -> dict[str, Any]:
    planner, alone, without = (
        statistics.fmean(getattr(one, name) for one in runs) for name in ("planner", "alone", "without_privacy")
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
        "planner": round(planner, 4), "best": round(best["best"], 4), "alone": round(alone, 4),
        "without_privacy": round(without, 4), "skewed": round(statistics.fmean(skewed), 4) if skewed else None,
        "error": error and round(error, 4), "expected": runs[0].expected, "happened": verdict and verdict.kind,
        "best_setting": best["best_setting"], "settings": best["settings"],
    }  # fmt: skip


def tables(folder: Path | None) -> dict[str, Callable[[], RealTable]]:
    """How each table is had, by its name."""
    inside = {name: partial(_in_folder, make, folder) for name, make in IN_FOLDER.items()}
    return {**PACKAGED, **inside}


def _in_folder(make: Callable[[Path], RealTable], folder: Path | None) -> RealTable:
    if folder is None:
        raise NoFigureError("--data names no folder that has it")
    return make(folder)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two seeds, at most 3,000 rows of a table, a coarser grid")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder with gusto, school and heart.csv.xz")
    parser.add_argument("--only", nargs="*", choices=(*PACKAGED, *IN_FOLDER), help="these tables")
    parser.add_argument("--seeds", type=int, help="another number of seeds")
    args = parser.parse_args()
    effort = QUICK if args.quick else FULL
    effort = effort if args.seeds is None else replace(effort, seeds=args.seeds)
    results: dict[str, Any] = {}
    because: dict[str, str] = {}
    for name, make in tables(args.data).items():
        if args.only and name not in args.only:
            continue
        started = time.perf_counter()
        try:
            results[name] = measure(make(), effort)
        except (NoFigureError, FileNotFoundError) as error:
            results[name], because[name] = None, str(error)
            continue
        for epsilon, row in results[name]["epsilon"].items():
            print(name, epsilon, json.dumps(row), file=sys.stderr, flush=True)
        print(name, f"{time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps(_summary(results) | {"because": because, "seeds": effort.seeds, "delta": DELTA}))


def _summary(results: dict[str, Any]) -> dict[str, Any]:
    rows = [row for table in results.values() if table for row in table["epsilon"].values()]
    return {
        "datasets": results,
        "worst_gap": max((round(row["best"] - row["planner"], 4) for row in rows), default=None),
        "verdicts_right": sum(row["expected"] == row["happened"] for row in rows),
        "verdicts": len(rows),
    }


if __name__ == "__main__":
    main()
