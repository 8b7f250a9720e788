"""choral's own answers to the vectors of trees: a function bears the name of a kind."""

from choral.core.codec import Codec
from choral.core.keys import Identity
from choral.core.messages import Paths, Turn, decode
from choral.core.plan import SecureSum
from choral.core.terms import Terms
from choral.trees.lists import Circle, Shown, TreeLists, tree_context
from choral.trees.merkle import RosterPart, Tree, root_of

unhex = bytes.fromhex


def tree(label, entries):
    made = Tree(label, map(unhex, entries))
    return {"root": made.root.hex(), "paths": [made.path(index).hex() for index in range(made.count)]}


def climb(label, entry, index, count, path):
    return {"root": root_of(label, unhex(entry), index=index, count=count, path=unhex(path)).hex()}


def circle(size, ctx, degree):
    graph = Circle(size, unhex(ctx), degree)
    return {"neighbours": [list(graph.neighbours(position)) for position in range(size)]}


def tree_ctx(config, roster, round, attempt, model, cohort):
    known = {"config": config, "roster": roster, "model": model, "cohort": cohort}
    found = tree_context(**{name: unhex(value) for name, value in known.items()}, round_number=round, attempt=attempt)
    return {"ctx": found.hex()}


class _Pinned(Terms):
    """Terms whose digest is given: the vectors are about lists, and terms have vectors of their own."""

    digest = b""


def shown(frame, config, roster, enrolled, number, secret, id, path, nonce, secure):
    identity = Identity(id, unhex(secret))
    part = RosterPart(root=unhex(roster), count=enrolled, number=number, own=identity.bundle, path=unhex(path))
    asked = SecureSum.read(secure)
    codec = Codec(grid=1.0, largest=1000, cohort=asked.cohort)
    terms = _Pinned(roster=part, secure=asked, codec=codec, parameters=2, plan="vectors", lists=TreeLists())
    object.__setattr__(terms, "digest", unhex(config))
    message, model = decode(unhex(frame), vector_bytes=8, records_bytes=terms.records_bytes)
    cohort = Shown(terms, message, model, identity).cohort(unhex(nonce))
    peers = [[peer, cohort.bundle(peer).id, cohort.point(peer)] for peer in cohort.neighbours(number)]
    return {"ctx": cohort.context.hex(), "neighbours": peers}


def roots(seen):
    known = []
    for turn, root in seen:
        message = Paths(turn=Turn(*turn), terms=bytes(32), root=unhex(root), size=2, members=b"")
        known.append(TreeLists().seen(message, known))
    return {"kept": len(known)}
