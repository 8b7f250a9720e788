"""Numbers and names are refused with their name, their value and the range that they must be in."""

import json
import math
from typing import TypedDict

import numpy as np
import pytest

from choral import account
from choral.core.errors import PlanError
from choral.core.plan import Plan, SecureSum
from choral.core.plan.checks import (
    MOST_WHOLE,
    require_keywords,
    require_number,
    require_one_of,
    require_whole,
    whole_within,
)


@pytest.mark.parametrize("value", [0, -1, 2.0, "3", True, None, MOST_WHOLE + 1])
def test_what_is_no_whole_number_from_1_on_is_refused(value):
    with pytest.raises(PlanError, match=r"CH200 rounds = .*Must be a whole number, at least 1 and below 2\^63"):
        require_whole("rounds", value)


def test_both_ends_of_a_range_of_whole_numbers_are_in_it():
    assert [require_whole("batch", value, least=2, most=9) for value in (2, 9)] == [2, 9]
    for value in (1, 10):
        with pytest.raises(PlanError, match="at least 2 and at most 9"):
            require_whole("batch", value, least=2, most=9)
    assert whole_within(2, 9_000) == "a whole number, at least 2 and at most 9,000"


def test_a_whole_number_of_thousands_of_digits_is_shown_by_its_size():
    # Python refuses to write more than 4,300 digits: the complaint must not.
    with pytest.raises(PlanError, match=r"CH200 rounds = 10\^5000 or more"):
        require_whole("rounds", 10**5000)
    with pytest.raises(PlanError, match=r"CH200 rounds = -10\^5000 or more"):
        require_whole("rounds", -(10**5000))


@pytest.mark.parametrize("value", [0.0, -1e-9, 1.0, math.nan, math.inf, "0.5", True, None, 10**400])
def test_what_is_no_number_strictly_between_the_bounds_is_refused(value):
    with pytest.raises(PlanError, match=r"CH200 delta = .*Must be a finite number above 0 and below 1"):
        require_number("delta", value, below=1.0)


def test_a_closed_range_has_its_lower_end_and_whole_numbers_become_floats():
    assert require_number("noise", 0, closed=True) == 0.0
    assert type(require_number("noise", 3)) is float


def test_a_choice_lists_what_there_is():
    with pytest.raises(PlanError, match=r'CH200 law = .laplace.\. Must be "gaussian" or "skellam"'):
        require_one_of("law", "laplace", ("gaussian", "skellam"))


class Asked(TypedDict):
    rounds: int


def test_keywords_are_refused_as_python_refuses_them():
    require_keywords({"rounds": 1}, Asked)
    with pytest.raises(TypeError, match="missing keyword argument: 'rounds'"):
        require_keywords({}, Asked)
    with pytest.raises(TypeError, match="unexpected keyword argument: 'round'"):
        require_keywords({"rounds": 1, "round": 2}, Asked)


def test_a_plan_has_the_same_digest_with_numbers_of_numpy():
    given = {"devices": 8, "cohort": 4, "rounds": 3, "rows": 100, "batch": 10, "local_steps": 2}
    real = {"step_size": 0.5, "clip": 1.0, "noise": 0.25}
    plan = Plan(**given, **real)
    other = Plan(**{name: np.int64(one) for name, one in given.items()}, **{n: np.float32(x) for n, x in real.items()})
    assert other == plan and other.digest == plan.digest and type(other.rounds) is int and type(other.noise) is float
    assert SecureSum.for_cohort(np.int64(8)) == SecureSum.for_cohort(8)
    exposed = {**given, **real, "delta": 1e-5}
    assert account(**{**exposed, "rounds": np.int64(3)}) == account(**exposed)
    json.dumps(account(**exposed).to_dict())
