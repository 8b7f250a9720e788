"""Noise that is whole from the start: discrete Gaussian and Skellam integers, added on the grid before masking.

The strict mode: an update is clipped, rounded, and only then given its noise, so that no float carries noise and leaks
through its low bits (Mironov 2012), and rule S6 is not needed. Randomness is a keystream, given as an argument.
"""

import math
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from choral.errors import PlanError
from choral.plan import SecureSum, require_number, require_whole
from choral.secagg.codec import CHUNK, FLOAT_BITS, Codec
from choral.secagg.masks import Stream

Integers = NDArray[np.int64]
Unsigned = NDArray[np.uint64]
Flags = NDArray[np.bool_]

LARGEST_SCALE = 2**20
_TABLE_BITS = 128


def _below(bound: int, count: int, stream: Stream) -> Unsigned:
    """Uniform integers in [0, bound), exactly: words of the last, incomplete stretch are drawn again."""
    drawn = stream.words(count, 64).copy()
    fair = np.uint64(2**64 - 1 - 2**64 % bound)
    while (again := np.flatnonzero(drawn > fair)).size:
        drawn[again] = stream.words(again.size, 64)
    return drawn % np.uint64(bound)


def _exp_coins(top: Unsigned, bottom: int, stream: Stream) -> Flags:
    """True with chance exp(−γ), γ = top/bottom ≤ 1, exactly.

    Bernoulli(γ/1), Bernoulli(γ/2), … succeed an even number of times before the first failure with that chance.
    """
    even = np.ones(top.size, bool)
    going, turn = np.arange(top.size), 1
    while going.size:
        going = going[_below(bottom * turn, going.size, stream) < top[going]]
        even[going] ^= True
        turn += 1
    return even


def _e_coins(count: int, stream: Stream) -> Flags:
    """True with chance 1/e."""
    return _exp_coins(np.ones(count, np.uint64), 1, stream)


def _laplace(trials: int, scale: int, stream: Stream) -> Integers:
    """Integers with chance ∝ exp(−|y|/scale): those of so many trials that pass."""
    size = _below(scale, trials, stream)
    size = size[_exp_coins(size, scale, stream)].astype(np.int64)
    going = np.arange(size.size)
    while (going := going[_e_coins(going.size, stream)]).size:
        size[going] += scale
    negative = stream.words(size.size, 16) % 2 == 1
    once: Integers = np.where(negative, -size, size)[~(negative & (size == 0))]  # zero has no sign: half of it goes
    return once


def _accepted(top: Unsigned, bottom: int, stream: Stream) -> Flags:
    """True with chance exp(−top/bottom), any top: 1/e for every whole part, then the rest."""
    whole, rest = np.divmod(top, np.uint64(bottom))
    accepted = _exp_coins(rest, bottom, stream)
    going = np.flatnonzero(accepted & (whole > 0))
    while going.size:
        stays = _e_coins(going.size, stream)
        accepted[going[~stays]] = False
        going = going[stays]
        whole[going] -= np.uint64(1)
        going = going[whole[going] > 0]
    return accepted


def discrete_gaussian(scale: int, count: int, stream: Stream) -> Integers:
    """Integers with chance ∝ exp(−y²/2σ²), exactly: whole-number arithmetic on random bits (CKS 2020, Alg. 3).

    `scale` is σ, a whole number of grid steps.

    >>> float(discrete_gaussian(4, 10_000, Stream(bytes(32))).std().round(1))
    4.0
    """
    require_whole("scale", scale, most=LARGEST_SCALE)
    found, missing = [np.empty(0, np.int64)], count
    while missing > 0:
        drawn = _laplace(min(2 * missing, CHUNK) + 64, scale, stream)
        # A draw of |y| > 2^31 σ would overflow the square; its chance is e^(−2^31).
        excess = ((np.abs(drawn) - scale) ** 2).astype(np.uint64)
        found.append(drawn[_accepted(excess, 2 * scale * scale, stream)][:missing])
        missing -= found[-1].size
    return np.concatenate(found)


@lru_cache(maxsize=8)
def _poisson_table(mean: Decimal) -> tuple[int, Unsigned, Unsigned]:
    """(k₀, high words, low words) of ⌊2^128 · P[N ≤ k]⌋ for k = k₀, k₀ + 1, … where it is neither 0 nor full."""
    full = 2**_TABLE_BITS
    with localcontext(prec=70, Emin=-(10**9), Emax=10**9):
        chance = total = (-mean).exp()
        first, entries, k = 0, [int(total * full)], 0
        while entries[-1] < full - 1:
            k += 1
            chance = chance * mean / k
            total += chance
            if chance * full * full < 1 and k > mean:  # nothing that is left could move a word
                break
            if entries[-1] == 0:
                first, entries = k, []
            entries.append(min(int(total * full), full - 1))
    words = np.array([divmod(entry, 2**64) for entry in entries], np.uint64)
    return first, words[:, 0].copy(), words[:, 1].copy()


def _poisson(mean: Decimal, count: int, stream: Stream) -> Integers:
    """Poisson integers by inversion of a table of 128 bits: each chance is off by at most 2^-128."""
    first, high, low = _poisson_table(mean)
    drawn = stream.words(count, 64)
    place = np.searchsorted(high, drawn, side="left")
    last = np.searchsorted(high, drawn, side="right")
    for i in np.flatnonzero(place != last):  # the high words are equal: 64 more bits decide
        place[i] += np.searchsorted(low[place[i] : last[i]], stream.words(1, 64)[0], side="right")
    return place.astype(np.int64) + first


def skellam(variance: int, count: int, stream: Stream) -> Integers:
    """The difference of two Poisson integers of mean variance/2; within 2^-110 of the true law in total variation.

    >>> float(skellam(16, 10_000, Stream(bytes(32))).std().round(1))
    4.0
    """
    require_whole("variance", variance, most=LARGEST_SCALE)
    mean = Decimal(variance) / 2
    return _poisson(mean, count, stream) - _poisson(mean, count, stream)


def strict_codec(
    secure: SecureSum, *, clip: float, noise: float, dimensions: int, rounds: int, failure: float = 2.0**-40
) -> Codec:
    """The codec of the strict mode: updates clipped to `clip` as a whole, then whole noise of at least `noise` each.

    `noise_in_grid` is the whole number σ for `discrete_gaussian`, rounded up; `skellam` takes its square. The tail is
    Bernstein's for Skellam, which also covers the discrete Gaussian's.

    >>> codec = strict_codec(SecureSum.for_cohort(10), clip=1.0, noise=0.1, dimensions=1000, rounds=20)
    >>> codec.noise_in_grid * codec.grid >= 0.1
    True
    """
    require_number("clip", clip)
    require_number("noise", noise)
    require_number("failure", failure, below=1.0)
    nats = math.log(2 * max(dimensions, 1) * secure.cohort * rounds / failure)
    room = 2 ** min(secure.value_bits - 1, FLOAT_BITS) - 1
    # P[|noise| > t] ≤ 2 exp(−t²/2(σ² + t/3)) holds for t = σ√(2x) + 2x/3; rounding and σ's rounding up cost steps.
    steps = math.sqrt(2 * nats)
    spare = room - (2 + math.ceil(steps + 2 * nats / 3))
    grid = 2.0 ** math.frexp((clip + noise * steps) / max(spare, 1))[1]
    scale = math.ceil(noise / grid)
    if spare < 1 or scale > LARGEST_SCALE or noise < grid:
        raise PlanError(
            "CH204",
            f"{secure.value_bits} bits for a value can't hold a clip of {clip:g} with noise of {noise:g}.",
            fix="Use a larger modulus, one lane, a smaller cohort, or more noise for this clip.",
        )
    largest = math.ceil(clip / grid + 1 + scale * steps + 2 * nats / 3)
    return Codec(
        grid=grid,
        largest=largest,
        cohort=secure.cohort,
        word_bits=secure.modulus_bits,
        lanes=secure.lanes,
        failure=failure,
        noise_in_grid=float(scale),
    )
