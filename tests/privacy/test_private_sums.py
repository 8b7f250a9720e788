"""Rule S8: a private sum counts as a Gaussian; the two claims of its proof, computed with 40 digits by mpmath."""

import math
from statistics import NormalDist

import mpmath
import pytest

from choral.accounting.conversions import price_of_sums
from choral.core.balance import Balance
from choral.core.entries import Charge, Reservation
from choral.core.errors import LedgerError, PlanError
from choral.core.events import Gaussian, Poisson, Zcdp, epsilon_of
from choral.core.exposure import SUMS
from choral.core.plan import Budget
from choral.core.private_sums import (
    FAILURE,
    LEAST_SCALE,
    MOST_LENGTH,
    MOST_SCALE,
    SMOOTHING,
    TAIL,
    SumPrice,
)

DELTA = 1e-5
TRAINING = Poisson(noise_multiplier=4.5, probability=0.1, steps=130)  # ε = 2.02 by itself


def density(x, deviation):
    return mpmath.exp(-(x**2) / (2 * deviation**2)) / (deviation * mpmath.sqrt(2 * mpmath.pi))


def discrete(deviation, reach=60):
    """The discrete Gaussian's probabilities, by its definition."""
    weights = {n: mpmath.exp(-mpmath.mpf(n * n) / (2 * deviation**2)) for n in range(-reach, reach + 1)}
    whole = mpmath.fsum(weights.values())
    return {n: weight / whole for n, weight in weights.items()}


def kappa(deviation):
    return 2 * mpmath.nsum(lambda k: mpmath.exp(-2 * mpmath.pi**2 * deviation**2 * k**2), [1, 20])


@pytest.mark.parametrize("smoothing", ["0.4", "0.6"])
def test_random_rounding_of_a_gaussian_is_a_sampled_gaussian_within_kappa(smoothing):
    with mpmath.workdps(40):
        t, v, theta = mpmath.mpf(smoothing), mpmath.mpf("1.5"), mpmath.mpf("0.3")
        whole = mpmath.sqrt(v**2 + t**2)

        steps = [mpmath.mpf(step) / 16 for step in range(-160, 161)]  # the trapezoid rule: exact to 10^-40 here
        room = {step: mpmath.fsum(density(m + step / mpmath.mpf(16), t) for m in range(-9, 10)) for step in range(16)}

        def rounded(n):
            parts = (density(x - theta, v) * density(n - x, t) / room[int(x * 16) % 16] for x in steps)
            return mpmath.fsum(parts) / 16

        worst = max(abs(rounded(n) / density(n - theta, whole) - 1) for n in (-1, 0, 2))
        most = kappa(t) / (1 - kappa(t))
    assert most / 1000 < worst <= most * (1 + mpmath.mpf(10) ** -12)


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_a_sum_of_discrete_gaussians_is_a_sampled_gaussian_within_its_bound(devices):
    with mpmath.workdps(40):
        s = mpmath.mpf("0.9")  # the bound of the proof is so small at s = 1024 that no digit would show it
        one, total = discrete(s, 20), {0: mpmath.mpf(1)}
        for _ in range(devices):
            grown = {}
            for a, p in total.items():
                for b, q in one.items():
                    grown[a + b] = grown.get(a + b, 0) + p * q
            total = grown
        worst = max(abs(total[n] / density(n, s * mpmath.sqrt(devices)) - 1) for n in range(4))
        shortest = 1 - mpmath.mpf(1) / devices if devices > 1 else mpmath.mpf(1)
        leading = 2 * devices * mpmath.exp(-2 * mpmath.pi**2 * s**2 * shortest)
    assert leading / 1000 < worst < 3 * leading


def test_the_delta_of_an_answer_covers_rounding_and_range():
    rounding = 4 * math.exp(-2 * math.pi**2 * SMOOTHING**2)
    assert MOST_LENGTH * (rounding * 1.01 + 2 * math.exp(-(TAIL**2) / 2)) < FAILURE < 1e-40


def test_so_many_questions_cost_what_the_study_says_and_hardly_less():
    for most in (1, 7, 100):
        price = price_of_sums(epsilon=1.0, epsilon_sum=None, delta=DELTA, most=most)
        assert 1 - 1e-6 < epsilon_of([price.everyone] * most, DELTA) <= 1


def test_two_limits_take_the_noise_of_the_stricter_one():
    given = {"delta": DELTA, "most": 4, "noises": 9}
    both = price_of_sums(epsilon=4.0, epsilon_sum=1.0, **given)
    assert epsilon_of([both.summed] * 4, DELTA) <= 1 and epsilon_of([both.everyone] * 4, DELTA) <= 4
    only = price_of_sums(epsilon=None, epsilon_sum=1.0, **given)
    assert only == both  # at r_eff = 9 the sum decides
    assert price_of_sums(epsilon=2.0, epsilon_sum=1.0, **given).mu < both.mu
    everyone, mu, normal = epsilon_of([only.everyone] * 4, DELTA), 2 * only.mu, NormalDist()
    curve = normal.cdf(mu / 2 - everyone / mu) - math.exp(everyone) * normal.cdf(-mu / 2 - everyone / mu)
    assert curve == pytest.approx(DELTA, rel=1e-6)  # Balle and Wang 2018, Theorem 8


def lost_in(noise, l2, noises=1):
    """μ of an answer where each opened sum has so many honest noises: their Gaussian, less the smoothing (rule S8)."""
    return noise.factor * l2 / math.sqrt(noises * noise.scale**2 - SMOOTHING**2) * (1 + 1e-12)


@pytest.mark.parametrize("l2", [1e-3, math.sqrt(2), 2.0, math.sqrt(2 * 129), 2**12 * 2.84])
@pytest.mark.parametrize("noises", [1, 5, 160])
def test_the_noise_never_costs_more_than_the_price_and_at_most_a_thousandth_less(l2, noises):
    price = SumPrice(mu=0.08, noises=noises)
    noise = price.noise_for(l2)
    assert LEAST_SCALE <= noise.scale <= MOST_SCALE
    assert 0.998 * price.mu < lost_in(noise, l2) <= price.mu
    assert lost_in(noise, l2, noises) <= price.mu / math.sqrt(noises)


def test_noise_that_the_proof_does_not_cover_is_refused():
    with pytest.raises(PlanError, match="CH204 a question with a sensitivity of 1e"):
        SumPrice(mu=0.01).noise_for(1e6)
    with pytest.raises(PlanError, match="CH103 questions have no epsilon"):
        price_of_sums(epsilon=None, epsilon_sum=None, delta=DELTA, most=3)


def test_a_tiny_question_does_not_spoil_a_ledger_of_sampled_steps():
    tiny = Gaussian(mu=math.sqrt(2e-9), delta=FAILURE)
    alone = epsilon_of([TRAINING], DELTA)
    assert epsilon_of([TRAINING, tiny], DELTA) - alone < 1e-3
    assert epsilon_of([TRAINING, Zcdp(rho=1e-9)], DELTA) - alone > 0.1  # what the same question cost as bare zCDP


def test_questions_and_training_compose_to_the_same_epsilon_in_any_order():
    price = price_of_sums(epsilon=0.5, epsilon_sum=None, delta=DELTA, most=3, noises=4)
    step = Poisson(noise_multiplier=4.5, probability=0.1, steps=10)
    asked = [
        Charge(rule="S8", plan="run:questions", round=n, event=price.everyone, summed=price.summed) for n in range(3)
    ]
    trained = [Charge(rule="S5", plan="run", round=n, event=step) for n in range(3)]
    found = set()
    for order in ((*asked, *trained), (*trained, *asked), (asked[0], *trained, *asked[1:])):
        both = Balance(device="a", limit=Budget(epsilon=2.0, delta=DELTA))
        both.reserve(Reservation(rule="S5", plan="run", uploads=(step,) * 3))
        both.reserve(
            Reservation(rule="S8", plan="run:questions", uploads=(price.everyone,) * 3, summed=(price.summed,) * 3)
        )
        for charge in order:
            both.take(charge)
        found.add((round(both.epsilon, 12), round(both.against(SUMS).spent(), 12)))
        with pytest.raises(LedgerError, match="CH409"):
            both.take(Charge(rule="S8", plan="run:questions", round=9, event=price.everyone, summed=price.summed))
    assert len(found) == 1
    (everyone, sums) = found.pop()
    assert everyone == round(epsilon_of([step] * 3 + [price.everyone] * 3, DELTA), 12) > sums
