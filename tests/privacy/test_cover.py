"""What a later study counts as: a μ that covers its whole curve, rounded up."""

import math

import numpy as np
import pytest

from choral.core import balance as balancing
from choral.core.events import Gaussian, Poisson, Zcdp
from choral.core.zcdp import gdp_log_delta

SLACK = 1e-7


@pytest.mark.parametrize(("mu", "count"), [(0.05, 20), (0.3, 7), (2.0, 3)])
def test_a_study_of_gaussians_counts_as_no_less_than_their_exact_sum(mu, count):
    found = balancing.least_mu(frozenset({(Gaussian(mu=mu), count)}), SLACK)
    assert mu * math.sqrt(count) <= found <= 1.001 * mu * math.sqrt(count)


@pytest.mark.parametrize(
    "uploads",
    [{(Poisson(noise_multiplier=4.5, probability=0.1, steps=10), 13)},
     {(Zcdp(rho=0.01), 5), (Poisson(noise_multiplier=2.0, probability=0.05, steps=4), 8)}],
    ids=["sampled", "with zCDP"],
)  # fmt: skip
def test_the_least_mu_itself_covers_every_point_of_the_curve_and_is_no_less_than_needed(uploads):
    """By the integral of positive terms in place of differences: the study's δ at a point, the Gaussian's at the next.

    What is returned must cover. A millionth is added on purpose; the middle of the search's last bracket, which does
    not cover, must not pass for it.
    """
    found = balancing.least_mu(frozenset(uploads), SLACK)
    epsilons, deltas = balancing.curve_of(frozenset(uploads), SLACK)

    def short(mu):
        gaussian = np.exp([gdp_log_delta(epsilon / mu, mu) for epsilon in epsilons[1:]])
        return float(np.max(deltas[:-1] - (1 - SLACK) * gaussian - SLACK))

    assert short(found) <= 0
    assert short(found / (1 + 1e-6)) <= 1e-12  # what floats may take is far less than the millionth
    assert short(found * (1 - 1e-4)) > 0
