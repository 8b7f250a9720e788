"""A small federation in memory for the tests: known updates, vaults that survive a restart, readable ledgers."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import numpy as np

from choral.backends.wire import MemoryTransport, Transport, Wire
from choral.core.codec import Codec
from choral.core.device import Device
from choral.core.errors import LedgerError, SumError
from choral.core.keys import Identity, Roster
from choral.core.messages import Message, Turn, decode
from choral.core.plan import SecureSum
from choral.core.terms import WHOLE, Terms
from choral.core.vault import Memory, Vault
from choral.probes.device import Probed
from choral.probes.round import ProbedRound, ProbeInquiry
from choral.run.folder import MemoryStore
from choral.server.round import Readiness, Round, Sum
from choral.trees import lists_of
from choral.trees.lists import TreeLists, part_of

FIRST = Turn(0, 0)
TEN = SecureSum(cohort=10, smallest_sum=8, threshold=7, colluders=2)


@lru_cache
def enrolled(count: int) -> tuple[tuple[Identity, ...], Roster]:
    """The same devices for every test that asks for as many: keys are slow to make."""
    identities = tuple(Identity.fresh(f"device-{number:04}") for number in range(count))
    return identities, Roster.of(identity.bundle for identity in identities)


@lru_cache
def known_pairs(count: int) -> list[dict[str, bytes]]:
    """What those devices have agreed on in earlier tests: key agreement is slow too, and the same every time."""
    return [{} for _ in range(count)]


@dataclass(frozen=True)
class Receipt:
    entries: int
    seal: str = "0" * 64


@dataclass
class FakeLedger:
    """Counts charges, and refuses beyond a limit, as the real one does."""

    limit: int = 10**9
    charged: list[tuple[int, int]] = field(default_factory=list)

    def charge(self, round: int, attempt: int) -> Receipt:
        if len(self.charged) >= self.limit:
            raise LedgerError("CH401", "the budget is spent.")
        self.charged.append((round, attempt))
        return Receipt(len(self.charged))


class Patient(Wire):
    """A server that tries a round a few times with the same devices; `first` is the turn after the last one tried."""

    def __init__(self, terms: Terms, transport: Transport, *, attempts: int = 3, first: Turn = FIRST) -> None:
        super().__init__(terms, transport)
        self.attempts, self.first = attempts, first

    def sum(
        self, round: int, called: Iterable[int], model: np.ndarray, *, following: Iterable[int] | None = None
    ) -> Sum:
        """The sum of the first attempt that has one, or the error of the last."""
        start = self.first.attempt if self.first.round == round else 0
        *early, last = (Turn(round, start + number) for number in range(self.attempts))
        for turn in early:
            with contextlib.suppress(SumError):
                return self.attempt(turn, called, model, following=following)
        return self.attempt(last, called, model, following=following)


class World:
    """Devices 0..n-1 under one set of terms; updates are whole numbers, so the expected sum is exact."""

    def __init__(
        self,
        secure: SecureSum = TEN,
        *,
        devices: int | None = None,
        parameters: int = 5,
        seed: int = 0,
        codec: Codec | None = None,
        probes: int = 0,
        opened_turns: int = 0,
        hybrid: bool = False,
        trees: bool = False,
    ) -> None:
        self.identities, roster = enrolled(secure.cohort if devices is None else devices)
        largest = min((2**secure.modulus_bits - 1) // (2 * secure.cohort), 2**23 - 1)
        codec = codec or Codec(grid=1.0, largest=largest, cohort=secure.cohort, word_bits=secure.modulus_bits)
        self.terms = Terms(
            roster=roster, secure=secure, codec=codec, parameters=parameters, plan="test", hybrid=hybrid,
            lists=lists_of(roster) if trees else WHOLE,
            extension=Probed(probes=probes, opened_turns=opened_turns) if probes else None,
        )  # fmt: skip
        self.seed = seed
        self.stores = [MemoryStore() for _ in self.identities]
        self.ledgers = [FakeLedger() for _ in self.identities]
        known = [{} for _ in self.identities] if trees else known_pairs(len(self.identities))  # bound to the root
        for identity, store, pairs in zip(self.identities, self.stores, known, strict=True):
            Vault.create(store, Memory(id=identity.id, secret=identity.to_bytes(), pairs=pairs))
        self.devices = [self.start(number) for number in range(len(self.identities))]
        self.model = np.arange(parameters, dtype=np.float32)
        if hybrid:
            self.wire().agree(FIRST, range(len(self.devices)))

    def terms_of(self, number: int) -> Terms:
        """The terms as a device knows them: where lists are trees, with its own part of the roster only."""
        lists = self.terms.lists
        if not isinstance(lists, TreeLists):
            return self.terms
        return replace(self.terms, roster=part_of(self.terms.whole, lists.tree, number), lists=TreeLists())

    def start(self, number: int, **changes: object) -> Device:
        """A device over what its store holds, as after a restart."""
        given = {
            "train": lambda _model, round, attempt: self.update(number, round, attempt),
            "charge": self.ledgers[number].charge,
        }
        return Device(self.terms_of(number), Vault.open(self.stores[number]), **(given | changes))  # type: ignore[arg-type]

    def train_by(self, train: Callable[..., np.ndarray]) -> None:
        """Start every device again, with `train(number, model, round, attempt)` in place of the known updates."""
        self.devices = [self.start(number, train=partial(train, number)) for number in range(len(self.identities))]

    def remember_pairs(self) -> None:
        """Keep what the devices have agreed on for the next world with the same devices."""
        for device, pairs in zip(self.devices, known_pairs(len(self.identities)), strict=True):
            pairs.update(device.vault.memory.pairs)

    def update(self, number: int, round: int = 0, attempt: int = 0) -> np.ndarray:
        """A device's update in a turn: whole numbers over the whole range, different in every attempt."""
        most = self.terms.codec.largest - 1
        rng = np.random.default_rng((self.seed, number, round, attempt))
        return rng.integers(-most, most, self.terms.parameters, endpoint=True).astype(np.float32)

    def expected(self, included: Iterable[str], turn: Turn) -> list[int]:
        """The plain sum."""
        numbers = [self.terms.numbers[id] for id in included]
        total = sum(self.update(number, turn.round, turn.attempt).astype(np.int64) for number in numbers)
        return np.asarray(total).tolist()

    def agrees(self, sum: Sum) -> bool:
        """Whether an opened sum is the plain sum of the devices that it names."""
        return sum.integers.tolist() == self.expected(sum.included, sum.turn)

    def wire(self, transport: object = None, **options: object) -> "Patient":
        return Patient(self.terms, transport or MemoryTransport(self.devices), **options)  # type: ignore[arg-type]

    def readiness(self, turn: Turn = FIRST, called: Iterable[int] | None = None) -> Readiness:
        """Everybody's READY."""
        readiness = Readiness(self.terms, turn, range(self.terms.secure.cohort) if called is None else called)
        for number, frame in readiness.outbox().items():
            readiness.receive(number, self.devices[number].answer(frame))
        return readiness

    def round(
        self, turn: Turn = FIRST, called: Iterable[int] | None = None, *, inquiry: ProbeInquiry | None = None
    ) -> Round:
        readiness, model = self.readiness(turn, called), self.model.tobytes()
        if self.terms.extension is None:
            return Round(readiness, model)
        return ProbedRound(readiness, model, inquiry=inquiry)

    def step(self, round: Round, silent: Iterable[int] = ()) -> dict[int, Message]:
        """One step of a round in which some stay silent; the answers, read."""
        answers = {}
        for number, frame in round.outbox().items():
            if number not in silent:
                reply = self.devices[number].answer(frame)
                round.receive(number, reply)
                answers[number] = self.read(reply)
        round.advance()
        return answers

    def finish(self, round: Round) -> Sum:
        while round.sum is None:
            self.step(round)
        return round.sum

    def read(self, frame: bytes) -> Message:
        """A device's message without its vector."""
        return self.read_all(frame)[0]

    def read_all(self, frame: bytes) -> tuple[Message, memoryview]:
        return decode(frame, vector_bytes=self.terms.upload_bytes, records_bytes=self.terms.records_bytes)


class SilentTransport:
    """Devices of a world of which some are silent from a given exchange on: {device: exchange}."""

    def __init__(self, world: World, silent_from: Mapping[int, int]) -> None:
        self._world, self._silent_from, self.exchanges = world, silent_from, 0

    def exchange(self, outbox: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        step, self.exchanges = self.exchanges, self.exchanges + 1
        for number, frame in outbox.items():
            if step < self._silent_from.get(number, step + 1):
                yield number, self._world.devices[number].answer(frame)
