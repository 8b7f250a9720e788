"""What a device refuses, one test for each line of "What a device refuses" in docs/secure-sum.md."""

import contextlib
import random
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from choral.core.errors import LedgerError, PlanError, StorageError, TrainingError, TrustError
from choral.core.keys import Identity
from choral.core.messages import (
    Call,
    Drop,
    Edges,
    Final,
    Omega,
    Opening,
    Ready,
    Refusal,
    Turn,
    Upload,
    decode,
    encode,
    pack,
    pack_numbers,
)
from choral.core.plan import SecureSum
from choral.core.vault import FileStore, Memory, Vault
from choral.run.planning import sparse
from choral.server.findings import refusal_fields
from tests.attacks.loot import Loot, after_upload
from tests.protocol.test_messages import mutated
from tests.protocol.world import FIRST, TEN, World


def omega(world: World, nonces: dict[int, bytes], turn: Turn = FIRST) -> bytes:
    return encode(Omega(turn=turn, terms=world.terms.digest, cohort=pack(nonces)), world.model.tobytes())


def refusal_of(world: World, frame: bytes, number: int = 0) -> str:
    """The code by which a device refuses a frame; the frame gets no other answer."""
    reply = world.read(world.devices[number].answer(frame))
    assert isinstance(reply, Refusal)
    assert world.devices[number].refusal.code == reply.code
    return reply.code


@pytest.fixture
def world():
    return World()


@pytest.fixture
def live(world) -> Loot:
    return after_upload(world)


# Before UPLOAD


def test_it_refuses_the_same_turn_twice_or_going_back(world):
    after_upload(world, Turn(5, 1))
    for turn in (Turn(5, 1), Turn(5, 0), Turn(4, 7)):
        assert refusal_of(world, encode(Call(turn=turn))) == "CH605"
    assert isinstance(world.read(world.devices[0].answer(encode(Call(turn=Turn(5, 2))))), Ready)


def test_it_refuses_a_turn_for_which_it_was_not_ready(world):
    nonces = world.readiness(Turn(1, 0)).nonces
    assert refusal_of(world, omega(world, nonces, Turn(2, 0))) == "CH605"
    # And it has dropped out of the one that it was ready for.
    assert refusal_of(world, omega(world, nonces, Turn(1, 0))) == "CH605"


def test_it_refuses_an_omega_after_a_restart(world):
    nonces = world.readiness().nonces
    world.devices[0] = world.start(0)
    assert refusal_of(world, omega(world, nonces)) == "CH605"


def test_it_refuses_another_plan_than_the_one_that_it_pinned(world):
    nonces = world.readiness().nonces
    frame = encode(Omega(turn=FIRST, terms=b"x" * 32, cohort=pack(nonces)), world.model.tobytes())
    assert refusal_of(world, frame) == "CH603"


def test_it_refuses_unsorted_or_repeated_devices(world):
    nonces = world.readiness().nonces
    sorted_records = pack(nonces)
    swapped = sorted_records[20:40] + sorted_records[:20] + sorted_records[40:]
    repeated = sorted_records[:20] + sorted_records[:20] + sorted_records[40:]
    for cohort in (swapped, repeated):
        world.readiness()
        frame = encode(Omega(turn=FIRST, terms=world.terms.digest, cohort=cohort), world.model.tobytes())
        assert refusal_of(world, frame) == "CH600"


def test_it_refuses_devices_that_are_not_enrolled(world):
    nonces = {number: nonce for number, nonce in world.readiness().nonces.items() if number != 9}
    assert refusal_of(world, omega(world, nonces | {10: bytes(16)})) == "CH605"


def test_it_refuses_a_cohort_below_or_above_the_plan():
    world = World(devices=12)
    nonces = world.readiness().nonces
    assert refusal_of(world, omega(world, dict(list(nonces.items())[:7]))) == "CH605"
    nonces = world.readiness().nonces | {10: bytes(16), 11: bytes(16)}
    assert refusal_of(world, omega(world, nonces)) == "CH600"  # more records than the plan has places


def test_it_refuses_a_cohort_without_its_own_nonce(world):
    nonces = world.readiness().nonces
    assert refusal_of(world, omega(world, nonces | {0: bytes(16)})) == "CH604"


def test_it_refuses_when_its_ledger_does_and_nothing_was_sent(world):
    world.ledgers[0].limit = 0
    assert refusal_of(world, omega(world, world.readiness().nonces)) == "CH401"
    assert Vault.open(world.stores[0]).memory.turn is None


def test_it_pays_for_no_third_attempt_of_a_round_and_says_how_many_it_has_paid_for(world):
    for attempt in (0, 3):  # what counts are charges, not the numbers that a server gives its attempts
        after_upload(world, Turn(4, attempt))
    world.devices[0] = world.start(0)  # it counts in its vault
    assert refusal_of(world, encode(Call(turn=Turn(4, 4)))) == "CH607"
    assert "2 attempts of round 4 were charged here, and no more than 2 are" in str(world.devices[0].refusal)
    assert world.ledgers[0].charged == [(4, 0), (4, 3)]
    after_upload(world, Turn(5, 0))  # the next round is another matter
    assert world.ledgers[0].charged[-1] == (5, 0)


def test_a_call_that_came_before_the_second_charge_does_not_get_a_third(world):
    # A server that calls for two turns ahead still meets the limit where the device would pay.
    after_upload(world, Turn(4, 0))
    nonces = world.readiness(Turn(4, 2)).nonces
    world.devices[0].vault.change(turn=Turn(4, 1), attempts=2)
    assert refusal_of(world, omega(world, nonces, Turn(4, 2))) == "CH607"
    assert world.ledgers[0].charged == [(4, 0)]


def test_every_refusal_is_signed_and_says_whose_doing_it_was(world, monkeypatch):
    def reported(frame):
        refusal = world.read(world.devices[0].answer(frame))
        bundle = world.terms.roster.bundles[0]
        bundle.check(refusal.signature, *refusal_fields(refusal.turn, refusal.code, refusal.cause))
        return refusal.code, refusal.cause

    world.ledgers[0].limit = 0
    assert reported(omega(world, world.readiness().nonces)) == ("CH401", 0)  # its own budget
    assert reported(encode(Final(turn=FIRST, following=None))) == ("CH605", None)  # the server asks out of turn
    assert reported(b"no frame") == ("CH600", None)

    honest = Identity.pair
    small = world.terms.ids[7]

    def pair(self, peer, session):
        if peer.id == small:
            raise TrustError("CH606", "an agreement key of small order.")
        return honest(self, peer, session)

    monkeypatch.setattr(Identity, "pair", pair)
    world.devices[0].vault.change(pairs={})
    world.devices[0] = world.start(0)
    assert reported(omega(world, world.readiness().nonces)) == ("CH606", 7)  # a peer with whom there can be no mask
    assert reported(encode(Final(turn=FIRST, following=None))) == ("CH605", None)


def broke_from(first: int):
    """A ledger that can pay for the rounds before this one."""

    def payable(round: int, _attempt: int) -> None:
        if round >= first:
            raise LedgerError("CH401", "the budget is spent.")

    return payable


def test_it_refuses_when_called_what_its_ledger_would_refuse(world):
    world.devices[0] = world.start(0, payable=broke_from(0))
    assert refusal_of(world, encode(Call(turn=FIRST))) == "CH401"
    assert world.ledgers[0].charged == []


def test_who_can_not_pay_for_the_next_turn_still_opens_this_one(world):
    world.devices[0] = world.start(0, payable=broke_from(1))
    after_upload(world)
    opening = world.read(world.devices[0].answer(encode(Final(turn=FIRST, following=Turn(1, 0)))))
    assert isinstance(opening, Opening) and opening.keys and opening.ready is None


def test_it_refuses_to_send_what_it_can_not_remember(world):
    def full(_data):
        raise StorageError("CH801", "the disk is full.")

    nonces = world.readiness().nonces
    world.stores[0].write = full
    assert refusal_of(world, omega(world, nonces)) == "CH801"
    assert world.ledgers[0].charged == [(0, 0)]  # charged and not sent: never the other way round


def test_there_is_room_for_the_keys_with_all_peers_before_anything_is_charged(tmp_path, monkeypatch):
    """In the first turn a memory grows by a key for each peer: with 520 sites by more than what was kept free."""
    monkeypatch.setattr("choral.core.vault.GROWTH", 512)
    world, kept = World(), []
    identity, store = world.identities[0], FileStore(tmp_path / "vault")
    Vault.create(store, Memory(id=identity.id, secret=identity.to_bytes()))
    world.stores[0], found = store, FileStore.room

    @contextlib.contextmanager
    def room(self, size):
        with found(self, size) as write:
            yield lambda data: kept.append(size - len(data)) or write(data)

    monkeypatch.setattr(FileStore, "room", room)
    world.devices[0] = world.start(0)
    nonces = world.readiness().nonces
    assert isinstance(world.read(world.devices[0].answer(omega(world, nonces))), Upload)
    assert len(kept) == 1 and kept[0] >= 0, "bytes that were written beyond the room"


@pytest.mark.parametrize(
    ("train", "code"),
    [
        (lambda *_: np.zeros(4, np.float32), "CH500"),
        (lambda *_: np.zeros((5, 1), np.float32), "CH500"),
        (lambda *_: np.full(5, np.nan, np.float32), "CH501"),
        (lambda *_: np.full(5, np.inf, np.float32), "CH501"),
        (lambda *_: np.full(5, 1e9, np.float32), "CH501"),
    ],
)
def test_it_sends_no_update_that_does_not_fit_and_pays_for_saying_so(world, train, code):
    # Whether an update fits depends on the data: a refusal is a release of one bit.
    world.devices[0] = world.start(0, train=train)
    nonces = world.readiness().nonces
    assert refusal_of(world, omega(world, nonces)) == code
    assert world.ledgers[0].charged == [(0, 0)]
    assert refusal_of(world, encode(Call(turn=FIRST))) == "CH605"


def test_it_does_not_look_at_its_data_before_its_ledger_has_agreed(world):
    looked = []
    world.devices[0] = world.start(0, train=lambda *turn: looked.append(turn))
    world.ledgers[0].limit = 0
    assert refusal_of(world, omega(world, world.readiness().nonces)) == "CH401"
    assert looked == []


def test_a_failed_training_is_reported_by_its_code_only(world):
    def diverges(*_):
        raise TrainingError("CH700", "the loss of patient 17 is infinite.")

    world.devices[0] = world.start(0, train=diverges)
    reply = world.devices[0].answer(omega(world, world.readiness().nonces))
    assert b"CH700" in reply and b"patient" not in reply


def test_charge_and_turn_are_durable_before_the_upload_is_handed_out(world):
    steps = []
    write = world.stores[0].write
    world.stores[0].write = lambda data: (steps.append("vault"), write(data))
    charge = world.ledgers[0].charge
    world.devices[0] = world.start(
        0,
        charge=lambda *turn: (steps.append("charge"), charge(*turn))[1],
        train=lambda _, *turn: (steps.append("data"), world.update(0, *turn))[1],
    )
    reply = world.devices[0].answer(omega(world, world.readiness().nonces))
    steps.append("upload")
    assert isinstance(world.read(reply), Upload)
    assert steps == ["charge", "vault", "data", "upload"]
    memory = Vault.open(world.stores[0]).memory
    assert memory.turn == FIRST and memory.receipt == (1, "0" * 64)


# After UPLOAD


def test_it_refuses_to_be_dropped_itself(live):
    live.drop(0, {0, 1})
    assert live.refusals == {0: "CH605"}


def test_it_refuses_drop_outs_that_were_never_in():
    world = World(devices=12)
    live = after_upload(world)
    live.drop(0, {11})
    assert live.refusals == {0: "CH605"}


def test_it_refuses_fewer_survivors_than_the_plan_opens(live):
    live.drop(0, {1, 2})
    assert live.refusals == {}
    live.drop(0, {1, 2, 3})
    assert live.refusals == {0: "CH605"} and (0, 3) not in live.edges


def test_it_refuses_that_somebody_comes_back(live):
    live.drop(0, {1, 2})
    live.drop(0, {2, 3})
    assert live.refusals == {0: "CH605"} and (0, 3) not in live.edges


def test_after_a_doubt_it_has_dropped_out(live):
    live.drop(0, {0})
    live.refusals.clear()
    live.drop(0, {1})
    assert live.refusals == {0: "CH605"} and live.edges == {}
    live.final(0)
    assert live.shares == {}


def test_it_reveals_the_keys_of_the_dropped_and_no_others(live):
    live.drop(0, {3})
    assert set(live.edges) == {(0, 3)}
    live.drop(0, {3, 4})  # and the same again, should the first answer be lost
    assert set(live.edges) == {(0, 3), (0, 4)}


def test_it_opens_the_envelopes_of_those_who_have_not_dropped_and_of_nobody_else(live):
    live.drop(0, {3, 4})
    live.final(0)
    assert set(live.shares) == set(range(1, 10)) - {3, 4}
    assert set(live.edges) == {(0, 3), (0, 4)}


def test_it_refuses_everything_after_final(live):
    live.final(0)
    assert live.refusals == {}
    live.drop(0, {1})
    live.final(0)
    assert live.refusals == {0: "CH605"} and live.edges == {}


def test_it_refuses_drop_and_final_before_its_upload(world):
    world.readiness()
    assert refusal_of(world, encode(Drop(turn=FIRST, dropped=pack_numbers({1})))) == "CH605"
    assert refusal_of(world, encode(Final(turn=FIRST, following=None))) == "CH605"


def test_a_later_call_ends_the_turn_under_way(live):
    live.ask(0, encode(Call(turn=Turn(0, 1))))
    live.final(0)
    assert live.refusals == {0: "CH605"} and live.shares == {}


@pytest.mark.parametrize("following", [FIRST, Turn(0, 0)])
def test_a_final_that_calls_for_an_old_turn_gets_no_shares(live, following):
    live.ask(0, encode(Final(turn=FIRST, following=following)))
    assert live.refusals == {0: "CH605"} and live.shares == {}


def test_it_answers_final_with_shares_of_the_others_and_never_its_own(world, live):
    frame = encode(Final(turn=FIRST, following=Turn(1, 0)))
    opening = world.read(world.devices[0].answer(frame))
    assert isinstance(opening, Opening) and opening.ready is not None
    live.keep(0, encode(opening))
    assert set(live.shares) == set(range(1, 10))


def test_a_devices_message_sent_to_a_device_is_refused(world):
    assert refusal_of(world, encode(Edges(turn=FIRST, device=0, keys=b""))) == "CH600"


def test_mutated_frames_at_every_step_are_survived_and_never_make_it_say_more(world):
    live = after_upload(world)
    dice = random.Random(3)
    frames = [
        encode(Call(turn=Turn(0, 1))),
        omega(world, live.readiness.nonces),
        encode(Drop(turn=FIRST, dropped=pack_numbers({1, 2}))),
        encode(Final(turn=FIRST, following=None)),
    ]
    for _ in range(3000):
        if world.devices[0]._live is None:
            live = after_upload(world, Turn(world.devices[0].vault.memory.turn.round + 1, 0))
        turn, frame = live.turn, mutated(dice, dice.choice(frames))
        reply = world.read(world.devices[0].answer(frame))
        # A frame of another turn, or a damaged one, gets no secret out of it; what is still a whole FINAL may.
        assert not isinstance(reply, Upload)
        if isinstance(reply, Opening):
            asked, _ = decode(frame, vector_bytes=0, records_bytes=0)
            assert isinstance(asked, Final) and asked.turn == turn


def test_a_device_needs_at_most_three_vectors_from_omega_to_upload():
    size = 1_000_000
    world = World(parameters=size)
    update = world.update(0)
    world.devices[0] = world.start(0, train=lambda *_: update.copy())
    frame = omega(world, world.readiness().nonces)
    tracemalloc.start()
    try:
        reply = world.devices[0].answer(frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(reply) < 4.01 * size
    assert peak < 3 * 4 * size  # the update or the frame, the words, and buffers of a fixed size


def test_pair_secrets_are_remembered_and_no_repr_shows_them():
    world = World(devices=11)
    assert world.start(0).vault.memory.pairs == {}
    live = after_upload(world)
    again = world.start(0)
    assert set(again.vault.memory.pairs) == set(world.terms.ids[1:10])
    assert repr(again) == "Device('device-0000', last turn Turn(round=0, attempt=0))"
    pair = world.identities[0].pair(world.terms.roster.bundles[1], world.terms.roster_digest)
    for thing in (again, again.vault, pair, live.cohort):
        assert world.identities[0].to_bytes().hex() not in repr(thing)
        assert "rising" not in repr(thing)


def test_self_secrets_are_fresh_in_every_turn(world):
    secrets = set()
    for round in range(3):
        live = after_upload(world, Turn(round, 0))
        for number in range(10):
            live.final(number)
        secrets |= {live.self_secret(number) for number in range(10)}
    assert len(secrets) == 30 and None not in secrets


def test_round_secrets_are_never_written_down(world):
    written = []
    write = world.stores[0].write
    world.stores[0].write = lambda data: (written.append(data), write(data))
    live = after_upload(world)
    for number in range(10):
        live.final(number)
    secret = live.self_secret(0)
    assert secret is not None and written
    shares = [share for held in live.shares.values() for share in held.values()]
    assert not any(value in data for data in written for value in (secret, live.cohort.context, *shares))


def test_terms_whose_numbers_do_not_go_together_are_refused():
    world = World()
    dense = SecureSum(cohort=10, smallest_sum=6, threshold=3, adversary="curious", graph="harary", neighbours=6)
    for changes in (
        {"secure": SecureSum.for_cohort(20), "codec": replace(world.terms.codec, cohort=20)},
        {"secure": replace(TEN, modulus_bits=64)},
        {"secure": dense},
    ):
        with pytest.raises(PlanError) as refusal:
            replace(world.terms, **changes)
        assert refusal.value.code == "CH204"


@pytest.mark.parametrize("threshold", [10, 27])
def test_a_sparse_graph_that_hides_too_little_in_some_cohort_is_refused(threshold):
    # 27 gives 42.7 bits among a thousand, but 39.0 when a tenth of them stays at home; 40 are needed.
    world = World(sparse(1000), parameters=1)
    with pytest.raises(PlanError) as refusal:
        replace(world.terms, secure=replace(world.terms.secure, threshold=threshold))
    assert refusal.value.code == "CH205"
