"""Who is ready for a turn: signed answers to this very call, and nothing else."""

import pytest

from choral.core.errors import NotReadyError, PlanError, TrustError
from choral.core.messages import NONCE_BYTES, Call, Ready, Turn, decode, encode
from choral.server.findings import ready_fields
from choral.server.muster import Muster, read
from tests.protocol.world import FIRST, World


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.fixture
def muster(world):
    return Muster(world.terms, FIRST, range(10))


def ready(world, number, *, turn=FIRST, nonce=bytes(NONCE_BYTES), device=None):
    signature = world.identities[number].sign(*ready_fields(turn, nonce))
    return encode(Ready(turn=turn, device=number if device is None else device, nonce=nonce, signature=signature))


def test_everybody_is_called_once_until_they_have_answered(world, muster):
    assert set(muster.outbox()) == set(range(10))
    assert decode(muster.outbox()[0], vector_bytes=0, records_bytes=0)[0] == Call(turn=FIRST)
    muster.receive(3, ready(world, 3))
    assert set(muster.outbox()) == set(range(10)) - {3} and set(muster.nonces) == {3}


def test_the_first_answer_of_a_device_stays_its_answer(world, muster):
    muster.receive(3, ready(world, 3, nonce=b"\1" * NONCE_BYTES))
    muster.receive(3, ready(world, 3, nonce=b"\2" * NONCE_BYTES))
    assert muster.nonces == {3: b"\1" * NONCE_BYTES}


def test_an_answer_to_another_turn_or_of_a_device_that_was_not_called_is_silence(world):
    muster = Muster(world.terms, FIRST, range(9))
    muster.receive(0, ready(world, 0, turn=Turn(0, 1)))
    muster.receive(9, ready(world, 9))
    assert muster.nonces == {} and muster.findings.as_dict() == {}


def test_what_is_no_message_or_in_anothers_name_is_noted_by_its_code(world, muster):
    muster.receive(0, b"nonsense")
    muster.receive(1, ready(world, 2))
    assert muster.nonces == {} and muster.findings.refusals == {0: "CH600", 1: "CH600"}
    with pytest.raises(TrustError, match="names another device"):
        read(world.terms, 1, ready(world, 2))


def test_a_muster_closes_with_as_many_as_the_smallest_sum_and_not_with_one_fewer(world, muster):
    for number in range(7):
        muster.receive(number, ready(world, number))
    with pytest.raises(NotReadyError, match=r"CH503 round 0, attempt 0: 7 of 10 devices are ready, 8 needed;"):
        muster.close()
    muster.receive(7, ready(world, 7))
    muster.close()


@pytest.mark.parametrize("called", [range(11), (0, 10), (-1, 2)])
def test_numbers_that_the_plan_does_not_have_are_not_called(world, called):
    with pytest.raises(PlanError, match="CH204"):
        Muster(world.terms, FIRST, called)
