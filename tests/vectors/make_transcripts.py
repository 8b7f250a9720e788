"""Writes transcripts.json anew: `python -m tests.vectors.make_transcripts`. Keys and nonces are fresh each time."""

import json
import struct
from dataclasses import asdict, replace
from pathlib import Path

import msgspec

from choral.core.errors import SumError
from choral.core.keys import KEY_SIZE
from choral.core.messages import (
    MAGIC,
    VERSION,
    Call,
    Drop,
    Edges,
    Final,
    Omega,
    Opening,
    Ready,
    Refusal,
    Turn,
    Upload,
    decode,
    encode,
    pack,
    pack_numbers,
    unpack,
)
from choral.core.plan import SecureSum
from choral.server.round import Readiness, Round
from tests.protocol.world import World
from tests.vectors import first_transcript

ORIGIN = "made by tests/vectors/make_transcripts.py with choral; answered again by tests/vectors/second.py"
TURN = Turn(3, 1)
VECTOR = bytes(range(12))
GOOD = {
    "call": encode(Call(turn=TURN)),
    "call of large numbers": encode(Call(turn=Turn(70_000, 300))),
    "ready": encode(Ready(turn=TURN, device=5, nonce=b"n" * 16, signature=b"s" * 64)),
    "omega": encode(Omega(turn=TURN, terms=b"t" * 32, cohort=pack({1: b"n" * 16, 300: b"m" * 16})), VECTOR),
    "upload": encode(
        Upload(
            turn=TURN, device=5, context=b"x" * 32, commitment=b"c" * 32, bonds=pack({1: b"b" * 116}), checks=b"k" * 8
        ),
        VECTOR,
    ),
    "drop": encode(Drop(turn=TURN, dropped=pack_numbers({2, 1}))),
    "edges": encode(Edges(turn=TURN, device=5, keys=pack({1: b"k" * 32}))),
    "edges of none": encode(Edges(turn=TURN, device=5, keys=b"")),
    "final": encode(Final(turn=TURN, following=None)),
    "final that calls": encode(Final(turn=TURN, following=Turn(4, 0))),
    "opening": encode(Opening(turn=TURN, device=5, keys=pack({1: b"k" * 32}), ready=None)),
    "opening that is ready": encode(Opening(turn=TURN, device=5, keys=b"", ready=b"n" * 80)),
    "refusal": encode(Refusal(turn=TURN, device=5, code="CH401", cause=5, signature=b"s" * 64)),
    "refusal because of the server": encode(
        Refusal(turn=TURN, device=5, code="CH605", cause=None, signature=b"s" * 64)
    ),
}


def headed(header: bytes, version: int = VERSION, magic: bytes = MAGIC) -> bytes:
    prefix = struct.pack("<4sHI", magic, version, len(header))
    return prefix + header + bytes(-(len(prefix) + len(header)) % 8)


call = GOOD["call"][10:15]
BAD = {
    "nothing": b"",
    "another magic": headed(call, magic=b"chrv"),
    "another version": headed(call, version=1),
    "version 2": headed(call, version=2),
    "cut": GOOD["ready"][:-1],
    "lengthened": GOOD["ready"] + bytes(8),
    "padding that is not zero": GOOD["call"][:-1] + b"\1",
    "no vector where one belongs": GOOD["upload"][: -len(VECTOR)],
    "a vector too long": GOOD["upload"] + b"\0\0\0\0",
    "a vector where none belongs": GOOD["call"] + VECTOR,
    "an unknown tag": headed(b"\x92\x0a\x92\x03\x01"),
    "a field too many": headed(b"\x93" + call[1:] + b"\x00"),
    "a field too few": headed(b"\x93\x02\x92\x03\x01\x05"),
    "a turn of three numbers": headed(b"\x92\x01\x93\x03\x01\x05"),
    "a final without nil": headed(b"\x92\x07\x92\x03\x01"),
    "a ready without a signature": headed(b"\x94\x02\x92\x03\x01\x05\xc4\x10" + bytes(16)),
    "a refusal without a cause": headed(b"\x95\x09\x92\x03\x01\x05\xa5CH401\xc4\x40" + bytes(64)),
    "an opening without nil": headed(b"\x94\x08\x92\x03\x01\x05\xc4\x00"),
    "nothing in the header": headed(b"\x90"),
    "no array in the header": headed(b"\x01"),
    "a code that is not UTF-8": headed(b"\x96\x09\x92\x03\x01\x05\xa5CH4\xff1\xc0\xc4\x40" + bytes(64)),
    "a negative number": headed(b"\x92\x01\x92\x03\xff"),
    "a number of five bytes": headed(b"\x92\x01\x92\x03\xcf\x00\x00\x00\x01\x00\x00\x00\x00"),
    "a short nonce": headed(b"\x95\x02\x92\x03\x01\x05\xc4\x0f" + bytes(15) + b"\xc4\x40" + bytes(64)),
    "text where bytes belong": headed(b"\x93\x05\x92\x03\x01\xa4abcd"),
    "a code that is none": headed(b"\x96\x09\x92\x03\x01\x05\xa5CH4x1\xc0\xc4\x40" + bytes(64)),
    "a header beyond its cap": headed(b"\x93\x05\x92\x03\x01\xc5\x03\xe8" + bytes(1000)),
}


def vector(kind, name, given, kinds):
    return {"kind": kind, "name": name, "origin": ORIGIN, "given": given} | kinds


def frame_vectors():
    for name, data in (GOOD | BAD).items():
        given = {"frame": data.hex(), "vector_bytes": len(VECTOR), "records_bytes": 680}
        if name in GOOD:
            yield vector("frame", name, given, {"gives": first_transcript.frame(**given)})
        else:
            yield vector("frame", name, given, {"refused": "CH602" if "version" in name else "CH600"})


def turn_vector(name, secure, parameters, silent=(), spoil=None, seed=0):
    """One turn; `silent` holds who is missing in each exchange from UPLOAD on, `spoil` may change a reply."""
    world = World(secure, parameters=parameters, seed=seed)
    readiness = Readiness(world.terms, TURN, range(secure.cohort))
    exchanges, missing = [], [set(), *silent]
    half, outcome = readiness, None
    while outcome is None:
        gone = missing.pop(0) if missing else set()
        exchange = []
        for number, data in half.outbox().items():
            reply = world.devices[number].answer(spoil(number, data) if spoil else data)
            reply = spoil(number, reply) if spoil else reply
            exchange.append((number, data.hex(), None if number in gone else reply.hex()))
            if number not in gone:
                half.receive(number, reply)
        exchanges.append(exchange)
        try:
            if half is readiness:
                half = Round(readiness, world.model.tobytes())
            else:
                half.advance()
                if half.sum is not None:
                    ids = list(half.sum.included)
                    assert world.agrees(half.sum)
                    outcome = {"gives": {"integers": half.sum.integers.tolist(), "included": ids}}
        except SumError as error:
            outcome = {"refused": error.code}
    terms = {
        "codec": {name: value for name, value in asdict(world.terms.codec).items() if name != "law"},  # Gaussian
        "parameters": parameters,
        "plan": world.terms.plan,
        "protocol": VERSION,
        "secure": secure.described,
    }
    devices = [{"id": identity.id, "secret": identity.to_bytes().hex()} for identity in world.identities]
    return vector("turn", name, {"terms": terms, "devices": devices, "exchanges": exchanges}, outcome)


def tag_of(data):
    return data[11]  # behind the prefix and the header's first byte


def wrong_key(number, data):
    if number != 1 or tag_of(data) != 8:
        return data
    message = decode(data, vector_bytes=0, records_bytes=680)[0]
    keys = unpack(message.keys, KEY_SIZE, most=10)
    return encode(Opening(turn=TURN, device=1, keys=pack(keys | {0: bytes(32)}), ready=None))


def wrong_commitment(number, data):
    if number != 1 or tag_of(data) != 4:
        return data
    message, vector = decode(data, vector_bytes=4 * 5, records_bytes=680)
    return encode(msgspec.structs.replace(message, commitment=bytes(32)), vector)


def wrong_count(number, data):  # its last two words are the count lane and the zero lane
    return data[:-8] + bytes([data[-8] ^ 1]) + data[-7:] if number == 1 and tag_of(data) == 4 else data


def wrong_edge(number, data):
    if number != 1 or tag_of(data) != 6:
        return data
    return encode(Edges(turn=TURN, device=1, keys=pack({4: bytes(32)})))


def other_model(number, data):
    return data[:-4] + b"\0\0\0\1" if number == 2 and tag_of(data) == 3 else data


FIVE = SecureSum(cohort=5, smallest_sum=4, threshold=3, colluders=1)


def turn_vectors():
    yield turn_vector("nobody missing", FIVE, 3)
    yield turn_vector("one missing", FIVE, 3, silent=[{4}])
    six = SecureSum(cohort=6, smallest_sum=4, threshold=3, colluders=0)
    gone = [{5}, {0}, set(), set()]
    yield turn_vector("one missing, another silent in EDGES", six, 2, silent=gone)
    yield turn_vector("one silent in FINAL", FIVE, 3, silent=[set(), {3}])
    yield turn_vector("words of 16 bits", replace(FIVE, modulus_bits=16), 4)
    yield turn_vector("no parameters at all", FIVE, 0)
    yield turn_vector("two devices", SecureSum(cohort=2, smallest_sum=2, threshold=1), 2)
    yield turn_vector("too few uploads", FIVE, 3, silent=[{0, 1}])
    yield turn_vector("a wrong envelope key", FIVE, 3, spoil=wrong_key)
    yield turn_vector("a wrong pair key, too few are left", FIVE, 3, silent=[{4}], spoil=wrong_edge)
    yield turn_vector("a wrong pair key", six, 3, silent=[{4}], spoil=wrong_edge)
    yield turn_vector("a wrong commitment", FIVE, 3, spoil=wrong_commitment)
    yield turn_vector("a wrong count lane", FIVE, 3, spoil=wrong_count)
    yield turn_vector("one device saw another model", FIVE, 3, spoil=other_model)


if __name__ == "__main__":
    lines = [json.dumps(one) for one in (*frame_vectors(), *turn_vectors())]
    path = Path(__file__).with_name("transcripts.json")
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    print(f"{len(lines)} vectors, {path.stat().st_size:,} bytes")
