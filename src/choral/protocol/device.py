"""The device's half of a turn: it holds every secret, charges before it sends, and refuses whatever could expose it."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from choral.errors import ChoralError, LedgerError, SumError, TrustError
from choral.protocol.closing import END, SignedEnd, sign_end
from choral.protocol.messages import (
    DIGEST_BYTES,
    NONCE_BYTES,
    Call,
    Close,
    Drop,
    Edges,
    Final,
    Message,
    Omega,
    Opening,
    Ready,
    Refusal,
    Signed,
    Turn,
    Upload,
    Vector,
    decode,
    encode,
    encode_before,
    malformed,
    pack,
    unpack,
)
from choral.protocol.terms import ENVELOPE_BYTES, MODEL_TYPE, Cohort, Terms, context_of, refused
from choral.protocol.vault import Vault
from choral.secagg.keys import KEY_SIZE, Identity, PairSecret, seal, unseal
from choral.secagg.masks import Mask, Stream, Words, add_masks, pair_masks, ring, self_mask
from choral.secagg.shares import commitment, fresh_secret, split

Update = NDArray[np.floating[Any]]
Train = Callable[[NDArray[np.float32], int, int], Update]
Encode = Callable[[Update, int, int, Words], object]


class Receipt(Protocol):
    """What a ledger returns once a charge is durable."""

    @property
    def entries(self) -> int:
        """How long the ledger is."""

    @property
    def seal(self) -> str:
        """How it ends."""


# Writes the charge of (round, attempt) durably and returns its receipt, or raises LedgerError and leaves no trace.
Charger = Callable[[int, int], Receipt]
# Raises the LedgerError that the charge of (round, attempt) would raise, and changes nothing.
Payable = Callable[[int, int], None]
# How many uploads of this run the ledger has paid for, and how the ledger ends now.
Account = Callable[[], tuple[int, Receipt]]


@dataclass(frozen=True)
class _Live:
    """A turn between UPLOAD and FINAL; it lives in memory only, so a restart in mid-turn is a drop-out."""

    cohort: Cohort
    dropped: frozenset[int] = frozenset()


class Device:
    """One enrolled device: feed it frames with `answer`, send back what it returns.

    `charge(round, attempt)` makes the privacy charge durable, `train(model, round, attempt)` gives the update; nothing
    is trained before both the charge and the turn are on disk. `encode(update, round, attempt, words)` writes the words
    in place of the codec with fresh secret streams: for simulations that must be repeated.
    `payable(round, attempt)` is asked before the device says that it is ready: who can't pay says so then, and the
    others are not charged for a turn that fails for want of it.
    `account()` tells what the ledger says at the end of the run; without it the device signs no end.
    """

    def __init__(
        self,
        terms: Terms,
        vault: Vault,
        *,
        train: Train,
        charge: Charger,
        encode: Encode | None = None,
        payable: Payable | None = None,
        account: Account | None = None,
    ) -> None:
        identity = Identity(vault.memory.id, vault.memory.secret)
        if identity.bundle not in terms.roster.bundles:
            raise TrustError(
                "CH601",
                f'the roster does not hold the keys of device "{identity.id}" as they are.',
                fix="Enrol again; never take part under keys that somebody else made.",
            )
        vault.pin(roster=terms.roster_digest, terms=terms.digest)
        self.terms, self.vault = terms, vault
        self.number = terms.numbers[identity.id]
        self.refusal: ChoralError | None = None
        self.signed: SignedEnd | None = None
        self._account = account
        self._identity, self._train, self._charge, self._payable = identity, train, charge, payable
        self._encode: Encode = encode or (
            lambda update, _, __, out: terms.codec.encode(update, Stream.fresh(), out=out)
        )
        self._pairs = {peer: _pair_of(identity.id, peer, data) for peer, data in vault.memory.pairs.items()}
        self._ready: tuple[Turn, bytes] | None = None
        self._live: _Live | None = None

    def __repr__(self) -> str:
        return f"Device({self._identity.id!r}, last turn {self.vault.memory.turn})"

    def answer(self, frame: Vector) -> Vector:
        """The reply to a frame, or a Refusal that carries a code and nothing else; `refusal` keeps the reason here."""
        turn = Turn(0, 0)
        try:
            message, vector = decode(frame, vector_bytes=self.terms.model_bytes, records_bytes=self.terms.records_bytes)
            turn = message.turn
            return self._reply(message, vector)
        except ChoralError as error:
            self.refusal = error
            return encode(Refusal(turn=turn, device=self.number, code=error.code))

    def _reply(self, message: Message, vector: memoryview) -> Vector:
        match message:
            case Call():
                return encode(Ready(turn=message.turn, device=self.number, nonce=self._get_ready(message.turn)))
            case Omega():
                return self._upload(message, vector)
            case Drop():
                return encode(self._reveal(message))
            case Final():
                return encode(self._finish(message))
            case Close():
                return encode(self._close(message, vector))
            case _:
                raise malformed("a device's message was sent to a device")

    # READY

    def _get_ready(self, turn: Turn) -> bytes:
        self._refuse_old(turn)
        # A later turn was called, so the one under way has failed: its secrets go, and nothing more is said about it.
        self._live = None
        if self._payable is not None:
            self._payable(turn.round, turn.attempt)
        nonce = os.urandom(NONCE_BYTES)
        self._ready = (turn, nonce)
        return nonce

    def _refuse_old(self, turn: Turn) -> None:
        last = self.vault.memory.turn
        if last is not None and turn <= last:
            raise refused(
                f"round {turn.round}, attempt {turn.attempt} is not after the last,"
                f" round {last.round}, attempt {last.attempt}."
            )

    # OMEGA -> UPLOAD

    def _upload(self, message: Omega, model: memoryview) -> bytearray:
        cohort = self._check_cohort(message, model)
        start = np.frombuffer(model, MODEL_TYPE)
        self._check_model(start)
        turn, own = message.turn, self.number
        neighbours = cohort.neighbours(own)
        masks = [mask for peer in neighbours for mask in self._pair_masks(peer, cohort.context)]
        self._pay(turn)
        update = self._train(start, turn.round, turn.attempt)
        self._check_shape(update)
        promise = bytes(DIGEST_BYTES)
        envelopes: Mapping[int, bytes] = {}
        if self.terms.self_masked:
            secret = fresh_secret()
            masks.append(self_mask(secret, cohort.context, self._identity.id))
            promise = commitment(secret, cohort.context, self._identity.id)
            envelopes = self._envelopes(secret, cohort, neighbours)
            del secret
        upload = Upload(turn=turn, device=own, context=cohort.context, commitment=promise, envelopes=pack(envelopes))
        frame, room = encode_before(upload, self.terms.upload_bytes)
        words = np.frombuffer(room, ring(self.terms.codec.word_bits))
        self._encode(update, turn.round, turn.attempt, words)
        del update
        add_masks(words, masks)
        if self.terms.self_masked:
            self._live = _Live(cohort)
        return frame

    def _pay(self, turn: Turn) -> None:
        """Charge the turn and remember it, both durably, before the first look at the data.

        An update that can't be sent is told by a refusal, and that tells of the data as well: a server that could have
        refusals for nothing would ask until the noise is averaged away.
        """
        receipt = self._charge(turn.round, turn.attempt)
        pairs = {peer: _pair_bytes(pair) for peer, pair in self._pairs.items()}
        self.vault.change(turn=turn, receipt=(receipt.entries, receipt.seal), pairs=pairs)

    def _check_cohort(self, message: Omega, model: memoryview) -> Cohort:
        ready, self._ready = self._ready, None
        self._refuse_old(message.turn)
        if ready is None or ready[0] != message.turn:
            raise refused("this device did not say that it is ready for the turn, or was restarted since.")
        if message.terms != self.terms.digest:
            raise refused("the server's plan is not the one that was approved here.", code="CH603")
        secure = self.terms.secure
        nonces = unpack(message.cohort, NONCE_BYTES, most=secure.cohort)
        if len(nonces) < secure.smallest_sum:
            raise refused(f"a cohort of {len(nonces)}, the plan needs {secure.smallest_sum}.")
        if max(nonces) >= len(self.terms.ids):
            raise refused("a cohort with devices that are not enrolled.")
        if nonces.get(self.number) != ready[1]:
            raise refused("a cohort without this device as it announced itself.", code="CH604")
        return Cohort(self.terms, message.turn, nonces, context_of(self.terms, message.turn, model, nonces))

    def _check_model(self, model: NDArray[np.float32]) -> None:
        """Refuse a model so large that rounding would take the noise out of the steps that start from it."""
        limit = self.terms.codec.largest_parameter
        if len(model) and not (-limit <= model.min() and model.max() <= limit):  # so written, NaN fails too
            raise refused(f"a model with parameters beyond {limit:g}, where float32 would swallow the noise.")

    def _check_shape(self, update: Update) -> None:
        if update.shape != (self.terms.parameters,):
            raise SumError(
                "CH500",
                f"training returned an update of shape {update.shape}, not ({self.terms.parameters},).",
                fix="Return one flat vector with a number for every parameter of the model.",
            )

    def _envelopes(self, secret: bytes, cohort: Cohort, neighbours: tuple[int, ...]) -> Mapping[int, bytes]:
        points = [cohort.point(peer) for peer in neighbours]
        shares = split(secret, self.terms.secure.threshold, points)
        return {
            peer: seal(self._pair(peer), cohort.context, share) for peer, share in zip(neighbours, shares, strict=True)
        }

    # EDGES and FINAL

    def _reveal(self, message: Drop) -> Edges:
        live, self._live = self._in(message.turn), None  # out, unless the list is harmless
        dropped = frozenset(unpack(message.dropped, 0, most=len(live.cohort)))
        left = len(live.cohort) - len(dropped)
        if self.number in dropped:
            raise refused("the server counts this device as dropped.")
        if not dropped <= live.cohort.places.keys():
            raise refused("the server counts devices as dropped that are not in the cohort.")
        if not live.dropped <= dropped:
            raise refused("a device came back after it had dropped out.")
        if left < self.terms.secure.smallest_sum:
            raise refused(
                f"{left} devices are left, the plan opens no sum of fewer than {self.terms.secure.smallest_sum}."
            )
        self._live = _Live(live.cohort, dropped)
        keys = {
            peer: b"".join(mask.key for mask in self._pair_masks(peer, live.cohort.context))
            for peer in live.cohort.neighbours(self.number)
            if peer in dropped
        }
        return Edges(turn=message.turn, device=self.number, keys=pack(keys))

    def _finish(self, message: Final) -> Opening:
        # Whatever happens now, this was the one time: a second FINAL could ask for the other half of a device's masks.
        live, self._live = self._in(message.turn), None
        included = set(live.cohort.neighbours(self.number)) - live.dropped
        envelopes = unpack(message.envelopes, ENVELOPE_BYTES, most=len(live.cohort))
        if envelopes.keys() != included:
            raise refused("the envelopes are not those of the devices that are still in the sum.", code="CH604")
        shares = {peer: unseal(self._pair(peer), live.cohort.context, envelopes[peer]) for peer in envelopes}
        nonce = None if message.following is None else self._ready_to_follow(message.following)
        return Opening(turn=message.turn, device=self.number, shares=pack(shares), nonce=nonce)

    def _ready_to_follow(self, turn: Turn) -> bytes | None:
        """ν for the next turn; who can't pay for it still opens this one, and says why when called."""
        try:
            return self._get_ready(turn)
        except LedgerError:
            return None

    def _in(self, turn: Turn) -> _Live:
        """The turn under way, or a refusal: nothing is said before UPLOAD, after FINAL, or after a restart."""
        if self._live is None or self._live.cohort.turn != turn:
            raise refused(f"round {turn.round}, attempt {turn.attempt} is not under way here.")
        return self._live

    # CLOSE -> SIGNED

    def _close(self, message: Close, model: memoryview) -> Signed:
        last = self.vault.memory.turn
        if self._account is None:
            raise refused("this device signs no end of a run.")
        if last is not None and message.turn < last != END:
            raise refused("the server ends the run before a turn that was paid for here.")
        # First for good, also after a restart: a run that went on behind its signed end could claim too little.
        self.vault.change(turn=END)
        self._ready = self._live = None
        paid, receipt = self._account()
        self.signed = signed = sign_end(
            self._identity,
            run=self.terms.plan,
            roster=self.terms.roster_digest,
            record=message.record,
            model=model,
            paid=paid,
            entries=receipt.entries,
            seal=receipt.seal,
        )
        told, signature = signed.closing, signed.signature
        return Signed(turn=message.turn, device=self.number, paid=paid, receipt=told.receipt, signature=signature)

    # What two devices share, agreed when first needed and remembered

    def _pair_masks(self, peer: int, context: bytes) -> tuple[Mask, ...]:
        return pair_masks(self._pair(peer), context, self.terms.secure.masks)

    def _pair(self, peer: int) -> PairSecret:
        id = self.terms.ids[peer]
        if id not in self._pairs:
            self._pairs[id] = self._identity.pair(self.terms.roster.bundles[peer], self.terms.roster_digest)
        return self._pairs[id]


def _pair_bytes(pair: PairSecret) -> bytes:
    return pair.rising + pair.falling + pair.seals + pair.opens


def _pair_of(own: str, peer: str, data: bytes) -> PairSecret:
    rising, falling, seals, opens = (data[start : start + KEY_SIZE] for start in range(0, 4 * KEY_SIZE, KEY_SIZE))
    return PairSecret(own=own, peer=peer, rising=rising, falling=falling, seals=seals, opens=opens)
