"""One budget, one noise: what the planner proposes is what a run of the same numbers adds."""

import numpy as np
import pytest
from scipy.stats import binom

from choral.accounting.calibrate import calibrated
from choral.accounting.costs import Costs
from choral.accounting.reserves import rounded_coin
from choral.cli.training import PAPER
from choral.core.plan import Budget, Plan, SecureSum
from choral.learning.batches import drawer_of
from choral.learning.models import logistic
from choral.planner import plan_for
from choral.record import read_run
from choral.report.verify import verify
from choral.run.folder import RunFolder
from choral.run.runs import Run
from choral.run.study import codec_of
from tests.run.small import rows, study

SHAPES = {
    "poisson": {"devices": 6, "cohort": 4, "rounds": 3, "local_steps": 2, "batch": 8},
    "partition": {"devices": 6, "cohort": 6, "rounds": 5, "local_steps": 4, "batch": 8, "sampling": "partition"},
    "all rows": {"devices": 4, "cohort": 3, "rounds": 4, "local_steps": 1, "batch": 48},
    "whole": {"devices": 6, "cohort": 4, "rounds": 3, "local_steps": 1, "batch": 8, "law": "discrete_gaussian"},
}


@pytest.mark.parametrize(("epsilon", "delta"), [(4.0, 1e-4), (8.0, 1e-5), (20.0, 1e-6), (8.0, 1e-7), (8.0, 1e-9)])
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


@pytest.mark.parametrize("delta", [1e-8, 1e-9, 1e-12])
def test_a_delta_below_what_reserves_once_took_leaves_nearly_all_of_it_to_the_noise(delta):
    numbers = {"epsilon": 8.0, "devices": 6, "rows": 4000, "features": 4, "sampling": "partition"}
    reported = plan_for(delta=delta, **numbers)
    assert reported.chosen.epsilon <= 8.0
    assert reported.plan.overflow + reported.plan.out_of_range == pytest.approx(2e-3 * delta, rel=1e-6, abs=0)


def test_a_million_rows_a_site_can_be_planned_at_a_billionth_and_every_charge_is_within_it():
    numbers = {"epsilon": 1.0, "delta": 1e-9, "devices": 16, "rows": 10**6, "features": 104, "batch": 1000}
    reported = plan_for(**numbers, rounds=100, local_steps=10, noise_is_added="every step")
    plan, limit = reported.plan, Budget(epsilon=1.0, delta=1e-9)
    assert plan.sampling == "poisson" and plan.rows == 10**6
    draws = 1000 * rounded_coin(1e-3)  # a part of δ that no constant of 1e-8 left room for
    assert draws < plan.overflow < 0.16e-9
    assert 0.998 <= reported.chosen.epsilon <= 1.0
    costs = Costs(plan=plan, secure=SecureSum.for_cohort(plan.cohort), rows=np.array([10**6] * 16),
                  limits=(limit,) * 16, names=tuple(map(str, range(16))))  # fmt: skip
    assert (costs.allowed_rounds >= reported.chosen.part.rounds).all()
    room = drawer_of(plan).room(10**6)
    assert room <= plan.widest_batch < 1300
    assert 1000 * binom.sf(room - 1, 10**6 - 1, 1e-3) + draws <= plan.overflow  # by SciPy
    codec = codec_of(plan, costs.secure, logistic(104))
    assert codec.failure == plan.out_of_range == pytest.approx(1e-12, rel=1e-6, abs=0)


@pytest.mark.parametrize("kind", ["simulation", "rehearsal"])
def test_a_run_at_a_billionth_is_charged_and_verified(kind, tmp_path):
    settled = study(delta=1e-9, seed=5 if kind == "simulation" else None)
    run = Run(kind, settled, folder=RunFolder.create(tmp_path / kind), drop=0.0)
    run.finish()
    assert verify(tmp_path / kind).good
    spent = read_run(tmp_path / kind).result.privacy
    assert spent.delta == 1e-9 and 3.9 < spent.against_everyone.epsilon <= 4.0
    kept = (settled.plan.overflow + settled.plan.out_of_range) * 2 / 3  # the device that lost most was in two of three
    assert spent.charged_delta == pytest.approx(kept, rel=1e-6, abs=0)
