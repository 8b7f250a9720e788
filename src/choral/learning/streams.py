"""Streams of random words, one for each purpose, round and device: from a seed in simulations, else from the system.

A word of a simulation depends on (seed, purpose, round, device, position) alone, never on the order in which devices
are drawn, on how many there are or on how they are chunked.
"""

import hashlib
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Purpose = Literal["batches", "noise", "dither", "update noise"]
Words = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(words: Words) -> Words:
    """SplitMix64's finaliser (Steele, Lea & Flood 2014), in place: a bijection of 64 bits in which each bit counts."""
    shifted = words >> np.uint64(30)  # one array for all shifts: fresh memory costs more than the arithmetic
    for shift, factor in ((27, 0xBF58476D1CE4E5B9), (31, 0x94D049BB133111EB)):
        words ^= shifted
        words *= np.uint64(factor)
        np.right_shift(words, np.uint64(shift), out=shifted)
    words ^= shifted
    return words


def keys(seed: int, purpose: Purpose, round_: int, devices: NDArray[np.integer]) -> Words:
    """One 64-bit key for each device in this round, for this purpose only.

    >>> bool(keys(1, "noise", 0, np.array([5]))[0] == keys(1, "noise", 0, np.array([3, 5]))[1])
    True
    """
    first, second = seed_words(seed, purpose, round_)
    return _mix(_mix(devices.astype(np.uint64) * _GOLDEN + first) + second)


def seed_words(seed: int, purpose: Purpose, round_: int) -> Words:
    """The two words that the keys of a round are made of, for one purpose.

    >>> seed_words(1, "noise", 0).shape
    (2,)
    """
    digest = hashlib.sha256(f"choral/1|{seed}|{purpose}|{round_}".encode()).digest()
    return np.frombuffer(digest[:16], dtype="<u8").astype(np.uint64)


def words(key: Words, places: NDArray[np.integer]) -> Words:
    """The words at these places of each key's stream; key and places are broadcast.

    >>> words(np.array([[1], [2]], dtype=np.uint64), np.arange(3)).shape
    (2, 3)
    """
    return _mix(key + (places.astype(np.uint64) + np.uint64(1)) * _GOLDEN)


def jump(key: Words, places: NDArray[np.integer]) -> Words:
    """Keys whose streams begin so many places later.

    >>> bool(words(jump(np.uint64([7]), np.array([5])), np.array([1])) == words(np.uint64([7]), np.array([6])))
    True
    """
    return key + places.astype(np.uint64) * _GOLDEN


def secure_words(shape: tuple[int, ...]) -> Words:
    """Words that nobody can predict: AES-256 in counter mode under a key that the operating system just made.

    >>> secure_words((2, 3)).shape
    (2, 3)
    """
    import os

    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    drawn = np.zeros(shape, dtype=np.uint64)
    stream = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(drawn.tobytes()), dtype=np.uint64).reshape(shape).copy()
