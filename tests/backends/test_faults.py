"""Seeded schedules of faults: every run ends in the right sum or a clear error, and nothing is released uncharged."""

import random
from collections import Counter

import pytest

from choral.core.errors import SumError
from choral.core.messages import Turn, Upload
from choral.core.plan import SecureSum
from tests.backends.faulty import Crash, Faults, FaultyTransport
from tests.protocol.world import FIRST, World

SIX = SecureSum(cohort=6, smallest_sum=5, threshold=3, colluders=1)
# READY, UPLOAD, FINAL, and EDGES at most once for each device that may drop out.
MOST_EXCHANGES = 3 + SIX.cohort - SIX.smallest_sum


class Watched(FaultyTransport):
    """A faulty transport that notes every upload that leaves a device, and counts its exchanges."""

    def __init__(self, world, faults):
        self._world = world
        self.released: Counter[tuple[int, int, int]] = Counter()
        self.exchanges = 0
        super().__init__(faults, range(len(world.identities)), self._start_device)

    def _start_device(self, number):
        store = self._world.stores[number]
        write = type(store).write
        store.write = self.crashing(lambda data: write(store, data))
        train = self.crashing(lambda _model, round, attempt: self._world.update(number, round, attempt))
        while True:
            try:
                return self._world.start(number, train=train, charge=self.crashing(self._world.ledgers[number].charge))
            except Crash:  # it may crash in its start as well
                continue

    def exchange(self, outbox):
        self.exchanges += 1
        yield from super().exchange(outbox)

    def _deliver(self, number, frame):
        replies = super()._deliver(number, frame)
        for _, reply in replies:
            message = self._world.read(reply)
            if isinstance(message, Upload):
                self.released[number, message.turn.round, message.turn.attempt] += 1
        return replies


def a_schedule(seed: int) -> Faults:
    """Anything from a perfect network to one where most things fail."""
    dice = random.Random(seed)
    level = dice.choice((0.0, 0.003, 0.01, 0.03, 0.1))
    rates = {
        name: level * dice.choice((0, 0, 1, 1, 2)) for name in ("loss", "delay", "repeat", "crash", "server_crash")
    }
    return Faults(seed=seed, disorder=dice.choice((0.0, 1.0)), **rates)


def run_schedule(seed: int, rounds: int = 3) -> Counter[str]:
    """The ends of a few rounds under one schedule; every promise is checked on the way."""
    world = World(SIX, devices=7, parameters=3, seed=seed)
    transport = Watched(world, a_schedule(seed))
    ends: Counter[str] = Counter()
    last = FIRST
    for round in range(rounds):
        for attempt in range(6):
            transport.exchanges = 0
            # What the server keeps on disk is the last turn that it tried; a crash loses all the rest.
            wire = world.wire(transport, attempts=1, first=Turn(round, attempt))
            called = random.Random(f"{seed} {round} {attempt}").sample(range(7), 6)
            try:
                total = wire.sum(round, called, world.model)
            except SumError as error:
                ends[error.code] += 1
                assert error.code == "CH503"  # faults alone never make a sum that fails its checks
            except Crash:
                ends["server crash"] += 1
            else:
                ends["sum"] += 1
                assert world.agrees(total) and total.count >= SIX.smallest_sum
                assert total.turn > last or total.turn == FIRST
                last = total.turn
                break
            finally:
                assert transport.exchanges <= MOST_EXCHANGES
    for number, ledger in enumerate(world.ledgers):
        charged = Counter((number, *turn) for turn in ledger.charged)
        mine = Counter({key: count for key, count in transport.released.items() if key[0] == number})
        assert mine <= charged  # in every turn, so in sum
        assert all(count == 1 for count in mine.values())  # and no turn released twice
    return ends


def run_schedules(seeds: range) -> Counter[str]:
    ends: Counter[str] = Counter()
    for seed in seeds:
        ends += run_schedule(seed)
    return ends


def test_two_hundred_fault_schedules_end_in_the_right_sum_or_a_clear_error():
    ends = run_schedules(range(200))
    # Of 600 rounds most open, although no device pays for a third attempt; every other kind of end is really there.
    assert ends["sum"] > 350 and ends["CH503"] > 100 and ends["server crash"] > 50


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_ten_thousand_fault_schedules_end_in_the_right_sum_or_a_clear_error(block):
    assert run_schedules(range(1000 + 500 * block, 1000 + 500 * (block + 1)))["sum"] > 900  # of 1,500


def test_the_same_seed_gives_the_same_faults():
    def arrivals(seed):
        world = World(SIX, devices=7)
        transport = Watched(world, Faults(seed=seed, loss=0.2, delay=0.2, repeat=0.2, disorder=1.0))
        readiness = world.readiness()
        return [
            [number for number, _ in transport.exchange(readiness.outbox() or dict.fromkeys(range(7), b"x"))]
            for _ in range(5)
        ]

    assert arrivals(1) == arrivals(1) != arrivals(2)


def test_a_perfect_schedule_has_no_faults():
    world = World(SIX, devices=7)
    transport = Watched(world, Faults(seed=0))
    assert world.agrees(world.wire(transport, attempts=1).sum(0, range(6), world.model))


def test_each_fault_happens_when_it_is_asked_for():
    outbox = dict.fromkeys(range(7), b"not a frame")
    for rates in ({"loss": 1.0}, {"delay": 1.0}):
        assert list(Watched(World(SIX, devices=7), Faults(seed=0, **rates)).exchange(outbox)) == []
    transport = Watched(World(SIX, devices=7), Faults(seed=0, repeat=1.0))
    assert [number for number, _ in transport.exchange(outbox)] == sorted([*range(7)] * 4)
    transport = Watched(World(SIX, devices=7), Faults(seed=0, disorder=1.0))
    arrived = [number for number, _ in transport.exchange(outbox)]
    assert sorted(arrived) == list(range(7)) != arrived
    transport = Watched(World(SIX, devices=7), Faults(seed=0, server_crash=1.0))
    with pytest.raises(Crash):
        list(transport.exchange(outbox))


def test_a_delayed_message_arrives_in_a_later_exchange():
    transport = Watched(World(SIX, devices=7), Faults(seed=0, delay=1.0))
    assert list(transport.exchange({0: b"x"})) == []
    transport.faults = Faults(seed=0)
    assert [number for number, _ in transport.exchange({})] == [0]
