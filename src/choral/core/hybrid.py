"""What two devices agree on with keys that are made for it and then erased: X25519 and ML-KEM-768 together.

The result is secret while either of the two holds. Knows bytes only.
"""

import os
from functools import cache, cached_property
from typing import Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from choral.core.errors import TrustError
from choral.core.keys import KEY_SIZE, digest, framed

HYBRID = "x25519+ml-kem-768"  # as a card offers it
SEED_SIZE = 64
PUBLIC_SIZE = KEY_SIZE + 1184
WRAPPED_SIZE = 1088


@cache
def available() -> bool:
    """Whether the installed cryptography has ML-KEM-768: releases from 48 on do, over OpenSSL 3.5 or later.

    >>> available()
    True
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

        MLKEM768PrivateKey.from_seed_bytes(bytes(SEED_SIZE))
    except (ImportError, UnsupportedAlgorithm):
        return False
    return True


def require_available() -> None:
    """Nothing, or CH611 where ML-KEM-768 can't be had.

    >>> require_available()
    """
    if not available():
        raise TrustError(
            "CH611",
            "the installed cryptography has no ML-KEM-768, which this study's keys need.",
            fix="Install cryptography 48 or later, built with OpenSSL 3.5 or later: pip install -U cryptography.",
        )


def _false_key() -> TrustError:
    return TrustError(
        "CH613", "a device offers an invalid key, or one of small order.", fix="The device drops out of this turn."
    )


class HybridKey:
    """The private half of an offer; it lives in memory, for one agreement, and is never written down.

    >>> a, b = HybridKey.fresh(), HybridKey.fresh()
    >>> wrapped, inner = a.wrap(b.public)
    >>> b.unwrap(wrapped) == inner
    True
    """

    def __init__(self, secret: bytes) -> None:
        require_available()
        from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

        if len(secret) != KEY_SIZE + SEED_SIZE:
            raise TrustError("CH600", f"a hybrid key has {len(secret)} bytes, not {KEY_SIZE + SEED_SIZE}.")
        self._agreement = X25519PrivateKey.from_private_bytes(secret[:KEY_SIZE])
        self._kem = MLKEM768PrivateKey.from_seed_bytes(secret[KEY_SIZE:])

    @classmethod
    def fresh(cls) -> Self:
        """A new key from the operating system's randomness."""
        return cls(os.urandom(KEY_SIZE + SEED_SIZE))

    def __repr__(self) -> str:
        return "HybridKey()"

    @cached_property
    def public(self) -> bytes:
        """What others need of it: the X25519 key, then the ML-KEM-768 key."""
        return self._agreement.public_key().public_bytes_raw() + self._kem.public_key().public_bytes_raw()

    def wrap(self, peer: bytes) -> tuple[bytes, bytes]:
        """A ciphertext for the owner of this public key, and the secret inside it; CH613 if it is none."""
        from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey

        try:
            inner, wrapped = MLKEM768PublicKey.from_public_bytes(peer[KEY_SIZE:]).encapsulate()
        except ValueError:
            raise _false_key() from None
        return wrapped, inner

    def unwrap(self, wrapped: bytes) -> bytes:
        """The secret inside a ciphertext; one that was made for another key gives a secret that nobody else has."""
        try:
            return self._kem.decapsulate(wrapped)
        except ValueError:
            raise TrustError(
                "CH613", f"a ciphertext has {len(wrapped)} bytes.", fix="The device drops out of this turn."
            ) from None

    def shared(self, peer: bytes) -> bytes:
        """The X25519 half with the owner of this public key, or CH613 for a key of small order."""
        try:
            return self._agreement.exchange(X25519PublicKey.from_public_bytes(peer[:KEY_SIZE]))
        except ValueError:
            raise _false_key() from None


def check_public(key: bytes) -> None:
    """Nothing, or CH613 for what no honest device offers.

    >>> check_public(HybridKey.fresh().public)
    """
    tried = HybridKey(bytes(KEY_SIZE + SEED_SIZE))  # nothing secret: only whether the key can be used
    tried.wrap(key)
    tried.shared(key)


def pair_roots(
    shared: bytes, inner: bytes, *, low: tuple[str, bytes], high: tuple[str, bytes], wrapped: bytes, session: bytes
) -> tuple[bytes, bytes]:
    """The two roots of a pair, for rounds and for questions: from both secrets, bound to all that was exchanged.

    `low` and `high` are the ids with their public keys; the lower id made the ciphertext. Both secrets have 32 bytes,
    so that one after the other they can be read in one way only.

    >>> a, b = HybridKey.fresh(), HybridKey.fresh()
    >>> wrapped, inner = a.wrap(b.public)
    >>> seen = {"low": ("a", a.public), "high": ("b", b.public), "wrapped": wrapped, "session": b"trial"}
    >>> pair_roots(a.shared(b.public), inner, **seen) == pair_roots(b.shared(a.public), b.unwrap(wrapped), **seen)
    True
    """
    info = framed("hybrid pair", low[0].encode(), high[0].encode(), low[1], high[1], wrapped)
    salt = digest("session", session)
    roots = HKDF(algorithm=SHA256(), length=2 * KEY_SIZE, salt=salt, info=info).derive(shared + inner)
    return roots[:KEY_SIZE], roots[KEY_SIZE:]
