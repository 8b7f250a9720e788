import numpy as np
import pytest
from scipy.stats import norm

from choral.core.events import Gaussian, Poisson
from choral_lab.attack.membership import most_true_positives, true_positives


def test_the_bound_of_a_gaussian_is_its_own_best_test():
    # Neyman and Pearson by hand: threshold at the 99 % quantile of N(0, 1), power of N(μ, 1) above it.
    for mu in (0.1, 1.0, 3.0):
        assert most_true_positives(Gaussian(mu=mu)) == pytest.approx(norm.sf(norm.isf(0.01) - mu), rel=1e-12)


def test_measured_gaussians_reach_their_bound_and_do_not_exceed_it_by_more_than_chance():
    rng = np.random.default_rng(0)
    strangers, members = rng.normal(0, 1, 100_000), rng.normal(1, 1, 100_000)
    # 9.2 % of 100,000, threshold and power both estimated: three deviations are below 0.006.
    assert true_positives(members, strangers) == pytest.approx(most_true_positives(Gaussian(mu=1.0)), abs=0.006)


def test_sampling_lowers_the_bound_and_no_sampling_comes_near_the_gaussian_from_above():
    full = Poisson(noise_multiplier=2.0, probability=1.0, steps=1)
    some = Poisson(noise_multiplier=2.0, probability=0.1, steps=1)
    exact = most_true_positives(Gaussian(mu=1.0))
    assert exact <= most_true_positives(full) <= 1.5 * exact
    assert 0.01 < most_true_positives(some) < most_true_positives(full)


def test_guessing_finds_as_many_members_as_strangers():
    scores = np.random.default_rng(1).normal(0, 1, (2, 50_000))
    assert true_positives(scores[0], scores[1]) == pytest.approx(0.01, abs=0.002)
