import math

import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from choral.accounting.reserves import overflow
from choral.core import poisson
from choral.core.errors import PlanError
from choral.core.events import Poisson
from choral.core.zcdp import gdp_epsilon

from .oracles import hockey_stick


@pytest.mark.parametrize(("z", "q"), [(1.196088, 0.1), (0.5, 0.01), (4.0, 0.5), (2.0, 0.9)])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_one_step_is_the_pair_that_the_proof_names(z, q, epsilon):
    # δ(ε) of (1−q)N(0,z²)+qN(1,z²) against (1−q)N(0,z²)+qN(−1,z²), integrated by mpmath; back through our ε(δ).
    delta = float(hockey_stick(epsilon, z, q))
    if delta > 1e-11:
        assert poisson.epsilon({(z, q): 1}, delta=delta) == pytest.approx(epsilon, rel=1e-3)
        assert poisson.epsilon({(z, q): 1}, delta=delta) >= epsilon * (1 - 1e-9)


def optimistic(z, q, steps, delta, interval):
    """A lower bound from the library: losses rounded down."""
    one = pld.from_gaussian_mechanism(
        z,
        sampling_prob=q,
        value_discretization_interval=interval,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
        pessimistic_estimate=False,
        use_connect_dots=False,
    )
    return one.self_compose(steps).get_epsilon_for_delta(delta)


def pessimistic(z, q, steps, delta, interval):
    one = pld.from_gaussian_mechanism(
        z,
        sampling_prob=q,
        value_discretization_interval=interval,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    )
    return one.self_compose(steps).get_epsilon_for_delta(delta)


@pytest.mark.parametrize(
    ("z", "q", "steps", "delta"),
    [
        (1.196, 0.1, 130, 1e-4),
        (1.0, 0.05, 500, 1e-5),
        (4.0, 0.02, 1000, 1e-6),
        (0.6, 0.3, 10, 1e-8),
        (8.0, 0.5, 40, 1e-3),
    ],
)
def test_our_grid_lies_between_the_librarys_bounds_on_a_finer_one(z, q, steps, delta):
    ours = poisson.epsilon({(z, q): steps}, delta=delta)
    interval = poisson.grid_width({(z, q): steps}, 0.0, 25.0) / 4
    assert optimistic(z, q, steps, delta, interval) <= ours
    assert ours <= 1.001 * pessimistic(z, q, steps, delta, interval)


@settings(deadline=None, max_examples=25)
@given(
    z=st.floats(0.3, 30.0),
    q=st.floats(0.01, 0.95),
    steps=st.integers(1, 300),
    delta=st.floats(-14, -1).map(lambda power: 10.0**power),
)
@example(z=11.0, q=0.125, steps=1, delta=0.01)  # where nothing is lost
def test_sampling_never_costs_more_and_more_never_costs_less(z, q, steps, delta):
    base = poisson.epsilon({(z, q): steps}, delta=delta)
    assert base <= gdp_epsilon(2 * math.sqrt(steps) / z, delta) * (1 + 1e-12)
    least = base * (1 - 1e-3) - 1e-12  # grids differ between z and z/1.1, and where ε is 0 only rounding is left
    assert poisson.epsilon({(z, q): steps + 1}, delta=delta) >= base
    assert poisson.epsilon({(z / 1.1, q): steps}, delta=delta) >= least
    assert poisson.epsilon({(z, min(1.0, q * 1.1)): steps}, delta=delta) >= least
    assert poisson.epsilon({(z, q): steps}, delta=delta / 2) >= base


@pytest.mark.parametrize("order", [1.5, 4.0])
@pytest.mark.parametrize(("z", "q"), [(0.4, 0.2), (1.2, 0.1), (10.0, 0.5), (3.0, 1.0)])
def test_moments_agree_with_their_integral_at_twenty_digits(order, z, q):
    import mpmath

    def density(x, side):
        return (1 - q) * mpmath.npdf(x, 0, z) + q * mpmath.npdf(x, side, z)

    def integrand(x):
        return density(x, 1) ** order * density(x, -1) ** (1 - mpmath.mpf(order))

    points = [-1 - 30 * z, *(k * 0.25 * order for k in range(9)), 2 * order + 30 * z]
    marks = sorted({*points, *(side + k * z for side in (0, 1, 2 * order - 1) for k in (-8, -3, -1, 0, 1, 3, 8))})
    with mpmath.workdps(20):
        truth = mpmath.log(mpmath.quad(integrand, marks)) / (order - 1)
    assert poisson.renyi(z, q, order) == pytest.approx(float(truth), rel=1e-9)


@pytest.mark.parametrize(
    ("z", "q", "order"),
    [(6.4, 1.4e-4, 2.3), (0.91, 7.2e-6, 1.2), (8.4, 1.1e-8, 1.8), (0.61, 9.7e-6, 1.03), (8.336, 0.8288, 1.0216),
     (0.7916829904485239, 0.00034804913869271146, 31.001819894999095)],
)  # fmt: skip
def test_moments_of_a_step_are_never_below_the_exact_ones(z, q, order):
    """Trapezoids with 40 digits, finer than those of the code; a step with so small a rate has nearly no divergence."""
    import mpmath

    with mpmath.workdps(40):
        fine, rest, rate, above = mpmath.mpf(z), 1 - mpmath.mpf(q), mpmath.mpf(q), mpmath.mpf(order)
        step, low, high = min(fine / 8, fine * fine / 4), -1 - 16 * fine, 2 * above + 16 * fine

        def density(x, side):
            return rest * mpmath.npdf(x, 0, fine) + rate * mpmath.npdf(x, side, fine)

        places = (low + step * k for k in range(int((high - low) / step) + 1))
        truth = mpmath.log(mpmath.fsum(density(x, 1) ** above / density(x, -1) ** (above - 1) for x in places) * step)
    assert truth / (above - 1) <= poisson.renyi(z, q, order) <= truth / (above - 1) + 1e-11


def test_at_deltas_too_small_for_transforms_moments_take_over_and_stay_above():
    z, q, steps = 1.2, 0.1, 130
    small = [poisson.epsilon({(z, q): steps}, delta=10.0**-power) for power in (8, 11, 12, 13, 14, 20, 50, 300)]
    assert small == sorted(small)
    assert all(math.isfinite(epsilon) for epsilon in small)
    assert small[-1] <= gdp_epsilon(2 * math.sqrt(steps) / z, 1e-300)


def test_steps_of_two_kinds_and_a_gaussian_compose_below_their_sum_and_above_each():
    kinds = {(1.2, 0.1): 50, (3.0, 0.4): 20}
    whole = poisson.epsilon(kinds, delta=1e-5, mu=0.5)
    parts = [poisson.epsilon({kind: count}, delta=1e-5) for kind, count in kinds.items()] + [gdp_epsilon(0.5, 1e-5)]
    assert max(parts) < whole < sum(parts)


def test_one_kind_in_two_halves_costs_what_it_costs_in_one():
    whole = poisson.epsilon({(1.2, 0.1): 60}, delta=1e-5)
    # 1.2 and its neighbour: two kinds to the code, one to the mathematics
    halves = poisson.epsilon({(1.2, 0.1): 30, (math.nextafter(1.2, 2), 0.1): 30}, delta=1e-5)
    assert halves == pytest.approx(whole, rel=1e-6)


@pytest.mark.parametrize(
    ("rows", "batch", "capacity"), [(2440, 244, 300), (2440, 244, 357), (100, 30, 60), (10**6, 1000, 1200)]
)
def test_overflow_bounds_the_binomial_tail_closely(rows, batch, capacity):
    truth = stats.binom.sf(capacity - 1, rows - 1, batch / rows)  # Pr[the others ≥ capacity]
    bound = overflow(rows=rows, batch=batch, capacity=capacity)
    assert truth <= bound <= 1.5 * truth


def test_a_capacity_of_all_rows_can_not_overflow_and_one_of_the_mean_is_no_capacity():
    assert overflow(rows=100, batch=10, capacity=100) == 0.0
    assert overflow(rows=100, batch=10, capacity=10) == 1.0
    assert overflow(rows=100, batch=100, capacity=99) == 1.0


@given(rows=st.integers(2, 5000), data=st.data())
def test_more_records_make_an_overflow_more_likely_and_more_room_less(rows, data):
    batch = data.draw(st.integers(1, rows))
    capacity = data.draw(st.integers(min(batch + 2, rows), rows))

    def truth(rows, capacity):
        return stats.binom.sf(capacity - 1, rows - 1, batch / rows)

    bound = overflow(rows=rows, batch=batch, capacity=capacity)
    # From two above the mean (Anderson & Samuels 1967); 1e-9 for SciPy's own last digits.
    assert truth(rows, capacity) <= truth(rows + 1, capacity) * (1 + 1e-9) + 1e-300
    assert truth(rows, capacity) <= bound * (1 + 1e-9)
    assert capacity == rows or overflow(rows=rows, batch=batch, capacity=capacity + 1) <= bound


def test_numbers_that_are_no_steps_are_refused():
    for bad in (
        (0.0, 0.1, 1),
        (1.0, 0.0, 1),
        (1.0, 1.1, 1),
        (1.0, math.nan, 1),
        (1.0, True, 1),
        (1.0, 0.1, 0),
        (math.inf, 0.1, 1),
    ):
        with pytest.raises(PlanError, match="CH200"):
            Poisson(noise_multiplier=bad[0], probability=bad[1], steps=bad[2])
