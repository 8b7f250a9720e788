import math
import re
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from choral.accounting.calibrate import RULES, calibrated, loss_under, most_rounds, noise_for, smallest_noise
from choral.accounting.proofs import exposed
from choral.accounting.reserves import most_draws, room_chance, rounded_coin, spendable, with_reserves, within_draws
from choral.core.errors import PlanError
from choral.core.plan import MOST_ROUNDED, Budget, Plan

PLAN = {
    "rounds": 13,
    "local_steps": 10,
    "cohort": 10,
    "devices": 16,
    "rows": 2440,
    "batch": 244,
    "clip": 1.0,
    "step_size": 0.5,
    "smoothness": 0.5,
    "convex": True,
}


@settings(deadline=None, max_examples=60)
@given(
    epsilon=st.floats(-3, 3).map(lambda power: 10.0**power),
    delta=st.floats(-20, -1).map(lambda power: 10.0**power),
    rule=st.sampled_from(RULES),
    rounds=st.integers(1, 500),
    passes=st.integers(1, 3),
    colluders=st.integers(0, 5),
)
def test_without_sampling_the_noise_lands_on_its_target(epsilon, delta, rule, rounds, passes, colluders):
    numbers = PLAN | {"rounds": rounds, "local_steps": 10 * passes, "colluders": colluders, "sampling": "partition"}
    noise = noise_for(epsilon=epsilon, delta=delta, rule=rule, **numbers)
    reached = loss_under(rule, exposed(**numbers, noise=noise)).epsilon(delta)
    assume(reached > 0)  # at such δ no noise at all is needed to speak of
    assert 0.999 <= reached / epsilon <= 1.0


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0, 100.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-2])
def test_with_sampling_the_noise_lands_on_its_target(epsilon, delta):
    noise = noise_for(epsilon=epsilon, delta=delta, **PLAN)
    reached = loss_under("proved", exposed(**PLAN, noise=noise)).epsilon(delta)
    assert 0.999 <= reached / epsilon <= 1.0


def test_one_sampled_step_a_round_needs_less_noise_with_the_secure_sum():
    numbers = PLAN | {"local_steps": 1}
    alone = noise_for(epsilon=1.0, delta=1e-5, **numbers)
    summed = noise_for(epsilon=1.0, delta=1e-5, rule="with_secure_sum", **numbers)
    assert summed == pytest.approx(alone / math.sqrt(10), rel=2e-3)


def test_the_papers_own_noise_comes_out_of_the_papers_rule():
    # ε = 10, δ = 1e-4, 13 rounds: σ = .004902 in the shared notes
    assert noise_for(epsilon=10.0, delta=1e-4, rule="paper", **PLAN) == pytest.approx(0.004902, rel=1e-4)


@pytest.mark.parametrize("sampling", ["poisson", "partition"])
@pytest.mark.parametrize("rule", ["proved", "paper"])
def test_one_more_round_than_the_most_is_too_many(sampling, rule):
    part = exposed(**(PLAN | {"rounds": 1}), noise=0.02, sampling=sampling)
    budget = Budget(epsilon=3.0, delta=1e-5)
    rounds = most_rounds(part, budget, rule)
    assert loss_under(rule, replace(part, rounds=rounds)).epsilon(1e-5) <= 3.0
    assert loss_under(rule, replace(part, rounds=rounds + 1)).epsilon(1e-5) > 3.0


def test_a_noise_too_small_for_one_round_says_what_is_reachable_and_what_would_do():
    part = exposed(**(PLAN | {"rounds": 1}), noise=0.0005, sampling="partition")
    with pytest.raises(PlanError) as caught:
        most_rounds(part, Budget(epsilon=0.1, delta=1e-5))
    reachable = loss_under("proved", part).epsilon(1e-5)
    enough = smallest_noise(part, Budget(epsilon=0.1, delta=1e-5))
    assert caught.value.code == "CH201"
    reported = re.search(r"Reachable now: ε ≥ (\S+) ", caught.value.what)
    noise = re.fullmatch(r"Use noise = (\S+)\.", caught.value.fix)
    assert reachable <= float(reported[1]) <= 1.01 * reachable  # what is printed, typed in, is reached
    assert enough <= float(noise[1]) <= 1.001 * enough
    assert "one record replaced" in caught.value.what


@pytest.mark.parametrize(("sampling", "epsilon"), [("poisson", 1.0), ("partition", 2.0)])
def test_a_bound_on_the_noise_makes_a_budget_unreachable_and_offers_fewer_rounds(sampling, epsilon):
    with pytest.raises(PlanError) as caught:
        noise_for(epsilon=epsilon, delta=1e-5, most_noise=0.03, sampling=sampling, **PLAN)
    part = exposed(**PLAN, noise=0.03, sampling=sampling)
    fewer = most_rounds(part, Budget(epsilon=epsilon, delta=1e-5))
    assert caught.value.code == "CH201"
    assert "noise at most 0.03" in caught.value.what
    assert f"rounds = {fewer}" in caught.value.fix
    assert loss_under("proved", replace(part, rounds=fewer)).epsilon(1e-5) <= epsilon


def test_a_bound_that_suffices_changes_nothing():
    free = noise_for(epsilon=1.0, delta=1e-5, sampling="partition", **PLAN)
    assert noise_for(epsilon=1.0, delta=1e-5, sampling="partition", most_noise=2 * free, **PLAN) == free


def test_a_rule_without_a_certificate_is_refused_with_its_reason():
    with pytest.raises(PlanError, match="CH204 nothing is proved of the secure sum here: with Poisson sampling"):
        noise_for(epsilon=1.0, delta=1e-5, rule="with_secure_sum", **PLAN)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 0.0}, "CH200 epsilon"),
        ({"epsilon": math.inf}, "CH200 epsilon"),
        ({"delta": 1.0}, "CH200 delta"),
        ({"rule": "best"}, "CH200 rule"),
        ({"most_noise": 0.0}, "CH200 most_noise"),
        ({"rounds": 0}, "CH200 rounds"),
        ({"cohort": 17}, "CH200 cohort"),
    ],
)
def test_budgets_and_plans_that_make_no_sense_are_refused(change, words):
    with pytest.raises(PlanError, match=words):
        noise_for(**({"epsilon": 1.0, "delta": 1e-5} | PLAN | change))


@pytest.mark.parametrize("epsilon", [1e-6, 1e4])
@pytest.mark.parametrize(("sampling", "delta"), [("poisson", 1e-300), ("partition", 1e-300), ("partition", 0.4)])
def test_budgets_at_the_ends_of_the_range_have_their_noise(epsilon, delta, sampling):
    noise = noise_for(epsilon=epsilon, delta=delta, sampling=sampling, **PLAN)
    reached = loss_under("proved", exposed(**PLAN, noise=noise, sampling=sampling)).epsilon(delta)
    assert reached <= epsilon


@pytest.mark.parametrize(
    ("local_steps", "batch", "fix"),
    [(12, 244, "Use local_steps = 10 or 20"), (10, 250, "Use a batch that divides the rows")],
)
def test_the_papers_rule_is_not_calibrated_for_passes_that_are_not_whole(local_steps, batch, fix):
    numbers = {"rounds": 13, "cohort": 10, "devices": 16, "rows": 2440, "clip": 1.0}
    settings = {**numbers, "local_steps": local_steps, "batch": batch, "sampling": "partition"}
    with pytest.raises(PlanError) as caught:
        noise_for(epsilon=10.0, delta=1e-4, rule="paper", **settings)
    assert caught.value.code == "CH202"
    assert caught.value.fix.startswith(fix)
    assert noise_for(epsilon=10.0, delta=1e-4, rule="proved", **settings) > 0


def test_a_run_that_draws_more_batches_than_their_rounding_is_paid_for_is_refused():
    shape = {"devices": 4, "cohort": 4, "rows": 1000, "batch": 100, "step_size": 0.1, "clip": 1.0, "noise": 0.0}
    budget = Budget(epsilon=4.0, delta=1e-9)  # by hand: half of it, times 0.91, over 1195·2^-53/0.9
    most = Plan(**shape, rounds=most_draws(0.1, 1e-9) // 10, local_steps=10)
    assert calibrated(most, budget).noise > 0
    with pytest.raises(PlanError, match="CH204 3,090 Poisson batches in a run, 3,086 are the most"):
        calibrated(replace(most, rounds=most.rounds + 1), budget)
    assert calibrated(replace(most, rounds=most.rounds + 1, sampling="partition"), budget).noise > 0


def test_what_is_kept_of_delta_follows_it_and_pays_for_the_rounding_of_all_coins():
    shape = {"devices": 4, "cohort": 4, "rows": 1000, "batch": 100, "step_size": 0.1, "clip": 1.0, "noise": 0.0}
    few, many = Plan(**shape, rounds=20), Plan(**shape, rounds=500, local_steps=10)
    assert with_reserves(few, 1e-5) == few and with_reserves(few, 1e-3) == few  # as every run had it
    kept = with_reserves(few, 1e-8)
    assert (kept.overflow, kept.out_of_range) == (
        pytest.approx(1e-11, rel=1e-6, abs=0),
        pytest.approx(1e-11, rel=1e-6, abs=0),
    )
    coins = 5000 * rounded_coin(0.1)
    assert with_reserves(many, 1e-8).overflow == pytest.approx(coins / 0.91, rel=1e-6, abs=0)
    assert within_draws(with_reserves(many, 1e-8)).out_of_range == kept.out_of_range
    with pytest.raises(PlanError, match="CH204 5,000 Poisson batches in a run, 61 are the most"):
        within_draws(replace(many, overflow=1e-11))  # as a site refuses it


@given(exponent=st.floats(-14, -3), rounds=st.integers(1, 400), batch=st.integers(1, 1000), once=st.booleans())
@settings(deadline=None)
def test_what_noise_and_rare_failures_take_together_is_the_delta_of_the_budget(exponent, rounds, batch, once):
    delta = 10**exponent
    kind = {"noise_is_added": "once", "row_length": 2.0} if once else {}
    plan = Plan(devices=4, cohort=4, rounds=rounds, rows=1000, batch=batch, step_size=0.1, clip=1.0, noise=1.0, **kind)
    try:
        kept = with_reserves(plan, delta)
    except PlanError as error:
        assert error.code == "CH204" and delta < 1e-8
        return
    left = spendable(Budget(epsilon=1.0, delta=delta), kept).delta
    assert 0.49 * delta < left == delta - kept.overflow - kept.out_of_range
    draws = rounds * rounded_coin(batch / 1000)
    assert draws <= MOST_ROUNDED * kept.overflow or batch == 1000
    assert room_chance(kept, rounds, batch / 1000) >= 0.089 * kept.overflow


def test_where_the_smallest_device_draws_all_of_its_rows_the_others_rounding_is_still_limited():
    """By hand: 0.91e-8/(1195·2^-53) draws."""
    shape = {"devices": 4, "cohort": 4, "rows": 100, "batch": 100, "step_size": 0.1, "clip": 1.0, "noise": 1.0}
    plan = Plan(**shape, rounds=68_590, local_steps=1)
    assert within_draws(plan) is plan
    with pytest.raises(PlanError, match="CH204 68,591 Poisson batches in a run, 68,590 are the most"):
        within_draws(replace(plan, rounds=68_591))


def test_a_rate_for_which_the_rounding_is_not_proved_is_refused():
    """One row of 2^31 is above it; only a plan for a typical device that nobody has can be below."""
    shape = {"devices": 4, "cohort": 4, "rounds": 2, "batch": 1, "step_size": 0.1, "clip": 1.0, "noise": 1.0}
    assert within_draws(Plan(**shape, rows=2**31)).rows == 2**31
    with pytest.raises(PlanError, match="CH204 2 Poisson batches in a run, 0 are the most"):
        within_draws(Plan(**shape, rows=10**12, weighing="rows"))
