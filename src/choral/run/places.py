"""It is where a run takes place, and what a place keeps: one compiled call for a cohort, or the whole protocol."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from choral.backends.wire import DroppingTransport, RecordingTransport, Wire, drops_out
from choral.core.device import Device, Encode, Train, Update
from choral.core.errors import ConfigError, SumError
from choral.core.keys import Identity, Roster
from choral.core.ledger import Charge, Ledger, Receipt
from choral.core.masks import Stream, Words, ring
from choral.core.messages import Turn
from choral.core.terms import Terms
from choral.core.vault import Vault
from choral.engine import TrainsCohorts
from choral.engine.compiled import CompiledEngine
from choral.engine.per_device import PerDeviceEngine
from choral.federation import Step
from choral.probes import extension_of
from choral.record import (
    DEVICES,
    About,
    Outcome,
    ProbeLine,
    RoundLine,
    Sight,
    charged_rounds,
    inside,
    traits,
)
from choral.record.description import KindName
from choral.run.folder import MOST_LEDGERS, ledger_file, sign_off, signs, vault_of
from choral.run.guard import Guard, seed_from
from choral.run.study import Study, reserve_questions, trainer_of
from choral.server_step import mean

if TYPE_CHECKING:
    from choral.run.runs import Run

NO_RECEIPT = Receipt(entries=0, seal="")


def keeps_ledgers(study: Study) -> bool:
    """Every device of a run has a ledger file, unless nothing is protected, or there are very many devices."""
    return study.plan.devices <= MOST_LEDGERS and study.costs.private


class DeviceLedgers(AbstractContextManager["DeviceLedgers"]):
    """They count who was charged; with a folder, each charge is durable in the device's ledger when it returns.

    A simulation that goes on after a crash repeats a round bit for bit; it counts the charges `before` that round, and
    those that are there already as they come again.
    """

    def __init__(self, study: Study, folder: Path | None, *, before: int | None = None) -> None:
        self.study = study
        self.rounds = np.zeros(study.plan.devices, dtype=np.int64)
        self.of_device: list[Ledger] = []
        if folder is not None and keeps_ledgers(study):
            folder.mkdir(exist_ok=True)
            try:
                for number, name in enumerate(study.data.records.names):
                    path = inside(folder.parent, f"{folder.name}/{ledger_file(number)}")
                    limit, sum_epsilon = study.costs.ledger_limits(number)
                    self.of_device.append(Ledger.open(path, limit=limit, sum_epsilon=sum_epsilon, device=name))
            except BaseException:
                self.close()  # whoever fixes the one and tries again must not find the others in use
                raise
            for number, ledger in enumerate(self.of_device):
                charges = self._charges(ledger)
                self.rounds[number] = sum(before is None or charge.round < before for charge in charges)
                self._reserve(number, ledger)

    def _reserve(self, device: int, ledger: Ledger) -> None:
        """Reserve, once, all uploads that the device's limit pays for: the run may end earlier, but never later."""
        run, costs = self.study.plan.digest, self.study.costs
        rest = range(len(self._charges(ledger)), int(costs.allowed_rounds[device]))
        if rest and run not in ledger.balance.open_plans:
            ledger.reserve(costs.of(device).reservation(rest, run=run))
        if costs.questions is not None:  # with the rounds, before the first charge: then all is composed exactly
            reserve_questions(ledger, costs.questions, run)

    def _charges(self, ledger: Ledger) -> list[Charge]:
        """It is what the rounds of this run were charged; questions are counted apart."""
        return [charge for charge in ledger.balance.charges if charge.plan == self.study.plan.digest]

    @property
    def on_disk(self) -> bool:
        """It says whether every device has a ledger file."""
        return bool(self.of_device)

    def may_join(self) -> NDArray[np.bool_]:
        """It says which devices can pay for one more round."""
        return self.rounds < self.study.costs.allowed_rounds

    def charge(self, device: int, *, round_number: int, attempt: int, again: bool = False) -> Receipt:
        """The receipt of a charge for one upload, durable by now; refused with CH401 beyond the limit.

        `again` is for simulations that repeat a round after a crash: the same seed releases the very same numbers, so
        a charge that is there already pays for them.
        """
        if not self.of_device:
            self.rounds[device] += 1
            return NO_RECEIPT
        study, ledger = self.study, self.of_device[device]
        charges = self._charges(ledger)
        turn = (study.plan.digest, round_number, attempt)
        if again and any((known.plan, known.round, known.attempt) == turn for known in reversed(charges)):
            self.rounds[device] += 1
            return ledger.receipt
        charge = study.costs.of(device).charge(
            len(charges), run=study.plan.digest, round_number=round_number, attempt=attempt
        )
        receipt = ledger.charge(charge)
        self.rounds[device] += 1
        return receipt

    def spent(self) -> list[float]:
        """ε of each device so far, at its own limit's δ."""
        return self.study.costs.spent_by_all(self.rounds)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give every ledger and its lock back."""
        for ledger in self.of_device:
            ledger.close()


MOST_SHOWN = 200  # devices whose ε stands in every line of rounds.jsonl


@dataclass(frozen=True, kw_only=True, eq=False)
class Opened:
    """The sum of a round and whose updates are in it."""

    total: NDArray[np.signedinteger[Any]]
    included: tuple[int, ...]


def turn_number(round_number: int, attempt: int) -> int:
    """The number that chooses batches, noise and dither: every attempt has its own.

    >>> turn_number(2, 1) == turn_number(2, 0) + 1
    True
    """
    return round_number << 16 | attempt


def more_often(charged: NDArray[np.int64], counted: NDArray[np.int64]) -> list[int]:
    """The devices that were charged more often than counted, each as often as that.

    >>> more_often(np.array([1, 3, 0]), np.array([1, 1, 2]))
    [1, 1]
    """
    return [int(device) for device in np.repeat(np.arange(len(charged)), np.maximum(charged - counted, 0))]


class Place(ABC):
    """It is where a run's rounds take place: all that a run does differently there than elsewhere."""

    kind: KindName  # of every run here
    chosen = False  # whether somebody who looked at results may have chosen any end before the planned one
    study: Study
    guard: Guard | None = None  # where devices are probed
    probed: ProbeLine | None = None  # what they answered in the last round

    @property
    @abstractmethod
    def hold_out(self) -> str:
        """It says which rows are not trained on, for run.json."""

    @abstractmethod
    def described(self, about: About) -> About:
        """It is what is run, with what only runs here have."""

    @abstractmethod
    def opened(self, lines: Sequence[RoundLine], *, first: int) -> AbstractContextManager[int]:
        """Ready for rounds from `first` on until the block ends; the attempt to begin that round with."""

    def out_of_attempts(self) -> str:
        """It says why the round that is due can't be tried any more; empty where it can."""
        return ""

    @abstractmethod
    def may_join(self) -> NDArray[np.bool_]:
        """It says which devices may be called now."""

    @abstractmethod
    def round(
        self, parameters: NDArray[np.float32], cohort: Sequence[int], *, round_number: int, attempt: int
    ) -> Opened:
        """The sum of the cohort's updates, or a SumError that says what was missing."""

    @abstractmethod
    def noted(self, line: RoundLine, before: Sequence[RoundLine]) -> RoundLine:
        """The line of a round that is over, with what is known of its devices; the lines before it are given."""

    def sight(self, step: Step) -> Sight | None:  # noqa: ARG002 - where one of the two is elsewhere, or never was
        """It is what a device computed and what the server received of it."""
        return None

    @abstractmethod
    def wasted(self, lines: Sequence[RoundLine]) -> list[int]:
        """The devices that were charged and are not in these lines, each as often: attempts that failed."""

    def charged(self, lines: Sequence[RoundLine], wasted: Sequence[int]) -> NDArray[np.int64]:
        """It says how often each device was charged."""
        return charged_rounds(lines, self.study.plan.devices, wasted)

    def refused(self) -> dict[str, str] | None:
        """The code by which each device has refused permanently; None where the ledgers are here and can be asked."""
        return None

    @abstractmethod
    def why(self, *, chosen: bool) -> str:
        """It says why the run ends before its plan; `chosen` if by somebody who may have looked at its results."""

    @abstractmethod
    def ended(self, run: "Run") -> Outcome:
        """The result of a run whose rounds are over and whose model is written, signed by who signs it here."""


class OneProcess(Place):
    """It is what the places in one process share: all rows are here, and so are the ledgers."""

    def __init__(self, study: Study, *, folder: Path | None = None, drop: float = 0.0) -> None:
        """`drop` is the share of devices that drop out of a turn."""
        self.study, self.folder, self.drop = study, folder, _share("drop", drop)

    @property
    def hold_out(self) -> str:
        """It says which rows are not trained on."""
        data = self.study.job.data
        return (
            f"{data.test:.0%} of each device's rows are held out to test on, {data.validation:.0%} for validation; "
            "figures on them have no noise, and no ε covers them"
        )

    def described(self, about: About) -> About:
        """It is what is run, with what `choral resume` needs."""
        study = self.study
        return msgspec.structs.replace(
            about, seed=study.seed, drop=self.drop, job_source=study.job.source, in_memory=study.in_memory
        )

    @contextmanager
    def opened(self, lines: Sequence[RoundLine] = (), *, first: int = 1) -> Iterator[int]:
        """Ready for rounds: the ledgers are open until the block ends."""
        # A round that is repeated bit for bit is paid for already; one that is tried again is paid for again.
        with self._ledgers(lines, before=first if traits(self.kind).repeats else None) as self.ledgers:
            self.guard = Guard.of_study(self.study, self.folder)
            yield self._prepare(first)

    def _ledgers(
        self, lines: Sequence[RoundLine], wasted: Sequence[int] = (), *, before: int | None = None
    ) -> DeviceLedgers:
        """The ledgers; where there are none, the rounds so far say who was charged how often."""
        ledgers = DeviceLedgers(self.study, None if self.folder is None else self.folder / "ledgers", before=before)
        if not ledgers.on_disk:
            ledgers.rounds[:] = super().charged(lines, wasted)
        return ledgers

    @abstractmethod
    def _prepare(self, first: int) -> int:
        """Make what rounds need, and say with which attempt to begin the first one."""

    def may_join(self) -> NDArray[np.bool_]:
        """It says which devices can pay for one more round, and were not named by what they answered."""
        may = self.ledgers.may_join()
        if self.guard is not None:
            may[list(self.guard.excluded)] = False
        return may

    def noted(self, line: RoundLine, before: Sequence[RoundLine]) -> RoundLine:
        """The line, with what its devices have spent by now, and who paid for attempts that failed."""
        shown = self.study.plan.devices <= MOST_SHOWN and self.study.costs.private
        spent = tuple(round(epsilon, 6) for epsilon in self.ledgers.spent()) if shown else ()
        return msgspec.structs.replace(line, spent=spent, wasted=tuple(self.wasted([*before, line])))

    def wasted(self, lines: Sequence[RoundLine]) -> list[int]:
        """The devices that were charged and are not in these lines, each as often: attempts that failed."""
        return more_often(self.ledgers.rounds, charged_rounds(lines, self.study.plan.devices))

    def charged(self, lines: Sequence[RoundLine], wasted: Sequence[int]) -> NDArray[np.int64]:
        """It says how often each device was charged, by the ledgers where there are any."""
        with self._ledgers(lines, wasted) as ledgers:
            return ledgers.rounds

    def why(self, *, chosen: bool) -> str:
        """It says why a run ends early: by choice, or by the limits."""
        return "it was stopped by choice" if chosen else "too few devices had budget left for another round"

    def ended(self, run: "Run") -> Outcome:
        """The result, signed by every device where a signature means something."""
        study, outcome = self.study, run.outcome()
        if self.folder is not None and signs(self.kind, seeded=study.seeded, ledgers=keeps_ledgers(study)):
            names, name = study.data.records.names, study.plan.digest
            sign_off(self.folder, names, run=name, result=outcome, parameters=run.parameters)
        return outcome


def _share(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 or math.isnan(value):
        raise ConfigError("CH102", f"{name} = {value!r}.", fix="Must be a number from 0 to below 1.")
    return float(value)


class Simulated(OneProcess):
    """A round as one compiled call; masks are left out, since they cancel, and the sum is the same to the integer."""

    kind: KindName = "simulation"

    def _prepare(self, first: int) -> int:  # noqa: ARG002 - a round is repeated bit for bit
        self.engine = engine_of(self.study)
        self.engine.rounds_of[:] = self.ledgers.rounds
        return 0

    def round(
        self, parameters: NDArray[np.float32], cohort: Sequence[int], *, round_number: int, attempt: int
    ) -> Opened:
        """The sum of the cohort's updates, those that vanish left out."""
        plan = self.study.plan
        seed, turn = self.study.seed, Turn(round_number, attempt)
        included = tuple(device for device in cohort if not drops_out(seed, self.drop, turn, device))
        for device in included:
            self.ledgers.charge(device, round_number=round_number, attempt=attempt, again=True)
        needed = min(self.study.secure.smallest_sum, plan.cohort)
        if len(included) < needed:
            self.engine.rounds_of[list(included)] += 1  # they trained, and their passes went on
            raise SumError(
                "CH503",
                f"{len(included)} of {len(cohort)} devices answered, {needed} needed; charged to be safe.",
                where=f"round {round_number}, attempt {attempt}:",
            )
        if self.guard is not None:
            mine = self.integers(parameters, included, turn)
            self.probed, included, total = self.guard.simulated(turn, seed_from(seed, turn), mine)
            return Opened(total=total, included=included)
        return Opened(total=self.total(parameters, included, turn), included=included)

    def total(
        self, parameters: NDArray[np.float32], devices: Sequence[int], turn: Turn
    ) -> NDArray[np.signedinteger[Any]]:
        """The sum of these devices' integers, in one compiled call."""
        return self.engine.train(parameters, turn_number(turn.round, turn.attempt), np.array(devices)).total

    def integers(
        self, parameters: NDArray[np.float32], devices: Sequence[int], turn: Turn
    ) -> dict[int, NDArray[np.signedinteger[Any]]]:
        """It is what each of these devices would mask, the very integers inside `train`."""
        number, codec = turn_number(turn.round, turn.attempt), self.study.codec
        updates = self.engine.updates(parameters, number, np.array(devices))
        found = {}
        for device, update in zip(devices, updates, strict=True):
            words = codec.encode(update, self.engine.dither(number, device), self.engine.noise(number, device))
            found[device] = codec.decode(words, len(update), count=1)
        return found


def engine_of(study: Study) -> TrainsCohorts:
    """The engine over the study's training rows: compiled for noise in every step by JAX, else a loop over devices."""
    engine: type[CompiledEngine | PerDeviceEngine] = (
        PerDeviceEngine if study.plan.once or study.model.trainer is not None else CompiledEngine
    )
    return engine(model=study.trained, records=study.split.train, plan=study.plan, codec=study.codec, seed=study.seed)


def terms_of(study: Study, vaults: Sequence[Vault]) -> Terms:
    """The terms of a rehearsal between the devices with these vaults."""
    identities = [Identity(vault.memory.id, vault.memory.secret) for vault in vaults]
    return Terms(
        roster=Roster.of(identity.bundle for identity in identities),
        secure=study.secure,
        codec=study.codec,
        parameters=study.trained.size,
        plan=study.plan.digest,
        extension=extension_of(study.plan, partial(seed_from, study.seed) if study.seeded else None),
    )


class Rehearsed(OneProcess):
    """A round with real keys, real masks and every message of the protocol, all devices in this process."""

    kind: KindName = "rehearsal"

    def _prepare(self, first: int) -> int:
        study, keys = self.study, None if self.folder is None else self.folder / DEVICES
        vaults = [vault_of(name, number, keys) for number, name in enumerate(study.data.records.names)]
        self.terms = terms_of(study, vaults)
        self.recorded = RecordingTransport()
        self.transport = DroppingTransport(self.terms, self.recorded, rate=self.drop, seed=study.seed)
        self.engine = engine_of(study) if study.seeded else None
        if self.engine is not None:
            self.engine.rounds_of[:] = self.ledgers.rounds
        self.latest: dict[int, NDArray[np.float32]] = {}  # what each device sent last, without its masks
        for number, vault in enumerate(vaults):
            train, encode = self._ways_of(number, vault)
            charge = self._charger(number)
            self.recorded.devices[number] = Device(self.terms, vault, train=train, charge=charge, encode=encode)
        turns = [vault.memory.turn for vault in vaults]  # masks and noise are never used twice
        return max((turn.attempt + 1 for turn in turns if turn is not None and turn.round == first), default=0)

    def _charger(self, number: int) -> Callable[[int, int], Any]:
        return lambda round_number, attempt: self.ledgers.charge(number, round_number=round_number, attempt=attempt)

    def _ways_of(self, number: int, vault: Vault) -> tuple[Train, Encode]:
        """It says how a device trains and rounds: from the seed if there is one, else from the system's entropy."""
        if (engine := self.engine) is not None:

            def seeded(model: NDArray[np.float32], round_number: int, attempt: int) -> NDArray[np.float32]:
                update: Update = engine.updates(model, turn_number(round_number, attempt), np.array([number]))[0]
                return update

            def repeatable(update: Update, round_number: int, attempt: int, out: Words) -> None:
                turn = turn_number(round_number, attempt)
                self.study.codec.encode(update, engine.dither(turn, number), engine.noise(turn, number), out)
                self._keep(number, out)

            return seeded, repeatable
        train, memory = self.study.split.train, vault.memory
        trainer = trainer_of(
            self.study.trained,
            self.study.plan,
            train.features_of(number),
            train.labels_of(number),
            secret=memory.secret,
            run=self.study.plan.digest,
            rounds=int(self.ledgers.rounds[number]),
        )

        def fresh(model: NDArray[np.float32], round_number: int, attempt: int) -> NDArray[np.float32]:  # noqa: ARG001
            return trainer.update(model)

        def secret(update: Update, round_number: int, attempt: int, out: Words) -> None:  # noqa: ARG001
            self.study.codec.encode(update, Stream.fresh(), out=out)
            self._keep(number, out)

        return fresh, secret

    def _keep(self, number: int, words: Words) -> None:
        """Remember an update as it is before its masks; with its noise, which may not be there before it is encoded."""
        codec = self.study.codec
        self.latest[number] = mean(codec.decode(words, self.terms.parameters, count=1), 1, codec.grid)

    def round(
        self, parameters: NDArray[np.float32], cohort: Sequence[int], *, round_number: int, attempt: int
    ) -> Opened:
        """The sum that the server opens."""
        self.recorded.last.clear()
        turn, wire, guard = Turn(round_number, attempt), Wire(self.terms, self.transport), self.guard
        if guard is None:
            opened = wire.attempt(turn, cohort, parameters)
        else:
            probing = guard.probing(turn)
            opened = wire.attempt(turn, cohort, parameters, round_of=probing.round)
            self.probed = guard.noted(probing, opened, drawn=not self.study.seeded)
        return Opened(total=opened.integers, included=tuple(self.terms.numbers[name] for name in opened.included))

    def sight(self, step: Step) -> Sight:
        """It shows what one device computed, and what the server received; not if seeded: masks never repeat."""
        device, study = step.included[0], self.study
        upload = self.recorded.last[device][-self.terms.upload_bytes :]
        words = np.frombuffer(upload, dtype=ring(study.codec.word_bits))
        return Sight(
            device=study.data.records.names[device],
            round=step.round,
            computed=tuple(round(float(value), 6) for value in self.latest[device][:64]),
            received=None if study.seeded else tuple(int(word) for word in words[:64]),
        )


PLACES: dict[str, type[OneProcess]] = {place.kind: place for place in (Simulated, Rehearsed)}
