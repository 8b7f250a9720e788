"""Questions and models on sums at ε = 1: `python -m bench.sums [--quick] [--json]`.

Every figure comes from `choral ask` in a simulation, and has three values. "everyone": ε = 1 against the server and all
other devices together. "lying": ε = 1 against a server that lies, with its colluders. "sum": the same where nobody may
drop out, so that the noise of every honest device is in each sum. δ = 1e-5, one record replaced, rule S8; means over
seeds, each with its own split of rows and its own noise. Adult is on 16 devices, flchain (7,871 patients, from
scikit-survival) on 10; what needs it is null where it is not installed.

adult_additive_auc, adult_logistic_auc: on a tenth of the rows. km_sup_error: the largest error of a survival curve at
the ends of 24 bins, against the curve of the same table without noise. km_coverage: how often its 95 % intervals hold
the curve of the population that rows are drawn from. hazard_c_index: on a tenth of the rows. bounds_accuracy: that of
a logistic model on Adult whose ranges were asked for first, with ε = 0.1 of the 1.
"""

import argparse
import json
import statistics
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral.asking.catalogue import estimate, summand
from choral.asking.concordance import concordance
from choral.asking.question import Question
from choral.config import Job, job_of
from choral.errors import ConfigError
from choral.learning.reading import Table
from choral.learning.tables import ADULT_LABEL, adult_metadata
from choral.privacy.events import Gaussian, epsilon_of
from choral.privacy.zcdp import gdp_mu
from choral.run.inquiry import Inquiry
from choral.run.questions import AskTerms
from choral.run.study import settle
from examples.survival.patients import patients, write

EPSILON, DELTA, BOUNDS_EPSILON = 1.0, 1e-5, 0.1
KINDS: dict[str, dict[str, Any]] = {
    "everyone": {"limit": "epsilon"},
    "lying": {"limit": "epsilon_sum"},
    "sum": {"limit": "epsilon_sum", "dropouts": False},
}
SEEDS = {"quick": 5, "full": 10}
DRAWS = {"quick": 40, "full": 200}  # samples of patients by which coverage is counted
ROUNDS = {"everyone": 20, "lying": 40, "sum": 40}
BINS = 24
SURVIVAL = {"time": "days", "event": "died", "occurred": "dead", "until": 5000, "bins": BINS}
RISKS = ["age", "sex", "kappa", "lambda", "creatinine", "mgus"]
# Ranges that any clinician knows; a creatinine that was not measured counts as a usual one.
PATIENTS: dict[str, dict[str, Any]] = {
    "age": {"bounds": [50, 105]}, "sex": {"levels": ["F", "M"]}, "kappa": {"bounds": [0, 8]},
    "lambda": {"bounds": [0, 8]}, "creatinine": {"bounds": [0.4, 3], "missing": 1.0},
    "mgus": {"levels": ["no", "yes"]}, "days": {"bounds": [0, 5215]},
}  # fmt: skip


def asked(kind: str, epsilon: float, most: int) -> dict[str, Any]:
    """[ask] for so many sums at this ε, against whom `kind` says."""
    how = dict(KINDS[kind])
    return {how.pop("limit"): epsilon, "most": most, **how}


def job_with(ask: dict[str, Any], seed: int, **settings: Any) -> Job:  # noqa: ANN401 - the keys of choral.toml
    """A job that may ask; the little training that every job has is never run."""
    return job_of(
        epsilon=60.0, delta=DELTA, seed=seed, rounds=1, local_steps=1, batch=10, step_size=0.5, clip=1.0,
        sampling="partition", ask=ask, validation=0.0, **settings,
    )  # fmt: skip


def inquiry(job: Job, folder: Path, rows: object = None) -> Inquiry:
    """Its simulated devices, ready to be asked."""
    folder.mkdir(exist_ok=True)
    return Inquiry("simulation", settle(job, rows, keep_tables=True), folder=folder)


def adult(kind: str, name: str, seed: int, folder: Path) -> float:
    """AUC of a model on sums over Adult."""
    rounds = ROUNDS[kind]
    job = job_with(asked(kind, EPSILON, rounds + 1), seed, builtin="adult", devices=16, cohort=16)
    inputs = [column for column in adult_metadata()["columns"] if column != ADULT_LABEL]
    question = Question(name=name, parameters={"columns": inputs, "target": ADULT_LABEL, "rounds": rounds})
    return float(inquiry(job, folder).ask(question).figures["auc"])


def bounds(kind: str, seed: int, folder: Path) -> float:
    """Accuracy on Adult of a logistic model whose numbers have the ranges that were asked for first."""
    public, table = adult_metadata(), str(files("choral.learning") / "adult" / "adult.csv.xz")
    columns: dict[str, Any] = {name: told for name, told in public["columns"].items() if "levels" in told}
    numbers = [name for name in public["columns"] if name not in columns]
    shape = {"label": ADULT_LABEL, "classes": public["classes"], "devices": 16, "cohort": 16, "partition": "even"}
    everything = {**asked(kind, BOUNDS_EPSILON, 1), "columns": [*numbers, ADULT_LABEL]}
    first = inquiry(job_with(everything, seed, columns=columns, ignore=numbers, **shape), folder / "first", table)
    found = tomllib.loads(first.ask(Question(name="bounds", parameters={"columns": numbers})).answer.block)
    known = columns | found["data"]["columns"]
    # Gaussians add up in squares, so the model has what the bounds leave of ε = 1.
    left = gdp_mu(EPSILON, DELTA) ** 2 - gdp_mu(BOUNDS_EPSILON, DELTA) ** 2
    rest, rounds = epsilon_of([Gaussian(mu=left**0.5)], DELTA), ROUNDS[kind]
    ignored = [name for name in numbers if name not in known]
    second = job_with(asked(kind, rest, rounds + 1), seed, columns=known, ignore=ignored, **shape)
    question = Question(
        name="logistic", parameters={"columns": list(known), "target": ADULT_LABEL, "rounds": rounds}
    )  # fmt: skip
    return float(inquiry(second, folder / "second", table).ask(question).figures["accuracy"])


def flchain_job(kind: str, most: int, seed: int) -> Job:
    return job_with(
        asked(kind, EPSILON, most), seed, label="died", classes=["alive", "dead"], columns=PATIENTS, devices=10,
        cohort=10,
    )  # fmt: skip


def flchain() -> Table:
    rows = patients()
    return Table(source="flchain", columns={name: [row[name] for row in rows] for name in rows[0]})


def of_patients(kind: str, most: int, seed: int, folder: Path) -> Inquiry:
    """The patients on ten devices, ready to be asked."""
    return inquiry(flchain_job(kind, most, seed), folder, str(write(folder, 1)[0]))


def survival_error(kind: str, seed: int, folder: Path) -> float:
    """The largest error of a survival curve at the ends of its bins."""
    question, table = Question(name="km", parameters=SURVIVAL), flchain()
    found = of_patients(kind, 1, seed, folder)
    true = _curve(question, found.terms, table, 0.0)
    return float(np.abs(np.array([row["estimate"] for row in found.ask(question).rows]) - true).max())


def _curve(question: Question, terms: AskTerms, table: Table, deviation: float) -> NDArray[np.float64]:
    total = summand(question, terms.columns).total(table)
    rows = estimate(question, terms.columns, total, rows=table.rows, deviation=deviation).rows
    return np.array([row["estimate"] for row in rows])


def coverage(kind: str, draws: int) -> float:
    """How often the intervals of a survival curve hold the population's curve, over bins and samples."""
    question, table = Question(name="km", parameters=SURVIVAL), flchain()
    terms = AskTerms.of(flchain_job(kind, 1, 0), run="coverage", devices=10)
    checked = terms.read(question.canonical())
    deviation = checked.noise.deviation * np.sqrt(10)
    true, held = _curve(question, terms, table, 0.0), list[bool]()
    chance = np.random.default_rng(1)
    for _ in range(draws):
        picked = chance.integers(0, table.rows, table.rows)
        cells = {name: np.array(table.cells(name))[picked].tolist() for name in ("days", "died")}
        total = checked.summand.total(Table(source="sample", columns=cells))
        noisy = total + chance.normal(0, deviation, len(total))
        rows = estimate(question, terms.columns, noisy, rows=table.rows, deviation=deviation).rows  # type: ignore[arg-type]
        held += [
            row["low"] <= truth <= row["high"] for row, truth in zip(rows, true, strict=True) if not row["is_rough"]
        ]
    return float(np.mean(held))


def hazards(kind: str, seed: int, folder: Path) -> float:
    """The concordance of a hazard model on a tenth of the patients."""
    question = Question(name="hazard", parameters={**SURVIVAL, "columns": RISKS})
    return float(of_patients(kind, 12, seed, folder).ask(question).figures["c_index"])


def pooled_cox(seed: int, folder: Path) -> float:
    """The concordance of Cox's regression, fitted by Newton steps on the same rows together without privacy."""
    found = of_patients("sum", 12, seed, folder)
    parts = [_inputs(table) for table in found.tables.train]
    x, days, died = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(-days, kind="stable")
    x, died, weights = x[order], died[order], np.zeros(x.shape[1])
    for _ in range(12):
        risk = np.exp(x @ weights)
        total, first = np.cumsum(risk), np.cumsum(risk[:, None] * x, axis=0)
        second = np.cumsum(risk[:, None, None] * x[:, :, None] * x[:, None, :], axis=0)
        means = first / total[:, None]
        slope = (x - means)[died].sum(axis=0)
        curve = (second / total[:, None, None] - means[:, :, None] * means[:, None, :])[died].sum(axis=0)
        weights = weights + np.linalg.solve(curve + 1e-6 * np.eye(len(weights)), slope)
    assert found.tables.test is not None
    held, days, died = _inputs(found.tables.test)
    return concordance(held @ weights, days, died)


def _inputs(table: Table) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    def numbers(name: str, empty: float) -> NDArray[np.float64]:
        return np.array([float(cell) if cell else empty for cell in table.cells(name)])

    columns = [np.log(numbers(name, 1.0)) if name in ("kappa", "lambda") else numbers(name, 1.0)
               for name in ("age", "kappa", "lambda", "creatinine")]  # fmt: skip
    flags = [np.array([cell == yes for cell in table.cells(name)]) for name, yes in (("sex", "M"), ("mgus", "yes"))]
    days = np.minimum(numbers("days", 0.0), SURVIVAL["until"])  # type: ignore[call-overload]
    died = np.array([cell == "dead" for cell in table.cells("died")]) & (days <= 5000)
    return np.stack([*columns, *flags], axis=1).astype(np.float64), days, died


def over_seeds(seeds: int, figure: Callable[[str, int, Path], float]) -> dict[str, float]:
    """The mean over seeds, for each adversary."""
    return {kind: round(statistics.mean(_runs(seeds, lambda seed, at, k=kind: figure(k, seed, at))), 4)
            for kind in KINDS}  # fmt: skip


def _runs(seeds: int, figure: Callable[[int, Path], float]) -> list[float]:
    found = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            found.append(figure(seed, Path(folder)))
    return found


def measured(seeds: int, draws: int, only: Sequence[str]) -> dict[str, Any]:
    """Every figure that is wanted; None where its patients are not installed."""
    figures: dict[str, Callable[[], object]] = {
        "adult_additive_auc": lambda: over_seeds(seeds, lambda k, s, at: adult(k, "additive", s, at)),
        "adult_logistic_auc": lambda: over_seeds(seeds, lambda k, s, at: adult(k, "logistic", s, at)),
        "km_sup_error": lambda: over_seeds(seeds, survival_error),
        "km_coverage": lambda: {kind: round(coverage(kind, draws), 4) for kind in KINDS},
        "hazard_c_index": lambda: (
            over_seeds(seeds, hazards) | {"pooled_cox": round(statistics.mean(_runs(seeds, pooled_cox)), 4)}
        ),
        "bounds_accuracy": lambda: over_seeds(seeds, bounds),
    }
    found: dict[str, Any] = {}
    for name in only or figures:
        try:
            found[name] = figures[name]()
        except ConfigError as error:
            if error.code != "CH106":
                raise
            found |= {name: None, f"{name}_why": str(error)}
        print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="five seeds")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--only", action="append", default=[], metavar="FIGURE")
    args = parser.parse_args()
    how = "quick" if args.quick else "full"
    found = measured(SEEDS[how], DRAWS[how], args.only)
    if args.json:
        print(json.dumps(found | {"epsilon": EPSILON, "delta": DELTA, "rule": "S8", "seeds": SEEDS[how]}))


if __name__ == "__main__":
    main()
