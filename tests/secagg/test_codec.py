"""Updates as words: exact, unbiased, in range or refused, and the same integers in NumPy and in compiled JAX."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choral.core import samplers
from choral.core.codec import CHUNK, Codec, quantise
from choral.core.errors import PlanError, SumError
from choral.core.masks import Stream
from choral.core.plan import Plan, SecureSum
from choral.server.round import contained
from choral.server_step import mean

FORMS = [16, 32, 64]
PLAN = Plan(devices=16, cohort=10, rounds=20, rows=2440, batch=244, local_steps=10, step_size=0.5, clip=1.0, noise=0.02)


def codec(bits=32, cohort=10, **changes):
    return Codec(**{"grid": 2.0**-6, "largest": 1000, "cohort": cohort, "word_bits": bits} | changes)


def draw(seed, size, limit):
    return np.random.default_rng(seed).uniform(-limit, limit, size).astype(np.float32)


@settings(max_examples=120, deadline=None)
@given(
    form=st.sampled_from(FORMS),
    count=st.integers(1, 10),
    size=st.sampled_from([0, 1, 2, 3, 4, 5, 100, 101]),
    seed=st.integers(0, 2**32),
)
def test_a_sum_of_encoded_updates_is_the_sum_of_their_integers(form, count, size, seed):
    coder = codec(form)
    updates = [draw(seed + i, size, 999 * coder.grid) for i in range(count)]
    dithers = [np.random.default_rng(seed - i - 1 + 2**33).random(size, np.float32) for i in range(count)]
    words = sum(coder.encode(update, dither) for update, dither in zip(updates, dithers, strict=True))
    expected = sum(
        coder.integers(update, dither).astype(np.int64) for update, dither in zip(updates, dithers, strict=True)
    )
    assert coder.decode(words, size, count=count).tolist() == np.broadcast_to(expected, size).tolist()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sum_that_a_cohort_can_make_does_not_wrap(form, sign):
    """Every device at the end of the range: the exact product, by hand, is ±10 × 2,999."""
    coder = codec(form, largest=3000)
    update = np.full(50, sign * 2999 * coder.grid, np.float32)
    words = sum(coder.encode(update, np.zeros(50)) for _ in range(10))
    assert coder.decode(words, 50, count=10).tolist() == [sign * 29990] * 50


@pytest.mark.parametrize("form", FORMS)
def test_chunks_do_not_show(form):
    size = 3 * CHUNK + 17
    coder = codec(form)
    update, dither = draw(1, size, 15.0), np.random.default_rng(2).random(size, np.float32)
    whole = quantise(update, dither, coder.grid)
    assert np.array_equal(coder.decode(coder.encode(update, dither), size, count=1), whole)


def test_the_secure_dither_is_the_streams_own_words():
    coder, update = codec(), draw(3, 2 * CHUNK + 5, 15.0)
    dither = Stream(bytes(32)).words(len(update), 16) / np.float32(2**16)
    assert np.array_equal(coder.encode(update, Stream(bytes(32))), coder.encode(update, dither))


def test_rounding_keeps_the_mean():
    """10^6 draws of a fraction f have mean f ± √(f(1−f))/1000; 5 of these, and 2^-16 for the dither's own step."""
    for fraction in (0.01, 0.3, 0.5, 0.875):
        update = np.full(10**6, np.float32(fraction) * 2.0**-6, np.float32)
        found = codec().integers(update, Stream(bytes(32)).words(10**6, 16) / np.float32(2**16))
        assert set(np.unique(found)) <= {0, 1}
        assert abs(found.mean() - fraction) < 5 * math.sqrt(fraction * (1 - fraction) / 1e6) + 2**-16


def test_grid_points_stay_where_they_are():
    update = np.arange(-999, 1000).astype(np.float32) * np.float32(2.0**-6)
    assert codec().integers(update, np.full(1999, 0.0)).tolist() == list(range(-999, 1000))


@given(st.integers(0, 2**32), st.sampled_from([2.0**-20, 2.0**-3, 1.0, 4.0]))
@settings(max_examples=10, deadline=None)
def test_jax_compiled_or_not_finds_the_same_integers_as_numpy(seed, grid):
    import jax

    update = draw(seed, 1000, 2**20 * grid)
    update[:8] = [0.0, -0.0, grid, -grid, grid / 2, -grid / 2, 1e-30, -1e-30]
    dither = np.random.default_rng(seed).random(1000, np.float32)
    dither[:2] = 0.0
    expected = quantise(update, dither, grid)
    for function in (quantise, jax.jit(quantise, static_argnums=2)):
        found = function(jax.numpy.asarray(update), jax.numpy.asarray(dither), grid)
        assert isinstance(found, jax.Array)
        assert np.array_equal(np.asarray(found), expected)


@given(st.integers(0, 2**32), st.integers(1, 1000))
@settings(max_examples=10, deadline=None)
def test_jax_compiled_or_not_finds_the_same_mean_as_numpy(seed, count):
    import jax

    total = np.random.default_rng(seed).integers(-(2**31), 2**31, 1000).astype(np.int32)
    expected = mean(total, count, 2.0**-20)
    assert expected.dtype == np.float32
    for function in (mean, jax.jit(mean, static_argnums=(1, 2))):
        assert np.array_equal(np.asarray(function(jax.numpy.asarray(total), count, 2.0**-20)), expected)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 15.7, -15.7])
def test_what_is_not_finite_or_beyond_the_range_is_refused_and_not_shown(bad):
    update = np.zeros(100, np.float32)
    update[77] = bad
    with pytest.raises(SumError, match="CH501") as caught:
        codec().encode(update, np.zeros(100))
    assert str(bad) not in str(caught.value)
    assert "77" not in str(caught.value)


def test_the_last_float_within_the_range_is_taken_and_the_next_is_not():
    limit = np.float32(999 * 2.0**-6)
    codec().encode(np.array([limit, -limit]), np.zeros(2))
    with pytest.raises(SumError, match="CH501"):
        codec().encode(np.array([np.nextafter(limit, np.float32(np.inf))]), np.zeros(1))


@pytest.mark.parametrize("form", FORMS)
def test_a_sum_of_another_size_count_or_type_is_refused(form):
    coder = codec(form)
    words = coder.encode(np.ones(10, np.float32), np.zeros(10))
    for wrong, code in (
        (lambda: coder.decode(words[:-1], 10, count=1), "CH500"),
        (lambda: coder.decode(words.astype(np.float64), 10, count=1), "CH500"),
        (lambda: coder.decode(words, 10, count=0), "CH500"),
        (lambda: coder.decode(words, 10, count=11), "CH500"),
        (lambda: coder.decode(words, 10, count=2), "CH504"),
        (lambda: coder.decode(words + words, 10, count=1), "CH504"),
    ):
        with pytest.raises(SumError, match=code):
            wrong()


@pytest.mark.parametrize("form", FORMS)
def test_one_changed_check_word_is_noticed(form):
    coder = codec(form)
    words = coder.encode(np.zeros(10, np.float32), np.zeros(10))
    for place in range(10, len(words)):
        changed = words.copy()
        changed[place] += words.dtype.type(1)
        with pytest.raises(SumError, match="CH504"):
            coder.decode(changed, 10, count=1)


@pytest.mark.parametrize("form", FORMS)
def test_a_sum_beyond_its_range_is_refused(form):
    coder = codec(form)
    words = coder.encode(np.zeros(10, np.float32), np.zeros(10))
    words[0] += words.dtype.type(1001)
    with pytest.raises(SumError, match="CH502"):
        coder.decode(words, 10, count=1)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"grid": 0.3}, "CH200"),
        ({"grid": 0.0}, "CH200"),
        ({"grid": -0.5}, "CH200"),
        ({"grid": math.inf}, "CH200"),
        ({"grid": math.nan}, "CH200"),
        ({"bits": 24}, "CH204"),
        ({"largest": 0}, "CH204"),
        ({"largest": 2**23}, "CH204"),
        ({"bits": 16, "largest": 3277}, "CH204"),
    ],
)
def test_codecs_that_could_wrap_or_round_are_refused(changes, code):
    """10 × 2 × 3277 = 65540 > 2^16; 10 × 2 × 104858 = 2097160 > 2^21."""
    with pytest.raises(PlanError, match=code):
        codec(**changes)


@pytest.mark.parametrize("version", [1, 2])
def test_the_range_of_a_plan_is_the_designs(version):
    """C = ητG·B/γ + z·ησ√τ by hand, z = √(2 (ln 84000 + 40 ln 2)) = √78.129 = 8.8391; in version 1, B was γ = 244.

    In version 2, B = 360 records fit into a batch, and float32 is counted: 2^-10 of the reach, 2^-5 of the noise, and
    half of its deviation in each step, and 32·2^-24 of the whole for each.
    """
    coder = Codec.for_plan(replace(PLAN, codec=version), SecureSum.for_cohort(10), 210)
    z = math.sqrt(2 * (math.log(2 * 210 * 10 * 20) + 40 * math.log(2)))
    bound = 5.0 + z * 0.01 * math.sqrt(10)
    if version == 2:
        bound = 5.0 * 360 / 244 * (1 + 2**-10) + z * 0.01 * math.sqrt(10) * (1 + 2**-5) + 10 * 0.01 / 2
        bound /= 1 - 32 * 10 / 2**24
    assert z == pytest.approx(8.8391, abs=1e-4)
    # The whole of C is taken, and no more than a step beyond; the grid is the finest power of two for that.
    assert (coder.largest - 2) * coder.grid <= bound < (coder.largest - 1) * coder.grid
    assert bound < coder.grid * (2**23 - 2) < 2 * bound * (1 + 1e-6)
    coder.integers(np.array([bound, -bound], np.float32), np.zeros(2))
    assert coder.noise_in_grid == 0.01 / coder.grid
    assert coder.failure == 2.0**-40


@pytest.mark.parametrize("bits", FORMS)
@pytest.mark.parametrize("cohort", [2, 10, 16])
@pytest.mark.parametrize("clip", [0.3, 0.999, 1.0, 1.7])
def test_a_plans_codec_always_fits_its_modulus_and_takes_all_of_its_range(bits, cohort, clip):
    secure = SecureSum.for_cohort(cohort, modulus_bits=bits)
    coder = Codec.for_plan(Plan(**PLAN.to_dict() | {"cohort": cohort, "noise": 1.0, "clip": clip}), secure, 10**6)
    assert coder.largest.bit_length() <= secure.value_bits - 1
    assert 2 * coder.largest * cohort < 2**bits
    assert coder.grid <= 0.5 / 2
    z = math.sqrt(2 * (math.log(2 * 10**6 * cohort * 20) + 40 * math.log(2)))
    assert (coder.largest - 1) * coder.grid > 5 * clip + z * 0.5 * math.sqrt(10)


def test_a_grid_coarser_than_a_third_of_the_noise_is_refused():
    """16 bits leave 11 for a value: C/1023 ≈ 0.0050 and so a grid of 2^-7 > 0.01/3."""
    with pytest.raises(PlanError, match=r"CH204 the grid of 0\.0078125 is coarser than a third of the noise"):
        Codec.for_plan(PLAN, SecureSum.for_cohort(10, modulus_bits=16), 210)


def test_a_plan_without_noise_has_a_codec_too():
    coder = Codec.for_plan(Plan(**PLAN.to_dict() | {"noise": 0.0}), SecureSum.for_cohort(10, modulus_bits=16), 210)
    assert coder.noise_in_grid == 0.0


def test_the_proved_range_holds_for_steps_at_the_bound():
    """10^6 coordinates of τ steps, each clipped gradient at G in one direction, with Gaussian noise: none leaves C."""
    coder = Codec.for_plan(PLAN, SecureSum.for_cohort(10), 10**6)
    noise = np.random.default_rng(5).normal(0, 0.02 * math.sqrt(10), 10**6)
    coder.encode((0.5 * (10 * 1.0 + noise)).astype(np.float32), Stream.fresh())


def test_whole_noise_is_added_on_the_grid_and_stays_in_range(monkeypatch):
    coder, update = replace(codec(), law="discrete_gaussian", noise_in_grid=512.0), np.zeros(5, np.float32)
    monkeypatch.setattr(samplers, "draw", lambda *_: np.array([1, -2, 3, -4, 1000]))
    words = coder.encode(update, np.zeros(5))
    assert coder.decode(words, 5, count=1).tolist() == [1, -2, 3, -4, 1000]
    monkeypatch.setattr(samplers, "draw", lambda *_: np.full(5, 1001))
    with pytest.raises(SumError, match="CH501"):
        coder.encode(update, np.zeros(5))


@pytest.mark.parametrize(("form", "size", "bytes_"), [(32, 10**6, 4.01), (16, 10**6, 2.01)])
def test_bytes_a_parameter(form, size, bytes_):
    words = codec(form).encode(np.zeros(size, np.float32), np.zeros(size, np.float32))
    assert words.nbytes / size <= bytes_


@pytest.mark.parametrize("bits", FORMS)
def test_words_that_may_be_used_up_give_the_same_sum(bits):
    coder = Codec(grid=1.0, largest=500, cohort=2, word_bits=bits)
    update = np.arange(-499, 500, dtype=np.float32)
    words = coder.encode(update, np.zeros(len(update))) + coder.encode(update[::-1], np.zeros(len(update)))
    kept = words.copy()
    plain = coder.decode(words, len(update), count=2)
    assert np.array_equal(words, kept)
    assert np.array_equal(coder.decode(words, len(update), count=2, consume=True), plain)


def test_a_mean_written_into_kept_memory_is_the_same():
    total = np.random.default_rng(0).integers(-(2**31), 2**31, 1000).astype(np.int32)
    kept = np.full(1000, np.nan, np.float32)
    assert mean(total, 7, 2.0**-20, out=kept) is kept
    assert np.array_equal(kept, mean(total, 7, 2.0**-20))


@pytest.mark.parametrize("bits", FORMS)
def test_one_sum_out_of_range_becomes_zero_and_no_other_changes(bits):
    codec = Codec(grid=1.0, largest=9, cohort=3, word_bits=bits)
    update = np.arange(-4, 4, dtype=np.float32)
    words = 3 * codec.encode(update, np.zeros(8, np.float32))
    words[1] += words.dtype.type(2**15)  # the second number
    assert contained(codec, words, 8, count=3) == 1
    expected = 3 * update.astype(int)
    expected[1] = 0
    assert codec.decode(words, 8, count=3).tolist() == expected.tolist()


def test_where_so_many_sums_are_out_of_range_that_others_may_be_false_unseen_nothing_is_believed():
    # By hand: p = 2·10·2^23/2^32 = 0.039; 24·p/(1-p) = 0.98, 25 give 1.02.
    codec = Codec(grid=1.0, largest=2**23 - 1, cohort=10, word_bits=32)
    for hit, zeroed in ((24, 24), (25, 0)):
        words = codec.encode(np.zeros(100, np.float32), np.zeros(100, np.float32)) * np.uint32(10)
        words[:hit] += np.uint32(2**31)
        assert contained(codec, words, 100, count=10) == zeroed
        if not zeroed:
            with pytest.raises(SumError, match="CH502"):
                codec.decode(words, 100, count=10)
