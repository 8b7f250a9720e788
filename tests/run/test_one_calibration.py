"""One budget, one noise: what the planner proposes is what a run of the same numbers adds."""

import pytest

from choral.cli.demo import PAPER
from choral.errors import PlanError
from choral.plan import Budget, Plan
from choral.planner import plan_for
from choral.privacy.calibrate import RESERVED, calibrated
from tests.run.small import rows, study

SHAPES = {
    "poisson": {"devices": 6, "cohort": 4, "rounds": 3, "local_steps": 2, "batch": 8},
    "partition": {"devices": 6, "cohort": 6, "rounds": 5, "local_steps": 4, "batch": 8, "sampling": "partition"},
    "all rows": {"devices": 4, "cohort": 3, "rounds": 4, "local_steps": 1, "batch": 48},
    "whole": {"devices": 6, "cohort": 4, "rounds": 3, "local_steps": 1, "batch": 8, "law": "skellam"},
}


@pytest.mark.parametrize(("epsilon", "delta"), [(4.0, 1e-4), (8.0, 1e-5), (20.0, 1e-6), (8.0, 1e-7)])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_planner_and_a_run_solve_the_same_noise_for_the_same_numbers(shape, epsilon, delta):
    numbers = {"epsilon": epsilon, "delta": delta, "step_size": 0.5, "clip": 1.0, **SHAPES[shape]}
    run = study(rows(240), **numbers).plan
    reported = plan_for(rows=run.rows, features=4, **numbers)
    assert reported.plan.noise == run.noise
    assert reported.plan == run
    assert reported.plan.digest == run.digest


def test_the_demos_numbers_have_the_noise_that_runs_always_had():
    """The run printed 0.018615 for them, and the planner 0.018624, by a reserve of δ of its own."""
    numbers = {name: value for name, value in PAPER.items() if name not in ("name", "builtin", "epsilon", "delta")}
    plan = Plan(**numbers, rows=2440, noise=0.0)
    assert f"{calibrated(plan, Budget(epsilon=PAPER['epsilon'], delta=PAPER['delta'])).noise:.6f}" == "0.018615"


def test_a_delta_that_rare_failures_use_up_is_refused_with_one_that_works():
    numbers = {"epsilon": 8.0, "devices": 6, "rows": 4000, "features": 4, "sampling": "partition"}
    with pytest.raises(PlanError, match=r"CH201 .* delta = 1e-08") as refused:
        plan_for(delta=1e-8, **numbers)
    assert f"take {RESERVED:g} of δ" in str(refused.value)
    assert plan_for(delta=2e-7, **numbers).chosen.epsilon <= 8.0
