"""The opening of self secrets: envelopes by their own keys, and shares at a threshold of points. Knows bytes only."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from choral.core.errors import SumError, TrustError
from choral.core.keys import NONCE_SIZE, bound_to
from choral.core.shares import PRIME, SHARE_SIZE, check_points, element

SUBSETS = 256  # so many sets of shares are tried: enough for any two wrong ones of nine where seven are needed


def unseal(key: bytes, context: bytes, sender: str, receiver: str, envelope: bytes) -> bytes:
    """Give what the sender sealed for the receiver in this round, by the envelope's own key, or a TrustError.

    >>> from choral.core.keys import Identity, envelope_key, seal
    >>> a, b = Identity.fresh("a"), Identity.fresh("b")
    >>> envelope = seal(a.pair(b.bundle, b"trial"), b"round 1", b"share")
    >>> key = envelope_key(b.pair(a.bundle, b"trial").opens, b"round 1")
    >>> unseal(key, b"round 1", "a", "b", envelope)
    b'share'
    """
    nonce, sealed = envelope[:NONCE_SIZE], envelope[NONCE_SIZE:]
    try:
        return AESGCM(key).decrypt(nonce, sealed, bound_to(context, sender, receiver))
    except (InvalidTag, ValueError):
        raise TrustError("CH606", f'an envelope from device "{sender}" does not open in this round.') from None


def join(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret, from the shares at the `threshold` smallest points; SumError if there are fewer."""
    if len(shares) < threshold:
        raise SumError("CH503", f"{len(shares)} shares of a self mask are there, {threshold} are needed.")
    points = tuple(sorted(shares)[:threshold])
    check_points(threshold, points)
    values = (element(shares[point], "a share") for point in points)
    total = sum(weight * value for weight, value in zip(_weights(points), values, strict=True))
    return (total % PRIME).to_bytes(SHARE_SIZE, "little")


def recover(shares: Mapping[int, bytes], threshold: int, accepts: Callable[[bytes], bool]) -> bytes | None:
    """The secret that the check accepts, from the first set of shares that gives it; None if no tried set does.

    The smallest points come first, then sets that a hash chooses: no secret depends on which, and they are the same
    every time.

    >>> from choral.core.shares import split
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
