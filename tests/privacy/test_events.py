import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choral.accounting.conversions import convert
from choral.core import events
from choral.core.errors import PlanError
from choral.core.events import Gaussian, Poisson, Skellam, Zcdp, epsilon_of
from choral.core.zcdp import gdp_epsilon

sizes = st.floats(0.01, 3.0)
exact = st.one_of(
    st.builds(Gaussian, mu=sizes),
    st.builds(
        Poisson,
        noise_multiplier=st.sampled_from([0.8, 2.0]),
        probability=st.sampled_from([0.05, 0.3]),
        steps=st.integers(1, 40),
    ),
)
some = st.one_of(
    exact,
    st.builds(Zcdp, rho=sizes),
    st.builds(Skellam, l1=st.just(20.0), l2=st.just(5.0), variance=st.floats(100.0, 1e4), releases=st.integers(1, 5)),
)


@given(event=some)
def test_an_event_survives_json(event):
    assert events.from_dict(json.loads(json.dumps(events.to_dict(event)))) == event


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"kind": "laplace", "scale": 1.0},
        {"kind": "gaussian"},
        {"kind": "gaussian", "mu": 1.0, "sigma": 2.0},
        {"kind": "gaussian", "mu": math.nan},
        {"kind": "gaussian", "mu": "1"},
        {"kind": "zcdp", "rho": -0.1},
        {"kind": "poisson", "noise_multiplier": 1.0, "probability": 0.1},
        {"kind": "poisson", "noise_multiplier": 1.0, "probability": 0.1, "steps": 1.5},
        {"kind": "gaussian", "mu": 1.0, "delta": 1.0},
    ],
)
def test_what_is_not_known_or_not_whole_is_refused(values):
    with pytest.raises(PlanError, match="CH200"):
        events.from_dict(values)


@settings(deadline=None, max_examples=25)
@given(first=st.lists(some, max_size=4), more=some)
def test_another_event_never_lowers_the_total_and_order_does_not_matter(first, more):
    before = epsilon_of(first, 1e-5)
    after = epsilon_of([*first, more], 1e-5)
    assert after >= before * (1 - 1e-3)  # grids may differ
    assert epsilon_of([more, *first], 1e-5) == pytest.approx(after, rel=1e-9)


@settings(deadline=None, max_examples=25)
@given(first=exact, second=exact)
def test_what_is_composed_exactly_costs_at_most_its_basic_composition(first, second):
    together = epsilon_of([first, second], 1e-5)
    apart = epsilon_of([first], 5e-6) + epsilon_of([second], 5e-6)
    assert together <= apart * 1.001


def test_no_events_cost_nothing():
    assert epsilon_of([], 1e-5) == 0.0
    assert epsilon_of([Gaussian(mu=0.0), Zcdp(rho=0.0)], 1e-5) == 0.0


def test_thousands_of_gaussians_are_one():
    assert epsilon_of([Gaussian(mu=0.01)] * 10_000, 1e-5) == pytest.approx(gdp_epsilon(1.0, 1e-5), rel=1e-9)


def test_a_gaussian_beside_a_concentrated_event_is_counted_as_concentrated():
    mixed = epsilon_of([Gaussian(mu=1.0), Zcdp(rho=0.5)], 1e-5)
    assert mixed == pytest.approx(convert(rho=1.0, delta=1e-5, conversion="optimal"), rel=1e-12)


def test_a_concentrated_event_beside_sampled_steps_is_counted_by_moments_and_not_lost():
    steps = Poisson(noise_multiplier=1.2, probability=0.1, steps=50)
    tiny, real = (epsilon_of([steps, Zcdp(rho=rho)], 1e-5) for rho in (1e-9, 0.5))
    assert epsilon_of([steps], 1e-5) < tiny < 1.25 * epsilon_of([steps], 1e-5)
    assert real > convert(rho=0.5, delta=1e-5)


def test_steps_that_always_include_the_record_are_a_gaussian():
    full = Poisson(noise_multiplier=4.0, probability=1.0, steps=4)
    assert epsilon_of([full], 1e-5) == gdp_epsilon(1.0, 1e-5)  # μ = 2√4/4


def test_an_events_own_delta_is_taken_from_the_whole():
    events_with = [Gaussian(mu=1.0, delta=2e-6), Gaussian(mu=0.0, delta=3e-6)]
    assert epsilon_of(events_with, 1e-5) == pytest.approx(gdp_epsilon(1.0, 5e-6), rel=1e-9)
    assert epsilon_of(events_with, 4e-6) == math.inf


def test_skellam_noise_of_large_variance_is_nearly_a_gaussian():
    # variance 10⁶ and l2 = 10: μ = 10/1000 a release, 10⁴ releases make μ = 1, ρ = 0.5; whole orders cost a little
    many = epsilon_of([Skellam(l1=100.0, l2=10.0, variance=1e6, releases=10_000)], 1e-5)
    assert many == pytest.approx(convert(rho=0.5, delta=1e-5, conversion="optimal"), rel=0.01)
    assert many >= gdp_epsilon(1.0, 1e-5)
