"""Frames and whole turns, good and bad, by choral and by the second implementation."""

import json
from pathlib import Path

import pytest

from choral.errors import ChoralError
from tests.vectors import first_transcript, second

FOLDER = Path(__file__).parents[1] / "vectors"
VECTORS = [
    pytest.param(vector, id=f"{vector['kind']}, {vector['name']}")
    for vector in json.loads((FOLDER / "transcripts.json").read_text(encoding="utf-8"))
]


def outcome(kinds, vector):
    try:
        return {"gives": kinds[vector["kind"]](**vector["given"])}
    except second.Refused as refusal:
        return {"refused": str(refusal)}
    except ChoralError as error:
        return {"refused": error.code}


@pytest.mark.parametrize("implementation", [first_transcript, second], ids=["choral", "second"])
@pytest.mark.parametrize("vector", VECTORS)
def test_both_implementations_answer_as_the_vector_says(vector, implementation):
    expected = {key: vector[key] for key in ("gives", "refused") if key in vector}
    assert outcome(implementation.KINDS, vector) == expected


def test_there_are_good_and_bad_vectors_of_both_kinds():
    vectors = [param.values[0] for param in VECTORS]
    kinds = {(vector["kind"], "refused" in vector) for vector in vectors}
    assert len(vectors) >= 40 and len(kinds) == 4
