"""Questions to all devices of a study in one process: simulated, or rehearsed with keys, masks and every message.

What an opened sum says is the same in a deployment, whose server asks by `choral.deploy.asking`.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from choral.asking import catalogue
from choral.asking.answer import Answer, Expected
from choral.asking.catalogue import MODELS, TRAINED, approved_as, read_model
from choral.asking.fitting import FittedModel
from choral.asking.question import Question
from choral.backends.wire import DroppingTransport, MemoryTransport, Wire, drops_out
from choral.config import Job
from choral.core import private_sums
from choral.core.device import Respondent
from choral.core.errors import ConfigError, LedgerError, SumError
from choral.core.events import epsilon_of
from choral.core.exposure import ADJACENCY, EVERYONE
from choral.core.masks import Stream
from choral.core.messages import QUESTIONS, Turn
from choral.core.private_sums import SumPrice
from choral.record import DEVICES, AnsweredQuestion, AnswerPrivacy, Measured, ModelCard, traits
from choral.record.description import KindName
from choral.run.folder import RunFolder, Watch, now, unwatched, vault_of
from choral.run.modelling import (
    AnswerRegister,
    AskedTables,
    MadeModel,
    expected_of,
    fit,
    keep_model,
    measured,
    opened_sum,
    planned_model,
    question_of,
    state_digest,
)
from choral.run.places import PLACES, DeviceLedgers, Opened, keeps_ledgers, terms_of
from choral.run.planning import settle
from choral.run.questions import NO_STATE, AskTerms, CheckedQuestion, preparation
from choral.run.runs import Kind, Run, job_and_source, settled_again
from choral.run.study import Study, check_columns, check_rows
from choral.tables.reading import DataSource


@dataclass(frozen=True, kw_only=True, eq=False)
class AskedAnswer:
    """An answer with its question, what it cost, and against whom that holds."""

    question: Question
    answer: Answer
    privacy: AnswerPrivacy
    number: int
    figures: Mapping[str, float] = field(default_factory=dict)  # of a model, on rows that it was not made from
    model: FittedModel | None = None

    @property
    def rows(self) -> list[dict[str, object]]:
        """The numbers, each with its interval, which includes the noise."""
        return self.answer.rows

    @property
    def frame(self) -> Any:  # noqa: ANN401 - pandas is optional
        """The same as a data frame of pandas."""
        return self.answer.frame

    @property
    def test(self) -> Mapping[str, float] | None:
        """The statistic and p of a test, where the question has one."""
        return self.answer.test

    @property
    def is_rough(self) -> bool:
        """It says whether intervals are approximate, for so much noise."""
        return self.answer.is_rough

    def to_dict(self) -> dict[str, object]:
        """The answer as plain values for JSON."""
        answer = self.answer
        return {
            "number": self.number,
            "question": json.loads(self.question.canonical()),
            "words": self.question.words(),
            "rows": answer.rows,
            "about": [dict(line) for line in answer.about],
            "is_rough": answer.is_rough,
            "test": None if answer.test is None else dict(answer.test),
            "block": answer.block,
            "sentences": list(answer.sentences),
            "privacy": self.privacy.to_dict(),
            **({} if self.model is None else {"figures": dict(self.figures), "state": self.model.state.tolist()}),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedQuestion:
    """It is what a question would cost and how wide its interval would be; nothing was asked."""

    question: Question
    expected: Expected
    deviation: float
    privacy: AnswerPrivacy

    def to_dict(self) -> dict[str, object]:
        """The plan as plain values for JSON."""
        return {
            "question": json.loads(self.question.canonical()),
            "words": self.question.words(),
            "noise_sd": self.deviation,
            "expected_width": self.expected.width if math.isfinite(self.expected.width) else None,
            "sentence": self.expected.sentence,
            "privacy": self.privacy.to_dict(),
        }


def answer_privacy(
    price: SumPrice, *, delta: float, colluders: int, asked: int, from_register: bool = False, sums: int = 1
) -> AnswerPrivacy:
    """It is what one answer of so many sums costs at this price, and all of the study's together."""
    helpers = f", helped by {colluders} of the devices" if colluders else ""
    return AnswerPrivacy(
        rule=private_sums.RULE,
        delta=delta,
        adjacency=ADJACENCY,
        epsilon=epsilon_of([price.everyone] * sums, delta),
        epsilon_in_all=epsilon_of([price.reserved], delta),
        adversary=EVERYONE,
        epsilon_sum=epsilon_of([price.summed or price.everyone] * sums, delta),
        epsilon_sum_in_all=epsilon_of([price.reserved_of_sums], delta),
        adversary_sum=f"a server that sees only sums{helpers}",
        asked=asked,
        most=price.most,
        from_register=from_register,
        sums=sums,
    )


def answer_of(terms: AskTerms, found: AnsweredQuestion, privacy: AnswerPrivacy) -> AskedAnswer:
    """It is what an opened sum says, wherever it was opened."""
    question = Question.read(found.question.encode())
    opened = opened_sum(found)
    answer = catalogue.estimate(
        question,
        terms.columns,
        opened.total,  # type: ignore[arg-type]
        rows=opened.rows,
        deviation=opened.deviation,
    )
    return AskedAnswer(question=question, answer=answer, privacy=privacy, number=found.number)


def answered(
    checked: CheckedQuestion, opened: Opened, number: int, state: NDArray[np.float64] = NO_STATE
) -> AnsweredQuestion:
    """A question with its opened sum, as the register keeps it."""
    return AnsweredQuestion(
        number=number,
        question=checked.question.canonical().decode(),
        words=checked.question.words(),
        at=now(),
        included=opened.included,
        rows=int(opened.total[-1]),
        l2=checked.summand.l2,
        factor=checked.noise.factor,
        scale=checked.noise.scale,
        total=tuple(int(value) for value in opened.total[:-1]),
        state=state_digest(state),
    )


def planned(
    question: Question, terms: AskTerms, register: AnswerRegister, *, rows: int, devices: int, delta: float
) -> PlannedQuestion:
    """It plans what a question or a model would cost and tell of so many rows; a model has the usual rounds."""
    terms.require_approved(question.name)
    if question.name in MODELS:
        model = planned_model(question, terms, register, used=register.last)
        question, sums = model.question, model.sums
        expected, deviation = expected_of(model, terms, rows=rows, devices=devices)
    else:
        checked, sums = terms.read(question.canonical()), 1
        deviation = checked.noise.deviation * math.sqrt(devices)
        expected = terms.expected(checked, rows, devices)
    return PlannedQuestion(
        question=question,
        expected=expected,
        deviation=deviation,
        privacy=answer_privacy(
            terms.price, delta=delta, colluders=terms.secure.colluders, asked=register.last, sums=sums
        ),
    )


def answer_of_model(made: MadeModel, privacy: AnswerPrivacy, figures: Mapping[str, float]) -> AskedAnswer:
    """A model with what it cost."""
    return AskedAnswer(
        question=made.question,
        answer=made.model.effects,
        privacy=privacy,
        number=made.sums[0].number,
        figures=figures,
        model=made.model,
    )


class Inquiry:
    """The questions of one study: each is charged to every device's ledger in the folder, and kept in its register."""

    def __init__(self, kind: KindName, study: Study, *, folder: Path, drop: float = 0.0) -> None:
        if not (keeps_ledgers(study) and study.data.tables):
            raise ConfigError(
                "CH104",
                "questions need tables with named columns, privacy, and a ledger for each device.",
                fix="Give a file or a data frame, [privacy] epsilon, and at most 256 devices.",
            )
        self.kind, self.study, self.folder, self.drop = kind, study, folder, drop
        check_columns(study.job, study.data.tables[0])
        check_rows(study.job, max(table.rows for table in study.data.tables))
        self.terms = AskTerms.of(study.job, run=study.plan.digest, devices=study.plan.devices)
        self.register = AnswerRegister(folder)

    def ask(self, question: Question, *, watch: Watch = unwatched) -> AskedAnswer:
        """The answer, from the register if this was asked before, else from all devices, each of which pays."""
        if question.name in MODELS:
            return self._fitted(question, watch)
        data = self.terms.completed(question, rows=self.rows, devices=self.study.plan.devices).canonical()
        checked = self.terms.read(data)
        if (known := self.register.find(data)) is not None:
            return self.answer_from(known, from_register=True)
        self.terms.require_crowd(self.rows)
        devices = self.study.plan.devices
        self.terms.require_answer(self.terms.expected(checked, self.rows, devices), self.rows)
        with DeviceLedgers(self.study, self.folder / "ledgers") as ledgers:
            return self.answer_from(self._answered(checked, NO_STATE, ledgers))

    def _fitted(self, question: Question, watch: Watch) -> AskedAnswer:
        """The model that a question names, round by round; what the register has of it is not asked for again."""
        self.terms.require_approved(question.name)
        read_model(question, self.terms.columns)  # refused before a ledger is opened
        self.terms.require_crowd(self.rows)
        before = self.register.last
        with DeviceLedgers(self.study, self.folder / "ledgers") as ledgers:
            model = planned_model(question, self.terms, self.register, used=self._next_number(ledgers) - 1)
            rows = self._rows_of(question)
            expected, _ = expected_of(model, self.terms, rows=rows, devices=self.study.plan.devices)
            self.terms.require_answer(expected, rows)  # refused before its first sum is paid for

            def ask(checked: CheckedQuestion, state: NDArray[np.float64]) -> AnsweredQuestion:
                return self._answered(checked, state, ledgers)

            made = fit(model, self.terms, self.register, ask, watch=watch)
        figures = {} if self.tables.test is None else measured(made.model, self.tables.test)
        keep_model(self.folder, made, figures)
        privacy = self._privacy(from_register=self.register.last == before, sums=len(made.sums))
        return answer_of_model(made, privacy, figures)

    def plan(self, question: Question) -> PlannedQuestion:
        """It plans the cost and the width of the interval; nobody is asked, and nothing is charged."""
        rows, devices = self._rows_of(question), self.study.plan.devices
        question = self.terms.completed(question, rows=rows, devices=devices)
        return planned(question, self.terms, self.register, rows=rows, devices=devices, delta=self.delta)

    def answer_from(self, found: AnsweredQuestion, *, from_register: bool = False) -> AskedAnswer:
        """It is what an opened sum says: all of it follows from the register."""
        return answer_of(self.terms, found, self._privacy(from_register=from_register))

    def _privacy(self, *, from_register: bool, sums: int = 1) -> AnswerPrivacy:
        return answer_privacy(
            self.terms.price,
            delta=self.delta,
            colluders=self.terms.secure.colluders,
            asked=self.register.last,
            from_register=from_register,
            sums=sums,
        )

    def _answered(
        self, checked: CheckedQuestion, state: NDArray[np.float64], ledgers: DeviceLedgers
    ) -> AnsweredQuestion:
        checked.question.require_current()
        number = self._next_number(ledgers)
        cohort = self._willing(ledgers, number)
        turn = Asking(checked=checked, state=state, cohort=tuple(cohort), number=number)
        found = answered(checked, _SUMS[self.kind](self, turn, ledgers), number, state)
        self.register.add(found)
        return found

    @property
    def delta(self) -> float:
        """δ of every figure."""
        return self.study.job.privacy.delta

    @property
    def rows(self) -> int:
        """The rows of all devices together, which are public."""
        return sum(table.rows for table in self.study.data.tables)

    def _rows_of(self, question: Question) -> int:
        """The rows that a question is about: models are made from those that do not judge them."""
        trained = {approved_as(name) for name in TRAINED}
        return sum(table.rows for table in self.tables.train) if question.name in trained else self.rows

    @cached_property
    def tables(self) -> AskedTables:
        """The rows that questions are about, those that models are made from, and those that judge them."""
        return AskedTables.of(self.study)

    def _next_number(self, ledgers: DeviceLedgers) -> int:
        """One more than any turn that was charged or answered: what failed after it was paid for is asked again."""
        plan = self.terms.plan
        charged = (
            charge.round for ledger in ledgers.of_device for charge in ledger.balance.charges if charge.plan == plan
        )
        return max(self.register.last, *charged, 0) + 1

    def _willing(self, ledgers: DeviceLedgers, number: int) -> list[int]:
        """The devices that can pay; where they are too few, the refusal of one of the others."""
        willing, refusals = [], []
        for device, ledger in enumerate(ledgers.of_device):
            try:
                self.terms.check(ledger, number)
                willing.append(device)
            except LedgerError as error:
                refusals.append(error)
        if refusals and len(willing) < self.terms.secure.smallest_sum:
            raise refusals[0]
        return willing

    def _stream(self, device: int) -> Callable[[int], Stream]:
        """The noise of a device's answers: from the seed if somebody chose one, else from the system's entropy."""

        def stream(number: int) -> Stream:
            if not self.study.seeded:
                return Stream.fresh()
            text = f"choral/1|{self.study.seed}|question|{number}|{device}"
            return Stream(hashlib.sha256(text.encode()).digest())

        return stream


def begun(kind: Kind, data: DataSource, settings: dict[str, Any], *, out: Path, drop: float = 0.0) -> Inquiry:
    """The questions of a new run: its folder has what `choral resume` needs to train in it, from the same ledgers."""
    return begun_with(kind, *job_and_source(data, settings), out=out, drop=drop)


def begun_with(kind: Kind, job: Job, source: DataSource, *, out: Path, drop: float = 0.0) -> Inquiry:
    """The same for a job that is there already, and the data that it does not name."""
    study = settle(job, source, keep_tables=True, guess=traits(kind).repeats)
    inquiry = Inquiry(kind, study, folder=out, drop=drop)  # refused before a folder is made
    Run(kind, study, folder=RunFolder.create(out), drop=drop).begin()
    return inquiry


def gone_on(path: str | Path, data: DataSource = None) -> Inquiry:
    """The questions of a run that has begun, in its folder."""
    about, study = settled_again(path, data, keep_tables=True)
    return Inquiry(about.kind, study, folder=Path(path), drop=about.drop or 0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Asking:
    """One turn of a question: what is asked, at which state, of whom."""

    checked: CheckedQuestion
    state: NDArray[np.float64]
    cohort: tuple[int, ...]
    number: int


def _simulated(asked: Inquiry, asking: Asking, ledgers: DeviceLedgers) -> Opened:
    """The sum without masks, which cancel."""
    checked, number, cohort = asking.checked, asking.number, asking.cohort
    checked.check(asking.state)
    turn = Turn(QUESTIONS + number, 0)
    included = tuple(device for device in cohort if not drops_out(asked.study.seed, asked.drop, turn, device))
    total: NDArray[np.int64] = np.zeros(checked.length, np.int64)
    for device in included:
        ledgers.of_device[device].charge(asked.terms.charge(number))
        own = checked.answer(asked.tables.of_device(device, checked), asking.state)
        total += checked.codec.noisy(own, asked._stream(device)(number))
    if len(included) < asked.terms.secure.smallest_sum:
        raise SumError(
            "CH503",
            f"{len(included)} of {len(cohort)} devices answered, {asked.terms.secure.smallest_sum} needed; "
            "charged to be safe.",
            where=f"question {number}:",
            fix="Ask again: that is another charge.",
        )
    return Opened(total=total, included=included)


def _rehearsed(asked: Inquiry, asking: Asking, ledgers: DeviceLedgers) -> Opened:
    """The sum that the server opens; devices and server have their own copies of everything."""
    study, keys, checked = asked.study, asked.folder / DEVICES, asking.checked
    vaults = [vault_of(name, device, keys) for device, name in enumerate(study.data.records.names)]
    terms = terms_of(study, vaults)
    devices = [
        Respondent(
            terms,
            vault,
            preparation(
                asked.terms,
                ledger=ledgers.of_device[device],
                table=partial(asked.tables.of_device, device),
                noise=asked._stream(device),
                note=lambda _number, _words: None,
            ),
        )
        for device, vault in enumerate(vaults)
    ]
    data = checked.question.canonical()
    of_question = terms.asked(
        data, secure=asked.terms.secure, codec=checked.codec, length=checked.length, state=checked.state
    )
    transport = DroppingTransport(of_question, MemoryTransport(devices), rate=asked.drop, seed=study.seed)
    opened = Wire(of_question, transport).attempt(Turn(QUESTIONS + asking.number, 0), asking.cohort, asking.state)
    return Opened(total=opened.integers, included=tuple(terms.numbers[name] for name in opened.included))


_SUMS: dict[str, Callable[[Inquiry, Asking, DeviceLedgers], Opened]] = {
    "simulation": _simulated,
    "rehearsal": _rehearsed,
}


def made(inquiry: Inquiry, *, watch: Watch = unwatched) -> AskedAnswer:
    """The model that the job names, sum by sum; the run folder then has its result, signed as that of a training."""
    answered = inquiry.ask(question_of(inquiry.study.job), watch=watch)
    _EndOfSums(inquiry, answered).write_result()
    return answered


class _EndOfSums(Run):
    """A run that has all sums of its model: nothing is trained, so it ends without a round."""

    stopped = "all sums of the model are made"
    _stopped_by_choice = False  # all sums that may be asked for are in the statement

    def __init__(self, inquiry: Inquiry, answered: AskedAnswer) -> None:
        place = PLACES[inquiry.kind](inquiry.study, folder=inquiry.folder, drop=inquiry.drop)
        super().__init__(place, inquiry.study, folder=RunFolder(inquiry.folder))
        assert answered.model is not None  # noqa: S101 - what was asked for is a model
        self.model: FittedModel = answered.model
        self.figures = dict(answered.figures)

    @property
    def parameters(self) -> NDArray[np.float32]:
        """The state of the model."""
        return self.model.state.astype(np.float32)

    def merits(self) -> tuple[dict[str, float], Measured | None]:
        """It is what the model reaches on test rows."""
        return {name: round(value, 6) for name, value in self.figures.items()}, None

    def card(self) -> ModelCard:
        """It is what names the numbers of the state; its question says which columns they belong to."""
        shape = self.shape()
        return msgspec.structs.replace(super().card(), kind=shape.kind, widths=(), parameters=shape.parameters)
