import numpy as np
import pytest

from bench.secure_sum import Case, Cohort
from choral.core.plan import SecureSum


@pytest.mark.parametrize("dropped", [0, 1])
def test_a_timed_round_opens_the_mean_of_the_devices_that_stayed(dropped):
    cohort = Cohort(Case(SecureSum.for_cohort(6), 40, dropped=dropped))
    cohort.enrol()
    spent = cohort.round()
    # Every device uploads the same update, so the mean over those that stay is that update, up to one step of the grid.
    assert np.abs(cohort.mean - cohort.update).max() <= cohort.terms.codec.grid
    assert spent["device"] > 0
    assert spent["server"] > 0
