import math

import numpy as np
import pytest

from choral.core.errors import PlanError
from choral.core.events import skellam_divergence
from choral.core.mechanisms import discrete_gaussian


def relative_change(count, ratio):
    """Σ exp(−2π²s²(|k|² − (Σk)²/r)) over integer vectors k up to constant ones, k ≠ 0, bounded from above."""
    if count == 1:  # rounding a single update is post-processing
        return 0.0
    # Up to a constant vector |Σk| ≤ r/2, so the exponent is at least |k|²/2; the 2r shortest vectors are exact.
    shortest = 2 * count * math.exp(-2 * (math.pi * ratio) ** 2 * (1 - 1 / count))
    p = math.exp(-((math.pi * ratio) ** 2))
    others = 2 * count * p / (1 - p)
    return shortest + 0.5 * others * others * math.exp(others) + others * p


def rounded_sum_ratio(ratio, count, offsets):
    """Largest relative gap between a sum of rounded Gaussians and the rounded sum of Rule S6, by convolution."""
    from scipy.special import ndtr

    reach = math.ceil(9 * ratio) + 2
    grid = np.arange(-reach, reach + 1)
    fine = 64

    def rounded(mean):
        return ndtr((grid + 0.5 - mean) / ratio) - ndtr((grid - 0.5 - mean) / ratio)

    total = np.array([1.0])
    for offset in offsets[:count]:
        total = np.convolve(total, rounded(offset))
    # Gaussian of the whole noise, plus count − 1 uniforms, then rounded: density convolved with count boxes.
    box = np.ones(fine) / fine
    points = np.arange(-count * reach * fine, count * reach * fine + 1) / fine
    density = np.exp(-0.5 * ((points - sum(offsets[:count])) / ratio) ** 2 / count) / (
        ratio * math.sqrt(2 * math.pi * count)
    )
    for _ in range(count):
        # centred on half points of the fine grid; twice the box of half width keeps the centre
        density = np.convolve(density, np.concatenate(([0.5], box[1:] * fine, [0.5])) / fine, mode="same")
    ideal = density[::fine]
    inside = ideal > 1e-9
    return float(np.max(np.abs(total[inside] / ideal[inside] - 1)))


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("ratio", [0.35, 0.45, 0.6])
def test_rounding_before_the_sum_changes_probabilities_by_at_most_kappa(count, ratio):
    # Coarser than the rule allows, where the effect is large enough to be seen in doubles.
    seen = max(
        rounded_sum_ratio(ratio, count, offsets) for offsets in ([0.0] * 5, [0.5] * 5, [0.3, 0.1, 0.7, 0.2, 0.9])
    )
    kappa = relative_change(count, ratio)
    assert seen <= kappa * 1.02 + 1e-3  # the comparison's own grid is fine to 1e-3
    if count > 2 and kappa < 0.5:
        assert seen > 0.01 * kappa


def test_the_design_notes_kappa_at_one_and_ten_devices():
    leading = 2 * 10 * math.exp(-2 * math.pi**2 * 0.9)
    assert leading == pytest.approx(4e-7, rel=0.05)
    assert leading < relative_change(10, 1.0) < 3 * leading


@pytest.mark.parametrize("honest", [2, 3, 4, 5, 6, 10, 100])
def test_a_grid_of_a_third_of_the_noise_costs_nothing_that_can_be_written_down_for_any_number_of_devices(honest):
    # By hand: κ is largest at r = 2, 4·exp(−9π²) = 1.1e-38; times 2·10⁹. Half the noise would give 5.7e-8 there.
    kappa = relative_change(honest, 3.0)
    assert 0 < 10**9 * (math.log1p(kappa) - math.log1p(-kappa)) < 1e-28
    assert relative_change(1, 3.0) == 0.0


@pytest.mark.parametrize("noise", [0.5, 0.7, 2.0, 50.0])
@pytest.mark.parametrize("honest", [1, 2, 10])
def test_distributed_discrete_gaussians_cost_at_least_the_gaussian_and_its_equal_when_wide(noise, honest):
    rho = discrete_gaussian(l1=30.0, l2=10.0, coordinates=100, noise=noise, noises=honest)
    gaussian = 0.5 * 100 / (honest * noise**2)  # ρ of continuous noise with the same variance
    assert rho >= gaussian * (1 - 1e-12)
    if noise >= 2 or honest == 1:
        assert rho == pytest.approx(gaussian, rel=1e-6)


def test_one_coordinate_of_two_discrete_gaussians_is_within_the_bound():
    # Rényi divergence of order 2 of N_Z(0, 0.6²)+N_Z(0, 0.6²) against its shift by one, by convolution.
    noise, order = 0.6, 2
    grid = np.arange(-30, 31)
    one = np.exp(-0.5 * (grid / noise) ** 2)
    two = np.convolve(one / one.sum(), one / one.sum())
    p, q = two[1:], two[:-1]
    inside = (p > 1e-200) & (q > 1e-200)
    seen = math.log(np.sum(p[inside] ** order * q[inside] ** (1 - order))) / (order - 1)
    bound = order * discrete_gaussian(l1=1.0, l2=1.0, coordinates=1, noise=noise, noises=2)
    assert order * 0.5 / (2 * noise**2) * 0.9 < seen <= bound


def test_skellam_divergence_is_above_the_true_one_in_one_coordinate():
    from scipy.stats import skellam

    variance, shift, order = 30.0, 2, 3
    grid = np.arange(-150, 151)
    p, q = skellam.pmf(grid, variance / 2, variance / 2), skellam.pmf(grid - shift, variance / 2, variance / 2)
    inside = (p > 1e-200) & (q > 1e-200)
    seen = math.log(np.sum(p[inside] ** order * q[inside] ** (1.0 - order))) / (order - 1)
    bound = skellam_divergence(order, l1=2.0, l2=2.0, variance=variance)
    assert order * 4 / (2 * variance) * 0.95 < seen <= bound


@pytest.mark.parametrize("order", [1.0, 1.5, 2.5, math.nan])
def test_skellam_orders_that_are_not_whole_are_refused(order):
    with pytest.raises(PlanError, match="CH200 order"):
        skellam_divergence(order, l1=1.0, l2=1.0, variance=10.0)


def test_sensitivities_and_noise_out_of_reach_are_refused():
    with pytest.raises(PlanError, match="CH204 l1 = 1 is below l2 = 2"):
        skellam_divergence(2, l1=1.0, l2=2.0, variance=10.0)
    with pytest.raises(PlanError, match=r"CH204 discrete noise of 0\.4"):
        discrete_gaussian(l1=1.0, l2=1.0, coordinates=1, noise=0.4, noises=2)
