"""How far a record's own coin is from probability q, given all others: computed from the very gaps that are drawn."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from choral.accounting.reserves import OWN_COIN, room_chance, rounded_coin
from choral.core.plan import MOST_ROUNDED, OVERFLOW, Plan
from choral.learning.batches import poisson

ULP = 2.0**-52  # one unit in the last place is at most so much of a number


def survival(size, batch, bits=53):
    """Pr[gap > g] for g = 0, …, m, exactly, of words with so many bits at the top and zeros below them."""
    below = poisson.thresholds(size, batch).tolist()
    coarse = 2 ** (53 - bits)
    return [Fraction(1)] + [Fraction(-(-one // coarse), 2**bits) for one in below]


def own_coin(size, batch, place, bits=53):
    """The mean over the other coins of |Pr[coin | others] − q|, by the sum of step 6 of the proof, in fractions."""
    S, q = survival(size, batch, bits), Fraction(batch / size)
    p, f = 1 - q, [Fraction(0)] + [S[g - 1] - S[g] for g in range(1, size + 1)]
    drawn = [Fraction(1)]  # ũ: 1 at the start, then the chance of each record before this one
    for a in range(1, place):
        drawn.append(sum(drawn[b] * f[a - b] for b in range(a)))
    left, total = size - place, Fraction(0)
    for a in range(place):
        x = place - a
        found = sum(abs(p * f[x] * f[y] - q * f[x + y]) for y in range(1, left + 1))
        total += drawn[a] * (found + abs(p * f[x] * S[left] - q * S[x + left]))
    return float(total)


@pytest.mark.parametrize(("size", "batch"), [(40, 1), (40, 4), (60, 20), (60, 45), (150, 3)])
def test_a_records_own_coin_is_off_by_less_than_is_charged(size, batch):
    found = [own_coin(size, batch, place) for place in {1, 2, size // 2, size - 1, size}]
    assert 0 < max(found) < OWN_COIN


@pytest.mark.parametrize(("size", "batch"), [(40, 4), (60, 20)])
def test_coarse_words_are_found_out(size, batch):
    """Power of the test above: words of 24 bits, as float32 has them, would need 2^29 times as much."""
    assert own_coin(size, batch, size // 2, bits=24) > 1000 * OWN_COIN


def test_thresholds_keep_within_the_bounds_of_the_proof():
    """Steps 2 and 3 for long tables: |Δ_g| ≤ 8.5 v, and no gap beyond x = 37.44; against 60 digits."""
    for size, batch in ((100, 10), (2441, 244), (20_000, 20)):
        with mpmath.workdps(60):
            rate = mpmath.log(1 - mpmath.mpf(batch / size))
            below = poisson.thresholds(size, batch).tolist()
            for g in {*range(1, 40), *range(40, size, max(1, size // 200)), size}:
                off = abs(mpmath.mpf(below[g - 1]) - mpmath.exp(g * rate) * 2**53)  # in units of v
                assert off <= (8.5 if -g * rate <= 37.44 else 0.5)
                assert -g * rate <= 37.44 or below[g - 1] == 0


def test_logarithms_are_as_exact_as_the_proof_assumes():
    rng = np.random.default_rng(0)
    words = np.concatenate([rng.integers(0, 2**53, 3000), 2**53 - 1 - rng.integers(0, 10**6, 500), np.arange(500)])
    uniform = (words + 0.5) * 2.0**-53
    rates = np.concatenate([rng.uniform(0, 1, 1000), 10.0 ** -rng.uniform(0, 10, 1000)])
    with mpmath.workdps(60):
        for numbers, computed, exact in ((uniform, np.log(uniform), mpmath.log), (rates, np.log1p(-rates), _log1m)):
            for number, value in zip(numbers.tolist(), computed.tolist(), strict=True):
                true = exact(mpmath.mpf(number))
                assert abs(mpmath.mpf(value) - true) <= 4 * ULP * abs(true)


def _log1m(number):
    return mpmath.log(1 - number)


def test_the_sum_of_the_proof_is_below_what_is_charged_and_a_run_leaves_room_for_full_batches():
    v, eta, most_log = 1.0, 20.0, 37.44
    first = (most_log / 2 + 0.85) * v + 1.01 * eta
    second = ((most_log**2 + most_log) / 4 + 0.3 + (most_log + 2) / 2) * v + 2.02 * eta
    most = v + 1.01 * eta / np.e
    assert 8.01 * first + 2.01 * second + 3.1 * most < OWN_COIN * 2**53
    plan = Plan(devices=2, cohort=2, rounds=1, rows=100, batch=10, step_size=1.0, clip=1.0, noise=1.0)
    most = int(MOST_ROUNDED * OVERFLOW / rounded_coin(0.1))
    assert room_chance(plan, 0, 0.1) == OVERFLOW and room_chance(plan, most, 0.1) > 0.09 * OVERFLOW - 1e-12
    assert room_chance(plan, 100, 0.1) == OVERFLOW - 100 * rounded_coin(0.1)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("deviation", [0.5, 2.0])
@pytest.mark.parametrize("probability", [0.05, 0.5, 0.9])
def test_a_coin_that_falls_more_often_adds_no_more_than_its_surplus_over_one_minus_q(probability, deviation, epsilon):
    """Step 9: δ(ε) of one step with one record replaced, by quadrature, for a coin with q and one with more than q."""
    place = np.linspace(-40, 40, 400_001)
    nothing, up, down = (np.exp(-(((place - at) / deviation) ** 2) / 2) for at in (0, 1, -1))
    weight = (place[1] - place[0]) / (deviation * np.sqrt(2 * np.pi))

    def delta(q):
        first, second = (1 - q) * nothing + q * up, (1 - q) * nothing + q * down
        return float(np.sum(np.maximum(first - np.exp(epsilon) * second, 0)) * weight)

    for surplus in (1e-3, 0.04):
        assert 0 <= delta(probability + surplus) - delta(probability) <= surplus / (1 - probability) + 1e-9
