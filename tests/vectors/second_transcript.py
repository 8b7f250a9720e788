"""The second implementation, continued: frames and whole turns, from docs/secure-sum.md alone; nothing of choral."""

import hashlib
import json
import struct

from tests.vectors import second
from tests.vectors.second import need

FIELDS = {1: "t", 2: "twN", 3: "tDb", 4: "twDb", 5: "tb", 6: "twb", 7: "tbT", 8: "twbM", 9: "twc"}


def parse(data, at=0):
    """One msgpack value and where it ends."""
    need(at < len(data), "CH600")
    head, at = data[at], at + 1
    if head < 0x80:
        return head, at
    if head == 0xC0:
        return None, at
    if 0x90 <= head < 0xA0:
        items = []
        for _ in range(head - 0x90):
            item, at = parse(data, at)
            items.append(item)
        return items, at
    sizes = {0xC4: "B", 0xC5: ">H", 0xC6: ">I", 0xCC: "B", 0xCD: ">H", 0xCE: ">I"}
    if 0xA0 <= head < 0xC0:
        size = head - 0xA0
    else:
        need(head in sizes and at + struct.calcsize(sizes[head]) <= len(data), "CH600")
        (size,) = struct.unpack_from(sizes[head], data, at)
        at += struct.calcsize(sizes[head])
        if head >= 0xCC:
            return size, at
    need(at + size <= len(data), "CH600")
    body = data[at : at + size]
    return (body if head in sizes else body.decode("ascii", "replace")), at + size


def fits(kind, value):
    match kind:
        case "w":
            return type(value) is int
        case "t":
            return type(value) is list and len(value) == 2 and all(type(item) is int for item in value)
        case "T":
            return value is None or fits("t", value)
        case "M":
            return value is None or fits("N", value)
        case "N" | "D":
            return type(value) is bytes and len(value) == (16 if kind == "N" else 32)
        case "b":
            return type(value) is bytes
        case "c":
            return type(value) is str and len(value) == 5 and value[:2] == "CH" and value[2:].isdigit()


def shown(value):
    return value.hex() if type(value) is bytes else value


def read(frame, vector_bytes, records_bytes):
    data = bytes.fromhex(frame)
    need(10 <= len(data) <= 10 + 256 + records_bytes + 7 + vector_bytes and data[:4] == b"chrl", "CH600")
    version, size = struct.unpack_from("<HI", data, 4)
    need(version == 1, "CH602")
    start = 10 + size + -(10 + size) % 8
    need(size <= 256 + records_bytes and start <= len(data) and not any(data[10 + size : start]), "CH600")
    header, end = parse(data[: 10 + size], 10)
    need(end == 10 + size and type(header) is list and header and header[0] in FIELDS, "CH600")
    kinds = FIELDS[header[0]]
    need(len(header) == 1 + len(kinds) and all(map(fits, kinds, header[1:])), "CH600")
    need(len(data) - start == (vector_bytes if header[0] in (3, 4) else 0), "CH600")
    return header, data[start:]


def frame(frame, vector_bytes, records_bytes):
    header, vector = read(frame, vector_bytes, records_bytes)
    return {"header": [shown(value) for value in header], "vector": vector.hex()}


def records(data, width):
    size = 4 + width
    need(len(data) % size == 0, "CH600")
    numbers = [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), size)]
    need(numbers == sorted(set(numbers)), "CH600")
    return {number: data[size * place + 4 : size * (place + 1)] for place, number in enumerate(numbers)}


def turn(terms, devices, exchanges):
    """The server's end of a turn, from its exchanges: for each device what was sent and what came back, or null."""
    secure, codec, size = terms["secure"], terms["codec"], terms["parameters"]
    bits, lanes = codec["word_bits"], codec["lanes"]
    length, width = -(-(size + 2) // lanes), bits // 8
    ids = [device["id"] for device in devices]
    roster = bytes.fromhex(second.roster([second.bundle(**device) for device in devices])["digest"])
    config = second.h("terms", json.dumps(terms, sort_keys=True, separators=(",", ":")).encode(), roster)
    most = 68 * secure["cohort"]
    answers, dropped, where, model, nonces = {4: {}, 6: {}, 8: {}}, set(), None, b"", {}
    for exchange in exchanges:
        replies = {}
        for number, request, reply in exchange:
            asked, vector = read(request, 4 * size, most)
            if asked[0] == 3:
                where, model, nonces = asked[1], vector, records(asked[3], 16)
                need(asked[2] == config, "CH603")
            if asked[0] == 5:
                dropped = set(records(asked[2], 0))
            answer = None if reply is None else read(reply, length * width, most)
            # Each kind of question has the next tag as its answer; a refusal is as good as silence.
            if answer is not None and answer[0][0] == asked[0] + 1 and answer[0][2] == number:
                replies[number] = answer
        answers[asked[0] + 1] = replies
    cohort = [(ids[number], nonces[number].hex()) for number in sorted(nonces)]
    ctx = second.context(config.hex(), roster.hex(), *where, hashlib.sha256(model).hexdigest(), cohort)["ctx"]
    included = [number for number in sorted(nonces) if number in answers[4] and number not in dropped]
    need(len(included) >= secure["smallest_sum"], "CH503")
    total = [0] * length
    for number in included:
        upload = answers[4][number][1]
        words = [int.from_bytes(upload[at : at + width], "little") for at in range(0, length * width, width)]
        total = [a + b for a, b in zip(total, words, strict=True)]
        streams = []
        if dropped:
            keys = records(answers[6][number][0][3], 64 if secure["masks"] == "directed" else 32)
            lower = {other: 1 if number < other else -1 for other in keys}
            streams = [(lower[other], pair[:32]) for other, pair in keys.items()]
            streams += [(-lower[other], pair[32:]) for other, pair in keys.items() if pair[32:]]
        if secure["mode"] != "paper":
            streams.append((1, self_key(number, answers, nonces, ids, ctx, secure["threshold"])))
        for sign, key in streams:
            total = [a - sign * b for a, b in zip(total, second.words_of(key.hex(), bits, length), strict=True)]
    opened = second.decode([word % 2**bits for word in total], size, len(included), codec["largest"], bits, lanes)
    return opened | {"included": [ids[number] for number in included]}


def self_key(owner, answers, nonces, ids, ctx, threshold):
    points = {number: place + 1 for place, number in enumerate(sorted(nonces))}
    held = {holder: records(opening[0][3], 32) for holder, opening in answers[8].items()}
    shares = {str(points[holder]): found[owner].hex() for holder, found in held.items() if owner in found}
    sigma = second.join(shares, threshold)["secret"]
    keys = second.round_keys(sigma, ctx, ids[owner])
    need(keys["commitment"] == answers[4][owner][0][3].hex(), "CH504")
    return bytes.fromhex(keys["self_key"])


KINDS = {"frame": frame, "turn": turn}
