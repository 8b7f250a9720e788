"""All that both sides fix before the first round, and what one turn adds to it; every mask is bound to both."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from struct import Struct
from typing import ClassVar, NamedTuple, Protocol, Self

import numpy as np

from choral.core.codec import CHECKS, Codec
from choral.core.errors import PlanError, TrustError
from choral.core.keys import (
    FINGERPRINT_SIZE,
    HYBRID,
    NONCE_SIZE,
    PUBLIC_SIZE,
    Bundle,
    Identity,
    PairSecret,
    Roster,
    digest,
    envelope_key,
    fingerprint,
    without_keys_of,
)
from choral.core.masks import Graph, Mask, Words, mask_words, require_private, ring, round_context
from choral.core.messages import (
    NONCE_BYTES,
    QUESTION_BYTES,
    SIGNATURE_BYTES,
    VERSION,
    Message,
    Omega,
    Open,
    Paths,
    Probe,
    Turn,
    Vector,
    encode,
    most_frame_bytes,
    pack,
    unpack,
)
from choral.core.plan import SecureSum
from choral.core.shares import SHARE_SIZE
from choral.core.vault import Vault

MODEL_TYPE, STATE_TYPE = "<f4", "<f8"  # the numbers of a model that is trained | of a model on sums
# Up to so many devices a list is shown whole: everybody then sees who takes part, and hybrid keys can be agreed on.
# Above it, a device would need an offer of 1.3 kB of every other device, and lists are trees.
WHOLE_LISTS = 4096
ENVELOPE_BYTES = NONCE_SIZE + SHARE_SIZE + 16  # the last are AES-GCM's tag
OFFER_BYTES = PUBLIC_SIZE + SIGNATURE_BYTES
MOST_CHARGED = 2  # attempts of one round: a device pays for no more, whoever spoils them


def refused(what: str, *, code: str = "CH605") -> TrustError:
    """The error of a device that will not answer, since the answer could break the protocol."""
    return TrustError(code, what, fix="The device drops out of this turn.")


def another_charge(round_number: int, charged: int) -> TrustError:
    """The refusal of one more attempt of a round for which the device has paid often enough."""
    what = f"{charged} attempts of round {round_number} were charged here, and no more than {MOST_CHARGED} are."
    return refused(what, code="CH607")


class KnownRoster(Protocol):
    """A roster as far as it is known here: the whole of it (`Roster`), or what one device knows of it."""

    def __len__(self) -> int: ...
    @property
    def digest(self) -> bytes: ...  # noqa: D102


class Lists:
    """Rosters and cohorts as devices are shown them: whole lists here, and paths into trees in `choral.trees`."""

    announcement: type[Omega | Paths] = Omega
    described: ClassVar[Mapping[str, str]] = {}  # in the digest of terms

    def check(self, terms: "Terms") -> None:
        """Raise CH204 for terms that do not go with such lists."""
        if not isinstance(terms.roster, Roster):
            raise PlanError("CH204", "a whole list is needed, and only a part of it is known.", fix="Use trees.")

    def roster_digest(self, roster: KnownRoster) -> bytes:
        """Give what devices pin of a roster."""
        return roster.digest

    def number_of(self, terms: "Terms", identity: Identity) -> int:
        """The number of the device with these keys, or CH601."""
        number = terms.numbers.get(identity.id)
        if number is None or not identity.has_keys_of(terms.whole.bundles[number]):
            raise without_keys_of(identity)
        return number

    def context(self, terms: "Terms", turn: Turn, model: Vector, nonces: Mapping[int, bytes]) -> bytes:
        """The ctx of a turn."""
        return round_context(
            config=terms.digest,
            roster=terms.roster_digest,
            round_number=turn.round,
            attempt=turn.attempt,
            model=hashlib.sha256(model).digest(),
            cohort=[(terms.ids[number], nonces[number]) for number in sorted(nonces)],
        )

    def graph(self, cohort: "Cohort") -> Callable[[int], tuple[int, ...]]:
        """The function from a device to those that share a mask with it, ascending."""
        terms = cohort.terms
        drawn = graph_of(tuple(terms.ids[one] for one in cohort.numbers), cohort.context, terms.secure.neighbours)
        return lambda number: tuple(terms.numbers[id] for id in drawn.neighbours(terms.ids[number]))

    def announced(self, terms: "Terms", turn: Turn, nonces: Mapping[int, bytes], model: Vector) -> Mapping[int, bytes]:
        """Give what each device of a cohort is shown of it, with the model."""
        omega = encode(Omega(turn=turn, terms=terms.digest, cohort=pack(nonces)), model)
        return dict.fromkeys(sorted(nonces), omega)

    def seen(self, message: Omega | Paths, known: Iterable[tuple[Turn, bytes]]) -> tuple[Turn, bytes] | None:  # noqa: ARG002 - a whole list has no root
        """The root that a device remembers of what it was shown, or CH616 if it knows another one of the turn."""
        return None

    def cohort(
        self, terms: "Terms", message: Omega | Paths, model: Vector, identity: Identity, nonce: bytes
    ) -> "Cohort":
        """The cohort as the device with this ν may take part in it, or CH600, CH604 or CH605."""
        assert isinstance(message, Omega)  # noqa: S101 - it is the announcement of these lists
        secure, number = terms.secure, terms.number_of(identity)
        nonces = unpack(message.cohort, NONCE_BYTES, most=secure.cohort)
        if len(nonces) < secure.smallest_sum:
            raise refused(f"a cohort of {len(nonces)}, the plan needs {secure.smallest_sum}.")
        if max(nonces) >= terms.enrolled:
            raise refused("a cohort with devices that are not enrolled.")
        if nonces.get(number) != nonce:
            raise refused("a cohort without this device as it announced itself.", code="CH604")
        return Cohort(terms, message.turn, nonces, context_of(terms, message.turn, model, nonces))

    def members_bytes(self, terms: "Terms") -> int:
        """The most bytes that devices are shown of the members of a cohort: as many numbers as have bonds."""
        return terms.secure.cohort * (4 + NONCE_BYTES)


WHOLE = Lists()


@dataclass(frozen=True, eq=False)
class Live:
    """A turn between UPLOAD and FINAL; it lives in memory only, so a restart in mid-turn is a drop-out."""

    cohort: "Cohort"
    pairs: Mapping[int, PairSecret]
    dropped: frozenset[int] = frozenset()
    kept: object = None  # by an extension, until others drop out or it has answered


class Extension(Protocol):
    """A study's wish for more of a device's round than an upload; `choral.probes` has the one there is."""

    @property
    def described(self) -> Mapping[str, int]:
        """The extension's numbers, as the digest of terms has them."""

    @property
    def records_bytes(self) -> int:
        """The most bytes that its answers take."""

    @property
    def opens(self) -> bool:
        """Tell whether a device keeps the pair keys of its last turn, to show them."""

    def encoded(self, terms: "Terms", words: Words) -> object:
        """Give what to keep of an encoded update before it is masked; it is handed to `masked`."""

    def masked(self, kept: object, cohort: "Cohort", id: str, words: memoryview) -> object:
        """Give what to keep of the turn, once the words are masked."""

    def answer(self, message: Probe, watched: memoryview, live: Live, number: int) -> Message:
        """The answer to a probe of a turn under way, or CH605."""

    def shown(self, message: Open, live: Live | None, vault: Vault, number: int) -> Message:
        """The pair keys of a turn that is opened, or CH605 or CH609."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The agreement of a run: who is enrolled, how sums are protected and encoded, and the digest of the plan.

    Devices are known by number: the place of their id in the sorted roster, so numbers order like ids.
    """

    roster: KnownRoster  # whole, or what a device knows of it
    secure: SecureSum
    codec: Codec
    parameters: int
    plan: str
    question: bytes = b""  # of the turns that answer it; `asked` makes such terms
    within: bytes = b""  # the digest of the terms under which it is asked
    state: int = 0  # the numbers of the public state that it is asked at; they follow from the question
    hybrid: bool = False  # keys are agreed in the run, with ML-KEM-768, and erased turn by turn
    lists: Lists = WHOLE
    extension: Extension | None = None

    def __post_init__(self) -> None:
        self.secure.require_runnable()
        if len(self.roster) < self.secure.smallest_sum:
            raise PlanError(
                "CH204",
                f"{len(self.roster)} devices are enrolled, but a sum needs {self.secure.smallest_sum}.",
                fix="Enrol more devices, or plan for a smaller cohort.",
            )
        secure, codec = self.secure, self.codec
        self.lists.check(self)
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
        alone = replace(self, extension=None)  # of a question only the sum is ever seen
        return replace(
            alone, secure=secure, codec=codec, parameters=length, question=question, within=self.digest, state=state
        )

    @property
    def enrolled(self) -> int:
        """Tell how many devices there are."""
        return len(self.roster)

    @property
    def whole(self) -> Roster:
        """The roster with everybody in it, or CH601 on a device that knows its own part only."""
        if not isinstance(self.roster, Roster):
            raise refused("this device knows its own part of the roster only.", code="CH601")
        return self.roster

    def number_of(self, identity: Identity) -> int:
        """The number of the device with these keys, or CH601."""
        return self.lists.number_of(self, identity)

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
        """Give what both sides compare: a change of any number, key or version changes it."""
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
        if self.hybrid:
            described |= {"keys": HYBRID}
        described |= self.lists.described
        if self.extension is not None:
            described |= self.extension.described
        text = json.dumps(described, sort_keys=True, separators=(",", ":"))
        return digest("terms", text.encode(), self.roster_digest)

    @cached_property
    def roster_digest(self) -> bytes:
        """The roster's own digest, or the root of its tree, computed once."""
        return self.lists.roster_digest(self.roster)

    @cached_property
    def words(self) -> int:
        """Tell how many ring words a masked update has."""
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
        """Tell how the numbers of a model are written; a state as it is, so that all devices have the very same one."""
        return STATE_TYPE if self.question else MODEL_TYPE

    @property
    def records_bytes(self) -> int:
        """The most that the records of one header may take."""
        bonds = self.secure.cohort * (4 + self.bond_bytes)
        offers = len(self.roster) * (4 + OFFER_BYTES) if self.hybrid else 0
        answers = 0 if self.extension is None else self.extension.records_bytes
        return max(bonds, offers, answers, self.lists.members_bytes(self))

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


def context_of(terms: Terms, turn: Turn, model: Vector, nonces: Mapping[int, bytes]) -> bytes:
    """The ctx of a turn: everything that its devices must have seen alike."""
    return terms.lists.context(terms, turn, model, nonces)


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
        """The devices that share a mask with this one, ascending."""
        return self._graph(number)

    @cached_property
    def _graph(self) -> Callable[[int], tuple[int, ...]]:
        return self.terms.lists.graph(self)

    def bundle(self, number: int) -> Bundle:
        """The card of a device."""
        return self.terms.whole.bundles[number]

    def may_hold(self, numbers: Set[int]) -> bool:
        """Tell whether all of these are in the cohort."""
        return numbers <= self.places.keys()

    def point(self, number: int) -> int:
        """The place where this device's shares lie on the polynomials: its place in the cohort, from 1."""
        return self.places[number] + 1


class Bond(NamedTuple):
    """A device's commitment about one neighbour: a share sealed for it, and fingerprints of three keys of the turn.

    Both ends of a pair derive the same keys, so their fingerprints agree, or one of them lies. From then on a false
    key, envelope or share contradicts what its sender itself has committed to.

    `edge` is of the pair's mask key, `gives` of the key to this envelope, `takes` of the key to the neighbour's.
    `checks` is what this device adds to its check lanes for the neighbour's sake.
    """

    envelope: bytes
    edge: bytes
    gives: bytes
    takes: bytes
    checks: bytes

    @classmethod
    def of(cls, terms: Terms, pair: PairSecret, mask: Mask, context: bytes, envelope: bytes) -> Self:
        """The honest bond of a device with the other end of a pair."""
        return cls(
            envelope=envelope,
            edge=fingerprint(mask.key, context),
            gives=fingerprint(envelope_key(pair.seals, context), context),
            takes=fingerprint(envelope_key(pair.opens, context), context),
            checks=check_words(terms, mask).tobytes(),
        )


def check_words(terms: Terms, mask: Mask) -> Words:
    """The two words that a mask adds to the check lanes."""
    return mask_words(mask, terms.codec.word_bits, terms.parameters, CHECKS)
