"""Mistakes that other implementations made, each with what it would cost here; the rest are in tests/secagg."""

import numpy as np
import pytest

from choral.core.masks import ring
from choral.core.plan import SecureSum
from tests.attacks.loot import after_upload
from tests.protocol.world import SilentTransport, World


@pytest.mark.parametrize("parameters", [0, 1, 2, 3, 4])
def test_no_word_goes_out_unmasked_and_padding_is_no_exception(parameters):
    """FedML left the padding of a vector as zeros. Words of 64 bits are equal by chance once in 2^64."""
    world = World(SecureSum.for_cohort(10, modulus_bits=64), parameters=parameters)
    for number, (_, words) in after_upload(world).uploads.items():
        plain = world.terms.codec.encode(world.update(number), np.zeros(parameters, np.float32))
        assert len(plain) == len(words) and words.dtype == ring(64)
        assert not (plain == words).any()


def test_a_device_that_missed_messages_is_in_step_again_in_the_next_round():
    """declearn's streams went on from round to round, so that one lost message spoilt all rounds after it."""
    world = World()
    lost = {0: {3: 1}, 1: {3: 0, 4: 2}, 2: {3: 2}}  # the exchange from which a device's replies are lost, by round
    for round in range(4):
        total = world.wire(SilentTransport(world, lost.get(round, {})), attempts=1).sum(round, range(10), world.model)
        assert world.agrees(total)
    assert total.count == 10
