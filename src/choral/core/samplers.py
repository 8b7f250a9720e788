"""Noise that is whole from the start: discrete Gaussian integers, added on the grid before masking.

For the strict mode: what is clipped is rounded, and only then given its noise, so that no float carries noise and leaks
through its low bits (Mironov 2012). Samplers only; randomness is a keystream, given as an argument.
"""

import numpy as np
from numpy.typing import NDArray

from choral.core.masks import Stream
from choral.core.plan import AnyLaw, require_one_of, require_whole

Integers = NDArray[np.int64]
Unsigned = NDArray[np.uint64]
Flags = NDArray[np.bool_]

LARGEST_SCALE: dict[AnyLaw, int] = {"discrete_gaussian": 2**20, "skellam": 2**12}  # the most deviation, in grid steps
_TRIALS = 32 * 1024  # at a time: few enough that every pass over them stays in the cache


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


def draw(law: AnyLaw, scale: int, count: int, stream: Stream) -> Integers:
    """So many whole numbers of a law with this standard deviation."""
    require_one_of("law", law, ("discrete_gaussian",))
    return discrete_gaussian(scale, count, stream)
