"""The server's half of a turn: it adds what comes, and ends in a sum or an error. It has no I/O and no secrets."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from choral.core.codec import Codec, Integers
from choral.core.errors import ChoralError, NotReadyError, PlanError, SumError, TrustError
from choral.core.keys import KEY_SIZE, fingerprint
from choral.core.masks import Mask, Words, ring, self_mask
from choral.core.messages import (
    NONCE_BYTES,
    Call,
    Drop,
    Edges,
    Final,
    Inquire,
    Message,
    Opening,
    Ready,
    Refusal,
    Turn,
    Upload,
    Vector,
    decode,
    encode,
    malformed,
    pack_numbers,
    unpack_for,
)
from choral.core.shares import commitment
from choral.core.terms import Bond, Cohort, Terms, check_words, context_of
from choral.server.findings import Findings, edge_mask, lanes_hold, left_out, quarrels
from choral.server.secrets import recover, unseal
from choral.server.uploads import Uploads

Stage = Literal["upload", "probe", "edges", "final", "open", "done"]  # "probe" and "open" in `choral.probes` only


def contained(codec: Codec, words: Words, dimensions: int, *, count: int) -> int:
    """Tell how many sums of `count` updates lay beyond the range and are now zero; none where it would not help.

    Only a device that breaks the protocol gets a sum out of range, and masks hide which. The sums within the range
    are as good as ever while the others are few: were false words drawn at random, fewer than one of them would be
    expected to lie within the range unseen. Beyond that the words stay as they are, and `decode` refuses them.

    >>> codec, words = Codec(grid=0.5, largest=10, cohort=2, word_bits=32), np.uint32([2**31, 8, 1, 0])
    >>> contained(codec, words, 2, count=1), codec.decode(words, 2, count=1).tolist()
    (1, [0, -2])
    """
    raised = ring(codec.word_bits).type(codec.largest * count)
    within = (2 * int(raised) + 1) / 2**codec.word_bits
    beyond = [(which, hit) for which in codec.pieces(dimensions) if (hit := words[which] > 2 * raised).any()]
    hits = sum(int(np.count_nonzero(hit)) for _, hit in beyond)
    if hits * within >= 1 - within:
        return 0
    for which, hit in beyond:
        words[which][hit] = raised
    return hits


class Readiness:
    """The devices that are ready for a turn, each with its ν."""

    def __init__(self, terms: Terms, turn: Turn, called: Iterable[int]) -> None:
        self.terms, self.turn, self.called = terms, turn, tuple(sorted(set(called)))
        outside = self.called and not 0 <= self.called[0] <= self.called[-1] < terms.enrolled
        if len(self.called) > terms.secure.cohort or outside:
            raise PlanError(
                "CH204",
                f"{len(self.called)} devices were called, by numbers up to {max(self.called)}.",
                fix=f"The plan has cohorts of at most {terms.secure.cohort}, of devices 0 to {terms.enrolled - 1}.",
            )
        self.nonces: dict[int, bytes] = {}
        self.findings = Findings(terms=terms)

    def outbox(self) -> dict[int, bytes]:
        """A call for everybody who has not answered yet."""
        asked = self.terms.question
        call = encode(Inquire(turn=self.turn, question=asked) if asked else Call(turn=self.turn))
        return {number: call for number in self.called if number not in self.nonces}

    def receive(self, sender: int, frame: Vector) -> None:
        """Note one answer; what is not an answer to this call counts as silence."""
        try:
            message = read(self.terms, sender, frame)[0]
        except ChoralError as error:
            self.findings.fault(sender, error.code)
            return
        self.note(sender, message)

    def note(self, sender: int, message: Message) -> None:
        """The same for a message already read."""
        if message.turn != self.turn or sender not in self.called:
            return
        if isinstance(message, Ready) and self.findings.proves(sender, message):
            self.nonces.setdefault(sender, message.nonce)
        elif isinstance(message, Refusal):
            self.findings.refuse(sender, message)

    def close(self) -> None:
        """Raise CH503 if too few are ready; nobody has been asked for an update yet."""
        needed = self.terms.secure.smallest_sum
        if len(self.nonces) >= needed:
            return
        nothing = f"nothing was sent and nobody is charged{self.findings}."
        if len(self.called) < needed:  # somebody was named before and is left out, or has nothing left to spend
            raise NotReadyError(
                "CH503",
                f"only {len(self.called)} devices can be called, {needed} are needed; {nothing}",
                where=where(self.turn),
                fix="Enrol another device, or plan for those that are left: a smaller cohort, or fewer colluders.",
            )
        raise NotReadyError(
            "CH503",
            f"{len(self.nonces)} of {len(self.called)} devices are ready, {needed} needed; {nothing}",
            where=where(self.turn),
            fix="Wait for more devices, or call others.",
        )


def read(terms: Terms, sender: int, frame: Vector) -> tuple[Message, memoryview]:
    """A device's message and its vector, or CH600 if it names another device than the one that sent it."""
    message, vector = decode(frame, vector_bytes=terms.upload_bytes, records_bytes=terms.records_bytes)
    if getattr(message, "device", None) != sender:
        raise malformed("it names another device than the one that sent it")
    return message, vector


def where(turn: Turn) -> str:
    """The turn, as errors say it."""
    return f"round {turn.round}, attempt {turn.attempt}:"


@dataclass(frozen=True, kw_only=True)
class Sum:
    """All that a turn releases: the sum in grid steps, and whose updates are in it.

    `spoilt` is how many of its numbers are zero because they lay beyond what honest devices can send.
    """

    turn: Turn
    integers: Integers
    included: tuple[str, ...]
    spoilt: int = 0

    @property
    def count(self) -> int:
        """Tell how many updates were added."""
        return len(self.included)


class Round:
    """One turn: send the outbox, feed what comes back, advance when time is up, until there is a sum.

    What a late, silent or faulty device does is normal and only noted in `findings`; what ends the turn is raised by
    `advance`. Uploads are added as they come and laid aside in `kept`, which takes one back if its device was shown
    another round, or falls silent before its masks can be removed.
    """

    def __init__(
        self,
        readiness: Readiness,
        model: Vector,
        *,
        following: Readiness | None = None,
        uploads: Uploads | None = None,
    ) -> None:
        readiness.close()
        self.terms, self.turn, self.following = readiness.terms, readiness.turn, following
        self.findings = Findings(terms=self.terms)
        self.stage: Stage = "upload"
        self.sum: Sum | None = None
        self._nonces = dict(readiness.nonces)
        self._cohort = Cohort(self.terms, self.turn, self._nonces, b"")  # its ctx comes with the uploads
        self._dropped: frozenset[int] = frozenset()
        self._uploads: dict[int, Upload] = {}
        self._bonds: dict[int, dict[int, Bond]] = {}
        self._broken: set[int] = set()  # whose check lanes are not what they must be
        self._kept = uploads or Uploads(self.terms.codec.word_bits)
        self._edges: dict[int, dict[int, bytes]] = {}
        self._keys: dict[int, dict[int, bytes]] = {}  # to envelopes: by holder, then by who sealed them
        self._own_masks: dict[int, Mask] = {}
        self._outbox = self.terms.lists.announced(self.terms, self.turn, self._nonces, model)

    @property
    def included(self) -> tuple[int, ...]:
        """U: the cohort without those who dropped out so far."""
        return tuple(number for number in self._cohort.numbers if number not in self._dropped)

    @property
    def uploaded(self) -> tuple[int, ...]:
        """Everybody who has sent an update, and so was charged for it, included or not."""
        return tuple(sorted(self._uploads))

    def outbox(self) -> Mapping[int, bytes]:
        """Give what is to be sent now, by device number."""
        return self._outbox

    def receive(self, sender: int, frame: Vector) -> None:
        """Take one reply; a reply that is late, repeated or wrong counts as silence."""
        try:
            message, vector = read(self.terms, sender, frame)
            if self.following is not None:
                self.following.note(sender, message)
            if message.turn == self.turn and sender in self._nonces and sender not in self._dropped:
                self._take(sender, message, vector)
        except ChoralError as error:
            self.findings.fault(sender, error.code)

    def _take(self, sender: int, message: Message, vector: Vector) -> None:
        match message, self.stage:
            case Upload(), "upload" if sender not in self._uploads:
                self._add(sender, message, vector)
            case Edges(), "edges" if sender not in self._edges:
                self._take_edges(sender, message)
            case Opening(), "final" if sender not in self._keys:
                self._take_keys(sender, message)
                if self.following is not None and message.ready is not None:
                    nonce, signature = message.ready[:NONCE_BYTES], message.ready[NONCE_BYTES:]
                    ready = Ready(turn=self.following.turn, device=sender, nonce=nonce, signature=signature)
                    self.following.note(sender, ready)
            case Refusal(), _:
                self.findings.refuse(sender, message)

    def _take_edges(self, sender: int, message: Edges) -> None:
        """Keep the pair keys that a device reveals, if they are those that it committed to; else it has dropped out."""
        dropped = set(self._cohort.neighbours(sender)) & self._dropped
        edges = unpack_for(message.keys, KEY_SIZE, dropped)
        for other, key in edges.items():
            bond = self._bonds[sender][other]
            shown = check_words(self.terms, edge_mask(key, sender, other)).tobytes()
            if (fingerprint(key, self._cohort.context), shown) != (bond.edge, bond.checks):
                self.findings.name(sender, "revealed another mask key than it had laid down")
                return
        self._edges[sender] = edges

    def _take_keys(self, sender: int, message: Opening) -> None:
        """Keep the envelope keys that a device reveals, as far as they are those that it committed to."""
        keys = unpack_for(message.keys, KEY_SIZE, self._holders(sender))
        laid, context = self._bonds[sender], self._cohort.context
        right = {owner: key for owner, key in keys.items() if fingerprint(key, context) == laid[owner].takes}
        if right != keys:
            self.findings.name(sender, "revealed another envelope key than it had laid down")
        self._keys[sender] = right

    def _holders(self, number: int) -> set[int]:
        """The included neighbours of an included device: they hold its shares, and it holds theirs."""
        return self._bonds[number].keys() - self._dropped

    def _add(self, sender: int, message: Upload, vector: Vector) -> None:
        self._agree_on(message.context)
        bonds = bonds_of(self.terms, message.bonds, set(self._cohort.neighbours(sender)))
        if len(message.checks) != self.terms.check_bytes:
            raise malformed("check lanes of another size than the words")
        words = np.frombuffer(vector, ring(self.terms.codec.word_bits))
        if not lanes_hold(self.terms, words, [message.checks, *(bond.checks for bond in bonds.values())]):
            self._broken.add(sender)
        self._kept.add(sender, vector)
        self._uploads[sender], self._bonds[sender] = message, bonds

    def advance(self) -> None:
        """Time is up for this step: go on with those who answered, or raise SumError."""
        if self.stage == "upload":
            silent = self._misled() | (self._nonces.keys() - self._uploads.keys())
            self._close_uploads(silent | self._lying(silent))
        elif self.stage == "edges":
            self._drop(set(self.included) - self._edges.keys(), "revealed the masks of the dropped")
        elif self.stage == "final":
            self._finish()

    def _close_uploads(self, left_out: set[int]) -> None:
        """Go on without those who sent no upload, or one that is of no use."""
        self._drop(left_out, "sent a masked update")

    def _final(self) -> None:
        """FINAL is out: from now on no upload is taken back."""
        self._kept.vectors.clear()

    def _finish(self) -> None:
        self.sum, self.stage, self._outbox = self._open(), "done", {}

    def _misled(self) -> set[int]:
        """The devices that were shown another round, by the ctx that they masked for; the others' ctx is the turn's.

        Where all agree, the server need not hash its model: masks of one ctx cancel, and who could change every
        device's view on the way could change the masked numbers as well.
        """
        seen = {upload.context for upload in self._uploads.values()}
        context = seen.pop() if len(seen) == 1 else self._own_context()
        self._agree_on(context)
        misled = {number for number, upload in self._uploads.items() if upload.context != context}
        for number in misled:
            self.findings.fault(number, "CH604")
        return misled

    def _lying(self, silent: set[int]) -> set[int]:
        """The devices to leave out: those whose own account makes their lanes false, and one end of each quarrel."""
        broken = self._broken - silent
        for number in broken:
            self.findings.name(number, "sent check lanes that do not say 1 and 0")
        pairs = quarrels(self.terms, {n: bonds for n, bonds in self._bonds.items() if n not in silent | broken})
        self.findings.quarrels |= pairs
        return broken | left_out(pairs, self._cohort.context)

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
            self._kept.take_back(number)
        if silent:
            # Asked again of everybody: D has grown, and each device must know all of it before it opens anything.
            self.stage, self._edges = "edges", {}
            self._outbox = dict.fromkeys(included, encode(Drop(turn=self.turn, dropped=pack_numbers(self._dropped))))
        else:
            self.stage, self._outbox = "final", self._final_outbox()
            self._final()

    def _final_outbox(self) -> dict[int, bytes]:
        following = self.following
        outbox = {} if following is None else following.outbox()
        for number in self.included:
            turn = following.turn if following is not None and number in outbox else None
            outbox[number] = encode(Final(turn=self.turn, following=turn))
        return outbox

    def _open(self) -> Sum:
        terms = self.terms
        added = [edge_mask(edges[other], one, other) for one, edges in self._edges.items() for other in edges]
        self._own_masks = self._self_masks()
        added += self._own_masks.values()
        total, count = self._kept.unmasked([mask.undone() for mask in added]), len(self.included)
        spoilt = contained(terms.codec, total, terms.parameters, count=count)
        try:
            integers = terms.codec.decode(total, terms.parameters, count=count, consume=True)
        except SumError as error:
            # All keys are right, so nothing says whose words are false.
            what = f"{error.what} Some device sent false words; masks hide which, so nobody can be named;"
            raise self._discarded(error.code, what) from None
        self._check_sum(integers)
        included = tuple(terms.ids[number] for number in self.included)
        return Sum(turn=self.turn, integers=integers, included=included, spoilt=spoilt)

    def _check_sum(self, integers: Integers) -> None:
        """Raise the SumError of a sum that something else belies."""

    def _self_masks(self) -> dict[int, Mask]:
        """The self masks of all included devices, or CH504 with those whose self mask is not what they committed to."""
        holders = {owner: self._opened_by(owner) for owner in self.included}
        found = {owner: self._self_mask(owner, able) for owner, able in holders.items()}
        masks = {owner: mask for owner, mask in found.items() if mask is not None}
        if len(masks) == len(found):
            return masks
        raise self._discarded(
            "CH504",
            f"the self masks of {len(found) - len(masks)} of {len(found)} can't be opened; no sum was released;",
            fix="Try the round again without the devices that broke the protocol.",
        )

    def _opened_by(self, owner: int) -> list[int]:
        """The devices that have opened their share of this one's mask, or CH503 if they are too few."""
        holders, threshold = self._holders(owner), self.terms.secure.threshold
        able = sorted(holder for holder in holders if owner in self._keys.get(holder, ()))
        if len(able) < threshold:
            raise self._too_few(len(able), len(holders), threshold, "opened its share of a self mask")
        return able

    def _self_mask(self, owner: int, holders: list[int]) -> Mask | None:
        """A device's self mask, or None: all that can be wrong with it now is what the device itself committed to."""
        secret = self._secret(owner, holders[: self.terms.secure.threshold])
        if secret is None:  # some of the shares that it has dealt are wrong, perhaps not all
            secret = self._secret(owner, holders)
            self.findings.name(owner, "sealed shares that do not open what it committed to")
        if secret is None:
            return None
        mask = self_mask(secret, self._cohort.context, self.terms.ids[owner])
        if check_words(self.terms, mask).tobytes() != self._uploads[owner].checks:
            self.findings.name(owner, "sent check lanes that do not say 1 and 0")
            return None
        return mask

    def _secret(self, owner: int, holders: list[int]) -> bytes | None:
        """The self secret that a device committed to, or None if no tried set of these holders' shares gives it."""
        id, context, shares = self.terms.ids[owner], self._cohort.context, {}
        for holder in holders:
            key, envelope = self._keys[holder][owner], self._bonds[owner][holder].envelope
            with contextlib.suppress(TrustError):
                shares[self._cohort.point(holder)] = unseal(key, context, id, self.terms.ids[holder], envelope)
        promise = self._uploads[owner].commitment
        return recover(shares, self.terms.secure.threshold, lambda secret: commitment(secret, context, id) == promise)

    def _discarded(
        self, code: str, what: str, fix: str = "Try the round again, if possible with other devices."
    ) -> SumError:
        charged = f"the {len(self._uploads)} that sent an update are charged to be safe{self.findings}."
        return SumError(code, f"{what} {charged}", where=where(self.turn), fix=fix)

    def _too_few(self, answered: int, asked: int, needed: int, did: str) -> SumError:
        return self._discarded(
            "CH503",
            f"{answered} of {asked} devices {did}, {needed} needed; the server learned nothing;",
            fix="Try the round again: every attempt has fresh masks, fresh noise and its own charge.",
        )


def bonds_of(terms: Terms, data: bytes, expected: set[int]) -> dict[int, Bond]:
    """The bonds of an upload, one for each neighbour, or CH600."""
    records = unpack_for(data, terms.bond_bytes, expected)
    return {number: Bond(*terms.bond_layout.unpack(record)) for number, record in records.items()}
