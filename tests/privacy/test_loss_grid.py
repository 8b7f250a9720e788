"""Composed privacy losses are upper bounds in the arithmetic that is done: against exact sums of the same numbers."""

import math
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.special import ndtr

from choral.core import poisson

STEPS = [
    (1.196, 0.1, 2.0**-9), (1.196, 0.1, 2.0**-12), (4.5, 0.1, 2.0**-10), (0.6, 0.01, 2.0**-8), (20.0, 0.001, 2.0**-15),
    (1.0, 0.9, 2.0**-7), (0.3, 0.3, 2.0**-4), (2.0, 1.0, 2.0**-9), (0.05, 0.01, 2.0**-4),
]  # fmt: skip


def tail(x):
    return mpmath.erfc(x / mpmath.sqrt(2)) / 2


def exact_delta(z, q, epsilon):
    """δ of one step's pair by its definition, in 50 digits: where the losses reach ε is found by bisection."""
    z, q = mpmath.mpf(z), mpmath.mpf(q)

    def loss(x):
        up, down = mpmath.exp((2 * x - 1) / (2 * z * z)), mpmath.exp((-2 * x - 1) / (2 * z * z))
        return mpmath.log(1 - q + q * up) - mpmath.log(1 - q + q * down)

    low, high = -(1 + 20 * z), 1 + 20 * z
    for _ in range(170):
        middle = (low + high) / 2
        low, high = (low, middle) if loss(middle) > epsilon else (middle, high)
    mine, other = ((1 - q) * tail(low / z) + q * tail((low - side) / z) for side in (1, -1))
    return mine - mpmath.exp(epsilon) * other


@pytest.mark.parametrize(("z", "q", "width"), STEPS)
def test_no_point_of_a_steps_curve_lies_above_that_of_its_losses_on_the_grid(z, q, width):
    """At the grid's points, which is enough: between them the exact curve is convex in e^ε and the other is straight.

    The probabilities are taken as the rational numbers that they are; `raise_by` is what they may be too low by.
    """
    with mpmath.workdps(50):
        step = poisson.of_step(z, q, width)
        above, weighed, worst = mpmath.mpf(step.infinite), mpmath.mpf(0), mpmath.mpf(0)
        wanted = {int(one) for one in np.linspace(0, len(step.points) - 2, 60)}
        for place in range(len(step.points) - 1, -1, -1):
            epsilon = mpmath.mpf(float(step.points[place]))
            if place in wanted:
                found = above - mpmath.exp(epsilon) * weighed
                true = exact_delta(z, q, epsilon + mpmath.mpf(step.raise_by))
                assert true <= found, (place, float(epsilon))
                worst = max(worst, found - exact_delta(z, q, epsilon))
            above += mpmath.mpf(float(step.probabilities[place]))
            weighed += mpmath.mpf(float(step.probabilities[place])) * mpmath.exp(-epsilon)
        assert worst < 1e-9  # and it is not far above


@pytest.mark.parametrize("tilt", [0.0, 1.0, 6.0, 40.0])
@pytest.mark.parametrize(("z", "q", "count", "mu"), [(1.5, 0.2, 5, 0.0), (0.8, 0.05, 7, 0.0), (3.0, 0.5, 4, 0.6)])
def test_a_composition_is_never_below_the_exact_one_of_the_same_numbers_and_close_to_it(tilt, z, q, count, mu):
    """Exact: rational convolutions of the very floats, one after the other, without any transform."""
    whole = replace(poisson.composed({(z, q): count}, mu, 2.0**-2), floor=0.0)
    law, infinite = {0: Fraction(1)}, Fraction(1)
    for step, times in whole.parts:
        masses = [(int(step.lower) + at, Fraction(float(one))) for at, one in enumerate(step.probabilities) if one]
        for _ in range(times):
            after: dict[int, Fraction] = {}
            for one, mass in law.items():
                for other, more in masses:
                    after[one + other] = after.get(one + other, Fraction(0)) + mass * more
            law = {at: Fraction(int(mass * 2**400), 2**400) for at, mass in after.items() if mass > Fraction(1, 2**300)}
            infinite *= 1 - Fraction(step.infinite)
    tilted = whole.tilted(tilt)
    with mpmath.workdps(60):
        for epsilon in (0.0, 0.3, 1.0, 2.1, 4.0):
            exact = mpmath.mpf(1) - mpmath.mpf(infinite.numerator) / infinite.denominator
            for at, mass in law.items():
                if at * 0.25 > epsilon:
                    exact += mpmath.mpf(mass.numerator) / mass.denominator * (1 - mpmath.exp(epsilon - at * 0.25))
            found = float(tilted.deltas([epsilon])[0])
            assert exact * (1 - mpmath.mpf(2) ** -250) <= found or found == 1.0
            if math.isclose(tilt, 0.0) or math.exp(min(700, tilted.log_scale - tilt * epsilon)) < 1e3 * exact:
                assert found <= exact * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("levels", [4, 8, 11])
def test_a_transform_is_off_by_far_less_than_is_counted(levels):
    """Higham (2002), Theorem 24.2, counted as 8u per level: against sums in 64-bit mantissas, one by one."""
    size = 2**levels
    law = np.random.default_rng(levels).dirichlet(np.full(size, 0.05))
    turns = np.outer(np.arange(size), np.arange(size)) % size
    angles = turns.astype(np.longdouble) * 2 * PI / size
    exact = (law * np.cos(angles)).sum(axis=1) - 1j * (law * np.sin(angles)).sum(axis=1)
    error = np.sqrt(np.sum(np.abs(np.fft.fft(law) - exact) ** 2))
    assert error <= levels * 8 * poisson.UNIT * np.sqrt(size) * np.sqrt(np.sum(law**2)) / 5


PI = np.longdouble("3.14159265358979323846264338327950288")


@pytest.mark.parametrize(
    ("z", "q", "steps", "delta"),
    [(1.196088, 0.1, 130, 1e-4), (4.5, 0.1, 130, 1e-5), (1.0, 0.01, 3000, 1e-6), (20.0, 0.5, 1000, 1e-8),
     (0.7, 0.02, 20, 1e-5)],
)  # fmt: skip
def test_epsilon_moves_by_less_than_a_ten_millionth_against_another_composition(z, q, steps, delta):
    """dp-accounting's own cells and transforms on the same grid, which round and lose otherwise, and keep nothing."""
    width = poisson.grid_width({(z, q): steps}, 0.0, 25.0)
    theirs = pld.from_gaussian_mechanism(
        z, sampling_prob=q, value_discretization_interval=width, neighboring_relation=NeighboringRelation.REPLACE_ONE
    ).self_compose(steps)
    left = delta - poisson.composed({(z, q): steps}, 0.0, width).floor
    assert poisson.epsilon({(z, q): steps}, delta=delta) == pytest.approx(theirs.get_epsilon_for_delta(left), rel=1e-7)


@pytest.mark.parametrize("tilt", [0.0, 5.0, 20.0])
def test_where_the_answer_is_known_it_is_no_less_at_any_tilt(tilt):
    """Without sampling 100 steps are one Gaussian: δ by its formula, from 1 down to where the tilt serves."""
    mu = 0.5
    whole = poisson.composed({(2 / (mu / 10), 1.0): 100}, 0.0, 2.0**-8)
    epsilons = np.linspace(0.1, 2.5, 25)
    exact = ndtr(mu / 2 - epsilons / mu) - np.exp(epsilons) * ndtr(-mu / 2 - epsilons / mu)
    assert np.all(whole.tilted(tilt).deltas(epsilons - whole.raised) >= exact)


def test_what_transforms_lose_is_far_below_what_is_kept_for_it_in_plans_of_any_size():
    """So the least that is kept per step decides, as in earlier versions, and their figures stay."""
    for steps, delta in (({(1.0, 0.01): 10_000}, 1e-6), ({(4.5, 0.1): 130}, 1e-5), ({(20.0, 0.5): 1000}, 1e-8)):
        whole = poisson.composed(steps, 0.0, poisson.grid_width(steps, 0.0, 25.0))
        law = whole.tilted(whole.tilt_for(delta))
        epsilon = poisson.epsilon(steps, delta=delta)
        lost = math.exp(law.log_scale - law.tilt * epsilon) * law.lost
        assert 0 < lost < whole.floor / 10
        # By hand: 8u per level of a transform for each step, and the weights e^{−tilt·y}(1 − e^{−y}) of all points.
        (step, count), y = whole.parts[0], np.arange(len(law.law)) * law.width
        own = step.probabilities * np.exp(law.tilt * step.points - step.log_moment(law.tilt))
        counted = count * math.log2(len(law.law)) * 8 * poisson.UNIT * np.linalg.norm(own)
        assert law.lost >= counted * np.linalg.norm(np.exp(-law.tilt * y) * -np.expm1(-y))
        assert whole.raised < 1e-8 * epsilon
