"""Identities, signed bundles, rosters and what two devices agree on once. Knows bytes only.

Every derivation starts with a versioned label and frames its fields by length, so that no two of them can meet.
"""

import hashlib
import hmac
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from struct import Struct
from typing import Self

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from choral.core.errors import TrustError

KEY_SIZE = 32
NONCE_SIZE = 12
FINGERPRINT_SIZE = 16
LONGEST_ID = 64
MOST_OFFERS = 8
_LENGTH = Struct("<Q")
_FIELD = 2**255 - 19  # of Curve25519
_ANY = X25519PrivateKey.from_private_bytes(bytes(KEY_SIZE))  # a scalar to try points with; nothing secret
_GROUPS = 12  # of five digits: 12 × log2(10^5) = 199 bits, read aloud in half a minute


def framed(label: str, *fields: bytes) -> bytes:
    """The fields after a versioned label, each behind its length in 8 bytes: different fields never read the same.

    >>> framed("x", b"ab", b"c") == framed("x", b"a", b"bc")
    False
    """
    return behind_lengths(b"choral/1 " + label.encode(), *fields)


def behind_lengths(*fields: bytes) -> bytes:
    """Each field behind its length: what a frame ends with after fewer fields.

    >>> framed("x", b"ab") + behind_lengths(b"c", b"d") == framed("x", b"ab", b"c", b"d")
    True
    """
    return b"".join([piece for field in fields for piece in (_LENGTH.pack(len(field)), field)])


@lru_cache(maxsize=16)
def turn_label(label: str, context: bytes) -> bytes:
    """The framed context of a turn, kept: both sides derive and check several keys per pair from it, in every turn.

    >>> turn_label("x", b"ctx") == framed("x", b"ctx")
    True
    """
    return framed(label, context)


def digest(label: str, *fields: bytes) -> bytes:
    """SHA-256 of the framed fields.

    >>> digest("x").hex()[:8]
    'a84dd4ce'
    """
    return hashlib.sha256(framed(label, *fields)).digest()


def safety_number(data: bytes) -> str:
    """Twelve groups of five digits that two people compare by phone.

    >>> safety_number(b"roster")[:17]
    '92959 56116 43728'
    """
    wide = hashlib.sha512(framed("safety number", data)).digest()
    return " ".join(f"{int.from_bytes(wide[5 * i : 5 * i + 5], 'big') % 100_000:05}" for i in range(_GROUPS))


def check_name(name: str) -> None:
    """Nothing, or a TrustError for a name that no roster takes; bytes that are no UTF-8 can't be printed either.

    >>> check_name("site-a")
    """
    if not name.isprintable() or not 0 < len(name.encode()) <= LONGEST_ID:
        raise TrustError(
            "CH600",
            f"a device's name has {len(name):,} characters, or some that can't be printed.",
            fix=f"Choose one of 1 to {LONGEST_ID} bytes, all printable.",
        )


def _of_small_order(key: bytes) -> bool:
    """Whether an agreement with this key comes to nothing: every scalar of X25519 is a multiple of 8."""
    try:
        _ANY.exchange(X25519PublicKey.from_public_bytes(key))
    except ValueError:
        return True
    return False


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """What a device shows of itself: its id, its two public keys, and the identity's signature over all of it.

    `offers` names the ways to agree on keys that it knows in addition to the two keys here; it has none before 0.2.
    """

    id: str
    identity: bytes
    agreement: bytes
    signature: bytes
    offers: tuple[str, ...] = ()

    @property
    def signed(self) -> bytes:
        """The bytes under the signature."""
        offers = (offer.encode() for offer in self.offers)
        return framed("bundle", self.id.encode(), self.identity, self.agreement, *offers)

    @property
    def safety_number(self) -> str:
        """The digits by which people know this device."""
        return safety_number(self.signed)

    def verify(self) -> None:
        """Nothing, or a TrustError if the form or the signature is wrong."""
        check_name(self.id)
        sizes = (len(self.identity), len(self.agreement), len(self.signature))
        height = int.from_bytes(self.identity, "little") % 2**255  # the rest is a sign
        if (
            sizes != (KEY_SIZE, KEY_SIZE, 64)
            or int.from_bytes(self.agreement, "little") >= _FIELD  # a second way to write some other device's key
            or height >= _FIELD
            or len(self.offers) > MOST_OFFERS
            or not all(offer.isprintable() and 0 < len(offer.encode()) <= LONGEST_ID for offer in self.offers)
        ):
            raise TrustError(
                "CH600", "a device's bundle has the wrong form.", fix="Make the bundle again on the device."
            )
        self._check_orders(height)
        try:
            Ed25519PublicKey.from_public_bytes(self.identity).verify(self.signature, self.signed)
        except InvalidSignature:
            raise TrustError(
                "CH606",
                f'the signature of device "{self.id}" does not verify.',
                fix="Get its bundle again, from the device itself.",
            ) from None

    def _check_orders(self, height: int) -> None:
        """Nothing, or CH606 for a key of small order: what is agreed with it, everybody knows, or everybody can sign.

        The identity's y is the agreement's u = (1 + y) / (1 - y) on the same curve; the neutral element has none.
        """
        as_agreement = (1 + height) * pow(1 - height, -1, _FIELD) % _FIELD if height != 1 else 0
        keys = {"an agreement": self.agreement, "an identity": as_agreement.to_bytes(KEY_SIZE, "little")}
        for name, key in keys.items():
            if _of_small_order(key):
                raise TrustError(
                    "CH606", f'device "{self.id}" shows {name} key of small order.', fix="Leave this device out."
                )

    def check(self, signature: bytes, label: str, *fields: bytes) -> None:
        """Nothing if this device signed the framed fields, else a TrustError."""
        try:
            Ed25519PublicKey.from_public_bytes(self.identity).verify(signature, framed(label, *fields))
        except (InvalidSignature, ValueError):
            raise TrustError(
                "CH606", f'device "{self.id}" did not sign this {label}.', fix="Get it again, from the device itself."
            ) from None


@dataclass(frozen=True, kw_only=True)
class Roster:
    """The enrolled devices, sorted by id and verified; its digest goes into every round.

    >>> roster = Roster.of(Identity.fresh(name).bundle for name in ("b", "a"))
    >>> [bundle.id for bundle in roster]
    ['a', 'b']
    """

    bundles: tuple[Bundle, ...]

    def __post_init__(self) -> None:
        ids = [bundle.id for bundle in self.bundles]
        if ids != sorted(set(ids)):
            raise TrustError("CH600", "a roster's ids are unsorted or repeated.", fix="Use Roster.of(bundles).")
        # One key under two names would let one device count twice, or agree with itself.
        for name in ("identity", "agreement"):
            if len({getattr(bundle, name) for bundle in self.bundles}) != len(ids):
                raise TrustError(
                    "CH606",
                    f"two devices of the roster have the same {name} key.",
                    fix="Each device makes its own keys: let one of them join again.",
                )
        for bundle in self.bundles:
            bundle.verify()

    @classmethod
    def of(cls, bundles: Iterable[Bundle]) -> Self:
        """The roster of these bundles, in any order."""
        return cls(bundles=tuple(sorted(bundles, key=lambda bundle: bundle.id)))

    def __iter__(self) -> Iterator[Bundle]:
        return iter(self.bundles)

    def __len__(self) -> int:
        return len(self.bundles)

    def __getitem__(self, id: str) -> Bundle:
        """The bundle of this id, or a TrustError."""
        if id not in self._by_id:
            raise TrustError("CH605", f'"{id}" is not in the roster.', fix="Enrol the device, or leave it out.")
        return self._by_id[id]

    @cached_property
    def _by_id(self) -> dict[str, Bundle]:
        return {bundle.id: bundle for bundle in self.bundles}

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over all bundles."""
        return digest("roster", *(bundle.signed + bundle.signature for bundle in self.bundles))

    @property
    def safety_number(self) -> str:
        """The digits by which people know that they hold the same roster."""
        return safety_number(self.digest)


@dataclass(frozen=True, kw_only=True, repr=False)
class PairSecret:
    """What two devices share and nobody else: mask seeds for both directions and a sealing seed for each."""

    own: str
    peer: str
    rising: bytes  # mask seed from the lower id to the higher
    falling: bytes  # derived and kept as in choral 0.2, which could use it; nothing does any more
    seals: bytes  # from own to peer
    opens: bytes  # from peer to own

    def __repr__(self) -> str:
        return f"PairSecret({self.own!r}, {self.peer!r})"

    @property
    def data(self) -> bytes:
        """The four secrets, as a vault keeps them."""
        return self.rising + self.falling + self.seals + self.opens

    @classmethod
    def read(cls, own: str, peer: str, data: bytes) -> Self:
        """What `data` was of."""
        rising, falling, seals, opens = (data[start : start + KEY_SIZE] for start in range(0, 4 * KEY_SIZE, KEY_SIZE))
        return cls(own=own, peer=peer, rising=rising, falling=falling, seals=seals, opens=opens)


class Identity:
    """A device's two private keys; they leave it only through `to_bytes`, for the vault.

    >>> Identity.fresh("site-a")
    Identity('site-a')
    """

    def __init__(self, id: str, secret: bytes, offers: tuple[str, ...] = ()) -> None:
        if len(secret) != 2 * KEY_SIZE:
            raise TrustError("CH600", f"an identity's secret has {len(secret)} bytes, not {2 * KEY_SIZE}.")
        self._secret = secret
        self._agreement = X25519PrivateKey.from_private_bytes(secret[KEY_SIZE:])
        self._signer = signer = Ed25519PrivateKey.from_private_bytes(secret[:KEY_SIZE])
        unsigned = Bundle(
            id=id,
            identity=signer.public_key().public_bytes_raw(),
            agreement=self._agreement.public_key().public_bytes_raw(),
            signature=b"",
            offers=offers,
        )
        self.bundle = replace(unsigned, signature=signer.sign(unsigned.signed))

    @classmethod
    def fresh(cls, id: str) -> Self:
        """A new identity from the operating system's randomness."""
        return cls(id, os.urandom(2 * KEY_SIZE))

    @property
    def id(self) -> str:
        """The device's name in the roster."""
        return self.bundle.id

    def to_bytes(self) -> bytes:
        """Both private keys, for the vault and nothing else."""
        return self._secret

    def has_keys_of(self, bundle: Bundle) -> bool:
        """Whether a bundle, whose signature was checked, shows this device's keys, whatever else it offers.

        >>> Identity("a", bytes(range(64))).has_keys_of(Identity("a", bytes(range(64)), ("more",)).bundle)
        True
        """
        own = self.bundle
        return (own.id, own.identity, own.agreement) == (bundle.id, bundle.identity, bundle.agreement)

    def sign(self, label: str, *fields: bytes) -> bytes:
        """The signature of this device under the framed fields; `Bundle.check` verifies it.

        >>> a = Identity.fresh("a")
        >>> a.bundle.check(a.sign("note", b"seen"), "note", b"seen")
        """
        return self._signer.sign(framed(label, *fields))

    def __repr__(self) -> str:
        return f"Identity({self.id!r})"

    def pair(self, peer: Bundle, session: bytes) -> PairSecret:
        """What this device and a peer, whose bundle was verified, agree on in a session.

        >>> a, b = Identity.fresh("a"), Identity.fresh("b")
        >>> a.pair(b.bundle, b"trial").rising == b.pair(a.bundle, b"trial").rising
        True
        """
        if peer.id == self.id:
            raise TrustError("CH605", f'device "{self.id}" was asked to agree with itself.')
        try:
            shared = self._agreement.exchange(X25519PublicKey.from_public_bytes(peer.agreement))
        except ValueError:  # a point of small order: the result would be all zeros, and known to everybody
            raise TrustError(
                "CH606", f'device "{peer.id}" shows an agreement key of small order.', fix="Leave this device out."
            ) from None
        low, high = sorted((self.bundle, peer), key=lambda bundle: bundle.id)
        info = framed("pair", low.id.encode(), high.id.encode(), low.agreement, high.agreement)
        salt = digest("session", session)
        okm = HKDF(algorithm=SHA256(), length=4 * KEY_SIZE, salt=salt, info=info).derive(shared)
        rising, falling, from_low, from_high = (okm[i : i + KEY_SIZE] for i in range(0, len(okm), KEY_SIZE))
        seals, opens = (from_low, from_high) if low is self.bundle else (from_high, from_low)
        return PairSecret(own=self.id, peer=peer.id, rising=rising, falling=falling, seals=seals, opens=opens)


def without_keys_of(identity: Identity) -> TrustError:
    """The refusal of a roster in which a device does not find its own keys.

    >>> without_keys_of(Identity.fresh("a")).code
    'CH601'
    """
    return TrustError(
        "CH601",
        f'the roster does not hold the keys of device "{identity.id}" as they are.',
        fix="Enrol again; never take part under keys that somebody else made.",
    )


def _bound_to(context: bytes, sender: str, receiver: str) -> bytes:
    return turn_label("envelope", context) + behind_lengths(sender.encode(), receiver.encode())


def envelope_key(seed: bytes, context: bytes) -> bytes:
    """The key of one envelope: from a sealing seed, for one direction of one pair in one turn.

    Who reveals it opens that envelope and nothing else: each key is HMAC(seed, ctx), and ctx never comes back.

    >>> envelope_key(bytes(32), b"round 1") == envelope_key(bytes(32), b"round 2")
    False
    """
    return hmac.digest(seed, turn_label("envelope key", context), "sha256")


def fingerprint(key: bytes, context: bytes) -> bytes:
    """What a device publishes of a key that it may have to reveal: no second key has the same fingerprint.

    >>> len(fingerprint(bytes(32), b"round 1"))
    16
    """
    hashed = _begun(context).copy()
    hashed.update(_LENGTH.pack(len(key)) + key)
    return hashed.digest()[:FINGERPRINT_SIZE]


@lru_cache(maxsize=4)
def _begun(context: bytes) -> "hashlib._Hash":
    """What all fingerprints of a turn begin with, hashed once: a server checks one for every pair."""
    return hashlib.sha256(framed("fingerprint", context))


def seal(pair: PairSecret, context: bytes, data: bytes) -> bytes:
    """The data in an AES-256-GCM envelope that only the peer opens, in this round and this direction only."""
    nonce = os.urandom(NONCE_SIZE)
    key = envelope_key(pair.seals, context)
    return nonce + AESGCM(key).encrypt(nonce, data, _bound_to(context, pair.own, pair.peer))


def unseal(key: bytes, context: bytes, sender: str, receiver: str, envelope: bytes) -> bytes:
    """What the sender sealed for the receiver in this round, by the envelope's own key, or a TrustError.

    >>> a, b = Identity.fresh("a"), Identity.fresh("b")
    >>> envelope = seal(a.pair(b.bundle, b"trial"), b"round 1", b"share")
    >>> key = envelope_key(b.pair(a.bundle, b"trial").opens, b"round 1")
    >>> unseal(key, b"round 1", "a", "b", envelope)
    b'share'
    """
    nonce, sealed = envelope[:NONCE_SIZE], envelope[NONCE_SIZE:]
    try:
        return AESGCM(key).decrypt(nonce, sealed, _bound_to(context, sender, receiver))
    except (InvalidTag, ValueError):
        raise TrustError("CH606", f'an envelope from device "{sender}" does not open in this round.') from None
