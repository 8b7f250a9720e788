"""Personal models next to the shared one and each site alone: `python -m bench.personal [--quick] [--json]`.

Logistic or least-squares regression with noise once (rule S7) at ε = 1, against everyone and against a lying server
with its colluders, every number by the planner, over seeds; the mean over sites on their own test rows. `over_rows` is
the mean over all test rows, and `over_larger_sites` that over sites with at least 30 test rows: the smallest occupation
has five, and would count as much as one with thousands. `one_kappa` has the proposed κ at every site, `own_kappa` the
one-standard-error rule; both are fitted on training rows only, as is `alone`. `refitted` is own κ after the refit on
training and validation rows, next to `alone_refitted` on the same rows. School: mean squared error of the score as a
share of its range, 139 schools, δ = 1e-4 (choral refuses more than one over all rows); its file is read from --data
(../shared/data/multisite). Adult by occupation: accuracy, 14 sites, δ = 1e-5, the declared ranges of the paper's
figures. A site gains if its loss is smaller. Of each site's rows 56 % train, 14 % choose and 30 % judge.
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

from bench.once import over_seeds
from choral import config
from choral.learning.models import Model
from choral.learning.personal import ALONE, KAPPA, SHARED, Standing, chosen, fitted, joined
from choral.learning.splits import Split
from choral.paper.adult import NARROW
from choral.plan import Against
from choral.run.runs import Run
from choral.run.study import Study, settle

EPSILON = 1.0
DATA = Path("../shared/data/multisite")
SEEDS = {"quick": 2, "full": 5}
SPLIT = {"validation": 0.14, "test": 0.30}
AGAINST: dict[str, Against] = {"everyone": "everyone", "lying_server": "server and colluders"}
LARGER = 30  # test rows of a site whose accuracy says something
KINDS = ("shared", "alone", "one_kappa", "own_kappa", "alone_refitted", "refitted")


def school(folder: Path, seed: int, against: Against) -> Study:
    """The schools: columns of 0 and 1 in seven groups and two numbers; x27 is 1 in every row, as the intercept is."""
    columns: dict[str, Any] = {f"x{number:02}": {"bounds": [-1, 1]} for number in range(27)}
    columns |= {"x03": {"bounds": [0, 100]}, "x04": {"bounds": [0, 50]}}
    return settle(
        config.job_of(
            csv=str(folder / "school.csv.xz"), label="score", label_bounds=[0, 70], columns=columns, ignore=["x27"],
            device_column="school", **SPLIT, epsilon=EPSILON, delta=1e-4, cohort=139, model="linear",
            row_length=3.0, noise_is_added="once", against=against, seed=seed,
        )
    )  # fmt: skip


def adult(folder: Path, seed: int, against: Against) -> Study:
    """UCI Adult, a site for each of its 14 occupations; rows without one belong to nobody."""
    source = resources.files("choral.learning") / "adult"
    declared = tomllib.loads((source / "columns.toml").read_text(encoding="utf-8"))
    header, *lines = lzma.decompress((source / "adult.csv.xz").read_bytes()).decode().splitlines()
    place = header.split(",").index("occupation")
    path = folder / "adult-by-occupation.csv"
    path.write_text("\n".join([header, *(line for line in lines if line.split(",")[place] not in ("", "?"))]) + "\n")
    declared["columns"] |= {name: {"bounds": list(bounds)} for name, bounds in NARROW.items()}
    declared["columns"].pop("occupation", None)
    return settle(
        config.job_of(
            csv=str(path), **declared, label="income", device_column="occupation", **SPLIT, epsilon=EPSILON, delta=1e-5,
            noise_is_added="once", against=against, seed=seed,
        )
    )  # fmt: skip


def figures(study: Study) -> dict[str, Any]:
    """What the shared model of a run and every site's models come to."""
    return compared(study.model, Run("simulation", study).finish().parameters, study.split)


def compared(model: Model, shared: NDArray[np.float32], split: Split) -> dict[str, Any]:
    """The mean over sites of every kind of model, by error and by loss, and the shares of sites that gain by it."""
    found: dict[str, list[Standing]] = {kind: [] for kind in KINDS}
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
            # A label within ±1 is 2 long.
            found[kind].append(Standing.of(model, fitted(model, shared, rows, kappa), test, unit=0.5))

    def share(kind: str, other: str) -> float:
        return statistics.fmean(a.loss < b.loss for a, b in zip(found[kind], found[other], strict=True))

    def no_worse(kind: str) -> float:
        pairs = zip(found[kind], found["alone"], split.test.sizes, strict=True)
        return statistics.fmean(_merit(a) >= _merit(b) for a, b, rows in pairs if rows >= LARGER)

    gains = {kind: share(kind, "alone") for kind in ("one_kappa", "own_kappa")}
    gains |= {"refitted": share("refitted", "alone_refitted"), "one_kappa_over_shared": share("one_kappa", "shared")}
    means = {kind: statistics.fmean(map(_error, standings)) for kind, standings in found.items()}
    loss = {kind: statistics.fmean(one.loss for one in standings) for kind, standings in found.items()}
    rows = split.test.sizes.tolist()
    larger = {
        kind: statistics.fmean(_error(one) for one, count in zip(standings, rows, strict=True) if count >= LARGER)
        for kind, standings in found.items()
    }
    over_rows = {kind: statistics.fmean(map(_error, standings), rows) for kind, standings in found.items()}
    return means | {
        "over_rows": over_rows,
        "over_larger_sites": larger,
        "loss": loss,
        "sites_that_gain": gains,
        "larger_sites_no_worse_than_alone": {kind: no_worse(kind) for kind in ("one_kappa", "own_kappa")},
    }


def _error(standing: Standing) -> float:
    """The share of right answers, or the squared error."""
    return standing.accuracy if standing.rmse is None else standing.rmse**2  # type: ignore[return-value]


def _merit(standing: Standing) -> float:
    """More is better."""
    return _error(standing) if standing.rmse is None else -_error(standing)


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
            results[name] = {}
            for words, against in AGAINST.items():
                found = [figures(make(folder, seed, against)) for seed in range(seeds)]
                results[name][words] = over_seeds(found, statistics.fmean)
                print(name, words, json.dumps(results[name][words]), file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
