"""Notes about the devices of a turn: what counts, what is only somebody's word, and what is said of it."""

import pytest

from choral.core.messages import NONCE_BYTES, Ready, Refusal
from choral.server.findings import Findings, ready_fields, refusal_fields
from tests.protocol.world import FIRST, World

NONCE = bytes(range(NONCE_BYTES))


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.fixture
def found(world):
    return Findings(terms=world.terms)


def ready(world, signer, sender):
    return Ready(
        turn=FIRST, device=sender, nonce=NONCE, signature=world.identities[signer].sign(*ready_fields(FIRST, NONCE))
    )


def refusal(world, signer, sender, *, code="CH401", cause=None, signed_code=None):
    signature = world.identities[signer].sign(*refusal_fields(FIRST, signed_code or code, cause))
    return Refusal(turn=FIRST, device=sender, code=code, cause=cause, signature=signature)


def test_a_ready_counts_if_its_device_signed_it_and_is_only_noted_if_another_did(world, found):
    assert found.proves(2, ready(world, signer=2, sender=2)) and found.unproved == {}
    assert not found.proves(2, ready(world, signer=3, sender=2)) and found.unproved == {2: "READY"}


def test_a_refusal_is_noted_with_its_cause_and_one_that_is_not_signed_changes_nothing(world, found):
    found.refuse(1, refusal(world, signer=1, sender=1, code="CH605", cause=4))
    found.refuse(2, refusal(world, signer=3, sender=2))
    found.refuse(3, refusal(world, signer=3, sender=3, signed_code="CH801"))
    assert found.refusals == {1: "CH605"} and found.causes == {1: 4}
    assert found.unproved == {2: "CH401", 3: "CH401"} and found.named == {}


def test_what_a_device_did_first_is_what_it_is_named_for(found):
    found.name(4, "laid down a false key")
    found.name(4, "sent a wrong share")
    assert found.named == {4: "laid down a false key"}


def test_the_findings_of_two_steps_are_one(world, found):
    other = Findings(terms=world.terms)
    found.fault(0, "CH600")
    other.fault(1, "CH601")
    other.name(2, "lied")
    other.quarrels.add((3, 4))
    found.add(other)
    assert found.refusals == {0: "CH600", 1: "CH601"} and found.named == {2: "lied"} and found.quarrels == {(3, 4)}


def test_nothing_found_is_nothing_said(found):
    assert str(found) == "" and found.as_dict() == {}


def test_what_a_device_says_of_another_is_reported_as_its_claim(world, found):
    found.refuse(1, refusal(world, signer=1, sender=1, cause=4))
    found.refuse(2, refusal(world, signer=2, sender=2, cause=2))
    found.refuse(3, refusal(world, signer=3, sender=3))
    assert str(found) == (
        " (refused: device-0001 CH401 because of device-0004, it says, device-0002 CH401 because of itself,"
        " device-0003 CH401 because of the server)"
    )
    assert found.as_dict() == {
        "refused": dict.fromkeys(("device-0001", "device-0002", "device-0003"), "CH401"),
        "refused_because_of": {
            "device-0001": "device-0004",
            "device-0002": "device-0002",
            "device-0003": "the server",
        },
    }


def test_a_number_that_is_no_device_is_reported_as_a_number(found):
    found.fault(99, "CH600")
    assert found.as_dict()["refused"] == {"device 99": "CH600"}
