"""Hybrid keys and chains of docs/secure-sum.md a second time, from the document alone, on top of second.py."""

from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric import mlkem
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from msgspec import msgpack

from tests.vectors.second import REFUSALS, B, Digest, Signed, Turn, Whole, digits, framed, little, mac, unhex

__all__ = ["REFUSALS"]
Key = bytes
FIELDS = {15: (Digest,), 16: (Whole, Key, Signed), 17: (B,), 18: (Whole, B), 19: (B,), 22: (Whole, Digest)}


def keys(secret):
    return X25519PrivateKey.from_private_bytes(secret[:32]), mlkem.MLKEM768PrivateKey.from_seed_bytes(secret[32:])


def tried(code, function, *given):
    try:
        return function(*given)
    except ValueError:
        raise AssertionError(code) from None


def hybrid_key(secret):
    assert len(unhex(secret)) == 96, "CH600"
    return {"public": b"".join(key.public_key().public_bytes_raw() for key in keys(unhex(secret))).hex()}


def public(key):
    point, kem = unhex(key)[:32], unhex(key)[32:]
    tried("CH613", mlkem.MLKEM768PublicKey.from_public_bytes, kem)
    tried("CH613", X25519PrivateKey.generate().exchange, X25519PublicKey.from_public_bytes(point))
    return {"good": True}


def unwrapped(secret, wrapped):
    return {"inner": tried("CH613", keys(unhex(secret))[1].decapsulate, unhex(wrapped)).hex()}


def combined(shared, inner, low, high, wrapped, session):
    names, shown = [one[0].encode() for one in (low, high)], [unhex(one[1]) for one in (low, high)]
    info = framed("hybrid pair", *names, *shown, unhex(wrapped))
    extracted = mac(sha256(framed("session", unhex(session))).digest(), unhex(shared) + unhex(inner))
    first = mac(extracted, info + b"\1")
    return {"rounds": first.hex(), "asking": mac(extracted, first + info + b"\2").hex()}


def agreement(terms, offers, low, high, secret, wrapped):
    packed = b"".join(number.to_bytes(4, "little") + unhex(offer) for number, _, offer in sorted(offers))
    session = sha256(framed("agreement", unhex(terms), packed)).hexdigest()
    ends = {number: [id, offer[: 2 * 1216]] for number, id, offer in offers}
    x25519, _ = keys(unhex(secret))
    shared = tried("CH613", x25519.exchange, X25519PublicKey.from_public_bytes(unhex(ends[low][1])[:32]))
    inner = unwrapped(secret, wrapped)["inner"]
    return {"session": session} | combined(shared.hex(), inner, ends[low], ends[high], wrapped, session)


def chain(root, following, turns):
    """By recursion from the root for every turn, and not step by step as choral does it."""

    def of_round(number):
        return unhex(root) if number == following else mac(of_round(number - 1), framed("ratchet round"))

    def of_attempt(number, attempt):
        if attempt == 0:
            return mac(of_round(number), framed("ratchet attempts"))
        return mac(of_attempt(number, attempt - 1), framed("ratchet attempt"))

    assert all(turn[0] >= following for turn in turns) and turns == sorted(turns), "CH612"
    assert len({tuple(turn) for turn in turns}) == len(turns), "CH612"
    last, attempt = turns[-1]
    return {
        "keys": [mac(of_attempt(*turn), framed("ratchet turn")).hex() for turn in turns],
        "kept": (of_round(last + 1) + of_attempt(last, attempt + 1)).hex(),
    }


def seeds(key, own, peer):
    parts = [mac(unhex(key), framed("ratchet seed", name)).hex() for name in (b"rising", b"falling")]
    both = [mac(unhex(key), framed("ratchet seed", name)).hex() for name in (b"from low", b"from high")]
    return dict(zip(("rising", "falling", "seals", "opens"), parts + both[:: 1 if own < peer else -1], strict=True))


def offered(id, secret, offers):
    signer = Ed25519PrivateKey.from_private_bytes(unhex(secret)[:32])
    shown = X25519PrivateKey.from_private_bytes(unhex(secret)[32:]).public_key().public_bytes_raw()
    identity = signer.public_key().public_bytes_raw()
    signed = framed("bundle", id.encode(), identity, shown, *(offer.encode() for offer in offers))
    return {"signature": signer.sign(signed).hex(), "safety_number": digits(signed)}


def card(id, identity, agreement, signature, offers):
    assert len(offers) <= 8 and all(0 < len(offer.encode()) <= 64 and offer.isprintable() for offer in offers), "CH600"
    signed = framed("bundle", id.encode(), unhex(identity), unhex(agreement), *(offer.encode() for offer in offers))
    Ed25519PublicKey.from_public_bytes(unhex(identity)).verify(unhex(signature), signed)
    return {"good": True}


def frame(frame, records_bytes):
    data = unhex(frame)
    end = 10 + little(data[6:10])
    assert 10 <= len(data) <= 10 + 256 + records_bytes + 7 and data[:4] == b"chrl" and data[4:6] == b"\6\0", "CH600"
    assert end <= 10 + 256 + records_bytes and len(data) == end + -end % 8 and not any(data[end:]), "CH600"
    tag, *_ = msgpack.decode(data[10:end])
    assert tag in FIELDS, "CH600"
    head = msgpack.decode(data[10:end], type=tuple[(int, Turn, *FIELDS[tag])])
    assert head[1][0] < 2**31 and (tag != 16 or len(head[3]) == 1216), "CH600"
    return {"header": [value.hex() if type(value) is bytes else value for value in head]}
