"""It is what a study may ask, and what a device does with a question: check, charge, and only then read the table."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral.asking import catalogue
from choral.asking.answer import Expected
from choral.asking.parameters import DeclaredColumns, Summand
from choral.asking.question import Question
from choral.config import Job
from choral.core import private_sums
from choral.core.codec import WholeCodec
from choral.core.device import Prepare, Prepared
from choral.core.errors import ConfigError, LedgerError, TableError, TrustError
from choral.core.ledger import Charge, Ledger, Receipt
from choral.core.masks import Stream, Words
from choral.core.messages import QUESTIONS
from choral.core.plan import SecureSum
from choral.core.private_sums import SumNoise, SumPrice
from choral.run.study import ask_sum_of, declared_columns, plan_of_questions, price_of
from choral.tables.reading import Table

NO_STATE: NDArray[np.float64] = np.empty(0)


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckedQuestion:
    """A question that may be asked, with its sensitivity and noise, which follow from public numbers alone."""

    question: Question
    summand: Summand
    noise: SumNoise
    codec: WholeCodec
    columns: DeclaredColumns
    state: int = 0  # the numbers of the public state that it is asked at

    @property
    def trains(self) -> bool:
        """It says whether it is a sum of a model, which test rows have no part in."""
        return self.question.name in catalogue.TRAINED

    @property
    def length(self) -> int:
        """The numbers of an answer: those of the sum, and the number of rows."""
        return self.summand.length + self.codec.exact

    def at(self, state: NDArray[np.float64]) -> Summand:
        """It is what is added up at this state; CH102 for one that is no state of this question."""
        return self.summand if not (self.state or len(state)) else catalogue.summand(self.question, self.columns, state)

    def check(self, state: NDArray[np.float64]) -> None:
        """It raises CH102 for a state that is not finite or has another length."""
        self.at(state)

    def answer(self, table: Table, state: NDArray[np.float64] = NO_STATE) -> NDArray[np.int64]:
        """A device's sum without noise, and its number of rows, which no replaced record changes."""
        return np.append(self.at(state).total(table), table.rows).astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class AskTerms:
    """It is what a study may ask and at which price: public, and settled before the first question."""

    run: str
    price: SumPrice
    secure: SecureSum
    columns: DeclaredColumns
    names: tuple[str, ...]
    smallest_crowd: int = 1  # rows of all devices together, of which a question must have as many

    @classmethod
    def of(cls, job: Job, *, run: str, devices: int) -> "AskTerms":
        """The terms that [ask] sets for a run of so many devices, or CH103 where it allows no question."""
        price = price_of(job, devices)
        if price is None:
            raise ConfigError(
                "CH103",
                "[ask] has no epsilon, so nothing may be asked.",
                where=job.where("ask"),
                fix="Set epsilon = 0.5 in [ask], say: what all questions together may cost.",
            )
        return cls(
            run=run,
            price=price,
            secure=ask_sum_of(job, devices),
            columns=declared_columns(job),
            names=tuple(job.ask.names or catalogue.ALL_NAMES),
            smallest_crowd=job.ask.smallest_crowd,
        )

    @property
    def plan(self) -> str:
        """It is what ledgers call the questions of this run."""
        return plan_of_questions(self.run)

    def read(self, data: bytes) -> CheckedQuestion:
        """The question in these bytes, if it may be asked: nobody's word counts but this side's own catalogue."""
        question = Question.read(data)
        self.require_approved(question.name)
        state = catalogue.state_length(question, self.columns)
        summand = catalogue.summand(question, self.columns, np.zeros(state) if state else None)
        noise = self.price.noise_for(summand.l2)
        codec = WholeCodec.of(
            self.secure, factor=noise.factor, largest=summand.largest, scale=noise.scale, tail=private_sums.TAIL
        )
        return CheckedQuestion(
            question=question, summand=summand, noise=noise, codec=codec, columns=self.columns, state=state
        )

    def completed(self, question: Question, *, rows: int, devices: int) -> Question:
        """The question with what it leaves open and public numbers decide; it is sent so, and everybody reads it so."""
        if question.name not in catalogue.NAMES:
            return question
        deviation = self.read(question.canonical()).noise.deviation * math.sqrt(devices)
        return catalogue.completed(question, self.columns, rows=rows, deviation=deviation)

    def require_approved(self, name: str) -> None:
        """It raises CH608 for a question, a model or a sum of one that was not approved."""
        if catalogue.approved_as(name) not in self.names:
            raise TrustError(
                "CH608",
                f'"{name}" is not among the questions that were approved here.',
                fix=f"Approved: {', '.join(self.names)}.",
            )

    def without(self, struck: Collection[str]) -> "AskTerms":
        """The same without some names and columns, which a site does not allow; CH102 for what the study has not."""
        if strange := sorted(set(struck) - {*self.names, *self.columns}):
            raise ConfigError(
                "CH102",
                f'"{strange[0]}" is struck, and the study asks nothing of this name.',
                fix=f"It has: {', '.join((*self.names, *self.columns))}.",
            )
        columns = {name: column for name, column in self.columns.items() if name not in struck}
        return replace(self, names=tuple(name for name in self.names if name not in struck), columns=columns)

    def require_crowd(self, rows: int) -> None:
        """It raises CH320 where all devices together have fewer rows than the study demands of a question."""
        if rows < self.smallest_crowd:
            raise TableError(
                "CH320",
                f"too few rows for an honest answer: {rows:,}, and smallest_crowd is {self.smallest_crowd:,}.",
                why="Nothing was asked.",
                fix="Enrol more devices.",
            )

    @staticmethod
    def require_answer(expected: Expected, rows: int) -> None:
        """It raises CH320 where the noise would leave nothing to say about a plain population of so many rows."""
        if math.isfinite(expected.width):
            return
        raise TableError(
            "CH320",
            f"too few rows for an honest answer: the noise hides all that {rows:,} rows could say.",
            why="Nothing was asked.",
            fix="Ask for fewer cells, or give questions a larger epsilon.",
        )

    def expected(self, checked: CheckedQuestion, rows: int, devices: int) -> Expected:
        """It says how wide the intervals of an answer would be, with the noise of so many devices."""
        deviation = checked.noise.deviation * math.sqrt(devices)
        return catalogue.expected(checked.question, self.columns, rows=rows, deviation=deviation)

    def charge(self, number: int) -> Charge:
        """It is what a device is charged for answering the question of this number."""
        price = self.price
        return Charge(
            rule=private_sums.RULE, plan=self.plan, round=number, event=price.everyone, summed=price.summed
        )  # fmt: skip

    def check(self, ledger: Ledger, number: int) -> None:
        """It raises the reason why the ledger does not pay for one more question: CH407, CH401 or CH408."""
        try:
            ledger.balance.check(self.charge(number))
        except LedgerError as error:
            if error.code != "CH409":
                raise
            raise LedgerError(
                "CH407",
                f"device {ledger.device} refuses question {number}: the study may ask {self.price.most}, and all of "
                "them are used up.",
                why="Nothing was sent.",
                fix="More questions take another study, and another approval.",
            ) from None


def number_of(round_number: int) -> int:
    """The number of the question that a turn is about, from 1.

    >>> number_of(QUESTIONS + 3)
    3
    """
    return round_number - QUESTIONS


def preparation(
    terms: AskTerms,
    *,
    ledger: Ledger,
    table: Callable[[CheckedQuestion], Table],
    noise: Callable[[int], Stream],
    note: Callable[[int, str], None],
) -> Prepare:
    """It says how a device deals with questions, wherever it is: in a rehearsal, or at its own site.

    `table` reads the rows, and is called only after the charge. `noise` gives the stream of a question's noise.
    `note` writes the question, in words, into the device's own log before anything leaves.
    """

    def prepare(data: bytes) -> Prepared:
        checked = terms.read(data)
        checked.question.require_current()

        def payable(round_number: int, _attempt: int) -> None:
            terms.check(ledger, number_of(round_number))

        def charge(round_number: int, attempt: int) -> Receipt:
            payable(round_number, attempt)
            note(number_of(round_number), checked.question.words())
            return ledger.charge(terms.charge(number_of(round_number)))

        def answer(state: NDArray[np.float64], _round: int, _attempt: int) -> Any:  # noqa: ANN401 - whole numbers
            return checked.answer(table(checked), state)

        def encode(whole: Any, round_number: int, _attempt: int, out: Words) -> None:  # noqa: ANN401 - as above
            checked.codec.encode_whole(whole, noise(number_of(round_number)), out)

        return Prepared(
            secure=terms.secure,
            codec=checked.codec,
            length=checked.length,
            train=answer,
            encode=encode,
            charge=charge,
            payable=payable,
            state=checked.state,
            check=checked.check,
        )

    return prepare
