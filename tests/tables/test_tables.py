"""Every way into a table, and every malformed one, with its code and its way out."""

import gzip

import numpy as np
import pandas as pd
import pytest

from choral.core.errors import ChoralError, ConfigError, TableError
from choral.tables.cells import Format
from choral.tables.columns import Categorical, Numeric, declare
from choral.tables.reading import read_csv
from choral.tables.sources import load

ROWS = "age,sex,income\n" + "".join(f"{20 + i},{'FM'[i % 2]},{'lo' if i % 3 else 'hi'}\n" for i in range(40))
COLUMNS = {"age": {"bounds": [0, 100]}, "sex": {"levels": ["F", "M"]}}
DECLARED = {"label": "income", "classes": ["lo", "hi"], "columns": COLUMNS}


@pytest.fixture
def file(tmp_path):
    def write(text, name="site.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_one_csv_is_dealt_evenly_over_the_devices(file):
    data = load(file(ROWS), devices=3, **DECLARED)
    assert data.records.sizes.tolist() == [14, 13, 13]
    assert data.features == ("age", "sex=F", "sex=M")
    assert data.columns_from == "declared"
    first = np.flatnonzero(data.records.features[:, 0] == np.float32(-0.6))
    assert data.records.features[first].tolist() == [[np.float32(-0.6), 1.0, 0.0]]


def test_a_glob_gives_one_device_a_file_and_devices_may_differ_in_size(file):
    file(ROWS, "sites/north.csv")
    path = file("\n".join(ROWS.splitlines()[:21]), "sites/south.csv")
    data = load(str(path.parent / "*.csv"), **DECLARED)
    assert data.records.names == ("north", "south")
    assert data.records.sizes.tolist() == [40, 20]


def test_a_column_may_name_the_device_and_is_then_no_feature(file):
    data = load(file(ROWS), device_column="sex", label="income", classes=["lo", "hi"], columns={"age": COLUMNS["age"]})
    assert data.records.names == ("F", "M")
    assert data.features == ("age",)


def test_parquet_gzip_pandas_and_csv_give_the_same_records(file, tmp_path):
    plain = load(file(ROWS), devices=2, **DECLARED).records
    frame = pd.read_csv(tmp_path / "site.csv")
    frame.to_parquet(tmp_path / "site.parquet")
    packed = file(gzip.compress(ROWS.encode()), "site.csv.gz")
    for source in (tmp_path / "site.parquet", frame, packed):
        other = load(source, devices=2, **DECLARED).records
        assert np.array_equal(plain.features, other.features)
        assert np.array_equal(plain.labels, other.labels)


def test_undeclared_columns_are_taken_from_the_data_and_the_dataset_says_so(file):
    data = load(file(ROWS), devices=2, label="income")
    assert data.columns_from == "the data"
    assert data.classes == ("hi", "lo")
    assert data.records.features.min() == -1.0
    assert data.records.features.max() == 1.0


def test_once_a_column_is_declared_no_other_is_read_and_the_notes_name_those_that_are_not(file):
    table = "\n".join(f"{line},{'name' if row == 0 else f'Zoe-{row}'}" for row, line in enumerate(ROWS.splitlines()))
    data = load(file(table), devices=2, label="income", classes=["lo", "hi"], columns={"age": COLUMNS["age"]})
    assert data.features == ("age",)
    assert data.columns_from == "declared"
    assert data.notes == ("not declared, so not read: sex, name",)


def test_what_is_taken_from_rows_is_listed_with_what_it_looks_like(file):
    lines = [f"{40 + row % 7}.5,{'abc'[row % 3]},2024-01-{1 + row % 28:02},{row % 2}" for row in range(80)]
    data = load(file("bmi,ward,seen,ill\n" + "\n".join(lines)), devices=2, label="ill")
    reported = "bmi: a number; ward: 3 levels; seen: a date, 28 different"
    assert data.notes == (f"columns taken from the rows, which a deployment does not do: {reported}",)


@pytest.mark.parametrize("value", ["P-{}", "{}"])
def test_a_column_with_one_value_per_row_is_refused_unless_somebody_declares_it(file, value):
    table = file("patient,ill\n" + "".join(f"{value.format(1000 + row)},{row % 2}\n" for row in range(80)))
    with pytest.raises(TableError, match=r'CH315 .* column "patient" has one value per row') as caught:
        load(table, devices=2, label="ill")
    assert "1000" not in str(caught.value)
    declared = {"bounds": [0, 9999]} if value == "{}" else {"levels": ["P-1000", "none"], "other": "none"}
    assert load(table, devices=2, label="ill", columns={"patient": declared}).records.devices == 2


@pytest.mark.parametrize("between", [",", ";", "\t", "|"])
def test_the_delimiter_of_each_file_is_found_by_its_first_lines(file, between):
    file(ROWS, "sites/north.csv")
    path = file(ROWS.replace(",", between), "sites/south.csv")
    data = load(str(path.parent / "*.csv"), **DECLARED)
    assert np.array_equal(data.records.features_of(0), data.records.features_of(1))


def test_a_comma_is_a_decimal_point_only_where_it_does_not_separate_cells(file):
    numbers = "x;ill\n" + "".join(f"{row},5;{row % 2}\n" for row in range(20))
    found = load(file(numbers), devices=1, label="ill", columns={"x": {"bounds": [0, 20]}}).records.features
    assert found[0, 0] == pytest.approx(2 * 0.5 / 20 - 1)
    quoted = "x,ill\n" + "".join(f'"{row},500",{row % 2}\n' for row in range(20))
    with pytest.raises(TableError, match="CH303"):
        load(file(quoted), devices=1, label="ill", columns={"x": {"bounds": [0, 20]}})


def test_a_deployment_refuses_undeclared_columns(file):
    with pytest.raises(TableError) as caught:
        load(file(ROWS), devices=2, label="income", classes=["lo", "hi"], deployment=True)
    assert caught.value.code == "CH304"
    assert "[data.columns.age]" in caught.value.fix


def test_label_skew_deals_every_row_once(file):
    data = load(file(ROWS * 1), devices=3, partition="label-skew", skew=5.0, **DECLARED)
    assert data.records.sizes.sum() + sum(int(note.split(" has ")[1].split()[0]) for note in data.notes) == 40


def test_numbers_outside_their_bounds_move_to_the_nearer_bound_and_log_scales_are_monotone():
    scaled = Numeric(name="x", low=0, high=99, scale="log").encode(["-5", "0", "9", "99", "1e6"], source="t").ravel()
    assert scaled.tolist() == pytest.approx(
        [-1, -1, 0, 1, 1], abs=1e-6
    )  # log1p(9) = ln 10 is half of log1p(99) = ln 100


def test_a_declared_constant_fills_empty_cells():
    filled = Numeric(name="x", low=0, high=10, missing=5).encode(["", None, "10"], source="t")
    assert filled.ravel().tolist() == [0, 0, 1]
    column = Categorical(name="x", levels=("a", "?"), missing="?", other="?")
    assert column.codes(["", "a", "zebra"], source="t").tolist() == [1, 0, 1]


def test_a_device_with_one_row_sits_out_and_the_others_go_on(file):
    file(ROWS, "sites/big.csv")
    path = file("age,sex,income\n41,F,hi\n", "sites/tiny.csv")
    data = load(str(path.parent / "*.csv"), **DECLARED)
    assert data.records.names == ("big",)
    assert data.notes[0].startswith('CH305 "tiny" has 1 rows, 10 are needed. It sits out; the others go on.')


SECRET = "Zaphod-1977"
MALFORMED = {
    "missing file": (None, {}, "CH300", "Check the path"),
    "missing label": (ROWS, {"label": "Income"}, "CH302", 'Closest: "income"'),
    "missing column": (ROWS, {"columns": {**COLUMNS, "bmi": {"bounds": [10, 70]}}}, "CH302", "It has: age, sex"),
    "empty file": ("", {}, "CH308", "header line and at least one row"),
    "header without rows": ("age,sex,income\n", {}, "CH308", "at least one row"),
    "too few rows for anybody": ("age,sex,income\n41,F,hi\n42,M,lo\n", {}, "CH305", "fewer devices"),
    "constant label": (ROWS.replace("hi", "lo"), {}, "CH310", "Nothing can be learned"),
    "ragged row": (ROWS + f"1,F,hi,{SECRET}\n", {}, "CH306", "Quote cells"),
    "not UTF-8": (ROWS.encode() + b"5,\x81,hi\n", {}, "CH307", "Save it as UTF-8"),
    "unseen level": (ROWS + f"30,{SECRET},hi\n", {}, "CH311", "declare other"),
    "unseen class": (ROWS + f"30,F,{SECRET}\n", {}, "CH311", "Add the level"),
    "empty cell": (ROWS + ",F,hi\n", {}, "CH301", "declare missing"),
    "text among numbers": (ROWS + f"{SECRET},F,hi\n", {}, "CH303", "Fix the cell"),
    "infinite number": (ROWS + "inf,F,hi\n", {}, "CH303", "Fix the cell"),
    "repeated column": ("age,age,income\n1,2,hi\n", {}, "CH302", "Rename it"),
    "bounds in the wrong order": (ROWS, {"columns": {**COLUMNS, "age": {"bounds": [9, 1]}}}, "CH304", "low below"),
    "unknown key of a column": (ROWS, {"columns": {**COLUMNS, "age": {"bound": [0, 9]}}}, "CH304", "bounds = [0, 100]"),
    "unclosed quote": (ROWS + f'"{SECRET},F,hi\n', {}, "CH300", "Check the file"),
    "empty label": (ROWS + "30,F,\n", {"classes": None}, "CH301", "Fix the file"),
    "a row of nobody": (ROWS + "30,,hi\n", {"device_column": "sex", "columns": {}}, "CH301", "Name the device"),
    "two characters as a delimiter": (ROWS, {"written": Format(delimiter=";;")}, "CH102", "one character"),
    "a number that no float holds": (ROWS + f"1{'0' * 400},F,hi\n", {}, "CH303", "Fix the cell"),
    "no number of devices": (ROWS, {"devices": None}, "CH103", "devices = …"),
    "more devices than rows": (ROWS, {"devices": 41}, "CH102", "at most one device per row"),
    "identifiers as a column": (
        "id,income\n" + "".join(f"p{i},{'hilo'[i % 2 :][:2]}\n" for i in range(1200)),
        {"columns": {}, "classes": None},
        "CH315",
        "Leave it out with ignore",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_table_is_refused_with_its_code_and_fix_and_without_a_value(file, case):
    text, changes, code, fix = MALFORMED[case]
    path = file(text) if text is not None else "nowhere.csv"
    with pytest.raises(ChoralError) as caught:
        load(path, **{"devices": 2, **DECLARED, **changes})
    assert caught.value.code == code
    assert caught.value.exit_status == 2
    assert fix in caught.value.fix
    assert SECRET not in str(caught.value)
    chain = caught.value.__cause__, caught.value.__suppress_context__ or caught.value.__context__ is None
    assert chain == (None, True), "the original error may show a value in a traceback"


def test_two_files_of_the_same_name_are_two_devices_of_the_same_name(file):
    file(ROWS, "a/site.csv")
    path = file(ROWS, "b/site.csv")
    with pytest.raises(TableError, match=r'CH309 .* two files name the device "site"'):
        load(str(path.parent.parent / "*" / "*.csv"), **DECLARED)


@pytest.mark.parametrize(
    ("features", "labels", "code"),
    [
        (np.ones(5), np.zeros(5, int), "CH312"),
        (np.ones((5, 2)), np.zeros(4, int), "CH312"),
        (np.ones((5, 2)), np.zeros(5), "CH312"),
        (np.ones((5, 2)), -np.ones(5, int), "CH312"),
        ([["a"]], [1], "CH312"),
        (np.full((5, 2), np.nan), np.arange(5) % 2, "CH303"),
    ],
)
def test_arrays_of_the_wrong_shape_or_type_are_refused(features, labels, code):
    with pytest.raises(TableError) as caught:
        load((features, labels), devices=1)
    assert caught.value.code == code


@pytest.mark.parametrize("setting", ["device_column", "limit_column"])
def test_arrays_have_no_column_that_names_devices_or_limits(setting):
    with pytest.raises(ConfigError, match=r"CH104 .* arrays have no columns"):
        load((np.eye(40), np.arange(40) % 2), devices=2, **{setting: "site"})


def test_what_pandas_calls_missing_is_an_empty_cell():
    frame = pd.DataFrame({"age": pd.array([1, None] * 20, dtype="Int64"), "label": [0, 1] * 20})
    with pytest.raises(TableError, match=r'CH301 data frame column "age": 20 empty cells \(first at row 2\)'):
        load(frame, devices=2)
    filled = load(frame, devices=2, columns={"age": {"bounds": [0, 2], "missing": 2}}).records.features
    assert sorted(set(filled.ravel().tolist())) == [0.0, 1.0]


@pytest.mark.parametrize("names", [["age", "age", "label"], [1, "1", "label"]])
def test_a_data_frame_whose_columns_have_one_name_is_refused(names):
    with pytest.raises(TableError, match=r"CH302 .* occurs twice"):
        load(pd.DataFrame([[1, 2, 0], [2, 1, 1]] * 10, columns=names), devices=2)


def test_the_columns_of_a_data_frame_may_be_named_by_numbers():
    frame = pd.DataFrame(np.arange(60).reshape(20, 3) % 2)
    assert load(frame, label="2", devices=2).features == ("0", "1")


def test_brackets_in_the_name_of_a_file_or_its_folder_make_no_pattern(file):
    assert load(file(ROWS, "study [2]/site[1].csv"), devices=2, **DECLARED).records.devices == 2


def test_several_data_frames_are_sites_by_their_names_or_in_their_order():
    rows = pd.DataFrame({"age": np.arange(60.0), "label": [0, 1] * 30})
    one, two = rows[:20], rows[20:]
    named = load({"south": one, "north": two}, columns={"age": {"bounds": [0, 60]}})
    assert (named.records.names, named.records.sizes.tolist()) == (("north", "south"), [40, 20])
    numbered = load([one, two], columns={"age": {"bounds": [0, 60]}})
    assert (numbered.records.names, numbered.records.sizes.tolist()) == (("site-1", "site-2"), [20, 40])
    with pytest.raises(TableError, match='CH309 two sites have the name "1"'):
        load({1: one, "1": two})
    with pytest.raises(TableError, match="CH312 a int is not a table"):
        load({"north": one, "south": 3})


def test_something_that_is_no_table_is_refused():
    with pytest.raises(TableError, match="CH312 a int is not a table"):
        load(42, devices=1)


def test_the_repr_of_a_table_shows_no_cell(file):
    assert "25" not in repr(read_csv(file("age\n25\n"))).replace(str(file("age\n25\n")), "")


@pytest.mark.parametrize("settings", [{}, {"bounds": [0, 1], "levels": ["a"]}, {"bounds": [0]}, {"bounds": "01"},
                                      {"bounds": [0, 1], "scale": "cubic"}, {"levels": []}, {"levels": ["a", "a"]},
                                      {"levels": ["a"], "missing": "b"}, {"bounds": [0, 1], "missing": 7},
                                      {"levels": "ab"}, {"levels": 5}, {"bounds": [0, 1], "missing": "none"},
                                      {"bounds": [0, 10**400]}])  # fmt: skip
def test_a_declaration_that_makes_no_sense_is_refused(settings):
    with pytest.raises(TableError) as caught:
        declare("x", settings)
    assert caught.value.code == "CH304"


def test_config_errors_are_input_errors():
    assert ConfigError.exit_status == TableError.exit_status == 2
