"""Rule S7 in numbers: against oracles, as a special case of S2, and in ledgers with both figures."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from choral.accounting.account import account_of
from choral.accounting.calibrate import calibrated
from choral.accounting.costs import Costs
from choral.accounting.proofs import against_everyone, rounds_each, with_secure_sum
from choral.core.codec import Codec, sensitivity
from choral.core.errors import PlanError
from choral.core.events import Gaussian, Zcdp, epsilon_of
from choral.core.exposure import in_crowd
from choral.core.mechanisms import NoiseOnce, Partition, movement
from choral.core.plan import SMOOTHING, Budget, Plan, SecureSum

ONCE = Plan(devices=16, cohort=10, rounds=8, rows=2440, batch=2440, local_steps=120, step_size=0.25, clip=1.2,
            noise=0.03, sampling="partition", noise_is_added="once", row_length=4.0)  # fmt: skip
DELTA = 1e-5


def part(plan: Plan = ONCE, rounds: int = 5, honest: int = 4):
    return in_crowd(plan, rows=plan.rows, rounds=rounds, colluders=0, dropouts=plan.cohort - honest)


def test_one_record_moves_an_upload_by_twice_the_clip_times_the_local_time_over_the_divisor():
    assert movement(ONCE) == 2 * 1.2 * 120 * 0.25 / 2440
    bound = ONCE.mechanism.upload_bound(ONCE)
    assert movement(replace(ONCE, batch=1, rows=1)) == 2 * bound / 32 * 2  # 2GT, which is below 2B


@pytest.mark.parametrize("honest", [1, 4, 9])
def test_both_figures_are_gaussian_in_the_rounds_and_the_honest_noises(honest):
    mu = movement(ONCE) / 0.03 * math.sqrt(5)
    assert against_everyone(part(honest=honest)).event == Gaussian(mu=mu)
    assert with_secure_sum(part(honest=honest)).event.mu == pytest.approx(mu / math.sqrt(honest), rel=1e-15)


def test_one_local_step_over_all_rows_is_rule_s2():
    """An upload is then −ηĝ, so noise σ on the mean gradient is noise ησ on the upload."""
    step = replace(ONCE, local_steps=1, noise=0.25 * 0.02)
    every = replace(step, noise=0.02, noise_is_added="every step", row_length=0.0)
    assert with_secure_sum(part(step)).event.mu == pytest.approx(with_secure_sum(part(every)).event.mu, rel=1e-12)
    assert against_everyone(part(step)).event.mu == pytest.approx(against_everyone(part(every)).event.mu, rel=1e-12)


def test_epsilon_1_against_everyone_is_the_figures_of_the_design_with_the_secure_sum():
    """0.47, 0.42, 0.30 and 0.16 for 4, 5, 9 and 30 honest noises."""
    plan = calibrated(ONCE, Budget(epsilon=1.0, delta=DELTA))
    found = [with_secure_sum(part(replace(plan, cohort=c, devices=c), honest=n)).epsilon(DELTA)
             for c, n in ((10, 4), (10, 5), (10, 9), (40, 30))]  # fmt: skip
    assert found == pytest.approx([0.47, 0.42, 0.30, 0.16], abs=0.006)
    assert 0.999 <= against_everyone(part(plan, rounds_each(plan))).epsilon(DELTA) <= 1.0


def test_the_account_names_rule_s7_and_calls_the_published_formula_no_guarantee():
    account = account_of(part(), DELTA)
    assert account.proved.against_everyone.rule == account.proved.with_secure_sum.rule == "S7"
    assert not account.paper.valid and "added once" in account.paper.because
    # What the paper's reasoning gives is the figure with the secure sum if all ten noises are there.
    everybody = with_secure_sum(part(honest=10)).event
    assert account.paper.rho == pytest.approx(everybody.mu**2 / 2, rel=1e-12)


def test_every_charge_keeps_both_figures():
    costs = Costs(plan=ONCE, secure=SecureSum.for_cohort(10), rows=np.array([2440, 9000]),
                  limits=(Budget(epsilon=9.0, delta=DELTA),) * 2, names=("a", "b"))  # fmt: skip
    charge = costs.of(0).charge(3, run="r", round_number=1, attempt=0)
    assert charge.rule == "S7" and charge.event.mu == movement(ONCE) / 0.03
    assert charge.summed.mu == pytest.approx(charge.event.mu / math.sqrt(4), rel=1e-15)  # g_min of ten is 4
    reserved = costs.of(1).reservation(range(5), run="r")
    assert reserved.summed == (charge.summed,) * 5 and reserved.uploads == (charge.event,) * 5  # rows do not matter
    assert epsilon_of(reserved.summed, DELTA) < epsilon_of(reserved.uploads, DELTA)


def test_the_digest_of_other_plans_knows_nothing_of_noise_once():
    every = replace(ONCE, noise_is_added="every step", row_length=0.0)
    assert not {"noise_is_added", "row_length"} & every.to_dict().keys()
    assert Plan.from_dict(ONCE.to_dict()) == ONCE and ONCE.digest != every.digest
    assert isinstance(ONCE.mechanism, NoiseOnce) and isinstance(every.mechanism, Partition)


@pytest.mark.parametrize("changes", [
    {"law": "discrete_gaussian", "sampling": "poisson"},
    {"row_length": 0.0},
    {"noise_is_added": "every step"},
    {"noise_is_added": "twice"},
])  # fmt: skip
def test_numbers_that_do_not_belong_to_noise_once_are_refused(changes):
    with pytest.raises(PlanError, match=r"CH20[04]"):
        replace(ONCE, **changes)


def test_a_sampled_round_is_a_step_of_rule_s5_with_noise_in_units_of_half_the_movement():
    sampled = replace(ONCE, sampling="poisson", batch=244)
    events = [against_everyone(part(sampled)).event, with_secure_sum(part(sampled, honest=4)).event]
    multiplier = 0.03 / (movement(sampled) / 2)
    assert [one.noise_multiplier for one in events] == pytest.approx([multiplier, 2 * multiplier], rel=1e-12)
    assert {(one.probability, one.steps) for one in events} == {(0.1, 5)}
    plain = replace(ONCE, sampling="poisson")  # a batch of all rows hides nobody
    assert against_everyone(part(plain)).event == against_everyone(part()).event


def test_skellam_noise_once_costs_what_rule_s6_says_of_one_release_per_round():
    """With one local step the two rules meet: an upload is −ηĝ."""
    step = Plan.from_dict(ONCE.to_dict() | {"local_steps": 1, "noise": 0.25 * 0.02, "law": "skellam"})
    every = replace(step, noise=0.02, noise_is_added="every step", row_length=0.0)
    for proved in (against_everyone, with_secure_sum):
        mine, theirs = (proved(part(plan)).event for plan in (step, every))
        assert type(mine) is type(theirs)
        assert epsilon_of([mine], DELTA) == pytest.approx(epsilon_of([theirs], DELTA), rel=1e-9)


def test_discrete_gaussian_noise_once_costs_what_gaussian_noise_does():
    """Its zCDP is that of rule S6; counted as a Gaussian it costs less at every δ."""
    whole = replace(ONCE, law="discrete_gaussian")
    for proved in (against_everyone, with_secure_sum):
        mine, gaussian = proved(part(whole)).event, proved(part()).event
        assert mine.kind == "gaussian" and mine.mu == pytest.approx(gaussian.mu, rel=1e-12)
        assert epsilon_of([mine], DELTA) < 0.95 * epsilon_of([Zcdp(rho=mine.mu**2 / 2)], DELTA)


@pytest.mark.parametrize(("devices", "shift"), [(1, (1,)), (1, (9,)), (3, (4,)), (1, (3, 4)), (2, (3, -4))])
@pytest.mark.parametrize("needed", [7.3, 12.0])
def test_a_discrete_gaussian_of_the_codecs_deviation_hides_no_less_than_the_gaussian_that_is_charged(
    devices, shift, needed
):
    """Both laws summed up point by point: δ(ε) of integers that are `shift` apart, with as little noise as there is."""
    deviation = max(8, math.ceil(math.hypot(needed, SMOOTHING)))
    points = np.arange(-400, 401)
    one = np.exp(-(points**2) / (2 * deviation**2))
    law = one / one.sum()
    for _ in range(devices - 1):
        law = np.convolve(law, one / one.sum(), mode="same")
    here, there = law, np.roll(law, shift[0])
    if len(shift) == 2:
        here, there = np.outer(law, law), np.outer(there, np.roll(law, shift[1]))
    mu = math.hypot(*shift) / needed / math.sqrt(devices)
    for epsilon in (0.0, 0.5 * mu, 2 * mu, 4 * mu):
        exact = np.maximum(here - math.exp(epsilon) * there, 0).sum()
        charged = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        assert 0 < exact <= charged * (1 + 1e-9)


@pytest.mark.parametrize(("noise", "modulus_bits"), [(0.1046, 16), (0.3, 16), (0.1, 32), (0.01, 32)])
def test_the_codec_leaves_room_for_what_the_gaussian_is_rounded_with(noise, modulus_bits):
    """l2/√(s² − t²) is at most the μ that is charged, also where words are so short that s is 15."""
    plan = replace(ONCE, devices=4, cohort=4, rows=8, batch=8, local_steps=60, step_size=0.05, clip=0.6, noise=noise,
                   row_length=2.0, law="discrete_gaussian")  # fmt: skip
    codec = Codec.for_plan(plan, SecureSum.for_cohort(4, modulus_bits=modulus_bits), 4)
    moved = sensitivity(plan, 4, codec.grid)
    assert moved / math.sqrt(codec.noise_in_grid**2 - SMOOTHING**2) <= against_everyone(part(plan, 1, 1)).event.mu


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 8.0])
@pytest.mark.parametrize("rule", ["proved", "with_secure_sum"])
def test_whole_noise_with_60_local_steps_takes_at_most_5_percent_more_of_it_than_gaussian_noise(epsilon, rule):
    """At one ε, rounding and its room included: Adult over 16 devices, 210 parameters."""
    plan = replace(ONCE, devices=16, cohort=16, rounds=5, local_steps=60)
    budget = Budget(epsilon=epsilon, delta=DELTA)
    gaussian, whole = (
        calibrated(replace(plan, law=law), budget, rule=rule) for law in ("gaussian", "discrete_gaussian")
    )
    codec = Codec.for_plan(whole, SecureSum.for_cohort(16), 210)
    assert gaussian.noise < codec.noise_in_grid * codec.grid <= 1.05 * gaussian.noise  # 1.018


def test_a_pull_home_lies_between_the_whole_local_time_and_the_proximal_point():
    far, near = replace(ONCE, pull=1e9), replace(ONCE, pull=0.01, step_size=0.25)
    assert movement(far) == pytest.approx(movement(ONCE), rel=1e-6)  # κ → ∞: 2GT/γ
    assert movement(near) == 2 * ONCE.clip * 0.01 / ONCE.batch  # K → ∞: 2Gκ/γ
    pulled = replace(ONCE, pull=10.0)
    assert movement(pulled) == pytest.approx(2 * 1.2 * 10 * (1 - (1 - 0.25 / 10) ** 120) / 2440, rel=1e-12)


@pytest.mark.parametrize("pull", [100.0, 10.0, 1.0])
def test_whole_noise_takes_what_a_pull_takes_off_the_movement(pull):
    """In 0.2.0 it was counted for the whole local time: 1.2, 3 and 30 times too much noise at these pulls."""
    plan = replace(ONCE, devices=16, cohort=16, rounds=5, local_steps=120, pull=pull)
    budget = Budget(epsilon=1.0, delta=DELTA)
    gaussian, whole = (calibrated(replace(plan, law=law), budget) for law in ("gaussian", "discrete_gaussian"))
    codec = Codec.for_plan(whole, SecureSum.for_cohort(16), 210)
    assert gaussian.noise < codec.noise_in_grid * codec.grid <= 1.05 * gaussian.noise
    older = calibrated(replace(whole, codec=1), budget)
    assert older.noise == pytest.approx(gaussian.noise * plan.local_time / plan.mechanism.moving_time(plan), rel=1e-6)
    for each in (whole, older):  # each plan's codec keeps what its charge says
        codec = Codec.for_plan(each, SecureSum.for_cohort(16), 210)
        moved = sensitivity(each, 210, codec.grid)
        charged = against_everyone(part(each, 1, 1)).event.mu
        assert moved / math.sqrt(codec.noise_in_grid**2 - SMOOTHING**2) <= charged


@pytest.mark.parametrize(
    "wrong", [{"parts": 2, "pull": 1.0}, {"parts": 2, "sampling": "poisson"}, {"parts": 10**9}, {"pull": -1.0}]
)
def test_parts_and_pulls_of_which_nothing_is_proved_are_refused(wrong):
    with pytest.raises(PlanError, match="CH20"):
        replace(ONCE, **wrong)
    with pytest.raises(PlanError, match="CH204"):
        replace(ONCE, noise_is_added="every step", row_length=0.0, pull=1.0)


def test_a_pull_too_weak_for_floats_takes_nothing_off_the_bound():
    weak = replace(ONCE, pull=1e308, step_size=1e-16, local_steps=2**20)
    assert 0 < movement(weak) == pytest.approx(2 * weak.clip * weak.local_time / weak.batch, rel=1e-12)
