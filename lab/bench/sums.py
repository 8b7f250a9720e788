"""Questions and models on sums at ε = 1: `python -m bench.sums [--quick] [--json] [--data DIR]`.

Every figure comes from `choral ask` in a simulation, and has three values. "everyone": ε = 1 against the server and all
other devices together. "lying": ε = 1 against a server that lies, with its colluders. "sum": the same where nobody may
drop out, so that the noise of every honest device is in each sum. δ = 1e-5, one record replaced, rule S8; means over
seeds, each with its own split of rows and its own noise. Adult is on 16 devices; `bench.sum_tables` has the other
tables, and a figure whose table is missing is null with the reason.

*_auc: of models on sums, on a tenth of the rows. km_sup_error: the largest error of a survival curve at the ends of its
bins, against the curve of the same table without noise; km_expected_error: its mean over 200 Gaussian noises, for
Dialysis also by months and for BRCA over ten years. km_coverage: how often 95 % intervals that are not rough hold
the curve of the population that rows are drawn from. hazard_c_index: on a tenth of the rows, and Cox's regression on
the others together. bounds_accuracy: of a logistic model on Adult whose ranges were asked for first, with ε = 0.1 of
the 1; loans_asked_ranges_auc: the same on Loans. quantile_error: of nine deciles at the price of ten columns with
ε = 0.5, in parts of the range from 1 % to 99 %. logrank_false_alarms: how often p is below 0.05 where arms are
permuted at random. Without a name, flchain is meant.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import sum_tables
from bench.harness import CORES, THREADS, NoFigureError
from bench.sum_curves import coverage, expected_error, false_alarms, permuted_totals, survival_error
from bench.sum_settings import DELTA, EPSILON, asked, by_kind, inquiry, job_with, mean, of_table, over_seeds
from bench.sum_tables import SumTable
from choral.asking.fitting import concordance
from choral.asking.question import Question
from choral.core.errors import TableError
from choral.core.events import Gaussian, epsilon_of
from choral.core.zcdp import gdp_mu
from choral.tables.reading import Table
from choral.tables.sources import ADULT_LABEL, adult_metadata

BOUNDS_EPSILON, QUANTILES_EPSILON = 0.1, 0.5
SEEDS = {"quick": 5, "full": 10}
DRAWS = {"quick": 40, "full": 200}  # samples of patients by which coverage is counted
ROUNDS = {
    "additive": {"everyone": 20, "lying": 40, "sum": 40},
    "logistic": {"everyone": 20, "lying": 80, "sum": 80},
}
SUMS_OF_HAZARD, SUMS_OF_PERCENTILES = 12, 5
DECILES = [round(0.1 * tenth, 1) for tenth in range(1, 10)]
ADULT = {"builtin": "adult", "devices": 16, "cohort": 16}
PRICED = 10  # columns whose quantiles are paid for; Adult has six columns of numbers


def adult(name: str, kind: str, seed: int, folder: Path) -> float:
    """AUC of a model on sums over Adult."""
    rounds = ROUNDS[name][kind]
    job = job_with(asked(kind, EPSILON, rounds + 1), seed, **ADULT)
    inputs = [column for column in adult_metadata()["columns"] if column != ADULT_LABEL]
    question = Question(name=name, parameters={"columns": inputs, "target": ADULT_LABEL, "rounds": rounds})
    return float(inquiry(job, folder).ask(question).figures["auc"])


def regression(table: SumTable, kind: str, seed: int, folder: Path) -> float:
    """AUC of a logistic model on sums."""
    rounds, target = ROUNDS["logistic"][kind], table.settings["label"]
    inputs = list(table.settings["columns"])
    question = Question(name="logistic", parameters={"columns": inputs, "target": target, "rounds": rounds})
    return float(of_table(table, kind, rounds + 1, seed, folder).ask(question).figures["auc"])


def asked_ranges(
    kind: str, seed: int, folder: Path, rows: object, numbers: Sequence[str], settings: dict[str, Any]
) -> dict[str, Any]:
    """Columns with the ranges of these numbers that devices were asked for; a number that none was seen of is out."""
    known = {name: declared for name, declared in settings["columns"].items() if name not in numbers}
    ask = {**asked(kind, BOUNDS_EPSILON, 1), "columns": [*numbers, settings["label"]]}
    given = {**settings, "columns": known, "ignore": list(numbers)}
    first = inquiry(job_with(ask, seed, **given), folder, rows)
    found = tomllib.loads(first.ask(Question(name="bounds", parameters={"columns": list(numbers)})).answer.block)
    return known | {name: declared for name, declared in found["data"]["columns"].items() if name in numbers}


def with_the_rest(
    known: dict[str, Any], settings: dict[str, Any], rows: object, kind: str, seed: int, folder: Path
) -> dict[str, float]:
    """What a logistic model reaches whose columns have ranges that were asked for, by what that left of ε = 1."""
    left = gdp_mu(EPSILON, DELTA) ** 2 - gdp_mu(BOUNDS_EPSILON, DELTA) ** 2  # Gaussians add up in squares
    rest, rounds = epsilon_of([Gaussian(mu=left**0.5)], DELTA), ROUNDS["logistic"][kind]
    given = {**settings, "columns": known, "ignore": [name for name in settings["columns"] if name not in known]}
    asks = {"columns": list(known), "target": settings["label"], "rounds": rounds}
    found = inquiry(job_with(asked(kind, rest, rounds + 1), seed, **given), folder / "second", rows)
    return dict(found.ask(Question(name="logistic", parameters=asks)).figures)


def bounds(kind: str, seed: int, folder: Path) -> float:
    """Accuracy on Adult of a logistic model whose numbers have the ranges that were asked for first."""
    public, table = adult_metadata(), str(files("choral.tables") / "adult" / "adult.csv.xz")
    numbers = [name for name, declared in public["columns"].items() if "levels" not in declared]
    settings = {"columns": public["columns"], "label": ADULT_LABEL, "classes": public["classes"], "partition": "even"}
    settings |= {"devices": 16, "cohort": 16}
    known = asked_ranges(kind, seed, folder / "first", table, numbers, settings)
    return float(with_the_rest(known, settings, table, kind, seed, folder)["accuracy"])


def loans_by_asking(table: SumTable, kind: str, seed: int, folder: Path) -> float:
    """AUC on Loans where nobody looked: counts and amounts begin at 0, and devices were asked for their upper ends."""
    settings = {**table.settings, "columns": {**table.settings["columns"], **sum_tables.DOCUMENTED}}
    open_ = [name for name, declared in table.settings["columns"].items() if "levels" not in declared]
    numbers = [name for name in open_ if name not in sum_tables.DOCUMENTED]
    known = asked_ranges(kind, seed, folder / "first", table.rows, numbers, settings)
    known |= {name: {"bounds": [0, known[name]["bounds"][1]]} for name in numbers if name in known}
    return float(with_the_rest(known, settings, table.rows, kind, seed, folder)["auc"])


def hazards(table: SumTable, kind: str, seed: int, folder: Path) -> float:
    """The concordance of a hazard model on a tenth of the patients."""
    question = Question(name="hazard", parameters={**table.survival, "columns": list(table.risks)})
    return float(of_table(table, kind, SUMS_OF_HAZARD, seed, folder).ask(question).figures["c_index"])


def pooled_cox(table: SumTable, seed: int, folder: Path) -> float:
    """The concordance of Cox's regression, fitted by Newton steps on the same rows together without privacy."""
    found = of_table(table, "sum", SUMS_OF_HAZARD, seed, folder)
    parts = [_inputs(table, part) for part in found.tables.train]
    x, time, died = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(-time, kind="stable")
    x, time, died, weights = x[order] - x.mean(axis=0), time[order], died[order], np.zeros(x.shape[1])
    last = np.searchsorted(-time, -time, side="right") - 1  # at risk is also who ends at the same time
    for _ in range(12):
        risk = np.exp(x @ weights)
        total, first = np.cumsum(risk)[last], np.cumsum(risk[:, None] * x, axis=0)[last]
        second = np.cumsum(risk[:, None, None] * x[:, :, None] * x[:, None, :], axis=0)[last]
        means = first / total[:, None]
        slope = (x - means)[died].sum(axis=0)
        curve = (second / total[:, None, None] - means[:, :, None] * means[:, None, :])[died].sum(axis=0)
        weights = weights + np.linalg.solve(curve + 1e-6 * np.eye(len(weights)), slope)
    assert found.tables.test is not None
    held, time, died = _inputs(table, found.tables.test)
    return concordance(held @ weights, time, died)


def _inputs(table: SumTable, rows: Table) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Each column within its declared bounds, or whether it has its second level."""
    columns = []
    for name in table.risks:
        reported, cells = table.settings["columns"][name], rows.cells(name)
        if "levels" in reported:
            columns.append(np.array([float(str(cell) == reported["levels"][1]) for cell in cells]))
        else:
            numbers = np.clip(np.array([float(cell) for cell in cells]), *reported["bounds"])
            columns.append(np.log(np.maximum(numbers, 1e-3)) if name in table.logs else numbers)
    time, until = np.array([float(cell) for cell in rows.cells("time")]), table.survival["until"]
    died = np.array([str(cell) == "1" for cell in rows.cells("event")]) & (time <= until)
    return np.stack(columns, axis=1), np.minimum(time, until), died


def quantiles(
    settings: dict[str, Any], rows: object, names: Sequence[str], kind: str, seed: int, folder: Path
) -> float:
    """The mean error of deciles, in parts of the stretch from the 1 % to the 99 % quantile of their column."""
    ask = asked(kind, QUANTILES_EPSILON, PRICED * SUMS_OF_PERCENTILES)
    found, errors = inquiry(job_with(ask, seed, **settings), folder, rows), list[float]()
    for name in names:
        cells = [cell for table in found.study.data.tables for cell in table.cells(name)]
        truth = np.array([float(cell) for cell in cells])
        low, high = np.quantile(truth, [0.01, 0.99])
        try:
            answer = found.ask(Question(name="percentiles", parameters={"column": name, "levels": DECILES}))
        except TableError as error:
            raise NoFigureError(f"{name}: {error}") from None
        true = np.quantile(truth, DECILES)
        errors += [abs(row["estimate"] - value) / (high - low) for row, value in zip(answer.rows, true, strict=True)]  # type: ignore[operator]
    return float(np.mean(errors))


def adult_quantiles(kind: str, seed: int, folder: Path) -> float:
    """The error of deciles of Adult's numbers."""
    names = [name for name, reported in adult_metadata()["columns"].items() if "bounds" in reported]
    return quantiles(ADULT, None, names, kind, seed, folder)


def support_quantiles(table: SumTable, kind: str, seed: int, folder: Path) -> float:
    """The error of deciles of ten columns of SUPPORT2."""
    names = [name for name, reported in table.settings["columns"].items() if "bounds" in reported and name != "time"]
    return quantiles(table.settings, table.rows, names, kind, seed, folder)


def figures(seeds: int, draws: int, data: Path) -> dict[str, Callable[[], object]]:
    """Every figure by its name; those that the issue names come first."""

    def means(figure: Callable[..., float], *given: Callable[[], SumTable]) -> Callable[[], object]:
        return lambda: over_seeds(seeds, partial(figure, *(one() for one in given)))

    def hazard_of(source: Callable[[], SumTable]) -> dict[str, Any]:
        table = source()
        pooled = round(mean(seeds, partial(pooled_cox, table)), 4)
        return over_seeds(seeds, partial(hazards, table)) | {"pooled_cox": pooled}

    def alarms_of(source: Callable[[], SumTable], arm: str) -> dict[str, Any]:
        table = source()
        return by_kind(partial(false_alarms, table, arm, permuted_totals(table, arm)))

    brca, gusto = partial(sum_tables.brca, data), partial(sum_tables.gusto, data)
    lives = {"": sum_tables.flchain, "_support2": sum_tables.support2, "_dialysis": sum_tables.dialysis, "_brca": brca}
    found: dict[str, Callable[[], object]] = {
        "adult_additive_auc": lambda: over_seeds(seeds, partial(adult, "additive")),
        "adult_logistic_auc": lambda: over_seeds(seeds, partial(adult, "logistic")),
    }
    for name, source in lives.items():
        found |= {
            f"km_sup_error{name}": means(survival_error, source),
            f"km_expected_error{name}": lambda s=source: by_kind(partial(expected_error, s())),
            f"km_coverage{name}": lambda s=source: by_kind(partial(coverage, s(), draws)),
            f"hazard_c_index{name}": partial(hazard_of, source),
        }
    return found | {
        "km_expected_error_dialysis_months": lambda: by_kind(partial(expected_error, sum_tables.dialysis(), bins=36)),
        "km_expected_error_brca_decade": lambda: by_kind(partial(expected_error, brca(), until=3652)),
        "bounds_accuracy": means(bounds),
        "loans_logistic_auc": means(regression, sum_tables.loans),
        "loans_asked_ranges_auc": means(loans_by_asking, sum_tables.loans),
        "gusto_logistic_auc": means(regression, gusto),
        "adult_quantile_error": means(adult_quantiles),
        "support2_quantile_error": means(support_quantiles, sum_tables.support2),
        "logrank_false_alarms": partial(alarms_of, sum_tables.support2, "male"),
    }


def figure(seeds: int, draws: int, data: Path, name: str) -> dict[str, Any]:
    """One figure by its name; None, with the reason, where its table is missing."""
    try:
        return {name: figures(seeds, draws, data)[name]()}
    except NoFigureError as error:
        return {name: None, f"{name}_why": str(error)}


def measured(
    seeds: int, draws: int, only: Sequence[str], data: Path, each: Callable[..., Iterable[dict[str, Any]]] = map
) -> dict[str, Any]:
    """Every figure that is wanted, or all of them; `each` applies a function to names, in order."""
    found, names = dict[str, Any](), list(only or figures(seeds, draws, data))
    for name, one in zip(names, each(partial(figure, seeds, draws, data), names), strict=True):
        found |= one
        print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="five seeds")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--data", type=Path, default=Path("data"), help="the folder of GUSTO-I and BRCA")
    parser.add_argument("--only", action="append", default=[], metavar="FIGURE")
    args = parser.parse_args()
    how = "quick" if args.quick else "full"
    os.environ |= dict.fromkeys(THREADS, "1")  # a figure keeps one core busy, and nothing here is timed
    with multiprocessing.get_context("spawn").Pool(CORES) as pool:
        found = measured(SEEDS[how], DRAWS[how], args.only, args.data, pool.imap)
    if args.json:
        print(json.dumps(found | {"epsilon": EPSILON, "delta": DELTA, "rule": "S8", "seeds": SEEDS[how]}))


if __name__ == "__main__":
    main()
