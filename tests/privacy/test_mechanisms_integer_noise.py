"""Rule S6 for whole noise: what is charged beside exact laws, other libraries and hand calculations."""

import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from choral.errors import PlanError
from choral.plan import Budget, Plan, SecureSum
from choral.privacy.account import account
from choral.privacy.calibrate import loss_under, smallest_noise
from choral.privacy.costs import Costs
from choral.privacy.discrete import discrete_gaussian, skellam_divergence
from choral.privacy.events import Gaussian, Skellam, Zcdp, epsilon_of
from choral.privacy.exposure import Exposure
from choral.privacy.mechanisms import against_everyone, integer_noise, of_clipped_updates, with_secure_sum
from choral.privacy.published import dp_sgd_corrected, theorem_1, without_secure_sum

from .oracles import brackets, concentrated_delta

LAWS = ("discrete_gaussian", "skellam")


def whole_noise(*, law, uses, batch, noise, clip, honest_noises=1):
    part = Exposure.of(
        rounds=uses, local_steps=1, cohort=2, devices=2, rows=batch, batch=batch, noise=noise, clip=clip,
        sampling="partition", law=law,
    )  # fmt: skip
    return integer_noise.whole_noise(part, uses, honest_noises)


def part(law="discrete_gaussian", **changes):
    given = {
        "rounds": 12, "local_steps": 1, "cohort": 10, "devices": 16, "rows": 400, "batch": 100, "noise": 0.1,
        "clip": 1.0, "sampling": "partition", "colluders": 2, "dropouts": 1, "law": law,
    }  # fmt: skip
    return Exposure.of(**{**given, **changes})


def test_a_discrete_gaussian_is_charged_twice_the_uses_over_z_squared():
    """By hand: 12 rounds over 4 batches a pass are 3 uses; z = σγ/G = 10; ρ = 3·½(2/10)² = 0.06; 7 honest noises."""
    everyone, summed = against_everyone(part()), with_secure_sum(part())
    assert (everyone.rule, summed.rule) == ("S6", "S6")
    assert (everyone.event.rho, summed.event.rho) == (pytest.approx(0.06), pytest.approx(0.06 / 7))
    assert "3 noisy steps" in everyone.certificate
    assert "7 honest devices" in summed.certificate
    assert "2 of the devices" in summed.adversary


def test_epsilon_is_that_of_the_optimal_conversion_of_that_rho():
    """The conversion in mpmath, minimised there (tests/privacy/oracles.py)."""
    found = against_everyone(part()).epsilon(1e-5)
    assert brackets(lambda epsilon: concentrated_delta(epsilon, 0.06), found, 1e-5, 1e-6)


@pytest.mark.parametrize(("scale", "moved"), [(8, 1), (8, 4), (20, 3), (100, 50)])
def test_no_exact_discrete_gaussian_loses_more_than_it_is_charged_for(scale, moved):
    """dp-accounting's exact loss distribution of the law, with integers that move by l2 = 2s/z."""
    event = whole_noise(law="discrete_gaussian", uses=1, batch=1, noise=2 * scale / moved, clip=1.0)
    exact = pld.from_discrete_gaussian_mechanism(scale, sensitivity=moved, value_discretization_interval=1e-4)
    for epsilon in (0.05, 0.5, 2.0):
        delta = exact.get_delta_for_epsilon(epsilon)
        if delta > 1e-12:
            assert epsilon_of([event], delta) >= epsilon * (1 - 1e-6)


@pytest.mark.parametrize("moved", [16, 64, 512, 2000])
def test_no_exact_skellam_loses_more_than_it_is_charged_for(moved):
    """SciPy's law at the least deviation that a codec may choose, shifted: its hockey stick at the ε charged for δ."""
    event = whole_noise(law="skellam", uses=1, batch=1, noise=2 * 512 / moved, clip=1.0)
    values = np.arange(-20 * 512, 20 * 512 + 1)
    first, second = (stats.skellam.pmf(values - shift, 512**2 / 2, 512**2 / 2) for shift in (0, moved))
    for delta in (1e-3, 1e-6):
        assert np.maximum(second - math.exp(epsilon_of([event], delta)) * first, 0).sum() <= delta


@settings(max_examples=200, deadline=None)
@given(
    multiplier=st.floats(0.05, 1e4), scale=st.floats(1, 64), noises=st.integers(1, 200), order=st.integers(2, 300),
    share=st.floats(0.01, 1), spread=st.floats(0, 1), coordinates=st.integers(1, 2**24),
)  # fmt: skip
def test_what_is_charged_dominates_every_codec_that_keeps_its_promise(
    multiplier, scale, noises, order, share, spread, coordinates
):
    """Any deviation from the least on, integers that move by l2 ≤ 2s/z, and any l1 between l2 and min(√d·l2, l2²)."""
    common = {"uses": 1, "batch": 1, "noise": multiplier, "clip": 1.0, "honest_noises": noises}
    wide = 8 * scale
    l2 = share * 2 / multiplier * wide
    l1 = l2 * (1 + spread * (math.sqrt(coordinates) - 1))
    charged = whole_noise(law="discrete_gaussian", **common)
    spent = discrete_gaussian(l1=l1, l2=l2, coordinates=coordinates, noise=wide, honest_noises=noises)
    assert spent <= charged.rho * (1 + 1e-12)
    wide = 512 * scale
    l2 = max(1.0, share * 2 / multiplier * wide)  # whole numbers move by one at least, or not at all
    if l2 <= 2 / multiplier * wide:
        l1 = l2 * (1 + spread * (l2 - 1))
        charged = whole_noise(law="skellam", **common)
        spent = skellam_divergence(order, l1=l1, l2=l2, variance=noises * wide**2)
        most = skellam_divergence(order, l1=charged.l1, l2=charged.l2, variance=charged.variance)
        assert spent <= most * (1 + 1e-12)


@settings(max_examples=100, deadline=None)
@given(moved=st.lists(st.integers(-50, 50), min_size=1, max_size=30))
def test_no_vector_of_whole_numbers_is_longer_in_l1_than_its_squared_l2(moved):
    assert sum(map(abs, moved)) <= sum(one * one for one in moved)


def test_a_sum_of_least_discrete_gaussians_is_one_but_for_less_than_a_float_shows():
    """Kairouz, Liu and Steinke's gap at s = 8: 10·200·exp(−2π²·64/2) < 1e-270, times √2^24."""
    assert 10 * 200 * math.exp(-2 * math.pi**2 * 64 / 2) * 2**12 < 1e-267
    for noises in (1, 2, 200):
        event = whole_noise(law="discrete_gaussian", uses=1, batch=1, noise=2.0, clip=1.0, honest_noises=noises)
        assert event.rho == pytest.approx(0.5 / noises, rel=1e-15)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("rule", ["proved", "with_secure_sum"])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0, 60.0])
def test_the_smallest_noise_fills_the_budget_and_does_not_pass_it(law, rule, epsilon):
    noise = smallest_noise(part(law), Budget(epsilon=epsilon, delta=1e-5), rule)
    assert 0.999 <= loss_under(rule, part(law, noise=noise)).epsilon(1e-5) / epsilon <= 1.0


def test_whole_noise_needs_a_little_more_of_it_than_gaussian():
    """Optimal against exact conversion at (1, 1e-5): √(0.035926/0.030557) = 1.0843, both from tests of zcdp.py."""
    noises = [smallest_noise(part(law), Budget(epsilon=1.0, delta=1e-5)) for law in ("gaussian", *LAWS)]
    assert noises[1] / noises[0] == pytest.approx(1.0843, abs=1e-4)
    assert 1 <= noises[2] / noises[1] < 1.001


def test_published_formulas_are_no_guarantee_for_whole_noise():
    own = part(rows=100, colluders=0, dropouts=0)
    for figure in (theorem_1, without_secure_sum, dp_sgd_corrected):
        assert figure(replace(own, law="gaussian")).valid
        assert not figure(own).valid
        assert "Rule S6" in figure(own).because


@pytest.mark.parametrize("law", LAWS)
def test_an_account_names_rule_s6_everywhere(law):
    reported = account(
        rounds=12, local_steps=1, cohort=10, devices=16, rows=400, batch=100, noise=0.1, clip=1.0, delta=1e-5,
        sampling="partition", law=law,
    ).proved  # fmt: skip
    assert {reported.against_everyone.rule, reported.with_secure_sum.rule} == {"S6"}
    assert reported.against_everyone.mu is None
    assert (reported.against_everyone.rho is None) == (law == "skellam")


@pytest.mark.parametrize("changes", [{"local_steps": 2}, {"sampling": "poisson"}])
def test_nothing_is_reported_of_whole_noise_where_nothing_is_proved(changes):
    with pytest.raises(PlanError, match="CH204"):
        part(**changes)


def test_rule_s4_is_not_claimed_of_whole_noise():
    with pytest.raises(PlanError, match="CH204"):
        of_clipped_updates(part())


@pytest.mark.parametrize(("law", "kind"), [("gaussian", Gaussian), ("discrete_gaussian", Zcdp), ("skellam", Skellam)])
def test_a_ledgers_events_add_up_to_the_rules_figure(law, kind):
    """Passes that continue: of 12 rounds over 4 batches, every fourth costs; the events' own δ counts."""
    plan = Plan(
        devices=16, cohort=10, rounds=20, rows=400, batch=100, step_size=0.5, clip=1.0, noise=0.1,
        sampling="partition", law=law,
    )  # fmt: skip
    limits = (Budget(epsilon=100.0, delta=1e-5),)
    costs = Costs(plan=plan, secure=SecureSum.for_cohort(10), rows=np.array([400]), limits=limits, names=("a",))
    events = [costs.event(0, before) for before in range(12)]
    assert [event != replace(events[1]) for event in events] == [True, False, False, False] * 3
    assert isinstance(events[0], kind)
    assert costs.rule(0).rule == ("S1" if law == "gaussian" else "S6")
    rule = against_everyone(part(law, colluders=0)).epsilon(1e-5 - 12 / 20 * 2e-8)
    assert costs.spent(0, 12, 1e-5) == pytest.approx(rule, rel=1e-9)
