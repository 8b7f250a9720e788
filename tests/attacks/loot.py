"""What a lying server and its colluders can compute from all that they have seen of one turn."""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from choral.core.errors import SumError, TrustError
from choral.core.keys import KEY_SIZE, PairSecret, envelope_key
from choral.core.masks import Mask, add_masks, pair_mask, ring, self_mask
from choral.core.messages import (
    Drop,
    Edges,
    Final,
    Omega,
    Opening,
    Refusal,
    Turn,
    Upload,
    encode,
    pack,
    pack_numbers,
    unpack,
)
from choral.core.shares import commitment
from choral.core.terms import Bond, Cohort, context_of
from choral.server.round import Readiness
from choral.server.secrets import join, unseal
from tests.protocol.world import FIRST, World


@dataclass
class Loot:
    """Uploads, revealed keys and shares of a turn; `openable` tries every set of honest devices with them."""

    world: World
    readiness: Readiness
    colluders: frozenset[int] = frozenset()
    uploads: dict[int, tuple[Upload, np.ndarray]] = field(default_factory=dict)
    edges: dict[tuple[int, int], bytes] = field(default_factory=dict)
    shares: dict[int, dict[int, bytes]] = field(default_factory=dict)
    envelope_keys: dict[tuple[int, int], bytes] = field(default_factory=dict)  # by who sealed, and for whom
    refusals: dict[int, str] = field(default_factory=dict)
    self_mask_keys: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        terms, nonces = self.world.terms, self.readiness.nonces
        context = context_of(terms, self.turn, self.world.model.tobytes(), nonces)
        self.cohort = Cohort(terms, self.turn, nonces, context)

    # What the server does

    @property
    def turn(self) -> Turn:
        return self.readiness.turn

    def ask(self, number: int, frame: bytes) -> None:
        """Send one frame to a device and keep whatever comes back."""
        self.keep(number, self.world.devices[number].answer(frame))

    def keep(self, number: int, reply: bytes) -> None:
        message, vector = self.world.read_all(reply)
        match message:
            case Upload():
                words = np.frombuffer(vector, ring(self.world.terms.codec.word_bits)).copy()
                self.uploads[number] = (message, words)
            case Edges():
                for other, keys in unpack(message.keys, KEY_SIZE, most=len(self.cohort)).items():
                    self.edges[min(number, other), max(number, other)] = keys
            case Opening():
                for owner, key in unpack(message.keys, KEY_SIZE, most=len(self.cohort)).items():
                    self.envelope_keys[owner, number] = key
                    self.open(owner, number, key)
            case Refusal():
                self.refusals[number] = message.code

    def drop(self, number: int, dropped: Iterable[int]) -> None:
        """Tell one device who has dropped out."""
        self.ask(number, encode(Drop(turn=self.turn, dropped=pack_numbers(dropped))))

    def final(self, number: int) -> None:
        """Ask one device for the keys to the envelopes of all who, as it was informed, have not dropped out."""
        self.ask(number, encode(Final(turn=self.turn, following=None)))

    def open(self, sender: int, receiver: int, key: bytes, envelope: bytes | None = None) -> None:
        """Keep the share in an envelope, if this key opens it."""
        ids, envelope = self.world.terms.ids, envelope or self.envelope(sender, receiver)
        with contextlib.suppress(TrustError):
            share = unseal(key, self.cohort.context, ids[sender], ids[receiver], envelope)
            self.shares.setdefault(sender, {})[receiver] = share

    def envelope(self, sender: int, receiver: int) -> bytes:
        terms = self.world.terms
        records = unpack(self.uploads[sender][0].bonds, terms.bond_bytes, most=len(self.cohort))
        return Bond(*terms.bond_layout.unpack(records[receiver])).envelope

    # What it can compute

    def openable(self) -> dict[frozenset[int], list[int]]:
        """Every set of honest devices whose sum can be opened, with the sum that was really computed from the loot."""
        honest = sorted(self.uploads.keys() - self.colluders)
        keys = {number: key for number in honest if (key := self._self_key(number)) is not None}
        found = {}
        for size in range(1, len(keys) + 1):
            for chosen in combinations(sorted(keys), size):
                masks = [Mask(keys[number], True).undone() for number in chosen]
                edges = list(self._outer_edges(frozenset(chosen)))
                if None not in edges:
                    opened = self._open(chosen, masks + [mask for edge in edges for mask in edge or ()])
                    if opened is not None:
                        found[frozenset(chosen)] = opened
        return found

    def _open(self, chosen: tuple[int, ...], masks: list[Mask]) -> list[int] | None:
        total = np.add.reduce([self.uploads[number][1] for number in chosen], dtype=self.uploads[chosen[0]][1].dtype)
        add_masks(total, masks)
        try:
            return self.world.terms.codec.decode(total, self.world.terms.parameters, count=len(chosen)).tolist()
        except SumError:
            return None

    def _outer_edges(self, chosen: frozenset[int]) -> Iterator[list[Mask] | None]:
        """The masks between the chosen and the others, or None for one that is not known."""
        for one in chosen:
            for other in self.cohort.neighbours(one):
                if other not in chosen:
                    yield self._edge(one, other)

    def _edge(self, one: int, other: int) -> list[Mask] | None:
        if other in self.colluders:
            masks = [pair_mask(self.pair(other, one), self.cohort.context)]
            return list(masks)  # the colluder's own masks are the opposite of what the device added
        keys = self.edges.get((min(one, other), max(one, other)))
        if keys is None:
            return None
        halves = [keys[start : start + KEY_SIZE] for start in range(0, len(keys), KEY_SIZE)]
        return [Mask(key, (one < other) == (index == 0)).undone() for index, key in enumerate(halves)]

    def _self_key(self, owner: int) -> bytes | None:
        if owner in self.self_mask_keys:
            return self.self_mask_keys[owner]
        secret = self.self_secret(owner)
        return None if secret is None else self_mask(secret, self.cohort.context, self.world.terms.ids[owner]).key

    def self_secret(self, owner: int) -> bytes | None:
        """σ of a device, if enough shares of it are there."""
        held = dict(self.shares.get(owner, {}))
        for colluder in self.colluders & self.cohort.places.keys():
            pair, ids, context = self.pair(colluder, owner), self.world.terms.ids, self.cohort.context
            key = envelope_key(pair.opens, context)
            held[colluder] = unseal(key, context, ids[owner], ids[colluder], self.envelope(owner, colluder))
        threshold = self.world.terms.secure.threshold
        if len(held) < threshold:
            return None
        id = self.world.terms.ids[owner]
        secret = join({self.cohort.point(holder): share for holder, share in held.items()}, threshold)
        if commitment(secret, self.cohort.context, id) != self.uploads[owner][0].commitment:
            return None
        return secret

    def pair(self, colluder: int, peer: int) -> PairSecret:
        """What a colluder knows of a pair: everything."""
        bundle = self.world.terms.roster.bundles[peer]
        return self.world.identities[colluder].pair(bundle, self.world.terms.roster_digest)


def after_upload(world: World, turn: Turn = FIRST, *, colluders: Iterable[int] = ()) -> Loot:
    """The loot when every device has answered an honest OMEGA."""
    loot = Loot(world, world.readiness(turn), frozenset(colluders))
    omega = Omega(turn=turn, terms=world.terms.digest, cohort=pack(loot.readiness.nonces))
    for number in loot.cohort.numbers:
        loot.ask(number, encode(omega, world.model.tobytes()))
    return loot
