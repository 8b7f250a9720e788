"""Shamir's sharing of a round's self secrets over the prime field of 2^256 − 189. Knows bytes only.

Points are small integers, so polynomials are evaluated without a reduction at each step: the numbers grow by a few
bits a step and are reduced once.
"""

import os
from collections.abc import Callable, Sequence

from choral.core.errors import SumError
from choral.core.keys import digest

PRIME = 2**256 - 189
SHARE_SIZE = 32
LARGEST_POINT = 2**20

Random = Callable[[int], bytes]


def element(data: bytes, what: str) -> int:
    """The number of the field that these bytes are, or CH500."""
    value = int.from_bytes(data, "little")
    if len(data) != SHARE_SIZE or value >= PRIME:
        raise SumError("CH500", f"{what} is not an element of the field.")
    return value


def fresh_secret(random: Random = os.urandom) -> bytes:
    """A uniform element of the field, in 32 bytes."""
    while True:  # the chance of a second turn is 2^-248
        data = random(SHARE_SIZE)
        if int.from_bytes(data, "little") < PRIME:
            return data


def commitment(secret: bytes, context: bytes, id: str) -> bytes:
    """Give what a device publishes of its self secret, so that wrong shares are noticed when it is opened."""
    return digest("commitment", context, id.encode(), secret)


def split(secret: bytes, threshold: int, points: Sequence[int], random: Random = os.urandom) -> list[bytes]:
    r"""One share a point; any `threshold` of them give the secret back, fewer tell nothing.

    >>> [share.hex()[:4] for share in split(bytes(32), 2, [1, 2], lambda size: b"\1" + bytes(size - 1))]
    ['0100', '0200']
    """
    check_points(threshold, points)
    tail = [int.from_bytes(fresh_secret(random), "little") for _ in range(threshold - 1)]
    constant = element(secret, "a secret")
    shares = []
    for point in points:
        value = 0
        for coefficient in tail:
            value = value * point + coefficient
        shares.append(((value * point + constant) % PRIME).to_bytes(SHARE_SIZE, "little"))
    return shares


def check_points(threshold: int, points: Sequence[int]) -> None:
    """Raise CH500 for points that can't hold shares."""
    if not 1 <= threshold <= len(points):
        raise SumError("CH500", f"a threshold of {threshold} for {len(points)} shares.")
    if len(set(points)) != len(points) or min(points) < 1 or max(points) > LARGEST_POINT:
        # The share at point 0 would be the secret itself.
        raise SumError("CH500", f"share points must be distinct, from 1 to {LARGEST_POINT:,}.")
