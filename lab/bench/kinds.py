"""Is the proposed kind of model the better one? `python -m bench.kinds [--seeds 3] [--only NAME ...] [--json]`.

`[model] kind = "auto"` proposes an additive model made from sums where the noise of a cell, κ, is at most 0.02, and a
model that is trained with noise once above that (docs/asking.md). Here both are made from the same rows, and their AUC
on the test rows is compared. The tables are out of R's packages, over ten sites; ε = 1 and 4 against a lying server and
its colluders, δ = 1e-5, one record replaced, rules S8 and S7.

The tables, their columns and bounds, and what counts as right were fixed before anything was trained on any of them,
and none was left out afterwards. Bounds are what anybody in the field would declare. A proposal is right unless the
other kind's mean AUC is above it by more than 0.005 and by more than twice the standard error over seeds of that
difference.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.harness import NoFigureError
from bench.real_tables import of_r
from bench.sum_settings import IN_MEMORY, asked, inquiry, job_with
from choral import simulate
from choral.asking.question import Question
from choral.config import job_of
from choral.run.planning import settle
from choral.run.sum_study import kappa_of, proposal_for

SITES, DELTA, EPSILONS = 10, 1e-5, (1.0, 4.0)
MOST_ROWS = 60_000  # of a table; more are drawn at random
ROUNDS = 40  # of an additive model where the secure sum counts, as a run has them
TIE = 0.005  # of AUC
AGAINST: Any = "server and colluders"
Ends = tuple[float, float]


def table(
    package: str, name: str, positive: Callable[[Any], Any], *, numbers: Mapping[str, Ends], levels: Sequence[str] = ()
) -> tuple[Any, dict[str, Any]]:
    """Rows with a column `outcome` of 0 and 1, and the settings of a job that reads them."""
    frame = of_r(package, name)
    frame["outcome"] = positive(frame).astype(int)
    frame = frame[["outcome", *numbers, *levels]].dropna()
    frame = frame.sample(min(len(frame), MOST_ROWS), random_state=0).reset_index(drop=True)
    columns: dict[str, Any] = {column: {"bounds": list(ends)} for column, ends in numbers.items()}
    for column in levels:
        frame[column] = frame[column].astype(str)
        columns[column] = {"levels": sorted(frame[column].unique())}
    return frame, {"label": "outcome", "classes": ["0", "1"], "columns": columns, "devices": SITES, "cohort": SITES}


TABLES: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "diamonds above 2,500 dollars": lambda: table(
        "ggplot2", "diamonds", lambda rows: rows["price"] > 2500,
        numbers={"depth": (50, 75), "table": (50, 75), "x": (0, 10), "y": (0, 10), "z": (0, 6)},
        levels=["cut", "color", "clarity"],
    ),
    "flights late by a quarter of an hour": lambda: table(
        "nycflights13", "flights", lambda rows: rows["arr_delay"] > 15,
        numbers={"month": (1, 12), "day": (1, 31), "sched_dep_time": (0, 2400), "sched_arr_time": (0, 2400),
                 "distance": (0, 3000)},
        levels=["carrier", "origin"],
    ),
    "films rated above 6": lambda: table(
        "ggplot2movies", "movies", lambda rows: rows["rating"] > 6,
        numbers={"year": (1893, 2005), "length": (0, 240), "votes": (0, 1000)},
        levels=["Action", "Animation", "Comedy", "Drama", "Documentary", "Romance", "Short"],
    ),
    "earnings above 20 dollars": lambda: table(
        "AER", "CPSSW8", lambda rows: rows["earnings"] > 20,
        numbers={"age": (18, 70), "education": (0, 20)}, levels=["gender", "region"],
    ),
    "wages above 600 dollars": lambda: table(
        "AER", "CPS1988", lambda rows: rows["wage"] > 600,
        numbers={"education": (0, 18), "experience": (-5, 60)}, levels=["ethnicity", "smsa", "region", "parttime"],
    ),
    "deaths in cars": lambda: table(
        "DAAG", "nassCDS", lambda rows: rows["dead"] == "dead",
        numbers={"ageOFocc": (16, 97), "yearacc": (1997, 2002), "yearVeh": (1960, 2003)},
        levels=["dvcat", "airbag", "seatbelt", "frontal", "sex", "occRole"],
    ),
    "visits to a doctor": lambda: table(
        "Ecdat", "DoctorContacts", lambda rows: rows["mdu"] > 0,
        numbers={"lc": (0, 5), "lpi": (0, 7.2), "fmde": (0, 9), "ndisease": (0, 60), "linc": (0, 11), "lfam": (0, 3),
                 "educdec": (0, 25), "age": (0, 65)},
        levels=["idp", "physlim", "health", "sex", "child", "black"],
    ),
    "health insurance": lambda: table(
        "stevedata", "mm_nhis", lambda rows: rows["hi"] == 1,
        numbers={"age": (18, 85), "yedu": (0, 20), "famsize": (1, 12), "inc": (0, 150_000)},
        levels=["fml", "hlth", "nwhite", "empl"],
    ),
    "deaths with a fatty liver": lambda: table(
        "survival", "nafld1", lambda rows: rows["status"] == 1,
        numbers={"age": (18, 98), "weight": (30, 200), "height": (120, 220), "bmi": (10, 70), "futime": (0, 7300)},
        levels=["male"],
    ),
    "out of work in five years": lambda: table(
        "COUNT", "rwm5yr", lambda rows: rows["outwork"] == 1,
        numbers={"docvis": (0, 50), "hospvis": (0, 10), "age": (25, 65), "hhninc": (0, 15), "educ": (7, 18),
                 "year": (1984, 1988)},
        levels=["edlevel", "female", "married", "kids"],
    ),
}  # fmt: skip


def additive(rows: object, settings: dict[str, Any], epsilon: float, seed: int) -> float:
    """AUC of an additive model made from sums."""
    parameters = {"columns": list(settings["columns"]), "target": "outcome", "rounds": ROUNDS}
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        devices = inquiry(job_with(asked("lying", epsilon, ROUNDS + 1), seed, **settings), Path(folder), rows)
        return float(devices.ask(Question(name="additive", parameters=parameters)).figures["auc"])


def trained(rows: object, settings: dict[str, Any], epsilon: float, seed: int) -> float:
    """AUC of a logistic model that is trained as the planner proposes, on the same rows."""
    found = simulate(
        rows, **settings, epsilon=epsilon, delta=DELTA, against=AGAINST, noise_is_added="once", validation=0.0,
        seed=seed,
    )  # fmt: skip
    auc = found.test["auc"]
    assert auc is not None
    return float(auc)


def compared(name: str, epsilon: float, seeds: int) -> dict[str, Any]:
    """Both kinds on one table at one ε, what is proposed, and whether that is right."""
    rows, settings = TABLES[name]()
    job = job_of(**settings, kind="auto", epsilon=epsilon, delta=DELTA, against=AGAINST, seed=0, validation=0.0)
    proposed = "additive" if proposal_for(job, rows).kind == "additive" else "trained"
    kappa = kappa_of(settle(job, rows))
    found = {
        "additive": [additive(rows, settings, epsilon, seed) for seed in range(seeds)],
        "trained": [trained(rows, settings, epsilon, seed) for seed in range(seeds)],
    }
    gains = [one - other for one, other in zip(found["additive"], found["trained"], strict=True)]
    gain, error = statistics.mean(gains), statistics.stdev(gains) / math.sqrt(seeds)
    lost = -gain if proposed == "additive" else gain
    return {
        "rows": len(rows), "kappa": round(kappa or math.nan, 4), "proposed": proposed,
        **{kind: round(statistics.mean(aucs), 4) for kind, aucs in found.items()},
        "additive_gains": round(gain, 4), "error": round(error, 4), "right": not lost > max(TIE, 2 * error),
    }  # fmt: skip


def main() -> None:
    """Compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="splits and noises of each table (3)")
    parser.add_argument("--only", nargs="*", choices=TABLES, default=list(TABLES), metavar="NAME", help="some tables")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found: dict[str, Any] = {}
    for name in args.only:
        for epsilon in EPSILONS:
            try:
                found[f"{name}, ε = {epsilon:g}"] = line = compared(name, epsilon, args.seeds)
            except NoFigureError as error:
                line = {"right": None, "why": str(error)}
            print(f"{name}, ε = {epsilon:g}: {line}", file=sys.stderr, flush=True)
    judged = [line["right"] for line in found.values()]
    result = {"cases": found, "right": sum(judged), "of": len(judged)}
    print(json.dumps(result) if args.json else f"{result['right']} of {result['of']} proposals are right")


if __name__ == "__main__":
    main()
