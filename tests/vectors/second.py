"""A second implementation of docs/secure-sum.md, from the document alone: nothing of choral, and by other routes.

Keystreams are single AES blocks, HKDF is two lines of HMAC, rounding is done in fractions, words are Python integers.
Each function of KINDS maps what a vector gives it to what it must return, or raises Refused with a code.
"""

import hashlib
import hmac
import json
import math
from fractions import Fraction

import msgspec
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

P = 2**256 - 189
# Headers after the tag: t turn, T turn or nil, w number, b bytes, n and d bytes of 16 and 32, N n or nil, c code.
FIELDS = {1: "t", 2: "twn", 3: "tdb", 4: "twddb", 5: "tb", 6: "twb", 7: "tbT", 8: "twbN", 9: "twc"}
unhex = bytes.fromhex


class Refused(Exception): ...


def need(condition, code):
    if not condition:
        raise Refused(code)


def attempt(code, error, action, *given):
    try:
        return action(*given)
    except error:
        raise Refused(code) from None


def little(data):
    return int.from_bytes(data, "little")


def framed(label, *fields):
    return b"".join(len(part).to_bytes(8, "little") + part for part in (b"choral/1 " + label.encode(), *fields))


def h(label, *fields):
    return hashlib.sha256(framed(label, *fields)).digest()


def mac(key, data):
    return hmac.new(key, data, hashlib.sha256).digest()


def digits(data):
    wide = hashlib.sha512(framed("safety number", data)).digest()
    return " ".join(f"{int.from_bytes(wide[5 * g : 5 * g + 5], 'big') % 100000:05d}" for g in range(12))


def signed(shown):
    return framed("bundle", shown["id"].encode(), unhex(shown["identity"]), unhex(shown["agreement"]))


def bundle(id, secret):
    signer = Ed25519PrivateKey.from_private_bytes(unhex(secret)[:32])
    agreement = X25519PrivateKey.from_private_bytes(unhex(secret)[32:]).public_key().public_bytes_raw()
    shown = {"id": id, "identity": signer.public_key().public_bytes_raw().hex(), "agreement": agreement.hex()}
    return shown | {"signature": signer.sign(signed(shown)).hex(), "safety_number": digits(signed(shown))}


def roster(bundles):
    for key, code in (("id", "CH600"), ("identity", "CH606"), ("agreement", "CH606")):
        need(len({shown[key] for shown in bundles}) == len(bundles), code)
    parts = []
    for shown in sorted(bundles, key=lambda shown: shown["id"]):
        need(0 < len(shown["id"].encode()) <= 64 and little(unhex(shown["agreement"])) < 2**255 - 19, "CH600")
        verify = Ed25519PublicKey.from_public_bytes(unhex(shown["identity"])).verify
        attempt("CH606", InvalidSignature, verify, unhex(shown["signature"]), signed(shown))
        parts.append(signed(shown) + unhex(shown["signature"]))
    return {"digest": h("roster", *parts).hex(), "safety_number": digits(h("roster", *parts))}


def pair(id, secret, peer_id, peer_agreement, session):
    own = X25519PrivateKey.from_private_bytes(unhex(secret)[32:])
    shared = attempt("CH606", ValueError, own.exchange, X25519PublicKey.from_public_bytes(unhex(peer_agreement)))
    keys = {id: own.public_key().public_bytes_raw(), peer_id: unhex(peer_agreement)}
    low, high = sorted(keys)
    info = framed("pair", low.encode(), high.encode(), keys[low], keys[high])
    root, blocks = mac(h("session", unhex(session)), shared), [b""]
    for count in range(1, 5):
        blocks.append(mac(root, blocks[-1] + info + bytes([count])))
    names = ("rising", "falling", "seals", "opens") if id == low else ("rising", "falling", "opens", "seals")
    return {name: block.hex() for name, block in zip(names, blocks[1:], strict=True)}


def envelope(key, ctx, sender, receiver, sealed):
    given = unhex(sealed)[:12], unhex(sealed)[12:], framed("envelope", unhex(ctx), sender.encode(), receiver.encode())
    return {"share": attempt("CH606", InvalidTag, AESGCM(unhex(key)).decrypt, *given).hex()}


def context(config, roster, round, attempt, model, cohort):
    who = [field for id, nonce in cohort for field in (id.encode(), unhex(nonce))]
    turn = [number.to_bytes(8, "little") for number in (round, attempt)]
    return {"ctx": h("context", unhex(config), unhex(roster), *turn, unhex(model), *who).hex()}


def round_keys(seed, ctx, id):
    return {
        "pair_key": mac(unhex(seed), framed("pair mask", unhex(ctx))).hex(),
        "self_key": mac(unhex(seed), framed("self mask", unhex(ctx), id.encode())).hex(),
        "commitment": h("commitment", unhex(ctx), id.encode(), unhex(seed)).hex(),
    }


def words_in(data, bits):
    return [little(data[at : at + bits // 8]) for at in range(0, len(data), bits // 8)]


def stream(key, bits, count):
    need(bits in (16, 32, 64) and len(unhex(key)) == 32, "CH500")
    block = Cipher(algorithms.AES(unhex(key)), modes.ECB()).encryptor().update
    data = b"".join(block((2 + i).to_bytes(16, "big")) for i in range(count * bits // 128 + 1))
    return {"words": words_in(data, bits)[:count]}


def plus(words, bits, signed_keys):
    for sign, key in signed_keys:
        words = [(a + sign * b) % 2**bits for a, b in zip(words, stream(key, bits, len(words))["words"], strict=True)]
    return words


def pair_signs(lower, *keys):
    return zip((1, -1) if lower else (-1, 1), keys, strict=False)  # one key, or two where masks are directed


def masked(vector, bits, id, peers, self_key, directed):
    keys = [pair for peer, *both in peers for pair in pair_signs(id < peer, *both[: 1 + directed])]
    return {"words": plus(vector, bits, [(1, self_key), *keys])}


def graph(ids, ctx, degree):
    need(degree is None or (0 < degree < len(ids) and degree % 2 == 0), "CH200")
    circle = sorted(ids, key=lambda id: h("graph", unhex(ctx), id.encode()))
    steps = range(-len(ids), len(ids)) if degree is None else range(-degree // 2, degree // 2 + 1)
    near = {id: {circle[(at + step) % len(ids)] for step in steps} for at, id in enumerate(circle)}
    return {"neighbours": {id: sorted(near[id] - {id}) for id in ids}}


def split(secret, coefficients, points):
    numbers = [little(unhex(text)) for text in (secret, *coefficients)]
    need(max(numbers) < P and len(numbers) <= len(points) == len(set(points)) and min(points) > 0, "CH500")
    values = (sum(number * point**power for power, number in enumerate(numbers)) % P for point in points)
    return {"shares": [value.to_bytes(32, "little").hex() for value in values]}


def join(values, threshold):
    need(len(values) >= threshold, "CH503")
    chosen = dict(sorted((int(point), little(unhex(share))) for point, share in values.items())[:threshold])
    need(max(chosen.values()) < P and min(chosen) > 0, "CH500")
    weights = {at: math.prod(other * pow(other - at, -1, P) for other in chosen if other != at) for at in chosen}
    total = sum(weights[at] * value for at, value in chosen.items()) % P
    return {"secret": total.to_bytes(32, "little").hex()}


def encode(update, dither, grid, largest, bits, lanes):
    update = [float(x) for x in update]
    need(all(math.isfinite(x) and abs(x) <= (largest - 1) * grid for x in update), "CH501")
    exact = [Fraction(x) / Fraction(grid) for x in update]
    numbers = [largest + math.ceil(y - Fraction(u)) for y, u in zip(exact, dither, strict=True)]
    words = [0] * -(-(len(update) + 2) // lanes)
    for place, value in enumerate([*numbers, 1, 0]):
        words[place % len(words)] += value << 21 * (place // len(words))
    return {"words": [word % 2**bits for word in words]}


def decode(words, dimensions, count, largest, bits, lanes):
    length = -(-(dimensions + 2) // lanes)
    need(len(words) == length and max(words) < 2**bits, "CH500")
    found = [words[place % length] >> 21 * (place // length) for place in range(lanes * length)]
    found = [value % 2**21 if place < (lanes - 1) * length else value for place, value in enumerate(found)]
    need(found[dimensions] == count and not any(found[dimensions + 1 :]), "CH504")
    need(max(found[:dimensions], default=0) <= 2 * count * largest, "CH502")
    return {"integers": [value - count * largest for value in found[:dimensions]]}


def fits(kind, value):
    if kind in "TN":
        return value is None or fits(kind.lower(), value)
    if type(value) is bytes:
        return kind == "b" or len(value) == {"n": 16, "d": 32}.get(kind)
    if type(value) is list:
        return kind == "t" and len(value) == 2 and all(fits("w", item) for item in value)
    if type(value) is str:
        return kind == "c" and len(value.encode()) == 5 and value[:2] == "CH" and value[2:].isdecimal()
    return kind == "w" and type(value) is int and 0 <= value < 2**32


def read(data, vector_bytes, records_bytes):
    need(10 <= len(data) <= 10 + 256 + records_bytes + 7 + vector_bytes and data[:4] == b"chrl", "CH600")
    need(little(data[4:6]) == 2, "CH602")
    end = 10 + little(data[6:10])
    start = end + -end % 8
    need(end <= 266 + records_bytes and start <= len(data) and not any(data[end:start]), "CH600")
    header = attempt("CH600", msgspec.DecodeError, msgspec.msgpack.decode, data[10:end])
    kinds = FIELDS.get(header[0]) if type(header) is list and header else None
    need(kinds and len(header) == 1 + len(kinds) and all(map(fits, kinds, header[1:])), "CH600")
    need(len(data) - start == (vector_bytes if header[0] in (3, 4) else 0), "CH600")
    return header, data[start:]


def frame(frame, vector_bytes, records_bytes):
    header, vector = read(unhex(frame), vector_bytes, records_bytes)
    return {"header": [value.hex() if type(value) is bytes else value for value in header], "vector": vector.hex()}


def records(data, width):
    numbers = [little(data[at : at + 4]) for at in range(0, len(data), 4 + width)]
    need(len(data) == len(numbers) * (4 + width) and numbers == sorted(set(numbers)), "CH600")
    return {number: data[(4 + width) * at + 4 : (4 + width) * (at + 1)].hex() for at, number in enumerate(numbers)}


def turn(terms, devices, exchanges):
    """The server's end of a turn, from its exchanges: for each device what was sent and what came back, or null."""
    secure, codec, size = terms["secure"], terms["codec"], terms["parameters"]
    bits, lanes, most = codec["word_bits"], codec["lanes"], 68 * secure["cohort"]
    ids, length = [device["id"] for device in devices], -(-(size + 2) // lanes)
    digest = roster([bundle(**device) for device in devices])["digest"]
    config = h("terms", json.dumps(terms, sort_keys=True, separators=(",", ":")).encode(), unhex(digest))
    answers, dropped = {4: {}, 6: {}, 8: {}}, {}
    for exchange in exchanges:
        replies = {}
        for number, request, reply in exchange:
            asked, vector = read(unhex(request), 4 * size, most)
            if asked[0] == 3:
                need(asked[2] == config, "CH603")
                nonces = records(asked[3], 16)
                where = *asked[1], hashlib.sha256(vector).hexdigest(), [(ids[n], nonces[n]) for n in nonces]
                ctx = context(config.hex(), digest, *where)["ctx"]
            dropped = records(asked[2], 0) if asked[0] == 5 else dropped
            heard, vector = ([0], b"") if reply is None else read(unhex(reply), length * bits // 8, most)
            if heard[0] == asked[0] + 1 and heard[2] == number:  # a refusal is as good as silence
                replies[number] = (heard, vector)
        answers[asked[0] + 1] = replies
    included = [n for n in nonces if n in answers[4] and n not in dropped and answers[4][n][0][3].hex() == ctx]
    need(len(included) >= secure["smallest_sum"], "CH503")
    total, keys = [0] * length, []
    for number in included:
        upload, words = answers[4][number]
        total = [(a + b) % 2**bits for a, b in zip(total, words_in(words, bits), strict=True)]
        edges = records(answers[6][number][0][3], 64 if secure["masks"] == "directed" else 32) if dropped else {}
        for other, both in edges.items():
            keys += pair_signs(number > other, *filter(None, (both[:64], both[64:])))
        if secure["mode"] != "paper":
            held = {at: records(answers[8][n][0][3], 32) for at, n in enumerate(nonces, 1) if n in answers[8]}
            shares = {at: found[number] for at, found in held.items() if number in found}
            own = round_keys(join(shares, secure["threshold"])["secret"], ctx, ids[number])
            need(own["commitment"] == upload[4].hex(), "CH504")
            keys.append((-1, own["self_key"]))
    opened = decode(plus(total, bits, keys), size, len(included), codec["largest"], bits, lanes)
    return opened | {"included": [ids[number] for number in included]}


KINDS = {f.__name__: f for f in (bundle, roster, pair, envelope, context, round_keys, stream, masked, graph)}
KINDS |= {f.__name__: f for f in (split, join, encode, decode, frame, turn)}
