"""A cohort by the root of its tree: what a server shows each device of it, and how a device checks what it is shown.

A device sees its own entry and those of its neighbours, each with a path into the cohort and one into the roster. Which
positions are its neighbours follows from the turn's context, which binds both roots; so nobody sends it a whole list.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Annotated

import msgspec

from choral.core.errors import TrustError
from choral.core.keys import KEY_SIZE, Bundle, Identity
from choral.core.messages import Nonce, Omega, Paths, Signature, Turn, Vector, Whole, encode, malformed, pack
from choral.core.roster_tree import cohort_tree, require_enrolled, require_in_cohort
from choral.core.terms import Cohort, Terms, circle_of, context_by_root, refused
from choral.core.tree import no_path

_Key = Annotated[bytes, msgspec.Meta(min_length=KEY_SIZE, max_length=KEY_SIZE)]
MOST_ROOTS = 4096  # that a device keeps, to be compared with those of others


class Member(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """One device of a cohort as another is shown it: where it stands, its ν, its card, and the paths to both roots."""

    position: Whole
    number: Whole
    nonce: Nonce
    id: str
    identity: _Key
    agreement: _Key
    signature: Signature
    offers: tuple[str, ...]
    in_roster: bytes
    in_cohort: bytes

    @property
    def bundle(self) -> Bundle:
        """Its card."""
        return Bundle(
            id=self.id, identity=self.identity, agreement=self.agreement, signature=self.signature, offers=self.offers
        )


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[Member, ...])


class Announcements(Mapping[int, bytes]):
    """PATHS to every device of a cohort, each made when it is sent: all of them at once would fill the memory."""

    def __init__(self, terms: Terms, turn: Turn, nonces: Mapping[int, bytes], model: Vector) -> None:
        self._terms, self._turn, self._nonces, self._model = terms, turn, nonces, model
        self._tree = cohort_tree(nonces)
        self._cohort = Cohort(terms, turn, nonces, context_by_root(terms, turn, model, self._tree.root))
        self._members: dict[int, msgspec.Raw] = {}

    def __len__(self) -> int:
        return len(self._cohort)

    def __iter__(self) -> Iterator[int]:
        return iter(self._cohort.numbers)

    def __getitem__(self, number: int) -> bytes:
        shown = sorted((number, *self._cohort.neighbours(number)))
        members = _encoder.encode([self._member(one) for one in shown])
        root, size = self._tree.root, len(self)
        paths = Paths(turn=self._turn, terms=self._terms.digest, root=root, size=size, members=members)
        return encode(paths, self._model)

    def _member(self, number: int) -> msgspec.Raw:
        if number not in self._members:
            bundle, position = self._terms.whole.bundles[number], self._cohort.places[number]
            member = Member(
                position=position,
                number=number,
                nonce=self._nonces[number],
                id=bundle.id,
                identity=bundle.identity,
                agreement=bundle.agreement,
                signature=bundle.signature,
                offers=bundle.offers,
                in_roster=self._terms.tree.path(number),
                in_cohort=self._tree.path(position),
            )
            self._members[number] = msgspec.Raw(_encoder.encode(member))
        return self._members[number]


def announced(terms: Terms, turn: Turn, nonces: Mapping[int, bytes], model: Vector) -> Mapping[int, bytes]:
    """A cohort as each of its devices is shown it: one list for all, or for each device the paths that concern it."""
    if terms.trees:
        return Announcements(terms, turn, nonces, model)
    return dict.fromkeys(sorted(nonces), encode(Omega(turn=turn, terms=terms.digest, cohort=pack(nonces)), model))


class PartOfCohort:
    """What a device knows of Ω by paths: the size, itself and its neighbours, under the context that binds all of Ω."""

    def __init__(self, terms: Terms, turn: Turn, context: bytes, size: int, members: Iterable[Member]) -> None:
        self.terms, self.turn, self.context, self._size = terms, turn, context, size
        self._members = {member.number: member for member in members}

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"PartOfCohort({self.turn}, {len(self._members)} of {len(self)} devices)"

    def neighbours(self, number: int) -> tuple[int, ...]:
        """Who shares a mask with this device, ascending."""
        return tuple(other for other in self._members if other != number)

    def point(self, number: int) -> int:
        """Where this device's shares lie on the polynomials: its position in the cohort, from 1."""
        return self._members[number].position + 1

    def bundle(self, number: int) -> Bundle:
        """The card of a neighbour."""
        return self._members[number].bundle

    def may_hold(self, numbers: Iterable[int]) -> bool:
        """Whether all of these may be in the cohort; of those whom it has not seen, a device knows that they enrolled.

        A number that is not in the cohort makes D larger, and so the sum that may be opened smaller, never the reverse.
        """
        return all(number < self.terms.enrolled for number in numbers)


class Shown:
    """The check of one PATHS message by the device that it was sent to."""

    def __init__(self, terms: Terms, message: Paths, model: Vector, identity: Identity) -> None:
        self._terms, self._message, self._identity = terms, message, identity
        self._context = context_by_root(terms, message.turn, model, message.root)
        try:
            self._members = _decoder.decode(message.members)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise malformed("its members do not follow the schema") from None

    @cached_property
    def _own(self) -> Member:
        number = self._terms.number_of(self._identity)
        for member in self._members:
            if member.number == number:
                return member
        raise refused("a cohort without this device as it announced itself.", code="CH604")

    def cohort(self, nonce: bytes) -> PartOfCohort:
        """The device's part of the cohort, or what is wrong with what it was shown: CH604, CH605, CH606 or CH615."""
        message, secure = self._message, self._terms.secure
        if not secure.smallest_sum <= message.size <= secure.cohort:
            raise refused(
                f"a cohort of {message.size:,}, the plan has {secure.smallest_sum:,} to {secure.cohort:,} devices."
            )
        if self._own.nonce != nonce:
            raise refused("a cohort without this device as it announced itself.", code="CH604")
        self._check_neighbours()
        self._check_distinct()
        for member in self._members:
            self._check_paths(member)
        return PartOfCohort(self._terms, message.turn, self._context, message.size, self._members)

    def _check_neighbours(self) -> None:
        """The positions must be this device's own and those that the graph's rule gives it, which nobody can choose."""
        at, size = self._own.position, self._message.size
        if at >= size:
            raise no_path(f"entry {at} of a list of {size:,}")
        expected = sorted((at, *circle_of(size, self._context, self._terms.secure.neighbours).neighbours(at)))
        if [member.position for member in self._members] != expected:
            raise no_path("neighbours other than those of the turn's graph")

    def _check_distinct(self) -> None:
        """Numbers and ids rise together, as in the roster, and no key comes twice: else one device could be two."""
        members = self._members
        rising = all(one.number < other.number and one.id < other.id for one, other in pairwise(members))
        keys = {key for member in members for key in (member.identity, member.agreement)}
        if not rising or len(keys) != 2 * len(members):
            raise no_path("members out of order, or with the same keys")

    def _check_paths(self, member: Member) -> None:
        terms, message = self._terms, self._message
        number, nonce, path = member.number, member.nonce, member.in_cohort
        require_in_cohort(message.root, message.size, member.position, number, nonce, path)
        require_enrolled(terms.roster_digest, terms.enrolled, number, member.bundle, member.in_roster)


def only_root(known: Iterable[tuple[Turn, bytes]], message: Paths) -> tuple[Turn, bytes]:
    """The turn and root of a message; CH616 if another root of the turn is known, taken part under or not."""
    turn, root = message.turn, message.root
    if any(seen == turn and other != root for seen, other in known):
        raise TrustError(
            "CH616",
            f"a second root for round {turn.round}, attempt {turn.attempt}.",
            why="A server that shows two roots has two cohorts in mind.",
            fix="The device drops out of this turn. Compare roots with other devices: choral device roots.",
        )
    return turn, root
