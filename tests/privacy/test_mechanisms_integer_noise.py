"""Rule S6 for whole noise: what is charged beside exact laws, other libraries and hand calculations."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from choral.accounting.account import account
from choral.accounting.calibrate import loss_under, smallest_noise
from choral.accounting.costs import Costs
from choral.accounting.proofs import against_everyone, exposed, of_clipped_updates, with_secure_sum
from choral.accounting.published import dp_sgd_corrected, theorem_1, without_secure_sum
from choral.core.codec import Codec, sensitivity
from choral.core.errors import PlanError
from choral.core.events import Gaussian, Skellam, epsilon_of, skellam_divergence
from choral.core.exposure import Exposure
from choral.core.mechanisms import MISSED, discrete_gaussian
from choral.core.mechanisms import whole_noise as charged_noise
from choral.core.plan import CODECS, SMOOTHING, Budget, Plan, SecureSum
from choral.core.zcdp import gdp_log_delta

from .oracles import brackets, concentrated_delta

LAWS = ("discrete_gaussian", "skellam")


def whole_noise(*, law, uses, batch, noise, clip, honest_noises=1, version=CODECS):
    part = exposed(
        rounds=uses, local_steps=1, cohort=2, devices=2, rows=batch, batch=batch, noise=noise, clip=clip,
        sampling="partition", law=law,
    )  # fmt: skip
    return charged_noise(replace(part, codec=version), uses, honest_noises)


def part(law="discrete_gaussian", **changes):
    given = {
        "rounds": 12, "local_steps": 1, "cohort": 10, "devices": 16, "rows": 400, "batch": 100, "noise": 0.1,
        "clip": 1.0, "sampling": "partition", "colluders": 2, "dropouts": 1, "law": law,
    }  # fmt: skip
    return exposed(**{**given, **changes})


@pytest.mark.parametrize("version", [1, 2])
def test_a_discrete_gaussian_is_charged_twice_the_uses_over_z_squared(version):
    """By hand: 12 rounds over 4 batches a pass are 3 uses; z = σγ/G = 10; ρ = 3·½(2/10)² = 0.06; 7 honest noises."""
    counted = replace(part(), codec=version)
    everyone, summed = against_everyone(counted), with_secure_sum(counted)
    assert (everyone.rule, summed.rule) == ("S6", "S6")
    rhos = [each.event.rho if version == 1 else each.event.mu**2 / 2 for each in (everyone, summed)]
    assert rhos == [pytest.approx(0.06), pytest.approx(0.06 / 7)]
    assert "3 noisy steps" in everyone.certificate
    assert "7 honest devices" in summed.certificate
    assert "2 of the devices" in summed.adversary


def test_what_no_gaussian_covers_is_in_the_event_of_every_release():
    """3·10⁻⁷⁷ for each of 2³¹ numbers; a δ below that is not to be had with such noise."""
    assert 2**31 * 3e-77 < MISSED < 2**-220
    assert against_everyone(part()).event.delta == 3 * MISSED
    assert against_everyone(part()).epsilon(1e-70) == math.inf
    assert against_everyone(replace(part(), codec=1)).event.delta == 0


def test_epsilon_of_an_older_plan_is_that_of_the_optimal_conversion_of_that_rho():
    """The conversion in mpmath, minimised there (tests/privacy/oracles.py)."""
    found = against_everyone(replace(part(), codec=1)).epsilon(1e-5)
    assert brackets(lambda epsilon: concentrated_delta(epsilon, 0.06), found, 1e-5, 1e-6)


@pytest.mark.parametrize(("scale", "moved"), [(8, 1), (8, 4), (20, 3), (100, 50)])
@pytest.mark.parametrize("version", [1, 2])
def test_no_exact_discrete_gaussian_loses_more_than_it_is_charged_for(scale, moved, version):
    """dp-accounting's exact loss distribution of the law, with integers that move by l2, at the codec's deviation.

    That is z·l2/2, and √((z·l2/2)² + 9) where the noise counts as Gaussian.
    """
    needed = scale if version == 1 else math.sqrt(scale**2 - SMOOTHING**2)
    given = {"law": "discrete_gaussian", "uses": 1, "batch": 1, "noise": 2 * needed / moved, "clip": 1.0}
    event = whole_noise(**given, version=version)
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
    common = {"uses": 1, "batch": 1, "noise": multiplier, "clip": 1.0, "honest_noises": noises, "version": 1}
    wide = 8 * scale
    l2 = share * 2 / multiplier * wide
    l1 = l2 * (1 + spread * (math.sqrt(coordinates) - 1))
    charged = whole_noise(law="discrete_gaussian", **common)
    spent = discrete_gaussian(l1=l1, l2=l2, coordinates=coordinates, noise=wide, noises=noises)
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
        given = {"uses": 1, "batch": 1, "noise": 2.0, "clip": 1.0, "honest_noises": noises, "version": 1}
        event = whole_noise(law="discrete_gaussian", **given)
        assert event.rho == pytest.approx(0.5 / noises, rel=1e-15)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("rule", ["proved", "with_secure_sum"])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0, 60.0])
def test_the_smallest_noise_fills_the_budget_and_does_not_pass_it(law, rule, epsilon):
    noise = smallest_noise(part(law), Budget(epsilon=epsilon, delta=1e-5), rule)
    assert 0.999 <= loss_under(rule, part(law, noise=noise)).epsilon(1e-5) / epsilon <= 1.0


def test_discrete_gaussian_noise_costs_what_gaussian_noise_does_and_skellam_noise_a_little_more():
    """Optimal against exact conversion at (1, 1e-5): √(0.035926/0.030557) = 1.0843, both from tests of zcdp.py."""
    noises = [smallest_noise(part(law), Budget(epsilon=1.0, delta=1e-5)) for law in ("gaussian", *LAWS)]
    older = replace(part("discrete_gaussian"), codec=1)
    assert noises[1] / noises[0] == pytest.approx(1.0, abs=1e-8)
    assert smallest_noise(older, Budget(epsilon=1.0, delta=1e-5)) / noises[0] == pytest.approx(1.0843, abs=1e-4)
    assert 1 <= noises[2] / (1.0843 * noises[1]) < 1.001


def lossy(deviation, shifts, devices=1):
    """The exact law of the privacy loss of integers that move by `shifts`, one release after the other: its lattice.

    A sum of discrete Gaussians has the probabilities of one discrete Gaussian to 1e-260, so that the loss of n is
    (⟨k, n⟩ − |k|²/2)/(r·s²) with one whole number ⟨k, n⟩, whose law is a convolution.
    """
    wide = math.sqrt(devices) * deviation
    points = np.arange(-math.ceil(14 * wide), math.ceil(14 * wide) + 1)
    one = np.exp(-(points**2) / (2 * wide**2))
    law = np.ones(1)
    for shift in shifts:
        spread = np.zeros((len(points) - 1) * shift + 1)
        spread[::shift] = one / one.sum()
        law = np.convolve(law, spread)
    lattice = np.arange(len(law)) - (len(law) - 1) // 2
    return (lattice + sum(k * k for k in shifts) / 2) / wide**2, law


def beyond(losses, law, epsilon):
    """δ at ε of a law of losses: every term is positive."""
    above = losses > epsilon
    return float((law[above] * -np.expm1(epsilon - losses[above])).sum())


SHIFTS = [(1,), (5,), (30,), (1, 1), (3, 4), (1, 2, 2), (6, 1, 3), (1,) * 9, (2, 3) * 4, (9, 1, 1, 1, 7, 4)]


@pytest.mark.parametrize("shifts", SHIFTS)
@pytest.mark.parametrize("deviation", [8, 9, 15, 40])
@pytest.mark.parametrize("devices", [1, 3])
def test_no_composition_of_discrete_gaussians_in_several_dimensions_is_worse_than_its_gaussian(
    shifts, deviation, devices
):
    """Every direction in 1 to 3 dimensions, and several releases, which are more of them: Gaussian with v² = r·s² − 9.

    The claim is for r(s² − 9), which is less.
    """
    losses, law = lossy(deviation, shifts, devices)
    assert law.sum() == pytest.approx(1.0, abs=1e-12)
    mu = math.sqrt(sum(k * k for k in shifts) / (devices * deviation**2 - SMOOTHING**2))
    for ratio in np.linspace(0.0, 6.0, 61):
        claimed = math.exp(gdp_log_delta(ratio, mu))
        assert beyond(losses, law, ratio * mu) <= claimed * (1 + 1e-9) + 1e-15


def test_without_the_wider_noise_the_gaussian_would_not_cover_a_discrete_one():
    """Between two losses a curve over integers may lie above that of the Gaussian with the same deviation."""
    losses, law = lossy(8, (30,))
    ratios = np.linspace(0.0, 6.0, 601)
    assert any(beyond(losses, law, ratio * 3.75) > 1.001 * math.exp(gdp_log_delta(ratio, 3.75)) for ratio in ratios)


@pytest.mark.parametrize("unit", ["record", "device", "adaptive", "once", "pulled"])
@pytest.mark.parametrize("bits", [16, 32])
def test_every_codec_leaves_room_for_what_the_gaussian_is_rounded_with(unit, bits):
    """l2/√(s² − 9) is at most the μ of one release, for every plan with discrete Gaussian noise: S4, S6 and S7."""
    made = [
        leaves_room(unit, noise, bits, parameters) for noise in np.geomspace(0.05, 2.0, 60) for parameters in (1, 7)
    ]
    assert sum(made) >= 30


def leaves_room(unit, noise, bits, parameters):
    """Whether there is a codec for such a plan at all; a failed assertion where it has too little noise."""
    common = {"devices": 4, "cohort": 4, "rounds": 3, "rows": 8, "batch": 8, "step_size": 0.5, "clip": 0.6,
              "noise": noise, "sampling": "partition", "law": "discrete_gaussian"}  # fmt: skip
    once = {"local_steps": 20, "step_size": 0.05, "noise_is_added": "once", "row_length": 1.0}
    own = {"record": {}, "device": {"unit": "device"}, "adaptive": {"unit": "device", "clip_quantile": 0.5},
           "once": once, "pulled": {**once, "pull": 0.3}}[unit]  # fmt: skip
    plan = Plan(**{**common, **own})
    try:
        codec = Codec.for_plan(plan, SecureSum.for_cohort(4, modulus_bits=bits), parameters)
    except PlanError:
        return False
    moved = sensitivity(plan, parameters, codec.grid)
    exposed = Exposure(**{field.name: getattr(plan, field.name) for field in fields(Plan)} | {"rounds": 1})
    assert moved / math.sqrt(codec.noise_in_grid**2 - SMOOTHING**2) <= against_everyone(exposed).event.mu
    return True


@pytest.mark.parametrize("version", [1, 2])
def test_a_plan_names_the_version_of_its_codec_unless_it_is_the_first(version):
    """Plans up to 0.2.0 have no such key: their digests, their codecs and what they cost stay."""
    plan = Plan(devices=4, cohort=4, rounds=3, rows=8, batch=8, step_size=0.5, clip=0.6, noise=0.3, codec=version,
                sampling="partition", law="discrete_gaussian")  # fmt: skip
    assert plan.to_dict().get("codec", 1) == version
    assert Plan.from_dict(plan.to_dict()) == plan
    codec = Codec.for_plan(plan, SecureSum.for_cohort(4), 100)
    needed = 0.3 * 8 / 0.6 * sensitivity(plan, 100, codec.grid) / 2
    assert codec.noise_in_grid == math.ceil(needed if version == 1 else math.hypot(needed, SMOOTHING))
    with pytest.raises(PlanError, match="CH200"):
        replace(plan, codec=3)


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
    assert (reported.against_everyone.mu is None) == (law == "skellam")
    assert (reported.against_everyone.rho is None) == (law == "skellam")


@pytest.mark.parametrize("changes", [{"local_steps": 2}, {"sampling": "poisson"}])
def test_nothing_is_reported_of_whole_noise_where_nothing_is_proved(changes):
    with pytest.raises(PlanError, match="CH204"):
        part(**changes)


def test_rule_s4_is_not_claimed_of_whole_noise():
    with pytest.raises(PlanError, match="CH204"):
        of_clipped_updates(part())


@pytest.mark.parametrize(
    ("law", "kind"), [("gaussian", Gaussian), ("discrete_gaussian", Gaussian), ("skellam", Skellam)]
)
def test_a_ledgers_events_add_up_to_the_rules_figure(law, kind):
    """Passes that continue: of 12 rounds over 4 batches, every fourth costs; the events' own δ counts."""
    plan = Plan(
        devices=16, cohort=10, rounds=20, rows=400, batch=100, step_size=0.5, clip=1.0, noise=0.1,
        sampling="partition", law="gaussian",
    )  # fmt: skip
    plan = Plan.from_dict(plan.to_dict() | {"law": law})  # one that choral 0.2 ran, too
    limits = (Budget(epsilon=100.0, delta=1e-5),)
    costs = Costs(plan=plan, secure=SecureSum.for_cohort(10), rows=np.array([400]), limits=limits, names=("a",))
    events = [costs.of(0).event(before) for before in range(12)]
    assert [event != replace(events[1]) for event in events] == [True, False, False, False] * 3
    assert isinstance(events[0], kind)
    assert costs.rule(0).rule == ("S1" if law == "gaussian" else "S6")
    rule = against_everyone(part(law, colluders=0)).epsilon(1e-5 - 12 / 20 * 2e-8)
    assert costs.spent(0, 12, 1e-5) == pytest.approx(rule, rel=1e-9)
