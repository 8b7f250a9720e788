"""What a round is charged with beside its noise."""

import pytest

from choral.learning.sampling import OVERFLOW
from tests.run.small import study


@pytest.mark.parametrize("sampling", ["poisson", "partition"])
def test_the_chances_that_an_update_leaves_its_range_or_a_batch_its_room_are_in_the_charges(sampling):
    """Both are chances over a whole run of 3 rounds (docs/secure-sum.md, Numbers), so three charges hold all of it."""
    told = study(sampling=sampling)
    spare = told.codec.failure + (OVERFLOW if sampling == "poisson" else 0.0)
    assert told.codec.failure > 0
    assert sum(told.costs.event(0, before).delta for before in range(3)) >= spare * (1 - 1e-12)
