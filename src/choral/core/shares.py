"""Shamir's sharing of a round's self secrets over the prime field of 2^256 − 189. Knows bytes only.

Points are small integers, so polynomials are evaluated without a reduction at each step: the numbers grow by a few
bits a step and are reduced once.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod

import numpy as np

from choral.core.errors import SumError
from choral.core.keys import digest

PRIME = 2**256 - 189
SHARE_SIZE = 32
LARGEST_POINT = 2**20
SUBSETS = 256  # so many sets of shares are tried: enough for any two wrong ones of nine where seven are needed

Random = Callable[[int], bytes]


def _element(data: bytes, what: str) -> int:
    value = int.from_bytes(data, "little")
    if len(data) != SHARE_SIZE or value >= PRIME:
        raise SumError("CH500", f"{what} is not an element of the field.")
    return value


def fresh_secret(random: Random = os.urandom) -> bytes:
    """A uniform element of the field, in 32 bytes.

    >>> len(fresh_secret())
    32
    """
    while True:  # the chance of a second turn is 2^-248
        data = random(SHARE_SIZE)
        if int.from_bytes(data, "little") < PRIME:
            return data


def commitment(secret: bytes, context: bytes, id: str) -> bytes:
    """What a device publishes of its self secret, so that wrong shares are noticed when it is opened."""
    return digest("commitment", context, id.encode(), secret)


def split(secret: bytes, threshold: int, points: Sequence[int], random: Random = os.urandom) -> list[bytes]:
    """One share a point; any `threshold` of them give the secret back, fewer tell nothing.

    >>> shares = split(bytes(32), 2, [1, 2, 3])
    >>> join({1: shares[0], 3: shares[2]}, 2) == bytes(32)
    True
    """
    _check(threshold, points)
    tail = [int.from_bytes(fresh_secret(random), "little") for _ in range(threshold - 1)]
    constant = _element(secret, "a secret")
    shares = []
    for point in points:
        value = 0
        for coefficient in tail:
            value = value * point + coefficient
        shares.append(((value * point + constant) % PRIME).to_bytes(SHARE_SIZE, "little"))
    return shares


def join(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret, from the shares at the `threshold` smallest points; SumError if there are fewer."""
    if len(shares) < threshold:
        raise SumError("CH503", f"{len(shares)} shares of a self mask are there, {threshold} are needed.")
    points = tuple(sorted(shares)[:threshold])
    _check(threshold, points)
    values = (_element(shares[point], "a share") for point in points)
    total = sum(weight * value for weight, value in zip(_weights(points), values, strict=True))
    return (total % PRIME).to_bytes(SHARE_SIZE, "little")


def recover(shares: Mapping[int, bytes], threshold: int, accepts: Callable[[bytes], bool]) -> bytes | None:
    """The secret that the check accepts, from the first set of shares that gives it; None if no tried set does.

    The smallest points come first, then sets that a hash chooses: no secret depends on which, and they are the same
    every time.

    >>> shares = dict(enumerate(split(bytes(32), 2, [1, 2, 3]), start=1))
    >>> recover(shares | {1: b"x" * 32}, 2, lambda secret: secret == bytes(32)) == bytes(32)
    True
    """
    points = sorted(point for point, share in shares.items() if int.from_bytes(share, "little") < PRIME)
    if len(points) < threshold:
        return None
    for attempt in range(SUBSETS if len(points) > threshold else 1):
        chosen = _shuffled(points, attempt)[:threshold] if attempt else points
        secret = join({point: shares[point] for point in chosen}, threshold)
        if accepts(secret):
            return secret
    return None


def _shuffled(points: Sequence[int], attempt: int) -> list[int]:
    return sorted(points, key=lambda point: hashlib.sha256(b"%d %d" % (attempt, point)).digest())


def _check(threshold: int, points: Sequence[int]) -> None:
    if not 1 <= threshold <= len(points):
        raise SumError("CH500", f"a threshold of {threshold} for {len(points)} shares.")
    if len(set(points)) != len(points) or min(points) < 1 or max(points) > LARGEST_POINT:
        # The share at point 0 would be the secret itself.
        raise SumError("CH500", f"share points must be distinct, from 1 to {LARGEST_POINT:,}.")


@lru_cache(maxsize=4096)
def _weights(points: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's weights at zero; a cohort on a complete graph uses few different sets of points.

    All are inverted together: an inverse costs as much as a hundred products.
    """
    places = np.array(points, np.int64)
    factors = places - places[:, None]
    np.fill_diagonal(factors, places)
    # Points are at most 2^20, so three factors are multiplied in 64 bits, and only what they give in long numbers.
    threes = np.multiply.reduceat(factors, range(0, len(points), 3), axis=1)
    bottoms = [prod(row) % PRIME for row in threes.tolist()]
    before = list(accumulate(bottoms, lambda total, bottom: total * bottom % PRIME, initial=1))
    rest, weights = prod(points) * pow(before.pop(), -1, PRIME) % PRIME, []
    for bottom, product in zip(reversed(bottoms), reversed(before), strict=True):
        weights.append(rest * product % PRIME)
        rest = rest * bottom % PRIME
    return tuple(reversed(weights))
