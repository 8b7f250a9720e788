"""Own columns in the label's place: what each table then holds, and what is refused."""

import pytest

from choral.core.errors import ConfigError, TableError
from choral.tables.reading import Table
from choral.tables.sources import labelled, with_outcome

NORTH = Table(source="north.csv", columns={"age": [1], "died": [0], "outcome": [1]})
SOUTH = Table(source="south.csv", columns={"age": [2], "died": [1], "outcome": [0]})


def test_each_site_has_its_own_column_as_the_label_and_no_site_reads_anothers():
    found = dict(labelled([("north", NORTH), ("south", SOUTH)], "outcome", {"north": "died"}, ["age"]))
    assert found["north"].columns == {"age": [1], "outcome": [0]}
    assert found["south"].columns == {"age": [2], "outcome": [0]}  # its own label stays, and no died
    assert with_outcome(NORTH, "outcome", None, ["age"]) is NORTH


def test_a_column_that_is_not_there_or_that_the_model_reads_and_a_site_without_a_file_are_refused():
    with pytest.raises(TableError, match=r"CH302.*no column \"returned\""):
        with_outcome(NORTH, "outcome", "returned", ["age"])
    with pytest.raises(ConfigError, match=r"CH102.*declared column"):
        with_outcome(NORTH, "outcome", "age", ["age"])
    with pytest.raises(ConfigError, match=r"CH102.*\"east\", which has no file"):
        labelled([("north", NORTH)], "outcome", {"east": "died"}, ["age"])
