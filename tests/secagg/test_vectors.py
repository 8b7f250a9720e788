"""Every vector in tests/vectors, by choral and by the second implementation; the files say where each comes from."""

import json
import re
from pathlib import Path

import pytest

from tests.vectors import first, second
from tests.vectors.answers import expected, of_before, outcome

FOLDER = Path(__file__).parents[1] / "vectors"
VECTORS = [
    pytest.param(vector, id=f"{name}: {vector['kind']}, {vector['name']}")
    for name in ("keys", "masks", "shares", "codec")
    for vector in json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("vector", [one for one in VECTORS if not of_before(one.values[0])])
def test_choral_answers_as_the_vector_says(vector):
    assert outcome(first, vector) == expected(vector)


@pytest.mark.parametrize("vector", VECTORS)
def test_the_second_implementation_answers_as_the_vector_says(vector):
    assert outcome(second, vector) == expected(vector)


def test_there_are_fifty_vectors_good_and_bad_of_every_kind_each_with_an_origin():
    vectors = [param.values[0] for param in VECTORS]
    assert len(vectors) >= 50
    assert len({vector["kind"] for vector in vectors}) == 13
    assert sum("refused" in vector for vector in vectors) >= 20
    assert all(vector["origin"] for vector in vectors)


def test_the_second_implementation_is_short_and_knows_nothing_of_choral():
    text = (FOLDER / "second.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    assert "from choral" not in text
    assert "import choral" not in text


def test_every_code_that_the_second_implementation_knows_is_in_the_document():
    text, known = (
        (FOLDER.parents[1] / path).read_text("utf-8") for path in ("tests/vectors/second.py", "docs/secure-sum.md")
    )
    assert set(re.findall(r"CH\d{3}", text)) <= set(re.findall(r"CH\d{3}", known))
