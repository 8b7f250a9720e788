"""From Rényi divergences to ε: never below what a Gaussian really loses, and close to the best of all orders."""

import math

import pytest

from choral.accounting.conversions import convert
from choral.core.events import Gaussian, epsilon_of
from choral.core.zcdp import best_epsilon


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
@pytest.mark.parametrize("mu", [1e-3, 0.3, 2.0, 50.0])
def test_a_gaussian_costs_at_least_its_exact_epsilon_and_what_its_rho_says(mu, delta):
    found = best_epsilon(lambda order: 0.5 * mu * mu * order, delta)
    assert found >= epsilon_of([Gaussian(mu=mu)], delta)
    assert found == pytest.approx(convert(rho=0.5 * mu * mu, delta=delta), rel=1e-4, abs=1e-9)


def test_no_order_of_a_fine_list_is_better():
    def divergence(order):
        return 0.02 * order + 1e-4 * order**2

    def at(order):
        return divergence(order) + (-math.log(1e-5) - math.log(order)) / (order - 1) + math.log1p(-1 / order)

    assert best_epsilon(divergence, 1e-5) <= min(at(1 + 0.01 * step) for step in range(1, 10_000)) + 1e-6


def test_with_whole_orders_only_it_is_the_best_of_them_and_none_between_is_asked():
    asked = []

    def divergence(order):
        asked.append(order)
        return 0.3 * order

    found = best_epsilon(divergence, 1e-5, whole_orders=True)
    assert all(order == int(order) for order in asked)
    assert found >= best_epsilon(lambda order: 0.3 * order, 1e-5)


def test_a_loss_beyond_all_numbers_is_infinite_and_one_below_all_is_none():
    assert best_epsilon(lambda _: math.inf, 1e-5) == math.inf
    assert best_epsilon(lambda _: math.nan, 1e-5) == math.inf
    assert best_epsilon(lambda _: 0.0, 0.5) == 0.0
