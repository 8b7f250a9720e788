"""Probes on both sides of a turn: what a device keeps and answers, how a server asks, and how a turn is opened."""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Self

import numpy as np

from choral.core.bonds import edge_mask
from choral.core.codec import Integers
from choral.core.errors import SumError
from choral.core.masks import Mask, Words, add_masks, ring
from choral.core.messages import DIGEST_BYTES, Probe, ProbeAnswer, Turn, Vector, malformed, unpack
from choral.core.paths import PartOfCohort
from choral.core.probes import (
    ANSWER_BYTES,
    MOST_WATCHED,
    Answers,
    adds_up,
    answers_of,
    probe_seed,
    upload_digest,
    watched_of,
)
from choral.core.terms import Cohort, Terms, refused

SeedOf = Callable[[Turn], bytes]  # in place of the digests', for a simulation that must be repeated


@dataclass(frozen=True, eq=False)
class Kept:
    """The integers that a device has masked: in memory from UPLOAD to ANSWER, so that no noise is ever drawn twice."""

    integers: Integers
    upload: bytes  # the digest of the masked words

    def __repr__(self) -> str:
        return f"Kept({len(self.integers)} integers)"


def answer_to(
    message: Probe,
    watched: memoryview,
    kept: Kept,
    cohort: Cohort | PartOfCohort,
    number: int,
    seed_of: SeedOf | None,
) -> ProbeAnswer:
    """A device's answer, or CH605 for a PROBE that no honest server sends."""
    terms = cohort.terms
    digests = unpack(message.digests, DIGEST_BYTES, most=len(cohort))
    if digests.get(number) != kept.upload:
        raise refused("probes that were drawn without this device's upload as it sent it.")
    if not cohort.may_hold(digests.keys()):
        raise refused("probes that were drawn from uploads of devices outside the cohort.")
    if len(digests) < terms.secure.smallest_sum:
        raise refused(
            f"probes of {len(digests)} uploads, the plan opens no sum of fewer than {terms.secure.smallest_sum}."
        )
    if len(watched) % max(terms.parameters, 1) or len(watched) > MOST_WATCHED * terms.parameters:
        raise malformed(f"{len(watched):,} bytes to be watched, for {terms.parameters:,} parameters")
    turn = message.turn
    seed = probe_seed(cohort.context, digests, bytes(watched)) if seed_of is None else seed_of(turn)
    asked = answers_of(seed, terms.probes, kept.integers, watched_of(watched, terms.parameters))
    return ProbeAnswer(turn=turn, device=number, numbers=asked.astype("<i8").tobytes())


def nobody(answers: Mapping[int, Answers], most: int) -> Set[int]:  # noqa: ARG001 - what a judge is asked
    """The judge who leaves nobody out."""
    return frozenset()


@dataclass(frozen=True, kw_only=True)
class Probes:
    """How a server probes one turn: what it watches, and whom it leaves out by the answers, at most so many.

    With `audit` a turn whose sum is right is opened all the same: false answers that cancel are seen there.
    """

    watched: bytes = b""
    judge: Callable[[Mapping[int, Answers], int], Set[int]] = nobody
    seed_of: SeedOf | None = None
    audit: bool = False


@dataclass(kw_only=True, eq=False)
class AskedProbes:
    """The probes of a turn: the digests that fixed them, their seed, and the answers as they come."""

    terms: Terms
    context: bytes
    digests: Mapping[int, bytes]
    seed: bytes
    watched: bytes
    answers: dict[int, Answers]

    @classmethod
    def of(cls, cohort: Cohort, uploads: Iterable[tuple[int, Vector]], inquiry: Probes) -> Self:
        """The probes for these uploads."""
        terms = cohort.terms
        digests = {n: upload_digest(cohort.context, terms.ids[n], vector) for n, vector in uploads}
        seed = probe_seed(cohort.context, digests, inquiry.watched)
        if inquiry.seed_of is not None:
            seed = inquiry.seed_of(cohort.turn)
        return cls(terms=terms, context=cohort.context, digests=digests, seed=seed, watched=inquiry.watched, answers={})

    def take(self, sender: int, message: ProbeAnswer) -> None:
        """Keep the first answer of a device that was asked, or CH600 if it has another length."""
        if sender not in self.digests or sender in self.answers:
            return
        watching = len(self.watched) // max(self.terms.parameters, 1)
        if len(message.numbers) != ANSWER_BYTES * (self.terms.probes + watching):
            raise malformed(f"{len(message.numbers):,} bytes of answers")
        self.answers[sender] = np.frombuffer(message.numbers, "<i8").astype(np.int64)

    def belong_to(self, integers: Integers, included: Iterable[int]) -> bool:
        """Whether the answers of these devices are together those of their opened sum."""
        return adds_up({number: self.answers[number] for number in included}, self.expected(integers))

    def expected(self, integers: Integers) -> Answers:
        """The answers that belong to these integers."""
        return answers_of(self.seed, self.terms.probes, integers, watched_of(self.watched, self.terms.parameters))


def faults(
    asked: AskedProbes | None,
    cohort: Cohort,
    included: Iterable[int],
    vectors: Mapping[int, Vector],
    own: Mapping[int, Mask],
    edges: Mapping[int, Mapping[int, bytes]],
    pairs: Mapping[int, Mapping[int, bytes]],
) -> dict[int, str]:
    """What each included device did wrong, as far as its upload can be taken apart.

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
    """What is wrong with an opened upload, or None: its masks are those that both ends of each pair committed to."""
    own = words.copy()
    add_masks(own, [mask.undone() for mask in masks])
    try:
        integers = terms.codec.decode(own, terms.parameters, count=1)
    except SumError as error:
        return "sent words out of range" if error.code == "CH502" else "sent check lanes that do not say 1 and 0"
    if asked is not None and asked.expected(integers).tolist() != asked.answers[number].tolist():
        return "answered its probes falsely"
    return None
