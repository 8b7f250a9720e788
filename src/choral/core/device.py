"""The device's half of a turn: it holds every secret, charges before it sends, and refuses whatever could expose it."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from choral.core.codec import Codec
from choral.core.errors import ChoralError, LedgerError, StorageError, SumError, TrustError
from choral.core.keys import (
    PUBLIC_SIZE,
    WRAPPED_SIZE,
    Bundle,
    Chains,
    HybridKey,
    Identity,
    PairSecret,
    digest,
    envelope_key,
    no_keys,
    pair_of_turn,
    pair_roots,
    seal,
)
from choral.core.masks import Mask, Stream, Words, add_masks, pair_mask, ring, self_mask
from choral.core.messages import (
    NONCE_BYTES,
    QUESTIONS,
    Agreed,
    Call,
    Close,
    CloseEarly,
    Drop,
    Edges,
    Ending,
    Final,
    Gather,
    Inquire,
    Message,
    Offer,
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
    Wrapped,
    Wraps,
    decode,
    encode,
    encode_before,
    malformed,
    pack,
    unpack,
)
from choral.core.plan import SecureSum
from choral.core.sealed import Receipt
from choral.core.shares import commitment, fresh_secret, split
from choral.core.signed import (
    END,
    Account,
    SignedEnd,
    offer_fields,
    ready_fields,
    sign_end,
    signed_refusal,
)
from choral.core.terms import (
    MOST_CHARGED,
    OFFER_BYTES,
    Bond,
    Cohort,
    Extension,
    Live,
    Terms,
    another_charge,
    check_words,
    refused,
)
from choral.core.vault import MOST_ROOTS, Memory, Vault


class Pairs(Protocol):
    """All that a device asks of its keys; `blamed` is the peer with whom no keys could be agreed on."""

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


Update = NDArray[np.floating[Any]]
Train = Callable[[NDArray[Any], int, int], Update]  # gets the model, or the state that a question is asked at
Check = Callable[[NDArray[Any]], None]  # raises what a device has against a model, or against a state
Encode = Callable[[Update, int, int, Words], object]
# Writes the charge of (round, attempt) durably and returns its receipt, or raises LedgerError and leaves no trace.
Charger = Callable[[int, int], Receipt]
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
        """Tell how many attempts of a round this device has paid for; a question has one."""
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """A device's answer to a question that it has checked: nothing is charged and no row is read before OMEGA."""

    secure: SecureSum
    codec: Codec
    length: int
    train: Train  # reads the table
    encode: Encode  # adds the noise
    charge: Charger
    payable: Payable
    state: int = 0  # the numbers of the public state that the question is asked at
    check: Check | None = None  # of that state, before anything is charged


# Checks a question, given as its canonical JSON; raises what a device has against it.
Prepare = Callable[[bytes], Prepared]


class Respondent:
    """One enrolled device for questions: `answer` takes the frames of their turns, as a Device takes those of rounds.

    A question that `prepare` refuses is refused when the device is called, so that nobody has paid for the turn.
    """

    def __init__(self, terms: Terms, vault: Vault, prepare: Prepare) -> None:
        self.terms, self.vault, self._prepare = terms, vault, prepare
        self._identity = Identity(vault.memory.id, vault.memory.secret)
        self.number = terms.number_of(self._identity)
        self.refusal: ChoralError | None = None
        self._device: Device | None = None

    def __repr__(self) -> str:
        return f"Respondent({self._identity.id!r}, last question {self.vault.memory.asked})"

    @property
    def upload_bytes(self) -> int:
        """The size of the masked answer to the question under way."""
        return 0 if self._device is None else self._device.terms.upload_bytes

    def answer(self, frame: Vector) -> Vector:
        """The reply to a frame, or a signed Refusal; `refusal` keeps the reason here."""
        turn = Turn(0, 0)
        try:
            size = 0 if self._device is None else self._device.terms.model_bytes
            message, _ = decode(frame, vector_bytes=size, records_bytes=self.terms.records_bytes)
            turn = message.turn
            if isinstance(message, Inquire):
                self._device = None  # whatever was under way has failed
                self._device = self._prepared(message.question)
                frame = encode(Call(turn=turn))
            if self._device is None or not turn.asks:
                raise refused("this device was not asked anything, or was restarted since.")
        except ChoralError as error:
            self.refusal = error
            return encode(signed_refusal(self._identity, self.number, turn, error.code))
        reply = self._device.answer(frame)
        self.refusal = self._device.refusal or self.refusal
        return reply

    def _prepared(self, question: bytes) -> Device:
        way = self._prepare(question)
        terms = self.terms.asked(question, secure=way.secure, codec=way.codec, length=way.length, state=way.state)
        return Device(
            terms,
            self.vault,
            train=way.train,
            charge=way.charge,
            encode=way.encode,
            payable=way.payable,
            check=way.check,
        )
