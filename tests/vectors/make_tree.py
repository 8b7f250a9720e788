"""Writes tree.json: `python -m tests.vectors.make_tree`. Inputs are fixed here, so it writes the same every time."""

import json
from hashlib import sha256, shake_256
from pathlib import Path

from msgspec import msgpack

from choral.core.keys import Identity
from choral.core.messages import Paths, Turn, encode
from choral.trees.lists import Circle, tree_context
from choral.trees.merkle import Tree, cohort_tree, roster_tree
from tests.vectors import first_tree
from tests.vectors.answers import outcome

ORIGIN = "made by tests/vectors/make_tree.py with choral; answered again by tests/vectors/second_tree.py"
TURN, CONFIG, MODEL = Turn(3, 1), "c0" * 32, bytes(range(8))
SECURE = {"cohort": 6, "smallest_sum": 5, "threshold": 4, "colluders": 1}
IDENTITIES = [
    Identity(f"device {number}", shake_256(f"choral vectors, tree {number}".encode()).digest(64)) for number in range(9)
]
ROSTER = [identity.bundle for identity in IDENTITIES]
NONCES = {number: bytes([number] * 16) for number in (0, 2, 3, 5, 8)}
OWN = 3


def vector(kind, name, **given):
    one = {"kind": kind, "name": name, "given": given, "origin": ORIGIN}
    return one | outcome(first_tree, one)


def entries(count):
    return [f"entry {number}".encode().hex() for number in range(count)]


def trees():
    for count in (1, 2, 3, 5, 8, 11):
        yield vector("tree", f"{count} entries", label="kind", entries=entries(count))
    yield vector("tree", "the last of three entries twice", label="kind", entries=[*entries(3), entries(3)[-1]])
    yield vector("tree", "another kind", label="other", entries=entries(3))
    yield vector("tree", "no entries", label="kind", entries=[])


def climbs():
    for count in (6, 8):
        made = Tree("kind", map(bytes.fromhex, entries(count)))
        good = {"label": "kind", "entry": entries(count)[2], "index": 2, "count": count, "path": made.path(2).hex()}
        path = good["path"]
        yield vector("climb", f"an entry of {count}", **good)
        yield vector("climb", f"another index of {count}", **good | {"index": 3})
        yield vector("climb", f"an index beyond {count}", **good | {"index": count})
        yield vector("climb", f"another count than {count}", **good | {"count": count - 1})
        yield vector(
            "climb", f"a count of which the path to this entry is longer than in {count}", **good | {"count": 17}
        )
        yield vector("climb", f"a path that is too short in {count}", **good | {"path": path[:-64]})
        yield vector("climb", f"a path that is too long in {count}", **good | {"path": path + "00" * 32})
        yield vector("climb", f"a path that is cut in a sibling of {count}", **good | {"path": path[:-2]})
        yield vector("climb", f"siblings swapped in {count}", **good | {"path": path[64:128] + path[:64] + path[128:]})
    made = Tree("kind", map(bytes.fromhex, entries(4)))
    inner = made.path(2)[32:]  # the node over the first two entries
    leaf = {"label": "kind", "index": 0, "count": 2, "path": made.path(0)[32:].hex()}
    yield vector("climb", "a node as an entry", **leaf, entry=inner.hex())
    yield vector("climb", "the odd one at the end", label="kind", entry=entries(5)[4], index=4, count=5, path="11" * 32)


def circles():
    for size, degree in ((5, 2), (9, 4), (24, 6), (7, None)):
        yield vector("circle", f"{size} devices, {degree} neighbours", size=size, ctx="5c" * 32, degree=degree)
    yield vector("circle", "another context", size=9, ctx="5d" * 32, degree=4)
    yield vector("circle", "an odd degree", size=9, ctx="5c" * 32, degree=3)
    yield vector("circle", "as many neighbours as devices", size=6, ctx="5c" * 32, degree=6)


def contexts():
    given = {"config": CONFIG, "roster": "aa" * 32, "round": 3, "attempt": 1, "model": "bb" * 32, "cohort": "cc" * 32}
    yield vector("tree_ctx", "all that is bound", **given)
    for name, other in (("roster", "ab" * 32), ("cohort", "cd" * 32), ("round", 4), ("attempt", 0)):
        yield vector("tree_ctx", f"another {name}", **given | {name: other})


class Announced:
    """What device 3 is shown, with room for every lie."""

    def __init__(self, bundles=ROSTER, nonces=NONCES):
        self.bundles, self.nonces = bundles, nonces
        self.roster, self.cohort = roster_tree(bundles), cohort_tree(nonces)
        self.size, self.root, numbers = len(nonces), self.cohort.root, sorted(nonces)
        context = tree_context(
            config=bytes.fromhex(CONFIG), roster=self.roster.root, round_number=TURN.round, attempt=TURN.attempt,
            model=sha256(MODEL).digest(), cohort=self.root,
        )  # fmt: skip
        at = numbers.index(OWN)
        shown = sorted((at, *Circle(self.size, context, None).neighbours(at)))
        self.members = [self.member(position, numbers[position]) for position in shown]

    def member(self, position, number):
        card, paths = self.bundles[number], [self.roster.path(number), self.cohort.path(position)]
        keys = [card.id, card.identity, card.agreement, card.signature, list(card.offers)]
        return [position, number, self.nonces[number], *keys, *paths]

    def frame(self):
        members = msgpack.encode(self.members)
        return encode(Paths(TURN, terms=bytes.fromhex(CONFIG), root=self.root, size=self.size, members=members), MODEL)

    def vector(self, name, **changes):
        given = {
            "frame": self.frame().hex(), "config": CONFIG, "roster": self.roster.root.hex(), "enrolled": 9,
            "number": OWN, "secret": IDENTITIES[OWN].to_bytes().hex(), "id": IDENTITIES[OWN].id,
            "path": self.roster.path(OWN).hex(), "nonce": NONCES[OWN].hex(), "secure": SECURE,
        }  # fmt: skip
        return vector("shown", name, **given | changes)


def lie(at, field, value):
    shown_to_it = Announced()
    shown_to_it.members[at][field] = value(shown_to_it.members[at][field]) if callable(value) else value
    return shown_to_it


def shown():
    yield Announced().vector("an honest cohort")
    yield Announced().vector("another ν than this device drew", nonce="ff" * 16)
    yield lie(0, 0, 4).vector("a neighbour at another position")
    yield lie(0, 1, 1).vector("a neighbour under another number")
    yield lie(0, 2, bytes(15) + b"x").vector("a neighbour with another ν")
    yield lie(0, 4, lambda key: key[:-1] + bytes([key[-1] ^ 1])).vector("a neighbour with another identity key")
    yield lie(0, 8, lambda path: path + bytes(32)).vector("a path into the roster that is too long")
    yield lie(0, 8, lambda path: path[:-32]).vector("a path into the roster that is too short")
    yield lie(0, 8, lambda path: path[32:64] + path[:32] + path[64:]).vector("siblings swapped")
    yield lie(0, 9, lambda path: path[:-32]).vector("a path into the cohort that is too short")
    yield lie(0, 9, lambda path: path[:-1] + bytes([path[-1] ^ 1])).vector("a path into another cohort")
    shown_to_it = Announced()
    shown_to_it.members.pop(0)
    yield shown_to_it.vector("a neighbour left out")
    shown_to_it = Announced()
    shown_to_it.members[0], shown_to_it.members[1] = shown_to_it.members[1], shown_to_it.members[0]
    yield shown_to_it.vector("neighbours out of order")
    shown_to_it = Announced()
    shown_to_it.members[0] = [0, 7, *shown_to_it.member(0, 0)[2:]]
    yield shown_to_it.vector("a neighbour that is not in the cohort")
    shown_to_it = Announced()
    shown_to_it.size = 6
    yield shown_to_it.vector("another count")
    shown_to_it = Announced()
    shown_to_it.size = 4
    yield shown_to_it.vector("fewer devices than a sum needs")
    shown_to_it = Announced()
    shown_to_it.root = bytes(32)
    yield shown_to_it.vector("another root")
    shown_to_it = Announced()
    shown_to_it.members = [member for member in shown_to_it.members if member[1] != OWN]
    yield shown_to_it.vector("without this device")
    forged = [*ROSTER]
    forged[0] = type(forged[0])(
        id=forged[0].id, identity=forged[0].identity, agreement=forged[0].agreement, signature=bytes(64)
    )
    yield Announced(bundles=forged).vector("a card that nobody signed")
    twice = [*ROSTER]
    twice[5] = Identity(ROSTER[5].id, IDENTITIES[8].to_bytes()).bundle
    yield Announced(bundles=twice).vector("two devices with the same keys")
    astray = [*ROSTER]
    astray[5], astray[8] = astray[8], astray[5]
    yield Announced(bundles=astray).vector("ids that do not rise with the numbers")
    yield Announced().vector("more enrolled than the root is of", enrolled=10)


def roots():
    yield vector(
        "roots", "one root for each turn", seen=[[[1, 0], "aa" * 32], [[1, 1], "bb" * 32], [[2, 0], "cc" * 32]]
    )
    yield vector("roots", "the same root again", seen=[[[1, 0], "aa" * 32], [[1, 0], "aa" * 32]])
    yield vector("roots", "two roots for a round", seen=[[[1, 0], "aa" * 32], [[2, 0], "cc" * 32], [[1, 0], "bb" * 32]])


if __name__ == "__main__":
    parts = (trees, climbs, circles, contexts, shown, roots)
    lines = [json.dumps(one, ensure_ascii=False) for part in parts for one in part()]
    path = Path(__file__).with_name("tree.json")
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    print(f"{len(lines)} vectors, {path.stat().st_size:,} bytes")
