"""What a round is charged with beside its noise."""

from dataclasses import replace

import numpy as np
import pytest

from choral.accounting.costs import Costs
from choral.accounting.proofs import with_secure_sum
from choral.core.events import Gaussian, Poisson, epsilon_of
from choral.core.exposure import exposure_of
from choral.core.mechanisms import MISSED
from choral.core.plan import Budget, Plan, SecureSum
from choral.output.logs import _about
from choral.run.runs import Run
from choral.run.statement import privacy_statement
from tests.run.small import rows, study


@pytest.mark.parametrize("sampling", ["poisson", "partition"])
def test_the_chances_that_an_update_leaves_its_range_or_a_batch_its_room_are_in_the_charges(sampling):
    """Both are chances over a whole run of 3 rounds (docs/secure-sum.md, Numbers), so three charges hold all of it."""
    reported = study(sampling=sampling)
    spare = reported.codec.failure + (reported.plan.overflow if sampling == "poisson" else 0.0)
    assert reported.codec.failure > 0
    assert sum(reported.costs.of(0).event(before).delta for before in range(3)) >= spare * (1 - 1e-12)


@pytest.mark.parametrize("sizes", [(12, 40, 12), (40, 12, 40)])
def test_a_charge_names_the_rule_of_the_devices_own_event_whoever_comes_first(sizes):
    """A batch of 12 is all rows of some devices (rule S1) and a sample of the others' (rule S5)."""
    plan = Plan(devices=3, cohort=3, rounds=4, rows=12, batch=12, step_size=0.5, clip=1.0, noise=0.5)
    limits = (Budget(epsilon=9.0, delta=1e-5),) * 3
    costs = Costs(plan=plan, secure=SecureSum.for_cohort(3), rows=np.array(sizes), limits=limits, names=("a", "b", "c"))
    for device, own in enumerate(sizes):
        charge = costs.of(device).charge(0, run="9f3c", round_number=1, attempt=0)
        assert (charge.rule, type(charge.event)) == (("S1", Gaussian) if own == 12 else ("S5", Poisson))
    assert costs.every_rule == ("S1", "S5")


def test_a_log_names_every_rule_by_which_somebody_is_charged():
    """238 rows on 6 devices: four train on 32, two on 31, which is the batch."""
    smallest = study(rows(238)).plan.rows
    reported = study(rows(238), batch=smallest)
    assert sorted(set(reported.split.train.sizes - smallest)) == [0, 1]
    assert "rule S1 and S5, against" in _about(reported)["privacy"]


@pytest.mark.parametrize("delta", [1e-5, 2.1e-8, 1.5e-8])
def test_what_rounds_take_of_delta_counts_with_the_secure_sum_and_for_every_number_of_colluders(delta):
    """By hand: all of 20 rounds take 2e-8 of δ, so ε holds at δ − 2e-8; of 1.5e-8 nothing is left."""
    plan = Plan(devices=4, cohort=4, rounds=20, rows=100, batch=100, step_size=0.5, clip=1.0, noise=0.5)
    secure, limits = SecureSum.for_cohort(4), (Budget(epsilon=9.0, delta=delta),) * 4
    costs = Costs(plan=plan, secure=secure, rows=np.full(4, 100), limits=limits, names=tuple("abcd"))
    reported = privacy_statement(costs, np.full(4, 20))
    exact = with_secure_sum(costs.of(0).exposure(20))
    others = {c: epsilon for c, epsilon in reported.by_colluders if epsilon is not None}
    if delta < 2e-8:
        assert (reported.with_secure_sum, others) == (None, {})
        assert "leaves nothing" in reported.no_certificate
        return
    right = epsilon_of([Gaussian(mu=exact.event.mu)], delta - 2e-8)
    assert reported.with_secure_sum.epsilon == pytest.approx(right, rel=1e-6)
    assert right > exact.epsilon(delta)
    assert others == {
        c: pytest.approx(epsilon_of([Gaussian(mu=2 * 20**0.5 / 50 / (secure.smallest_sum - c) ** 0.5)], delta - 2e-8))
        for c in range(secure.smallest_sum)
    }


def test_a_run_that_somebody_stops_claims_all_that_was_reserved_and_labels_the_rest():
    run = Run("simulation", study())
    next(iter(run.rounds()))
    reported = run.conclude()
    claimed = reported.privacy.against_everyone.epsilon
    assert claimed == run.study.costs.spent(0, 2, reported.privacy.delta)  # the limit pays for two of three rounds
    assert 0 < reported.privacy.running.epsilon < claimed
    assert "fixed beforehand" in reported.privacy.running.holds
    assert reported.record.result.stopped.endswith("it was stopped by choice")
    assert Run("simulation", study()).finish().privacy.running is None


@pytest.mark.parametrize("passes", ["continue", "reshuffle"])
def test_no_run_counts_on_rule_s3_which_is_proved_in_exact_arithmetic_only(passes):
    """Whole passes in each round, the case that the rule is for: a run knows its step size and no smoothness."""
    plan = Plan(devices=3, cohort=3, rounds=4, rows=12, batch=4, local_steps=3, step_size=0.5, clip=1.0, noise=0.5,
                sampling="partition", passes=passes)  # fmt: skip
    part = exposure_of(plan, SecureSum.for_cohort(3), rows=12, rounds=4)
    assert "smoothness" in with_secure_sum(part)


def test_with_probes_no_charge_has_a_figure_of_the_sum_and_a_limit_on_sums_counts_the_one_against_everyone():
    plan = Plan(devices=3, cohort=3, rounds=4, rows=12, batch=12, step_size=0.5, clip=1.0, noise=0.5, probes=32)
    limits = (Budget(epsilon=9.0, delta=1e-5),) * 3
    reported = {
        "secure": SecureSum.for_cohort(3),
        "rows": np.array([12, 12, 12]),
        "limits": limits,
        "names": ("a", "b", "c"),
    }
    costs = Costs(plan=plan, **reported, against="server and colluders")
    charge = costs.of(0).charge(0, run="9f3c", round_number=1, attempt=0)
    assert charge.summed is None
    assert costs.of(0).reservation(range(4), run="9f3c").summed == ()
    assert (
        costs.counted_event(0, 0)
        == costs.of(0).event(0)
        == Costs(plan=replace(plan, probes=0), **reported).of(0).event(0)
    )
    assert costs.spent(0, 4, 1e-5) == costs.spent_against_everyone(0, 4, 1e-5)
    assert costs.epsilon_of_sums(costs.of(0).exposure(4), 1e-5) is None


def test_what_no_gaussian_covers_counts_with_the_secure_sum_too():
    """A δ below `MISSED` is not to be had with whole noise, against whomever, though nothing else takes of it."""
    plan = Plan(
        devices=4, cohort=4, rounds=4, rows=100, batch=100, step_size=0.5, clip=1.0, noise=0.5, sampling="partition",
        law="discrete_gaussian", overflow=1e-200, out_of_range=1e-200,
    )  # fmt: skip
    limits = (Budget(epsilon=9.0, delta=1e-5),) * 4
    costs = Costs(plan=plan, secure=SecureSum.for_cohort(4), rows=np.full(4, 100), limits=limits, names=tuple("abcd"))
    part = costs.of(0).exposure(4)
    assert costs.epsilon_of_sums(part, 5 * MISSED) is not None
    assert costs.epsilon_of_sums(part, 3.9 * MISSED) is None
    assert costs.spent_against_everyone(0, 4, 3.9 * MISSED) == np.inf
