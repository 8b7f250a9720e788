"""Frames and whole turns, good and bad, by choral and by the second implementation."""

import json
import random
from pathlib import Path

import pytest

from tests.protocol.test_messages import mutated
from tests.vectors import first_transcript, second
from tests.vectors.answers import expected, of_before, outcome

FOLDER = Path(__file__).parents[1] / "vectors"
VECTORS = [
    pytest.param(vector, id=f"{vector['kind']}, {vector['name']}")
    for vector in json.loads((FOLDER / "transcripts.json").read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("implementation", [first_transcript, second], ids=["choral", "second"])
@pytest.mark.parametrize("vector", VECTORS)
def test_both_implementations_answer_as_the_vector_says(vector, implementation):
    refused = implementation is first_transcript and of_before(vector)
    assert outcome(implementation, vector) == ({"refused": "CH204"} if refused else expected(vector))


def test_three_vectors_are_of_forms_that_choral_does_not_run_any_more():
    assert sum(of_before(param.values[0]) for param in VECTORS) == 3


def test_there_are_good_and_bad_vectors_of_both_kinds():
    vectors = [param.values[0] for param in VECTORS]
    kinds = {(vector["kind"], "refused" in vector) for vector in vectors}
    assert len(vectors) >= 40 and len(kinds) == 4


def test_both_implementations_read_mutated_frames_alike():
    dice = random.Random(3)
    good = [param.values[0] for param in VECTORS if param.values[0]["kind"] == "frame" and "gives" in param.values[0]]
    read = 0
    for _ in range(5_000):
        vector = dice.choice(good)
        frame = mutated(dice, bytes.fromhex(vector["given"]["frame"])).hex()
        vector = vector | {"given": vector["given"] | {"frame": frame}}
        answer = outcome(second, vector)
        assert outcome(first_transcript, vector) == answer, frame
        read += "gives" in answer
    assert read > 250  # so many stay well-formed that fields are compared, and not only refusals
