"""What several rows of one person cost: closed forms, and an oracle for sampled steps."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from choral.accounting.groups import at_two_sites, of_rows
from choral.accounting.reserves import overflow
from choral.core.events import Gaussian, Poisson, Skellam, Zcdp, epsilon_of


def test_gaussians_of_k_rows_have_k_times_the_mu_and_zcdp_k_squared_times_the_rho():
    both = [Gaussian(mu=0.03), Gaussian(mu=0.04, delta=1e-9)]
    assert of_rows(both, 4, 1e-6) == pytest.approx(epsilon_of([Gaussian(mu=0.2)], 1e-6), rel=1e-12)
    assert of_rows([Zcdp(rho=0.01)], 3, 1e-6) == epsilon_of([Zcdp(rho=0.09)], 1e-6)


@pytest.mark.parametrize(("z", "q", "rows"), [(2.0, 0.1, 2), (5.0, 0.3, 5), (1.5, 0.02, 3)])
def test_rows_in_a_sampled_step_cost_no_less_than_an_attack_that_is_worked_out_exactly(z, q, rows):
    """All k rows push one way in one world and the other way in the other: mixtures of N(±j, z²), j ~ Bin(k, q)."""
    x = np.linspace(-rows - 12 * z, rows + 12 * z, 200_001)
    weights = binom.pmf(np.arange(rows + 1), rows, q)
    up, down = (sum(w * norm.pdf(x, side * j, z) for j, w in enumerate(weights)) for side in (1, -1))
    bound = of_rows([Poisson(noise_multiplier=z, probability=q, steps=1)], rows, 1e-5)
    delta_there = np.trapezoid(np.maximum(up - math.exp(bound) * down, 0), x)
    assert delta_there <= 1e-5
    one = epsilon_of([Poisson(noise_multiplier=z, probability=q, steps=1)], 1e-5)
    assert one < bound < epsilon_of([Gaussian(mu=2 * rows / z)], 1e-5) * (1 + 1e-9)


def test_one_row_costs_what_one_row_costs_and_more_rows_cost_more():
    events = [Poisson(noise_multiplier=5.0, probability=0.1, steps=130)]
    costs = [of_rows(events, rows, 1e-5) for rows in (1, 2, 3, 5)]
    assert costs[0] == epsilon_of(events, 1e-5) and costs == sorted(costs)


def test_skellam_noise_has_a_bound_too_or_none():
    assert 5 * epsilon_of([Skellam(l1=100.0, l2=10.0, variance=1e6)], 1e-5) < of_rows(
        [Skellam(l1=100.0, l2=10.0, variance=1e6)], 5, 1e-5
    )
    assert of_rows([Skellam(l1=1e4, l2=100.0, variance=1e3)], 50, 1e-5) == math.inf


def test_the_same_person_at_two_sites_pays_for_both():
    events = [Gaussian(mu=0.3, delta=1e-9)]
    assert at_two_sites(events, 1e-5) == pytest.approx(epsilon_of([Gaussian(mu=0.3 * 2**0.5)], 1e-5 - 2e-9), rel=1e-9)


def test_room_for_several_rows_is_the_others_leaving_room_for_all_of_them():
    expected = binom.sf(60 - 5, 495, 40 / 500)  # of 495 others at least 56, so that 5 more would not fit 60
    found = overflow(rows=500, batch=40, capacity=60, together=5)
    assert expected <= found <= 2 * expected
    assert overflow(rows=500, batch=40, capacity=60) < found
