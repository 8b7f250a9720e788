"""Writes probes.json anew: `python -m tests.vectors.make_probes`. Keys and nonces of the turns are fresh each time."""

import json
from dataclasses import asdict
from pathlib import Path

import msgspec
import numpy as np

from choral.core.errors import SumError
from choral.core.messages import PROBING, VERSION, Call, Open, OpenedKeys, Probe, ProbeAnswer, decode, encode, pack
from choral.probes.round import ProbedRound, ProbeInquiry
from choral.server.round import Readiness
from tests.protocol.world import World
from tests.vectors import first_probes
from tests.vectors.make_transcripts import FIVE, TURN, VECTOR, headed, tag_of, vector

ORIGIN = {
    "origin": "made by tests/vectors/make_probes.py with choral; answered again by tests/vectors/second_probes.py"
}
GOOD = {
    "probe": encode(Probe(turn=TURN, digests=pack({1: b"d" * 32, 300: b"e" * 32})), VECTOR),
    "probe that watches nothing": encode(Probe(turn=TURN, digests=pack({1: b"d" * 32}))),
    "probe that watches less than a model": encode(Probe(turn=TURN, digests=b""), VECTOR[:3]),
    "answer": encode(ProbeAnswer(turn=TURN, device=5, numbers=bytes(range(16)))),
    "open": encode(Open(turn=TURN)),
    "opened": encode(OpenedKeys(turn=TURN, device=5, keys=pack({1: b"k" * 32}))),
}
BAD = {
    "a probe that watches more than a model": GOOD["probe"] + bytes(8),
    "an answer with a vector": GOOD["answer"] + VECTOR,
    "a probe in a frame of a round": headed(GOOD["open"][10:15], version=VERSION),
    "a call in a frame of probes": headed(encode(Call(turn=TURN))[10:15], version=PROBING),
    "an open with a field": headed(b"\x93\x0d\x92\x03\x01\x00", version=PROBING),
    "an answer without its numbers": headed(b"\x93\x0c\x92\x03\x01\x05", version=PROBING),
    "probes of a question": headed(b"\x92\x0d\x92\xce\x80\x00\x00\x00\x00", version=PROBING),
    "an unknown tag of probes": headed(b"\x92\x0f\x92\x03\x01", version=PROBING),
}


def frames():
    for name, data in (GOOD | BAD).items():
        given = {"frame": data.hex(), "vector_bytes": len(VECTOR), "records_bytes": 680}
        reported = {"gives": first_probes.frame(**given)} if name in GOOD else {"refused": "CH600"}
        yield vector("frame", name, given, reported) | ORIGIN


def probes():
    uploads = [[0, "a", b"first".hex()], [7, "Kraków", b"second".hex()]]
    for name, watched, integers in (
        ("nothing is watched", [], [3, -1, 4, 1, -5]),
        ("two vectors are watched", [[1, -128, 127], [0, 0, 5]], [2**23 - 1, -(2**23), 7]),
        ("one parameter", [], [9]),
    ):
        given = {"ctx": "5c" * 32, "uploads": uploads, "watched": watched, "probes": 8, "integers": integers}
        yield vector("probe", name, given, {"gives": first_probes.probe(**given)}) | ORIGIN


def turn(name, silent=(), watched=b"", spoil=None):
    """One turn; `silent` are who does not answer PROBE, `spoil` may change an answer."""
    world = World(FIVE, parameters=3, probes=8)
    half, exchanges, outcome = Readiness(world.terms, TURN, range(5)), [], None
    while outcome is None:
        exchange = []
        for number, data in half.outbox().items():
            reply = bytes(world.devices[number].answer(data))
            reply = spoil(number, reply) if spoil else reply
            missing = tag_of(data) == 11 and number in silent
            exchange.append((number, data.hex(), None if missing else reply.hex()))
            if not missing:
                half.receive(number, reply)
        exchanges.append(exchange)
        try:
            if isinstance(half, Readiness):
                half = ProbedRound(half, world.model.tobytes(), inquiry=ProbeInquiry(watched=watched))
                continue
            half.advance()
            if half.sum is not None:
                integers, ids = half.sum.integers.tolist(), list(half.sum.included)
                outcome = {"gives": {"integers": integers, "included": ids, "seed": half.asked.seed.hex()}}
        except SumError as error:
            outcome = {"refused": error.code}
    terms = {
        "codec": {name: value for name, value in asdict(world.terms.codec).items() if name != "law"},
        "opened_turns": 0,
        "parameters": 3,
        "plan": world.terms.plan,
        "probes": 8,
        "protocol": VERSION,
        "secure": asdict(FIVE),
    }
    devices = [{"id": identity.id, "secret": identity.to_bytes().hex()} for identity in world.identities]
    return vector("probed", name, {"terms": terms, "devices": devices, "exchanges": exchanges}, outcome) | ORIGIN


def false_answer(number, reply):
    if number != 1 or tag_of(reply) != 12:
        return reply
    message = decode(reply, vector_bytes=0, records_bytes=680)[0]
    numbers = np.frombuffer(message.numbers, "<i8") + np.eye(1, 8, dtype=np.int64)[0]
    return encode(msgspec.structs.replace(message, numbers=numbers.astype("<i8").tobytes()))


def turns():
    yield turn("everybody answers")
    yield turn("a vector is watched", watched=bytes([1, 255, 0]))
    yield turn("one does not answer", silent={3})
    yield turn("a false answer", spoil=false_answer)
    yield turn("too few answer", silent={0, 3})


if __name__ == "__main__":
    lines = [json.dumps(one) for one in (*frames(), *probes(), *turns())]
    path = Path(__file__).with_name("probes.json")
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    print(f"{len(lines)} vectors, {path.stat().st_size:,} bytes")
