"""Noise that is whole from the start: discrete Gaussian and Skellam integers, added on the grid before masking.

For the strict mode: what is clipped is rounded, and only then given its noise, so that no float carries noise and leaks
through its low bits (Mironov 2012). Samplers only; randomness is a keystream, given as an argument.
"""

from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from choral.core.masks import Stream
from choral.core.plan import Law, require_one_of, require_whole

Integers = NDArray[np.int64]
Unsigned = NDArray[np.uint64]
Flags = NDArray[np.bool_]

LARGEST_SCALE: dict[Law, int] = {"discrete_gaussian": 2**20, "skellam": 2**12}  # the most deviation, in grid steps
_TRIALS = 32 * 1024  # at a time: few enough that every pass over them stays in the cache
_TABLE_BITS = 128
TABLE_VARIANCE = 2**18  # of one table, which takes half a second to make; larger variances are sums


def below(bound: int, count: int, stream: Stream) -> Unsigned:
    """Uniform integers in [0, bound), exactly: words of the last, incomplete stretch are drawn again."""
    drawn = stream.words(count, 64).copy()
    fair = np.uint64(2**64 - 1 - 2**64 % bound)
    while (again := np.flatnonzero(drawn > fair)).size:
        drawn[again] = stream.words(again.size, 64)
    return drawn % np.uint64(bound)


def exp_coins(top: Unsigned, bottom: int, stream: Stream) -> Flags:
    """True with chance exp(−γ), γ = top/bottom ≤ 1, exactly.

    Bernoulli(γ/1), Bernoulli(γ/2), … succeed an even number of times before the first failure with that chance.
    """
    even = np.ones(top.size, bool)
    going, turn = np.arange(top.size), 1
    while going.size:
        going = going[below(bottom * turn, going.size, stream) < top[going]]
        even[going] ^= True
        turn += 1
    return even


def _e_coins(count: int, stream: Stream) -> Flags:
    """True with chance 1/e."""
    return exp_coins(np.ones(count, np.uint64), 1, stream)


def laplace(trials: int, scale: int, stream: Stream) -> Integers:
    """Integers with chance ∝ exp(−|y|/scale): those of so many trials that pass."""
    size = below(scale, trials, stream)
    size = size[exp_coins(size, scale, stream)].astype(np.int64)
    going = np.arange(size.size)
    while (going := going[_e_coins(going.size, stream)]).size:
        size[going] += scale
    negative = stream.words(size.size, 16) % 2 == 1
    once: Integers = np.where(negative, -size, size)[~(negative & (size == 0))]  # zero has no sign: half of it goes
    return once


def exp_coins_beyond_one(top: Unsigned, bottom: int, stream: Stream) -> Flags:
    """True with chance exp(−top/bottom), any top: 1/e for every whole part, then the rest."""
    whole, rest = np.divmod(top, np.uint64(bottom))
    accepted = exp_coins(rest, bottom, stream)
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
    require_whole("scale", scale, most=LARGEST_SCALE["discrete_gaussian"])
    found, missing = [np.empty(0, np.int64)], count
    while missing > 0:
        drawn = laplace(min(2 * missing, _TRIALS) + 64, scale, stream)
        # A draw of |y| > 2^31 σ would overflow the square; its chance is e^(−2^31).
        excess = ((np.abs(drawn) - scale) ** 2).astype(np.uint64)
        found.append(drawn[exp_coins_beyond_one(excess, 2 * scale * scale, stream)][:missing])
        missing -= found[-1].size
    return np.concatenate(found)


@lru_cache(maxsize=8)
def poisson_table(mean: Decimal) -> tuple[int, Unsigned, Unsigned]:
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


def poisson(mean: Decimal, count: int, stream: Stream) -> Integers:
    """Poisson integers by inversion of a table of 128 bits: each chance is off by at most 2^-128."""
    first, high, low = poisson_table(mean)
    drawn = stream.words(count, 64)
    place = np.searchsorted(high, drawn, side="left")
    last = np.searchsorted(high, drawn, side="right")
    for i in np.flatnonzero(place != last):  # the high words are equal: 64 more bits decide
        place[i] += np.searchsorted(low[place[i] : last[i]], stream.words(1, 64)[0], side="right")
    return place.astype(np.int64) + first


def skellam(variance: int, count: int, stream: Stream) -> Integers:
    """Differences of Poisson integers, of this variance in all; within 2^-103 of the true law in total variation.

    >>> float(skellam(16, 10_000, Stream(bytes(32))).std().round(1))
    4.0
    """
    require_whole("variance", variance, most=LARGEST_SCALE["skellam"] ** 2)
    parts = -(-variance // TABLE_VARIANCE)  # a sum of Skellam integers is Skellam, exactly
    total = np.zeros(count, np.int64)
    for part in range(parts):
        mean = Decimal((variance + part) // parts) / 2
        total += poisson(mean, count, stream)
        total -= poisson(mean, count, stream)
    return total


def draw(law: Law, scale: int, count: int, stream: Stream) -> Integers:
    """So many whole numbers of a law with this standard deviation."""
    require_one_of("law", law, tuple(_SAMPLERS))
    return _SAMPLERS[law](scale, count, stream)


_SAMPLERS: dict[Law, Callable[[int, int, Stream], Integers]] = {
    "discrete_gaussian": discrete_gaussian,
    "skellam": lambda scale, count, stream: skellam(scale * scale, count, stream),
}
