"""Questions of choral 0.2.0: their answers are read and computed again as they were, and nobody answers them now."""

import json
from pathlib import Path

import numpy as np
import pytest

from choral.asking.catalogue import MODELS, NAMES, estimate, read_model, summand
from choral.asking.fitting import OpenedSum, driven
from choral.asking.question import FIRST, VERSION, Question
from choral.core.errors import ChoralError
from tests.asking.people import COLUMNS

# Written by choral 0.2.0 itself, over 2,000 rows of tests/asking/people.py.
WRITTEN = json.loads((Path(__file__).parents[1] / "vectors" / "questions.json").read_text())


def by_question(lines):
    return pytest.mark.parametrize("line", lines, ids=lambda line: line["question"][:60])


def test_every_kind_and_every_model_is_tried_here():
    assert {Question.read(line["question"].encode()).name for line in WRITTEN["questions"]} == set(NAMES)
    assert {Question.read(line["question"].encode()).name for line in WRITTEN["models"]} == set(MODELS)


@by_question(WRITTEN["questions"])
def test_an_answer_of_the_first_version_is_verified_and_read_as_it_was(line):
    question = Question.read(line["question"].encode())
    assert question.version == FIRST and question.canonical().decode() == line["question"]
    assert question.words() == line["words"]
    found = summand(question, COLUMNS)
    assert (found.length, found.l2, found.largest) == (line["length"], line["l2"], line["largest"])
    answer = estimate(question, COLUMNS, np.array(line["total"]), rows=2000, deviation=line["deviation"])
    assert len(answer.rows) == len(line["rows"])
    assert question.name == "bounds" or not answer.about
    for row, written in zip(answer.rows, line["rows"], strict=True):
        if row.get("quantity") == "share within":  # it was a share of all rows, and is one of those with a number
            continue
        assert row.keys() == written.keys()
        for key, value in written.items():
            assert row[key] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value)


@by_question(WRITTEN["models"])
def test_a_model_of_the_first_version_follows_from_its_sums_to_the_last_bit(line):
    sums = iter(line["sums"])

    def opened(step):
        one = next(sums)
        assert step.question.canonical().decode() == one["question"]
        assert ([] if step.state is None else step.state.tolist()) == one["state"]
        return OpenedSum(total=np.array(one["total"], dtype=float), rows=2000, deviation=one["deviation"])

    model = driven(read_model(Question.read(line["question"].encode()), COLUMNS).fit(), opened)
    assert model.state.tolist() == line["state"]
    assert [row["estimate"] for row in model.effects.rows] == pytest.approx([row["estimate"] for row in line["rows"]])


def test_the_version_is_in_the_bytes_that_are_hashed_sent_and_compared():
    asked = Question(name="mean", parameters={"column": "age"})
    assert asked.canonical() == b'{"name":"mean","parameters":{"column":"age"},"version":2}'
    assert Question.read(asked.canonical()) == asked
    asked.require_current()


@pytest.mark.parametrize("version", [b"3", b"0", b"true", b"2.0", b'"2"', b"1"])
def test_a_version_that_is_not_known_or_not_written_in_the_one_way_is_refused(version):
    with pytest.raises(ChoralError, match=r"CH333|CH102"):
        Question.read(b'{"name":"mean","parameters":{"column":"age"},"version":' + version + b"}")


def test_a_question_of_the_first_version_is_refused_in_words_where_it_is_asked():
    with pytest.raises(ChoralError, match=rf"CH333 the question is of version 1, .* of version {VERSION}"):
        Question(name="mean", parameters={"column": "age"}, version=FIRST).require_current()
