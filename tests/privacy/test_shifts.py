import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from choral.accounting.proofs import closed_form, least_cost, worst_cost
from choral.core.errors import PlanError


def convex_optimum(used, steps, noises, stretch):
    """The same from a general solver: shifts a_t such that z_t = c·z_(t−1) + use − a_t ≥ 0 and z_τ = 0 (Rule S3)."""
    variances = np.ones(steps)
    variances[-1] = noises
    uses = np.array([float(t in used) for t in range(1, steps + 1)])
    carry = np.array([[stretch ** (t - s) if s <= t else 0.0 for s in range(steps)] for t in range(steps)])
    rest = [
        {"type": "ineq", "fun": lambda a: carry[:-1] @ (uses - a), "jac": lambda _: -carry[:-1]},
        {"type": "eq", "fun": lambda a: carry[-1] @ (uses - a), "jac": lambda _: -carry[-1]},
    ]
    start = uses.copy()  # pay each use at once: feasible
    solution = minimize(
        lambda a: float(a @ (a / variances)),
        start,
        jac=lambda a: 2 * a / variances,
        constraints=rest if steps > 1 else rest[1:],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert solution.success, solution.message
    return solution.fun


def every_place(steps, batches):
    """All ways in which a record can stand in the passes of a round that starts with a fresh pass."""
    passes = [range(start + 1, min(start + batches, steps) + 1) for start in range(0, steps, batches)]
    # In a last pass that is cut short the record may not come up at all.
    choices = [list(each) + ([None] if len(each) < batches else []) for each in passes]
    for places in itertools.product(*choices):
        yield {place for place in places if place is not None}


@settings(deadline=None, max_examples=40)
@given(
    used=st.sets(st.integers(1, 7), min_size=1),
    noises=st.integers(1, 12),
    stretch=st.sampled_from([0.7, 1.0, 1.1, 1.6]),
)
def test_pooling_finds_what_a_convex_optimiser_finds(used, noises, stretch):
    pooled = least_cost(used, steps=7, honest_noises=noises, lipschitz=stretch)
    assert pooled == pytest.approx(convex_optimum(used, 7, noises, stretch), rel=1e-5)


@pytest.mark.parametrize("batches", [1, 2, 3, 5])
@pytest.mark.parametrize("passes", [1, 2, 3])
@pytest.mark.parametrize("noises", [1, 2, 3, 4, 9])
def test_the_closed_form_is_the_worst_of_all_places(batches, passes, noises):
    steps = batches * passes
    costs = [least_cost(used, steps=steps, honest_noises=noises) for used in every_place(steps, batches)]
    assert closed_form(passes, batches, noises) == pytest.approx(max(costs), rel=1e-12)


@pytest.mark.parametrize(("steps", "batches"), [(1, 3), (2, 3), (4, 3), (5, 3), (7, 3), (5, 2)])
@pytest.mark.parametrize("noises", [1, 2, 5, 20])
def test_rounds_that_cut_a_pass_short_are_covered(steps, batches, noises):
    costs = [least_cost(used, steps=steps, honest_noises=noises) for used in every_place(steps, batches) if used]
    worst = worst_cost(steps=steps, batches_per_pass=batches, honest_noises=noises, lipschitz=1.0)
    assert worst == pytest.approx(max(costs), rel=1e-12)


@pytest.mark.parametrize("stretch", [1.05, 1.3, 2.0])
@pytest.mark.parametrize(("steps", "batches"), [(3, 3), (6, 3), (4, 1), (5, 3)])
@pytest.mark.parametrize("noises", [1, 2, 5, 20])
def test_stretching_steps_never_cost_more_than_their_bound(stretch, steps, batches, noises):
    bound = worst_cost(steps=steps, batches_per_pass=batches, honest_noises=noises, lipschitz=stretch)
    for used in every_place(steps, batches):
        assert least_cost(used, steps=steps, honest_noises=noises, lipschitz=stretch) <= bound * (1 + 1e-12)


def test_the_bound_on_stretching_steps_is_approached_by_a_long_pass():
    # k = 1: the first of E steps pays over 1 + c⁻² + … + r·c^(−2(E−1)), which tends to c²/(c²−1) = 5 for c² = 1.25.
    stretch = math.sqrt(1.25)
    assert least_cost({1}, steps=60, honest_noises=100, lipschitz=stretch) == pytest.approx(1 / 5, rel=1e-3)
    assert worst_cost(steps=60, batches_per_pass=60, honest_noises=100, lipschitz=stretch) == pytest.approx(1 / 5)


@given(passes=st.integers(1, 6), batches=st.integers(1, 12), noises=st.integers(1, 40))
def test_the_two_closed_forms_meet_and_never_exceed_local_composition(passes, batches, noises):
    cost = closed_form(passes, batches, noises)
    assert cost <= passes * (1 + 1e-12)  # Rule S1: one unit for each use
    assert cost >= passes / (batches * passes + noises)  # no rule can hide more than all noise there is
    assert closed_form(passes, batches, batches) == pytest.approx((passes - 1) / batches + 1 / batches)


def test_steps_that_leave_the_range_of_numbers_are_refused():
    with pytest.raises(PlanError, match="CH204"):
        least_cost({1}, steps=1000, honest_noises=2, lipschitz=2.0)
