"""Merkle trees over lists, rosters and cohorts: who knows a root can be shown any entry of its list by a short path.

Entries, nodes and roots are hashed under different labels, an entry together with its index and a root together with
the length of the list, so that none of them can be taken for another. The last node of an odd level goes up as it is:
if it were copied to fill the level, two lists could have one root.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from choral.core.errors import TrustError
from choral.core.keys import Bundle, Identity, digest, framed, without_keys_of

HASH_SIZE = 32
_ROSTER, _COHORT = "roster", "cohort"
_SIZE = HASH_SIZE.to_bytes(8, "little")


class Tree:
    """All nodes over a list, level by level; `kind` is part of every label, so trees of two kinds share no node.

    >>> tree = Tree("letter", [b"a", b"b", b"c"])
    >>> root_of("letter", b"c", index=2, count=3, path=tree.path(2)) == tree.root
    True
    """

    def __init__(self, kind: str, entries: Iterable[bytes]) -> None:
        level = b"".join(_leaf(kind, index, entry) for index, entry in enumerate(entries))
        self.count = len(level) // HASH_SIZE
        if not self.count:
            raise no_path("a list without entries has no root")
        self._levels = [level]
        before = framed(f"{kind} node") + _SIZE
        while len(level) > HASH_SIZE:
            level = _above(before, level)
            self._levels.append(level)
        self.root = _root(kind, self.count, level)

    def __repr__(self) -> str:
        return f"Tree({self.count:,} entries)"

    def path(self, index: int) -> bytes:
        """The siblings on the way from an entry to the root, the entry's own first."""
        siblings = []
        for level in self._levels[:-1]:
            at = (index ^ 1) * HASH_SIZE
            siblings.append(level[at : at + HASH_SIZE])  # nothing where the last node of an odd level goes up as it is
            index >>= 1
        return b"".join(siblings)


def root_of(kind: str, entry: bytes, *, index: int, count: int, path: bytes) -> bytes:
    """The root of the list of so many entries that has this one at this index, by its path; CH615 for no such path."""
    if not 0 <= index < count:
        raise no_path(f"entry {index} of a list of {count:,}")
    if len(path) != HASH_SIZE * path_length(index, count):
        raise no_path(f"a path of {len(path)} bytes to entry {index} of {count:,}")
    before, start = framed(f"{kind} node") + _SIZE, 0
    node, last = _leaf(kind, index, entry), count - 1
    while last:
        if index < last or index % 2:
            sibling = path[start : start + HASH_SIZE]
            left, right = (sibling, node) if index % 2 else (node, sibling)
            node, start = _node(before, left, right), start + HASH_SIZE
        index, last = index >> 1, last >> 1
    return _root(kind, count, node)


def path_length(index: int, count: int) -> int:
    """Tell how many siblings the path to an entry has: one per level, except where it is the odd one at the end.

    >>> [path_length(index, 5) for index in range(5)]
    [3, 3, 3, 3, 1]
    """
    length, last = 0, count - 1
    while last:
        length += index < last or index % 2
        index, last = index >> 1, last >> 1
    return length


def no_path(what: str) -> TrustError:
    """The refusal of an entry that nobody has shown to be in the list.

    >>> no_path("a path of 3 bytes").code
    'CH615'
    """
    return TrustError("CH615", f"{what}.", fix="The device drops out of this turn.")


def _leaf(kind: str, index: int, entry: bytes) -> bytes:
    return digest(f"{kind} leaf", index.to_bytes(8, "little"), entry)


def _node(before: bytes, left: bytes, right: bytes) -> bytes:
    """SHA-256 of the framed pair, without framing the label again for each of a million nodes."""
    return hashlib.sha256(b"".join((before, left, _SIZE, right))).digest()


def _root(kind: str, count: int, top: bytes) -> bytes:
    return digest(f"{kind} root", count.to_bytes(8, "little"), top)


def _above(before: bytes, level: bytes) -> bytes:
    """The level above this one."""
    pair = 2 * HASH_SIZE
    whole = len(level) // pair * pair
    nodes = [
        _node(before, level[at : at + HASH_SIZE], level[at + HASH_SIZE : at + pair]) for at in range(0, whole, pair)
    ]
    return b"".join(nodes) + level[whole:]


def roster_tree(bundles: Iterable[Bundle]) -> Tree:
    """The tree over a sorted roster; its root stands for the digest of the whole list.

    >>> roster_tree([Identity.fresh("a").bundle, Identity.fresh("b").bundle])
    Tree(2 entries)
    """
    return Tree(_ROSTER, (_card(bundle) for bundle in bundles))


def _card(bundle: Bundle) -> bytes:
    return bundle.signed + bundle.signature


@dataclass(frozen=True, kw_only=True)
class RosterPart:
    """All that a device knows of a roster: its root, how many are enrolled, and its own place with the path to it.

    >>> identity = Identity.fresh("a")
    >>> tree = roster_tree([identity.bundle])
    >>> len(RosterPart(root=tree.root, count=1, number=0, own=identity.bundle, path=tree.path(0)))
    1
    """

    root: bytes
    count: int
    number: int
    own: Bundle
    path: bytes

    def __post_init__(self) -> None:
        self.check(self.number, self.own, self.path)

    def __len__(self) -> int:
        return self.count

    @property
    def digest(self) -> bytes:
        """Give what people compare and devices pin: the root."""
        return self.root

    def number_of(self, identity: Identity) -> int:
        """The number of the device that has these keys: its own, or CH601."""
        if not identity.has_keys_of(self.own):
            raise without_keys_of(identity)
        return self.number

    def check(self, number: int, bundle: Bundle, path: bytes) -> None:
        """Raise CH615 or CH606 unless the path shows that this bundle is enrolled under this number."""
        require_enrolled(self.root, self.count, number, bundle, path)


def require_enrolled(root: bytes, count: int, number: int, bundle: Bundle, path: bytes) -> None:
    """Raise CH615 or CH606 unless a path shows a bundle under this number in the roster of a root."""
    if root_of(_ROSTER, _card(bundle), index=number, count=count, path=path) != root:
        raise no_path(f"no path from device number {number} to the root of the roster")
    bundle.verify()


def cohort_tree(nonces: Mapping[int, bytes]) -> Tree:
    """The tree over a cohort: its numbers, ascending, each with its ν.

    >>> cohort_tree({4: bytes(16), 2: bytes(16)})
    Tree(2 entries)
    """
    return Tree(_COHORT, (_ready(number, nonces[number]) for number in sorted(nonces)))


def require_in_cohort(root: bytes, size: int, position: int, number: int, nonce: bytes, path: bytes) -> None:
    """Raise CH615 unless a path shows a device with this ν at this position of the cohort of a root."""
    if root_of(_COHORT, _ready(number, nonce), index=position, count=size, path=path) != root:
        raise no_path(f"no path from position {position} to the root of the cohort")


def _ready(number: int, nonce: bytes) -> bytes:
    return number.to_bytes(8, "little") + nonce
