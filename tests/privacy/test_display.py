"""How a privacy loss is written: never as less than it is, and no further above than its last figure."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choral.core.display import figures_up


@given(value=st.floats(min_value=1e-300, max_value=1e300), figures=st.integers(1, 6))
def test_what_is_printed_is_never_smaller_and_at_most_one_last_figure_larger(value, figures):
    printed = float(figures_up(value, figures))
    assert printed >= value
    assert printed <= value * (1 + 10.0 ** (1 - figures)) * (1 + 1e-12)


@given(whole=st.integers(1, 999), power=st.integers(-20, 20))
def test_a_number_that_has_no_more_figures_is_printed_as_it_is(whole, power):
    value = float(f"{whole}e{power}")
    assert float(figures_up(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [(39.82, "39.9"), (0.9999, "1"), (999.5, "1e+03"), (1.0004e-7, "1.01e-07"), (0.0, "0"), (math.inf, "inf")],
)
def test_figures_by_hand(value, text):
    assert figures_up(value) == text
