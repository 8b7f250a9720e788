"""A question has one form of bytes, whatever is in it is refused or readable, and its words are printable."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choral.asking.question import MOST_BYTES, Question
from choral.core.errors import ChoralError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e15, 1e15) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=12,
)


@given(parameters=st.dictionaries(st.text(max_size=9), JSON, max_size=4))
def test_a_question_is_read_back_from_its_one_form_of_bytes(parameters):
    try:
        data = Question(name="table", parameters=parameters).canonical()
    except ChoralError:  # more than 4 KiB, or a lone surrogate
        return
    read = Question.read(data)
    assert read.canonical() == data
    words = read.words()
    assert words.isprintable() and words.endswith("?")


@given(data=st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_strange_bytes_are_refused_with_a_code_and_nothing_else(data):
    with pytest.raises(ChoralError, match="CH102"):
        Question.read(data)


@pytest.mark.parametrize(
    "data",
    [
        b'{"parameters":{},"name":"count"}',  # keys that are not sorted
        b'{"name": "count","parameters":{}}',  # a space
        b'{"name":"count","parameters":{"a":1.0}}',  # a whole number with a point
        b'{"name":"count","parameters":{"a":1,"a":2}}',  # a key twice
        b'{"name":"count","parameters":{"a":NaN}}',
        b'{"name":"count","parameters":{"a":1e999}}',
        b'{"name":"count","parameters":{},"code":"print()"}',
        b'{"name":"Count","parameters":{}}',
        b'{"name":"count","parameters":[]}',
        b'{"name":"count","parameters":{"a":' + b"[" * 2000 + b"]" * 2000 + b"}}",
        b'{"name":"count","parameters":{"a":"' + b"x" * MOST_BYTES + b'"}}',
    ],
)
def test_bytes_that_another_reader_could_take_otherwise_are_refused(data):
    with pytest.raises(ChoralError, match="CH102"):
        Question.read(data)


@pytest.mark.parametrize("value", [math.nan, math.inf, 2**60, {1: 2}, {1, 2}, b"x", object(), "\ud800"])
def test_values_that_json_cannot_say_are_refused(value):
    with pytest.raises(ChoralError, match="CH102"):
        Question(name="count", parameters={"a": value}).canonical()


def test_one_number_has_one_form():
    forms = {Question(name="km", parameters={"until": until}).canonical() for until in (60, 60.0)}
    assert len(forms) == 1


def test_words_show_no_control_characters():
    asked = Question(name="mean", parameters={"column": "a\x1b[2J"})
    assert asked.words() == 'What are the mean and the variance of "a\\x1b[2J"?'
