"""The server's half of probes: it draws them when all uploads are fixed, judges answers, and opens failed turns."""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from choral.core.codec import Integers
from choral.core.errors import SumError
from choral.core.keys import KEY_SIZE, fingerprint
from choral.core.masks import Mask, Words, add_masks, ring
from choral.core.messages import (
    Message,
    Open,
    OpenedKeys,
    Probe,
    ProbeAnswer,
    Vector,
    encode,
    malformed,
    pack,
    unpack_for,
)
from choral.core.terms import Cohort, Terms
from choral.probes.device import Probed
from choral.probes.projections import ANSWER_BYTES, Answers, adds_up, answers_of, upload_digest, watched_of
from choral.server.findings import edge_mask
from choral.server.round import Readiness, Round, Sum
from choral.server.uploads import Uploads


def nobody(answers: Mapping[int, Answers], most: int) -> Set[int]:  # noqa: ARG001 - what a judge is asked
    """The judge who leaves nobody out."""
    return frozenset()


@dataclass(kw_only=True)
class ProbeInquiry:
    """A server's questions of one turn: what it watches, and whom it leaves out by the answers, at most so many.

    `asked` are its probes and their answers, once they are drawn. With `audit` a turn whose sum is right is opened all
    the same: false answers that cancel are seen there.
    """

    watched: bytes = b""
    judge: Callable[[Mapping[int, Answers], int], Set[int]] = nobody
    audit: bool = False
    asked: "AskedProbes | None" = None

    def round(self, readiness: Readiness, model: Vector, **more: Any) -> "ProbedRound":  # noqa: ANN401 - what a Round takes
        """The turn in which they are asked."""
        return ProbedRound(readiness, model, inquiry=self, **more)


@dataclass(kw_only=True, eq=False)
class AskedProbes:
    """The probes of a turn: the digests that fixed them, their seed, and the answers as they come."""

    terms: Terms
    probes: int
    context: bytes
    digests: Mapping[int, bytes]
    seed: bytes
    watched: bytes
    answers: dict[int, Answers]

    @classmethod
    def of(cls, cohort: Cohort, uploads: Iterable[tuple[int, Vector]], inquiry: ProbeInquiry) -> Self:
        """The probes for these uploads."""
        terms = cohort.terms
        digests = {n: upload_digest(cohort.context, terms.ids[n], vector) for n, vector in uploads}
        assert isinstance(terms.extension, Probed)  # noqa: S101 - the terms of a probed round
        seed = terms.extension.seed(cohort, digests, inquiry.watched)
        return cls(
            terms=terms,
            probes=terms.extension.probes,
            context=cohort.context,
            digests=digests,
            seed=seed,
            watched=inquiry.watched,
            answers={},
        )

    def take(self, sender: int, message: ProbeAnswer) -> None:
        """Keep the first answer of a device that was asked, or CH600 if it has another length."""
        if sender not in self.digests or sender in self.answers:
            return
        watching = len(self.watched) // max(self.terms.parameters, 1)
        if len(message.numbers) != ANSWER_BYTES * (self.probes + watching):
            raise malformed(f"{len(message.numbers):,} bytes of answers")
        self.answers[sender] = np.frombuffer(message.numbers, "<i8").astype(np.int64)

    def belong_to(self, integers: Integers, included: Iterable[int]) -> bool:
        """Tell whether the answers of these devices are together those of their opened sum."""
        return adds_up({number: self.answers[number] for number in included}, self.expected(integers))

    def expected(self, integers: Integers) -> Answers:
        """The answers that belong to these integers."""
        return answers_of(self.seed, self.probes, integers, watched_of(self.watched, self.terms.parameters))


def faults(
    asked: AskedProbes | None,
    cohort: Cohort,
    included: Iterable[int],
    vectors: Mapping[int, Vector],
    own: Mapping[int, Mask],
    edges: Mapping[int, Mapping[int, bytes]],
    pairs: Mapping[int, Mapping[int, bytes]],
) -> dict[int, str]:
    """Give what each included device did wrong, as far as its upload can be taken apart.

    Either end of a pair may show its key (`pairs`); those with the dropped came with EDGES, and self masks with FINAL.
    """
    found = {}
    for number in included:
        known = dict(edges.get(number, {}))
        known |= {other: keys[number] for other, keys in pairs.items() if number in keys}
        known |= pairs.get(number, {})
        if known.keys() != set(cohort.neighbours(number)):
            continue
        masks = [edge_mask(key, number, other) for other, key in known.items()]
        words = np.frombuffer(vectors[number], ring(cohort.terms.codec.word_bits))
        if fault := _fault(asked, cohort.terms, number, words, [*masks, own[number]]):
            found[number] = fault
    return found


def _fault(asked: AskedProbes | None, terms: Terms, number: int, words: Words, masks: list[Mask]) -> str | None:
    """Name what is wrong with an opened upload, or None: both ends of each pair committed to its masks."""
    own = words.copy()
    add_masks(own, [mask.undone() for mask in masks])
    try:
        integers = terms.codec.decode(own, terms.parameters, count=1)
    except SumError as error:
        return "sent words out of range" if error.code == "CH502" else "sent check lanes that do not say 1 and 0"
    if asked is not None and asked.expected(integers).tolist() != asked.answers[number].tolist():
        return "answered its probes falsely"
    return None


class ProbedRound(Round):
    """A turn in which devices answer probes after their uploads, and which is opened if its sum fails."""

    def __init__(
        self,
        readiness: Readiness,
        model: Vector,
        *,
        following: Readiness | None = None,
        uploads: Uploads | None = None,
        inquiry: ProbeInquiry | None = None,
    ) -> None:
        super().__init__(readiness, model, following=following, uploads=uploads)
        self.inquiry = inquiry or ProbeInquiry()
        self._left_out: set[int] = set()  # before the probes
        self._pairs: dict[int, dict[int, bytes]] = {}  # the pair keys of a turn that is opened
        self._held: Sum | None = None  # until an audit is over
        self._failed: SumError | None = None

    @property
    def asked(self) -> AskedProbes | None:
        """The probes of the turn, once they are drawn."""
        return self.inquiry.asked

    def _take(self, sender: int, message: Message, vector: Vector) -> None:
        match message, self.stage:
            case ProbeAnswer(), "probe" if self.asked is not None:
                self.asked.take(sender, message)
            case OpenedKeys(), "open" if sender not in self._pairs:
                self._take_pairs(sender, message)
            case _:
                super()._take(sender, message, vector)

    def advance(self) -> None:
        """Time is up for this step: go on with those who answered, or raise SumError."""
        if self.stage == "probe":
            self._drop(self._left_out | self._judged(), "answered their probes")
        elif self.stage == "open":
            self._take_apart()
        else:
            super().advance()

    def _close_uploads(self, left_out: set[int]) -> None:
        """Ask everybody whose upload is here and of use: all of them are fixed by now, and nobody knew the probes."""
        self._left_out = left_out
        left = [number for number in self._cohort.numbers if number not in self._left_out]
        if len(left) < self.terms.secure.smallest_sum:
            raise self._too_few(len(left), len(self._nonces), self.terms.secure.smallest_sum, "sent a masked update")
        uploads = ((number, self._kept.vectors[number]) for number in left)  # one at a time: some may be in a file
        self.inquiry.asked = AskedProbes.of(self._cohort, uploads, self.inquiry)
        probe = encode(Probe(turn=self.turn, digests=pack(self.inquiry.asked.digests)), self.inquiry.watched)
        self.stage, self._outbox = "probe", dict.fromkeys(left, probe)

    def _judged(self) -> set[int]:
        """The devices that are left out by answers: the silent, and as many of the refused as the sum can spare."""
        assert self.asked is not None  # noqa: S101 - set when this stage began
        answers = self.asked.answers
        most = max(0, len(answers) - self.terms.secure.smallest_sum)
        return {*(self.asked.digests.keys() - answers.keys()), *self.inquiry.judge(answers, most)}

    def _finish(self) -> None:
        """The sum; where it fails its checks, and for an audit, the turn is opened before anything else happens."""
        openable = self.terms.extension is not None and self.terms.extension.opens
        try:
            self._held = self._open()
        except SumError as error:
            if not (self._own_masks and openable):
                raise
            self._failed = error
        if self._failed is not None or (self.inquiry.audit and openable):
            self.stage, self._outbox = "open", dict.fromkeys(self.included, encode(Open(turn=self.turn)))
        else:
            self.sum, self.stage, self._outbox = self._held, "done", {}

    def _final(self) -> None:
        """FINAL is out: uploads are kept where the turn may be opened."""
        if self.terms.extension is None or not self.terms.extension.opens:
            super()._final()

    def _check_sum(self, integers: Integers) -> None:
        """Raise CH505 if the answers of the included devices do not add up to those of their sum."""
        if self.asked is not None and not self.asked.belong_to(integers, self.included):
            raise self._discarded("CH505", "the answers to the probes are not those of the opened sum;")

    def _take_pairs(self, sender: int, message: OpenedKeys) -> None:
        """Keep the pair keys that a device shows, as far as they are those that both ends committed to."""
        keys = unpack_for(message.keys, KEY_SIZE, set(self._cohort.neighbours(sender)))
        laid, context = self._bonds[sender], self._cohort.context
        right = {other: key for other, key in keys.items() if fingerprint(key, context) == laid[other].edge}
        if right != keys:
            self.findings.name(sender, "revealed another mask key than it had laid down")
        self._pairs[sender] = right

    def _take_apart(self) -> None:
        """Name whose upload or answers are false by keys that it committed to itself; then raise what went wrong."""
        found = faults(
            self.asked, self._cohort, self.included, self._kept.vectors, self._own_masks, self._edges, self._pairs
        )
        for number, fault in found.items():
            self.findings.name(number, fault)
        self._kept.vectors.clear()
        named = self.findings.named.keys() & set(self.included)
        self.stage, self._outbox = "done", {}
        if self._failed is None and not named:
            self.sum = self._held
            return
        failed = self._failed or SumError("CH505", "an audit found false uploads or answers.")
        raise self._discarded(failed.code, f"{failed.what} The turn was opened, and {len(named)} are named;")
