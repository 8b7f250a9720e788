"""One device breaks the protocol: the round ends with the others, nobody honest is named or pays more than twice."""

import os
from collections.abc import Callable, Iterator, Mapping

import msgspec
import numpy as np
import pytest

from choral.core import device as device_module
from choral.core.errors import SumError
from choral.core.masks import Stream
from choral.core.messages import Edges, Opening, Turn, Upload, encode, pack, unpack
from choral.core.plan import SecureSum
from choral.core.shares import split
from choral.core.terms import check_words
from tests.protocol.world import World

FOUR = SecureSum(cohort=4, smallest_sum=3, threshold=2)
TEN = SecureSum(cohort=10, smallest_sum=8, threshold=7, colluders=2)
RECORD = 32  # bytes of a key or share in EDGES and OPENING


class Liar:
    """A device whose code is replaced while it answers, and whose answers may be changed on their way out."""

    def __init__(self, world: World, number: int, *, patches: Mapping[str, object], rewrite: Callable = lambda m: m):
        self.device, self.world, self.patches, self.rewrite = world.devices[number], world, patches, rewrite

    def answer(self, frame: bytes) -> bytes:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.patches.items():
                patch.setattr(device_module, name, value)
            reply = self.device.answer(frame)
        message, vector = self.world.read_all(reply)
        changed = self.rewrite(message)
        return reply if changed is message else encode(changed, vector)


class OneLiarTransport:
    """All devices in one process, one of them a liar; some are silent in the exchange of the given number."""

    def __init__(self, world: World, liar: int, bad: Liar, silent: Mapping[int, int]) -> None:
        self._world, self._liar, self._bad, self._silent, self.exchanges = world, liar, bad, silent, 0

    def exchange(self, outbox: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        step, self.exchanges = self.exchanges, self.exchanges + 1
        for number, frame in outbox.items():
            reply = (self._bad if number == self._liar else self._world.devices[number]).answer(frame)
            if self._silent.get(step) != number:
                yield number, reply


def wrong_value(kind: type) -> Callable:
    """Every key or share that the liar reveals in this message is another one than asked for."""

    def rewrite(message):
        if not isinstance(message, kind):
            return message
        field = kind.__struct_fields__[2]
        reported = unpack(getattr(message, field), RECORD, most=10)
        return msgspec.structs.replace(message, **{field: pack({number: os.urandom(RECORD) for number in reported})})

    return rewrite


def add_to_words(world: World, number: int, where: int, what: int) -> Liar:
    def encode_falsely(update, _round, _attempt, out):
        world.terms.codec.encode(update, Stream.fresh(), out=out)
        out[where] += out.dtype.type(what)

    world.devices[number] = world.start(number, encode=encode_falsely)
    return Liar(world, number, patches={})


def false_checks(terms, mask):
    """A false count lane, and a self mask that is said to have added as much to it: only the opened mask shows it."""
    return check_words(terms, mask) + np.uint32([1, 0])


def some_shares(secret, threshold, points, bad):
    """Shares of which some are wrong, though every envelope opens."""
    shares = split(secret, threshold, points)
    return [os.urandom(31) + b"\0" if place in bad else share for place, share in enumerate(shares)]


MISBEHAVIOURS = {
    "bad envelope": lambda world, liar: Liar(world, liar, patches={"seal": lambda *_: os.urandom(60)}),
    "wrong shares for all": lambda world, liar: Liar(
        world, liar, patches={"split": lambda *of: some_shares(*of, bad=range(10))}
    ),
    "wrong commitment": lambda world, liar: Liar(world, liar, patches={"commitment": lambda *_: os.urandom(32)}),
    "overflow": lambda world, liar: add_to_words(world, liar, 0, 2**31),
    "count lane": lambda world, liar: add_to_words(world, liar, world.terms.parameters, 1),
    "zero lane": lambda world, liar: add_to_words(world, liar, world.terms.parameters + 1, 1),
    "wrong edge key": lambda world, liar: Liar(world, liar, patches={}, rewrite=wrong_value(Edges)),
    "false account of a self mask": lambda world, liar: Liar(world, liar, patches={"check_words": false_checks}),
    "wrong share": lambda world, liar: Liar(world, liar, patches={}, rewrite=wrong_value(Opening)),
}


def play(secure: SecureSum, what: str, liar: int):
    """One round of three attempts at most, in which one device misbehaves whenever it can."""
    world = World(secure)
    bad = MISBEHAVIOURS[what](world, liar)
    # Edges are asked for only where somebody is missing: an honest device, in UPLOAD of the first attempt.
    silent = {1: (liar + 1) % secure.cohort} if what == "wrong edge key" else {}
    wire = world.wire(OneLiarTransport(world, liar, bad, silent))
    return world, wire, wire.sum(0, range(secure.cohort), world.model)


@pytest.mark.parametrize("end", ["low", "high"])
@pytest.mark.parametrize("secure", [FOUR, TEN], ids=["r = 4", "r = 10"])
@pytest.mark.parametrize("what", MISBEHAVIOURS)
def test_the_round_ends_with_the_others_and_nobody_honest_is_named_or_pays_more_than_twice(what, secure, end):
    liar = 0 if end == "low" else secure.cohort - 1
    world, wire, total = play(secure, what, liar)
    honest = set(range(secure.cohort)) - {liar}
    assert all(len(world.ledgers[number].charged) <= 2 for number in honest)
    if what == "overflow":  # the sum does not say who: nobody is named, and only the number out of range is left out
        assert wire.named == {} and total.count == secure.cohort and total.spoilt == 1
        assert total.integers.tolist() == [0, *world.expected(total.included, total.turn)[1:]]
    else:
        assert wire.named.keys() == {liar}
        assert world.agrees(total)
        assert total.count >= secure.smallest_sum
        # Who is only caught as it opens others' masks has sent an honest update itself, and that one counts.
        assert (world.terms.ids[liar] in total.included) == (what == "wrong share")


def tried_twice(what: str, devices: int, liar: int):
    """Two attempts at a round of four with the default settings: the second leaves out who was named in the first."""
    world = World(SecureSum.for_cohort(4), devices=devices)
    wire = world.wire(OneLiarTransport(world, liar, MISBEHAVIOURS[what](world, liar), {}), attempts=1)
    errors = []
    for attempt in range(2):
        called = [number for number in range(devices) if number not in wire.named][:4]
        try:
            return world, wire, wire.attempt(Turn(0, attempt), called, world.model)
        except SumError as error:
            errors.append(error)
    return world, wire, errors[-1]


@pytest.mark.parametrize("liar", [0, 3])
@pytest.mark.parametrize("what", MISBEHAVIOURS)
def test_a_round_of_four_that_counts_a_colluder_ends_with_a_fifth_device_in_the_place_of_the_liar(what, liar):
    """The default from four devices on: one may collude, so nobody may be missing (s + u_min must reach r + c + 1)."""
    world, wire, total = tried_twice(what, 5, liar)
    assert world.terms.secure.colluders == 1 and world.terms.secure.smallest_sum == 4
    assert wire.named.keys() <= {liar} and total.count == 4
    assert all(len(world.ledgers[number].charged) <= 2 for number in set(range(5)) - {liar})
    assert total.spoilt or world.agrees(total)


@pytest.mark.parametrize("what", sorted(MISBEHAVIOURS.keys() - {"overflow", "wrong edge key"}))
def test_four_devices_without_a_fifth_pay_once_name_the_liar_and_learn_what_would_help(what):
    """Three of them could only go on by not counting a colluder: safety comes first, and a person decides."""
    world, wire, error = tried_twice(what, 4, 0)
    assert isinstance(error, SumError) and wire.named.keys() == {0}
    assert "3 devices can be called, 4 are needed" in str(error) and "colluders" in str(error)
    assert all(len(world.ledgers[number].charged) <= 1 for number in (1, 2, 3))


@pytest.mark.parametrize("bad", [{0}, {8}, {3, 7}, {0, 1}])
def test_shares_of_which_some_are_wrong_open_and_name_who_dealt_them_not_who_held_them(bad):
    """Nine hold a share and seven are needed: further sets of seven are tried against the commitment."""
    world = World(TEN)
    dealer = Liar(world, 4, patches={"split": lambda *of: some_shares(*of, bad=bad)})
    wire = world.wire(OneLiarTransport(world, 4, dealer, {}))
    total = wire.sum(0, range(10), world.model)
    assert total.count == 10 and world.agrees(total)
    # A wrong share that was not needed is not looked at.
    found = {4: "sealed shares that do not open what it committed to"} if min(bad) < 7 else {}
    assert wire.named == found
    assert all(len(ledger.charged) == 1 for ledger in world.ledgers)


def quarrelsome(world: World, liar: int, victims: set[int]) -> Liar:
    """A device that uses other keys with some others than those that they have agreed on, and is true to itself."""
    vault = world.devices[liar].vault
    vault.change(pairs=vault.memory.pairs | {world.terms.ids[victim]: os.urandom(4 * 32) for victim in victims})
    world.devices[liar] = world.start(liar)
    return Liar(world, liar, patches={})


@pytest.mark.parametrize("secure", [FOUR, TEN], ids=["r = 4", "r = 10"])
def test_of_two_that_contradict_each_other_one_is_left_out_by_lot_and_nobody_is_named(secure):
    left_out = set()
    for round in range(12):  # the same one each time: once in 2^11
        world = World(secure)
        wire = world.wire(OneLiarTransport(world, 0, quarrelsome(world, 0, {2}), {}))
        total = wire.sum(round, range(secure.cohort), world.model)
        assert total.count == secure.cohort - 1 and world.agrees(total)
        assert wire.named == {} and wire.findings.quarrels == {(0, 2)}
        assert str(wire.findings) == " (contradict each other: device-0000 and device-0002)"
        left_out |= set(range(secure.cohort)) - {world.terms.numbers[id] for id in total.included}
    assert left_out == {0, 2}


@pytest.mark.parametrize("secure", [FOUR, TEN], ids=["r = 4", "r = 10"])
def test_who_lays_down_a_false_key_is_named_when_it_has_to_reveal_it(secure):
    """It contradicts one other: if the lot leaves that one out, the liar must reveal a key and contradicts itself."""
    named = set()
    for round in range(12):
        world = World(secure)

        def rewrite(message, world=world):
            if not isinstance(message, Upload):
                return message
            bonds = unpack(message.bonds, world.terms.bond_bytes, most=10)
            false = {2: bonds[2][:60] + os.urandom(48) + bonds[2][108:]}
            return msgspec.structs.replace(message, bonds=pack(bonds | false))

        wire = world.wire(OneLiarTransport(world, 0, Liar(world, 0, patches={}, rewrite=rewrite), {}))
        total = wire.sum(round, range(secure.cohort), world.model)
        assert total.count >= secure.smallest_sum and world.agrees(total)
        assert all(len(ledger.charged) <= 2 for ledger in world.ledgers)
        named |= wire.named.keys()
    assert named == {0}


@pytest.mark.parametrize("secure", [FOUR, TEN], ids=["r = 4", "r = 10"])
def test_who_contradicts_everybody_is_left_out_alone(secure):
    world = World(secure)
    others = set(range(secure.cohort)) - {1}
    wire = world.wire(OneLiarTransport(world, 1, quarrelsome(world, 1, others), {}))
    total = wire.sum(0, range(secure.cohort), world.model)
    assert {world.terms.numbers[id] for id in total.included} == others and world.agrees(total)
    assert wire.named == {}


def test_a_sum_with_false_words_everywhere_costs_two_charges_says_that_nobody_can_be_named_and_stops():
    """All words but the check lanes are noise: no sum comes out, and what is within the range is not believed."""
    world = World(TEN, parameters=200)

    def noise(update, _round, _attempt, out):
        world.terms.codec.encode(update, Stream.fresh(), out=out)
        out[:200] = np.frombuffer(os.urandom(800), np.uint32)

    world.devices[3] = world.start(3, encode=noise)
    wire = world.wire()
    with pytest.raises(SumError) as failure:
        wire.sum(0, range(10), world.model)
    # The third attempt ends before anybody is asked: no device pays for it.
    assert "0 of 10 devices are ready" in str(failure.value) and "device-0004 CH607" in str(failure.value)
    assert all(ledger.charged == [(0, 0), (0, 1)] for ledger in world.ledgers)
    with pytest.raises(SumError, match=r"CH502.*masks hide which, so nobody can be named") as failure:
        wire.attempt(Turn(1, 0), range(10), world.model)
    assert wire.named == {}
