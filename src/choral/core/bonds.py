"""What each device of a turn commits to about each neighbour when it uploads, so that a later lie names the liar.

For every key that it may have to reveal a device publishes a fingerprint. Both ends of a pair derive the same keys, so
their fingerprints agree, or one of them lies and the server leaves one of them out. From then on a false key, a false
envelope or a false share contradicts what its sender itself has committed to; nobody has to be believed.

The check lanes hold 1 and 0 for everybody, so what masks add to them may be shown: words elsewhere stay as hidden.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple, Self

import numpy as np

from choral.core.codec import CHECKS
from choral.core.keys import PairSecret, digest, envelope_key, fingerprint
from choral.core.masks import Mask, Words, mask_words, ring
from choral.core.messages import unpack_for
from choral.core.terms import Terms


class Bond(NamedTuple):
    """What a device says of one neighbour: a share sealed for it, and fingerprints of three keys of the turn.

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

    @classmethod
    def read(cls, terms: Terms, data: bytes) -> Self:
        """The bond in a record."""
        return cls._make(terms.bond_layout.unpack(data))

    @classmethod
    def read_all(cls, terms: Terms, data: bytes, expected: set[int]) -> dict[int, Self]:
        """The bonds of an upload, one for each neighbour, or CH600."""
        records = unpack_for(data, terms.bond_bytes, expected)
        return {number: cls.read(terms, record) for number, record in records.items()}


def edge_mask(key: bytes, one: int, other: int) -> Mask:
    """The mask that device `one` has added for device `other`, by the key that it reveals."""
    return Mask(key, one < other)


def check_words(terms: Terms, mask: Mask) -> Words:
    """The two words that a mask adds to the check lanes."""
    return mask_words(mask, terms.codec.word_bits, terms.parameters, CHECKS)


def lanes_hold(terms: Terms, words: Words, checks: Iterable[bytes]) -> bool:
    """Whether an upload's check lanes say 1 and 0 once all is taken away that its masks have added to them."""
    added = np.frombuffer(b"".join(checks), words.dtype).reshape(-1, CHECKS).sum(axis=0, dtype=words.dtype)
    return bool((words[terms.parameters :] - added).tolist() == [1, 0])


def quarrels(terms: Terms, bonds: Mapping[int, Mapping[int, Bond]]) -> set[tuple[int, int]]:
    """The pairs of which one end lies: their keys differ, or their masks do not cancel in the check lanes.

    Nobody else can say which end it is.
    """
    return {
        (one, other)
        for one, mine in bonds.items()
        for other, bond in _seen_from_the_other_end(terms, _with_later_ones(one, mine, bonds)).items()
        if bond != bonds[other][one][1:]
    }


def _with_later_ones(one: int, mine: Mapping[int, Bond], present: Container[int]) -> dict[int, Bond]:
    """A device's bonds with those present that come after it, so that each pair is looked at from one end only."""
    return {other: bond for other, bond in mine.items() if one < other and other in present}


def _seen_from_the_other_end(terms: Terms, bonds: Mapping[int, Bond]) -> dict[int, tuple[bytes, ...]]:
    """What each neighbour must have committed to, except for its envelope, if it agrees with these bonds."""
    added = np.frombuffer(b"".join(bond.checks for bond in bonds.values()), ring(terms.codec.word_bits))
    size, checks = terms.check_bytes, np.negative(added).tobytes()
    return {
        number: (bond.edge, bond.takes, bond.gives, checks[place * size : (place + 1) * size])
        for place, (number, bond) in enumerate(bonds.items())
    }


def left_out(pairs: Iterable[tuple[int, int]], context: bytes) -> set[int]:
    """Whom to leave out so that no quarrel is left: who has the most of them first, equals by lot.

    The lot hangs on every device's ν of the turn, so that nobody can always have another one left out in its place.

    >>> left_out([(0, 3), (1, 3), (2, 3)], b"ctx")
    {3}
    """
    open_, chosen = set(pairs), set[int]()
    while open_:
        quarrelling = Counter(number for pair in open_ for number in pair)
        worst = max(
            quarrelling, key=lambda number: (quarrelling[number], digest("lot", context, number.to_bytes(8, "little")))
        )
        chosen.add(worst)
        open_ = {pair for pair in open_ if worst not in pair}
    return chosen
