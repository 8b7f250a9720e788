"""Personal models next to the shared one and each site alone: `python -m bench.personal [--quick] [--json]`.

Logistic or least-squares regression with noise once (rule S7) at ε = 1, against everyone and against a lying server
with its colluders, every number by the planner, over seeds, each with its own split of rows and its own noise; the mean
over sites on their own test rows. `over_rows` is the mean over all test rows, and `over_larger_sites` that over sites
with at least 30 test rows: the smallest occupation has five, and would count as much as one with thousands.
`gain_over_alone` is by how much a personal model with the proposed κ is better than the site alone in the same split,
and everything has its standard error over seeds. `alone` has the ridge of scikit-learn's C = 1 at every site, and
`alone_by_validation` the best of five by the site's validation rows. `one_kappa` has the proposed κ at every site;
`own_kappa`, which --quick leaves out, the one-standard-error rule; both are fitted on training rows only, as both kinds
of alone are. `refitted` is own κ after the refit on training and validation rows, next to `alone_refitted` on the same
rows. --first takes other seeds than 0, 1, 2 and so on, each of which is another split. School: mean squared
error of the score as a share of its range, 139 schools, δ = 1e-4 (choral refuses more than one over all rows); its file
is read from --data (../shared/data/multisite). Adult by occupation: accuracy, 14 sites, δ = 1e-5, the declared ranges
of the paper's figures. A site gains if its loss is smaller. Of each site's rows 56 % train, 14 % choose, 30 % judge.
"""

import argparse
import json
import lzma
import math
import statistics
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.harness import over_seeds
from choral import config
from choral.core.plan import Against
from choral.learning.converged import converged
from choral.learning.models import Model
from choral.learning.personal import ALONE, KAPPA, Standing, chosen, fitted, joined
from choral.run.planning import settle
from choral.run.runs import Run
from choral.run.study import Study
from choral.tables.records import Records, Split
from choral_lab.paper.adult import NARROW

EPSILON = 1.0  # unless --epsilon says another
DATA = Path("../shared/data/multisite")
SEEDS = {"quick": 2, "full": 5}
SPLIT = {"validation": 0.14, "test": 0.30}
AGAINST: dict[str, Against] = {"everyone": "everyone", "lying_server": "server and colluders"}
LARGER = 30  # test rows of a site whose accuracy says something
KINDS = ("shared", "alone", "alone_by_validation", "one_kappa")
CHOSEN = ("own_kappa", "alone_refitted", "refitted")  # of the full form: a site's choice takes seven fits


def school(folder: Path, *, seed: int, against: Against, epsilon: float) -> Study:
    """The schools: columns of 0 and 1 in seven groups and two numbers; x27 is 1 in every row, as the intercept is."""
    columns: dict[str, Any] = {f"x{number:02}": {"bounds": [-1, 1]} for number in range(27)}
    columns |= {"x03": {"bounds": [0, 100]}, "x04": {"bounds": [0, 50]}}
    return settle(
        config.job_of(
            csv=str(folder / "school.csv.xz"), label="score", label_bounds=[0, 70], columns=columns, ignore=["x27"],
            device_column="school", **SPLIT, epsilon=epsilon, delta=1e-4, cohort=139, model="linear",
            row_length=3.0, noise_is_added="once", against=against, seed=seed,
        )
    )  # fmt: skip


def adult(folder: Path, *, seed: int, against: Against, epsilon: float) -> Study:
    """UCI Adult, a site for each of its 14 occupations; rows without one belong to nobody."""
    source = resources.files("choral.tables") / "adult"
    declared = tomllib.loads((source / "columns.toml").read_text(encoding="utf-8"))
    header, *lines = lzma.decompress((source / "adult.csv.xz").read_bytes()).decode().splitlines()
    place = header.split(",").index("occupation")
    path = folder / "adult-by-occupation.csv"
    path.write_text("\n".join([header, *(line for line in lines if line.split(",")[place] not in ("", "?"))]) + "\n")
    declared["columns"] |= {name: {"bounds": list(bounds)} for name, bounds in NARROW.items()}
    declared["columns"].pop("occupation", None)
    return settle(
        config.job_of(
            csv=str(path), **declared, label="income", device_column="occupation", **SPLIT, epsilon=epsilon, delta=1e-5,
            noise_is_added="once", against=against, seed=seed,
        )
    )  # fmt: skip


def figures(study: Study, *, choose: bool) -> dict[str, Any]:
    """What the shared model of a run and every site's models come to."""
    return compared(study.model, Run("simulation", study).finish().parameters, study.split, choose=choose)


def compared(model: Model, shared: NDArray[np.float32], split: Split, *, choose: bool) -> dict[str, Any]:
    """The mean over sites of every kind of model, by error and by loss, and the shares of sites that gain by it."""
    sites = [_standings(model, shared, split, site, choose=choose) for site in range(split.train.devices)]
    rows = split.test.sizes.tolist()
    larger = [site for site, count in zip(sites, rows, strict=True) if count >= LARGER]

    def share(kind: str, other: str, better: Callable[[Standing, Standing], bool], among: Sequence[Any]) -> float:
        return statistics.fmean(better(site[kind], site[other]) for site in among)

    def mean(figure: Callable[[Standing], float], among: Sequence[Any], weights: Any = None) -> dict[str, float]:  # noqa: ANN401
        return {kind: statistics.fmean([figure(site[kind]) for site in among], weights) for kind in sites[0]}

    ways = {
        "over_sites": mean(_merit, sites),
        "over_rows": mean(_merit, sites, rows),
        "over_larger_sites": mean(_merit, larger),
        "loss": mean(lambda one: -one.loss, sites),
        "loss_over_rows": mean(lambda one: -one.loss, sites, rows),
    }
    gains = {kind: share(kind, "alone", _loses_less, sites) for kind in ("one_kappa", *(["own_kappa"] * choose))}
    gains |= {"one_kappa_over_shared": share("one_kappa", "shared", _loses_less, sites)}
    if choose:
        gains["refitted"] = share("refitted", "alone_refitted", _loses_less, sites)
    return mean(_error, sites) | {
        "over_rows": mean(_error, sites, rows),
        "over_larger_sites": mean(_error, larger),
        "loss": mean(lambda one: one.loss, sites),
        "gain_over_alone": {name: figure["one_kappa"] - figure["alone"] for name, figure in ways.items()},
        "gain_over_alone_by_validation": {
            name: figure["one_kappa"] - figure["alone_by_validation"] for name, figure in ways.items()
        },
        "sites_that_gain": gains,
        "sites_no_worse_than_alone": share("one_kappa", "alone", _no_worse, sites),
        "sites_no_worse_than_alone_by_validation": share("one_kappa", "alone_by_validation", _no_worse, sites),
        "larger_sites_no_worse_than_alone": share("one_kappa", "alone", _no_worse, larger),
    }


def _standings(
    model: Model, shared: NDArray[np.float32], split: Split, site: int, *, choose: bool
) -> dict[str, Standing]:
    """How every kind of model stands on the test rows of a site."""
    train, validation, test = (
        (part.features_of(site), part.labels_of(site)) for part in (split.train, split.validation, split.test)
    )
    by_validation = converged(
        model, *(Records.of([("here", *rows)], classes=model.classes) for rows in (train, validation))
    )
    parameters = [shared, fitted(model, shared, train, ALONE), by_validation, fitted(model, shared, train, KAPPA)]
    if choose:
        own, _ = chosen(model, shared, train, validation, kappa=KAPPA)
        whole = joined(train, validation)
        parameters += [
            fitted(model, shared, rows, kappa) for rows, kappa in ((train, own), (whole, ALONE), (whole, own))
        ]
    return {
        # A label within ±1 is 2 long.
        kind: Standing.of(model, one, test, unit=0.5)
        for kind, one in zip(KINDS + CHOSEN * choose, parameters, strict=True)
    }


def _error(standing: Standing) -> float:
    """The share of right answers, or the squared error."""
    return standing.accuracy if standing.rmse is None else standing.rmse**2  # type: ignore[return-value]


def _merit(standing: Standing) -> float:
    """More is better."""
    return _error(standing) if standing.rmse is None else -_error(standing)


def _loses_less(one: Standing, other: Standing) -> bool:
    return one.loss < other.loss


def _no_worse(one: Standing, other: Standing) -> bool:
    return _merit(one) >= _merit(other)


def _standard_error(values: list[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two seeds, and no site chooses its own κ")
    parser.add_argument("--seeds", type=int, metavar="N", help="another number of seeds")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed, 0 unless it is given")
    parser.add_argument("--against", choices=tuple(AGAINST), help="one of the two adversaries")
    parser.add_argument("--epsilon", type=float, default=EPSILON, help="another ε than 1")
    parser.add_argument("--only", choices=("school", "adult_by_occupation"), help="one of the two tables")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of school.csv.xz")
    args = parser.parse_args()
    count = args.seeds or SEEDS["quick" if args.quick else "full"]
    seeds = range(args.first, args.first + count)
    results: dict[str, Any] = {"seeds": count, "epsilon": args.epsilon, "kappa": KAPPA}
    with tempfile.TemporaryDirectory() as temporary:
        tables = {"school": (school, args.data), "adult_by_occupation": (adult, Path(temporary))}
        for name, (make, folder) in tables.items():
            if args.only not in (None, name):
                continue
            if name == "school" and not (folder / "school.csv.xz").exists():
                results[name] = None
                results["school_because"] = "school.csv.xz is not in the folder that --data names"
                continue
            results[name] = {}
            for words, against in AGAINST.items():
                if args.against in (None, words):
                    make_study = partial(make, folder, against=against, epsilon=args.epsilon)
                    results[name][words] = over_splits(
                        make_study, seeds, choose=not args.quick, label=f"{name} {words}"
                    )
    if args.json:
        print(json.dumps(results))


def over_splits(make_study: Callable[..., Study], seeds: Sequence[int], *, choose: bool, label: str) -> dict[str, Any]:
    """The means over seeds and, of two or more, their standard errors; a line on stderr says how far it is."""
    found = []
    for number, seed in enumerate(seeds, 1):
        found.append(figures(make_study(seed=seed), choose=choose))
        gain = found[-1]["gain_over_alone"]["over_sites"]
        print(f"{label} {number}/{len(seeds)}: personal − alone {gain:+.4f}", file=sys.stderr, flush=True)
    errors = {"standard_error": over_seeds(found, _standard_error)} if len(found) > 1 else {}
    figure = over_seeds(found, statistics.fmean) | errors
    print(label, json.dumps(figure), file=sys.stderr, flush=True)
    return figure


if __name__ == "__main__":
    main()
