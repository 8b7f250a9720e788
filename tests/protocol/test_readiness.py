"""Who is ready for a turn: signed answers to this very call, and nothing else."""

import pytest

from choral.core.errors import NotReadyError, PlanError, TrustError
from choral.core.messages import NONCE_BYTES, Call, Ready, Turn, decode, encode
from choral.server.findings import ready_fields
from choral.server.round import Readiness, read
from tests.protocol.world import FIRST, World


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.fixture
def readiness(world):
    return Readiness(world.terms, FIRST, range(10))


def ready(world, number, *, turn=FIRST, nonce=bytes(NONCE_BYTES), device=None):
    signature = world.identities[number].sign(*ready_fields(turn, nonce))
    return encode(Ready(turn=turn, device=number if device is None else device, nonce=nonce, signature=signature))


def test_everybody_is_called_once_until_they_have_answered(world, readiness):
    assert set(readiness.outbox()) == set(range(10))
    assert decode(readiness.outbox()[0], vector_bytes=0, records_bytes=0)[0] == Call(turn=FIRST)
    readiness.receive(3, ready(world, 3))
    assert set(readiness.outbox()) == set(range(10)) - {3} and set(readiness.nonces) == {3}


def test_the_first_answer_of_a_device_stays_its_answer(world, readiness):
    readiness.receive(3, ready(world, 3, nonce=b"\1" * NONCE_BYTES))
    readiness.receive(3, ready(world, 3, nonce=b"\2" * NONCE_BYTES))
    assert readiness.nonces == {3: b"\1" * NONCE_BYTES}


def test_an_answer_to_another_turn_or_of_a_device_that_was_not_called_is_silence(world):
    readiness = Readiness(world.terms, FIRST, range(9))
    readiness.receive(0, ready(world, 0, turn=Turn(0, 1)))
    readiness.receive(9, ready(world, 9))
    assert readiness.nonces == {} and readiness.findings.as_dict() == {}


def test_what_is_no_message_or_in_anothers_name_is_noted_by_its_code(world, readiness):
    readiness.receive(0, b"nonsense")
    readiness.receive(1, ready(world, 2))
    assert readiness.nonces == {} and readiness.findings.refusals == {0: "CH600", 1: "CH600"}
    with pytest.raises(TrustError, match="names another device"):
        read(world.terms, 1, ready(world, 2))


def test_a_turn_begins_with_as_many_as_the_smallest_sum_and_not_with_one_fewer(world, readiness):
    for number in range(7):
        readiness.receive(number, ready(world, number))
    with pytest.raises(NotReadyError, match=r"CH503 round 0, attempt 0: 7 of 10 devices are ready, 8 needed;"):
        readiness.close()
    readiness.receive(7, ready(world, 7))
    readiness.close()


@pytest.mark.parametrize("called", [range(11), (0, 10), (-1, 2)])
def test_numbers_that_the_plan_does_not_have_are_not_called(world, called):
    with pytest.raises(PlanError, match="CH204"):
        Readiness(world.terms, FIRST, called)
