"""Dates become numbers of days where they are declared so, and an order of day and month is never guessed."""

from datetime import date

import numpy as np
import pytest

from choral.errors import TableError
from choral.learning.columns import declare
from choral.learning.dates import days_of, order_of
from choral.learning.reading import Format, read_csv

VISIT = declare("visit", {"dates": ["1970-01-01", "1970-03-02"]})  # 0 to 60 days, by hand: 31 + 28 + 1


@pytest.mark.parametrize(
    "cells",
    [["1970-01-31", "1970-02-13"], ["31.01.1970", "13.02.1970"], ["01/31/1970", "2/13/1970"],
     ["1970/1/31", "1970-02-13T08:30"], [date(1970, 1, 31), date(1970, 2, 13)]],
    ids=["iso", "day first", "month first", "with a time", "of a data frame"],
)  # fmt: skip
def test_a_declared_column_of_dates_is_a_number_of_days_within_its_bounds(cells):
    assert VISIT.encode(cells, source="t").ravel().tolist() == pytest.approx([0.0, 2 * 43 / 60 - 1])


@pytest.mark.parametrize("cells", [["03/04/2024"], ["03.04.2024", "05.06.2024"], ["31/01/2024", "01/31/2024"]])
def test_an_order_that_is_not_certain_is_refused_and_never_guessed(cells):
    assert order_of(cells) is None
    with pytest.raises(TableError, match=r"CH316.*day or the month comes first") as caught:
        days_of(cells, None, source="site.csv", name="visit")
    assert cells[0] not in str(caught.value)


def test_what_is_said_of_a_file_decides_the_order(tmp_path):
    path = tmp_path / "site.csv"
    path.write_text("visit,n\n03/02/1970,1\n")
    days = {order: VISIT.encode(read_csv(path, Format(dates=order)).cells("visit"), source="t").item()
            for order in ("day first", "month first")}  # fmt: skip
    assert days == pytest.approx({"day first": 2 * 33 / 60 - 1, "month first": 1.0})  # 3 February, 2 March


@pytest.mark.parametrize("cell", ["soon", "2023-02-29", "31.04.2023", "1.2.23", "Zaphod"])
def test_what_is_no_date_is_refused_with_its_row_and_without_its_value(cell):
    with pytest.raises(TableError, match=r"CH316 .*row 2 is not a date") as caught:
        days_of(["31.01.2023", cell], "day first", source="site.csv", name="visit")
    assert cell not in str(caught.value)


def test_empty_cells_are_the_declared_day_or_refused():
    column = declare("visit", {"dates": ["1970-01-01", "1970-03-02"], "missing": "1970-01-31"})
    assert column.encode(["", None, "1970-03-02"], source="t").ravel().tolist() == [0.0, 0.0, 1.0]
    with pytest.raises(TableError, match="CH316"):
        VISIT.encode([""], source="t")


def test_bounds_that_are_no_two_dates_are_refused():
    for dates in (["1970-01-01"], ["1970-01-01", "soon"], "1970-01-01", ["2024-01-01", "2023-01-01"]):
        with pytest.raises(TableError, match="CH304"):
            declare("visit", {"dates": dates})


def test_days_before_1970_are_negative():
    assert np.array_equal(days_of(["1969-12-31"], None, source="t", name="x"), [-1.0])
