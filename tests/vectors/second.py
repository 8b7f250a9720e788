"""A second implementation of docs/secure-sum.md, from the document alone: nothing of choral, and by other routes.

Keystreams are single AES blocks, HKDF is two lines of HMAC, rounding is done in fractions, words are Python integers.
Each function of KINDS maps what a vector gives it to what it must return, or raises Refused with a code.
"""

import hashlib
import hmac
import math
from fractions import Fraction

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

P = 2**256 - 189
unhex = bytes.fromhex


class Refused(Exception):
    pass


def need(condition, code):
    if not condition:
        raise Refused(code)


def frame(label, *fields):
    parts = [b"choral/1 " + label.encode(), *fields]
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def h(label, *fields):
    return hashlib.sha256(frame(label, *fields)).digest()


def mac(key, data):
    return hmac.new(key, data, hashlib.sha256).digest()


def digits(data):
    wide = hashlib.sha512(frame("safety number", data)).digest()
    return " ".join(f"{int.from_bytes(wide[5 * g : 5 * g + 5], 'big') % 100000:05d}" for g in range(12))


def bundle(id, secret):
    signer = Ed25519PrivateKey.from_private_bytes(unhex(secret)[:32])
    agreement = X25519PrivateKey.from_private_bytes(unhex(secret)[32:]).public_key().public_bytes_raw()
    shown = {"id": id, "identity": signer.public_key().public_bytes_raw().hex(), "agreement": agreement.hex()}
    text = signed(shown)
    return shown | {"signature": signer.sign(text).hex(), "safety_number": digits(text)}


def signed(shown):
    return frame("bundle", shown["id"].encode(), unhex(shown["identity"]), unhex(shown["agreement"]))


def roster(bundles):
    ids = [shown["id"] for shown in bundles]
    need(len(set(ids)) == len(ids), "CH600")
    for key in ("identity", "agreement"):
        need(len({shown[key] for shown in bundles}) == len(ids), "CH606")
    parts = []
    for shown in sorted(bundles, key=lambda shown: shown["id"]):
        need(0 < len(shown["id"].encode()) <= 64, "CH600")
        try:
            Ed25519PublicKey.from_public_bytes(unhex(shown["identity"])).verify(
                unhex(shown["signature"]), signed(shown)
            )
        except InvalidSignature:
            raise Refused("CH606") from None
        parts.append(signed(shown) + unhex(shown["signature"]))
    digest = h("roster", *parts)
    return {"digest": digest.hex(), "safety_number": digits(digest)}


def pair(id, secret, peer_id, peer_agreement, session):
    own = X25519PrivateKey.from_private_bytes(unhex(secret)[32:])
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(unhex(peer_agreement)))
    except ValueError:
        raise Refused("CH606") from None
    keys = {id: own.public_key().public_bytes_raw(), peer_id: unhex(peer_agreement)}
    low, high = sorted(keys)
    info = frame("pair", low.encode(), high.encode(), keys[low], keys[high])
    root, output, block = mac(h("session", unhex(session)), shared), b"", b""
    for turn in range(1, 5):
        block = mac(root, block + info + bytes([turn]))
        output += block
    names = ["rising", "falling", "seals", "opens"] if id == low else ["rising", "falling", "opens", "seals"]
    return {name: output[32 * i : 32 * i + 32].hex() for i, name in enumerate(names)}


def envelope(key, ctx, sender, receiver, sealed):
    extra = frame("envelope", unhex(ctx), sender.encode(), receiver.encode())
    try:
        return {"share": AESGCM(unhex(key)).decrypt(unhex(sealed)[:12], unhex(sealed)[12:], extra).hex()}
    except InvalidTag:
        raise Refused("CH606") from None


def context(config, roster, round, attempt, model, cohort):
    fields = [unhex(config), unhex(roster), round.to_bytes(8, "little"), attempt.to_bytes(8, "little"), unhex(model)]
    for id, nonce in cohort:
        fields += [id.encode(), unhex(nonce)]
    return {"ctx": h("context", *fields).hex()}


def round_keys(seed, ctx, id):
    return {
        "pair_key": mac(unhex(seed), frame("pair mask", unhex(ctx))).hex(),
        "self_key": mac(unhex(seed), frame("self mask", unhex(ctx), id.encode())).hex(),
        "commitment": h("commitment", unhex(ctx), id.encode(), unhex(seed)).hex(),
    }


def words_of(key, bits, count):
    block = Cipher(algorithms.AES(unhex(key)), modes.ECB()).encryptor().update
    data = b"".join(block((2 + i).to_bytes(16, "big")) for i in range(count * bits // 128 + 1))
    size = bits // 8
    return [int.from_bytes(data[size * i : size * i + size], "little") for i in range(count)]


def stream(key, bits, count):
    need(bits in (16, 32, 64) and len(unhex(key)) == 32, "CH500")
    return {"words": words_of(key, bits, count)}


def masked(vector, bits, id, peers, self_key, directed):
    total = [a + b for a, b in zip(vector, words_of(self_key, bits, len(vector)), strict=True)]
    for peer, rising, falling in peers:
        sign = 1 if id < peer else -1
        for key, factor in ((rising, sign), (falling, -sign))[: 2 if directed else 1]:
            total = [a + factor * b for a, b in zip(total, words_of(key, bits, len(vector)), strict=True)]
    return {"words": [word % 2**bits for word in total]}


def graph(ids, ctx, degree):
    need(degree is None or (0 < degree < len(ids) and degree % 2 == 0), "CH200")
    circle = sorted(ids, key=lambda id: h("graph", unhex(ctx), id.encode()))
    half = len(ids) if degree is None else degree // 2
    near = {
        id: {circle[(place + step) % len(ids)] for step in range(-half, half + 1)} for place, id in enumerate(circle)
    }
    return {"neighbours": {id: sorted(near[id] - {id}) for id in ids}}


def split(secret, coefficients, points):
    numbers = [int.from_bytes(unhex(text), "little") for text in (secret, *coefficients)]
    need(max(numbers) < P and len(numbers) <= len(points) == len(set(points)) and min(points) > 0, "CH500")
    values = [sum(number * pow(point, power, P) for power, number in enumerate(numbers)) % P for point in points]
    return {"shares": [value.to_bytes(32, "little").hex() for value in values]}


def join(values, threshold):
    need(len(values) >= threshold, "CH503")
    chosen = {int(point): int.from_bytes(unhex(share), "little") for point, share in values.items()}
    chosen = {point: chosen[point] for point in sorted(chosen)[:threshold]}
    need(max(chosen.values()) < P and min(chosen) > 0, "CH500")
    total = 0
    for point, value in chosen.items():
        others = [other for other in chosen if other != point]
        total += value * math.prod(others) * pow(math.prod(other - point for other in others), -1, P)
    return {"secret": (total % P).to_bytes(32, "little").hex()}


def encode(update, dither, grid, largest, bits, lanes):
    update = [float(x) for x in update]
    need(all(math.isfinite(x) and abs(x) <= (largest - 1) * grid for x in update), "CH501")
    exact = [Fraction(x) / Fraction(grid) for x in update]
    numbers = [math.floor(y) + (Fraction(u) < y - math.floor(y)) + largest for y, u in zip(exact, dither, strict=True)]
    length = -(-(len(update) + 2) // lanes)
    words = [0] * length
    for place, value in enumerate([*numbers, 1, 0]):
        words[place % length] += value << 21 * (place // length)
    return {"words": [word % 2**bits for word in words]}


def decode(words, dimensions, count, largest, bits, lanes):
    length = -(-(dimensions + 2) // lanes)
    need(len(words) == length and max(words) < 2**bits, "CH500")
    found = [words[place % length] >> 21 * (place // length) for place in range(lanes * length)]
    found = [value % 2**21 if place < (lanes - 1) * length else value for place, value in enumerate(found)]
    need(found[dimensions] == count and not any(found[dimensions + 1 :]), "CH504")
    need(max(found[:dimensions], default=0) <= 2 * count * largest, "CH502")
    return {"integers": [value - count * largest for value in found[:dimensions]]}


KINDS = {
    f.__name__: f
    for f in (bundle, roster, pair, envelope, context, round_keys, stream, masked, graph, split, join, encode, decode)
}
