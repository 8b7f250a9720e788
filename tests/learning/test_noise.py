"""Statistics at fixed seeds: each bound is 5 standard errors, so a right generator fails one in 2 million, and the
effect that each test would see with near certainty (10 standard errors) is said beside it.
"""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from choral.learning import noise, streams

COUNT = 2**21


@pytest.fixture(scope="module")
def drawn():
    """2^21 Gaussians of one key."""
    return np.asarray(noise.normal(jnp.uint32([123, 456, 789, 1011]), (COUNT,)), dtype=np.float64)


def test_mean_variance_skewness_and_kurtosis_are_those_of_a_gaussian(drawn):
    n = COUNT  # power: mean off by 0.007, variance by 1 %, skewness by 0.017, kurtosis by 0.034
    assert abs(drawn.mean()) < 5 / np.sqrt(n)
    assert abs(drawn.var() - 1) < 5 * np.sqrt(2 / n)
    assert abs(stats.skew(drawn)) < 5 * np.sqrt(6 / n)
    assert abs(stats.kurtosis(drawn)) < 5 * np.sqrt(24 / n)


def test_the_distribution_function_is_a_gaussians(drawn):
    # Kolmogorov-Smirnov; power: a shift of the distribution function by 0.0035 anywhere.
    assert stats.kstest(drawn, "norm").pvalue > 1e-5


@pytest.mark.parametrize("beyond", [2.0, 3.0, 4.0, 4.5])
@pytest.mark.parametrize("side", [-1, 1])
def test_each_tail_has_its_share(drawn, beyond, side):
    expected = COUNT * special.ndtr(-beyond)  # 4.5: 7.1 numbers, so a tail cut there would be seen
    found = (side * drawn > beyond).sum()
    assert abs(found - expected) < 5 * np.sqrt(expected)
    assert found > 0


@pytest.mark.parametrize("root", [jnp.sqrt, noise._newton_root], ids=["on a CPU", "on a GPU"])
def test_the_quantile_is_within_3e_5_of_the_exact_one_at_every_depth(monkeypatch, root):
    # Words at both ends, in the middle, and at every power of two from either end; scipy.special.ndtri is the oracle.
    near = np.concatenate([2**k + np.arange(-2, 3) for k in range(2, 31)])
    words = np.unique(
        np.concatenate([near, 2**31 - near, 2**31 + near, 2**32 - near, [0, 2**31 - 1, 2**31, 2**32 - 1]])
    )
    monkeypatch.setattr(noise, "bits", lambda *_: jnp.asarray(words.astype(np.uint32)))
    monkeypatch.setattr(noise, "_root", root)
    found = np.asarray(noise.normal(jnp.zeros(4, jnp.uint32), words.shape), dtype=np.float64)
    signed = words.astype(np.uint32).view(np.int32).astype(np.float64)
    exact = special.ndtri((signed + 0.5 + 2**31) / 2**32)
    assert np.abs(found - exact).max() < 3e-5
    assert found.max() > 6.2
    assert found.min() < -6.2


def test_the_root_for_gpus_is_within_8e_7():
    x = np.exp(np.linspace(0, np.log(25), 100_001)).astype(np.float32)  # 1 − ln(1 − u²) lies between 1 and 24
    assert np.abs(np.asarray(noise._newton_root(jnp.asarray(x))) / np.sqrt(x.astype(np.float64)) - 1).max() < 8e-7


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 7, 8, 16, 32, 64, 104, 1024, 2**16])
def test_numbers_at_a_distance_are_uncorrelated_and_so_are_their_squares(drawn, lag):
    # Power: a correlation of 0.007.
    for values in (drawn, drawn**2 - 1):
        found = np.mean(values[lag:] * values[:-lag]) / values.var()
        assert abs(found) < 5 / np.sqrt(COUNT - lag)


def neighbours(kind):
    """Keys that a run uses side by side: 48 devices, rounds, steps or seeds, or every purpose of 16 devices."""
    near, one = np.arange(48), np.array([5])
    if kind == "devices":
        return streams.keys(7, "noise", 3, near)
    if kind == "steps":
        return streams.words(streams.keys(7, "noise", 3, one), near)
    if kind == "rounds":
        return np.concatenate([streams.keys(7, "noise", number, one) for number in near])
    if kind == "seeds":
        return np.concatenate([streams.keys(int(seed), "noise", 3, one) for seed in near])
    return np.concatenate([streams.keys(7, purpose, 3, near[:16]) for purpose in ("noise", "dither", "batches")])


@pytest.mark.parametrize("kind", ["devices", "steps", "rounds", "seeds", "purposes"])
def test_streams_of_neighbouring_keys_are_uncorrelated_and_so_are_their_squares(kind):
    # The largest of 1,128 pairs within 6 standard errors; power: a correlation of 0.06 in any pair.
    n = 2**15
    keys = jnp.asarray(noise.split(neighbours(kind)))
    drawn = np.asarray(jax.vmap(lambda key: noise.normal(key, (n,)))(keys), dtype=np.float64)
    for values in (drawn, (drawn**2 - 1) / np.sqrt(2)):
        pairs = (values @ values.T / n)[np.triu_indices(len(values), 1)]
        assert np.abs(pairs).max() < 6 / np.sqrt(n)
        # Together the pairs are as small as chance makes them: a weak relation of all would be seen here.
        assert abs(np.mean(pairs**2) * n - 1) < 5 * np.sqrt(2 / len(pairs))


@pytest.mark.parametrize("kind", ["devices", "steps", "rounds"])
def test_neighbouring_streams_differ_in_half_of_all_bits_at_every_bit(kind):
    # The largest of 47 × 32 shares within 6 standard errors; power: a bias of 0.03.
    n = 2**16
    words = np.asarray(jax.vmap(lambda key: noise.bits(key, (n,)))(jnp.asarray(noise.split(neighbours(kind)))))
    for one, other in pairwise(words):
        share = np.unpackbits((one ^ other).view(np.uint8)).reshape(n, 32).mean(axis=0)
        assert np.abs(share - 0.5).max() < 6 * 0.5 / np.sqrt(n)


def test_no_stream_is_a_shift_of_its_neighbour():
    words = np.asarray(jax.vmap(lambda key: noise.bits(key, (2**14,)))(jnp.asarray(noise.split(neighbours("steps")))))
    # 48 streams of 2^14 words: equal words across streams are as rare as chance, 48·47/2 · 2^28 / 2^32 = 70.5 pairs.
    values, counts = np.unique(words, return_counts=True)
    assert abs((counts - 1).sum() - 70.5) < 6 * np.sqrt(70.5)
    assert len(values) > 48 * 2**14 - 200


def test_keys_that_agree_in_all_but_their_start_and_step_share_no_piece():
    # With one step for all keys, the second stream would be the first, 3 places on.
    first = np.asarray(noise.bits(jnp.uint32([100, 7, 8, 0x1234567]), (2**12,)))
    second = np.asarray(noise.bits(jnp.uint32([103, 7, 8, 0x7654321]), (2**12,)))
    assert len(np.intersect1d(first, second)) < 8  # by chance 2^24 / 2^32


def test_bytes_of_the_words_are_uniform():
    words = np.asarray(noise.bits(jnp.uint32([77, 88, 99, 110]), (2**20,))).view(np.uint8).reshape(-1, 4)
    for place in range(4):
        counts = np.bincount(words[:, place], minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-5


def test_a_leaf_of_the_tree_draws_its_own_piece_of_the_flat_stream():
    key = jnp.uint32([1, 2, 3, 4])
    whole = np.asarray(noise.bits(key, (100,)))
    assert (np.asarray(noise.bits(key, (5, 6), 40)).ravel() == whole[40:70]).all()


def test_the_dither_is_uniform_and_below_one():
    dither = np.asarray(noise.uniform(jnp.uint32([3, 4, 5, 6]), (2**20,)), dtype=np.float64)
    assert dither.min() >= 0
    assert dither.max() < 1
    assert stats.kstest(dither, "uniform").pvalue > 1e-5


def test_secure_noise_is_gaussian_and_never_the_same_twice():
    # Not seeded: the bounds are 6 standard errors, passed but for 2 in 10^9 runs.
    n = 2**18
    first, second = noise.secure_normal((n,)).astype(np.float64), noise.secure_normal((n,)).astype(np.float64)
    assert abs(first.mean()) < 6 / np.sqrt(n)
    assert abs(first.var() - 1) < 6 * np.sqrt(2 / n)
    assert abs(stats.kurtosis(first)) < 6 * np.sqrt(24 / n)
    assert abs(np.mean(first * second)) < 6 / np.sqrt(n)
    assert abs((first > 3).sum() - n * special.ndtr(-3)) < 6 * np.sqrt(n * special.ndtr(-3))
    assert (first != second).all()


def test_secure_noise_takes_its_words_from_the_operating_systems_key(monkeypatch):
    monkeypatch.setattr("os.urandom", lambda count: bytes(count))
    assert (noise.secure_normal((8,)) == noise.secure_normal((8,))).all()  # the key is all that it depends on
