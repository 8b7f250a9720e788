"""What a device shares with its peers in one turn: from keys of its card, or from chains that forget past turns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from choral.core.errors import TrustError
from choral.core.hybrid import PUBLIC_SIZE, WRAPPED_SIZE, HybridKey, pair_roots
from choral.core.keys import Bundle, Identity, PairSecret, digest
from choral.core.messages import (
    QUESTIONS,
    Agreed,
    Gather,
    Offer,
    Offers,
    Turn,
    Wrapped,
    Wraps,
    pack,
    unpack,
)
from choral.core.ratchet import Chains, no_keys, pair_of_turn
from choral.core.signed import END, offer_fields
from choral.core.terms import OFFER_BYTES, Cohort, Terms, refused
from choral.core.vault import Memory, Vault


class Pairs(Protocol):
    """What a device asks of its keys; `blamed` is the peer with whom no keys could be agreed on."""

    blamed: int | None

    def of_turn(self, cohort: Cohort) -> dict[int, PairSecret]:
        """The secrets with all neighbours in a turn; nothing is durable yet."""

    def stepped(self, memory: Memory, turn: Turn) -> Memory:
        """The memory with the keys that must be written with the turn, before anything of it is sent."""


class CardPairs:
    """Secrets from the X25519 keys on the cards: agreed when first needed, and the same in all turns of a roster."""

    def __init__(self, terms: Terms, identity: Identity, memory: Memory) -> None:
        self.blamed: int | None = None
        self._terms, self._identity = terms, identity
        self._agreed = {peer: PairSecret.read(identity.id, peer, data) for peer, data in memory.pairs.items()}

    def of_turn(self, cohort: Cohort) -> dict[int, PairSecret]:
        """The secrets with all neighbours."""
        own = self._terms.number_of(self._identity)
        return {peer: self._pair(peer, cohort.bundle(peer)) for peer in cohort.neighbours(own)}

    def stepped(self, memory: Memory, turn: Turn) -> Memory:  # noqa: ARG002 - they are the same in every turn
        """The memory with all that was agreed so far."""
        return msgspec.structs.replace(memory, pairs={peer: pair.data for peer, pair in self._agreed.items()})

    def _pair(self, peer: int, bundle: Bundle) -> PairSecret:
        if bundle.id not in self._agreed:
            try:
                self._agreed[bundle.id] = self._identity.pair(bundle, self._terms.roster_digest)
            except TrustError:
                self.blamed = peer
                raise
        return self._agreed[bundle.id]


class ChainPairs:
    """Secrets from chains in the vault, which are hashed past a turn in the same write that remembers the turn."""

    def __init__(self, terms: Terms, identity: Identity, vault: Vault) -> None:
        self.blamed: int | None = None
        self._terms, self._id, self._vault = terms, identity.id, vault
        self._after: tuple[Turn, Chains] | None = None

    def of_turn(self, cohort: Cohort) -> dict[int, PairSecret]:
        """The secrets with all neighbours; CH612 where nothing was agreed with one of them."""
        memory, turn, ids = self._vault.memory, cohort.turn, self._terms.ids
        chains = memory.asking if turn.asks else memory.chains
        neighbours = cohort.neighbours(self._terms.numbers[self._id])
        if chains is None or any(ids[peer] not in chains.keys for peer in neighbours):
            raise no_keys("no keys were agreed on with some device of the cohort.")
        keys, after = chains.taken(turn.round, turn.attempt)
        self._after = turn, after
        return {peer: pair_of_turn(self._id, ids[peer], keys[ids[peer]]) for peer in neighbours}

    def stepped(self, memory: Memory, turn: Turn) -> Memory:
        """The memory with the chains after the turn: from now on nobody can compute its keys from the vault."""
        prepared, self._after = self._after, None
        if prepared is None or prepared[0] != turn:
            raise no_keys("the turn's keys were not taken.")  # it must not be paid for, or its keys could be used twice
        after = prepared[1]
        if turn.asks:
            return msgspec.structs.replace(memory, asking=after)
        return msgspec.structs.replace(memory, chains=after)


@dataclass(frozen=True)
class _Offered:
    """An agreement under way; it lives in memory only, so a restart leaves the device out of it."""

    turn: Turn
    key: HybridKey
    keys: Mapping[int, bytes] = field(default_factory=dict)  # of everybody in it
    inner: Mapping[int, bytes] = field(default_factory=dict)  # the secrets in this device's own ciphertexts
    wrapped: Mapping[int, bytes] = field(default_factory=dict)
    session: bytes = b""


class Offering:
    """A device's half of an agreement: GATHER → OFFER, OFFERS → WRAPPED, WRAPS → AGREED."""

    def __init__(self, terms: Terms, identity: Identity, vault: Vault) -> None:
        self._terms, self._identity, self._vault = terms, identity, vault
        self.number = terms.number_of(identity)
        self.blamed: int | None = None
        self._under_way: _Offered | None = None

    def answer(self, message: Gather | Offers | Wraps) -> Offer | Wrapped | Agreed:
        """The reply to a message of the agreement, or a refusal, which ends it for this device."""
        if not self._terms.hybrid:
            raise refused("this study's keys are those of the cards.")
        if self._vault.memory.turn == END:
            raise refused("this run has ended here, and its keys are erased.")
        under_way, self._under_way = self._under_way, None
        if isinstance(message, Gather):
            if message.terms != self._terms.digest:
                raise refused("the server's plan is not the one that was approved here.", code="CH603")
            return self._offer(message.turn)
        if under_way is None or under_way.turn != message.turn:
            raise refused("this device has offered no key for this agreement, or was restarted since.")
        if isinstance(message, Offers):
            return self._wrap(under_way, message)
        return self._agree(under_way, message)

    def _offer(self, turn: Turn) -> Offer:
        key = HybridKey.fresh()
        self._under_way = _Offered(turn, key)
        signature = self._identity.sign(*offer_fields(self._terms.digest, turn, key.public))
        return Offer(turn=turn, device=self.number, key=key.public, signature=signature)

    def _wrap(self, offered: _Offered, message: Offers) -> Wrapped:
        """Check everybody's offer, and make a ciphertext for each device after this one."""
        terms, key = self._terms, offered.key
        offers = unpack(message.offers, OFFER_BYTES, most=len(terms.ids))
        if len(offers) < terms.secure.smallest_sum or max(offers) >= len(terms.ids):
            raise refused(f"an agreement of {len(offers)} devices, or with some that are not enrolled.")
        keys = {number: offer[:PUBLIC_SIZE] for number, offer in offers.items()}
        if keys.get(self.number) != key.public:
            raise refused("an agreement without this device's key as it offered it.", code="CH604")
        for number, offer in offers.items():
            terms.whole.bundles[number].check(
                offer[PUBLIC_SIZE:], *offer_fields(terms.digest, message.turn, keys[number])
            )
        wrapped, inner = {}, {}
        for number in (number for number in keys if number > self.number):
            self.blamed = number
            wrapped[number], inner[number] = key.wrap(keys[number])
        self.blamed = None
        session = digest("agreement", terms.digest, message.offers)
        self._under_way = _Offered(offered.turn, key, keys, inner, wrapped, session)
        return Wrapped(turn=message.turn, device=self.number, ciphertexts=pack(wrapped))

    def _agree(self, offered: _Offered, message: Wraps) -> Agreed:
        """Begin new chains with everybody; the keys behind them are gone when this returns."""
        before = {number for number in offered.keys if number < self.number}
        theirs = unpack(message.ciphertexts, WRAPPED_SIZE, most=len(before))
        if not theirs.keys() <= before:
            raise refused("ciphertexts of devices that are not before this one in the agreement.")
        wrapped = {**theirs, **offered.wrapped}
        if len(wrapped) + 1 < self._terms.secure.smallest_sum:
            raise refused(f"keys with {len(wrapped)} devices, too few for a sum.")
        rounds, asking, ids = {}, {}, self._terms.ids
        for number, ciphertext in wrapped.items():
            self.blamed = number
            rounds[ids[number]], asking[ids[number]] = self._roots(offered, number, ciphertext)
        self.blamed = None
        self._vault.change(
            chains=Chains.begun(rounds, following=offered.turn.round),
            asking=Chains.begun(asking, following=QUESTIONS),
        )
        return Agreed(turn=message.turn, device=self.number, session=offered.session)

    def _roots(self, offered: _Offered, number: int, ciphertext: bytes) -> tuple[bytes, bytes]:
        key, keys, ids = offered.key, offered.keys, self._terms.ids
        inner = offered.inner[number] if number in offered.inner else key.unwrap(ciphertext)
        low, high = sorted((self.number, number))
        return pair_roots(
            key.shared(keys[number]),
            inner,
            low=(ids[low], keys[low]),
            high=(ids[high], keys[high]),
            wrapped=ciphertext,
            session=offered.session,
        )
