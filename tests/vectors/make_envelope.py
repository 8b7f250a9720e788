"""Writes envelope.json anew: `python -m tests.vectors.make_envelope`. Nothing in it is random."""

import json
from pathlib import Path

from tests.vectors import first_envelope

ORIGIN = "made by tests/vectors/make_envelope.py with choral; answered again by tests/vectors/second_envelope.py"
SECRET, CARD, FRAME, ANSWER = "11" * 32, "22" * 64, b"a frame".hex(), b"an answer".hex()


def vectors():
    for name, counter, frame in (("a frame", 1, FRAME), ("no bytes", 2**63, ""), ("a long frame", 7, "5a" * 5000)):
        given = {"secret": SECRET, "study": "5d" * 32, "device": 300, "counter": counter, "frame": frame}
        yield {"kind": "request", "name": name, "given": given}
    request = first_envelope.request(secret=SECRET, study="5d" * 32, device=2, counter=9, frame=FRAME)["request"]
    given = {"key": first_envelope.public(SECRET), "study": "5d" * 32, "device": 2, "heard": 8, "request": request}
    head, bare = bytes.fromhex(request), {"request": FRAME}
    yield {"kind": "opened", "name": "the next frame", "given": given}
    for name, change in {
        "one that was heard": {"heard": 9},
        "one for another device": {"device": 3},
        "one of another study": {"study": "5e" * 32},
        "one of another server": {"key": first_envelope.public("12" * 32)},
        "a frame without a head": bare,
        "half a head": {"request": request[:100]},
        "another frame under the head": {"request": (head + b"!").hex()},
        "a head of another version": {"request": (head[:4] + b"\x02" + head[5:]).hex()},
    }.items():
        yield {"kind": "opened", "name": name, "given": given | change}
    yield {"kind": "answer", "name": "an answer", "given": {"secret": CARD, "request": request, "answer": ANSWER}}
    yield {"kind": "answer", "name": "to half a head", "given": {"secret": CARD, "request": FRAME, "answer": ANSWER}}


def write():
    found = []
    for vector in vectors():
        found.append({**vector, **first_envelope.outcome(vector), "origin": ORIGIN})
    Path(__file__).with_name("envelope.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
