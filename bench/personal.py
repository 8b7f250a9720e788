"""Personal models beside the shared one and each site alone: `python -m bench.personal [--quick] [--json]`.

Logistic or least-squares regression with noise once (rule S7) at ε = 1 against everyone, every number by the planner,
over seeds; the mean over sites on their own test rows. `one_kappa` has the proposed κ at every site, `own_kappa` the
one-standard-error rule; both are fitted on training rows only, as is `alone`. `refitted` is own κ after the refit on
training and validation rows, beside `alone_refitted` on the same rows. School: mean squared error of the score as a
share of its range, 139 schools, δ = 1e-4, 56 % of rows to train, 14 % to choose, 30 % to judge; its file is read from
DIR (../shared/data/multisite). Adult by occupation: accuracy, 14 sites, δ = 1e-5.
"""

import argparse
import json
import lzma
import statistics
import sys
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral import config
from choral.learning.personal import ALONE, KAPPA, SHARED, Rows, Standing, chosen, fitted, joined
from choral.run.runs import Run
from choral.run.study import Study, settle

EPSILON = 1.0
DATA = Path("../shared/data/multisite")
SEEDS = {"quick": 2, "full": 5}
KINDS = ("shared", "alone", "one_kappa", "own_kappa", "alone_refitted", "refitted")


def school(folder: Path, seed: int) -> Study:
    """The schools: columns of 0 and 1 in seven groups and two numbers; x27 is 1 in every row, as the intercept is."""
    columns: dict[str, Any] = {f"x{number:02}": {"bounds": [-1, 1]} for number in range(27)}
    columns |= {"x03": {"bounds": [0, 100]}, "x04": {"bounds": [0, 50]}}
    return settle(
        config.job_of(
            csv=str(folder / "school.csv.xz"), label="score", label_bounds=[0, 70], columns=columns, ignore=["x27"],
            device_column="school", validation=0.14, test=0.30, epsilon=EPSILON, delta=1e-4, cohort=139, model="linear",
            row_length=3.0, noise_is_added="once", seed=seed,
        )
    )  # fmt: skip


def adult(folder: Path, seed: int) -> Study:
    """UCI Adult, a site for each occupation with at least 100 rows; rows without one belong to nobody."""
    source = resources.files("choral.learning") / "adult"
    declared = tomllib.loads((source / "columns.toml").read_text(encoding="utf-8"))
    header, *lines = lzma.decompress((source / "adult.csv.xz").read_bytes()).decode().splitlines()
    place = header.split(",").index("occupation")
    known = [line for line in lines if line.split(",")[place] not in ("", "?")]
    counts: dict[str, int] = {}
    for line in known:
        counts[line.split(",")[place]] = counts.get(line.split(",")[place], 0) + 1
    path = folder / "adult-by-occupation.csv"
    path.write_text("\n".join([header, *(line for line in known if counts[line.split(",")[place]] >= 100)]) + "\n")
    declared["columns"].pop("occupation", None)
    return settle(
        config.job_of(
            csv=str(path), **declared, label="income", device_column="occupation", epsilon=EPSILON, delta=1e-5,
            noise_is_added="once", seed=seed,
        )
    )  # fmt: skip


def figures(study: Study) -> dict[str, Any]:
    """The mean over sites of every kind of model, and the shares of sites where a personal one is at least as good."""
    shared, split, model = Run("simulation", study).finish().parameters, study.split, study.model
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for site in range(split.train.devices):
        train, validation, test = (
            (part.features_of(site), part.labels_of(site)) for part in (split.train, split.validation, split.test)
        )
        own, _ = chosen(model, shared, train, validation, kappa=KAPPA)
        whole = joined(train, validation)
        fits = (
            (train, SHARED), (train, ALONE), (train, KAPPA), (train, own), (whole, ALONE), (whole, own)
        )  # fmt: skip
        for kind, (rows, kappa) in zip(KINDS, fits, strict=True):
            found[kind].append(_figure(study, fitted(model, shared, rows, kappa), test))
    sign = 1 if study.data.target is None else -1  # an error is better if it is smaller

    def share(kind: str, other: str) -> float:
        return float(np.mean(sign * np.array(found[kind]) >= sign * np.array(found[other])))

    shares = {f"{kind}_gains": share(kind, "alone") for kind in ("one_kappa", "own_kappa")}
    shares |= {"refitted_gains": share("refitted", "alone_refitted"), "over_shared": share("one_kappa", "shared")}
    return {kind: statistics.fmean(values) for kind, values in found.items()} | shares


def _figure(study: Study, parameters: NDArray[np.float32], test: Rows) -> float:
    standing = Standing.of(study.model, parameters, test, unit=0.5)  # a label within ±1 is 2 long
    return standing.accuracy if standing.rmse is None else standing.rmse**2  # type: ignore[return-value]


def main() -> None:
    """Measure and print."""
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two seeds")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of school.csv.xz")
    args = parser.parse_args()
    seeds = SEEDS["quick" if args.quick else "full"]
    results: dict[str, Any] = {"seeds": seeds, "epsilon": EPSILON, "kappa": KAPPA}
    with tempfile.TemporaryDirectory() as temporary:
        for name, make, folder in (("school", school, args.data), ("adult_by_occupation", adult, Path(temporary))):
            if name == "school" and not (folder / "school.csv.xz").exists():
                results[name] = None
                results["school_because"] = "school.csv.xz is not in the folder that --data names"
                continue
            found = [figures(make(folder, seed)) for seed in range(seeds)]
            results[name] = {kind: round(statistics.fmean(one[kind] for one in found), 4) for kind in found[0]}
            print(name, json.dumps(results[name]), file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
