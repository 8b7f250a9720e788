"""Lists by the roots of their trees: what a server shows each device of a cohort, and how the device checks it.

A device sees its own entry and those of its neighbours, each with a path into the cohort and one into the roster. Which
positions are its neighbours follows from the turn's context, which binds both roots; so nobody sends it a whole list.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Annotated, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from choral.core.errors import PlanError, TrustError
from choral.core.keys import KEY_SIZE, LONGEST_ID, MOST_OFFERS, Bundle, Identity, Roster, digest
from choral.core.masks import Stream, check_degree
from choral.core.messages import Nonce, Omega, Paths, Signature, Turn, Vector, Whole, encode, malformed
from choral.core.terms import WHOLE_LISTS, Cohort, KnownRoster, Lists, Terms, refused
from choral.trees.merkle import (
    HASH_SIZE,
    RosterPart,
    Tree,
    cohort_tree,
    no_path,
    require_enrolled,
    require_in_cohort,
    roster_tree,
)

_MEMBER_BYTES = 256 + (1 + MOST_OFFERS) * (LONGEST_ID + 4)  # of one device that another is shown, without its paths
_Key = Annotated[bytes, msgspec.Meta(min_length=KEY_SIZE, max_length=KEY_SIZE)]


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

    def __init__(self, terms: Terms, turn: Turn, nonces: Mapping[int, bytes], model: Vector, roster: Tree) -> None:
        self._terms, self._turn, self._nonces, self._model = terms, turn, nonces, model
        self._roster, self._tree = roster, cohort_tree(nonces)
        self._cohort = Cohort(terms, turn, nonces, _context_by_root(terms, turn, model, self._tree.root))
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
                in_roster=self._roster.path(number),
                in_cohort=self._tree.path(position),
            )
            self._members[number] = msgspec.Raw(_encoder.encode(member))
        return self._members[number]


class PartOfCohort(Cohort):
    """A device's part of Ω by paths: the size, itself and its neighbours, under the context that binds all of Ω."""

    def __init__(self, terms: Terms, turn: Turn, context: bytes, size: int, members: Iterable[Member]) -> None:
        super().__init__(terms, turn, (), context)
        self._size = size
        self._members = {member.number: member for member in members}

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"PartOfCohort({self.turn}, {len(self._members)} of {len(self)} devices)"

    def neighbours(self, number: int) -> tuple[int, ...]:
        """The devices that share a mask with this one, ascending."""
        return tuple(other for other in self._members if other != number)

    def point(self, number: int) -> int:
        """The place where this device's shares lie on the polynomials: its position in the cohort, from 1."""
        return self._members[number].position + 1

    def bundle(self, number: int) -> Bundle:
        """The card of a neighbour."""
        return self._members[number].bundle

    def may_hold(self, numbers: Set[int]) -> bool:
        """Tell whether all of these may be in the cohort; of those it has not seen, a device knows that they enrolled.

        A number that is not in the cohort makes D larger, and so the sum that may be opened smaller, never the reverse.
        """
        return all(number < self.terms.enrolled for number in numbers)


class Shown:
    """The check of one PATHS message by the device that it was sent to."""

    def __init__(self, terms: Terms, message: Paths, model: Vector, identity: Identity) -> None:
        self._terms, self._message, self._identity = terms, message, identity
        self._context = _context_by_root(terms, message.turn, model, message.root)
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
        expected = sorted((at, *_circle_of(size, self._context, self._terms.secure.neighbours).neighbours(at)))
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


@dataclass(frozen=True)
class Circle:
    """The same for a cohort that is known by positions only: whoever knows its size and the context finds the places.

    Positions are sorted by 64-bit words of a keystream that follows from the context. If two words are equal the next
    ones are drawn, so every order is equally likely.

    >>> Circle(5, bytes(32), degree=2).neighbours(0)
    (3, 4)
    """

    size: int
    context: bytes
    degree: int | None = None

    def __post_init__(self) -> None:
        check_degree(self.degree, self.size)

    @cached_property
    def _circle(self) -> NDArray[np.intp]:
        stream = Stream(digest("circle", self.context))
        while True:
            words = stream.words(self.size, 64)
            order = np.argsort(words)
            if np.diff(words[order]).all():
                return order

    @cached_property
    def _places(self) -> NDArray[np.intp]:
        places = np.empty(self.size, np.intp)
        places[self._circle] = np.arange(self.size)
        return places

    def neighbours(self, position: int) -> tuple[int, ...]:
        """The sorted positions of a device's neighbours."""
        if self.degree is None:
            return tuple(other for other in range(self.size) if other != position)
        half = self.degree // 2
        steps = np.r_[-half:0, 1 : half + 1]
        return tuple(sorted(self._circle[(self._places[position] + steps) % self.size].tolist()))


@lru_cache(maxsize=4)
def _circle_of(size: int, context: bytes, degree: int | None) -> Circle:
    """The turn's circle, drawn once where many devices live in one process."""
    return Circle(size, context, degree)


def tree_context(
    *, config: bytes, roster: bytes, round_number: int, attempt: int, model: bytes, cohort: bytes
) -> bytes:
    """ctx where lists are trees: `roster` and `cohort` are roots, and each binds its whole list and its length.

    >>> len(tree_context(config=b"", roster=b"", round_number=1, attempt=0, model=b"", cohort=b""))
    32
    """
    turn = round_number.to_bytes(8, "little"), attempt.to_bytes(8, "little")
    return digest("tree context", config, roster, *turn, model, cohort)


def _context_by_root(terms: Terms, turn: Turn, model: Vector, root: bytes) -> bytes:
    """The ctx of a turn whose cohort has this root, which binds all of it."""
    return tree_context(
        config=terms.digest,
        roster=terms.roster_digest,
        round_number=turn.round,
        attempt=turn.attempt,
        model=hashlib.sha256(model).digest(),
        cohort=root,
    )


@dataclass(frozen=True, eq=False)
class TreeLists(Lists):
    """Rosters and cohorts are known by their roots, and a device is shown itself and its neighbours with paths.

    Who knows the whole roster has its `tree`; a device with its own part of it has none.
    """

    tree: Tree | None = None

    announcement = Paths
    described: ClassVar[Mapping[str, str]] = {"lists": "trees"}

    def check(self, terms: Terms) -> None:
        """Raise CH204 with what needs whole lists."""
        if terms.hybrid or terms.extension is not None:
            raise PlanError(
                "CH204",
                "lists as trees with hybrid keys or probes, for which every device must see all others.",
                fix=f"Use lists as trees only, or at most {WHOLE_LISTS:,} devices and whole lists.",
            )
        if terms.question:
            raise PlanError("CH204", "questions need whole lists, and this study has trees.", fix="Ask another study.")

    def roster_digest(self, roster: KnownRoster) -> bytes:
        """The root of the roster's tree."""
        return roster.digest if self.tree is None else self.tree.root

    def number_of(self, terms: Terms, identity: Identity) -> int:
        """The number of the device with these keys, or CH601."""
        part = terms.roster
        return part.number_of(identity) if isinstance(part, RosterPart) else super().number_of(terms, identity)

    def context(self, terms: Terms, turn: Turn, model: Vector, nonces: Mapping[int, bytes]) -> bytes:
        """The ctx of a turn."""
        return _context_by_root(terms, turn, model, cohort_tree(nonces).root)

    def graph(self, cohort: Cohort) -> Callable[[int], tuple[int, ...]]:
        """The function from a device to those that share a mask with it, by positions on the turn's circle."""
        circle, numbers = _circle_of(len(cohort), cohort.context, cohort.terms.secure.neighbours), cohort.numbers
        return lambda number: tuple(numbers[position] for position in circle.neighbours(cohort.places[number]))

    def announced(self, terms: Terms, turn: Turn, nonces: Mapping[int, bytes], model: Vector) -> Mapping[int, bytes]:
        """Give what each device of a cohort is shown: the paths that concern it."""
        return Announcements(terms, turn, nonces, model, self.tree or roster_tree(terms.whole))

    def seen(self, message: Omega | Paths, known: Iterable[tuple[Turn, bytes]]) -> tuple[Turn, bytes] | None:
        """The turn and root of a message; CH616 if another root of the turn is known, taken part under or not."""
        assert isinstance(message, Paths)  # noqa: S101 - it is the announcement of these lists
        turn, root = message.turn, message.root
        if any(seen == turn and other != root for seen, other in known):
            raise TrustError(
                "CH616",
                f"a second root for round {turn.round}, attempt {turn.attempt}.",
                why="A server that shows two roots has two cohorts in mind.",
                fix="The device drops out of this turn. Compare roots with other devices: choral device roots.",
            )
        return turn, root

    def cohort(self, terms: Terms, message: Omega | Paths, model: Vector, identity: Identity, nonce: bytes) -> Cohort:
        """The part of a cohort that a message shows to this device."""
        assert isinstance(message, Paths)  # noqa: S101 - as above
        return Shown(terms, message, model, identity).cohort(nonce)

    def members_bytes(self, terms: Terms) -> int:
        """The most that a device's part of a cohort may take: itself and its neighbours, each with two paths."""
        levels = (terms.enrolled - 1).bit_length() + (terms.secure.cohort - 1).bit_length()
        shown = 1 + (terms.secure.cohort - 1 if terms.secure.neighbours is None else terms.secure.neighbours)
        return shown * (_MEMBER_BYTES + HASH_SIZE * levels)


def part_of(roster: Roster, tree: Tree, number: int) -> RosterPart:
    """The part of a roster with this tree that the device of this number knows."""
    return RosterPart(
        root=tree.root, count=tree.count, number=number, own=roster.bundles[number], path=tree.path(number)
    )
