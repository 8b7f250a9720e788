"""Trees of docs/secure-sum.md a second time, from the document alone, by recursion where choral goes level by level."""

import struct
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec import msgpack

from tests.vectors.second import (
    REFUSALS,
    B,
    Digest,
    Nonce,
    Signed,
    Turn,
    Whole,
    bundle,
    framed,
    little,
    stream,
    unhex,
)

__all__ = ["REFUSALS"]
Member = tuple[Whole, Whole, Nonce, str, Digest, Digest, Signed, list[str], B, B]


def hashed(label, *fields):
    return sha256(framed(label, *fields)).digest()


def eight(number):
    return number.to_bytes(8, "little")


def half(count):
    """How many entries lie on the left: the largest power of two below the count."""
    return 1 << (count - 1).bit_length() - 1


def top(label, leaves):
    if len(leaves) == 1:
        return leaves[0]
    left = half(len(leaves))
    return hashed(f"{label} node", top(label, leaves[:left]), top(label, leaves[left:]))


def siblings(label, leaves, index):
    if len(leaves) == 1:
        return b""
    left = half(len(leaves))
    if index < left:
        return siblings(label, leaves[:left], index) + top(label, leaves[left:])
    return siblings(label, leaves[left:], index - left) + top(label, leaves[:left])


def tree(label, entries):
    assert entries, "CH615"
    leaves = [hashed(f"{label} leaf", eight(index), unhex(entry)) for index, entry in enumerate(entries)]
    root = hashed(f"{label} root", eight(len(leaves)), top(label, leaves))
    return {"root": root.hex(), "paths": [siblings(label, leaves, index).hex() for index in range(len(leaves))]}


def climbed(label, node, index, count, path):
    """The top over `count` leaves of which one is this node; a path that is too long or too short has no top."""
    if count == 1:
        assert path == b"", "CH615"
        return node
    assert len(path) >= 32, "CH615"
    left, rest, other = half(count), path[:-32], path[-32:]
    if index < left:
        return hashed(f"{label} node", climbed(label, node, index, left, rest), other)
    return hashed(f"{label} node", other, climbed(label, node, index - left, count - left, rest))


def climb(label, entry, index, count, path):
    assert 0 <= index < count and len(unhex(path)) % 32 == 0, "CH615"
    leaf = hashed(f"{label} leaf", eight(index), unhex(entry))
    return {"root": hashed(f"{label} root", eight(count), climbed(label, leaf, index, count, unhex(path))).hex()}


def circle(size, ctx, degree):
    assert degree is None or (0 < degree < size and degree % 2 == 0), "CH200"
    key, begun = hashed("circle", unhex(ctx)).hex(), 0
    while len(set(words := stream(key, 64, begun + size)["words"][begun:])) < size:
        begun += size
    order = sorted(range(size), key=lambda position: words[position])
    steps = range(-size, size) if degree is None else range(-degree // 2, degree // 2 + 1)
    around = {at: sorted({order[(place + step) % size] for step in steps} - {at}) for place, at in enumerate(order)}
    return {"neighbours": [around[position] for position in range(size)]}


def tree_ctx(config, roster, round, attempt, model, cohort):
    fields = (unhex(config), unhex(roster), eight(round), eight(attempt), unhex(model), unhex(cohort))
    return {"ctx": hashed("tree context", *fields).hex()}


def card(id, identity, agreement, signature, offers):
    signed = framed("bundle", id.encode(), identity, agreement, *(offer.encode() for offer in offers))
    return signed, signed + signature


def shown(frame, config, roster, enrolled, number, secret, id, path, nonce, secure):
    data = unhex(frame)
    assert data[:6] == b"chrl\7\0", "CH600"
    end = 10 + struct.unpack_from("<I", data, 6)[0]
    tag, turn, _, root, size, shown = msgpack.decode(data[10:end], type=tuple[int, Turn, Digest, Digest, Whole, B])
    assert tag == 23 and len(data) == end + -end % 8 + 8, "CH600"
    members = msgpack.decode(shown, type=list[Member])
    ctx = tree_ctx(config, roster, *turn, sha256(data[-8:]).hexdigest(), root.hex())["ctx"]
    assert secure["smallest_sum"] <= size <= secure["cohort"], "CH605"
    mine = bundle(id, secret)
    entry = card(id, *(unhex(mine[name]) for name in ("identity", "agreement", "signature")), [])[1]
    assert climb("roster", entry.hex(), number, enrolled, path)["root"] == roster, "CH615"
    own = [member for member in members if member[1] == number]
    assert own and own[0][2] == unhex(nonce), "CH604"
    assert own[0][0] < size, "CH615"
    around = circle(size, ctx, secure.get("neighbours"))["neighbours"][own[0][0]]
    assert [member[0] for member in members] == sorted([own[0][0], *around]), "CH615"
    for place in (1, 3):
        assert [member[place] for member in members] == sorted({member[place] for member in members}), "CH615"
    assert len({key for member in members for key in member[4:6]}) == 2 * len(members), "CH615"
    for at, who, fresh, name, *keys, in_roster, in_cohort in members:
        ready = climb("cohort", (eight(who) + fresh).hex(), at, size, in_cohort.hex())
        assert ready["root"] == root.hex(), "CH615"
        signed, entry = card(name, *keys)
        assert climb("roster", entry.hex(), who, enrolled, in_roster.hex())["root"] == roster, "CH615"
        assert 0 < len(name.encode()) <= 64 and name.isprintable() and little(keys[1]) < 2**255 - 19, "CH600"
        Ed25519PublicKey.from_public_bytes(keys[0]).verify(keys[2], signed)
    return {"ctx": ctx, "neighbours": [[who, name, at + 1] for at, who, _, name, *_ in members if who != number]}


def roots(seen):
    assert len({tuple(turn) for turn, _ in seen}) == len({(tuple(turn), root) for turn, root in seen}), "CH616"
    return {"kept": len(seen)}
