"""A device's half of an agreement on keys, and what its vault holds of them in each step."""

import pytest

from choral.core.device import offer_fields
from choral.core.keys import HybridKey
from choral.core.messages import Agreed, Gather, Offer, Offers, Refusal, Turn, Wrapped, Wraps, encode, pack, unpack
from choral.core.plan import SecureSum
from choral.core.terms import OFFER_BYTES
from choral.core.vault import Vault
from tests.protocol.world import FIRST, World, enrolled

THREE = SecureSum(cohort=3, smallest_sum=3, threshold=2)


@pytest.fixture
def world():
    return World(THREE, hybrid=True)


def ask(world, number, message):
    return world.read(world.devices[number].answer(encode(message)))


def offers_of(world, turn=FIRST):
    found = {number: ask(world, number, Gather(turn=turn, terms=world.terms.digest)) for number in range(3)}
    return {number: offer.key + offer.signature for number, offer in found.items()}


def code_of(world, number, message):
    answer = ask(world, number, message)
    assert isinstance(answer, Refusal)
    return answer.code


def test_an_agreement_leaves_chains_with_everybody_and_no_private_key(world):
    for number, store in enumerate(world.stores):
        memory = Vault.open(store).memory
        others = {id for id in world.terms.ids if id != world.terms.ids[number]}
        assert memory.chains.keys.keys() == memory.asking.keys.keys() == others
        assert memory.pairs == {}
    one, other = (Vault.open(world.stores[number]).memory for number in (0, 1))
    assert one.chains.keys[other.id] == other.chains.keys[one.id] != one.asking.keys[other.id]


def test_rounds_open_the_plain_sum_and_each_takes_the_chains_further(world):
    wire, kept = world.wire(), set()
    for round_number in (1, 2, 4):
        assert world.agrees(wire.sum(round_number, range(3), world.model, following=range(3)))
        memory = Vault.open(world.stores[0]).memory
        assert memory.chains.following == round_number + 1 and memory.turn == Turn(round_number, 0)
        kept |= set(memory.chains.keys.values())
    assert len(kept) == 6


def test_devices_that_dropped_out_and_restarted_need_no_new_agreement(world):
    wire = world.wire()
    assert world.agrees(wire.sum(1, range(3), world.model))
    world.devices[1] = world.start(1)
    assert world.agrees(world.wire().sum(2, range(3), world.model))


def test_without_an_agreement_with_all_of_the_cohort_nothing_is_charged(world):
    lone = world.stores[0]
    Vault.open(lone).change(chains=None)
    world.devices[0] = world.start(0)
    readiness = world.readiness(Turn(1, 0))
    running = world.round(Turn(1, 0))
    frame = running.outbox()[0]
    assert world.read(world.devices[0].answer(frame)).code == "CH612"
    assert world.ledgers[0].charged == [] and readiness.nonces


def test_steps_out_of_order_are_refused_and_end_the_agreement(world):
    assert code_of(world, 0, Wraps(turn=FIRST, ciphertexts=b"")) == "CH605"
    assert code_of(world, 0, Offers(turn=FIRST, offers=b"")) == "CH605"
    offers = offers_of(world)
    assert code_of(world, 0, Offers(turn=Turn(1, 0), offers=pack(offers))) == "CH605"  # of another turn
    assert code_of(world, 0, Offers(turn=FIRST, offers=pack(offers))) == "CH605"  # it ended with that


def test_a_restart_in_mid_agreement_leaves_the_device_out_with_its_old_keys(world):
    before = Vault.open(world.stores[0]).memory.chains
    offers = offers_of(world)
    world.devices[0] = world.start(0)
    assert code_of(world, 0, Offers(turn=FIRST, offers=pack(offers))) == "CH605"
    assert Vault.open(world.stores[0]).memory.chains == before


def test_offers_that_a_device_did_not_sign_for_these_terms_and_this_turn_are_refused(world):
    forger, key = world.identities[1], HybridKey.fresh().public
    for signature in (
        bytes(64),
        forger.sign("offer", bytes(32), bytes(16), key),
        world.identities[2].sign(*offer_fields(world.terms.digest, FIRST, key)),
        forger.sign(*offer_fields(world.terms.digest, Turn(5, 0), key)),
    ):
        offers = offers_of(world) | {1: key + signature}
        assert code_of(world, 0, Offers(turn=FIRST, offers=pack(offers))) == "CH606"


def test_its_own_offer_must_be_there_as_it_was_and_too_few_are_refused(world):
    offers = offers_of(world)
    again = offers_of(world)
    assert code_of(world, 0, Offers(turn=FIRST, offers=pack(offers))) == "CH604"  # the one before, signed and all
    offers_of(world)
    assert code_of(world, 0, Offers(turn=FIRST, offers=pack({0: again[0], 1: again[1]}))) == "CH605"
    offers_of(world)
    assert code_of(world, 0, Offers(turn=FIRST, offers=pack(again | {7: again[1]}))) == "CH600"


def test_a_false_key_under_a_true_signature_names_its_sender(world):
    offers, false = offers_of(world), b"\xff" * 1216
    offers[2] = false + world.identities[2].sign(*offer_fields(world.terms.digest, FIRST, false))
    refusal = ask(world, 0, Offers(turn=FIRST, offers=pack(offers)))
    assert (refusal.code, refusal.cause) == ("CH613", 2)


def test_a_small_point_under_a_true_signature_names_its_sender(world):
    offers = offers_of(world)
    false = bytes(32) + offers[2][32:1216]
    offers[2] = false + world.identities[2].sign(*offer_fields(world.terms.digest, FIRST, false))
    assert isinstance(ask(world, 0, Offers(turn=FIRST, offers=pack(offers))), Wrapped)
    refusal = ask(world, 0, Wraps(turn=FIRST, ciphertexts=b""))
    assert (refusal.code, refusal.cause) == ("CH613", 2)


def test_ciphertexts_that_nobody_owes_it_are_refused(world):
    offers = offers_of(world)
    assert isinstance(ask(world, 1, Offers(turn=FIRST, offers=pack(offers))), Wrapped)
    assert code_of(world, 1, Wraps(turn=FIRST, ciphertexts=pack({2: bytes(1088)}))) == "CH605"
    offers = offers_of(world)
    assert isinstance(ask(world, 1, Offers(turn=FIRST, offers=pack(offers))), Wrapped)
    assert code_of(world, 1, Wraps(turn=FIRST, ciphertexts=b"")) == "CH605"  # keys with one other: no sum of three


def test_devices_that_saw_different_offers_or_another_ciphertext_share_nothing(world):
    """A server that swaps a ciphertext, or shows two sets of offers, gets no sum and no key."""
    offers = offers_of(world)
    wrapped = [ask(world, number, Offers(turn=FIRST, offers=pack(offers))) for number in range(3)]
    records = {number: unpack(one.ciphertexts, 1088, most=3) for number, one in enumerate(wrapped)}
    swapped, _ = HybridKey.fresh().wrap(offers[1][:1216])  # the server knows what is in this one
    for number, handed in enumerate([{}, {0: swapped}, {0: records[0][2], 1: records[1][2]}]):
        assert isinstance(ask(world, number, Wraps(turn=FIRST, ciphertexts=pack(handed))), Agreed)
    memories = [Vault.open(store).memory for store in world.stores]
    ids = world.terms.ids
    assert memories[0].chains.keys[ids[1]] != memories[1].chains.keys[ids[0]]
    assert memories[0].chains.keys[ids[2]] == memories[2].chains.keys[ids[0]]
    with pytest.raises(Exception, match="CH50"):
        world.wire(attempts=1).sum(1, range(3), world.model)


def test_an_agreement_under_other_terms_is_refused(world):
    assert code_of(world, 0, Gather(turn=FIRST, terms=bytes(32))) == "CH603"


def test_a_study_with_the_keys_of_its_cards_takes_no_agreement():
    world = World(THREE)
    assert code_of(world, 0, Gather(turn=FIRST, terms=world.terms.digest)) == "CH605"
    assert world.agrees(world.wire().sum(1, range(3), world.model))
    assert Vault.open(world.stores[0]).memory.chains is None


def test_an_offer_fits_its_record_and_the_terms_make_room_for_all_of_them(world):
    _, roster = enrolled(3)
    assert OFFER_BYTES == 1280 and world.terms.records_bytes >= len(roster) * (4 + OFFER_BYTES)
    assert world.terms.digest != World(THREE).terms.digest
    assert isinstance(ask(world, 0, Gather(turn=FIRST, terms=world.terms.digest)), Offer)
