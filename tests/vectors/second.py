"""A second implementation of docs/secure-sum.md, from the document alone: nothing of choral, and by other routes."""

import hmac
import json
import math
import struct
from fractions import Fraction
from functools import partial
from hashlib import sha256, sha512
from typing import Annotated

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, aead, algorithms, modes
from msgspec import DecodeError, Meta, defstruct, msgpack

P, WORDS = 2**256 - 189, {16: "H", 32: "I", 64: "Q"}
# A function bears the name of a kind of vector; a refusal is a failed assertion, or what a library raises.
REFUSALS = {"CH600": (DecodeError, UnicodeDecodeError), "CH606": (InvalidSignature, InvalidTag, ValueError)}
Whole, Text = Annotated[int, Meta(ge=0, lt=2**32)], Annotated[bytes, Meta(min_length=1, max_length=4096)]
Turn = Annotated[list[Whole], Meta(min_length=2, max_length=2)]
Nonce, Digest, Signed, Ready = (Annotated[bytes, Meta(min_length=n, max_length=n)] for n in (16, 32, 64, 80))
Code, B = Annotated[str, Meta(pattern=r"\ACH[0-9]{3}\Z")], bytes
Tagged = defstruct("Tagged", [("tag", Annotated[int, Meta(ge=1, le=14)])], array_like=True)
FIELDS = [(), (Whole, Nonce, Signed), (Digest, B), (Whole, Digest, Digest, B, B), (B,), (Whole, B), (Turn | None,)]
FIELDS += [(Whole, B, Ready | None), (Whole, Code, Whole | None, Signed), (Text,), (B,), (Whole, B), (), (Whole, B)]
unhex, little, mac = bytes.fromhex, partial(int.from_bytes, byteorder="little"), partial(hmac.digest, digest="sha256")


def framed(label, *fields):
    return b"".join(len(part).to_bytes(8, "little") + part for part in (b"choral/1 " + label.encode(), *fields))


def digits(data):
    wide = sha512(framed("safety number", data)).digest()
    return " ".join(f"{int.from_bytes(wide[5 * g : 5 * g + 5], 'big') % 100000:05d}" for g in range(12))


def bundle(id, secret):
    signer = Ed25519PrivateKey.from_private_bytes(unhex(secret)[:32])
    agreement = X25519PrivateKey.from_private_bytes(unhex(secret)[32:]).public_key().public_bytes_raw()
    shown = {"id": id, "identity": signer.public_key().public_bytes_raw().hex(), "agreement": agreement.hex()}
    signed = framed("bundle", id.encode(), unhex(shown["identity"]), agreement)
    return shown | {"signature": signer.sign(signed).hex(), "safety_number": digits(signed)}


def roster(bundles):
    for name, code in (("id", "CH600"), ("identity", "CH606"), ("agreement", "CH606")):
        assert len({shown[name] for shown in bundles}) == len(bundles), code
    parts = []
    for id, shown in sorted((shown["id"], shown) for shown in bundles):
        identity, agreement, signature = (unhex(shown[name]) for name in ("identity", "agreement", "signature"))
        assert 0 < len(id.encode()) <= 64 and id.isprintable() and little(agreement) < 2**255 - 19, "CH600"
        signed = framed("bundle", id.encode(), identity, agreement)
        Ed25519PublicKey.from_public_bytes(identity).verify(signature, signed)
        parts.append(signed + signature)
    digest = sha256(framed("roster", *parts))
    return {"digest": digest.hexdigest(), "safety_number": digits(digest.digest())}


def pair(id, secret, peer_id, peer_agreement, session):
    own, peer = X25519PrivateKey.from_private_bytes(unhex(secret)[32:]), unhex(peer_agreement)
    shared = own.exchange(X25519PublicKey.from_public_bytes(peer))
    (low, first), (high, second) = sorted([(id, own.public_key().public_bytes_raw()), (peer_id, peer)])
    root, block = mac(sha256(framed("session", unhex(session))).digest(), shared), b""  # of HKDF
    info = framed("pair", low.encode(), high.encode(), first, second)
    blocks = [block := mac(root, block + info + bytes([count])) for count in range(1, 5)]
    names = ("rising", "falling", "seals", "opens") if id == low else ("rising", "falling", "opens", "seals")
    return {name: block.hex() for name, block in zip(names, blocks, strict=True)}


def envelope(key, ctx, sender, receiver, sealed):
    bound = framed("envelope", unhex(ctx), sender.encode(), receiver.encode())
    return {"share": aead.AESGCM(unhex(key)).decrypt(unhex(sealed)[:12], unhex(sealed)[12:], bound).hex()}


def context(config, roster, round, attempt, model, cohort):
    who = [field for id, nonce in cohort for field in (id.encode(), unhex(nonce))]
    turn = [number.to_bytes(8, "little") for number in (round, attempt)]
    return {"ctx": sha256(framed("context", unhex(config), unhex(roster), *turn, unhex(model), *who)).hexdigest()}


def round_keys(seed, ctx, id):
    seed, ctx, id = unhex(seed), unhex(ctx), id.encode()
    keys = {"pair_key": mac(seed, framed("pair mask", ctx)), "self_key": mac(seed, framed("self mask", ctx, id))}
    keys["envelope_key"] = mac(seed, framed("envelope key", ctx))
    keys["fingerprint"] = sha256(framed("fingerprint", ctx, seed)).digest()[:16]
    keys["commitment"] = sha256(framed("commitment", ctx, id, seed)).digest()
    return {name: key.hex() for name, key in keys.items()}


def stream(key, bits, count):
    assert bits in WORDS and len(unhex(key)) == 32, "CH500"
    block = Cipher(algorithms.AES(unhex(key)), modes.ECB()).encryptor().update
    data = b"".join(block((2 + i).to_bytes(16, "big")) for i in range(count * bits // 128 + 1))
    return {"words": list(struct.unpack_from(f"<{count}{WORDS[bits]}", data))}


def masked(vector, bits, id, peers, self_key, directed):
    keys = [(1, self_key)] if self_key else []  # the paper's mode has none
    for peer, *both in peers:
        keys += zip((1, -1) if id < peer else (-1, 1), both[: 1 + directed], strict=False)
    for sign, k in keys:
        vector = [(a + sign * b) % 2**bits for a, b in zip(vector, stream(k, bits, len(vector))["words"], strict=True)]
    return {"words": vector}


def graph(ids, ctx, degree):
    assert degree is None or (0 < degree < len(ids) and degree % 2 == 0), "CH200"
    n, circle = len(ids), sorted(ids, key=lambda id: sha256(framed("graph", unhex(ctx), id.encode())).digest())
    steps = range(-n, n) if degree is None else range(-degree // 2, degree // 2 + 1)
    return {"neighbours": {v: sorted({circle[(at + i) % n] for i in steps} - {v}) for at, v in enumerate(circle)}}


def split(secret, coefficients, points):
    numbers = [little(unhex(text)) for text in (secret, *coefficients)]
    assert max(numbers) < P and len(numbers) <= len(points) == len(set(points)) and min(points) > 0, "CH500"
    return {"shares": [(sum(c * x**i for i, c in enumerate(numbers)) % P).to_bytes(32, "little").hex() for x in points]}


def join(values, threshold):
    assert len(values) >= threshold, "CH503"
    chosen = dict(sorted((int(point), little(unhex(share))) for point, share in values.items())[:threshold])
    assert max(chosen.values()) < P and min(chosen) > 0, "CH500"
    weights = {at: math.prod(other * pow(other - at, -1, P) for other in chosen if other != at) for at in chosen}
    return {"secret": (sum(weights[at] * chosen[at] for at in chosen) % P).to_bytes(32, "little").hex()}


def encode(update, dither, grid, largest, bits, lanes):
    assert all(abs(float(x)) <= (largest - 1) * grid for x in update), "CH501"
    steps = [math.ceil(Fraction(x) / Fraction(grid) - Fraction(u)) for x, u in zip(update, dither, strict=True)]
    numbers, length = [*(largest + step for step in steps), 1, 0], -(-(len(steps) + 2) // lanes)
    words = (sum(value << 21 * lane for lane, value in enumerate(numbers[at::length])) for at in range(length))
    return {"words": [word % 2**bits for word in words]}


def decode(words, dimensions, count, largest, bits, lanes):
    assert len(words) == -(-(dimensions + 2) // lanes) and max(words) < 2**bits, "CH500"
    found = [(word >> 21 * lane) % 2 ** (21 if lane < lanes - 1 else 64) for lane in range(lanes) for word in words]
    assert found[dimensions] == count and not any(found[dimensions + 1 :]), "CH504"
    assert max(found[:dimensions], default=0) <= 2 * count * largest, "CH502"
    return {"integers": [value - count * largest for value in found[:dimensions]]}


def frame(frame, vector_bytes, records_bytes):
    data, kind = unhex(frame), little(unhex(frame)[4:6])
    most = 10 + 256 + max(records_bytes, 4096 * (kind == 4))
    assert 10 <= len(data) <= most + 7 + vector_bytes and data[:4] == b"chrl", "CH600"
    assert kind in range(3, 8), "CH602"
    start = (end := 10 + little(data[6:10])) + -end % 8
    assert end <= most and start <= len(data) and not any(data[end:start]), "CH600"
    tag = msgpack.decode(data[10:end], type=Tagged).tag
    head = msgpack.decode(data[10:end], type=tuple[(int, Turn, *FIELDS[tag - 1])])
    room = range(vector_bytes + 1) if tag == 11 else [vector_bytes * (tag in (3, 4))]
    assert len(data) - start in room and kind == 3 + (head[1][0] >= 2**31) + 2 * (tag > 10) >= 3 + (tag == 10), "CH600"
    return {"header": [x.hex() if type(x) is bytes else x for x in head], "vector": data[start:].hex()}


def records(text, width):
    data, size = unhex(text), 4 + width
    numbers = [little(data[at : at + 4]) for at in range(0, len(data), size)]
    assert len(data) == len(numbers) * size and numbers == sorted(set(numbers)), "CH600"
    return {number: data[size * at + 4 : size * (at + 1)].hex() for at, number in enumerate(numbers)}


def turn(terms, devices, exchanges):  # an exchange has what each device was sent, and what came back or null
    secure, codec, size, lanes = terms["secure"], terms["codec"], terms["parameters"], terms["codec"]["lanes"]
    bits, length, width = codec["word_bits"], -(-(size + 2) // lanes), 64 if secure["masks"] == "directed" else 32
    bond = 108 + (bits // 4 if lanes == 1 and secure["mode"] != "paper" else 0)
    ids, digest = [device["id"] for device in devices], roster([bundle(**device) for device in devices])["digest"]
    config = sha256(framed("terms", json.dumps(terms, sort_keys=True, separators=(",", ":")).encode(), unhex(digest)))
    said, rows = {tag: {} for tag in range(1, 10)}, [row for exchange in exchanges for row in exchange]
    for number, *both in rows:
        for text, room in zip(both, (4 * size, length * bits // 8), strict=True):
            header, vector = frame(text, room, (4 + bond) * secure["cohort"]).values() if text else ([1], "")
            said[header[0]][number] = [*header, vector]
    (_, where, _, who, model), *_ = said[3].values()
    nonces, dropped = records(who, 16), {n for drop in said[5].values() for n in records(drop[2], 0)}
    cohort = [(ids[n], nonces[n]) for n in nonces]
    ctx = context(config.hexdigest(), digest, *where, sha256(unhex(model)).hexdigest(), cohort)["ctx"]
    bonds = {n: records(upload[5], bond) for n, upload in said[4].items()}  # envelope, three fingerprints, checks
    edges, keys = ({n: records(text[3], wide) for n, text in said[tag].items()} for tag, wide in ((6, width), (8, 32)))
    mark, takes = lambda key: round_keys(key, ctx, "")["fingerprint"], lambda bond: bond[184:216]
    liars = {n for n, found in edges.items() if any(bonds[n][m][120:152] != mark(key) for m, key in found.items())}
    included = [n for n in nonces if n in said[4] and n not in dropped | liars and said[4][n][3] == ctx]
    assert len(included) >= secure["smallest_sum"], "CH503"
    total, own = [0] * length, {"self_key": None}
    for number in included:
        if secure["mode"] != "paper":
            true = {n: k[number] for n, k in keys.items() if number in k and mark(k[number]) == takes(bonds[n][number])}
            opened = {n: envelope(key, ctx, ids[number], ids[n], bonds[number][n][:120]) for n, key in true.items()}
            shares = {at: opened[n]["share"] for at, n in enumerate(nonces, 1) if n in opened}
            own = round_keys(join(shares, secure["threshold"])["secret"], ctx, ids[number])
            assert own["commitment"] == said[4][number][4], "CH504"
        peers = [(ids[n], key[:64], key[64:]) for n, key in edges.get(number, {}).items()]
        masks = masked([0] * length, bits, ids[number], peers, own["self_key"], width == 64)["words"]
        words = struct.unpack(f"<{length}{WORDS[bits]}", unhex(said[4][number][7]))
        total = [(a + b - c) % 2**bits for a, b, c in zip(total, words, masks, strict=True)]
    return decode(total, size, len(included), codec["largest"], bits, lanes) | {"included": [ids[n] for n in included]}
