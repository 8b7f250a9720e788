"""Files as sites have them: each in its own encoding, with its own delimiter and decimal point, or as somebody says."""

import pytest

from choral.errors import ConfigError, TableError
from choral.learning.columns import Numeric
from choral.learning.reading import Format, read_csv, sniffed

TEXT = "name;bmi\nJürgen;27,5\nZoë;31\n"


@pytest.mark.parametrize(
    ("encoding", "found"),
    [("utf-8", "utf-8-sig"), ("utf-8-sig", "utf-8-sig"), ("utf-16", "utf-16"), ("cp1252", "cp1252"),
     ("latin-1", "cp1252")],
)  # fmt: skip
def test_an_encoding_is_found_by_the_bytes_of_the_file(tmp_path, encoding, found):
    path = tmp_path / "site.csv"
    path.write_bytes(TEXT.encode(encoding))
    assert sniffed(path) == Format(delimiter=";", decimal=",", encoding=found)
    table = read_csv(path)
    assert list(table.columns) == ["name", "bmi"] and list(table.cells("name")) == ["Jürgen", "Zoë"]


def test_utf_16_of_the_other_order_of_bytes_is_read_too(tmp_path):
    path = tmp_path / "site.csv"
    path.write_bytes(b"\xfe\xff" + TEXT.encode("utf-16-be"))
    assert list(read_csv(path).cells("name")) == ["Jürgen", "Zoë"]


def test_bad_bytes_far_into_a_file_are_refused_with_their_line_and_never_with_a_value(tmp_path):
    path = tmp_path / "site.csv"
    path.write_bytes(b"name,bmi\n" + b"Zaphod,27\n" * 200_000 + b"Zaphod\x81,28\n")
    with pytest.raises(TableError, match=r"CH307 .*site\.csv is not UTF-8 text \(line 200,002\)") as caught:
        read_csv(path)
    assert "--encoding" in str(caught.value) and "Zaphod" not in str(caught.value)
    assert read_csv(path, Format(encoding="latin-1")).rows == 200_001, "the way out that is named"


def test_an_encoding_that_is_given_is_not_second_guessed(tmp_path):
    path = tmp_path / "site.csv"
    path.write_bytes(TEXT.encode("cp1252"))
    with pytest.raises(TableError, match=r"CH307 .*is not utf-8 text \(line 2\)"):
        read_csv(path, Format(encoding="utf-8"))


@pytest.mark.parametrize(("decimal", "value"), [(",", 27.5), (None, 27.5), (".", None)])
def test_a_decimal_comma_is_read_where_it_may_be_one(tmp_path, decimal, value):
    path, column = tmp_path / "site.csv", Numeric(name="bmi", low=0, high=55)
    path.write_text(TEXT, encoding="utf-8")
    cells = read_csv(path, Format(decimal=decimal)).cells("bmi")
    if value is None:
        with pytest.raises(TableError, match="CH303"):
            column.encode(cells, source="t")
    else:
        assert column.encode(cells, source="t")[0, 0] == pytest.approx(2 * value / 55 - 1)


@pytest.mark.parametrize("wrong", [{"decimal": "'"}, {"encoding": "klingon"}, {"dates": "year last"}])
def test_a_format_that_nobody_knows_is_refused(wrong):
    with pytest.raises(ConfigError, match="CH102"):
        Format(**wrong)
