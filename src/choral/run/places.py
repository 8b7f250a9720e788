"""The two places of a run in one process: one compiled call for a whole cohort, or the whole protocol."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral.backends.dropouts import DroppingTransport, drops_out
from choral.backends.once import OnceEngine
from choral.backends.vectorised import Vectorised
from choral.backends.wire import MemoryTransport, Wire
from choral.errors import SumError
from choral.protocol.device import Device, Encode, Train, Update
from choral.protocol.messages import Turn, Vector
from choral.protocol.terms import Terms
from choral.protocol.vault import Vault
from choral.run.books import Books
from choral.run.devices import trainer_of
from choral.run.signatures import vault_of
from choral.run.study import Study
from choral.secagg.codec import mean
from choral.secagg.keys import Identity, Roster
from choral.secagg.masks import Stream, Words


@dataclass(frozen=True, kw_only=True, eq=False)
class Opened:
    """The sum of a round and whose updates are in it."""

    total: NDArray[np.signedinteger[Any]]
    included: tuple[int, ...]


def turn_number(round: int, attempt: int) -> int:
    """The number that chooses batches, noise and dither: every attempt has its own.

    >>> turn_number(2, 1) == turn_number(2, 0) + 1
    True
    """
    return round << 16 | attempt


class Simulated:
    """A round as one compiled call; masks are left out, since they cancel, and the sum is the same to the integer."""

    def __init__(self, study: Study, books: Books, *, drop: float = 0.0) -> None:
        self.study, self.books, self.drop = study, books, drop
        self.engine = engine_of(study)
        self.engine.rounds_of[:] = books.rounds

    def first_attempt(self, round: int) -> int:  # noqa: ARG002 - a simulation repeats a round bit for bit
        """The attempt to begin a round with."""
        return 0

    def round(self, parameters: NDArray[np.float32], cohort: Sequence[int], *, round: int, attempt: int) -> Opened:
        """The sum of the cohort's updates, those that vanish left out."""
        plan = self.study.plan
        seed, turn = self.study.seed, Turn(round, attempt)
        included = tuple(device for device in cohort if not drops_out(seed, self.drop, turn, device))
        for device in included:
            self.books.charge(device, round=round, attempt=attempt, again=True)
        needed = min(self.study.secure.smallest_sum, plan.cohort)
        if len(included) < needed:
            self.engine.rounds_of[list(included)] += 1  # they trained, and their passes went on
            raise SumError(
                "CH503",
                f"{len(included)} of {len(cohort)} devices answered, {needed} needed; charged to be safe.",
                where=f"round {round}, attempt {attempt}:",
            )
        opened = self.engine.train(parameters, turn_number(round, attempt), np.array(included))
        return Opened(total=opened.total, included=included)


def engine_of(study: Study) -> Vectorised | OnceEngine:
    """The engine over the study's training rows: for noise in every step, or once."""
    engine = OnceEngine if study.plan.once else Vectorised
    return engine(model=study.model, records=study.split.train, plan=study.plan, codec=study.codec, seed=study.seed)


class _Hall(MemoryTransport):
    """All devices in one process, and what each of them said last."""

    def __init__(self) -> None:
        super().__init__(())
        self.last: dict[int, Vector] = {}

    def exchange(self, outbox: Mapping[int, Vector]) -> Iterator[tuple[int, Vector]]:
        """The replies in the order of the outbox."""
        for number, reply in super().exchange(outbox):
            if len(reply) > len(self.last.get(number, b"")):  # an upload is the longest that a device says in a round
                self.last[number] = reply
            yield number, reply


class Rehearsed:
    """A round with real keys, real masks and every message of the protocol, all devices in this process."""

    def __init__(self, study: Study, books: Books, *, folder: Path | None = None, drop: float = 0.0) -> None:
        self.study, self.books = study, books
        names = study.data.records.names
        vaults = [vault_of(name, number, folder) for number, name in enumerate(names)]
        identities = [Identity(vault.memory.id, vault.memory.secret) for vault in vaults]
        roster = Roster.of(identity.bundle for identity in identities)
        self.terms = Terms(
            roster=roster,
            secure=study.secure,
            codec=study.codec,
            parameters=study.model.size,
            plan=study.plan.digest,
        )
        self.hall = _Hall()
        self.transport = DroppingTransport(self.terms, self.hall, rate=drop, seed=study.seed)
        self.engine = engine_of(study) if study.seeded else None
        if self.engine is not None:
            self.engine.rounds_of[:] = books.rounds
        self.latest: dict[int, NDArray[np.float32]] = {}  # what each device sent last, but for its masks
        for number, vault in enumerate(vaults):
            train, encode = self._ways_of(number, vault)
            charge = self._charger(number)
            self.hall.devices[number] = Device(self.terms, vault, train=train, charge=charge, encode=encode)

    def _charger(self, number: int) -> Callable[[int, int], Any]:
        return lambda round, attempt: self.books.charge(number, round=round, attempt=attempt)

    def _ways_of(self, number: int, vault: Vault) -> tuple[Train, Encode]:
        """How a device trains and rounds: from the seed if there is one, else from the system's entropy."""
        if (engine := self.engine) is not None:

            def seeded(model: NDArray[np.float32], round: int, attempt: int) -> NDArray[np.float32]:
                update: Update = engine.updates(model, turn_number(round, attempt), np.array([number]))[0]
                return update

            def repeatable(update: Update, round: int, attempt: int, out: Words) -> None:
                turn = turn_number(round, attempt)
                self.study.codec.encode(update, engine.dither(turn, number), engine.noise(turn, number), out)
                self._keep(number, out)

            return seeded, repeatable
        train, memory = self.study.split.train, vault.memory
        trainer = trainer_of(
            self.study.model,
            self.study.plan,
            train.features_of(number),
            train.labels_of(number),
            secret=memory.secret,
            run=self.study.plan.digest,
            rounds=int(self.books.rounds[number]),
        )

        def fresh(model: NDArray[np.float32], round: int, attempt: int) -> NDArray[np.float32]:  # noqa: ARG001
            return trainer.update(model)

        def secret(update: Update, round: int, attempt: int, out: Words) -> None:  # noqa: ARG001
            self.study.codec.encode(update, Stream.fresh(), out=out)
            self._keep(number, out)

        return fresh, secret

    def _keep(self, number: int, words: Words) -> None:
        """Remember an update as it is before its masks; with its noise, which may not be there before it is encoded."""
        codec = self.study.codec
        self.latest[number] = mean(codec.decode(words, self.study.model.size, count=1), 1, codec.grid)

    def first_attempt(self, round: int) -> int:
        """The first attempt of a round that no device has used: masks and noise are never used twice."""
        turns = [device.vault.memory.turn for device in self.hall.devices.values()]
        return max((turn.attempt + 1 for turn in turns if turn is not None and turn.round == round), default=0)

    def round(self, parameters: NDArray[np.float32], cohort: Sequence[int], *, round: int, attempt: int) -> Opened:
        """The sum that the server opens."""
        self.hall.last.clear()
        opened = Wire(self.terms, self.transport).attempt(Turn(round, attempt), cohort, parameters)
        return Opened(total=opened.integers, included=tuple(self.terms.numbers[name] for name in opened.included))
