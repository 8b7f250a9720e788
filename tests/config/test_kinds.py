"""What a setting's value may be: the values at each edge, and what people read of it."""

import math

import pytest

from choral.config.kinds import Bounds, ListOf, Number, Numbers, Tables, Text, Whole, YesNo
from choral.core.plan import MOST_WHOLE

POSITIVE, SHARE = Number(above=0), Number(above=0, or_equal=True, below=1)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (POSITIVE, [1e-300, 1, 1.7e308], [0, -1.0, math.nan, math.inf, 10**400, True, "1", None]),
        (SHARE, [0, 0.0, 0.999], [1, 1.0, -1e-9, math.nan, False]),
        (Whole(least=2, most=9), [2, 9], [1, 10, 2.0, True, "2", None]),
        (Whole(), [0, MOST_WHOLE], [-1, MOST_WHOLE + 1]),
        (YesNo(), [True, False], [0, 1, "true", None]),
        (Text(), ["a", " "], ["", 1, None, ["a"]]),
        (Text(choices=("mean", "adam")), ["mean", "adam"], ["Mean", "", "mean "]),
        (ListOf(item=Whole(least=1)), [[], [1, 2]], [[0], [1, "2"], (1, 2), 1, {}]),
        (Bounds(), [[0, 1], [-1.5, 2]], [[1, 0], [1, 1], [0], [0, 1, 2], [0, math.inf], [0, math.nan], [0, "1"], 1]),
        (Tables(), [{}, {"age": {}}], [{"age": 1}, [], None]),
        (Numbers(of=POSITIVE), [{}, {"a": 1.0}], [{"a": 0}, {"a": 1, "b": "2"}, [1.0]]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_kind_takes_its_values_up_to_the_edge_and_no_others(kind, good, bad):
    assert [value for value in good if not kind.fits(value)] == []
    assert [value for value in bad if kind.fits(value)] == []


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Number(), "a finite number"),
        (POSITIVE, "a finite number above 0"),
        (SHARE, "a finite number at least 0 and below 1"),
        (Number(below=3), "a finite number below 3"),
        (YesNo(), "true or false"),
        (Text(), "a text in quotes"),
        (Text(choices=("mean", "adam")), '"mean" or "adam"'),
        (ListOf(item=Text()), "a list, each item a text in quotes"),
        (Numbers(of=POSITIVE), "a table with a finite number above 0 for each name"),
    ],
)
def test_people_read_what_a_value_must_be(kind, words):
    assert str(kind) == words
