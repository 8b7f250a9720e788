"""The one root finder: it keeps its bracket, also where functions are steep, flat or not smooth."""

import math

import pytest

from choral.core.zcdp import root


@pytest.mark.parametrize(
    ("function", "low", "high", "exact"),
    [
        (lambda x: x * x - 2, 1, 2, math.sqrt(2)),
        (lambda x: 2 - x * x, 1, 2, math.sqrt(2)),  # falling
        (lambda x: math.exp(x) - 1e6, 0, 50, math.log(1e6)),  # far from linear
        (lambda x: math.atan(1e6 * (x - 0.3)), 0, 1, 0.3),  # a step
        (lambda x: (x - 0.7) ** 3, 0, 1, 0.7),  # flat at its root
        (lambda x: math.log(x / 1e-8), 1e-12, 1, 1e-8),
    ],
)
def test_a_known_root_is_found(function, low, high, exact):
    assert root(function, low, high) == pytest.approx(exact, rel=1e-5 if exact == 0.7 else 1e-12)


@pytest.mark.parametrize(("low", "high"), [(2.0, 5.0), (-1.0, 2.0)])
def test_an_end_that_is_the_root_is_the_answer(low, high):
    assert root(lambda x: x - 2.0, low, high) == 2.0


def test_without_a_change_of_sign_there_is_no_answer():
    with pytest.raises(ValueError, match="no change of sign"):
        root(lambda x: x * x + 1, -1, 1)


def test_it_asks_within_the_bracket_only_and_not_often():
    asked = []

    def counted(x):
        asked.append(x)
        return math.expm1(x) - 1e-3

    root(counted, 0.0, 3.0)
    assert min(asked) >= 0.0 and max(asked) <= 3.0 and len(asked) < 40
