import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from choral.core.errors import PlanError
from choral_lab.audit.bounds import (
    Tally,
    best_threshold,
    clopper_pearson,
    held_out,
    least_epsilon,
    least_mean_loss,
    least_mu,
    one_run_epsilon,
    one_run_p_value,
)


def binomial_tail(least, trials, chance):
    """P(Binomial(trials, chance) ≥ least), term by term in 60 digits: no beta function in it."""
    with mp.workdps(60):
        p = mpf(chance)
        return mp.fsum(mp.binomial(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(least, trials + 1))


@pytest.mark.parametrize(("hits", "trials"), [(1, 20), (7, 50), (49, 50), (3, 400)])
@pytest.mark.parametrize("confidence", [0.9, 0.99, 0.9999])
def test_both_ends_of_an_interval_solve_their_binomial_equation_in_sixty_digits(hits, trials, confidence):
    low, high = clopper_pearson(hits, trials, confidence)
    assert float(binomial_tail(hits, trials, low)) == pytest.approx(1 - confidence, rel=1e-9)
    assert float(1 - binomial_tail(hits + 1, trials, high)) == pytest.approx(1 - confidence, rel=1e-9)


def test_the_ends_are_exact_where_a_hand_can_solve_them():
    # No hit in n: (1 − p)^n = 1 − confidence. All hits: p^n = 1 − confidence.
    assert clopper_pearson(0, 1000, 0.99) == (0.0, pytest.approx(1 - 0.01 ** (1 / 1000), rel=1e-12))
    assert clopper_pearson(1000, 1000, 0.99) == (pytest.approx(0.01 ** (1 / 1000), rel=1e-12), 1.0)


@given(st.integers(1, 400), st.floats(0.6, 0.9999), st.data())
def test_a_lower_end_stays_below_the_rate_seen_and_an_upper_end_above(trials, confidence, data):
    hits = data.draw(st.integers(0, trials))
    low, high = clopper_pearson(hits, trials, confidence)
    assert low <= hits / trials <= high


def test_intervals_miss_no_more_often_than_they_say():
    # 20,000 binomials of 300 at p = 0.013, seed 1: at most 1 % misses of a 99 % bound; 1.25 % is 3.5 deviations more.
    draws = np.random.default_rng(1).binomial(300, 0.013, 20_000)
    ends = {hits: clopper_pearson(int(hits), 300, 0.99) for hits in np.unique(draws)}
    assert np.mean([ends[hits][0] > 0.013 for hits in draws]) < 0.0125
    assert np.mean([ends[hits][1] < 0.013 for hits in draws]) < 0.0125


def test_randomised_response_is_never_said_to_lose_more_than_it_does():
    # Randomised response with ε = 1 tells the truth with chance e/(1+e); δ = 0, so its ε is exactly 1.
    rng, truth = np.random.default_rng(7), math.e / (1 + math.e)
    bounds = [
        least_epsilon(
            Tally(
                trainings=50_000,
                false_alarms=int(rng.binomial(50_000, 1 - truth)),
                hits=int(rng.binomial(50_000, truth)),
            ),
            delta=1e-300,
            confidence=0.9,
        )
        for _ in range(500)
    ]
    # At most 10 % may be above (50 expected at the most, 70 is three deviations more), and the bound must be close.
    assert sum(bound > 1 for bound in bounds) <= 70
    assert np.median(bounds) > 0.95


def test_a_bound_by_hand():
    # 0 false alarms and all hits in 1000, confidence 0.99: each end at 0.995, so TPR ≥ 0.005^(1/1000), FPR ≤ 1 − that.
    end = 0.005 ** (1 / 1000)
    found = least_epsilon(Tally(trainings=1000, false_alarms=0, hits=1000), delta=1e-3, confidence=0.99)
    assert found == pytest.approx(math.log((end - 1e-3) / (1 - end)), rel=1e-12)


def test_misses_prove_as_much_as_alarms():
    # A test and its complement, worlds swapped, are the same test: the bound may not depend on the naming.
    one = least_epsilon(Tally(trainings=10_000, false_alarms=3_000, hits=9_990), delta=1e-5)
    other = least_epsilon(Tally(trainings=10_000, false_alarms=10, hits=7_000), delta=1e-5)
    assert one == pytest.approx(other, rel=1e-9)


def test_a_guessing_test_proves_nothing():
    assert least_epsilon(Tally(trainings=10_000, false_alarms=500, hits=500), delta=1e-5) == 0
    assert least_mu(Tally(trainings=10_000, false_alarms=500, hits=500)) == 0


def test_the_least_mu_of_gaussians_stays_below_their_distance_and_close():
    rng = np.random.default_rng(3)
    first, second = rng.normal(0, 1, 200_000), rng.normal(1.5, 1, 200_000)
    found = least_mu(Tally.of(first, second, 1.5))
    assert 1.45 < found < 1.5


def test_a_threshold_chosen_on_one_half_is_judged_on_the_other():
    rng = np.random.default_rng(5)
    first, second = rng.normal(0, 1, 40_000), rng.normal(2, 1, 40_000)
    threshold, tally = held_out(first, second, delta=1e-5)
    assert threshold == best_threshold(first[:20_000], second[:20_000], delta=1e-5)
    assert tally == Tally.of(first[20_000:], second[20_000:], threshold)


def test_scores_of_different_lengths_are_refused():
    with pytest.raises(PlanError, match="CH200"):
        Tally.of(np.zeros(3), np.zeros(4), 0.0)


@pytest.mark.parametrize(("guesses", "correct", "epsilon"), [(20, 18, 0.5), (100, 99, 2.0), (50, 25, 0.0)])
def test_the_one_run_tail_is_a_binomial_tail_without_delta(guesses, correct, epsilon):
    weight = mp.exp(epsilon) / (1 + mp.exp(epsilon))
    expected = float(binomial_tail(correct, guesses, weight))
    found = one_run_p_value(canaries=200, guesses=guesses, correct=correct, epsilon=epsilon, delta=0.0)
    assert found == pytest.approx(expected, rel=1e-9)


def test_the_one_run_price_of_delta_is_the_best_of_all_distances():
    # By brute force from the paper's Theorem 5.2: β + 2mδ·max over i of P(v − i ≤ W < v)/i.
    guesses, correct, epsilon, delta, canaries = 12, 9, 0.8, 1e-3, 40
    weight = mp.exp(epsilon) / (1 + mp.exp(epsilon))
    tails = [binomial_tail(least, guesses, weight) for least in range(guesses + 2)]
    price = max((tails[correct - i] - tails[correct]) / i for i in range(1, correct + 1))
    expected = float(tails[correct] + 2 * canaries * delta * price)
    found = one_run_p_value(canaries=canaries, guesses=guesses, correct=correct, epsilon=epsilon, delta=delta)
    assert found == pytest.approx(expected, rel=1e-9)


def test_one_run_of_randomised_response_is_never_said_to_lose_more_than_it_does():
    rng, truth = np.random.default_rng(11), math.exp(1.5) / (1 + math.exp(1.5))
    bounds = [
        one_run_epsilon(canaries=500, guesses=500, correct=int(rng.binomial(500, truth)), delta=0.0, confidence=0.9)
        for _ in range(200)
    ]
    # 10 % of 200 may be above: 20, and 33 is three deviations more.
    assert sum(bound > 1.5 for bound in bounds) <= 33
    assert np.median(bounds) > 1.25


@given(st.integers(0, 60), st.floats(0, 5), st.floats(0, 1e-3))
def test_more_correct_guesses_are_never_more_likely(correct, epsilon, delta):
    def p_value(right):
        return one_run_p_value(canaries=100, guesses=61, correct=right, epsilon=epsilon, delta=delta)

    assert p_value(correct + 1) <= p_value(correct) + 1e-12


def test_the_mean_loss_of_two_gaussians_is_found_to_a_seventh_and_not_above():
    # KL of N(μ²/2, μ²) from N(−μ²/2, μ²) is μ²/2, and these are log-likelihood ratios of themselves.
    for mu in (0.3, 0.7, 1.5):
        noise = np.random.default_rng([7, int(10 * mu)]).standard_normal((2, 200_000))
        first, second = mu * noise[0] - mu**2 / 2, mu * noise[1] + mu**2 / 2
        found = least_mean_loss(first, second, most=mu**2 / 2 + 4 * mu, confidence=0.99)
        # Bernstein takes about 2·√(2 ln(2/0.005)/N)·μ from it: a tenth at μ = 0.3, less at larger μ.
        assert 0.86 * mu**2 / 2 < found < mu**2 / 2


def test_the_mean_loss_is_overstated_no_more_often_than_the_confidence_allows():
    # 400 repeats at confidence 0.9: 40 failures are allowed on average, and Bernstein's bounds are wider than needed.
    rng, mu = np.random.default_rng(3), 1.0
    above = 0
    for _ in range(400):
        noise = mu * rng.standard_normal((2, 2000))
        found = least_mean_loss(noise[0] - 0.5, noise[1] + 0.5, most=4.5, confidence=0.9)
        above += found > 0.5
    assert above <= 40


def test_worlds_that_are_alike_show_no_loss_and_a_score_that_is_no_ratio_is_safe():
    noise = np.random.default_rng(5).standard_normal((2, 50_000))
    assert least_mean_loss(noise[0], noise[1], most=3.0) == 0.0
    # Scores ten times too large: a worse test, not a larger loss (here ½).
    assert least_mean_loss(10 * noise[0] - 5.0, 10 * noise[1] + 5.0, most=3.0) < 0.5
    with pytest.raises(PlanError, match="CH200 most"):
        least_mean_loss(noise[0], noise[1], most=0.0)
