"""Statistics at fixed seeds: each bound is 5 standard errors, so a right generator fails one in 2 million, and the
effect that each test would see with near certainty (10 standard errors) is said beside it.
"""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from choral.core.codec import Codec
from choral.core.plan import Plan, SecureSum
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


@pytest.mark.parametrize("root", [jnp.sqrt, noise.newton_root], ids=["on a CPU", "on a GPU"])
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
    assert np.abs(np.asarray(noise.newton_root(jnp.asarray(x))) / np.sqrt(x.astype(np.float64)) - 1).max() < 8e-7


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
    # Not seeded: the bounds are 6 standard errors, which 2 of 10^9 runs exceed.
    n = 2**18
    first, second = noise.secure_normal((n,)).astype(np.float64), noise.secure_normal((n,)).astype(np.float64)
    assert abs(first.mean()) < 6 / np.sqrt(n)
    assert abs(first.var() - 1) < 6 * np.sqrt(2 / n)
    assert abs(stats.kurtosis(first)) < 6 * np.sqrt(24 / n)
    assert abs(np.mean(first * second)) < 6 / np.sqrt(n)
    assert abs((first > 3).sum() - n * special.ndtr(-3)) < 6 * np.sqrt(n * special.ndtr(-3))
    # Two float32 are equal by chance with 1.4e-8, φ² times the distance of neighbours, integrated: here 0.0036 pairs.
    assert (first == second).sum() < 3  # three or more: 8 of 10^9 runs


def test_secure_noise_takes_its_words_from_the_operating_systems_key(monkeypatch):
    monkeypatch.setattr("os.urandom", lambda count: bytes(count))
    assert (noise.secure_normal((8,)) == noise.secure_normal((8,))).all()  # the key is all that it depends on


def far_out(monkeypatch, depth, rest):
    """Secure noise whose tail probability has its leading one behind `depth` zeros, and then these 52 bits.

    The first words have 11 zeros and the rest; what comes after has the remaining zeros, 53 to a word, and ones.
    """
    given = [rest.astype(np.uint64) << np.uint64(12)]
    for left in range(depth - 11, -1, -53):
        given.append(np.full(len(rest), 2**64 - 1 if left == 0 else (2**64 - 1) >> min(left, 53), np.uint64))
    given.append(np.full(len(rest), 2**64 - 1, np.uint64))
    monkeypatch.setattr(noise, "secure_words", lambda shape: given.pop(0).reshape(shape))
    return noise.secure_normal((len(rest),)).astype(np.float64)


@pytest.mark.parametrize("depth", [11, 30, 52, 63, 64, 65, 100, 300])  # 2.8 to 20 standard deviations
def test_secure_noise_far_out_is_as_fine_as_float32_at_every_depth(monkeypatch, depth):
    # Inverting 53 bits, the largest numbers were 8.374, 8.244 and 8.183, and nothing between them.
    rest = np.concatenate([np.arange(5), 2**51 + np.arange(5), 2**52 - 1 - np.arange(5)]).astype(np.uint64)
    found = -far_out(monkeypatch, depth, rest)
    with np.errstate(under="ignore"):
        exact = stats.norm.isf(np.ldexp(1 + (rest.astype(np.float64) + 0.5) * 2.0**-52, -2 - depth))
    assert np.abs(found - exact).max() <= np.spacing(np.float32(exact.max()))
    for block in (found[:5], found[5:10], found[10:]):
        assert np.ptp(block) <= np.spacing(np.float32(block.max()))  # neighbours are the same float, or the next one


def test_no_gap_of_secure_noise_is_wider_than_the_finest_grid_of_the_codec():
    # A plan whose range is all noise has the finest grid: 2^23 steps to the largest number that it has room for.
    plan = Plan(devices=2, cohort=2, rounds=1, rows=9, batch=9, step_size=1.0, clip=1e-6, noise=1.0)
    codec = Codec.for_plan(plan, SecureSum.for_cohort(2), 1)
    reach = codec.largest / codec.noise_in_grid  # in standard deviations
    assert reach > 7
    assert np.spacing(np.float32(reach)) * codec.noise_in_grid <= 1


def test_the_far_tail_of_secure_noise_has_the_law_of_a_gaussians(monkeypatch):
    # 2^16 draws, all beyond 6.4 standard deviations: below 2^-33 the tail probability must be uniform.
    # Kolmogorov-Smirnov; power: a shift of the distribution function by 0.02 anywhere.
    fixed, turn = np.random.default_rng(5), iter(range(10))
    zeros = (~np.uint64((2**11 - 1) << 1), np.uint64(2**43 - 1))  # of bits 1 to 11, then of the 21 highest bits

    def words(shape):
        number = next(turn)
        drawn = fixed.integers(0, 2**64, shape, dtype=np.uint64)
        return drawn & zeros[number] if number < 2 else drawn

    monkeypatch.setattr(noise, "secure_words", words)
    found = noise.secure_normal((2**16,)).astype(np.float64)
    assert np.abs(found).min() > 6.3
    assert abs((found > 0).mean() - 0.5) < 5 * 0.5 / 2**8
    assert stats.kstest(special.ndtr(-np.abs(found)) * 2.0**33, "uniform").pvalue > 1e-5
