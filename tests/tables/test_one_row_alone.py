"""A row is read by itself: where one row of a table is replaced, all others keep every bit, or the table is refused.

Every rule of docs/accounting.md assumes it. The cells that replace others are those that could lead a reader astray:
another order of dates, other bytes, marks, decimal commas, words for no value, other types, other lengths.
"""

import csv
import gzip
import io
import itertools
import math
import zlib
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pandas
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from choral.asking import cells as asked
from choral.core.errors import ConfigError, TableError
from choral.tables.cells import Format, check_encoding
from choral.tables.columns import Categorical, Numeric, declare, encode
from choral.tables.reading import from_frame
from choral.tables.records import names_in
from choral.tables.sources import Reading, encode_labels, load, read_one

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

DECLARED = {
    "age": {"bounds": [0, 100], "missing": 50},
    "bmi": {"bounds": [10, 60], "scale": "log"},
    "visit": {"dates": ["2010-01-01", "2030-12-31"], "missing": "2020-01-01"},
    "sex": {"levels": ["F", "M", "x"], "other": "x"},
    "city": {"levels": ["Köln", "None", "nan", "NA", "?", "True", "rest"], "missing": "?", "other": "rest"},
    "code": {"levels": ["1", "2", "3"], "missing": "3"},
    "smoker": {"levels": ["False", "True"]},
}
COLUMNS = [declare(name, said) for name, said in DECLARED.items()]
LABELS = [Categorical(name="ill", levels=("0", "1")), Numeric(name="ill", low=0, high=1)]
NAMES = [*DECLARED, "ill", "person"]
PLAIN = [
    ["25", "27.5", "2020-03-04", "F", "Köln", "1", "True", "0", "p1"],
    ["", "31", "2021-05-06", "M", "NA", "2", "False", "1", "p2"],
    ["7", "22.25", "2019-12-11", "d", "None", "NA", "True", "1", "12"],
    ["61", "40", "", "F", "?", "3", "False", "0", "p1"],
    ["1e1", "18.5", "2024-02-29", "M", "nan", "1", "False", "1", "7"],
]
SLASHES = ["03/04/2020", "05/06/2021", "11/12/2019", "", "02.03.2024"]
ASTRAY = [
    "25/06/2020", "06/25/2020", "31.12.2019", "2020-06-25", "2020-06-25T10:00", "27,5", "27.5", "1.234,5", "1,5", "NA",
    "nan", "NaN", "", " ", "?", ".", "n/a", "NULL", "None", "True", "TRUE", "false", "0", "1", "1.0", "01", "-1", "-9",
    "1e400", "9" * 400, "0." + "1" * 300, "9007199254740993", "1_000", "inf", "0x10", "Köln", "Kôln", "東京", "M",
    '"', '""', '5" pipe', '7",', "a,b", "a;b", "a|b", "a\tb", "x\ny", "\x1f", "\0", "\u2028", "\ufeff", "p1", "soon",
]  # fmt: skip
QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def found_in(table, target=LABELS[0]):
    """What the engine makes of each row, as bytes: features, label, person, and what questions read."""
    parts = [encode(table, COLUMNS), encode_labels(table, target)[:, None]]
    for column in COLUMNS:
        read = asked.levels if isinstance(column, Categorical) else asked.bounded
        parts.append(read(table, column)[:, None])
    whose = [str(name).encode() for name in names_in("person", [table])]
    return [b"|".join([*(part[row].tobytes() for part in parts), whose[row]]) for row in range(table.rows)]


def check_others(first, replaced, place, target=LABELS[0]):
    """Whether a table with one other row is read, and then all other rows keep their bits; or it is refused."""
    try:
        second = found_in(replaced(), target)
    except (TableError, ConfigError):
        return False
    assert len(first) == len(second), "a row has swallowed others"
    assert [row for row in range(len(first)) if first[row] != second[row]] in ([], [place])
    return True


def lines_of(rows, delimiter, quoted=csv.QUOTE_MINIMAL):
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, quoting=quoted, lineterminator="\n").writerows([NAMES, *rows])
    return text.getvalue()


@pytest.mark.parametrize(
    ("written", "delimiter", "encoding"),
    [(Format(), ",", "utf-8"), (Format(), ";", "utf-8"), (Format(dates="day first"), "\t", "utf-8"),
     (Format(encoding="cp1252", dates="month first"), ";", "cp1252"), (Format(), ",", "utf-16"),
     (Format(decimal=",", empty=("-9", "NA")), "|", "utf-8")],
    ids=["commas", "semicolons", "day first, packed", "Windows, month first", "UTF-16", "decimal commas"],
)  # fmt: skip
def test_a_replaced_cell_of_a_csv_file_changes_no_other_row(tmp_path, written, delimiter, encoding):
    target = LABELS[delimiter == ";"]
    path = tmp_path / ("site.csv.gz" if delimiter == "\t" else "site.csv")
    rows = [list(one) for one in PLAIN]
    if written.dates:
        rows = [[*one[:2], day, *one[3:]] for one, day in zip(rows, SLASHES, strict=True)]
    if written.decimal == ",":
        rows = [[one[0], one[1].replace(".", ","), *one[2:]] for one in rows]

    def table_of(rows, quoted=csv.QUOTE_MINIMAL):
        text = lines_of(rows, delimiter, quoted).encode(encoding)
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
        return read_one(path, Reading(written=written))

    first, read = found_in(table_of(rows), target), 0
    for column, cell in itertools.product(range(len(NAMES)), ASTRAY):
        try:
            cell.encode(encoding)
        except UnicodeEncodeError:
            continue
        for place, quoted in ((0, csv.QUOTE_MINIMAL), (4, csv.QUOTE_ALL)):
            after = [list(one) for one in rows]
            after[place][column] = cell
            read += check_others(first, lambda rows=after, by=quoted: table_of(rows, by), place, target)
    assert read > 200, "these rows are read; the others are refused with their table"


RAW = st.one_of(
    st.lists(st.sampled_from([one.encode() for one in ASTRAY]), min_size=7, max_size=11).map(b",".join),
    st.lists(st.sampled_from([b'"', b",", b";", b"a", b"\xf6", b"\xff", b" ", b"1"]), max_size=30).map(b"".join),
    st.binary(max_size=20),
)


@QUICK
@given(RAW, st.integers(1, 4), st.booleans())
def test_whatever_bytes_stand_in_a_line_change_no_other_line(tmp_path, raw, place, astray):
    """Lines that are no rows may be refused or left out, and never change or swallow others."""
    rows = [list(one) for one in PLAIN]
    if astray:  # marks in the other rows, with which those of the line could go together
        rows[4][3], rows[0][3] = '","', '"a","'
    lines = lines_of(rows, ",").encode().split(b"\n")
    path, line = tmp_path / "site.csv", raw.replace(b"\n", b"").replace(b"\r", b"")
    path.write_bytes(b"\n".join(lines))
    first = found_in(read_one(path))
    path.write_bytes(b"\n".join([*lines[:place], line, *lines[place + 1 :]]))
    try:
        second = found_in(read_one(path))
    except (TableError, ConfigError):
        return
    kept = first[: place - 1] + first[place:]
    assert second == kept or second[: place - 1] + second[place:] == kept


def test_one_byte_changes_no_other_row(tmp_path):
    """One byte that is not UTF-8 made the whole file Windows': Köln was no level any more."""
    path = tmp_path / "site.csv"
    text = lines_of(PLAIN, ",").encode()
    path.write_bytes(text.replace(b",d,", b",\xf6,"))
    with pytest.raises(TableError, match=r"CH307 .*line 4"):
        read_one(path)
    path.write_bytes(text)
    first = found_in(read_one(path))
    assert check_others(first, lambda: read_one(path), 2)


def test_a_name_that_became_a_float_is_refused():
    """An empty cell makes all whole numbers of a column floats, and of two persons one above 2⁵³."""
    for people in ([2**53, 2**53 + 1, 7], [2.0**53, 2.0**53, None]):
        table = from_frame(pandas.DataFrame({"person": people}))
        if None in people:
            with pytest.raises(TableError, match="CH301"):
                names_in("person", [table])
        else:
            assert len(set(names_in("person", [table]).tolist())) == 3
    with pytest.raises(TableError, match=r"CH301 .*2 empty cells .*2\^53"):
        names_in("person", [from_frame(pandas.DataFrame({"person": [2.0**53, 2.0**53, 7.5]}))])


CELLS = [
    *ASTRAY, None, math.nan, math.inf, 0, 1, 3, 1.0, 2.5, True, False, 2**53 + 1, 10**400, Decimal("1.00"),
    Decimal("2.50"), date(2020, 3, 4), datetime(2020, 3, 4), datetime(2020, 3, 4, 5), pandas.NA, pandas.NaT,
    np.float32(0.1), b"F",
]  # fmt: skip
TYPED = {
    "age": [25, 31, 7, 61, 10], "bmi": [27.5, 31.0, 22.25, 40.0, 18.5],
    "visit": [date(2020, 3, 4)] * 4 + [date(2021, 5, 6)], "sex": ["F", "M", "d", "F", "M"],
    "city": ["Köln", "NA", "None", "?", "nan"], "code": [1, 2, 3, 3, 1], "smoker": [True, False, True, False, False],
    "ill": [0, 1, 1, 0, 1], "person": [1, 2, 3, 1, 2**53 - 1],
}  # fmt: skip


def frames_with_another_cell():
    """(the row, columns) for every column and every cell that could change the column's type."""
    for name, cell, place in itertools.product(NAMES, CELLS, (0, 4)):
        yield place, {**TYPED, name: [cell if row == place else one for row, one in enumerate(TYPED[name])]}


@pytest.mark.parametrize(
    ("written", "target"),
    [(Format(), LABELS[0]), (Format(dates="day first", decimal=",", empty=("-9",)), LABELS[1])],
    ids=["open, classes", "said, numbers"],
)
def test_a_replaced_cell_of_a_data_frame_changes_no_other_row_whatever_the_types_become(written, target):
    """One empty or fractional cell turns a column of whole numbers into floats, and one text a column into objects."""
    first, read = found_in(from_frame(pandas.DataFrame(TYPED), written), target), 0
    for place, columns in frames_with_another_cell():
        try:
            frame = pandas.DataFrame(columns)
        except (OverflowError, ValueError, TypeError):  # pandas refuses it
            continue
        read += check_others(first, lambda frame=frame: from_frame(frame, written), place, target)
    assert read > 200


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int8, np.bool_])
@pytest.mark.parametrize("cell", ["x", None, "", Decimal("2.5")])
def test_numbers_of_numpy_are_read_alike_in_a_column_of_numbers_and_in_one_of_objects(kind, cell):
    """One text makes a column of float32 one of objects: 1.0 was the level "1" in the one and "1.0" in the other."""
    column = Categorical(name="code", levels=("0", "1", "True", "False", "rest"), missing="rest", other="rest")
    plain = from_frame(pandas.DataFrame({"code": np.array([1, 0, 1], kind)}))
    mixed = from_frame(pandas.DataFrame({"code": pandas.Series([kind(1), kind(0), cell], dtype=object)}))
    assert encode(plain, [column])[:2].tobytes() == encode(mixed, [column])[:2].tobytes()
    assert asked.numbers(plain, "code")[:2].tobytes() == asked.numbers(mixed, "code")[:2].tobytes()


def test_a_replaced_cell_of_a_parquet_file_changes_no_other_row(tmp_path):
    path, target = tmp_path / "site.parquet", LABELS[0]
    parquet.write_table(pyarrow.table(TYPED), path)
    first, read = found_in(read_one(path), target), 0
    for place, columns in frames_with_another_cell():
        if any(isinstance(cell, datetime) for cell in columns["person"]):
            continue  # Arrow makes times of all numbers in a column before anything is written
        try:
            parquet.write_table(pyarrow.table(columns), path)
        except (pyarrow.ArrowException, OverflowError, TypeError, ValueError):  # what Arrow does not write
            continue
        read += check_others(first, lambda: read_one(path), place, target)
    assert read > 100


def test_texts_of_parquet_and_frames_are_read_as_is_said_of_them(tmp_path):
    """With "day first" said, 06/25/2020 was taken as 25 June."""
    visits = {"visit": ["03/04/2020", "06/25/2020"]}
    parquet.write_table(pyarrow.table(visits), tmp_path / "site.parquet")
    visit = declare("visit", DECLARED["visit"])
    for read in (
        lambda by: read_one(tmp_path / "site.parquet", Reading(written=by)),
        lambda by: from_frame(pandas.DataFrame(visits), by),
    ):
        for order in ("day first", "month first", "iso"):
            table = read(Format(dates=order))
            if order == "month first":
                assert encode(table, [visit]).shape == (2, 1)
                continue
            with pytest.raises(TableError, match="CH316"):
                encode(table, [visit])


NUMBERS = st.sampled_from([0, 1, -3, 0.5, 2**24 + 1, 2**60 + 2**36 + 1, True, 1e30, 1e300, math.nan, 7e-46])


@QUICK
@given(st.lists(NUMBERS, min_size=2, max_size=2), st.sampled_from([0, 1, 0.0, True, "no", "yes", "1", 2, 10**20]))
def test_a_replaced_row_of_arrays_changes_no_other_whatever_their_type_becomes(tmp_path, row, label):
    """2⁶⁰ + 2³⁶ + 1 lies between two numbers of float32: rounded once or twice, it is one or the other."""
    rows, labels = [[2**60 + 2**36 + 1, 1], [5, 2**24 + 1], [0, 3]], [0, 1, 1]
    for classes in (["no", "yes"], ["0", "1"], ["1", "0"], ["no", "0", "1"]):
        found = []
        for number, (features, own) in enumerate(((rows, labels), ([*rows[:2], row], [*labels[:2], label]))):
            path = tmp_path / f"{number}.npz"
            try:
                np.savez(path, features=np.array(features), labels=np.array(own))
                table = read_one(path, Reading(row_shape=[2], label="ill", classes=classes))
                codes = encode_labels(table, Categorical(name="ill", levels=tuple(classes)))
            except (TableError, OverflowError):
                assert number == 1
                break
            found.append((table.arrays[:2].tobytes(), codes[:2].tobytes()))
        assert len(set(found)) == 1


def test_an_encoding_in_which_a_row_changes_how_the_next_are_read_is_not_known():
    """For every encoding of Python that is taken: whatever precedes the end of a line, the next line is the same."""
    from encodings.aliases import aliases

    taken = 0
    for name in sorted(
        {*aliases.values(), "utf-8", "unicode_escape", "raw_unicode_escape", "punycode", "idna", "utf_7"}
    ):
        try:
            check_encoding(name)
        except ConfigError:
            continue
        taken += 1
        end, rest = "\n".encode(name.replace("utf_16", "utf_16_le") if name == "utf_16" else name), "ab,1\n"
        rest, mark = rest.encode("utf_16_le" if name == "utf_16" else name), b"\xff\xfe" if name == "utf_16" else b""
        end = end.removeprefix(b"\xef\xbb\xbf").removeprefix(b"\xff\xfe\0\0")
        rest = rest.removeprefix(b"\xef\xbb\xbf").removeprefix(b"\xff\xfe\0\0")
        mark = b"\xff\xfe\0\0" if name == "utf_32" else mark
        width = len(end)
        for first in range(256):
            for second in (0, 27, 33, 64, 129, 255):
                row = bytes([first, second, *b"$B"])[: max(2, width) * (4 // max(2, width))]
                try:
                    text = (mark + row + end + rest).decode(name)
                except UnicodeError:
                    continue
                assert text.endswith("\nab,1\n"), (name, row)
    assert taken > 50
    for name in ("iso2022_jp", "utf_7", "hz", "unicode_escape", "no such"):
        with pytest.raises(ConfigError, match="CH102"):
            check_encoding(name)


@pytest.mark.parametrize("own", ["label", "classes"])
def test_the_type_of_declared_classes_does_not_depend_on_a_row(own):
    frame = pandas.DataFrame({"x": np.linspace(-1, 1, 40), "ill": [True, *([0, 1] * 20)[1:]]})
    declared = {"classes": [0, 1]} if own == "classes" else {}
    if own == "label":
        with pytest.raises(TableError, match="CH3"):
            load(frame, label="ill", devices=2, classes=["no", "yes"])
        return
    data = load(frame, label="ill", devices=2, columns={"x": {"bounds": [-1, 1]}}, **declared)
    assert (data.label_type, data.classes) == ("whole number", ("0", "1"))
    assert zlib.crc32(data.records.labels.tobytes())
