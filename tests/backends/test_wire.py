"""Rounds over a transport: attempts, exchanges, the store, and a large sparse cohort."""

import io
import tempfile
import tracemalloc

import numpy as np
import pytest

from choral.backends.wire import DroppingTransport, MemoryTransport, UploadStore, drops_out
from choral.core.errors import SumError
from choral.core.messages import Turn
from choral.run.planning import sparse
from tests.protocol.world import FIRST, SilentTransport, World


class Counting(MemoryTransport):
    exchanges = 0

    def exchange(self, outbox):
        self.exchanges += 1
        yield from super().exchange(outbox)


def test_a_round_takes_two_exchanges_when_ready_rides_on_final():
    world = World()
    transport = Counting(world.devices)
    wire = world.wire(transport)
    counts = []
    for round in range(4):
        before = transport.exchanges
        assert world.agrees(wire.sum(round, range(10), world.model, following=range(10)))
        counts.append(transport.exchanges - before)
    assert counts == [3, 2, 2, 2]


def test_a_failed_attempt_is_tried_again_as_another_turn_with_its_own_charge():
    world = World()
    # Exchanges 0 READY, 1 UPLOAD of the first attempt: three are silent in it, and come back.
    transport = SilentTransport(world, {})
    answer = transport.exchange

    def exchange(outbox):
        gone = {0, 1, 2} if transport.exchanges == 1 else set()
        return [(number, reply) for number, reply in answer(outbox) if number not in gone]

    transport.exchange = exchange
    total = world.wire(transport).sum(0, range(10), world.model)
    assert total.turn == Turn(0, 1) and total.count == 10 and world.agrees(total)
    assert all(ledger.charged == [(0, 0), (0, 1)] for ledger in world.ledgers)


def test_the_error_of_the_last_attempt_is_raised():
    world = World()
    with pytest.raises(SumError) as failure:
        world.wire(SilentTransport(world, dict.fromkeys(range(3), 0)), attempts=2).sum(3, range(10), world.model)
    assert failure.value.where == "round 3, attempt 1:"


def test_a_restarted_server_goes_on_after_the_last_turn_that_was_tried():
    world = World()
    world.wire().sum(5, range(10), world.model)
    with pytest.raises(SumError, match="CH605"):
        world.wire(attempts=1).sum(5, range(10), world.model)
    again = world.wire(attempts=1, first=Turn(5, 1)).sum(5, range(10), world.model)
    assert again.turn == Turn(5, 1) and world.agrees(again)


def test_the_wire_says_who_refused_even_when_the_sum_opens():
    world = World()
    world.ledgers[4].limit = 0
    wire = world.wire()
    assert wire.sum(0, range(10), world.model).count == 9
    assert wire.findings.refusals == {4: "CH401"}


def test_devices_get_the_model_that_was_given():
    world = World()
    seen = []
    world.train_by(lambda number, model, *turn: (seen.append(model.copy()), world.update(number, *turn))[1])
    world.wire().sum(0, range(10), np.linspace(0, 1, 5))
    assert all(model.dtype == np.float32 for model in seen)
    np.testing.assert_array_equal(seen, np.tile(np.linspace(0, 1, 5).astype(np.float32), (10, 1)))


@pytest.mark.parametrize("limit", [0, 5, 100])
def test_a_shelf_gives_back_what_was_laid_on_it_from_memory_or_file(limit):
    with UploadStore(limit) as store:
        for number in range(10):
            store[number] = memoryview(bytes([number]) * 3)
        assert len(store) == 10 and sorted(store) == list(range(10))
        assert bytes(store.pop(7)) == b"\x07" * 3 and 7 not in store
        assert [bytes(store[number]) for number in (0, 9)] == [bytes(3), b"\x09" * 3]
        store.clear()
        assert len(store) == 0


def test_a_file_that_takes_a_vector_in_pieces_gives_it_back_whole(monkeypatch, tmp_path):
    class Narrow(io.FileIO):
        """A file that takes and gives two bytes at a time, as one on a disk that is nearly full may."""

        def write(self, data):
            return super().write(memoryview(data)[:2])

        def readinto(self, buffer):
            return super().readinto(memoryview(buffer)[:2])

        def read(self, size=-1):
            return super().read(min(size, 2))

    def narrow(buffering=-1):
        file = Narrow(tmp_path / "uploads", "w+b")
        return file if buffering == 0 else io.BufferedRandom(file)

    monkeypatch.setattr(tempfile, "TemporaryFile", narrow)
    with UploadStore(0) as store:
        for number in range(3):
            store[number] = bytes([number]) * 20_000
        assert all(store[number] == bytes([number]) * 20_000 for number in range(3))


def test_a_sum_is_right_when_the_shelf_is_a_file(monkeypatch):
    monkeypatch.setenv("CHORAL_MEMORY", "0")
    world = World()
    total = world.wire(SilentTransport(world, {3: 1, 5: 2})).sum(0, range(10), world.model)
    assert total.count == 8 and world.agrees(total)


def test_a_server_with_a_small_shelf_keeps_no_cohort_of_vectors_in_memory(monkeypatch):
    monkeypatch.setenv("CHORAL_MEMORY", "0")
    size = 100_000
    world = World(parameters=size)
    world.wire().sum(0, range(10), world.model)
    tracemalloc.start()
    try:
        world.wire().sum(1, range(10), world.model)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The model twice, the total, its integers; one device's update, words and frame; ten uploads would be ten more.
    assert peak < 9 * 4 * size


def test_drop_outs_by_a_rate_are_the_same_wherever_they_are_asked_for():
    world = World()
    wire = world.wire(DroppingTransport(world.terms, MemoryTransport(world.devices), rate=0.1, seed=3))
    for round in range(20):
        total = wire.sum(round, range(10), world.model)
        gone = {number for number in range(10) if drops_out(3, 0.1, total.turn, number)}
        assert {world.terms.numbers[id] for id in total.included} == set(range(10)) - gone
        assert world.agrees(total)


def test_drop_outs_come_at_their_rate():
    hits = sum(drops_out(1, 0.2, Turn(round, 0), number) for round in range(100) for number in range(100))
    assert abs(hits - 2000) < 4 * 40  # four standard deviations of a binomial of 10,000 at 0.2
    assert not drops_out(1, 0.0, FIRST, 0) and drops_out(1, 1.0, FIRST, 0)


@pytest.mark.parametrize(
    ("cohort", "parameters"),
    [(100, 50), pytest.param(1000, 100_000, marks=pytest.mark.long)],
)
def test_a_large_sparse_cohort_with_drop_outs_gives_the_plain_sum(cohort, parameters):
    world = World(sparse(cohort), parameters=parameters)
    silent = dict.fromkeys(range(cohort // 20), 1) | {cohort - 1: 2}
    total = world.wire(SilentTransport(world, silent), attempts=1).sum(0, range(cohort), world.model)
    assert total.count == cohort - len(silent) and world.agrees(total)
