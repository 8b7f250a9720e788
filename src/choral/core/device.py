"""The device's half of a turn: it holds every secret, charges before it sends, and refuses whatever could expose it."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from choral.core.errors import ChoralError, LedgerError, StorageError, SumError
from choral.core.keys import Identity, PairSecret, envelope_key, seal
from choral.core.masks import Mask, Stream, Words, add_masks, pair_mask, ring, self_mask
from choral.core.messages import (
    NONCE_BYTES,
    QUESTIONS,
    Call,
    Close,
    CloseEarly,
    Drop,
    Edges,
    Ending,
    Final,
    Gather,
    Message,
    Offers,
    Omega,
    Open,
    Opening,
    Paths,
    Probe,
    Ready,
    Refusal,
    Signed,
    Turn,
    Upload,
    Vector,
    Wraps,
    decode,
    encode,
    encode_before,
    malformed,
    pack,
    unpack,
)
from choral.core.pairing import CardPairs, ChainPairs, Offering, Pairs
from choral.core.shares import commitment, fresh_secret, split
from choral.core.signed import END, Account, ChargeReceipt, SignedEnd, ready_fields, sign_end, signed_refusal
from choral.core.terms import MOST_CHARGED, Bond, Cohort, Extension, Live, Terms, another_charge, check_words, refused
from choral.core.vault import MOST_ROOTS, Vault

Update = NDArray[np.floating[Any]]
Train = Callable[[NDArray[Any], int, int], Update]  # gets the model, or the state that a question is asked at
Check = Callable[[NDArray[Any]], None]  # raises what a device has against a model, or against a state
Encode = Callable[[Update, int, int, Words], object]
# Writes the charge of (round, attempt) durably and returns its receipt, or raises LedgerError and leaves no trace.
Charger = Callable[[int, int], ChargeReceipt]
# Raises the LedgerError that the charge of (round, attempt) would raise, and changes nothing.
Payable = Callable[[int, int], None]


class Device:
    """One enrolled device: feed it frames with `answer`, send back what it returns.

    `charge(round, attempt)` makes the privacy charge durable, `train(model, round, attempt)` gives the update; nothing
    is trained before both the charge and the turn are on disk. `encode(update, round, attempt, words)` writes the words
    in place of the codec with fresh secret streams: for simulations that must be repeated.
    `payable(round, attempt)` is asked before the device says that it is ready: who can't pay says so then, and the
    others are not charged for a turn that fails for want of it.
    `check(state)` is asked about a model, or the state of a question, before anything is charged.
    `account()` tells what the ledger says at the end of the run; without it the device signs no end. Before the last of
    so many `rounds` it signs an end only with its reason.
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
        rounds: int = 0,
        check: Check | None = None,
    ) -> None:
        identity = Identity(vault.memory.id, vault.memory.secret)
        number = terms.number_of(identity)  # refuses a roster without its keys
        vault.pin(roster=terms.roster_digest, terms=terms.within or terms.digest)
        self.terms, self.vault, self.number = terms, vault, number
        self.refusal: ChoralError | None = None
        self.signed: SignedEnd | None = None
        self._account, self._check, self._rounds = account, check, rounds
        self._identity, self._train, self._charge, self._payable = identity, train, charge, payable
        self._encode: Encode = encode or (
            lambda update, _, __, out: terms.codec.encode(update, Stream.fresh(), out=out)
        )
        self._pairs: Pairs = (
            ChainPairs(terms, identity, vault) if terms.hybrid else CardPairs(terms, identity, vault.memory)
        )
        self._offering = Offering(terms, identity, vault)
        self._ready: tuple[Turn, bytes] | None = None
        self._live: Live | None = None
        self._root: tuple[Turn, bytes] | None = None  # the last cohort that it was shown by its root
        self._finished: Live | None = None  # the last turn that was opened as a sum, until the next upload

    def __repr__(self) -> str:
        return f"Device({self._identity.id!r}, last turn {self.vault.memory.turn})"

    def answer(self, frame: Vector) -> Vector:
        """The reply to a frame, or a Refusal with a code and whose doing it was; `refusal` keeps the reason here."""
        turn, self._pairs.blamed, self._offering.blamed = Turn(0, 0), None, None
        try:
            message, vector = decode(frame, vector_bytes=self.terms.model_bytes, records_bytes=self.terms.records_bytes)
            turn = message.turn
            return self._reply(message, vector)
        except ChoralError as error:
            self.refusal = error
            return encode(self._refuse(turn, error.code))

    def _refuse(self, turn: Turn, code: str) -> Refusal:
        blamed = self._offering.blamed if self._pairs.blamed is None else self._pairs.blamed
        return signed_refusal(self._identity, self.number, turn, code, blamed=blamed)

    def _reply(self, message: Message, vector: memoryview) -> Vector:
        match message:
            case Call():
                nonce, signature = self._get_ready(message.turn)
                return encode(Ready(turn=message.turn, device=self.number, nonce=nonce, signature=signature))
            case Omega() | Paths():
                return self._upload(message, vector)
            case Probe():
                live, self._live = self._in(message.turn), None  # out, unless these are honest probes
                answer = self._extension().answer(message, vector, live, self.number)
                self._live = replace(live, kept=None)
                return encode(answer)
            case Drop():
                return encode(self._reveal(message))
            case Final():
                return encode(self._finish(message))
            case Open():
                finished, self._finished = self._finished, None
                return encode(self._extension().shown(message, finished, self.vault, self.number))
            case Gather() | Offers() | Wraps():
                self._ready = self._live = self._finished = None  # whatever was under way is over
                return encode(self._offering.answer(message))
            case Close() | CloseEarly():
                return encode(self._close(message, vector))
            case _:
                raise malformed("a device's message was sent to a device")

    # READY

    def _get_ready(self, turn: Turn) -> tuple[bytes, bytes]:
        """A fresh ν for the turn, and this device's signature under it."""
        self._refuse_old(turn)
        self._refuse_another_charge(turn)
        # A later turn was called, so the one under way has failed: its secrets go, and nothing more is said about it.
        self._live = None
        if self._payable is not None:
            self._payable(turn.round, turn.attempt)
        nonce = os.urandom(NONCE_BYTES)
        self._ready = (turn, nonce)
        return nonce, self._identity.sign(*ready_fields(turn, nonce))

    def _refuse_old(self, turn: Turn) -> None:
        last = self._last(turn.round)
        if last is not None and turn <= last:
            raise refused(
                f"round {turn.round}, attempt {turn.attempt} is not after the last,"
                f" round {last.round}, attempt {last.attempt}."
            )

    def _last(self, round_number: int) -> Turn | None:
        """The last turn of this kind: questions and rounds of training are counted apart."""
        memory = self.vault.memory
        return memory.asked if round_number >= QUESTIONS else memory.turn

    def _charged(self, round_number: int) -> int:
        """How many attempts of a round this device has paid for; a question has one, and is asked again as another."""
        last = self._last(round_number)
        if last is None or last.round != round_number:
            return 0
        return MOST_CHARGED if last.asks else self.vault.memory.attempts

    def _refuse_another_charge(self, turn: Turn) -> None:
        """Whatever makes attempts fail, others or the server: it costs this device two charges per round at most."""
        if (charged := self._charged(turn.round)) >= MOST_CHARGED:
            raise another_charge(turn.round, charged)

    # OMEGA -> UPLOAD

    def _upload(self, message: Omega | Paths, model: memoryview) -> bytearray:
        cohort = self._check_cohort(message, model)
        start = np.frombuffer(model, self.terms.model_type)
        if self._check is None or not self.terms.question:
            self._check_model(start)
        if self._check is not None:
            self._check(start)
        turn, own, self._finished = message.turn, self.number, None
        pairs = self._pairs.of_turn(cohort)
        masks = {peer: pair_mask(pair, cohort.context) for peer, pair in pairs.items()}
        self._pay(turn)
        update = self._train(start, turn.round, turn.attempt)
        self._check_shape(update)
        secret = fresh_secret()
        own_mask = self_mask(secret, cohort.context, self._identity.id)
        promise = commitment(secret, cohort.context, self._identity.id)
        bonds, checks = pack(self._bonds(secret, cohort, pairs, masks)), check_words(self.terms, own_mask).tobytes()
        del secret
        upload = Upload(turn=turn, device=own, context=cohort.context, commitment=promise, bonds=bonds, checks=checks)
        frame, room = encode_before(upload, self.terms.upload_bytes)
        words = np.frombuffer(room, ring(self.terms.codec.word_bits))
        self._encode(update, turn.round, turn.attempt, words)
        del update
        extension = self.terms.extension
        kept = None if extension is None else extension.encoded(self.terms, words)
        add_masks(words, [*masks.values(), own_mask])
        kept = None if extension is None else extension.masked(kept, cohort, self._identity.id, room)
        self._live = Live(cohort, pairs, kept=kept)
        return frame

    def _pay(self, turn: Turn) -> None:
        """Charge the turn and remember it, both durably, before the first look at the data.

        An update that can't be sent leads to a refusal, which reveals something of the data as well: a server that
        could have refusals for nothing would ask until the noise is averaged away.
        """
        memory = self._pairs.stepped(self.vault.memory, turn)
        with self.vault.room(memory) as put:  # first: what can't be written down must not be paid for
            receipt = self._charge(turn.round, turn.attempt)
            attempts = self._charged(turn.round) + 1
            kept: dict[str, Any] = {"asked": turn} if turn.asks else {"turn": turn, "attempts": attempts}
            if self._root is not None:
                kept["roots"] = (*self.vault.memory.roots, self._root)[-MOST_ROOTS:]
            kept["opened"] = self.vault.opened_after(receipt.entries)
            put(msgspec.structs.replace(memory, **kept, receipt=(receipt.entries, receipt.seal)))

    def _check_cohort(self, message: Omega | Paths, model: memoryview) -> Cohort:
        ready, self._ready = self._ready, None
        self._refuse_old(message.turn)
        self._refuse_another_charge(message.turn)
        if ready is None or ready[0] != message.turn:
            raise refused("this device did not say that it is ready for the turn, or was restarted since.")
        if message.terms != self.terms.digest:
            raise refused("the server's plan is not the one that was approved here.", code="CH603")
        lists = self.terms.lists
        if not isinstance(message, lists.announcement):
            raise refused("a list of another form than the plan's.")
        self._root = lists.seen(message, [*self.vault.memory.roots, *filter(None, [self._root])])
        return lists.cohort(self.terms, message, model, self._identity, ready[1])

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

    def _bonds(
        self,
        secret: bytes,
        cohort: Cohort,
        pairs: Mapping[int, PairSecret],
        masks: Mapping[int, Mask],
    ) -> Mapping[int, bytes]:
        """A share of the secret for every neighbour, sealed, and all that this device can be held to about the pair."""
        shares = split(secret, self.terms.secure.threshold, [cohort.point(peer) for peer in masks])
        bonds = {}
        for (peer, mask), share in zip(masks.items(), shares, strict=True):
            pair, context = pairs[peer], cohort.context
            bonds[peer] = b"".join(Bond.of(self.terms, pair, mask, context, seal(pair, context, share)))
        return bonds

    # EDGES and FINAL

    def _reveal(self, message: Drop) -> Edges:
        live, self._live = self._in(message.turn), None  # out, unless the list is harmless
        dropped = frozenset(unpack(message.dropped, 0, most=len(live.cohort)))
        left = len(live.cohort) - len(dropped)
        if self.number in dropped:
            raise refused("the server counts this device as dropped.")
        if not live.cohort.may_hold(dropped):
            raise refused("the server counts devices as dropped that are not in the cohort.")
        if not live.dropped <= dropped:
            raise refused("a device came back after it had dropped out.")
        if left < self.terms.secure.smallest_sum:
            raise refused(
                f"{left} devices are left, the plan opens no sum of fewer than {self.terms.secure.smallest_sum}."
            )
        self._live = Live(live.cohort, live.pairs, dropped)
        keys = {peer: pair_mask(pair, live.cohort.context).key for peer, pair in live.pairs.items() if peer in dropped}
        return Edges(turn=message.turn, device=self.number, keys=pack(keys))

    def _finish(self, message: Final) -> Opening:
        # Whatever happens now, this was the one time: a second FINAL could ask for the other half of a device's masks.
        live, self._live = self._in(message.turn), None
        extension = self.terms.extension
        self._finished = live if extension is not None and extension.opens else None  # no keys without a need
        ready = None if message.following is None else self._ready_to_follow(message.following)
        # Not the shares: what a neighbour has sealed, the server reads for itself, and so knows whose fault it is.
        keys = {
            peer: envelope_key(pair.opens, live.cohort.context)
            for peer, pair in live.pairs.items()
            if peer not in live.dropped
        }
        return Opening(turn=message.turn, device=self.number, keys=pack(keys), ready=ready)

    def _ready_to_follow(self, turn: Turn) -> bytes | None:
        """ν for the next turn, signed; who can't pay or write it down still opens this one, and says why later."""
        try:
            return b"".join(self._get_ready(turn))
        except (LedgerError, StorageError):
            return None

    def _extension(self) -> Extension:
        if self.terms.extension is None:
            raise refused("this study has no probes, and opens no turns.")
        return self.terms.extension

    def _in(self, turn: Turn) -> Live:
        """The turn under way, or a refusal: nothing is said before UPLOAD, after FINAL, or after a restart."""
        if self._live is None or self._live.cohort.turn != turn:
            raise refused(f"round {turn.round}, attempt {turn.attempt} is not under way here.")
        return self._live

    # CLOSE -> SIGNED

    def _close(self, message: Ending, model: memoryview) -> Signed:
        last = self.vault.memory.turn
        if self._account is None:
            raise refused("this device signs no end of a run.")
        if last is not None and message.turn < last != END:
            raise refused("the server ends the run before a turn that was paid for here.")
        if not (message.says_why if isinstance(message, CloseEarly) else message.turn.round >= self._rounds):
            raise refused(
                f"the server ends the run after round {message.turn.round} of {self._rounds} without a reason.",
                code="CH625",
            )
        # First for good, also after a restart: a run that went on behind its signed end could claim too little.
        self.vault.change(turn=END, chains=None, asking=None)
        self._ready = self._live = self._finished = None
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
        closing, signature = signed.closing, signed.signature
        return Signed(turn=message.turn, device=self.number, paid=paid, receipt=closing.receipt, signature=signature)
