"""The server's half: streaming, silence, disorder, wrong answers, and errors that say what was missing."""

import random

import msgspec
import pytest

from choral.core.errors import LedgerError, PlanError, SumError
from choral.core.keys import KEY_SIZE
from choral.core.messages import (
    Edges,
    Opening,
    Ready,
    Turn,
    encode,
    pack,
    unpack,
)
from choral.core.terms import context_of
from choral.server import round as round_module
from choral.server.round import Readiness, Round
from choral.server.uploads import Uploads
from tests.protocol.test_messages import mutated
from tests.protocol.world import FIRST, World


@pytest.fixture
def world():
    return World()


def failure_of(action) -> SumError:
    with pytest.raises(SumError) as failure:
        action()
    return failure.value


def test_too_few_ready_devices_are_reported_before_anybody_is_asked_for_an_update(world):
    readiness = world.readiness(called=range(7))
    failure = failure_of(lambda: Round(readiness, world.model.tobytes()))
    assert failure.code == "CH503"
    assert str(failure).startswith("CH503 round 0, attempt 0: only 7 devices can be called, 8 are needed;")
    assert all(ledger.charged == [] for ledger in world.ledgers)


@pytest.mark.parametrize("called", [range(11), range(5, 13)])
def test_a_cohort_that_the_plan_does_not_have_is_not_called(called):
    with pytest.raises(PlanError) as refusal:
        Readiness(World(devices=12).terms, FIRST, called)
    assert refusal.value.code == "CH204"


def test_the_error_says_what_was_missing_and_who_refused_by_which_code(world):
    for number in (0, 5, 6):
        world.ledgers[number].limit = 0
    failure = failure_of(lambda: world.step(world.round()))
    assert str(failure) == (
        "CH503 round 0, attempt 0: 7 of 10 devices sent a masked update, 8 needed; the server learned nothing;"
        " the 7 that sent an update are charged to be safe"
        " (refused: device-0000 CH401 because of itself, device-0005 CH401 because of itself,"
        " device-0006 CH401 because of itself)."
        " Try the round again: every attempt has fresh masks, fresh noise and its own charge."
    )
    assert sum(len(ledger.charged) for ledger in world.ledgers) == 7


def test_too_few_shares_are_reported_as_such(world):
    round = world.round()
    world.step(round)
    failure = failure_of(lambda: world.step(round, silent=range(3)))
    assert "6 of 9 devices opened its share of a self mask, 7 needed" in str(failure)
    assert round.sum is None


def test_a_round_in_which_nobody_is_missing_has_no_edges(world):
    round = world.round()
    world.step(round)
    assert round.stage == "final"
    world.step(round)
    assert round.stage == "done" and world.agrees(round.sum)


def test_edges_are_asked_again_when_somebody_falls_silent_in_them(world):
    round = world.round()
    world.step(round, silent={2})
    assert round.stage == "edges" and 2 not in round.outbox()
    world.step(round, silent={7})
    assert round.stage == "edges" and round.included == (0, 1, 3, 4, 5, 6, 8, 9)
    world.step(round)
    assert round.stage == "final"
    world.step(round)
    assert round.sum.count == 8 and world.agrees(round.sum)


def test_late_repeated_and_foreign_messages_change_nothing(world):
    round = world.round()
    replies = {number: world.devices[number].answer(frame) for number, frame in round.outbox().items()}
    for number, reply in replies.items():
        if number != 4:
            round.receive(number, reply)
            round.receive(number, reply)  # repeated
            round.receive((number + 1) % 10, reply)  # under another's name
            round.receive(77, reply)  # from nobody
    round.advance()
    round.receive(4, replies[4])  # late
    assert world.finish(round).included == tuple(world.terms.ids[number] for number in range(10) if number != 4)
    assert world.agrees(round.sum)


def test_an_upload_of_an_earlier_attempt_is_not_added(world):
    first = world.round()
    old = {number: world.devices[number].answer(frame) for number, frame in first.outbox().items()}
    again = world.round(Turn(0, 1))
    for number, reply in old.items():
        again.receive(number, reply)
    total = world.finish(again)
    assert total.turn == Turn(0, 1) and total.count == 10 and world.agrees(total)


def test_an_upload_with_bonds_for_the_wrong_devices_counts_as_silence(world):
    round = world.round()
    replies = {number: world.devices[number].answer(frame) for number, frame in round.outbox().items()}
    message, vector = world.read_all(replies[4])
    bonds = unpack(message.bonds, world.terms.bond_bytes, most=10)
    del bonds[0]
    replies[4] = encode(msgspec.structs.replace(message, bonds=pack(bonds)), vector)
    for number, reply in replies.items():
        round.receive(number, reply)
    round.advance()
    assert 4 not in round.included and round.findings.refusals == {4: "CH600"}
    assert world.agrees(world.finish(round))


def test_the_server_hashes_its_model_only_where_devices_disagree_and_then_believes_itself(world, monkeypatch):
    hashed = []
    monkeypatch.setattr(round_module, "context_of", lambda *of: (hashed.append(of), context_of(*of))[1])
    assert world.agrees(world.finish(world.round()))
    assert hashed == []

    # Two say another ctx, and they are the first: neither their number nor their order decides.
    round = world.round(Turn(1, 0))
    replies = {number: world.devices[number].answer(frame) for number, frame in round.outbox().items()}
    for number, reply in replies.items():
        message, vector = world.read_all(reply)
        if number < 2:
            message = msgspec.structs.replace(message, context=b"x" * 32)
        round.receive(number, encode(message, vector))
    round.advance()
    assert len(hashed) == 1 and round.findings.refusals == {0: "CH604", 1: "CH604"}
    total = world.finish(round)
    assert total.count == 8 and world.agrees(total)


def test_one_wrong_envelope_key_among_nine_names_who_revealed_it_and_the_sum_opens(world):
    round = world.round()
    world.step(round)
    for number, frame in round.outbox().items():
        opening = world.read(world.devices[number].answer(frame))
        if number == 0:
            keys = unpack(opening.keys, KEY_SIZE, most=10)
            opening = Opening(turn=FIRST, device=0, keys=pack(keys | {5: bytes(32)}), ready=None)
        round.receive(number, encode(opening))
    round.advance()
    assert world.agrees(round.sum) and round.sum.count == 10
    assert round.findings.named == {0: "revealed another envelope key than it had laid down"}


def test_a_wrong_pair_key_names_who_revealed_it_and_the_sum_opens_without_it(world):
    round = world.round()
    world.step(round, silent={9})
    for number, frame in round.outbox().items():
        edges = world.read(world.devices[number].answer(frame))
        if number == 0:
            edges = Edges(turn=FIRST, device=0, keys=pack({9: bytes(32)}))
        round.receive(number, encode(edges))
    round.advance()
    assert round.included == tuple(range(1, 9))
    assert world.agrees(world.finish(round))
    assert round.findings.named == {0: "revealed another mask key than it had laid down"}


def test_the_next_turns_ready_rides_on_final(world):
    world = World(devices=12)
    following = Readiness(world.terms, Turn(1, 0), range(2, 12))
    round = Round(world.readiness(called=range(10)), world.model.tobytes(), following=following)
    world.step(round)
    assert set(round.outbox()) == set(range(12))  # 10 and 11 are called beside
    world.step(round)
    assert world.agrees(round.sum)
    assert sorted(following.nonces) == list(range(2, 12)) and following.outbox() == {}
    # And the next round starts with OMEGA at once.
    assert world.agrees(world.finish(Round(following, world.model.tobytes())))


def test_a_ready_for_another_turn_or_from_nobody_called_is_not_taken(world):
    readiness = Readiness(world.terms, FIRST, range(10))
    calls = Readiness(world.terms, Turn(0, 1), range(10)).outbox()
    readiness.receive(3, world.devices[3].answer(calls[3]))
    readiness.receive(11, encode(Ready(turn=FIRST, device=11, nonce=bytes(16), signature=bytes(64))))
    readiness.receive(4, encode(Ready(turn=FIRST, device=5, nonce=bytes(16), signature=bytes(64))))
    world.devices[5] = world.start(5, payable=broke)
    readiness.receive(5, world.devices[5].answer(readiness.outbox()[5]))
    assert readiness.nonces == {} and readiness.findings.refusals == {4: "CH600", 5: "CH401"}
    assert readiness.findings.unproved == {}


def broke(*_turn):
    raise LedgerError("CH401", "the budget is spent.")


def test_what_a_device_did_not_sign_is_ignored_and_reported_as_not_proved(world):
    """An enrolled site answers in another's name: the other is neither ready nor counted as having spent its budget."""
    readiness = Readiness(world.terms, FIRST, range(10))
    frames = readiness.outbox()
    world.devices[3] = world.start(3, payable=broke)
    ready, refusal = world.read(world.devices[2].answer(frames[2])), world.read(world.devices[3].answer(frames[3]))
    readiness.receive(4, encode(msgspec.structs.replace(ready, device=4)))
    readiness.receive(5, encode(msgspec.structs.replace(refusal, device=5)))
    assert readiness.nonces == {} and readiness.findings.refusals == {}
    assert readiness.findings.unproved == {4: "READY", 5: "CH401"}
    failure = failure_of(readiness.close)
    assert "(not proved: READY in the name of device-0004, CH401 in the name of device-0005)" in str(failure)
    # The same in the middle of a turn, and for a READY that rides on the end of the one before.
    round = Round(
        world.readiness(Turn(1, 0)), world.model.tobytes(), following=Readiness(world.terms, Turn(2, 0), range(10))
    )
    round.receive(6, encode(msgspec.structs.replace(refusal, turn=Turn(1, 0), device=6)))
    assert round.findings.refusals == {} and round.findings.unproved == {6: "CH401"}
    world.step(round)
    for number, frame in round.outbox().items():
        opening = world.read(world.devices[number].answer(frame))
        if number == 7:
            opening = msgspec.structs.replace(opening, ready=opening.ready[:16] + bytes(64))
        round.receive(number, encode(opening))
    round.advance()
    assert round.following.findings.unproved == {7: "READY"} and 7 not in round.following.nonces
    assert world.agrees(round.sum)


def test_the_server_keeps_uploads_only_on_its_shelf_and_only_until_final(world):
    kept: dict[int, memoryview] = {}
    round = Round(world.readiness(), world.model.tobytes(), uploads=Uploads(32, kept))
    world.step(round, silent={1})
    assert len(kept) == 9
    world.step(round, silent={2})
    assert len(kept) == 8
    world.step(round)
    assert len(kept) == 0
    assert world.agrees(world.finish(round))


def test_mutated_replies_at_every_step_are_survived_and_give_the_right_sum_or_none():
    dice = random.Random(5)
    opened = 0
    for seed in range(150):
        world = World(parameters=4, seed=seed)
        round = world.round()
        try:
            while round.sum is None:
                for number, frame in round.outbox().items():
                    reply = world.devices[number].answer(frame)
                    if dice.random() < 0.1:
                        # All but the masked numbers: nobody can see a change in those, and nobody could prove it.
                        end = len(reply) - (world.terms.upload_bytes if round.stage == "upload" else 0)
                        round.receive(number, mutated(dice, reply[:end]) + reply[end:])
                    round.receive(number, reply) if dice.random() < 0.97 else None
                round.advance()
        except SumError:
            continue
        assert world.agrees(round.sum)
        opened += 1
    assert 50 < opened < 150
