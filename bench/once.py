"""Noise once (rule S7) beside noise in every step: `python -m bench.once [--quick] [--json]`; AUC on held-out rows.

Logistic regression on Adult, every number by the planner, δ = 1e-5, one record replaced, over seeds. `once` has its
noise for ε against everyone, against a lying server with its colluders, and against a curious one; `every_step` is rule
S5 against everyone; `one_step` is rule S2 against a lying server, one step per round. `without_noise` is the same
training as `once` against everyone with its noise left out; `pooled` is a converged regression on all rows together.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral import config
from choral.backends.once import OnceEngine
from choral.backends.vectorised import Vectorised
from choral.federation import balanced_cohorts
from choral.learning.evaluate import area, evaluate
from choral.learning.models import Model, logistic
from choral.learning.records import Records
from choral.learning.splits import Split
from choral.plan import Budget, Plan, SecureSum
from choral.planner import once_numbers, plan_for
from choral.privacy.calibrate import OUT_OF_RANGE, calibrated
from choral.privacy.exposure import crowd_of
from choral.run.study import settle
from choral.secagg.codec import Codec, mean
from choral.server_step import MEAN, Averaged, ServerStep

DELTA = 1e-5


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How Adult is spread over devices."""

    devices: int
    cohort: int


SHAPES = {"adult_10_of_16": Shape(devices=16, cohort=10), "adult_100_of_200": Shape(devices=200, cohort=100)}
QUICK = {"epsilons": (0.25, 1.0), "seeds": 2}
FULL = {"epsilons": (0.25, 0.5, 1.0, 4.0), "seeds": 5}


def split_of(shape: Shape, seed: int) -> Split:
    """Adult over these devices, as a run with this seed splits it."""
    settings = {"builtin": "adult", "devices": shape.devices, "cohort": shape.cohort, "epsilon": 8.0, "seed": seed}
    return settle(config.job_of(**settings, noise_is_added="once")).split


def trained(
    plan: Plan, secure: SecureSum, model: Model, rows: Records, seed: int, server: ServerStep
) -> NDArray[np.float32]:
    """The parameters after all rounds of a plan."""
    codec = Codec.for_plan(plan, secure, model.size, failure=OUT_OF_RANGE)
    engine = (OnceEngine if plan.once else Vectorised)(model=model, records=rows, plan=plan, codec=codec, seed=seed)
    parameters = model.start(0)
    state = server.init(parameters)
    for number, cohort in enumerate(balanced_cohorts(plan, seed=seed), start=1):
        total = engine.train(parameters, number, cohort)
        move, state = server.update(mean(total.total, total.count, codec.grid), state)
        parameters = parameters + move
    return parameters


def once_plan(shape: Shape, rows: int, budget: Budget, honest: int) -> Plan:
    """The planner's numbers for noise once, with the noise for so many honest noises in a sum."""
    row_length = math.sqrt(15)  # Adult has 14 columns: numbers within ±1, one 1 for each of the others, an intercept
    numbers = once_numbers(
        budget, link="softmax", classes=2, devices=shape.devices, cohort=shape.cohort, rows=rows,
        row_length=row_length, honest_noises=honest,
    )  # fmt: skip
    plan = Plan(
        devices=shape.devices, cohort=shape.cohort, rows=rows, batch=rows, noise=1.0, sampling="partition",
        noise_is_added="once", row_length=row_length, **asdict(numbers),
    )  # fmt: skip
    rule = "proved" if honest == 1 else "with_secure_sum"
    return calibrated(plan, budget, rule=rule, dropouts=shape.cohort - honest)


def figures(shape: Shape, epsilon: float, seed: int) -> dict[str, Any]:
    """AUC of every contender on one split."""
    split, secure, budget = (
        split_of(shape, seed),
        SecureSum.for_cohort(shape.cohort),
        Budget(epsilon=epsilon, delta=DELTA),
    )
    rows, train = int(split.train.sizes.min()), split.train
    model = logistic(train.features.shape[1])

    def auc(plan: Plan, server: ServerStep = MEAN) -> float:
        found = evaluate(model, trained(plan, secure, model, train, seed, server), split.test).auc
        assert found is not None
        return found

    sums = {"lying": secure.honest_noises("lying"), "curious": secure.honest_noises("curious")}
    everyone = once_plan(shape, rows, budget, 1)
    given = {"epsilon": epsilon, "delta": DELTA, "devices": shape.devices, "cohort": shape.cohort, "rows": rows,
             "features": model.features}  # fmt: skip
    one_step = plan_for(
        **given, **crowd_of(secure), against="server and colluders", noise_is_added="every step",
        row_length=math.sqrt(15),
    )  # fmt: skip
    return {
        "once": {"everyone": auc(everyone)}
        | {name: auc(once_plan(shape, rows, budget, n)) for name, n in sums.items()},
        "every_step": auc(plan_for(**given, noise_is_added="every step").plan),
        "one_step": auc(one_step.plan, Averaged(momentum=one_step.chosen.momentum, rounds=one_step.plan.rounds)),
        "without_noise": auc(replace(everyone, noise=0.0)),
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
    args = parser.parse_args()
    wanted: dict[str, Any] = QUICK if args.quick else FULL
    results: dict[str, Any] = {}
    spread: dict[str, Any] = {}  # the standard deviation over seeds
    for name, shape in SHAPES.items():
        for epsilon in wanted["epsilons"]:
            found = [figures(shape, epsilon, seed) for seed in range(wanted["seeds"])]
            results.setdefault(name, {})[f"{epsilon:g}"] = over_seeds(found, statistics.mean)
            spread.setdefault(name, {})[f"{epsilon:g}"] = over_seeds(found, statistics.stdev)
            print(name, epsilon, json.dumps(results[name][f"{epsilon:g}"]), file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps(results | {"spread": spread, "seeds": wanted["seeds"], "delta": DELTA, "metric": "auc"}))


if __name__ == "__main__":
    main()
