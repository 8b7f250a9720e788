"""Pairwise masks that cancel in the sum (Sec. IV-B), self masks, and the graph of pairs. Knows bytes and ring words.

The sparse graph is claimed against a curious server only: a lying one can try contexts until the graph suits it.
"""

import hmac
import math
import os
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from math import comb, log2
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from choral.core.errors import PlanError, SumError
from choral.core.keys import KEY_SIZE, PairSecret, digest, framed, turn_label
from choral.core.plan import SecureSum
from choral.core.plan.secure_sum import PRIVACY_BITS

Words = NDArray[Any]  # uint16, uint32 or uint64, little-endian

# A chunk of the vector and of keystream stay in the cache while every peer's mask is added; smaller ones cost calls.
CHUNK_BYTES = 2**20
# AES leaves the interpreter to others, so masks are drawn on several cores; past four they would wait for the addition.
MOST_THREADS = 4
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
ADDERS = min(MOST_THREADS, CORES)
WORTH_A_THREAD = 2**23  # bytes of keystream; less is drawn before a thread has begun
BLOCK = 16
_LINE = 64
# CTR from counter block 2, and GCM without its tag: two ways to the same keystream.
MODES = (modes.CTR((2).to_bytes(BLOCK, "big")), modes.GCM(bytes(12)))


def _buffer(size: int) -> NDArray[np.uint8]:
    """Zeros that begin where a line of the cache does: AES and addition are a twentieth faster there."""
    room = np.zeros(size + _LINE, np.uint8)
    start = -room.ctypes.data % _LINE
    return room[start : start + size]


class _Scratch(threading.local):
    """A thread's keystream buffer, kept: touching new memory for every mask costs a tenth of the mask."""

    def __init__(self) -> None:
        self.bytes = _buffer(CHUNK_BYTES + BLOCK)
        self.view = self.bytes.data


_scratch = _Scratch()
_ZEROS = _buffer(CHUNK_BYTES).data.toreadonly()


def ring(bits: int) -> np.dtype[Any]:
    """The little-endian unsigned type whose arithmetic is modulo 2^bits.

    >>> ring(32)
    dtype('uint32')
    """
    if bits not in (16, 32, 64):
        raise SumError("CH500", f"modulus of {bits} bits.", fix="Use 16, 32 or 64.")
    return np.dtype(f"<u{bits // 8}")


def round_context(
    *, config: bytes, roster: bytes, round_number: int, attempt: int, model: bytes, cohort: Sequence[tuple[str, bytes]]
) -> bytes:
    """ctx: the hash of all that the devices of a round must have seen alike, with a fresh nonce from each.

    `config`, `roster` and `model` are digests; `cohort` is every (id, nonce), sorted.
    """
    who = [field for id, nonce in cohort for field in (id.encode(), nonce)]
    turn = round_number.to_bytes(8, "little"), attempt.to_bytes(8, "little")
    return digest("context", config, roster, *turn, model, *who)


@dataclass(frozen=True, slots=True, repr=False)
class Mask:
    """One round's key of one mask, and whether the mask is added or subtracted."""

    key: bytes
    adds: bool

    def undone(self) -> "Mask":
        """The mask that takes this one away again."""
        return Mask(self.key, not self.adds)

    def __repr__(self) -> str:
        return f"Mask({'+' if self.adds else '-'})"


def pair_mask(pair: PairSecret, context: bytes) -> Mask:
    """The mask that the lower id of a pair adds in a turn, and the higher one subtracts.

    Who reveals it tells nothing of other rounds: each key is HMAC(seed, ctx), and ctx never comes back.
    """
    key = hmac.digest(pair.rising, turn_label("pair mask", context), "sha256")
    return Mask(key, pair.own < pair.peer)


def self_mask(secret: bytes, context: bytes, id: str) -> Mask:
    """b_i: the mask from a device's fresh secret of the round, whose shares its neighbours hold."""
    return Mask(hmac.digest(secret, framed("self mask", context, id.encode()), "sha256"), True)


@cache
def _fastest() -> modes.CTR | modes.GCM:
    """The mode that draws the keystream faster on this machine.

    OpenSSL has wide AES instructions in GCM only, and where they are missing GCM pays for a tag that nobody asks for.
    """
    spent: dict[modes.CTR | modes.GCM, float] = {}
    for mode in MODES:
        stream = Cipher(algorithms.AES(bytes(KEY_SIZE)), mode).encryptor()
        times = []
        for _ in range(4):
            start = time.perf_counter()
            stream.update_into(_ZEROS, _scratch.view)
            times.append(time.perf_counter() - start)
        spent[mode] = min(times)
    return min(spent, key=lambda mode: spent[mode])


class Stream:
    """AES-256-CTR keystream of one key, from counter block 2; each byte is given out once.

    >>> Stream(bytes(32)).words(2, 32).tolist() == Stream(bytes(32)).words(1, 64).view("<u4").tolist()
    True
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_SIZE:
            raise SumError("CH500", f"a mask key has {len(key)} bytes, not {KEY_SIZE}.")
        self._cipher = Cipher(algorithms.AES(key), _fastest()).encryptor()

    @classmethod
    def fresh(cls) -> "Stream":
        """A stream that nobody can predict, keyed by the operating system: for dither and noise."""
        return cls(os.urandom(KEY_SIZE))

    def into(self, buffer: memoryview, size: int) -> None:
        """Overwrite the first `size` bytes of a buffer that has a block to spare."""
        for start in range(0, size, CHUNK_BYTES):
            self._cipher.update_into(_ZEROS[: min(CHUNK_BYTES, size - start)], buffer[start:])

    def words(self, count: int, bits: int) -> Words:
        """The next `count` words, uniform modulo 2^bits."""
        dtype = ring(bits)
        buffer = bytearray(count * dtype.itemsize + BLOCK)
        self.into(memoryview(buffer), count * dtype.itemsize)
        return np.frombuffer(buffer, dtype=dtype, count=count)

    def uniform(self, count: int) -> NDArray[np.float32]:
        """The next numbers in [0, 1), multiples of 2^-16, at most CHUNK_BYTES // 2 of them.

        >>> float(Stream(bytes(32)).uniform(1000).mean().round(1))
        0.5
        """
        self.into(_scratch.view, 2 * count)
        drawn = _scratch.bytes[: 2 * count].view("<u2").astype(np.float32)
        drawn *= np.float32(2.0**-16)
        return drawn


def mask_words(mask: Mask, bits: int, start: int, count: int) -> Words:
    """Give what a mask adds to the words from `start` on, without drawing those before them."""
    dtype = ring(bits)
    block, skipped = divmod(start * dtype.itemsize, BLOCK)
    counter = modes.CTR((2 + block).to_bytes(BLOCK, "big"))
    drawn = Cipher(algorithms.AES(mask.key), counter).encryptor().update(bytes(skipped + count * dtype.itemsize))
    words = np.frombuffer(drawn, dtype=dtype, offset=skipped)
    return words.copy() if mask.adds else np.negative(words)


def add_masks(vector: Words, masks: Iterable[Mask], *, adders: int = ADDERS) -> None:
    """Add every mask to the vector in place, modulo its word size, chunk by chunk.

    >>> vector = np.arange(3, dtype=np.uint32)
    >>> mask = Mask(bytes(32), adds=True)
    >>> add_masks(vector, [mask]); add_masks(vector, [mask.undone()]); vector.tolist()
    [0, 1, 2]
    """
    dtype = ring(8 * vector.dtype.itemsize)
    if vector.dtype != dtype or vector.ndim != 1:
        raise SumError("CH500", f"masks were asked for a {vector.ndim}-dimensional vector of {vector.dtype}.")
    streams = [(Stream(mask.key), np.add if mask.adds else np.subtract) for mask in masks]
    adders = min(adders, len(streams)) if vector.nbytes * len(streams) >= WORTH_A_THREAD else 1
    turn = threading.Lock()
    shares = [streams[number::adders] for number in range(adders)]
    with ThreadPoolExecutor(adders) as others:
        under_way = [others.submit(_add, vector, share, turn) for share in shares[1:]]
        _add(vector, shares[0], turn)
        for one in under_way:
            one.result()


def _add(vector: Words, streams: "Sequence[tuple[Stream, np.ufunc]]", turn: threading.Lock) -> None:
    """Draw in parallel with other threads, each into its own buffer, and add in turns: their order does not matter."""
    step = CHUNK_BYTES // vector.dtype.itemsize
    keystream = _scratch.bytes[:CHUNK_BYTES].view(vector.dtype)
    for start in range(0, len(vector), step):
        chunk = vector[start : start + step]
        words = keystream[: len(chunk)]
        for stream, combine in streams:
            stream.into(_scratch.view, chunk.nbytes)
            with turn:
                combine(chunk, words, out=chunk)


@dataclass(frozen=True)
class Graph:
    """The neighbourhoods of a cohort in one round; `degree` None joins everybody.

    >>> Graph(("a", "b", "c", "d", "e"), b"ctx", degree=2).neighbours("a")
    ('b', 'e')
    """

    cohort: tuple[str, ...]
    context: bytes
    degree: int | None = None

    def __post_init__(self) -> None:
        check_degree(self.degree, len(self.cohort))

    @cached_property
    def _circle(self) -> Sequence[str]:
        """The cohort in the order of a hash that nobody knows before the last nonce is drawn."""
        return sorted(self.cohort, key=lambda id: digest("graph", self.context, id.encode()))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {id: place for place, id in enumerate(self._circle)}

    def neighbours(self, id: str) -> tuple[str, ...]:
        """The sorted neighbours of a device of the cohort."""
        if self.degree is None:
            return tuple(other for other in self.cohort if other != id)
        here, size = self._places[id], len(self.cohort)
        steps = range(1, self.degree // 2 + 1)
        return tuple(sorted(self._circle[(here + sign * step) % size] for step in steps for sign in (1, -1)))


def check_degree(degree: int | None, size: int) -> None:
    """Raise CH200 for a number of neighbours that no circle of this size has."""
    if degree is not None and not (0 < degree < size and degree % 2 == 0):
        raise PlanError(
            "CH200",
            f"{degree} neighbours in a cohort of {size}.",
            fix="Must be even, at least 2 and below the size of the cohort.",
        )


def _tail(population: int, marked: int, drawn: int, least: int) -> Fraction:
    """P[X ≥ least] for X hypergeometric: how many of the drawn are marked. Exact."""
    ways = sum(comb(marked, hit) * comb(population - marked, drawn - hit) for hit in range(least, drawn + 1))
    return Fraction(ways, comb(population, drawn))


def _bits(chance: Fraction) -> float:
    """-log2 of a chance, also where it is far below the smallest float."""
    return math.inf if chance == 0 else log2(chance.denominator) - log2(chance.numerator)


@lru_cache(maxsize=256)
def failure_bits(cohort: int, degree: int, threshold: int, colluders: int, dropouts: int) -> tuple[float, float]:
    """(privacy, liveness) in bits of a Harary graph on a random permutation, for so many colluders and drop-outs.

    Privacy fails if some device has `threshold` colluding neighbours, or if those that are left and honest are no
    longer connected: then two runs of degree/2 consecutive devices are missing, at any of C(n, 2) pairs of places.
    Liveness fails if some device has fewer than `threshold` neighbours left.

    >>> [round(bits, 1) for bits in failure_bits(1000, 48, 27, 100, 100)]
    [42.7, 24.7]
    """
    missing = colluders + dropouts
    exposed = cohort * _tail(cohort - 1, colluders, degree, threshold)
    torn = comb(cohort, 2) * Fraction(comb(missing, degree), comb(cohort, degree))
    stuck = cohort * _tail(cohort - 1, dropouts, degree, degree - threshold + 1)
    return _bits(exposed + torn), _bits(stuck)


def require_private(secure: SecureSum, cohort: int) -> None:
    """Raise a PlanError if a cohort of this size could be torn or exposed on the plan's sparse graph."""
    if secure.neighbours is None:
        return
    privacy, _ = failure_bits(
        cohort, secure.neighbours, secure.threshold, secure.colluders, cohort - secure.smallest_sum
    )
    if privacy < PRIVACY_BITS:
        raise PlanError(
            "CH205",
            f"{secure.neighbours} neighbours and a threshold of {secure.threshold} give {max(privacy, 0):.1f} bits "
            f"of privacy in a cohort of {cohort:,}; {PRIVACY_BITS} are needed.",
            fix=f"Use choral.run.planning.sparse({cohort}), or a complete graph.",
        )
