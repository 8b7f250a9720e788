"""Cells become numbers between −1 and 1 by what was declared; a refusal names rows and columns, never a value."""

import math

import numpy as np
import pytest

from choral.core.errors import TableError
from choral.tables.cells import OPEN, level_of
from choral.tables.columns import Categorical, Numeric, declare, infer, parse_numbers

AGE = Numeric(name="age", low=0, high=100)


def test_a_number_is_scaled_around_the_middle_of_its_bounds_and_moved_to_the_nearer_one_outside_them():
    assert AGE.encode(["0", "25", 50, "100", "-7", 1e9], source="t").ravel().tolist() == [-1, -0.5, 0, 1, -1, 1]


def test_a_logarithmic_scale_goes_by_log1p_from_the_lower_bound():
    column = Numeric(name="pay", low=0, high=math.e**2 - 1, scale="log")
    # ln(1 + x)/2 is 0, ½ and 1 at 0, e − 1 and e² − 1.
    assert column.encode([0, math.e - 1, math.e**2 - 1], source="t").ravel() == pytest.approx([-1, 0, 1], abs=1e-6)


def test_what_was_scaled_comes_back_in_its_own_unit():
    cells = np.array([3.0, 47.5, 99.0])
    assert AGE.decode(AGE.encode(cells, source="t").ravel()) == pytest.approx(cells, abs=1e-5) and AGE.unit == 50.0


@pytest.mark.parametrize("cell", ["secret", "", None, "nan", "inf", float("nan"), "1,5", [1]])
def test_a_cell_that_is_no_finite_number_is_refused_by_its_row_and_never_by_its_value(cell):
    with pytest.raises(TableError, match=r'CH30[13] a\.csv column "age": .*row 2') as raised:
        AGE.encode(["1", cell], source="a.csv")
    assert "secret" not in str(raised.value)


def test_a_level_is_one_of_the_list_or_what_stands_for_the_rest():
    plain = Categorical(name="sex", levels=("F", "M"))
    assert plain.codes([" M ", "F"], source="t").tolist() == [1, 0] and plain.features == ("sex=F", "sex=M")
    with pytest.raises(TableError, match=r'CH311 t column "sex": 2 cells .*first at row 2; 2 levels') as raised:
        plain.codes(["M", "secret", "x"], source="t")
    assert "secret" not in str(raised.value)
    open_ended = Categorical(name="sex", levels=("F", "M", "?"), other="?", missing="F")
    assert open_ended.codes(["x", "", "M"], source="t").tolist() == [2, 0, 1]


def test_whole_floats_of_a_data_frame_name_the_same_level_as_integers():
    assert [level_of(cell) for cell in (1, 1.0, "1", 1.5, True)] == ["1", "1", "1", "1.5", "True"]


@pytest.mark.parametrize(
    "settings",
    [{}, {"bounds": [0]}, {"bounds": [1, 0]}, {"bounds": [0, math.inf]}, {"bounds": [0, 1], "levels": ["a"]},
     {"bounds": [0, 1], "missing": 7}, {"bounds": [0, 1], "scale": "cubic"}, {"levels": []}, {"levels": ["a", "a"]},
     {"levels": "ab"}, {"levels": ["a"], "other": "b"}],
)  # fmt: skip
def test_a_declaration_that_says_too_little_or_contradicts_itself_is_refused(settings):
    with pytest.raises(TableError, match=r'CH304 .*column "x"'):
        declare("x", settings)


def test_what_the_data_suggest_is_a_range_or_a_sorted_list_of_levels():
    assert infer("x", [(["1", "", "3"], OPEN)], source="t")[0] == Numeric(name="x", low=1.0, high=3.0)
    assert infer("x", [(["5", "5"], OPEN)], source="t")[0] == Numeric(
        name="x", low=5.0, high=6.0
    )  # a range needs a width
    assert infer("x", [(["no", "yes", "no"], OPEN)], source="t")[0].levels == ("no", "yes")


def test_a_whole_number_of_hundreds_of_digits_is_no_finite_number():
    with pytest.raises(TableError, match="CH303"):
        parse_numbers([10**400], source="t", name="x")
