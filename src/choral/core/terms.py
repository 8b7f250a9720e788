"""What both sides fix before the first round, and what one turn adds to it; every mask is bound to both."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from struct import Struct

import numpy as np

from choral.core.codec import CHECKS, Codec
from choral.core.errors import PlanError, TrustError
from choral.core.graph import Circle, Graph, require_private
from choral.core.hybrid import HYBRID, PUBLIC_SIZE
from choral.core.keys import (
    FINGERPRINT_SIZE,
    LONGEST_ID,
    MOST_OFFERS,
    NONCE_SIZE,
    Bundle,
    Identity,
    Roster,
    digest,
)
from choral.core.masks import ring, round_context, tree_context
from choral.core.messages import (
    NONCE_BYTES,
    QUESTION_BYTES,
    SIGNATURE_BYTES,
    VERSION,
    Omega,
    Turn,
    Vector,
    most_frame_bytes,
    unpack,
)
from choral.core.plan import SecureSum
from choral.core.probes import ANSWER_BYTES, MOST_WATCHED
from choral.core.roster_tree import RosterPart, cohort_tree, roster_tree, without_keys_of
from choral.core.shares import SHARE_SIZE
from choral.core.tree import HASH_SIZE, Tree

MODEL_TYPE, STATE_TYPE = "<f4", "<f8"  # the numbers of a model that is trained | of a model on sums
ENVELOPE_BYTES = NONCE_SIZE + SHARE_SIZE + 16  # the last are AES-GCM's tag
OFFER_BYTES = PUBLIC_SIZE + SIGNATURE_BYTES
# Up to so many devices a list is shown whole: everybody then sees who takes part, and hybrid keys can be agreed on.
# Above it, a device would need an offer of 1.3 kB of every other device, and lists are trees.
WHOLE_LISTS = 4096
_MEMBER_BYTES = 256 + (1 + MOST_OFFERS) * (LONGEST_ID + 4)  # of one device that another is shown, without its paths
MOST_CHARGED = 2  # attempts of one round: a device pays for no more, whoever spoils them


def refused(what: str, *, code: str = "CH605") -> TrustError:
    """The error of a device that will not answer, since the answer could break the protocol."""
    return TrustError(code, what, fix="The device drops out of this turn.")


def another_charge(round_number: int, charged: int) -> TrustError:
    """The refusal of one more attempt of a round for which the device has paid often enough."""
    what = f"{charged} attempts of round {round_number} were charged here, and no more than {MOST_CHARGED} are."
    return refused(what, code="CH607")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The agreement of a run: who is enrolled, how sums are protected and encoded, and the digest of the plan.

    Devices are known by number: the place of their id in the sorted roster, so numbers order like ids.
    """

    roster: Roster | RosterPart  # whole, or a device's own part of it
    secure: SecureSum
    codec: Codec
    parameters: int
    plan: str
    question: bytes = b""  # of the turns that answer it; `asked` makes such terms
    within: bytes = b""  # the digest of the terms under which it is asked
    state: int = 0  # the numbers of the public state that it is asked at; they follow from the question
    probes: int = 0  # that each device answers in a round
    opened_turns: int = 0  # the most turns of which a device shows its pair keys
    hybrid: bool = False  # keys are agreed in the run, with ML-KEM-768, and erased turn by turn
    trees: bool = False  # roster and cohorts are known by the roots of trees, and devices are shown paths

    def __post_init__(self) -> None:
        if len(self.roster) < self.secure.smallest_sum:
            raise PlanError(
                "CH204",
                f"{len(self.roster)} devices are enrolled, but a sum needs {self.secure.smallest_sum}.",
                fix="Enrol more devices, or plan for a smaller cohort.",
            )
        secure, codec = self.secure, self.codec
        if self.trees and (self.hybrid or self.probes):
            raise PlanError(
                "CH204",
                "lists as trees with hybrid keys or probes, for which every device must see all others.",
                fix=f"Use lists as trees only, or at most {WHOLE_LISTS:,} devices and whole lists.",
            )
        if isinstance(self.roster, RosterPart) and not self.trees:
            raise PlanError("CH204", "a whole list is needed, and only a part of it is known.", fix="Use trees=True.")
        if secure.neighbours is not None and secure.neighbours >= secure.smallest_sum:
            raise PlanError(
                "CH204",
                f"{secure.neighbours} neighbours, but a cohort may have only {secure.smallest_sum} devices.",
                fix="Use fewer neighbours than smallest_sum.",
            )
        # Colluders weigh most in the smallest cohort that may meet, drop-outs in the largest.
        for size in (secure.smallest_sum, secure.cohort):
            require_private(secure, size)
        if (codec.word_bits, codec.cohort) != (secure.modulus_bits, secure.cohort):
            raise PlanError("CH204", "codec and secure sum were made for different rings.", fix="Use Codec.for_plan.")

    def asked(self, question: bytes, *, secure: SecureSum, codec: Codec, length: int, state: int = 0) -> "Terms":
        """The terms of the turns that answer a question: every mask is bound to it, and to these terms."""
        if self.trees:
            raise PlanError("CH204", "questions need whole lists, and this study has trees.", fix="Ask another study.")
        alone = replace(self, probes=0, opened_turns=0)  # of a question only the sum is ever seen
        return replace(
            alone, secure=secure, codec=codec, parameters=length, question=question, within=self.digest, state=state
        )

    @property
    def enrolled(self) -> int:
        """How many devices there are."""
        return len(self.roster)

    @property
    def whole(self) -> Roster:
        """The roster with everybody in it, or CH601 on a device that knows its own part only."""
        if isinstance(self.roster, RosterPart):
            raise refused("this device knows its own part of the roster only.", code="CH601")
        return self.roster

    @cached_property
    def tree(self) -> Tree:
        """The tree over the whole roster."""
        return roster_tree(self.whole)

    def number_of(self, identity: Identity) -> int:
        """The number of the device with these keys, or CH601."""
        if isinstance(self.roster, RosterPart):
            return self.roster.number_of(identity)
        number = self.numbers.get(identity.id)
        if number is None or not identity.has_keys_of(self.whole.bundles[number]):
            raise without_keys_of(identity)
        return number

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The id of every device number."""
        return tuple(bundle.id for bundle in self.whole)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of every id."""
        return {id: number for number, id in enumerate(self.ids)}

    @cached_property
    def digest(self) -> bytes:
        """What both sides compare: a change of any number, key or version changes it."""
        described = {
            "protocol": VERSION,
            "secure": self.secure.described,
            # As in choral 0.2: with one lane, and the law only if it is not the usual one.
            "codec": {"lanes": 1}
            | {name: value for name, value in asdict(self.codec).items() if (name, value) != ("law", "gaussian")},
            "parameters": self.parameters,
            "plan": self.plan,
        }
        if self.question:
            described |= {"question": digest("question", self.question).hex(), "within": self.within.hex()}
        if self.probes:
            described |= {"probes": self.probes, "opened_turns": self.opened_turns}
        if self.hybrid:
            described |= {"keys": HYBRID}
        if self.trees:
            described |= {"lists": "trees"}
        text = json.dumps(described, sort_keys=True, separators=(",", ":"))
        return digest("terms", text.encode(), self.roster_digest)

    @cached_property
    def roster_digest(self) -> bytes:
        """The roster's own digest, or the root of its tree, computed once."""
        return self.tree.root if self.trees and isinstance(self.roster, Roster) else self.roster.digest

    @cached_property
    def words(self) -> int:
        """How many ring words a masked update has."""
        return self.codec.length(self.parameters)

    @property
    def upload_bytes(self) -> int:
        """The size of a masked update on the wire."""
        return self.words * ring(self.codec.word_bits).itemsize

    @property
    def model_bytes(self) -> int:
        """The size of a model on the wire; with a question, that of its state."""
        return np.dtype(self.model_type).itemsize * (self.state if self.question else self.parameters)

    @property
    def model_type(self) -> str:
        """How the numbers of a model are written; a state as it is, so that all devices have the very same one."""
        return STATE_TYPE if self.question else MODEL_TYPE

    @property
    def records_bytes(self) -> int:
        """The most that the records of one header may take."""
        answers = ANSWER_BYTES * (self.probes + MOST_WATCHED) if self.probes else 0
        offers = len(self.roster) * (4 + OFFER_BYTES) if self.hybrid else 0
        most = max(self.secure.cohort * (4 + self.bond_bytes), answers, offers)
        return max(most, self._members_bytes) if self.trees else most

    @property
    def _members_bytes(self) -> int:
        """The most that a device's part of a cohort may take: itself and its neighbours, each with two paths."""
        levels = (self.enrolled - 1).bit_length() + (self.secure.cohort - 1).bit_length()
        shown = 1 + (self.secure.cohort - 1 if self.secure.neighbours is None else self.secure.neighbours)
        return shown * (_MEMBER_BYTES + HASH_SIZE * levels)

    @cached_property
    def bond_layout(self) -> Struct:
        """A bond: an envelope, three fingerprints, and what the pair's mask adds to the check lanes."""
        return Struct(f"{ENVELOPE_BYTES}s" + f"{FINGERPRINT_SIZE}s" * 3 + f"{self.check_bytes}s")

    @property
    def bond_bytes(self) -> int:
        """The size of a bond."""
        return self.bond_layout.size

    @cached_property
    def check_bytes(self) -> int:
        """The size of the check lanes."""
        return CHECKS * ring(self.codec.word_bits).itemsize

    @property
    def frame_bytes(self) -> int:
        """The most that any message of a round may take, in either direction: what is longer is not read."""
        most = max(self.model_bytes, self.upload_bytes)
        return most_frame_bytes(vector_bytes=most, records_bytes=max(self.records_bytes, QUESTION_BYTES))


@lru_cache(maxsize=4)
def graph_of(ids: tuple[str, ...], context: bytes, degree: int | None) -> Graph:
    """The turn's graph, drawn once where many devices live in one process."""
    return Graph(ids, context, degree)


@lru_cache(maxsize=4)
def circle_of(size: int, context: bytes, degree: int | None) -> Circle:
    """The same where devices are known by their positions."""
    return Circle(size, context, degree)


def context_of(terms: Terms, turn: Turn, model: Vector, nonces: Mapping[int, bytes]) -> bytes:
    """ctx of a turn: everything that its devices must have seen alike."""
    if terms.trees:
        return context_by_root(terms, turn, model, cohort_tree(nonces).root)
    return round_context(
        config=terms.digest,
        roster=terms.roster_digest,
        round_number=turn.round,
        attempt=turn.attempt,
        model=hashlib.sha256(model).digest(),
        cohort=[(terms.ids[number], nonces[number]) for number in sorted(nonces)],
    )


def context_by_root(terms: Terms, turn: Turn, model: Vector, root: bytes) -> bytes:
    """The same where lists are trees: a root binds the whole cohort."""
    return tree_context(
        config=terms.digest,
        roster=terms.roster_digest,
        round_number=turn.round,
        attempt=turn.attempt,
        model=hashlib.sha256(model).digest(),
        cohort=root,
    )


class Cohort:
    """Ω of one turn under the context that binds the turn's keys: who is whose neighbour, and where shares lie."""

    def __init__(self, terms: Terms, turn: Turn, numbers: Iterable[int], context: bytes) -> None:
        self.terms, self.turn, self.context = terms, turn, context
        self.numbers = tuple(sorted(numbers))
        self.places = {number: place for place, number in enumerate(self.numbers)}

    def __len__(self) -> int:
        return len(self.numbers)

    def __repr__(self) -> str:
        return f"Cohort({self.turn}, {len(self)} devices)"

    def neighbours(self, number: int) -> tuple[int, ...]:
        """Who shares a mask with this device, ascending."""
        terms, graph = self.terms, self._graph
        if isinstance(graph, Circle):
            return tuple(self.numbers[position] for position in graph.neighbours(self.places[number]))
        return tuple(terms.numbers[id] for id in graph.neighbours(terms.ids[number]))

    @cached_property
    def _graph(self) -> Graph | Circle:
        """Who is whose neighbour: by ids where everybody sees the whole list, by positions where lists are trees."""
        degree = self.terms.secure.neighbours
        if self.terms.trees:
            return circle_of(len(self), self.context, degree)
        return graph_of(tuple(self.terms.ids[number] for number in self.numbers), self.context, degree)

    def bundle(self, number: int) -> Bundle:
        """The card of a device."""
        return self.terms.whole.bundles[number]

    def may_hold(self, numbers: Set[int]) -> bool:
        """Whether all of these are in the cohort."""
        return numbers <= self.places.keys()

    def point(self, number: int) -> int:
        """Where this device's shares lie on the polynomials: its place in the cohort, from 1."""
        return self.places[number] + 1


def whole_cohort(terms: Terms, message: Omega, model: Vector, number: int, nonce: bytes) -> Cohort:
    """The cohort of OMEGA as the device of this number and ν may take part in it, or CH600, CH604 or CH605."""
    secure = terms.secure
    nonces = unpack(message.cohort, NONCE_BYTES, most=secure.cohort)
    if len(nonces) < secure.smallest_sum:
        raise refused(f"a cohort of {len(nonces)}, the plan needs {secure.smallest_sum}.")
    if max(nonces) >= terms.enrolled:
        raise refused("a cohort with devices that are not enrolled.")
    if nonces.get(number) != nonce:
        raise refused("a cohort without this device as it announced itself.", code="CH604")
    return Cohort(terms, message.turn, nonces, context_of(terms, message.turn, model, nonces))
