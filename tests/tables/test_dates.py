"""Dates become numbers of days where they are declared so, each by itself, in an order that somebody has said."""

from datetime import date

import pytest

from choral.core.errors import TableError
from choral.tables.cells import Format, day_in, order_of
from choral.tables.columns import declare
from choral.tables.reading import Table, read_csv, with_guessed_dates

VISIT = declare("visit", {"dates": ["1970-01-01", "1970-03-02"]})  # 0 to 60 days, by hand: 31 + 28 + 1
DAY_FIRST, MONTH_FIRST = Format(dates="day first"), Format(dates="month first")


@pytest.mark.parametrize(
    ("cells", "written"),
    [(["1970-01-31", "1970-02-13"], Format()), (["31.01.1970", "13.02.1970"], DAY_FIRST),
     (["01/31/1970", "2/13/1970"], MONTH_FIRST), (["1970/1/31", "1970-02-13T08:30"], MONTH_FIRST),
     ([date(1970, 1, 31), date(1970, 2, 13)], Format())],
    ids=["iso", "day first", "month first", "with a time", "of a data frame"],
)  # fmt: skip
def test_a_declared_column_of_dates_is_a_number_of_days_within_its_bounds(cells, written):
    assert VISIT.encode(cells, source="t", written=written).ravel().tolist() == pytest.approx([0.0, 2 * 43 / 60 - 1])


@pytest.mark.parametrize("cells", [["03/04/2024"], ["31.01.2024", "05.06.2024"], ["31/01/2024", "01/31/2024"]])
def test_without_a_word_about_their_order_only_dates_that_begin_with_the_year_are_read(cells):
    with pytest.raises(TableError, match=r"CH316.*--dates") as caught:
        VISIT.encode(cells, source="site.csv")
    assert cells[0] not in str(caught.value)


@pytest.mark.parametrize("cells", [["03/04/2024"], ["03.04.2024", "05.06.2024"], ["31/01/2024", "01/31/2024"]])
def test_a_simulation_does_not_guess_an_order_that_is_not_certain(cells):
    assert order_of(cells) is None
    with pytest.raises(TableError, match=r"CH316.*day or the month comes first") as caught:
        with_guessed_dates(Table(source="site.csv", columns={"visit": cells}), Format(), ["visit"])
    assert cells[0] not in str(caught.value)


def test_a_simulation_says_which_order_it_guessed_and_never_guesses_against_what_is_said():
    table = Table(source="site.csv", columns={"visit": ["03/02/1970", "31/01/1970"]})
    found = with_guessed_dates(table, Format(), ["visit"])
    assert (found.written.dates, found.guessed) == ("day first", ("dates day first",))
    assert with_guessed_dates(table, MONTH_FIRST, ["visit"]) is table


def test_what_is_said_of_a_file_decides_the_order(tmp_path):
    path = tmp_path / "site.csv"
    path.write_text("visit,n\n03/02/1970,1\n")
    days = {}
    for order in ("day first", "month first"):
        table = read_csv(path, Format(dates=order))
        days[order] = VISIT.encode(table.cells("visit"), source="t", written=table.written).item()
    assert days == pytest.approx({"day first": 2 * 33 / 60 - 1, "month first": 1.0})  # 3 February, 2 March


@pytest.mark.parametrize("cell", ["soon", "2023-02-29", "31.04.2023", "1.2.23", "Zaphod"])
def test_what_is_no_date_is_refused_with_its_row_and_without_its_value(cell):
    with pytest.raises(TableError, match=r"CH316 .*row 2 is not a date") as caught:
        VISIT.encode(["31.01.2023", cell], source="site.csv", written=DAY_FIRST)
    assert cell not in str(caught.value)


def test_empty_cells_are_the_declared_day_or_refused():
    column = declare("visit", {"dates": ["1970-01-01", "1970-03-02"], "missing": "1970-01-31"})
    assert column.encode(["", None, "NA", "1970-03-02"], source="t").ravel().tolist() == [0.0, 0.0, 0.0, 1.0]
    with pytest.raises(TableError, match="CH301"):
        VISIT.encode([""], source="t")


def test_bounds_that_are_no_two_dates_are_refused():
    for dates in (["1970-01-01"], ["1970-01-01", "soon"], "1970-01-01", ["2024-01-01", "2023-01-01"]):
        with pytest.raises(TableError, match="CH304"):
            declare("visit", {"dates": dates})


def test_days_before_1970_are_negative():
    assert day_in("1969-12-31", "iso") == -1.0
