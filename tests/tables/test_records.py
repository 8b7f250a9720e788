"""Rows of all devices in one block: each device's part without a copy, and shapes that do not fit refused."""

import numpy as np
import pytest

from choral.core.errors import TableError
from choral.tables.records import Records, by

TWO = Records.of([("a", [[0.0], [1.0]], [0, 1]), ("b", [[2.0]], [1]), ("c", np.zeros((0, 1)), [])])


def test_each_device_has_its_own_rows_and_they_are_no_copies():
    assert (TWO.devices, TWO.sizes.tolist(), TWO.offsets.tolist()) == (3, [2, 1, 0], [0, 2, 3, 3])
    assert TWO.features_of(1).tolist() == [[2.0]] and TWO.labels_of(0).tolist() == [0, 1]
    assert TWO.features_of(0).base is not None and len(TWO.features_of(2)) == 0


def test_labels_are_whole_numbers_for_classes_and_floats_for_numbers():
    assert TWO.labels.dtype == np.int32
    assert Records.of([("a", [[0.0]], [0.25])], classes=0).labels.tolist() == [0.25]


def test_rows_may_have_any_shape():
    images = Records.of([("a", np.zeros((2, 8, 8)), [0, 1])])
    assert (images.shape, by(images.shape), by((5,))) == ((8, 8), "8 × 8", "5")


@pytest.mark.parametrize("offsets", [[0, 2], [1, 2, 3], [0, 2, 2], [0, 3, 2]])
def test_offsets_that_do_not_cover_the_rows_once_in_order_are_refused(offsets):
    with pytest.raises(TableError, match=r"CH312 features \(3, 1\), labels \(3,\) and 2 devices do not fit"):
        rows = {"features": np.zeros((3, 1), np.float32), "labels": np.zeros(3, np.int32), "names": ("a", "b")}
        Records(**rows, offsets=np.array(offsets))
