"""Claims as values: an ε never stands without its rule and adversary, and no claims without a reason."""

import math

import pytest

from choral.record import Statement
from choral.record.losses import Claim

CLAIM = Claim(rule="S1", adversary="everyone", epsilon=1.5)


def test_a_statement_without_noise_has_an_infinite_epsilon_and_is_written_as_a_sentence():
    nothing = Statement(delta=1e-5, adjacency="one record replaced", none="no noise was added")
    assert nothing.against_everyone.epsilon == nothing.published.epsilon == math.inf
    assert nothing.to_dict() == {"delta": 1e-5, "adjacency": "one record replaced", "none": "no noise was added"}


def test_a_statement_writes_its_claims_also_where_there_is_none_of_the_secure_sum():
    written = Statement(delta=1e-5, adjacency="one record replaced", against_everyone=CLAIM).to_dict()
    assert written["against_everyone"] == {"rule": "S1", "adversary": "everyone", "epsilon": 1.5}
    assert written["with_secure_sum"] is None and "running" not in written and "devices" not in written


@pytest.mark.parametrize("claims", [{}, {"none": "nothing", "against_everyone": CLAIM}])
def test_a_statement_has_claims_or_a_reason_and_never_both_or_neither(claims):
    with pytest.raises(ValueError, match="either claims or the reason why there are none"):
        Statement(delta=1e-5, adjacency="one record replaced", **claims)
