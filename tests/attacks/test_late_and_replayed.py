"""Uploads that come late, rounds that are tried again, and messages of one turn used in another."""

import pytest

from choral.core import device as device_module
from choral.core import keys
from choral.core.masks import Mask
from choral.core.messages import Call, Drop, Final, Omega, Turn, encode, pack, pack_numbers
from choral.core.terms import context_of
from choral.server import secrets
from tests.attacks.loot import Loot, after_upload
from tests.protocol.world import FIRST, World

LATE = 4
AGAIN = Turn(0, 1)
OTHERS = sorted(set(range(10)) - {LATE})


def finish_without(loot: Loot, late: int) -> None:
    """An honest end of the turn for everybody but the late device."""
    others = sorted(set(loot.cohort.numbers) - {late})
    for number in others:
        loot.drop(number, {late})
    for number in others:
        loot.final(number)


@pytest.fixture
def known_self_masks(monkeypatch):
    """The weakness that the paper's protocol has: no self mask, or one that everybody knows."""
    monkeypatch.setattr("choral.core.device.self_mask", lambda *_: Mask(bytes(32), True))
    return {number: bytes(32) for number in range(10)}


def test_an_upload_that_comes_after_final_stays_masked():
    loot = after_upload(World())  # the late device's upload is in the loot: it came in the end
    finish_without(loot, LATE)
    assert set(loot.openable()) == {frozenset(OTHERS)}


def test_without_self_masks_an_upload_that_comes_after_final_is_read(known_self_masks):
    world = World()
    loot = after_upload(world)
    finish_without(loot, LATE)
    loot.self_mask_keys = known_self_masks
    assert loot.openable()[frozenset({LATE})] == world.update(LATE).tolist()


def same_update_in_every_attempt(world: World) -> World:
    """Retry differencing needs updates that repeat; ours have fresh noise in every attempt, taken away here."""
    world.train_by(lambda number, *_: world.update(number))
    return world


def retried(world: World) -> tuple[Loot, Loot]:
    """A turn in which the late device's upload came too late for EDGES, and the retry without it."""
    first = after_upload(world)
    for number in OTHERS:
        first.drop(number, {LATE})
    again = Loot(world, world.readiness(AGAIN, OTHERS))
    omega = Omega(turn=AGAIN, terms=world.terms.digest, cohort=pack(again.readiness.nonces))
    for number in OTHERS:
        again.ask(number, encode(omega, world.model.tobytes()))
    for number in OTHERS:
        again.final(number)
        first.final(number)  # and once more for the first attempt, as if it were still open
    return first, again


def test_a_retry_gives_no_difference_of_two_sums():
    first, again = retried(same_update_in_every_attempt(World()))
    assert set(again.openable()) == {frozenset(OTHERS)}
    assert first.openable() == {}
    assert set(first.refusals.values()) == {"CH605"}


def test_without_self_masks_a_retry_gives_the_late_devices_update(known_self_masks):
    world = same_update_in_every_attempt(World())
    first, again = retried(world)
    first.self_mask_keys = again.self_mask_keys = known_self_masks
    all_ten, nine = first.openable()[frozenset(range(10))], again.openable()[frozenset(OTHERS)]
    assert [a - b for a, b in zip(all_ten, nine, strict=True)] == world.update(LATE).tolist()


def replay_envelopes(world: World) -> tuple[Loot, Loot]:
    """The late device's envelopes of turn 0 are tried with the keys of turn 1, where it takes part again."""
    old = after_upload(world)
    for number in OTHERS:
        old.drop(number, {LATE})
    new = after_upload(world, Turn(1, 0))
    for number in OTHERS:
        new.final(number)
        old.open(LATE, number, new.envelope_keys[LATE, number])
    return old, new


def test_an_envelope_of_another_turn_does_not_open():
    old, new = replay_envelopes(World())
    assert old.shares == {} and len(new.shares[LATE]) == 9
    assert old.openable() == {}


def test_envelopes_that_are_not_bound_to_their_turn_give_the_late_upload_away(monkeypatch):
    for module in (keys, device_module):
        monkeypatch.setattr(module, "envelope_key", lambda seed, _: seed)
    for module in (keys, secrets):
        monkeypatch.setattr(module, "bound_to", lambda *_: b"")
    world = World()
    old, _ = replay_envelopes(world)
    assert old.openable()[frozenset({LATE})] == world.update(LATE).tolist()


@pytest.mark.parametrize(("sender", "receiver"), [(0, 9), (1, 3), (3, 0)])
def test_a_key_opens_no_envelope_for_another_device_nor_from_another_nor_the_answer(sender, receiver):
    loot = after_upload(World())
    loot.final(3)  # who reveals its keys to the envelopes that it was sent, that of device 0 among them
    loot.shares.clear()
    loot.open(sender, receiver, loot.envelope_keys[0, 3])
    assert loot.shares == {}
    loot.open(0, 3, loot.envelope_keys[0, 3])
    assert set(loot.shares) == {0}


def test_messages_of_an_earlier_turn_are_refused_and_do_not_disturb_the_present_one():
    world = World()
    old = after_upload(world)
    new = after_upload(world, Turn(1, 0))
    frames = [
        encode(Call(turn=FIRST)),
        encode(Omega(turn=FIRST, terms=world.terms.digest, cohort=pack(old.readiness.nonces)), world.model.tobytes()),
        encode(Drop(turn=FIRST, dropped=pack_numbers({LATE}))),
        encode(Final(turn=FIRST, following=None)),
    ]
    for frame in frames:
        old.refusals.clear()
        old.ask(0, frame)
        assert old.refusals == {0: "CH605"}
    for number in range(10):
        new.final(number)
    assert set(new.openable()) == {frozenset(range(10))}
    assert old.openable() == {}


def test_a_device_that_restarts_in_mid_turn_has_dropped_out_and_takes_the_turn_with_it():
    world = World()
    loot = after_upload(world)
    for number in range(10):
        world.devices[number] = world.start(number)
    for number in range(10):
        loot.drop(number, {LATE} - {number} or {0})
        loot.final(number)
    assert set(loot.refusals.values()) == {"CH605"} and len(loot.refusals) == 10
    assert loot.openable() == {}
    # The turn itself is remembered too: the same masked update can't be had twice.
    loot.refusals.clear()
    loot.ask(0, encode(Call(turn=FIRST)))
    assert loot.refusals == {0: "CH605"}
    assert world.ledgers[0].charged == [(0, 0)]


def test_a_vault_rolled_back_by_somebody_costs_a_second_charge_and_shows_nothing():
    world = World()
    before = [store.data for store in world.stores]
    first = after_upload(world)
    for number, data in enumerate(before):
        world.stores[number].data = data
        world.devices[number] = world.start(number)
    second = after_upload(world)
    assert first.cohort.context != second.cohort.context
    assert first.openable() == second.openable() == {}
    assert all(ledger.charged == [(0, 0), (0, 0)] for ledger in world.ledgers)


def test_the_same_turn_never_has_the_same_context_twice():
    world = World()
    contexts = {context_of(world.terms, FIRST, b"", world.readiness().nonces) for _ in range(50)}
    assert len(contexts) == 50
