"""Masks: they cancel on every graph, and the errors that others made with them are not made here."""

import hashlib
import itertools
import threading

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from choral.core import masks as masks_module
from choral.core.errors import SumError
from choral.core.keys import Identity, PairSecret
from choral.core.masks import (
    CHUNK_BYTES,
    Graph,
    Mask,
    Stream,
    add_masks,
    pair_mask,
    ring,
    round_context,
    self_mask,
)

BITS = st.sampled_from([16, 32, 64])
NAMES = [f"device-{number:02}" for number in range(12)]


def seeded_pair(own, peer):
    """A pair secret without the cost of an agreement; the vectors hold the real derivation."""
    low, high = sorted((own, peer))
    seeds = [hashlib.sha256(f"{low} {high} {part}".encode()).digest() for part in "rf"]
    return PairSecret(own=own, peer=peer, rising=seeds[0], falling=seeds[1], seals=b"", opens=b"")


def masked(id, vector, graph, context):
    out = vector.copy()
    for peer in graph.neighbours(id):
        add_masks(out, [pair_mask(seeded_pair(id, peer), context)])
    return out


@settings(max_examples=150, deadline=None)
@given(
    count=st.integers(2, 12),
    degree=st.sampled_from([None, 2, 4]),
    bits=BITS,
    size=st.integers(0, 40),
    seed=st.integers(0, 2**32),
)
def test_masks_cancel_on_every_graph_and_ring(count, degree, bits, size, seed):
    cohort = tuple(NAMES[:count])
    graph = Graph(cohort, b"ctx", degree if degree is not None and degree < count else None)
    draw = np.random.default_rng(seed)
    vectors = {id: draw.integers(0, 2**bits, size, dtype=np.uint64).astype(ring(bits)) for id in cohort}
    total = sum((masked(id, vectors[id], graph, b"ctx") for id in cohort), np.zeros(size, ring(bits)))
    assert total.tolist() == sum(vectors.values(), np.zeros(size, ring(bits))).tolist()


def test_masks_of_a_dropped_device_are_undone_by_its_neighbours_keys():
    vectors = {id: np.full(5, place, np.uint32) for place, id in enumerate("abc")}
    graph = Graph(("a", "b", "c"), b"ctx")
    total = masked("a", vectors["a"], graph, b"ctx") + masked("c", vectors["c"], graph, b"ctx")
    for id in "ac":
        add_masks(total, [pair_mask(seeded_pair(id, "b"), b"ctx").undone()])
    assert total.tolist() == [2] * 5


def test_the_lower_device_adds_what_the_higher_one_subtracts():
    low, high = pair_mask(seeded_pair("a", "b"), b"ctx"), pair_mask(seeded_pair("b", "a"), b"ctx")
    assert (low.adds, high.adds) == (True, False) and low.key == high.key


def test_one_different_bit_of_context_leaves_the_masks_uncancelled():
    zeros = np.zeros(8, np.uint32)
    graph = Graph(("a", "b"), b"")
    total = masked("a", zeros, graph, b"ctx 0") + masked("b", zeros, graph, b"ctx 1")
    assert not (total == 0).any()


def test_a_real_pair_cancels_too():
    a, b = Identity.fresh("a"), Identity.fresh("b")
    vector = np.arange(100, dtype=np.uint64)
    add_masks(vector, [pair_mask(a.pair(b.bundle, b"s"), b"ctx")])
    add_masks(vector, [pair_mask(b.pair(a.bundle, b"s"), b"ctx")])
    assert vector.tolist() == list(range(100))


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("extra", [-1, 0, 1, 7])
def test_chunks_make_one_flat_stream(bits, extra):
    """Beside the whole keystream at once, by the library's CTR: no block is lost or repeated at a chunk's edge."""
    dtype = ring(bits)
    size = 2 * CHUNK_BYTES // dtype.itemsize + extra
    key = bytes(range(32))
    whole = Cipher(algorithms.AES(key), modes.CTR((2).to_bytes(16, "big"))).encryptor().update(bytes(size * bits // 8))
    vector = np.full(size, 3, dtype)
    add_masks(vector, [Mask(key, adds=True)])
    assert np.array_equal(vector, np.frombuffer(whole, dtype) + dtype.type(3))
    assert np.array_equal(Stream(key).words(size, bits), np.frombuffer(whole, dtype))


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("adders", [2, 3, 4])
def test_masks_drawn_beside_each_other_make_the_same_words(adders, bits, monkeypatch):
    """Beside one mask after the other, in one thread: signs mixed, a vector of several chunks, uneven shares."""
    monkeypatch.setattr(masks_module, "WORTH_A_THREAD", 0)
    rng = np.random.default_rng(bits)
    masks = [Mask(rng.bytes(32), adds=bool(number % 3)) for number in range(7)]
    vector = np.arange(2 * CHUNK_BYTES // ring(bits).itemsize + 5).astype(ring(bits))
    beside, alone = vector.copy(), vector.copy()
    monkeypatch.setattr(masks_module, "ADDERS", adders)
    add_masks(beside, masks)
    for mask in masks:
        add_masks(alone, [mask])
    assert np.array_equal(beside, alone)
    assert not np.array_equal(beside, vector)


def test_a_thread_that_fails_is_heard(monkeypatch):
    """Words that lack a mask must not leave a device: what fails beside is raised, not lost."""
    monkeypatch.setattr(masks_module, "WORTH_A_THREAD", 0)
    monkeypatch.setattr(masks_module, "ADDERS", 2)
    draw = Stream.into

    def failing(stream, buffer, size):
        if threading.current_thread() is not threading.main_thread():
            raise MemoryError
        draw(stream, buffer, size)

    monkeypatch.setattr(Stream, "into", failing)
    with pytest.raises(MemoryError):
        add_masks(np.zeros(10, np.uint32), [Mask(bytes(32), adds=True)] * 2)


@pytest.mark.parametrize("mode", masks_module.MODES)
def test_both_ways_to_draw_the_keystream_give_the_same_bytes(mode, monkeypatch):
    """The first block is GCM's test case 14 (McGrew and Viega): key and nonce zero."""
    monkeypatch.setattr(masks_module, "_fastest", lambda: mode)
    found = Stream(bytes(32)).words(2, 64).tobytes()
    assert found.hex() == "cea7403d4d606b6e074ec5d3baf39d18"
    first, second = Stream(bytes(range(32))), Stream(bytes(range(32)))
    pieces = [first.words(count, 16).tobytes() for count in (1, 7, 8, 100)]
    assert b"".join(pieces) == second.words(116, 16).tobytes()


def test_uniform_numbers_are_the_streams_words():
    words = Stream(bytes(32)).words(1000, 16)
    assert (Stream(bytes(32)).uniform(1000) * 2**16).tolist() == words.tolist()


@pytest.mark.parametrize(
    "vector",
    [
        np.zeros(3, np.int32),
        np.zeros(3, np.float32),
        np.zeros((2, 2), np.uint32),
        np.zeros(3, ">u4"),
        np.zeros(3, np.uint8),
    ],
)
def test_only_flat_vectors_of_the_ring_are_masked(vector):
    with pytest.raises(SumError, match="CH500"):
        add_masks(vector, [Mask(bytes(32), adds=True)])


def context(**changes):
    given = {
        "config": b"c",
        "roster": b"r",
        "round_number": 1,
        "attempt": 0,
        "model": b"m",
        "cohort": [("a", b"1"), ("b", b"2")],
    }
    return round_context(**given | changes)


def test_everything_that_devices_must_have_seen_alike_is_in_the_context():
    changed = [
        {},
        {"config": b"d"},
        {"roster": b"s"},
        {"round_number": 2},
        {"attempt": 1},
        {"model": b"n"},
        {"cohort": [("a", b"1")]},
        {"cohort": [("a", b"1"), ("b", b"3")]},
        {"cohort": [("a1", b""), ("b", b"2")]},
        {"config": b"cr", "roster": b""},
    ]
    assert len({context(**change) for change in changed}) == len(changed)


# What others got wrong


def key_of(turn):
    return pair_mask(seeded_pair("a", "b"), context(round_number=turn)).key


def test_round_keys_differ_by_nothing_that_the_round_numbers_tell():
    """Fed-BioMed's LOM: key(t) ⊕ key(0) = t. Flamingo's reference: key(t) = key(0)."""
    keys = [int.from_bytes(key_of(turn), "little") for turn in range(200)]
    assert len(set(keys)) == 200
    for relation in (lambda a, b: a ^ b, lambda a, b: (a - b) % 2**256):
        steps = {relation(one, other) for one, other in itertools.pairwise(keys)}
        from_start = {relation(key, keys[0]) for key in keys[1:]}
        assert len(steps) == len(from_start) == 199
        assert min(from_start) > 2**200  # a relation to t would be a small number


def test_half_of_a_round_keys_bits_change_with_the_round():
    """256 coin flips a pair of rounds: the mean of 199 lies within 5 standard deviations, 8/√199, of 128."""
    keys = [int.from_bytes(key_of(turn), "little") for turn in range(200)]
    flips = [(one ^ other).bit_count() for one, other in itertools.pairwise(keys)]
    assert abs(np.mean(flips) - 128) < 5 * 8 / np.sqrt(199)


def test_no_block_of_keystream_comes_twice_within_or_across_rounds_pairs_and_devices():
    blocks = []
    for turn, peer in itertools.product(range(8), "bcd"):
        for mask in (
            pair_mask(seeded_pair("a", peer), context(round_number=turn)),
            self_mask(bytes(32), context(round_number=turn), peer),
        ):
            data = Stream(mask.key).words(512, 64).tobytes()
            blocks += [data[start : start + 16] for start in range(0, len(data), 16)]
    assert len(set(blocks)) == len(blocks) == 8 * 3 * 2 * 256


def folded(key, bits):
    """Flower 1.42's way from a key to a seed: the XOR of its 4-byte words, as many bits as are searched here."""
    seed = 0
    for start in range(0, len(key), 4):
        seed ^= int.from_bytes(key[start : start + 4], "little")
    return seed % 2**bits


def search(observed, draw, bits):
    """The seeds, of all that there are, whose stream begins like the observed mask."""
    return [seed for seed in range(2**bits) if np.array_equal(draw(seed), observed)]


def test_a_search_over_short_seeds_finds_a_folded_key_and_never_ours():
    """The 28- and 32-bit search in small: 2^b streams break b bits of seed; against 256 bits they find nothing."""
    bits, key = 10, key_of(1)

    def twister(seed):
        return np.random.RandomState(seed).randint(0, 2**32 - 1, 4, dtype=np.int64)

    def ours(seed):
        return Stream(seed.to_bytes(32, "little")).words(4, 32)

    assert search(twister(folded(key, bits)), twister, bits) == [folded(key, bits)]
    assert search(Stream(key).words(4, 32), ours, bits) == []
    assert search(Stream(key).words(4, 32), twister, bits) == []


@pytest.mark.parametrize("bits", [28, 32])
def test_no_part_of_a_key_is_thrown_away(bits):
    """Keys that agree in a fold of so many bits, or in all bits but one, still give different streams."""
    key = bytearray(key_of(1))
    twin = bytearray(key)
    twin[0] ^= 1
    twin[4] ^= 1  # cancels in Flower's fold
    assert folded(key, bits) == folded(twin, bits)
    streams = [Stream(bytes(key)).words(64, 32), Stream(bytes(twin)).words(64, 32)]
    for place in range(256):
        flipped = bytearray(key)
        flipped[place // 8] ^= 1 << place % 8
        streams.append(Stream(bytes(flipped)).words(64, 32))
    assert len({stream.tobytes() for stream in streams}) == 258
    assert not (streams[0] == streams[1]).any()


@settings(max_examples=30, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_self_masks_are_bound_to_secret_context_and_device(secret, other):
    keys = {
        self_mask(secret, b"1", "a").key,
        self_mask(secret, b"2", "a").key,
        self_mask(secret, b"1", "b").key,
        self_mask(bytes(a ^ 255 for a in secret), b"1", "a").key,
    }
    assert len(keys) == 4
    assert (self_mask(other, b"1", "a").key in keys) == (other == secret or other == bytes(a ^ 255 for a in secret))


def test_no_key_is_printed():
    mask = Mask(bytes(range(32)), adds=False)
    assert repr(mask) == "Mask(-)"
    assert "Stream object" in repr(Stream(bytes(32)))
