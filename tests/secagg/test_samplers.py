"""Whole noise: its law beside the formula, and every coin beside its chance."""

import math

import numpy as np
import pytest
from scipy import stats

from choral.core.errors import PlanError
from choral.core.masks import Stream
from choral.core.samplers import (
    LARGEST_SCALE,
    below,
    discrete_gaussian,
    draw,
    exp_coins,
    exp_coins_beyond_one,
    laplace,
)


def stream(label):
    """A keystream that is the same in every run, so that no test fails by chance."""
    return Stream(label.encode().ljust(32, b"."))


class Given:
    """Words chosen by a test, in place of a keystream."""

    def __init__(self, *words):
        self._words = list(words)

    def words(self, count, bits):
        taken, self._words = self._words[:count], self._words[count:]
        return np.array(taken, f"u{bits // 8}")


def fits(found, chances, least=5):
    """The p-value of a χ² test of counts against chances, with rare values pooled."""
    values, counts = np.unique(found, return_counts=True)
    seen = dict(zip(values.tolist(), counts.tolist(), strict=True))
    kept = {value: chance for value, chance in chances.items() if chance * len(found) >= least}
    observed = [seen.get(value, 0) for value in kept]
    expected = [chance * len(found) for chance in kept.values()]
    observed.append(len(found) - sum(observed))
    expected.append(len(found) - sum(expected))
    if expected[-1] < least:
        observed[-2:], expected[-2:] = [sum(observed[-2:])], [sum(expected[-2:])]
    return stats.chisquare(observed, expected).pvalue


def gaussian_chances(scale):
    weights = {y: math.exp(-y * y / (2 * scale * scale)) for y in range(-12 * scale, 12 * scale + 1)}
    total = sum(weights.values())
    return {y: weight / total for y, weight in weights.items()}


@pytest.mark.parametrize("scale", [1, 2, 7, 50])
def test_the_discrete_gaussian_has_its_law(scale):
    assert fits(discrete_gaussian(scale, 200_000, stream(f"gauss {scale}")), gaussian_chances(scale)) > 0.001


def test_a_rounded_gaussian_would_not_pass():
    """The same test tells noise that is rounded from floats, at σ = 1: it can fail."""
    rounded = np.rint(np.random.default_rng(1).normal(0, 1, 200_000)).astype(np.int64)
    assert fits(rounded, gaussian_chances(1)) < 1e-6


def test_the_discrete_laplace_has_its_law():
    """P[y] = (e^(1/t) − 1)/(e^(1/t) + 1) · e^(−|y|/t), from Canonne, Kamath and Steinke."""
    factor = math.tanh(1 / 6)
    chances = {y: factor * math.exp(-abs(y) / 3) for y in range(-60, 61)}
    assert fits(laplace(300_000, 3, stream("laplace")), chances) > 0.001


@pytest.mark.parametrize(("top", "bottom"), [(0, 1), (1, 1), (1, 3), (7, 8), (5, 1), (37, 10)])
def test_a_coin_of_exp_minus_gamma_has_its_chance(top, bottom):
    """Within 5 standard deviations of n = 10^5 tosses, on a fixed stream."""
    coin = exp_coins if top <= bottom else exp_coins_beyond_one
    found = coin(np.full(10**5, top, np.uint64), bottom, stream(f"coin {top} {bottom}")).mean()
    chance = math.exp(-top / bottom)
    assert abs(found - chance) <= 5 * math.sqrt(chance * (1 - chance) / 1e5)


@pytest.mark.parametrize("bound", [1, 2, 3, 2**32 + 1, 2**63 + 1, 3 * 2**62])
def test_every_residue_has_as_many_words(bound):
    """Words from the largest multiple of the bound on are drawn again: that many are left for each residue."""
    most = 2**64 // bound * bound
    words = [most - 1] if most == 2**64 else [most, 2**64 - 1, most - 1]
    # The first draw is one word; each rejected one is drawn again.
    assert below(bound, 1, Given(*words)).tolist() == [bound - 1]
    assert below(bound, 1, Given(0)).tolist() == [0]


@pytest.mark.parametrize("count", [0, 1, 2, 1000, 100_001])
def test_as_many_as_asked_for_are_drawn(count):
    assert discrete_gaussian(3, count, stream("count")).shape == (count,)


def test_the_same_stream_gives_the_same_noise_and_another_does_not():
    draws = [discrete_gaussian(100, 50, stream(label)).tolist() for label in ("a", "a", "b")]
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.parametrize("scale", [0, -1, 1.5, True, 2**24 + 1])
def test_scales_that_are_not_whole_or_too_large_are_refused(scale):
    with pytest.raises(PlanError, match="CH200"):
        discrete_gaussian(scale, 1, stream("scale"))


def test_the_largest_scale_does_not_overflow():
    largest = LARGEST_SCALE["discrete_gaussian"]
    found = discrete_gaussian(largest, 100_000, stream("largest"))
    assert abs(found.std() / largest - 1) < 5 / math.sqrt(2 * 100_000)


def test_a_law_is_drawn_by_its_deviation():
    found = draw("discrete_gaussian", 512, 100_000, stream("discrete_gaussian"))
    assert abs(found.std() / 512 - 1) < 5 / math.sqrt(2 * 100_000)  # five standard errors of a deviation


@pytest.mark.parametrize("law", ["gaussian", "skellam"])
def test_no_other_law_is_drawn(law):
    with pytest.raises(PlanError, match="CH200"):
        draw(law, 512, 1, stream("float"))
