"""Columns of files in blocks of text: the same cells, numbers, devices and digests as with a string per cell."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choral.core.errors import TableError
from choral.tables.cells import OPEN, Cells
from choral.tables.columns import Categorical, Numeric, infer, parse_numbers
from choral.tables.reading import BLOCK, read_csv
from choral.tables.sources import load

TEXTS = st.lists(st.lists(st.text(max_size=4), min_size=1, max_size=5), max_size=4)


@given(TEXTS)
def test_cells_come_back_as_they_were_whatever_they_hold(blocks):
    cells = Cells(blocks)
    whole = [cell for block in blocks for cell in block]
    assert (list(cells), len(cells)) == (whole, len(whole))
    assert list(cells) == whole, "and once more"


WRITTEN = [
    "1",
    "-2.5",
    " 3 ",
    "1e5",
    "1E-3",
    ".5",
    "5.",
    "+7",
    "1_000",
    "nan",
    "inf",
    "",
    " ",
    "x",
    "1 2",
    "0x10",
    "1,5",
]


@given(st.lists(st.one_of(st.sampled_from(WRITTEN), st.floats().map(repr)), min_size=1, max_size=6))
def test_numbers_are_those_that_python_reads_or_left_to_be_read_one_by_one(texts):
    found = Cells([texts]).numbers()
    try:
        read = np.array([float(text) for text in texts])
        expected = read if np.isfinite(read).all() else None
    except ValueError:
        expected = None
    if found is not None:
        assert expected is not None and found.tolist() == expected.tolist(), "the same bits"
    elif expected is not None:
        assert parse_numbers(Cells([texts]), source="t", name="x").tolist() == expected.tolist()


@pytest.mark.parametrize("cells", [["1", "", "3"], ["a", "1"], ["1", "1e999"]])
def test_a_cell_that_is_no_number_is_refused_as_in_a_list(cells):
    column, reported = Numeric(name="x", low=0, high=9), []
    for given_as in (cells, Cells([cells])):
        with pytest.raises(TableError) as caught:
            column.encode(given_as, source="t")
        reported.append(str(caught.value))
    assert reported[0] == reported[1]


def test_levels_and_what_is_taken_from_rows_are_the_same_for_both():
    texts = ["b", " a", "b ", "", "a"]
    column = Categorical(name="x", levels=("a", "b"), missing="a")
    assert (
        column.codes(Cells([texts]), source="t").tolist() == column.codes(texts, source="t").tolist() == [1, 0, 1, 0, 0]
    )
    for cells in (["3", "1", "2"], ["b", "", "a"], ["1", "", "2"]):
        assert infer("x", [(Cells([cells]), OPEN)], source="t") == infer("x", [(cells, OPEN)], source="t")


def test_rows_go_to_the_devices_that_a_column_names_in_their_order(tmp_path):
    """More rows than a block, against a search of the whole column for each device, as it was before."""
    rng = np.random.default_rng(3)
    count = 2 * BLOCK + 7
    sites, ages = rng.choice(["north", "Süd", " west "], count), rng.integers(0, 101, count)
    lines = [f"{site},{age},{age % 2}" for site, age in zip(sites, ages, strict=True)]
    path = tmp_path / "rows.csv"
    path.write_text("site,age,ill\n" + "\n\n".join(lines) + "\n")
    data = load(path, label="ill", device_column="site", columns={"age": {"bounds": [0, 100]}})
    assert data.records.names == ("Süd", "north", "west")
    for number, name in enumerate(("Süd", "north", " west ")):
        assert data.records.labels_of(number).tolist() == (ages[sites == name] % 2).tolist()
        expected = (2 * (ages[sites == name] / 100) - 1).astype(np.float32)
        assert data.records.features_of(number)[:, 0].tolist() == expected.tolist()


def test_a_ragged_row_is_named_by_its_number_beyond_the_first_block(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "1,2\n" * (BLOCK + 2) + "1,2,3\n")
    with pytest.raises(TableError, match=rf"CH306 .* row {BLOCK + 3:,} has 3 cells, the header has 2"):
        read_csv(path)


def test_the_digest_of_a_table_is_that_of_earlier_versions(tmp_path):
    path = tmp_path / "site.csv"
    path.write_text("age,sick\n25,no\n38,yes\n")
    whole = hashlib.sha256(b"('age', 'sick')")
    for row in ("('25', 'no')", "('38', 'yes')"):
        whole.update(hashlib.sha256(row.encode()).digest())
    assert read_csv(path).digest(["age", "sick"]) == whole.hexdigest()
