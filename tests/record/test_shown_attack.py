"""attack.json: fields that the report does not show may be there, and columns that it shows must have been read."""

import json
from pathlib import Path

import pytest

from choral.core.errors import StorageError
from choral.record import converted
from choral.record.outcome import ShownAttack
from tests.report.runs import attack


def written():
    """As in the file: no two parts of it are one object."""
    return json.loads(json.dumps(attack()))


def read(value):
    return converted(value, ShownAttack, Path("attack.json"))


def test_what_choral_attack_writes_is_read_and_what_is_not_shown_is_passed_over():
    shown = read(attack() | {"batches": {"1": 3}, "masked_bytes": 80})
    assert shown.label == attack()["label"] and not hasattr(shown, "masked_bytes")


@pytest.mark.parametrize("part", ["row", "masked", "opened", "ordinary"])
def test_a_column_that_is_shown_must_be_in_the_row_and_in_every_reading(part):
    value = written()
    cells = {"row": value["row"], "ordinary": value["ordinary"]["network"]["cells"]}.get(part)
    cells = value[part]["cells"] if cells is None else cells
    del cells[value["shown"][0]]
    with pytest.raises(StorageError, match=r"CH802 attack\.json .*a column that is shown has not been read"):
        read(value)


def test_without_the_reading_of_a_network_there_is_nothing_to_show():
    value = written()
    del value["ordinary"]["network"]
    with pytest.raises(StorageError, match=r"CH802 attack\.json"):
        read(value)
