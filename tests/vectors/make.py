"""Writes keys.json, masks.json, shares.json and codec.json: `PYTHONPATH=src:. python tests/vectors/make.py`.

Inputs are fixed here; answers are choral's, and tests/secagg/test_vectors.py holds a second implementation against
them. A change of any answer is a change of the protocol's version.
"""

import hashlib
import json
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from choral.core.keys import framed
from tests.vectors import first
from tests.vectors.answers import outcome

HERE = Path(__file__).parent
OURS = "inputs made up for this file; answers by choral, and again by tests/vectors/second.py"


def some(label, size=32):
    """Bytes that look random and are the same for ever."""
    return hashlib.shake_256(label.encode()).digest(size)


def vector(kind, name, origin=OURS, **given):
    question = {"kind": kind, "name": name, "origin": origin, "given": given}
    return question | outcome(first, question)


def secret(name):
    return some(f"secret of {name}", 64).hex()


def shown(id):
    return {name: value for name, value in first.bundle(id, secret(id)).items() if name != "safety_number"}


def second_way(bundle):
    """The same agreement key to X25519, which ignores the highest bit, signed by its owner."""
    agreement = bytes.fromhex(bundle["agreement"])
    agreement = agreement[:31] + bytes([agreement[31] | 128])
    text = framed("bundle", bundle["id"].encode(), bytes.fromhex(bundle["identity"]), agreement)
    signer = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret(bundle["id"]))[:32])
    return bundle | {"agreement": agreement.hex(), "signature": signer.sign(text).hex()}


# RFC 7748, 6.1: Alice's private key, Bob's public key; behind an identity seed of RFC 8032, 7.1, test 1.
RFC = "keys of RFC 7748 (6.1) and RFC 8032 (7.1, test 1); " + OURS
ALICE = (
    "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
    "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
)
BOB_AGREEMENT = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
SMALL_ORDER = [
    "00" * 32,
    "01" + "00" * 31,
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]
CTX = some("ctx").hex()


def keys():
    yield vector("bundle", "a device of the standards", RFC, id="alice", secret=ALICE)
    for id in ("a", "site-b", "Kraków", "d" * 64):
        yield vector("bundle", f"a device called {id[:8]}", id=id, secret=secret(id))
    three = [shown(id) for id in ("a", "b", "c")]
    yield vector("roster", "three devices", bundles=three)
    yield vector("roster", "the same three in another order", bundles=three[::-1])
    yield vector("roster", "nobody", bundles=[])
    yield vector("roster", "one id twice", bundles=[three[0], three[0]])
    yield vector("roster", "one identity under two ids", bundles=[three[0], first.bundle("b", secret("a"))])
    yield vector("roster", "a signature of another id", bundles=[three[0] | {"id": "z"}])
    yield vector(
        "roster", "an agreement key that was swapped", bundles=[three[0] | {"agreement": three[1]["agreement"]}]
    )
    yield vector("roster", "an agreement key written a second way", bundles=[second_way(three[0])])
    yield vector("roster", "an id of 65 bytes", bundles=[first.bundle("e" * 65, secret("e"))])
    yield vector("roster", "an id that does not print", bundles=[first.bundle("a\nb", secret("e"))])
    yield vector("roster", "an id of no bytes", bundles=[first.bundle("", secret("e"))])
    session = some("session").hex()
    yield vector("pair", "Alice and Bob of RFC 7748", RFC, id="alice", secret=ALICE, peer_id="bob",
                 peer_agreement=BOB_AGREEMENT, session=session)  # fmt: skip
    for id, peer in (("a", "b"), ("b", "a"), ("B", "a")):
        yield vector("pair", f"{id} with {peer}", id=id, secret=secret(id), peer_id=peer,
                     peer_agreement=shown(peer)["agreement"], session=session)  # fmt: skip
    yield vector("pair", "another session", id="a", secret=secret("a"), peer_id="b",
                 peer_agreement=shown("b")["agreement"], session="")  # fmt: skip
    for point in SMALL_ORDER:
        yield vector("pair", f"a point of small order, {point[:8]}", "points of small order on Curve25519; " + OURS,
                     id="a", secret=secret("a"), peer_id="b", peer_agreement=point, session=session)  # fmt: skip
    cohort = [["a", some("nonce a", 16).hex()], ["b", some("nonce b", 16).hex()]]
    given = {"config": some("config").hex(), "roster": some("roster").hex(), "model": some("model").hex()}
    yield vector("context", "two devices", **given, round=3, attempt=0, cohort=cohort)
    yield vector("context", "the next attempt", **given, round=3, attempt=1, cohort=cohort)
    yield vector("context", "a late round", **given, round=2**40, attempt=0, cohort=cohort)
    yield vector("context", "an id that ends where another begins", **given, round=3, attempt=0,
                 cohort=[["ab", cohort[0][1]], ["c", cohort[1][1]]])  # fmt: skip
    key, nonce, share = some("sealing key"), some("nonce", 12), some("share")
    sealed = (nonce + AESGCM(key).encrypt(nonce, share, framed("envelope", bytes.fromhex(CTX), b"a", b"b"))).hex()
    letter = {"key": key.hex(), "ctx": CTX, "sender": "a", "receiver": "b", "sealed": sealed}
    yield vector("envelope", "a share from a to b", **letter)
    yield vector("envelope", "in another round", **letter | {"ctx": some("other").hex()})
    yield vector("envelope", "sent back", **letter | {"sender": "b", "receiver": "a"})
    yield vector(
        "envelope", "one bit changed", **letter | {"sealed": sealed[:-1] + ("0" if sealed[-1] != "0" else "1")}
    )


def masks():
    yield vector("stream", "the first block of the zero key", "GCM's test case 14 (McGrew and Viega); " + OURS,
                 key="00" * 32, bits=64, count=2)  # fmt: skip
    for bits, count in ((16, 9), (32, 5), (64, 17), (32, 0)):
        yield vector("stream", f"{count} words of {bits} bits", key=some("stream").hex(), bits=bits, count=count)
    yield vector("stream", "words of 24 bits", key=some("stream").hex(), bits=24, count=1)
    yield vector("stream", "a key of 16 bytes", key=some("stream", 16).hex(), bits=32, count=1)
    for id in ("a", "b"):
        yield vector("round_keys", f"the keys of {id}", seed=some(f"seed {id}").hex(), ctx=CTX, id=id)
    yield vector("round_keys", "in another round", seed=some("seed a").hex(), ctx=some("other").hex(), id="a")
    rings = ((16, False), (32, False), (32, True), (64, True))
    for bits, directed in rings:
        peers = [[peer, some(f"rising b{peer}").hex(), some(f"falling b{peer}").hex()] for peer in ("a", "c")]
        yield vector("masked", f"modulo 2^{bits}, {'directed' if directed else 'single'}", vector=[0, 1, 2**bits - 1],
                     bits=bits, id="b", peers=peers, self_key=some("self").hex(), directed=directed)  # fmt: skip
    ids = [f"device-{number}" for number in range(7)]
    for degree in (None, 2, 6, 3, 8):
        yield vector("graph", f"seven devices, degree {degree}", ids=ids, ctx=CTX, degree=degree)


def shares():
    coefficients = [some(f"coefficient {i}").hex() for i in range(3)]
    prime = 2**256 - 189
    largest, too_large = ((prime + step).to_bytes(32, "little").hex() for step in (-1, 0))
    for name, secret_ in (("a secret", some("sigma").hex()), ("zero", "00" * 32), ("the largest", largest)):
        for threshold in (1, 2, 4):
            given = {"secret": secret_, "coefficients": coefficients[: threshold - 1], "points": [1, 2, 5, 1000]}
            made = vector("split", f"{name}, {threshold} of 4", **given)
            yield made
            held = dict(zip(("1", "2", "5", "1000"), made["gives"]["shares"], strict=True))
            some_held = dict(list(held.items())[4 - threshold :])
            yield vector("join", f"{name}, {threshold} of 4, the last ones", values=some_held, threshold=threshold)
    yield vector("split", "a number outside the field", secret=too_large, coefficients=[], points=[1])
    yield vector("split", "a point at zero", secret=largest, coefficients=coefficients, points=[0, 1, 2, 3])
    yield vector("split", "one point twice", secret=largest, coefficients=coefficients, points=[1, 1, 2, 3])
    yield vector("split", "fewer points than the threshold", secret=largest, coefficients=coefficients, points=[1, 2])
    yield vector("join", "one share too few", values={"1": largest}, threshold=2)
    yield vector("join", "a share outside the field", values={"1": largest, "2": too_large}, threshold=2)


def codec():
    update = [0.0, 0.375, -0.375, 1.0, -1.0, 0.8125, 2.0**-30, -(2.0**-3)]
    dither = [0.0, 0.25, 0.5, 0.999969482421875, 0.75, 0.125, 0.0, 0.49993896484375]
    for bits, lanes in ((16, 1), (32, 1), (64, 1)):
        form = {"grid": 0.25, "largest": 9, "bits": bits, "lanes": lanes}
        name = f"{lanes} in {bits} bits"
        made = vector("encode", name, update=update, dither=dither, **form)
        yield made
        yield vector("encode", f"nothing, {name}", update=[], dither=[], **form)
        words = made["gives"]["words"]
        read = {"dimensions": len(update), "largest": 9, "bits": bits, "lanes": lanes}
        yield vector("decode", f"one, {name}", words=words, count=1, **read)
        yield vector("decode", f"three, {name}", words=[3 * word for word in words], count=3, **read)
        yield vector("decode", f"a wrong count, {name}", words=[2 * word for word in words], count=3, **read)
        yield vector("decode", f"a word of another sum, {name}", words=[*words[:-1], words[-1] + 1], count=1, **read)
        yield vector("decode", f"beyond the range, {name}", words=[words[0] + 60, *words[1:]], count=1, **read)
        yield vector(
            "decode", f"the highest bit set, {name}", words=[words[0] + 2 ** (bits - 1), *words[1:]], count=1, **read
        )
        yield vector("decode", f"a word short, {name}", words=words[:-1], count=1, **read)
        yield vector("encode", f"beyond the range, {name}", update=[2.25], dither=[0.0], **form)
        yield vector("encode", f"not finite, {name}", update=["inf"], dither=[0.0], **form)
        yield vector("encode", f"not a number, {name}", update=["nan"], dither=[0.0], **form)


if __name__ == "__main__":
    for part in (keys, masks, shares, codec):
        lines = ",\n".join(json.dumps(one, ensure_ascii=False, allow_nan=False) for one in part())
        (HERE / f"{part.__name__}.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
