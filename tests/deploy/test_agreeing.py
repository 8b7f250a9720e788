"""When a server lets devices agree on keys: patiently, for newcomers, and not for ever for one that never agrees."""

import pytest

from choral.core.errors import NotReadyError
from choral.core.plan import SecureSum
from choral.deploy.serving import MOST_AGREEMENTS, MOST_CALLS, KeyAgreements
from tests.protocol.world import SilentTransport, World

FIVE = SecureSum(cohort=5, smallest_sum=4, threshold=3, colluders=1)
ALL = frozenset(range(5))


@pytest.fixture
def world():
    return World(FIVE, hybrid=True)


def test_newcomers_are_a_reason_and_devices_that_have_agreed_are_none(world):
    made = KeyAgreements(world.wire())
    assert made.needed(ALL)
    made.make(ALL - {2}, 1)
    assert made.wire.agreed == ALL - {2} and not made.needed(ALL - {2}) and made.needed(ALL)
    made.make(ALL, 1)
    assert made.wire.agreed == ALL and not made.needed(ALL)


def test_a_device_that_never_agrees_is_a_reason_twice_at_most(world):
    made = KeyAgreements(world.wire(SilentTransport(world, {3: 0})))
    for _ in range(MOST_AGREEMENTS):
        assert made.needed(ALL)
        made.make(ALL, 1)
        assert made.wire.agreed == ALL - {3}
    assert not made.needed(ALL)


def test_lost_messages_are_called_for_again_and_an_agreement_that_fails_for_good_leaves_nobody_to_call(world):
    class Lossy(SilentTransport):
        """Loses every reply of the first exchanges."""

        lost = 2

        def exchange(self, outbox):
            replies = list(super().exchange(outbox))
            self.lost -= 1
            return [] if self.lost >= 0 else replies

    made = KeyAgreements(world.wire(Lossy(world, {})))
    made.make(ALL, 1)
    assert made.wire.agreed == ALL
    gone = SilentTransport(world, dict.fromkeys(ALL, 0))
    made = KeyAgreements(world.wire(gone))
    with pytest.raises(NotReadyError, match="0 of 5 devices agree"):
        made.make(ALL, 1)
    assert made.wire.agreed == frozenset() and gone.exchanges == MOST_CALLS
