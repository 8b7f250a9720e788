"""Writes hybrid.json anew: `python -m tests.vectors.make_hybrid`. Ciphertexts are fresh each time; keys are not."""

import json
from hashlib import shake_256
from pathlib import Path

from choral.core.keys import HYBRID, HybridKey, Identity
from choral.core.messages import AGREEING, Agreed, Call, Gather, Offer, Offers, Turn, Wrapped, Wraps, encode, pack
from tests.vectors import first_hybrid
from tests.vectors.answers import outcome
from tests.vectors.make_transcripts import headed

ORIGIN = "made by tests/vectors/make_hybrid.py with choral; answered again by tests/vectors/second_hybrid.py"
SECRETS = [shake_256(f"choral vectors, device {number}".encode()).digest(96) for number in range(3)]
KEYS = [HybridKey(secret) for secret in SECRETS]
NAMES = ("Kraków", "a", "b")
TURN = Turn(3, 1)


def vector(kind, name, **given):
    one = {"kind": kind, "name": name, "given": given, "origin": ORIGIN}
    return one | outcome(first_hybrid, one)


def keys():
    for secret in SECRETS:
        yield vector("hybrid_key", "a key", secret=secret.hex())
    yield vector("hybrid_key", "a secret that is too short", secret=SECRETS[0][1:].hex())
    good = KEYS[0].public
    yield vector("public", "an honest key", key=good.hex())
    yield vector("public", "a point of small order", key=(bytes(32) + good[32:]).hex())
    yield vector("public", "another point of small order", key=((1).to_bytes(32, "little") + good[32:]).hex())
    yield vector("public", "a coefficient beyond the modulus", key=(good[:32] + b"\xff\xff\xff" + good[35:]).hex())
    yield vector("public", "a byte short", key=good[:-1].hex())
    wrapped, _ = KEYS[0].wrap(KEYS[1].public)
    yield vector("unwrapped", "a ciphertext for this key", secret=SECRETS[1].hex(), wrapped=wrapped.hex())
    yield vector("unwrapped", "one for another key", secret=SECRETS[2].hex(), wrapped=wrapped.hex())
    changed = wrapped[:-1] + bytes([wrapped[-1] ^ 1])
    yield vector("unwrapped", "one that was changed", secret=SECRETS[1].hex(), wrapped=changed.hex())
    yield vector("unwrapped", "a byte short", secret=SECRETS[1].hex(), wrapped=wrapped[1:].hex())


def combinations():
    low, high = [NAMES[1], KEYS[1].public.hex()], [NAMES[2], KEYS[2].public.hex()]
    wrapped, inner = KEYS[1].wrap(KEYS[2].public)
    given = {"shared": KEYS[1].shared(KEYS[2].public).hex(), "inner": inner.hex(), "low": low, "high": high}
    given |= {"wrapped": wrapped.hex(), "session": "5e" * 32}
    yield vector("combined", "both secrets", **given)
    yield vector("combined", "another session", **given | {"session": "5f" * 32})
    yield vector("combined", "the ends the other way round", **given | {"low": high, "high": low})
    yield vector("combined", "X25519 broken: only its half is zero", **given | {"shared": "00" * 32})
    yield vector("combined", "ML-KEM broken: only its half is zero", **given | {"inner": "00" * 32})
    offers = [[number, NAMES[number], key.public.hex() + f"{number:02x}" * 64] for number, key in enumerate(KEYS)]
    order = {"terms": "7e" * 32, "offers": offers, "low": 0, "high": 2, "secret": SECRETS[2].hex()}
    mine, _ = KEYS[0].wrap(KEYS[2].public)
    yield vector("agreement", "from all that was exchanged", **order, wrapped=mine.hex())
    yield vector("agreement", "under other terms", **order | {"terms": "7f" * 32}, wrapped=mine.hex())
    yield vector("agreement", "with one offer less", **order | {"offers": [offers[0], offers[2]]}, wrapped=mine.hex())
    small = [[0, NAMES[0], "00" * 32 + offers[0][2][64:]], *offers[1:]]
    yield vector("agreement", "with a point of small order", **order | {"offers": small}, wrapped=mine.hex())
    yield vector("agreement", "a ciphertext cut short", **order, wrapped=mine[:-1].hex())


def chains():
    root = bytes(range(32)).hex()
    for name, following, turns in (
        ("the first turn", 1, [[1, 0]]),
        ("rounds left out", 1, [[1, 0], [4, 0], [9, 0]]),
        ("several attempts", 1, [[2, 0], [2, 1], [2, 5], [3, 2]]),
        ("an agreement in mid-run", 7, [[8, 1]]),
        ("questions", 2**31, [[2**31 + 1, 0], [2**31 + 3, 0]]),
        ("the same turn twice", 1, [[2, 1], [2, 1]]),
        ("an earlier attempt", 1, [[2, 1], [2, 0]]),
        ("an earlier round", 1, [[3, 0], [2, 9]]),
        ("before the agreement", 5, [[4, 0]]),
    ):
        yield vector("chain", name, root=root, following=following, turns=turns)
    yield vector("seeds", "the lower end", key=root, own="a", peer="b")
    yield vector("seeds", "the higher end", key=root, own="b", peer="a")


def cards():
    secret = bytes(range(64)).hex()
    for name, offers in (("hybrid keys", [HYBRID]), ("two ways", [HYBRID, "later"]), ("nothing, as 0.1 does", [])):
        yield vector("offered", name, id="Kraków", secret=secret, offers=offers)
    shown = Identity("Kraków", bytes(range(64)), (HYBRID,)).bundle
    given = {name: getattr(shown, name).hex() for name in ("identity", "agreement", "signature")} | {"id": shown.id}
    yield vector("card", "as it was signed", **given, offers=[HYBRID])
    yield vector("card", "the offer taken away", **given, offers=[])
    yield vector("card", "another offer", **given, offers=["x25519"])
    yield vector("card", "an offer added", **given, offers=[HYBRID, "x25519"])
    yield vector("card", "too many offers", **given, offers=[HYBRID] * 9)
    yield vector("card", "an empty offer", **given, offers=[""])
    yield vector("card", "an offer that can't be printed", **given, offers=["x\n"])


def frames():
    offer = KEYS[0].public
    good = {
        "gather": Gather(turn=TURN, terms=b"t" * 32),
        "offer": Offer(turn=TURN, device=5, key=offer, signature=b"s" * 64),
        "offers": Offers(turn=TURN, offers=pack({0: b"o" * 1280})),
        "wrapped": Wrapped(turn=TURN, device=5, ciphertexts=pack({6: b"w" * 1088})),
        "wraps": Wraps(turn=TURN, ciphertexts=pack({4: b"w" * 1088})),
        "agreed": Agreed(turn=TURN, device=5, session=b"d" * 32),
    }
    for name, message in good.items():
        yield vector("frame", name, frame=encode(message).hex(), records_bytes=1300)
    bad = {
        "a call in a frame of agreements": headed(encode(Call(turn=TURN))[10:15], version=AGREEING),
        "a gather without its terms": headed(b"\x92\x0f\x92\x03\x01", version=AGREEING),
        "an unknown tag": headed(b"\x92\x17\x92\x03\x01", version=AGREEING),
        "an agreement about a question": headed(
            b"\x93\x0f\x92\xce\x80\x00\x00\x00\x00\xc4\x20" + bytes(32), version=AGREEING
        ),
        "an offer of a shorter key": headed(
            b"\x95\x10\x92\x03\x01\x05\xc4\x04abcd\xc4\x40" + bytes(64), version=AGREEING
        ),
        "a vector behind it": encode(good["agreed"]) + bytes(8),
        "longer than allowed": encode(Offers(turn=TURN, offers=bytes(2000))),
    }
    for name, data in bad.items():
        yield vector("frame", name, frame=data.hex(), records_bytes=1300)


if __name__ == "__main__":
    lines = [
        json.dumps(one, ensure_ascii=False) for part in (keys, combinations, chains, cards, frames) for one in part()
    ]
    path = Path(__file__).with_name("hybrid.json")
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    print(f"{len(lines)} vectors, {path.stat().st_size:,} bytes")
