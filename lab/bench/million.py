"""A round out of a million enrolled devices, run and not extrapolated. `python -m bench.million [--quick] [--json]`.

A million cards are enrolled in one tree. The devices of a cohort of 10,000 have real keys; the other cards are random
bytes, which no tree can tell apart. Devices hold the root and their own path, no list.

- `check_...`: what one device computes and receives to check its part of roster and cohort: all paths and the cards of
  its neighbours, signatures included. Sampled from the cohort of 10,000, with nothing kept from device to device.
- `round_...`: a whole round on the sparse graph: each device pays in its own ledger, its update of 10^4 parameters is
  rounded, masked and sent, every message is encoded and decoded, some devices are silent, and the opened sum is
  compared with that of a simulation. With --quick the cohort has 1,000 devices.
- `simulated_...`: the same round in the simulator, which has the rows of all devices in a mapped file and trains those
  of the cohort. The updates of the other round are the ones that it trains.

CPU seconds of one core. All devices live in this process, one after the other.
"""

import os
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.harness import print_figures
from choral.accounting.calibrate import calibrated
from choral.accounting.costs import Costs
from choral.backends.wire import Wire
from choral.core.codec import Codec
from choral.core.device import Device, Update
from choral.core.keys import Bundle, Identity, Roster
from choral.core.ledger import Charge, Ledger, Receipt
from choral.core.masks import Words
from choral.core.messages import Paths, Turn, Vector, decode
from choral.core.plan import Budget, Plan
from choral.core.terms import Terms
from choral.core.vault import Memory, Vault
from choral.engine.compiled import CompiledEngine
from choral.learning.models import logistic
from choral.run.folder import MemoryStore
from choral.run.planning import sparse
from choral.tables.records import Records
from choral.trees.lists import Announcements, Shown, TreeLists, _circle_of
from choral.trees.merkle import RosterPart, roster_tree

DEVICES, COHORT, QUICK, SAMPLE, SILENT = 10**6, 10**4, 1000, 40, 5
ROWS, FEATURES, CLASSES = 8, 99, 100  # rows of each device
MODEL = logistic(FEATURES, CLASSES)
PARAMETERS = MODEL.size  # 10^4
LIMIT = Budget(epsilon=8.0, delta=1e-5)
_CARD = 32 + 32 + 64  # bytes of keys and signature
cpu = time.process_time


class Cards(Sequence[Bundle]):
    """The cards of everybody: real ones of the devices that meet, and random bytes in the place of all others."""

    def __init__(self, count: int, real: Mapping[int, Identity]) -> None:
        self._count, self._real, self._noise = count, real, os.urandom(_CARD * count)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:  # noqa: ANN401 - one card; nobody asks for a slice
        if number in self._real:
            return self._real[number].bundle
        if not 0 <= number < self._count:
            raise IndexError(number)
        data = self._noise[number * _CARD : (number + 1) * _CARD]
        return Bundle(id=name_of(number), identity=data[:32], agreement=data[32:64], signature=data[64:])


class Enrolled(Roster):
    """A roster of which the server has checked each card when it came; not all at once here."""

    def __post_init__(self) -> None:
        return


def name_of(number: int) -> str:
    return f"device-{number:07}"


class Study:
    """A million enrolled devices, some of them with keys, and the terms of cohorts of them."""

    def __init__(self, members: Sequence[int]) -> None:
        self.identities = {number: Identity.fresh(name_of(number)) for number in members}
        cards: Any = Cards(DEVICES, self.identities)
        self.roster = Enrolled(bundles=cards)
        start = cpu()
        self.tree = roster_tree(self.roster)
        self.tree_seconds = cpu() - start

    def terms(self, cohort: int) -> Terms:
        secure = sparse(cohort)
        largest = 2 ** min(secure.value_bits - 1, 15) - 1
        codec = Codec(grid=1.0, largest=largest, cohort=cohort, word_bits=secure.modulus_bits)
        lists = TreeLists(self.tree)
        return Terms(roster=self.roster, secure=secure, codec=codec, parameters=PARAMETERS, plan="bench", lists=lists)

    def terms_of(self, number: int, terms: Terms) -> Terms:
        """The terms as a device holds them."""
        own, path = self.identities[number].bundle, self.tree.path(number)
        part = RosterPart(root=self.tree.root, count=DEVICES, number=number, own=own, path=path)
        return replace(terms, roster=part, lists=TreeLists())


def check(study: Study, members: Sequence[int]) -> dict[str, float]:
    """What a device of a cohort of 10,000 computes and receives to check who it takes part with."""
    terms, model, turn = study.terms(COHORT), bytes(4 * PARAMETERS), Turn(0, 0)
    nonces = {number: os.urandom(16) for number in members}
    start = cpu()
    announced = Announcements(terms, turn, nonces, model, study.tree)
    frames = {number: announced[number] for number in members[:: COHORT // SAMPLE]}
    made = cpu() - start
    spent, received = [], []
    for number, frame in frames.items():
        own = study.terms_of(number, terms)
        _ = own.digest  # known since the study was approved
        _circle_of.cache_clear()
        start = cpu()
        message, vector = decode(frame, vector_bytes=own.model_bytes, records_bytes=own.records_bytes)
        assert isinstance(message, Paths)
        part = Shown(own, message, vector, study.identities[number]).cohort(nonces[number])
        spent.append(cpu() - start)
        received.append(len(frame) - len(model))
        if len(part.neighbours(number)) != terms.secure.neighbours:
            raise AssertionError("a device has other neighbours than the plan says")
    return {
        "check_cpu_ms": 1e3 * statistics.median(spent),
        "check_cpu_ms_most": 1e3 * max(spent),
        "check_bytes": max(received),
        "check_neighbours": float(terms.secure.neighbours or 0),
        "server_cpu_ms_to_announce_one": 1e3 * made / len(frames),
    }


class Timed:
    """Devices of one process, of which some are ready and send no update; CPU seconds and bytes by kind of message."""

    def __init__(self, devices: Mapping[int, Device], silent: frozenset[int]) -> None:
        self._devices, self._silent = devices, silent
        self.device, self.server, self.step = 0.0, 0.0, 0
        self.received, self.sent = 0, 0

    def exchange(self, outbox: Mapping[int, Vector]) -> Iterator[tuple[int, Vector]]:
        self.step += 1
        for number in outbox:
            if self.step > 1 and number in self._silent:
                continue
            frame = outbox[number]
            start = cpu()
            reply = self._devices[number].answer(frame)
            self.device += cpu() - start
            self.received, self.sent = max(self.received, len(frame)), max(self.sent, len(reply))
            yield number, reply


class Simulation:
    """The rows of everybody in a mapped file, of which those of the members are written, and an engine over them."""

    def __init__(self, members: Sequence[int], terms: Terms, folder: Path) -> None:
        rng, names = np.random.default_rng(0), tuple(map(name_of, range(DEVICES)))
        features = np.memmap(folder / "rows", np.float32, "w+", shape=(ROWS * DEVICES, FEATURES))
        for number in members:
            features[ROWS * number : ROWS * (number + 1)] = rng.random((ROWS, FEATURES), np.float32) - 0.5
        labels = rng.integers(0, CLASSES, ROWS * DEVICES, dtype=np.int32)
        offsets = ROWS * np.arange(DEVICES + 1)
        rows = Records(features=features, labels=labels, offsets=offsets, names=names, classes=CLASSES)
        cohort = terms.secure.cohort
        plan = Plan(devices=DEVICES, cohort=cohort, rounds=1, rows=ROWS, batch=4, local_steps=2, step_size=0.1,
                    clip=1.0, noise=0.0)  # fmt: skip
        plan = calibrated(plan, LIMIT)
        self.codec = Codec.for_plan(plan, terms.secure, PARAMETERS, failure=plan.out_of_range)
        self.costs = Costs(plan=plan, secure=terms.secure, rows=rows.sizes, limits=(LIMIT,) * DEVICES, names=names)
        self.engine = CompiledEngine(model=MODEL, records=rows, plan=plan, codec=self.codec, seed=1)

    def cost(self, number: int, turn: Turn) -> Charge:
        """What a device pays for its first upload."""
        run = self.costs.plan.digest
        return self.costs.of(number).charge(0, run=run, round_number=turn.round, attempt=turn.attempt)

    def sum(self, members: Sequence[int], included: Sequence[int]) -> NDArray[np.int64]:
        """What the simulator opens of a first round of these members."""
        self.engine.rounds_of[:] = 0
        return self.engine.train(MODEL.start(), 0, np.array(members), np.isin(members, included)).total


def whole_round(study: Study, members: Sequence[int], cohort: int, folder: Path) -> dict[str, float]:
    """A round of so many devices, the sum compared with the one that a simulation opens."""
    chosen, terms = members[:cohort], study.terms(cohort)
    simulation = Simulation(chosen, terms, folder)
    terms = replace(terms, codec=simulation.codec)
    turn, engine, codec = Turn(0, 0), simulation.engine, simulation.codec
    updates = dict(zip(chosen, engine.updates(MODEL.start(), turn.round, np.array(chosen)), strict=True))

    def device(number: int) -> Device:
        memory = Memory(id=name_of(number), secret=study.identities[number].to_bytes())

        def train(*_: object) -> Update:
            return updates[number]

        def encode(update: Update, round_number: int, _attempt: int, words: Words) -> None:
            codec.encode(update, engine.dither(round_number, number), out=words)

        def charge(*_: int) -> Receipt:
            with Ledger.open(folder / name_of(number), limit=LIMIT) as ledger:  # so many can't be open at a time
                return ledger.charge(simulation.cost(number, turn))

        return Device(
            study.terms_of(number, terms),
            Vault.create(MemoryStore(), memory),
            train=train,
            encode=encode,
            charge=charge,
        )

    transport = Timed({number: device(number) for number in chosen}, frozenset(chosen[:SILENT]))
    start, wall = cpu(), time.perf_counter()
    opened = Wire(terms, transport).attempt(turn, chosen, MODEL.start())
    spent, wall = cpu() - start, time.perf_counter() - wall
    included = [terms.numbers[id] for id in opened.included]
    _ = simulation.sum(chosen, included)  # compiles
    simulated = time.perf_counter()
    expected = simulation.sum(chosen, included)
    simulated = time.perf_counter() - simulated
    if opened.integers.tolist() != expected.tolist():
        raise AssertionError("the sum is not the one that a simulation opens")
    return {
        "round_devices": float(cohort),
        "round_included": float(opened.count),
        "round_device_cpu_ms": 1e3 * transport.device / cohort,
        "round_server_cpu_s": spent - transport.device,
        "round_wall_s": wall,
        "round_device_receives_bytes": float(transport.received - 4 * PARAMETERS),
        "round_device_sends_bytes": float(transport.sent - terms.upload_bytes),
        "simulated_wall_s": simulated,
    }


def measure(quick: bool) -> dict[str, float]:
    """Every figure, by name."""
    members = sorted(np.random.default_rng(1).choice(DEVICES, COHORT, replace=False).tolist())
    study = Study(members)
    found = {"devices": float(DEVICES), "cohort": float(COHORT), "parameters": float(PARAMETERS)}
    found["tree_cpu_s"] = study.tree_seconds
    found |= check(study, members)
    with tempfile.TemporaryDirectory() as folder:
        found |= whole_round(study, members, QUICK if quick else COHORT, Path(folder))
    found["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {name: float(f"{value:.4g}") for name, value in found.items()}


def main() -> None:
    print_figures(__doc__, measure, "a round of 1,000 devices in place of 10,000")


if __name__ == "__main__":
    main()
