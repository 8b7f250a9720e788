"""What a study may ask, and what a device does with a question: check, charge, and only then read the table."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral.asking import catalogue
from choral.asking.answer import Expected
from choral.asking.question import Question
from choral.asking.summand import DeclaredColumns, Summand
from choral.config import Job
from choral.core import private_sums
from choral.core.codec import MOST_ROWS, WholeCodec
from choral.core.device import Prepare, Prepared
from choral.core.errors import ConfigError, LedgerError, TableError, TrustError
from choral.core.ledger import Balances, Charge, Ledger, Receipt, Reservation
from choral.core.masks import Stream, Words
from choral.core.messages import QUESTIONS
from choral.core.plan import SecureSum
from choral.core.private_sums import SumNoise, SumPrice
from choral.tables.columns import Categorical, Numeric, declare
from choral.tables.reading import Table
from choral.tables.sources import ADULT_LABEL, adult_metadata

NO_STATE: NDArray[np.float64] = np.empty(0)


def ask_sum_of(job: Job, devices: int) -> SecureSum:
    """The secure sum of questions: all devices, in words of 64 bits; nobody may drop out where [ask] says so."""
    secure = SecureSum.for_cohort(devices, colluders=job.federation.colluders, modulus_bits=64)
    return secure if job.ask.dropouts else replace(secure, smallest_sum=devices, threshold=devices - 1)


def price_of(job: Job, devices: int) -> SumPrice | None:
    """What each question costs a device; None where nothing may be asked."""
    if not job.ask.allowed:
        return None
    secure = ask_sum_of(job, devices)
    return SumPrice.of(
        epsilon=job.ask.epsilon,
        epsilon_sum=job.ask.epsilon_sum,
        delta=job.privacy.delta,
        most=job.ask.most,
        noises=secure.honest_noises(secure.adversary),
    )


def plan_of_questions(run: str) -> str:
    """What ledgers call the questions of a run.

    >>> plan_of_questions("9f3c")
    '9f3c:questions'
    """
    return f"{run}:questions"


def reserve_questions(book: Ledger | Balances, price: SumPrice, run: str) -> None:
    """Reserve all questions that a run may ask, once."""
    plan, balances = plan_of_questions(run), book if isinstance(book, Balances) else book.balances
    if plan in balances.everyone.open_plans:
        return
    summed = () if price.summed is None else (price.summed,) * price.most
    uploads = (price.everyone,) * price.most
    book.reserve(Reservation(rule=private_sums.RULE, plan=plan, uploads=uploads, summed=summed))


def declared_columns(job: Job) -> dict[str, Numeric | Categorical | None]:
    """The columns that questions may be about: those with declared ranges or levels, as far as [ask] allows them.

    What a simulation takes from the rows was declared by nobody. A column that [ask] names and nobody has declared is
    None: only its bounds may be asked for.
    """
    data = job.data
    columns, label, classes = data.columns or {}, data.label, data.class_names
    if data.builtin is not None:
        public = adult_metadata()
        columns, label, classes = {**public["columns"], **columns}, ADULT_LABEL, public["classes"]
    declared: dict[str, Numeric | Categorical | None] = {name: declare(name, said) for name, said in columns.items()}
    if data.label_bounds is not None:
        declared[label] = Numeric(name=label, low=data.label_bounds[0], high=data.label_bounds[1])
    elif classes is not None:
        declared[label] = Categorical(name=label, levels=tuple(classes))
    wanted = job.ask.columns
    return declared if wanted is None else {name: declared.get(name) for name in wanted}


def check_columns(job: Job, table: Table) -> None:
    """Nothing, or CH302 for a column that may be asked about and that a table does not have."""
    if job.ask.allowed:
        for name in declared_columns(job):
            table.cells(name)


def check_rows(job: Job, rows: int) -> None:
    """Nothing, or CH206 for a device that may be asked and has more rows than an answer's words have room for.

    Its answers would be refused only after it had paid for them.
    """
    if job.ask.allowed and rows > MOST_ROWS:
        raise TableError(
            "CH206",
            f"{rows:,} rows of one device, and a question has room for {MOST_ROWS:,}.",
            why="Nothing was asked and nothing was charged.",
            fix="Give fewer rows, divide them between several devices, or leave [ask] out of the study.",
        )


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
        """Whether it is a sum of a model, which test rows have no part in."""
        return self.question.name in catalogue.TRAINED

    @property
    def length(self) -> int:
        """The numbers of an answer: those of the sum, and the number of rows."""
        return self.summand.length + self.codec.exact

    def at(self, state: NDArray[np.float64]) -> Summand:
        """What is added up at this state; CH102 for one that is no state of this question."""
        return self.summand if not (self.state or len(state)) else catalogue.summand(self.question, self.columns, state)

    def check(self, state: NDArray[np.float64]) -> None:
        """Nothing, or CH102 for a state that is not finite or has another length."""
        self.at(state)

    def answer(self, table: Table, state: NDArray[np.float64] = NO_STATE) -> NDArray[np.int64]:
        """A device's sum without noise, and its number of rows, which no replaced record changes."""
        return np.append(self.at(state).total(table), table.rows).astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class AskTerms:
    """What a study may ask and at which price: public, and settled before the first question."""

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
        """What ledgers call the questions of this run."""
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
        """Nothing, or CH608 for a question, a model or a sum of one that was not approved."""
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
        """Nothing, or CH320 where all devices together have fewer rows than the study demands of a question."""
        if rows < self.smallest_crowd:
            raise TableError(
                "CH320",
                f"too few rows for an honest answer: {rows:,}, and smallest_crowd is {self.smallest_crowd:,}.",
                why="Nothing was asked.",
                fix="Enrol more devices.",
            )

    @staticmethod
    def require_answer(expected: Expected, rows: int) -> None:
        """Nothing, or CH320 where the noise would leave nothing to say about a plain population of so many rows."""
        if math.isfinite(expected.width):
            return
        raise TableError(
            "CH320",
            f"too few rows for an honest answer: the noise hides all that {rows:,} rows could say.",
            why="Nothing was asked.",
            fix="Ask for fewer cells, or give questions a larger epsilon.",
        )

    def expected(self, checked: CheckedQuestion, rows: int, devices: int) -> Expected:
        """How wide the intervals of an answer would be, with the noise of so many devices."""
        deviation = checked.noise.deviation * math.sqrt(devices)
        return catalogue.expected(checked.question, self.columns, rows=rows, deviation=deviation)

    def charge(self, number: int) -> Charge:
        """What a device is charged for answering the question of this number."""
        price = self.price
        return Charge(
            rule=private_sums.RULE, plan=self.plan, round=number, event=price.everyone, summed=price.summed
        )  # fmt: skip

    def check(self, ledger: Ledger, number: int) -> None:
        """Nothing, or why the ledger does not pay for one more question: CH407, CH401 or CH408."""
        try:
            ledger.balances.check(self.charge(number))
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


def no_questions(_question: bytes) -> Prepared:
    """What a device says whose study may ask nothing."""
    raise TrustError("CH608", "the study that was approved here may ask nothing.", fix="The device drops out.")


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
    """How a device deals with questions, wherever it is: in a rehearsal, or at its own site.

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
