"""Which rows each device holds: by a column, by files, or dealt."""

import numpy as np
import pytest

from choral.core.errors import ConfigError, TableError
from choral.tables.reading import Table
from choral.tables.records import Dealing, holders, names_in, numbered

DEALT = Dealing(seed=1)


def table(*sites):
    return Table(source="t.csv", columns={"site": list(sites)})


def test_names_are_numbered_as_they_first_appear_over_all_tables():
    numbers, owners = numbered("site", [table("b", "a"), table("b", "c")])
    assert numbers == {"b": 0, "a": 1, "c": 2} and owners.tolist() == [0, 1, 0, 2]
    assert names_in("site", [table("b", "a"), table("b", "c")]).tolist() == ["b", "a", "b", "c"]


def test_a_column_gives_each_device_its_rows_in_the_order_of_the_table():
    found = holders([("", table("b", "a", "b"))], [], None, "site", DEALT)
    assert {name: rows.tolist() for name, rows in found.items()} == {"a": [1], "b": [0, 2]}


def test_several_files_are_several_devices_and_one_file_needs_their_number():
    files = [("x", table("a", "a")), ("y", table("a"))]
    found = holders(files, [], None, None, DEALT)
    assert {name: rows.tolist() for name, rows in found.items()} == {"x": [0, 1], "y": [2]}
    with pytest.raises(ConfigError, match="CH103"):
        holders(files[:1], [], None, None, DEALT)


def test_a_row_without_a_name_is_refused_by_its_number_and_never_by_its_cells():
    with pytest.raises(TableError, match=r"CH301.*first at row 2"):
        numbered("site", [table("a", "", "b")])


@pytest.mark.parametrize("partition", ["even", "label-skew"])
def test_a_person_in_the_place_of_another_changes_the_device_of_nobody_else(partition):
    """Persons were dealt in the order of their names: another name for one of 100 moved 316 of 400 rows."""
    persons = np.array([f"p{row // 4:03}" for row in range(400)])
    found = []
    for name in ("p000", "a", "p0505", "z"):
        whose, labels = np.where(persons == "p000", name, persons), np.arange(400, dtype=np.int32) % 2
        dealing = Dealing(devices=4, partition=partition, seed=1)
        shares = holders([("", table("a"))], labels, whose, None, dealing)
        found.append({device: rows.tolist() for device, rows in shares.items()})
    assert all(one == found[0] for one in found)
    assert sorted(row for rows in found[0].values() for row in rows) == list(range(400))
