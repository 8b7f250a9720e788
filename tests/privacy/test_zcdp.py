import math

import opendp.prelude as dp
import pytest
from dp_accounting.gaussian_mechanism import get_epsilon_gaussian
from hypothesis import given, settings
from hypothesis import strategies as st

from choral.accounting.conversions import CONVERSIONS, convert, gaussian, rho_for
from choral.core.errors import PlanError
from choral.core.zcdp import gdp_epsilon

from .oracles import brackets, concentrated_delta, gaussian_delta

epsilons = st.floats(-6, 4).map(lambda power: 10.0**power)
deltas = st.floats(-300, math.log10(0.5)).map(lambda power: 10.0**power)
conversions = st.sampled_from(CONVERSIONS)


def test_a_gaussian_of_sensitivity_3_and_noise_6_costs_an_eighth():
    assert gaussian(sensitivity=3.0, noise=6.0) == 0.125  # 9 / (2 · 36)


def test_the_papers_conversion_is_its_formula():
    assert convert(rho=0.25, delta=math.exp(-4), conversion="paper") == pytest.approx(0.25 + 2 * 1.0, rel=1e-15)


@pytest.mark.parametrize("delta", [1e-12, 1e-9, 1e-5, 1e-2])
@pytest.mark.parametrize("scale", [0.2, 1.0, 4.0, 30.0])
def test_the_optimal_conversion_is_opendps(scale, delta):
    dp.enable_features("contrib")
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    measurement = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=scale))
    theirs = measurement.map(1.0).epsilon(delta)
    ours = convert(rho=0.5 / scale**2, delta=delta, conversion="optimal")
    # OpenDP stops its search a little early and rounds up.
    assert ours <= theirs * (1 + 1e-9)
    assert theirs == pytest.approx(ours, rel=1e-6)


@pytest.mark.parametrize("delta", [1e-12, 1e-9, 1e-5, 1e-2])
@pytest.mark.parametrize("noise", [0.1, 1.0, 5.0])
def test_the_exact_conversion_is_dp_accountings(noise, delta):
    assert gdp_epsilon(1 / noise, delta) == pytest.approx(get_epsilon_gaussian(noise, delta), rel=1e-9)


@settings(deadline=None, max_examples=60)
@given(epsilon=epsilons, delta=deltas)
def test_exact_agrees_with_fifty_digits_over_the_whole_range(epsilon, delta):
    mu = math.sqrt(2 * rho_for(epsilon=epsilon, delta=delta, conversion="exact"))
    found = gdp_epsilon(mu, delta)
    # Where δ is near its largest, ε is the small difference of large numbers: the input's own last bit decides.
    conditioning = 1e-9 if delta < 1e-3 * mu else max(1e-9, 1e-15 * mu / epsilon)
    assert brackets(lambda e: gaussian_delta(e, mu), found, delta, conditioning)
    assert found == pytest.approx(epsilon, rel=max(1e-9, 1e-15 / epsilon))


@settings(deadline=None, max_examples=60)
@given(epsilon=epsilons, delta=deltas)
def test_optimal_agrees_with_fifty_digits_over_the_whole_range(epsilon, delta):
    rho = rho_for(epsilon=epsilon, delta=delta, conversion="optimal")
    found = convert(rho=rho, delta=delta, conversion="optimal")
    assert brackets(lambda e: concentrated_delta(e, rho), found, delta, max(1e-9, 1e-15 / epsilon))
    assert found == pytest.approx(epsilon, rel=max(1e-9, 1e-15 / epsilon))


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0, 1e4])
@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-10, 0.5])
@pytest.mark.parametrize("conversion", CONVERSIONS)
def test_the_corners_of_the_range_go_there_and_back(epsilon, delta, conversion):
    rho = rho_for(epsilon=epsilon, delta=delta, conversion=conversion)
    assert rho > 0
    assert convert(rho=rho, delta=delta, conversion=conversion) == pytest.approx(
        epsilon, rel=max(1e-9, 2e-15 / epsilon)
    )


@given(rho=st.floats(-12, 4).map(lambda power: 10.0**power), delta=deltas)
def test_exact_is_below_optimal_is_below_the_papers(rho, delta):
    paper, optimal, exact = (convert(rho=rho, delta=delta, conversion=name) for name in CONVERSIONS)
    assert exact <= optimal * (1 + 1e-12) + 1e-15
    assert optimal <= paper * (1 + 1e-12)


@given(rho=st.floats(-12, 4).map(lambda power: 10.0**power), delta=deltas, conversion=conversions)
def test_more_loss_or_less_delta_never_costs_less(rho, delta, conversion):
    base = convert(rho=rho, delta=delta, conversion=conversion)
    assert convert(rho=rho * 1.01, delta=delta, conversion=conversion) >= base
    assert convert(rho=rho, delta=delta * 1.1, conversion=conversion) <= base


def test_the_design_notes_savings_of_noise_are_right():
    # privacy-accounting: exact needs 13 % less noise than Lemma 3 at (10, 1e-4), 28 % less at (1, 1e-4); noise ∝ 1/√ρ.
    for epsilon, saving in ((10.0, 0.13), (1.0, 0.28)):
        paper, exact = (rho_for(epsilon=epsilon, delta=1e-4, conversion=name) for name in ("paper", "exact"))
        assert 1 - math.sqrt(paper / exact) == pytest.approx(saving, abs=0.005)


def test_no_loss_is_no_epsilon():
    assert [convert(rho=0.0, delta=1e-5, conversion=name) for name in CONVERSIONS] == [0.0] * 3


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, "1", True, None])
def test_a_rho_that_is_no_loss_is_refused(bad):
    with pytest.raises(PlanError, match="CH200 rho"):
        convert(rho=bad, delta=1e-5)


@pytest.mark.parametrize("bad", [0.0, -1e-5, 1.0, 2.0, math.nan, math.inf])
def test_a_delta_outside_zero_and_one_is_refused(bad):
    for call in (lambda: convert(rho=0.5, delta=bad), lambda: rho_for(epsilon=1.0, delta=bad)):
        with pytest.raises(PlanError, match="CH200 delta"):
            call()


@pytest.mark.parametrize("rho", [5e-324, 1e-300, 1e-20, 1e12, 1e21, 1e200])
@pytest.mark.parametrize("delta", [1e-300, 1e-10, 0.5, 0.999999])
def test_losses_far_outside_the_range_still_have_an_ordered_epsilon(rho, delta):
    paper, optimal, exact = (convert(rho=rho, delta=delta, conversion=name) for name in CONVERSIONS)
    assert 0 <= exact <= optimal * (1 + 1e-9) + 1e-140
    assert optimal <= paper * (1 + 1e-9) + 1e-140
    assert math.isfinite(paper)


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-13, 1e-5), (1e13, 1e-5), (1.0, 1e-301), (1.0, 0.9999999)])
def test_budgets_beyond_the_range_of_the_conversions_are_refused(epsilon, delta):
    with pytest.raises(PlanError, match=r"CH200 .*Must be from"):
        rho_for(epsilon=epsilon, delta=delta, conversion="exact")


def test_an_unknown_conversion_is_refused_with_the_known_ones():
    with pytest.raises(PlanError, match='"paper" or "optimal" or "exact"'):
        convert(rho=0.5, delta=1e-5, conversion="best")
