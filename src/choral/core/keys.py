"""Identities, signed bundles, rosters, and what two devices agree on: once, or with keys that forget past turns.

Every derivation starts with a versioned label and frames its fields by length, so that no two of them can meet. Keys
that are agreed in a run come from X25519 and ML-KEM-768 together, so they are secret while either holds. Each pair has
a chain over rounds, and within a round a chain over its attempts, that can only be hashed forward. Knows bytes only.
"""

import hashlib
import hmac
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from struct import Struct
from typing import Self

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
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
    """Each field behind its length: what a frame ends with after fewer fields."""
    return b"".join([piece for field in fields for piece in (_LENGTH.pack(len(field)), field)])


@lru_cache(maxsize=16)
def turn_label(label: str, context: bytes) -> bytes:
    """The framed context of a turn, kept: both sides derive and check several keys per pair from it, in every turn."""
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
    """Raise a TrustError for a name that no roster takes; bytes that are no UTF-8 can't be printed either."""
    if not name.isprintable() or not 0 < len(name.encode()) <= LONGEST_ID:
        raise TrustError(
            "CH600",
            f"a device's name has {len(name):,} characters, or some that can't be printed.",
            fix=f"Choose one of 1 to {LONGEST_ID} bytes, all printable.",
        )


def _of_small_order(key: bytes) -> bool:
    """Tell whether an agreement with this key comes to nothing: every scalar of X25519 is a multiple of 8."""
    try:
        _ANY.exchange(X25519PublicKey.from_public_bytes(key))
    except ValueError:
        return True
    return False


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """All that a device shows of itself: its id, its two public keys, and the identity's signature over all of it.

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
        """Raise a TrustError if the form or the signature is wrong."""
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
        """Raise CH606 for a key of small order: what is agreed with it, everybody knows, or everybody can sign.

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
        """Raise a TrustError unless this device signed the framed fields."""
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
    """All that two devices share and nobody else: mask seeds for both directions and a sealing seed for each."""

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
        """Give what `data` was of."""
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
        """Tell whether a bundle, whose signature was checked, shows this device's keys, whatever else it offers."""
        own = self.bundle
        return (own.id, own.identity, own.agreement) == (bundle.id, bundle.identity, bundle.agreement)

    def sign(self, label: str, *fields: bytes) -> bytes:
        """The signature of this device under the framed fields; `Bundle.check` verifies it."""
        return self._signer.sign(framed(label, *fields))

    def __repr__(self) -> str:
        return f"Identity({self.id!r})"

    def pair(self, peer: Bundle, session: bytes) -> PairSecret:
        """Give what this device and a peer, whose bundle was verified, agree on in a session.

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
    """The refusal of a roster in which a device does not find its own keys."""
    return TrustError(
        "CH601",
        f'the roster does not hold the keys of device "{identity.id}" as they are.',
        fix="Enrol again; never take part under keys that somebody else made.",
    )


def bound_to(context: bytes, sender: str, receiver: str) -> bytes:
    """The data that an envelope authenticates next to its content."""
    return turn_label("envelope", context) + behind_lengths(sender.encode(), receiver.encode())


def envelope_key(seed: bytes, context: bytes) -> bytes:
    """The key of one envelope: from a sealing seed, for one direction of one pair in one turn.

    Who reveals it opens that envelope and nothing else: each key is HMAC(seed, ctx), and ctx never comes back.
    """
    return hmac.digest(seed, turn_label("envelope key", context), "sha256")


def fingerprint(key: bytes, context: bytes) -> bytes:
    """Give what a device publishes of a key that it may have to reveal: no second key has the same fingerprint."""
    hashed = _begun(context).copy()
    hashed.update(_LENGTH.pack(len(key)) + key)
    return hashed.digest()[:FINGERPRINT_SIZE]


@lru_cache(maxsize=4)
def _begun(context: bytes) -> "hashlib._Hash":
    """Give what all fingerprints of a turn begin with, hashed once: a server checks one for every pair."""
    return hashlib.sha256(framed("fingerprint", context))


def seal(pair: PairSecret, context: bytes, data: bytes) -> bytes:
    """The data in an AES-256-GCM envelope that only the peer opens, in this round and this direction only."""
    nonce = os.urandom(NONCE_SIZE)
    key = envelope_key(pair.seals, context)
    return nonce + AESGCM(key).encrypt(nonce, data, bound_to(context, pair.own, pair.peer))


HYBRID = "x25519+ml-kem-768"  # as a card offers it
SEED_SIZE = 64
PUBLIC_SIZE = KEY_SIZE + 1184
WRAPPED_SIZE = 1088


@cache
def available() -> bool:
    """Tell whether the installed cryptography has ML-KEM-768: releases from 48 on do, over OpenSSL 3.5 or later."""
    try:
        from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

        MLKEM768PrivateKey.from_seed_bytes(bytes(SEED_SIZE))
    except (ImportError, UnsupportedAlgorithm):
        return False
    return True


def require_available() -> None:
    """Raise CH611 where ML-KEM-768 can't be had."""
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
    """The private half of an offer; it lives in memory, for one agreement, and is never written down."""

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
        """Give what others need of it: the X25519 key, then the ML-KEM-768 key."""
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


MOST_STEPS = 2**14  # that a turn may lie ahead: about a second for a hundred peers

_ROUND, _ATTEMPTS, _ATTEMPT, _TURN = (framed(f"ratchet {step}") for step in ("round", "attempts", "attempt", "turn"))
_SEEDS = [framed("ratchet seed", name) for name in (b"rising", b"falling", b"from low", b"from high")]


def _step(key: bytes, label: bytes) -> bytes:
    return hmac.digest(key, label, "sha256")


class Chains(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A device's chains with its peers, all at the same turn; nothing before it follows from them.

    `keys` holds for each peer the key of the round `following`, and that of `attempt` in the round before, behind it.
    """

    following: int
    attempt: int
    keys: dict[str, bytes]

    def __repr__(self) -> str:
        return f"Chains({len(self.keys)} peers, before round {self.following})"

    @classmethod
    def begun(cls, roots: dict[str, bytes], *, following: int) -> Self:
        """The chains that begin with a round; the round before it has no attempts left."""
        keys = {peer: root + bytes(KEY_SIZE) for peer, root in roots.items()}
        return cls(following=following, attempt=2**32, keys=keys)

    def taken(self, round_number: int, attempt: int) -> tuple[dict[str, bytes], Self]:
        """The key of a turn with each peer, and the chains after it; CH612 for a turn that they have passed.

        >>> keys, after = Chains.begun({"b": bytes(32)}, following=1).taken(3, 0)
        >>> after, keys == Chains.begun({"b": bytes(32)}, following=1).taken(3, 0)[0]
        (Chains(1 peers, before round 4), True)
        """
        rounds = round_number - self.following
        attempts = attempt if rounds >= 0 else attempt - self.attempt
        if rounds < -1 or attempts < 0:
            raise no_keys(f"the keys of round {round_number}, attempt {attempt} are erased here.")
        if max(rounds, 0) + attempts > MOST_STEPS:
            raise no_keys(f"round {round_number}, attempt {attempt} lies {max(rounds, 0) + attempts:,} turns ahead.")
        keys, after = {}, {}
        for peer, kept in self.keys.items():
            round_key, attempt_key = kept[:KEY_SIZE], kept[KEY_SIZE:]
            if rounds >= 0:
                for _ in range(rounds):
                    round_key = _step(round_key, _ROUND)
                round_key, attempt_key = _step(round_key, _ROUND), _step(round_key, _ATTEMPTS)
            for _ in range(attempts):
                attempt_key = _step(attempt_key, _ATTEMPT)
            keys[peer] = _step(attempt_key, _TURN)
            after[peer] = round_key + _step(attempt_key, _ATTEMPT)
        return keys, type(self)(following=max(self.following, round_number + 1), attempt=attempt + 1, keys=after)


def pair_of_turn(own: str, peer: str, key: bytes) -> PairSecret:
    """Give what two devices share in one turn, by the turn's key."""
    rising, falling, from_low, from_high = (_step(key, label) for label in _SEEDS)
    seals, opens = (from_low, from_high) if own < peer else (from_high, from_low)
    return PairSecret(own=own, peer=peer, rising=rising, falling=falling, seals=seals, opens=opens)


def no_keys(what: str) -> TrustError:
    """The refusal of a turn for which there are no keys; the next agreement makes new ones."""
    return TrustError("CH612", what, fix="The device drops out of this turn; the server asks for an agreement first.")
