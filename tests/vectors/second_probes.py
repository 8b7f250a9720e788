"""The probes of docs/secure-sum.md a second time, from the document alone, on top of tests/vectors/second.py."""

import struct
from hashlib import sha256

from tests.vectors.second import REFUSALS, frame, framed, little, records, stream, turn, unhex

__all__ = ["REFUSALS", "frame", "probe", "probed"]


def probe(ctx, uploads, watched, probes, integers):
    """The digests and the seed of a turn, and the answers that belong to some integers; watched is a list of rows."""
    digests = {n: sha256(framed("upload", unhex(ctx), id.encode(), unhex(text))).digest() for n, id, text in uploads}
    packed = b"".join(n.to_bytes(4, "little") + digests[n] for n in sorted(digests))
    seen = sha256(framed("watched", b"".join(struct.pack(f"{len(row)}b", *row) for row in watched))).digest()
    seed = sha256(framed("probe", unhex(ctx), packed, seen)).hexdigest()
    size = len(integers)
    drawn = [byte for word in stream(seed, 16, probes * size // 2 + 1)["words"] for byte in (word % 256, word // 256)]
    rows = [[2 * byte - 255 for byte in drawn[at * size : (at + 1) * size]] for at in range(probes)]
    answers = [sum(a * b for a, b in zip(row, integers, strict=True)) for row in (*rows, *watched)]
    return {"digests": {str(n): digest.hex() for n, digest in digests.items()}, "seed": seed, "answers": answers}


def probed(terms, devices, exchanges):
    """A turn with probes: what `turn` says of it, if the answers of all who are included belong to its sum."""
    asked = [row for exchange in exchanges for row in exchange if probing(row)]
    plain = [exchange for exchange in exchanges if not any(map(probing, exchange))]
    summed, size, ids = turn(terms, devices, plain), terms["parameters"], [device["id"] for device in devices]
    sent = {n: frame(reply, 4 * (size + 2), 9999) for exchange in plain for n, _, reply in exchange if upload(reply)}
    (_, first, _), *_ = asked
    (_, _, listed), watched = frame(first, 4 * size, 9999).values()
    rows = list(struct.iter_unpack(f"{size}b", unhex(watched)))
    uploads = [(n, ids[n], sent[n]["vector"]) for n in records(listed, 32)]
    reported = probe(sent[uploads[0][0]]["header"][3], uploads, rows, terms["probes"], summed["integers"])
    assert reported["digests"] == {str(n): digest for n, digest in records(listed, 32).items()}, "CH605"
    said = {n: struct.unpack(f"<{terms['probes'] + len(rows)}q", numbers(reply)) for n, _, reply in asked if reply}
    given = [said[ids.index(id)] for id in summed["included"]]
    assert [sum(column) for column in zip(*given, strict=True)] == reported["answers"], "CH505"
    return summed | {"seed": reported["seed"]}


def probing(row):
    return little(unhex(row[1])[4:6]) == 5


def upload(reply):
    return reply and unhex(reply)[11] == 4


def numbers(reply):
    return unhex(frame(reply, 0, 9999)["header"][3])
