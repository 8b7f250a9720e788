"""Rows reach the processor in two ways, whole tables or the used rows alone, and both give the same rows."""

import jax
import numpy as np
import pytest

from choral.learning import feed
from choral.learning.batches import EMPTY
from choral.tables.records import Records

SIZES = (3, 6, 4)


@pytest.fixture
def records():
    # Row r holds the number r, so that a row that arrives says which one it is.
    numbers = np.arange(sum(SIZES), dtype=np.float32)
    cuts = np.split(numbers, np.cumsum(SIZES)[:-1])
    return Records.of([(f"device {i}", rows[:, None], rows.astype(int) % 2) for i, rows in enumerate(cuts)], classes=2)


def arrived(records, wanted, *, most_rows, monkeypatch, resident):
    if not resident:
        monkeypatch.setattr(feed, "RESIDENT", {"cpu": 0})
        monkeypatch.setattr(feed, "ALIGNMENT", 2**62)
    made = feed.Feed(records, jax.devices("cpu")[:1], slots=2, most_rows=most_rows)
    assert made.resident is resident
    (features, labels, _), places = made.rows(np.array([1, 2]), wanted, 0)
    found = np.where(np.asarray(places) < 0, -1, np.asarray(features)[np.asarray(places), 0])
    assert (np.asarray(labels)[np.asarray(places)][found >= 0] == found[found >= 0] % 2).all()
    return found


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("most_rows", [2, 6])
def test_every_wanted_row_of_a_device_arrives_and_empty_places_stay_empty(records, monkeypatch, resident, most_rows):
    wanted = np.array([[[5, 0, EMPTY]], [[3, 3, 0]]], np.int32)  # rows of devices 1 and 2, which begin at 3 and 9
    found = arrived(records, wanted, most_rows=most_rows, monkeypatch=monkeypatch, resident=resident)
    assert found.tolist() == [[[8, 3, -1]], [[12, 12, 9]]]


def test_a_table_with_a_value_that_is_not_finite_is_known_to_have_one(records):
    made = feed.Feed(records, jax.devices("cpu")[:1], slots=1, most_rows=6)
    assert made.finite and made.bytes_in_flight == 0 and made.slot == 6
    records.features[4] = np.inf
    assert not feed.Feed(records, jax.devices("cpu")[:1], slots=1, most_rows=6).finite


def test_as_many_devices_are_under_way_as_a_quarter_of_the_free_memory_holds():
    assert feed.devices_in_flight(2**60, 3) == 3
    assert feed.devices_in_flight(0, 3) > 2**20
