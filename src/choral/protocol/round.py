"""The server's half of a turn: it adds what comes, and ends in a sum or an error. No I/O, no secrets of its own."""

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from choral.errors import ChoralError, PlanError, SumError
from choral.protocol.messages import (
    Call,
    Drop,
    Edges,
    Final,
    Message,
    Omega,
    Opening,
    Ready,
    Refusal,
    Turn,
    Upload,
    Vector,
    decode,
    encode,
    malformed,
    pack,
    pack_numbers,
    unpack,
)
from choral.protocol.terms import ENVELOPE_BYTES, Cohort, Terms, context_of
from choral.secagg.codec import Integers
from choral.secagg.keys import KEY_SIZE
from choral.secagg.masks import Mask, Words, add_masks, ring, self_mask
from choral.secagg.shares import SHARE_SIZE, commitment, join

Stage = Literal["upload", "edges", "final", "done"]


@dataclass(frozen=True, kw_only=True)
class Sum:
    """What a turn releases: the sum in grid steps, and whose updates are in it."""

    turn: Turn
    integers: Integers
    included: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many updates were added."""
        return len(self.included)


class Muster:
    """Who is ready for a turn, and with which ν."""

    def __init__(self, terms: Terms, turn: Turn, called: Iterable[int]) -> None:
        self.terms, self.turn, self.called = terms, turn, tuple(sorted(set(called)))
        if len(self.called) > terms.secure.cohort or not set(self.called) <= set(range(len(terms.ids))):
            raise PlanError(
                "CH204",
                f"{len(self.called)} devices were called, by numbers up to {max(self.called)}.",
                fix=f"The plan has cohorts of at most {terms.secure.cohort}, of devices 0 to {len(terms.ids) - 1}.",
            )
        self.nonces: dict[int, bytes] = {}
        self.refusals: dict[int, str] = {}

    def outbox(self) -> dict[int, bytes]:
        """A call for everybody who has not answered yet."""
        call = encode(Call(turn=self.turn))
        return {number: call for number in self.called if number not in self.nonces}

    def receive(self, sender: int, frame: Vector) -> None:
        """Note one answer; what is not an answer to this call counts as silence."""
        try:
            message = _read(self.terms, sender, frame)[0]
        except ChoralError as error:
            self.refusals[sender] = error.code
            return
        self.note(sender, message)

    def note(self, sender: int, message: Message) -> None:
        """The same for a message already read."""
        if message.turn != self.turn or sender not in self.called:
            return
        if isinstance(message, Ready):
            self.nonces.setdefault(sender, message.nonce)
        elif isinstance(message, Refusal):
            self.refusals[sender] = message.code

    def close(self) -> None:
        """Nothing, or CH503 if too few are ready; nobody has been asked for an update yet."""
        needed = self.terms.secure.smallest_sum
        if len(self.nonces) < needed:
            raise SumError(
                "CH503",
                f"{len(self.nonces)} of {len(self.called)} devices are ready, {needed} needed;"
                f" nothing was sent and nobody is charged{_reasons(self.terms, self.refusals)}.",
                where=_where(self.turn),
                fix="Wait for more devices, or call others.",
            )


class Round:
    """One turn: send the outbox, feed what comes back, advance when time is up, until there is a sum.

    What a late, silent or faulty device does is normal and only noted in `refusals`; what ends the turn is raised by
    `advance`. Uploads are added as they come and laid on the `shelf`, from where one is taken back if its device was
    shown another round, or falls silent before its masks can be removed.
    """

    def __init__(
        self,
        muster: Muster,
        model: Vector,
        *,
        following: Muster | None = None,
        shelf: MutableMapping[int, Vector] | None = None,
    ) -> None:
        muster.close()
        self.terms, self.turn, self.following = muster.terms, muster.turn, following
        self.refusals: dict[int, str] = {}
        self.stage: Stage = "upload"
        self.sum: Sum | None = None
        self._nonces = dict(muster.nonces)
        self._cohort = Cohort(self.terms, self.turn, self._nonces, b"")  # its ctx comes with the uploads
        self._dropped: frozenset[int] = frozenset()
        self._uploads: dict[int, Upload] = {}
        self._shelf: MutableMapping[int, Vector] = {} if shelf is None else shelf
        self._total: Words = np.empty(0, ring(self.terms.codec.word_bits))  # the first upload becomes it
        self._edges: dict[int, dict[int, bytes]] = {}
        self._shares: dict[int, dict[int, bytes]] = {}
        omega = Omega(turn=self.turn, terms=self.terms.digest, cohort=pack(muster.nonces))
        self._outbox: dict[int, bytes] = dict.fromkeys(self._cohort.numbers, encode(omega, model))

    @property
    def included(self) -> tuple[int, ...]:
        """U: the cohort without those who dropped out so far."""
        return tuple(number for number in self._cohort.numbers if number not in self._dropped)

    @property
    def uploaded(self) -> tuple[int, ...]:
        """Everybody who has sent an update, and so was charged for it, included or not."""
        return tuple(sorted(self._uploads))

    def outbox(self) -> Mapping[int, bytes]:
        """What is to be sent now, by device number."""
        return self._outbox

    def receive(self, sender: int, frame: Vector) -> None:
        """Take one reply; a reply that is late, repeated or wrong counts as silence."""
        try:
            message, vector = _read(self.terms, sender, frame)
            if self.following is not None:
                self.following.note(sender, message)
            if message.turn == self.turn and sender in self._nonces and sender not in self._dropped:
                self._take(sender, message, vector)
        except ChoralError as error:
            self.refusals[sender] = error.code

    def _take(self, sender: int, message: Message, vector: Vector) -> None:
        match message, self.stage:
            case Upload(), "upload" if sender not in self._uploads:
                self._add(sender, message, vector)
            case Edges(), "edges" if sender not in self._edges:
                dropped = set(self._cohort.neighbours(sender)) & self._dropped
                self._edges[sender] = self._records(message.keys, self.terms.edge_bytes, dropped)
            case Opening(), "final" if sender not in self._shares:
                self._shares[sender] = self._records(message.shares, SHARE_SIZE, self._holders(sender))
                if self.following is not None and message.nonce is not None:
                    ready = Ready(turn=self.following.turn, device=sender, nonce=message.nonce)
                    self.following.note(sender, ready)
            case Refusal(), _:
                self.refusals[sender] = message.code

    def _records(self, data: bytes, width: int, expected: set[int]) -> dict[int, bytes]:
        records = unpack(data, width, most=len(expected))
        if records.keys() != expected:
            raise malformed("records for other devices than asked for")
        return records

    def _holders(self, number: int) -> set[int]:
        """The included neighbours of a device: they hold its shares, and it holds theirs."""
        return set(self._cohort.neighbours(number)) - self._dropped

    def _add(self, sender: int, message: Upload, vector: Vector) -> None:
        self._agree_on(message.context)
        expected = set(self._cohort.neighbours(sender)) if self.terms.self_masked else set()
        self._records(message.envelopes, ENVELOPE_BYTES, expected)
        words = np.frombuffer(vector, self._total.dtype)
        if self._uploads:
            np.add(self._total, words, out=self._total)
        else:
            self._total = words.copy()  # the vector itself belongs to the transport and to the shelf
        self._uploads[sender] = message
        if self.terms.self_masked:
            self._shelf[sender] = vector

    def advance(self) -> None:
        """Time is up for this step: go on with those who answered, or raise SumError."""
        if self.stage == "upload":
            self._drop(self._misled() | (self._nonces.keys() - self._uploads.keys()), "sent a masked update")
        elif self.stage == "edges":
            self._drop(set(self.included) - self._edges.keys(), "revealed the masks of the dropped")
        elif self.stage == "final":
            self.sum = self._open()
            self.stage = "done"
            self._outbox = {}

    def _misled(self) -> set[int]:
        """The devices that were shown another round, by the ctx that they masked for; the others' ctx is the turn's.

        Where all agree, the server need not hash its model: masks of one ctx cancel, and who could change every
        device's view on the way could change the masked numbers as well.
        """
        seen = {upload.context for upload in self._uploads.values()}
        context = seen.pop() if len(seen) == 1 else self._own_context()
        self._agree_on(context)
        misled = {number for number, upload in self._uploads.items() if upload.context != context}
        self.refusals |= dict.fromkeys(misled, "CH604")
        return misled

    def _own_context(self) -> bytes:
        sent = next(iter(self._outbox.values()))
        model = memoryview(sent)[len(sent) - self.terms.model_bytes :]
        return context_of(self.terms, self.turn, model, self._nonces)

    def _agree_on(self, context: bytes) -> None:
        if self._cohort.context != context:
            self._cohort = Cohort(self.terms, self.turn, self._nonces, context)

    def _drop(self, silent: set[int], did: str) -> None:
        self._dropped |= silent
        included = self.included
        if len(included) < self.terms.secure.smallest_sum:
            raise self._too_few(len(included), len(self._nonces), self.terms.secure.smallest_sum, did)
        for number in silent & self._uploads.keys():
            upload = np.frombuffer(self._shelf.pop(number), self._total.dtype)
            np.subtract(self._total, upload, out=self._total)
        if silent:
            # Asked again of everybody: D has grown, and each device must know all of it before it opens anything.
            self.stage, self._edges = "edges", {}
            self._outbox = dict.fromkeys(included, encode(Drop(turn=self.turn, dropped=pack_numbers(self._dropped))))
        elif self.terms.self_masked:
            self.stage, self._outbox = "final", self._final_outbox()
            self._shelf.clear()
        else:
            self.stage = "final"
            self.advance()

    def _final_outbox(self) -> dict[int, bytes]:
        mail: dict[int, dict[int, bytes]] = {number: {} for number in self.included}
        for sender in self.included:
            envelopes = unpack(self._uploads[sender].envelopes, ENVELOPE_BYTES, most=len(self._cohort))
            for receiver in envelopes.keys() - self._dropped:
                mail[receiver][sender] = envelopes[receiver]
        following = self.following
        outbox = {} if following is None else following.outbox()
        for number, envelopes in mail.items():
            turn = following.turn if following is not None and number in outbox else None
            outbox[number] = encode(Final(turn=self.turn, envelopes=pack(envelopes), following=turn))
        return outbox

    def _open(self) -> Sum:
        terms, context = self.terms, self._cohort.context
        masks = [mask for owner in self.included for mask in self._self_masks(owner, context)]
        masks += [mask for one, edges in self._edges.items() for other in edges for mask in self._edge(one, other)]
        add_masks(self._total, masks)
        integers = terms.codec.decode(self._total, terms.parameters, count=len(self.included), consume=True)
        return Sum(turn=self.turn, integers=integers, included=tuple(terms.ids[number] for number in self.included))

    def _self_masks(self, owner: int, context: bytes) -> list[Mask]:
        if not self.terms.self_masked:
            return []
        answered = self._holders(owner) & self._shares.keys()
        threshold, id = self.terms.secure.threshold, self.terms.ids[owner]
        if len(answered) < threshold:
            raise self._too_few(len(answered), len(self._holders(owner)), threshold, "gave its share of a self mask")
        secret = join({self._cohort.point(holder): self._shares[holder][owner] for holder in answered}, threshold)
        if commitment(secret, context, id) != self._uploads[owner].commitment:
            raise SumError(
                "CH504",
                f'the shares of device "{id}" do not open what it committed to; no sum was released.',
                where=_where(self.turn),
                fix="A device sent a wrong share: try again; if it stays, leave devices out one by one.",
            )
        return [self_mask(secret, context, id).undone()]

    def _edge(self, one: int, other: int) -> list[Mask]:
        """The masks that an included device added for a dropped one, to be taken away."""
        keys = self._edges[one][other]
        halves = [keys[start : start + KEY_SIZE] for start in range(0, len(keys), KEY_SIZE)]
        # The first key of a pair is added by the lower device; the second, of directed masks, by the higher.
        return [Mask(key, (one < other) == (index == 0)).undone() for index, key in enumerate(halves)]

    def _too_few(self, answered: int, asked: int, needed: int, did: str) -> SumError:
        return SumError(
            "CH503",
            f"{answered} of {asked} devices {did}, {needed} needed; the server learned nothing;"
            f" the {len(self._uploads)} that sent an update are charged to be safe"
            f"{_reasons(self.terms, self.refusals)}.",
            where=_where(self.turn),
            fix="Try the round again: every attempt has fresh masks, fresh noise and its own charge.",
        )


def _read(terms: Terms, sender: int, frame: Vector) -> tuple[Message, memoryview]:
    message, vector = decode(frame, vector_bytes=terms.upload_bytes, records_bytes=terms.records_bytes)
    if getattr(message, "device", None) != sender:
        raise malformed("it names another device than the one that sent it")
    return message, vector


def _where(turn: Turn) -> str:
    return f"round {turn.round}, attempt {turn.attempt}:"


def _reasons(terms: Terms, refusals: Mapping[int, str]) -> str:
    """Who said no, by id and code."""
    told = [f"{terms.ids[number]} {code}" for number, code in sorted(refusals.items()) if 0 <= number < len(terms.ids)]
    return f" (refused: {', '.join(told)})" if told else ""
