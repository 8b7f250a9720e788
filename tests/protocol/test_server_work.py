"""The heavy part of a server's turn in one process; tests/backends/test_crew.py does the same on several."""

import numpy as np

from choral.core.masks import Mask, add_masks
from choral.server.server_work import ServerWork


def test_uploads_are_added_taken_back_and_unmasked():
    words, work = np.arange(5, dtype="<u4"), ServerWork(32)
    masked = words.copy()
    add_masks(masked, [Mask(bytes(32), adds=True)])
    work.add(1, masked.tobytes())
    work.add(2, words.tobytes(), keep=False)
    work.add(3, words.tobytes())
    assert sorted(work.vectors) == [1, 3]
    work.take_back(3)
    assert sorted(work.vectors) == [1]
    assert work.unmasked([Mask(bytes(32), adds=False)]).tolist() == (2 * words).tolist()
    assert ServerWork(32).unmasked([]).tolist() == []
