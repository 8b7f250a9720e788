"""Files as sites have them: each in its own encoding, with its own delimiter and decimal point, or as somebody says."""

import pytest

from choral import config
from choral.core.errors import ConfigError, TableError
from choral.tables.cells import EMPTY, Format, level_of
from choral.tables.columns import Numeric
from choral.tables.reading import read_csv, resolved
from choral.tables.sources import load

TEXT = "name;bmi\nJürgen;27,5\nZoë;31\n"


@pytest.mark.parametrize(
    ("encoding", "found"),
    [("utf-8", "utf-8-sig"), ("utf-8-sig", "utf-8-sig"), ("utf-16", "utf-16"), ("cp1252", "cp1252"),
     ("latin-1", "cp1252")],
)  # fmt: skip
def test_a_simulation_finds_an_encoding_by_the_bytes_of_the_file_and_says_so(tmp_path, encoding, found):
    path = tmp_path / "site.csv"
    path.write_bytes(TEXT.encode(encoding))
    written = resolved(path, guess=True)
    assert written == Format(delimiter=";", decimal=",", encoding=found, dates="iso", empty=EMPTY)
    table = read_csv(path, guess=True)
    assert list(table.columns) == ["name", "bmi"] and list(table.cells("name")) == ["Jürgen", "Zoë"]
    assert table.guessed == (("encoding cp1252",) if found == "cp1252" else ())


def test_where_a_promise_is_made_a_file_is_utf_8_unless_somebody_says_otherwise(tmp_path):
    path = tmp_path / "site.csv"
    path.write_bytes(TEXT.encode("cp1252"))
    with pytest.raises(TableError, match=r"CH307 .*site\.csv is not UTF-8 text \(line 2\).*--encoding"):
        read_csv(path)
    assert list(read_csv(path, Format(encoding="cp1252")).cells("name")) == ["Jürgen", "Zoë"]


def test_the_delimiter_is_found_in_the_header_line_and_no_row_has_a_part_in_it(tmp_path):
    path = tmp_path / "site.csv"
    for header, delimiter in (
        ("a;b", ";"),
        ("a\tb", "\t"),
        ("a|b", "|"),
        ("a,b", ","),
        ("a, in kg;b;c", ";"),
        ("a", ","),
    ):
        for rows in ("1,2\n", "1;2\n", '"1;2,3"\n', "1|2\n\n"):
            path.write_text(f"{header}\n{rows}")
            assert resolved(path).delimiter == delimiter


@pytest.mark.parametrize("row", ['5" pipe,1', 'a "b" c,1', '7",",1', ' "x",1'])
def test_a_quotation_mark_inside_a_cell_that_is_not_quoted_is_refused(tmp_path, row):
    """Such marks can begin a quoted cell that swallows the rows after it: 7",", and then 5",1"."""
    path = tmp_path / "site.csv"
    path.write_text(f'a,b\n{row}\n5",1"\n')
    with pytest.raises(TableError, match=r"CH300 .*(row 1 has a quotation mark inside a cell|well-formed)"):
        read_csv(path)


def test_quoted_cells_hold_marks_delimiters_and_ends_of_lines(tmp_path):
    path = tmp_path / "site.csv"
    path.write_text('a,b\n"5"" pipe","1,\n2"\n"",x\n', newline="")
    assert [list(cells) for cells in read_csv(path).columns.values()] == [['5" pipe', ""], ["1,\n2", "x"]]


@pytest.mark.parametrize("suffix", ["xlsx", "xls", "ods", "sav", "dta", "sas7bdat", "rds"])
def test_a_file_of_another_program_is_refused_by_the_name_of_its_format(tmp_path, suffix):
    path = tmp_path / f"site.{suffix}"
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(TableError, match=rf"CH329 .*site\.{suffix} is a \.{suffix} file of [A-Z]"):
        load(path, devices=2)


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
    for guess in (False, True):
        with pytest.raises(TableError, match=r"CH307 .*is not utf-8 text \(line 2\)"):
            read_csv(path, Format(encoding="utf-8"), guess=guess)


@pytest.mark.parametrize(("decimal", "value"), [(",", 27.5), (None, 27.5), (".", None)])
def test_a_decimal_comma_is_read_where_it_may_be_one(tmp_path, decimal, value):
    path, column = tmp_path / "site.csv", Numeric(name="bmi", low=0, high=55)
    path.write_text(TEXT, encoding="utf-8")
    table = read_csv(path, Format(decimal=decimal))
    cells, written = table.cells("bmi"), table.written
    if value is None:
        with pytest.raises(TableError, match="CH303"):
            column.encode(cells, source="t", written=written)
    else:
        assert column.encode(cells, source="t", written=written)[0, 0] == pytest.approx(2 * value / 55 - 1)


@pytest.mark.parametrize(
    "wrong", [{"decimal": "'"}, {"encoding": "klingon"}, {"encoding": "iso2022_jp"}, {"dates": "year last"}]
)
def test_a_format_that_nobody_knows_is_refused(wrong):
    with pytest.raises(ConfigError, match="CH102"):
        Format(**wrong)


def columns_of(**more):
    return {"age": {"bounds": [0, 100]}, "sex": {"levels": ["F", "M"]}} | more


def test_all_faults_of_all_files_are_listed_in_one_go(tmp_path):
    for name, odd in (("north", "Zaphod,F"), ("south", "NA,x")):
        lines = [f"{20 + row},{'FM'[row % 2]},{row % 2}" for row in range(20)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,sex,ill", f"{odd},2", *lines]) + "\n")
    with pytest.raises(TableError) as caught:
        load(str(tmp_path / "*.csv"), label="ill", classes=[0, 1], columns=columns_of())
    lines = str(caught.value).splitlines()
    assert lines[0] == "CH328 5 faults:" and [line.split()[0] for line in lines[1:]] == [
        "CH303", "CH311", "CH301", "CH311", "CH311",
    ]  # fmt: skip
    assert str(caught.value).count("north.csv") == 2 and "Zaphod" not in str(caught.value)
    (tmp_path / "north.csv").write_bytes(b"age;sex\n\xff;F\n")
    (tmp_path / "south.csv").write_text("age,sex,ill\n1,2\n")
    with pytest.raises(TableError, match=r"CH328 2 faults:\n.*CH307 .*north\.csv.*\n.*CH306 .*south\.csv"):
        load(str(tmp_path / "*.csv"), label="ill", classes=[0, 1], columns=columns_of())


def test_words_for_no_value_are_a_setting_and_a_declared_level_wins(tmp_path):
    path = tmp_path / "site.csv"
    rows = [f"{('NA', '-9', '30')[row % 3]},{('F', '?', 'NULL')[row % 3]},{row % 2}" for row in range(30)]
    path.write_text("\n".join(["age,sex,ill", *rows]) + "\n")
    columns = {"age": {"bounds": [-9, 100], "missing": 50}, "sex": {"levels": ["F", "?", "none"], "missing": "none"}}
    found = load(path, label="ill", devices=1, columns=columns).records.features[:3]
    assert found.argmax(axis=1).tolist()[1:] == [2, 3] and found[0, 1] == 1, "F, ? as it is declared, NULL as none"
    ages = (found[:, 0] + 1) / 2 * 109 - 9
    assert ages.tolist() == pytest.approx([50, -9, 30], abs=1e-4)
    said = load(path, label="ill", devices=1, columns=columns, written=Format(empty=("-9", "NA", "NULL")))
    assert ((said.records.features[:3, 0] + 1) / 2 * 109 - 9).tolist() == pytest.approx([50, 50, 30], abs=1e-4)


@pytest.mark.parametrize(
    ("classes", "cells", "kind"),
    [
        ([0, 1], ("0", "1"), "whole number"),
        ([False, True], ("false", "TRUE"), "truth"),
        (["a", "b"], ("a", "b"), "text"),
    ],
)
def test_declared_classes_are_texts_whole_numbers_or_truths(tmp_path, classes, cells, kind):
    (tmp_path / "site.csv").write_text("\n".join(["age,ill", *(f"{row},{cells[row % 2]}" for row in range(40))]) + "\n")
    text = f'privacy.epsilon = 1\ndata.classes = {str(classes).lower()}\ndata.empty = ["-"]'.replace("'", '"')
    settings = config.parse(text).data
    assert settings.class_names == list(map(level_of, classes)) and settings.written.empty == ("-",)
    data = load(tmp_path / "site.csv", label="ill", classes=settings.classes, devices=1)
    assert (data.label_type, data.classes) == (kind, tuple(map(level_of, classes)))
    assert data.records.labels.tolist() == [row % 2 for row in range(40)]


@pytest.mark.parametrize("classes", ["[0, true]", '["a", 1]', '[""]', "[0.5, 1.5]", '"a"'])
def test_classes_of_several_kinds_are_refused_with_their_line(classes):
    with pytest.raises(ConfigError, match=r"CH102 choral\.toml:2 data\.classes"):
        config.parse(f"privacy.epsilon = 1\ndata.classes = {classes}")


def test_a_simulation_notes_what_it_guessed_and_a_class_that_no_row_has(tmp_path):
    path = tmp_path / "site.csv"
    rows = [f"Köln;{1 + row % 28:02}/01/2020;{'ab'[row % 2]}" for row in range(40)]
    path.write_bytes("\n".join(["city;visit;ill", *rows]).encode("cp1252"))
    columns = {"city": {"levels": ["Köln", "Bonn"]}, "visit": {"dates": ["2019-01-01", "2021-01-01"]}}
    given = {"label": "ill", "classes": ["a", "b", "c"], "columns": columns, "devices": 1}
    assert load(path, **given, guess=True).notes == (
        "guessed from the rows of site.csv, which only a simulation does: encoding cp1252, dates day first",
        'no row has the class "c"',
    )
    with pytest.raises(TableError, match="CH307"):
        load(path, **given)
    with pytest.raises(TableError, match="CH316"):
        load(path, **given, written=Format(encoding="cp1252"))
    assert load(path, **given, written=Format(encoding="cp1252", dates="day first")).notes == ()
