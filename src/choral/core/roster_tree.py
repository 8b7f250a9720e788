"""A roster or a cohort by the root of its tree: what one device knows of it, and how another is shown to be in it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from choral.core.errors import TrustError
from choral.core.keys import Bundle, Identity
from choral.core.tree import Tree, no_path, root_of

_ROSTER, _COHORT = "roster", "cohort"


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
    """What a device knows of a roster: its root, how many are enrolled, and its own place with the path to it.

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
        """What people compare and devices pin: the root."""
        return self.root

    def number_of(self, identity: Identity) -> int:
        """The number of the device that has these keys: its own, or CH601."""
        if not identity.has_keys_of(self.own):
            raise without_keys_of(identity)
        return self.number

    def check(self, number: int, bundle: Bundle, path: bytes) -> None:
        """Nothing if the path shows that this bundle is enrolled under this number, and its signature holds."""
        require_enrolled(self.root, self.count, number, bundle, path)


def require_enrolled(root: bytes, count: int, number: int, bundle: Bundle, path: bytes) -> None:
    """Nothing if a path shows that a bundle stands under this number in the roster of a root, else CH615 or CH606."""
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
    """Nothing if a path shows that a device with this ν stands at this position of the cohort of a root, else CH615."""
    if root_of(_COHORT, _ready(number, nonce), index=position, count=size, path=path) != root:
        raise no_path(f"no path from position {position} to the root of the cohort")


def _ready(number: int, nonce: bytes) -> bytes:
    return number.to_bytes(8, "little") + nonce


def without_keys_of(identity: Identity) -> TrustError:
    """The refusal of a roster in which a device does not find its own keys.

    >>> without_keys_of(Identity.fresh("a")).code
    'CH601'
    """
    return TrustError(
        "CH601",
        f'the roster does not hold the keys of device "{identity.id}" as they are.',
        fix="Enrol again; never take part under keys that somebody else made.",
    )
