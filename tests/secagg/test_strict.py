"""The codec of the strict mode: its grid, its noise and its range, beside hand calculations."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choral.core.codec import Codec, sensitivity
from choral.core.errors import PlanError
from choral.core.masks import Stream
from choral.core.plan import Plan, SecureSum
from choral.core.terms import Terms
from tests.protocol.world import World, enrolled

LAWS = ("discrete_gaussian",)
TEN = SecureSum.for_cohort(10)


def plan(law="discrete_gaussian", **changes):
    given = {
        "devices": 16, "cohort": 10, "rounds": 20, "rows": 400, "batch": 400, "step_size": 0.5, "clip": 1.0,
        "noise": 0.05, "sampling": "partition", "law": law,
    }  # fmt: skip
    return Plan(**{**given, **changes})


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("bits", "noise"), [(32, 0.01), (32, 0.05), (64, 1.0)])
def test_no_record_moves_the_integers_by_more_than_it_is_charged_for(law, bits, noise):
    """By hand: l2 = 2ηG(1 + (d+64)u)(1 + γ(2⌈√γ⌉ + 6)u)/(γ·grid) + √d, and l2/s ≤ 2/z, z = σγ/G."""
    secure, own = SecureSum.for_cohort(10, modulus_bits=bits), plan(law, noise=noise)
    codec = Codec.for_plan(own, secure, 100)
    stretch = (1 + 164 * 2**-24) * (1 + 400 * 46 * 2**-24)
    l2 = 2 * 0.5 * stretch / (400 * codec.grid) + 10
    assert l2 <= sensitivity(own, 100, codec.grid) <= l2 * (1 + 2**-19)
    assert codec.noise_in_grid == int(codec.noise_in_grid) >= 8
    assert l2 / codec.noise_in_grid <= 2 / (noise * 400)
    assert codec.law == law


@pytest.mark.parametrize("law", LAWS)
def test_the_range_holds_the_longest_update_and_the_tail_of_its_noise(law):
    """By hand: largest ≥ ηG/grid + 1 + s√(2x) + 2x/3 with x = ln(2drT/(β/2)), half of β being the samplers'."""
    codec = Codec.for_plan(plan(law), TEN, 1000, failure=1e-8)
    nats = math.log(2 * 1000 * 10 * 20 / 5e-9)
    assert codec.largest >= 0.5 / codec.grid + 1 + codec.noise_in_grid * math.sqrt(2 * nats) + 2 * nats / 3
    for sign in (1, -1):
        update = np.zeros(1000, np.float32)
        update[0] = sign * plan(law).mechanism.longest(plan(law), 1000)
        for _ in range(20):
            codec.encode(update, Stream.fresh())


@pytest.mark.parametrize("law", LAWS)
@settings(deadline=None, max_examples=60)
@given(
    noise=st.floats(1e-3, 10), step_size=st.floats(0.01, 10), clip=st.floats(0.01, 10), batch=st.integers(1, 400),
    dimensions=st.integers(1, 10**5), bits=st.sampled_from([32, 64]),
)  # fmt: skip
def test_a_strict_codec_keeps_its_promises_or_is_refused(law, noise, step_size, clip, batch, dimensions, bits):
    own = plan(law, noise=noise, step_size=step_size, clip=clip, batch=batch)
    try:
        codec = Codec.for_plan(own, SecureSum.for_cohort(10, modulus_bits=bits), dimensions)
    except PlanError as error:
        assert error.code == "CH204"
        return
    assert sensitivity(own, dimensions, codec.grid) / codec.noise_in_grid <= 2 * clip / (batch * noise) * (1 + 1e-12)
    assert step_size * noise <= codec.noise_in_grid * codec.grid <= 2 * step_size * noise


@pytest.mark.parametrize("law", LAWS)
def test_an_encoded_zero_is_noise_of_the_deviation_that_was_charged_for(law):
    """20,000 encoded zeros: their mean square is s² within five standard errors, s²√(2/n) each."""
    codec = Codec.for_plan(plan(law), TEN, 1000)
    zero = np.zeros(20_000, np.float32)
    found = codec.decode(codec.encode(zero, Stream.fresh()), zero.size, count=1).astype(np.float64)
    assert abs(np.mean(found**2) / codec.noise_in_grid**2 - 1) < 5 * math.sqrt(2 / zero.size)
    assert abs(found.mean()) < 5 * codec.noise_in_grid / math.sqrt(zero.size)
    assert not np.array_equal(found, codec.decode(codec.encode(zero, Stream.fresh()), zero.size, count=1))


@pytest.mark.parametrize("law", LAWS)
def test_the_sum_of_deployed_devices_carries_every_ones_whole_noise(law):
    """Ten devices as they are deployed, without an encode of their own, all updates zero: variance 10s²."""
    size = 2000
    codec = Codec.for_plan(plan(law), World().terms.secure, size)
    world = World(parameters=size, codec=codec)
    world.train_by(lambda *_: np.zeros(size, np.float32))
    found = world.wire().sum(1, range(10), world.model).integers.astype(np.float64)
    assert abs(np.mean(found**2) / (10 * codec.noise_in_grid**2) - 1) < 5 * math.sqrt(2 / size)


@pytest.mark.parametrize("law", LAWS)
def test_a_given_stream_gives_the_same_noise_in_every_form_of_words(law):
    update, dither = np.zeros(100, np.float32), np.zeros(100, np.float32)
    narrow = Codec.for_plan(plan(law, noise=0.1), SecureSum.for_cohort(10), 100)
    drawn = narrow.whole_noise(100, Stream(b"n" * 32)).tolist()
    for codec in (narrow, replace(narrow, word_bits=64)):
        assert codec.decode(codec.encode(update, dither, Stream(b"n" * 32)), 100, count=1).tolist() == drawn


@pytest.mark.parametrize(
    ("law", "dimensions", "secure", "changes"),
    [
        ("discrete_gaussian", 1000, SecureSum.for_cohort(10, modulus_bits=16), {}),
        ("discrete_gaussian", 2**24, TEN, {}),  # one rounding a parameter is then as large as the clip
        ("discrete_gaussian", 10, TEN, {"rows": 10**6, "batch": 10**6}),
        ("discrete_gaussian", 10, TEN, {"clip": 2.0**-33}),
        ("discrete_gaussian", 10, TEN, {"step_size": 2.0**33}),
    ],
)
def test_what_whole_noise_can_not_do_is_refused_with_a_way_out(law, dimensions, secure, changes):
    with pytest.raises(PlanError, match=r"CH204.*law = ") as error:
        Codec.for_plan(plan(law, **changes), secure, dimensions)
    assert "Use " in str(error.value)


def test_no_model_swallows_whole_noise_so_any_finite_one_is_taken():
    codec = Codec.for_plan(plan(), TEN, 10)
    assert codec.largest_parameter == np.finfo(np.float32).max
    assert replace(codec, law="gaussian").largest_parameter < 1e6


def test_the_law_is_part_of_the_terms_and_the_usual_one_keeps_its_digest():
    codec, (_, roster) = Codec.for_plan(plan(), TEN, 10), enrolled(10)
    digests = {
        Terms(roster=roster, secure=TEN, codec=replace(codec, law=law), parameters=10, plan="p").digest
        for law in ("gaussian", *LAWS)
    }
    assert len(digests) == 2
    assert "law" not in plan("gaussian").to_dict()
    assert Plan.from_dict(plan("discrete_gaussian").to_dict()) == plan("discrete_gaussian")
    assert len({plan(law).digest for law in ("gaussian", *LAWS)}) == 2


@pytest.mark.parametrize("changes", [{"local_steps": 2}, {"sampling": "poisson"}])
@pytest.mark.parametrize("law", LAWS)
def test_a_plan_with_whole_noise_has_one_local_step_and_no_sampling(law, changes):
    with pytest.raises(PlanError, match=r'CH204.*Use local_steps = 1 and sampling = "partition"'):
        plan(law, **changes)
    plan("gaussian", **changes)


def test_an_unknown_law_is_refused():
    with pytest.raises(PlanError, match="CH200 law"):
        plan("laplace")
