"""The server's half of an agreement: it goes on with those who answer, and names what was wrong with the others."""

import pytest

from choral.core.device import offer_fields
from choral.core.errors import NotReadyError
from choral.core.messages import Offer, Turn, Wrapped, encode
from choral.core.plan import SecureSum
from choral.server.key_round import KeyRound
from tests.protocol.world import FIRST, SilentTransport, World

FIVE = SecureSum(cohort=5, smallest_sum=4, threshold=3, colluders=1)


@pytest.fixture
def world():
    return World(FIVE, hybrid=True)


@pytest.mark.parametrize("step", [0, 1, 2])
def test_who_is_silent_in_a_step_is_not_among_the_agreed_and_the_others_go_on(world, step):
    wire = world.wire(SilentTransport(world, {1: step}))
    assert wire.agree(FIRST, range(5)) == {0, 2, 3, 4}
    assert world.agrees(world.wire().sum(1, (0, 2, 3, 4), world.model))


def test_too_few_are_no_agreement_and_the_keys_from_before_still_fit(world):
    with pytest.raises(NotReadyError, match="3 of 5 devices agree on keys, 4 needed"):
        world.wire(SilentTransport(world, {1: 0, 2: 0})).agree(FIRST, range(5))
    assert world.agrees(world.wire().sum(1, range(5), world.model))


def test_an_agreement_in_mid_run_replaces_all_keys_and_the_run_goes_on(world):
    wire = world.wire()
    assert world.agrees(wire.sum(1, range(5), world.model, following=range(5)))
    before = [device.vault.memory.chains for device in world.devices]
    assert wire.agree(Turn(2, 0), range(5)) == set(range(5))
    assert all(device.vault.memory.chains.following == 2 for device in world.devices)
    assert not {key for one in before for key in one.keys.values()} & {
        key for device in world.devices for key in device.vault.memory.chains.keys.values()
    }
    assert world.agrees(wire.sum(2, range(5), world.model))


def test_an_offer_that_is_not_signed_or_is_sent_for_another_counts_as_silence(world):
    running = KeyRound(world.terms, FIRST, range(5))
    answers = {number: world.devices[number].answer(frame) for number, frame in running.outbox().items()}
    offer = world.read(answers[0])
    running.receive(0, encode(Offer(turn=FIRST, device=0, key=offer.key, signature=bytes(64))))
    running.receive(1, answers[2])
    for number in (2, 3, 4):
        running.receive(number, answers[number])
    assert running.findings.refusals == {0: "CH606", 1: "CH600"}
    with pytest.raises(NotReadyError):
        running.advance()


def test_a_false_key_costs_its_sender_its_place_and_the_others_nothing(world):
    running, false = KeyRound(world.terms, FIRST, range(5)), b"\xff" * 1216
    for number, frame in running.outbox().items():
        running.receive(number, world.devices[number].answer(frame)) if number != 2 else None
    signature = world.identities[2].sign(*offer_fields(world.terms.digest, FIRST, false))
    running.receive(2, encode(Offer(turn=FIRST, device=2, key=false, signature=signature)))
    running.advance()
    assert running.findings.refusals == {2: "CH613"} and running.outbox().keys() == {0, 1, 3, 4}


def test_ciphertexts_for_others_than_those_after_it_count_as_silence(world):
    running = KeyRound(world.terms, FIRST, range(5))
    for number, frame in running.outbox().items():
        running.receive(number, world.devices[number].answer(frame))
    running.advance()
    running.receive(3, encode(Wrapped(turn=FIRST, device=3, ciphertexts=b"")))
    assert running.findings.refusals == {3: "CH600"}


def test_nobody_is_charged_for_an_agreement(world):
    world.wire().agree(Turn(3, 0), range(5))
    assert all(ledger.charged == [] for ledger in world.ledgers)
    assert all(device.vault.memory.turn is None for device in world.devices)
