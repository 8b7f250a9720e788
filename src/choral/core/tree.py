"""Merkle trees over lists: who knows the root of a list can be shown any of its entries by a short path. Bytes only.

Entries, nodes and roots are hashed under different labels, an entry together with its index and a root together with
the length of the list, so that none of them can be taken for another. The last node of an odd level goes up as it is:
if it were copied to fill the level, two lists could have one root.
"""

import hashlib
from collections.abc import Iterable

from choral.core.errors import TrustError
from choral.core.keys import digest, framed

HASH_SIZE = 32
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
    """How many siblings the path to an entry has: one per level, except for those where it is the odd one at the end.

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
