"""The tables of docs/secure-sum.md say what the code does."""

import re
from pathlib import Path
from typing import get_args

import pytest

from choral.core import messages
from choral.core.masks import failure_bits
from choral.core.plan import SecureSum
from choral.run.planning import sparse

TEXT = (Path(__file__).parents[2] / "docs" / "secure-sum.md").read_text(encoding="utf-8")


def rows(head: str) -> list[list[str]]:
    """The cells of the table under this head."""
    lines = TEXT[TEXT.index(head) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


SPOKEN = {
    "ProbeAnswer": "ANSWER",
    "OpenedKeys": "OPENED",
    "CloseEarly": "CLOSE EARLY",
}  # classes whose plain names belong to others


def test_the_messages_have_the_tags_and_as_many_fields_as_the_document_says():
    known = {kind.__struct_config__.tag: kind for kind in get_args(messages.Message)}
    table = rows("| tag | message |")
    assert [int(row[0]) for row in table] == sorted(known)
    for tag, name, _, header, _ in table:
        assert SPOKEN.get(known[int(tag)].__name__, known[int(tag)].__name__.upper()) == name
        assert len(known[int(tag)].__struct_fields__) == len(re.sub(r"\(.*?\)|:.*", "", header).split(","))
    assert f"Version is {messages.VERSION} " in TEXT


@pytest.mark.parametrize("row", rows("| n | k | s |"), ids=lambda row: row[0])
def test_the_sparse_graphs_have_the_degrees_and_bits_of_the_document(row):
    n, k, s = (int(cell.replace(",", "")) for cell in row[:3])
    secure = sparse(n)
    assert (secure.neighbours, secure.threshold) == (k, s)
    privacy, liveness = failure_bits(n, k, s, secure.colluders, n - secure.smallest_sum)
    least, _ = failure_bits(secure.smallest_sum, k, s, secure.colluders, 0)
    reported = [float(cell.split()[0].replace("∞", "inf")) for cell in row[3:]]
    assert reported == [round(privacy, 1), round(least, 1), round(liveness, 1)]


@pytest.mark.parametrize("row", rows("| words | bytes per parameter |"), ids=lambda row: row[0])
def test_words_have_the_bits_for_a_value_that_the_document_says(row):
    bits = int(row[0].split()[0])
    assert float(row[1]) == bits / 8
    found = [SecureSum.for_cohort(r, modulus_bits=bits).value_bits for r in (10, 100)]
    assert [int(cell) for cell in row[2:]] == found
