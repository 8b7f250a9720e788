"""Noise once (rule S7) next to noise in every step: `python -m bench.once [--quick] [--json]`; AUC on held-out rows.

Logistic regression on Adult, and on GUSTO-I over its 16 regions where `--data DIR` has gusto.csv.xz. Every number is
the planner's, except that noise once has 5 rounds per device where the planner proposes 20; δ = 1e-5, one record
replaced, over seeds. `once` has its noise for ε against everyone, against a lying server with its colluders, and
against a curious one; `every_step` is rule S5 against everyone; `one_step` is rule S2 against a lying server, one step
per round. `without_noise` is the same training as `once` against everyone with its noise left out; `pooled` is a
converged regression on all rows together.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral import config
from choral.accounting.calibrate import calibrated
from choral.backends.once import OnceEngine
from choral.backends.vectorised import Vectorised
from choral.core.codec import Codec, mean
from choral.core.exposure import crowd_of
from choral.core.plan import Budget, Plan, SecureSum
from choral.federation import balanced_cohorts
from choral.learning.evaluate import area, evaluate
from choral.learning.models import Model, logistic
from choral.planner import once_numbers, plan_for
from choral.run.planning import settle
from choral.run.study import Study
from choral.server_step import MEAN, Averaged, ServerStep
from choral.tables.records import Records
from choral_lab.paper.adult import NARROW

DELTA = 1e-5
ROUNDS_EACH = 5  # of a device with noise once: the fewest that the design's figures have; the planner proposes 20


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How Adult is spread over devices."""

    devices: int
    cohort: int

    def settings(self) -> dict[str, Any]:
        """What a job needs to know of it; declared are the ranges of the paper's figures."""
        columns = {name: {"bounds": list(bounds)} for name, bounds in NARROW.items()}
        return {"builtin": "adult", "devices": self.devices, "cohort": self.cohort, "columns": columns}


@dataclass(frozen=True, kw_only=True)
class Regions(Shape):
    """GUSTO-I, death within 30 days of a heart attack, by region; declared are ranges that any clinician knows."""

    folder: Path

    def settings(self) -> dict[str, Any]:
        """The file, its regions and its columns."""
        yes_no = {name: ["0", "1"] for name in ("sho", "hig", "dia", "hyp", "hrt", "ttr", "ant")}
        coded = {name: ["1", "2"] for name in ("htn", "pan", "fam", "prevcvd", "prevcabg")}
        levels = yes_no | coded | {
            "sex": ["female", "male"], "Killip": ["I", "II", "III", "IV"], "miloc": ["Anterior", "Inferior", "Other"],
            "pmi": ["no", "yes"], "smk": ["current", "never", "quit"],
        }  # fmt: skip
        bounds = {"age": [20, 100], "ste": [0, 12], "pulse": [40, 160], "sysbp": [60, 220], "height": [140, 200],
                  "weight": [40, 140]}  # fmt: skip
        columns = {name: {"levels": known} for name, known in levels.items()}
        columns |= {name: {"bounds": ends} for name, ends in bounds.items()}
        return {
            "csv": str(self.folder / "gusto.csv.xz"), "device_column": "regl", "label": "day30", "classes": ["0", "1"],
            "columns": columns, "ignore": ["grpl", "grps", "tpa", "tx"], "cohort": self.cohort,
        }  # fmt: skip


SHAPES = {"adult_10_of_16": Shape(devices=16, cohort=10), "adult_100_of_200": Shape(devices=200, cohort=100)}
QUICK = {"epsilons": (0.25, 1.0), "seeds": 2}
FULL = {"epsilons": (0.25, 0.5, 1.0, 4.0), "seeds": 5}


def study_of(shape: Shape, seed: int) -> Study:
    """The rows over these devices, as a run with this seed splits them."""
    return settle(config.job_of(**shape.settings(), epsilon=8.0, delta=DELTA, seed=seed, noise_is_added="once"))


def trained(
    plan: Plan, secure: SecureSum, model: Model, rows: Records, seed: int, server: ServerStep
) -> NDArray[np.float32]:
    """The parameters after all rounds of a plan."""
    codec = Codec.for_plan(plan, secure, model.size, failure=plan.out_of_range)
    engine = (OnceEngine if plan.once else Vectorised)(model=model, records=rows, plan=plan, codec=codec, seed=seed)
    parameters = model.start(0)
    state = server.init(parameters)
    for number, cohort in enumerate(balanced_cohorts(plan, seed=seed), start=1):
        total = engine.train(parameters, number, cohort)
        move, state = server.update(mean(total.total, total.count, codec.grid), state)
        parameters = parameters + move
    return parameters


def once_plan(shape: Shape, study: Study, budget: Budget, honest: int) -> Plan:
    """The planner's numbers for noise once, with the noise for so many honest noises in a sum."""
    sizes, row_length = study.split.train.sizes, study.plan.row_length
    rows = int(sizes.min())
    numbers = once_numbers(
        budget, link="softmax", classes=2, features=study.split.train.features.shape[1], devices=shape.devices,
        cohort=shape.cohort, rows=rows,
        row_length=row_length, typical_rows=float(sizes.mean()), honest_noises=honest,
        rounds=-(-ROUNDS_EACH * shape.devices // shape.cohort),
    )  # fmt: skip
    plan = Plan(
        devices=shape.devices, cohort=shape.cohort, rows=rows, batch=rows, noise=1.0, sampling="partition",
        noise_is_added="once", row_length=row_length, **asdict(numbers),
    )  # fmt: skip
    rule = "proved" if honest == 1 else "with_secure_sum"
    return calibrated(plan, budget, rule=rule, dropouts=shape.cohort - honest)


def figures(shape: Shape, epsilon: float, seed: int) -> dict[str, Any]:
    """AUC of every contender on one split."""
    study, secure, budget = (
        study_of(shape, seed),
        SecureSum.for_cohort(shape.cohort),
        Budget(epsilon=epsilon, delta=DELTA),
    )
    split, train, rows = study.split, study.split.train, int(study.split.train.sizes.min())
    model = logistic(train.features.shape[1])

    def auc(plan: Plan, server: ServerStep | None = None) -> float:
        if server is None:
            server = Averaged(momentum=0.0, rounds=plan.rounds) if plan.once else MEAN
        found = evaluate(model, trained(plan, secure, model, train, seed, server), split.test).auc
        assert found is not None
        return found

    def once(plan: Plan) -> float:
        return auc(plan, Averaged(momentum=0.0, rounds=plan.rounds))  # as every run with noise once has it

    sums = {"lying": secure.honest_noises("lying"), "curious": secure.honest_noises("curious")}
    everyone = once_plan(shape, study, budget, 1)
    given = {"epsilon": epsilon, "delta": DELTA, "devices": shape.devices, "cohort": shape.cohort, "rows": rows,
             "features": model.features}  # fmt: skip
    one_step = plan_for(
        **given, **crowd_of(secure), against="server and colluders", noise_is_added="every step",
        row_length=study.plan.row_length,
    )  # fmt: skip
    return {
        "once": {"everyone": once(everyone)}
        | {name: once(once_plan(shape, study, budget, n)) for name, n in sums.items()},
        "every_step": auc(plan_for(**given, noise_is_added="every step").plan),
        "one_step": auc(one_step.plan, Averaged(momentum=one_step.chosen.momentum, rounds=one_step.plan.rounds)),
        "without_noise": once(replace(everyone, noise=0.0)),
        "pooled": pooled(train, split.test),
    }


def pooled(train: Records, test: Records) -> float:
    """AUC of a converged logistic regression on all rows together, without privacy."""
    from scipy.optimize import minimize

    def with_intercept(rows: Records) -> NDArray[np.float64]:
        return np.hstack([rows.features, np.ones((len(rows.labels), 1))]).astype(np.float64)

    x, y = with_intercept(train), np.asarray(train.labels, np.float64)

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        score = x @ weights
        slope = 1 / (1 + np.exp(-score)) - y
        return float((np.logaddexp(0, score) - y * score).sum() + 0.5 * weights @ weights), x.T @ slope + weights

    found = minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return area(with_intercept(test) @ found.x, np.asarray(test.labels))


def over_seeds(found: list[Any], figure: Callable[[list[float]], float]) -> Any:  # noqa: ANN401 - tables of figures
    """One figure of all seeds, such as their mean, in the place of each seed's own."""
    if isinstance(found[0], dict):
        return {name: over_seeds([one[name] for one in found], figure) for name in found[0]}
    return round(figure(found), 4)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two values of ε and two seeds")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder with gusto.csv.xz")
    args = parser.parse_args()
    wanted: dict[str, Any] = QUICK if args.quick else FULL
    results: dict[str, Any] = {}
    spread: dict[str, Any] = {}  # the standard deviation over seeds
    shapes = dict(SHAPES)
    if args.data is not None and (args.data / "gusto.csv.xz").exists():
        shapes["gusto_16_of_16"] = Regions(devices=16, cohort=16, folder=args.data)
    else:
        results["gusto_16_of_16"] = None  # --data names no folder that has it
    for name, shape in shapes.items():
        for epsilon in wanted["epsilons"]:
            found = [figures(shape, epsilon, seed) for seed in range(wanted["seeds"])]
            results.setdefault(name, {})[f"{epsilon:g}"] = over_seeds(found, statistics.mean)
            spread.setdefault(name, {})[f"{epsilon:g}"] = over_seeds(found, statistics.stdev)
            print(name, epsilon, json.dumps(results[name][f"{epsilon:g}"]), file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps(results | {"spread": spread, "seeds": wanted["seeds"], "delta": DELTA, "metric": "auc"}))


if __name__ == "__main__":
    main()
