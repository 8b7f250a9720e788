"""Questions in a deployment: the coordinator leaves them in the run folder, and the server asks them between rounds."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from choral.asking.catalogue import MODELS
from choral.asking.question import Question
from choral.backends.wire import Transport, Wire
from choral.core.codec import CHECKS
from choral.core.errors import ChoralError, PlanError, RunError, StorageError, TableError
from choral.core.messages import QUESTIONS, Turn
from choral.record import AnsweredQuestion, AnswerPrivacy, read_json, read_sum_models
from choral.run.agreement import LONGEST_ANSWER, Agreement
from choral.run.folder import write_json, write_whole
from choral.run.inquiry import (
    AskedAnswer,
    PlannedQuestion,
    answer_of,
    answer_of_model,
    answer_privacy,
    answered,
    planned,
)
from choral.run.modelling import AnswerRegister, MadeModel, fit, from_register, keep_model, measured, planned_model
from choral.run.places import Opened
from choral.run.questions import NO_STATE, AskTerms, CheckedQuestion
from choral.tables.reading import Table

WAITING, LAST = "waiting", "asked.json"  # the questions that nobody has asked yet | the number of the last one asked


def ask_terms(study: Agreement) -> AskTerms:
    """It is what the study may ask, as the server and every site compute it."""
    return AskTerms.of(study.job, run=study.run_name, devices=len(study.roster))


def put(folder: Path, study: Agreement, question: Question) -> AskedAnswer | None:
    """The answer from the register, or None: then the question waits for the server's next round.

    A question that can't be asked, or that the server has failed to ask, is refused; the latter may be put again.
    """
    terms, register, question = ask_terms(study), AnswerRegister(folder), _completed(study, question)
    terms.require_crowd(study.plan.rows * len(study.roster))  # each site has as many rows as the plan, or more
    if question.name in MODELS:
        model = planned_model(question, terms, register, used=register.last)
        for one in model.questions:
            _require_room(terms.read(one.canonical()))
        question, made = model.question, from_register(model, terms, register)
        if made is not None:
            figures = [
                line.figures for line in read_sum_models(folder) if line.question.encode() == question.canonical()
            ]
            privacy = _privacy(study, terms, register, sums=len(made.sums))
            return answer_of_model(made, privacy, figures[0] if figures else {})
    elif (found := register.find(question.canonical())) is not None:
        return answer_of(terms, found, _privacy(study, terms, register))
    else:
        _require_room(terms.read(question.canonical()))
    question.require_current()
    data = question.canonical()
    path = folder / WAITING / hashlib.sha256(data).hexdigest()
    failure = path.with_suffix(".failed")
    if failure.exists():
        failed = read_json(failure)
        failure.unlink()
        raise RunError(
            str(failed["code"]), str(failed["what"]), fix="Put it again to try again: that is another charge."
        )
    if (folder / "result.json").exists():
        raise StorageError("CH800", "is finished.", where=str(folder), fix="Another study can ask more.")
    path.parent.mkdir(exist_ok=True)
    write_whole(path, data)
    return None


def plan(folder: Path, study: Agreement, question: Question) -> PlannedQuestion:
    """It plans the cost of asking all sites, and the width of the interval if each has as many rows as the plan."""
    devices, question = len(study.roster), _completed(study, question)
    rows, delta = study.plan.rows * devices, study.job.privacy.delta
    return planned(question, ask_terms(study), AnswerRegister(folder), rows=rows, devices=devices, delta=delta)


def _completed(study: Agreement, question: Question) -> Question:
    devices = len(study.roster)
    return ask_terms(study).completed(question, rows=study.plan.rows * devices, devices=devices)


def _require_room(checked: CheckedQuestion) -> None:
    """It raises CH204 for an answer that is longer than what sites and transports take."""
    if checked.length > LONGEST_ANSWER - CHECKS:
        raise PlanError(
            "CH204",
            f"an answer of {checked.length:,} numbers is longer than the {LONGEST_ANSWER - CHECKS:,} of a deployment.",
            fix="Ask for fewer cells.",
        )


def _privacy(study: Agreement, terms: AskTerms, register: AnswerRegister, *, sums: int = 1) -> AnswerPrivacy:
    return answer_privacy(
        terms.price,
        delta=study.job.privacy.delta,
        colluders=terms.secure.colluders,
        asked=register.last,
        from_register=True,
        sums=sums,
    )


class WaitingQuestions:
    """The server's side: every question that waits is asked once, before the next round."""

    def __init__(self, folder: Path, study: Agreement, transport: Transport, *, public: Table | None = None) -> None:
        """`public` has rows that models on sums are measured on."""
        self.folder, self.study, self.transport, self.public = folder, study, transport, public

    def answer_waiting(self, here: Sequence[int]) -> None:
        """Ask what waits; what fails is reported to whoever asked it, and stops no round."""
        for path in sorted((self.folder / WAITING).glob("*")):
            if path.suffix:
                continue
            data = path.read_bytes()
            path.unlink()  # before anything is sent: a crash never asks, and so never charges, twice
            try:
                self._ask(data, here)
            except ChoralError as error:
                write_json(path.with_suffix(".failed"), {"code": error.code, "what": error.what})

    def _ask(self, data: bytes, here: Sequence[int]) -> None:
        terms, register = ask_terms(self.study), AnswerRegister(self.folder)

        def ask(checked: CheckedQuestion, state: NDArray[np.float64] = NO_STATE) -> AnsweredQuestion:
            return self._sum(terms, register, checked, state, here)

        question = Question.read(data)
        if question.name not in MODELS:
            ask(terms.read(data))
            return
        terms.require_approved(question.name)
        model = planned_model(question, terms, register, used=self._next(register) - 1)
        made = fit(model, terms, register, ask)
        keep_model(self.folder, made, self._measured(made))

    def _measured(self, made: MadeModel) -> dict[str, float]:
        """It is what a model reaches on the public rows; nothing where they lack a column of it."""
        try:
            return {} if self.public is None else measured(made.model, self.public)
        except TableError:
            return {}

    def _sum(
        self,
        terms: AskTerms,
        register: AnswerRegister,
        checked: CheckedQuestion,
        state: NDArray[np.float64],
        here: Sequence[int],
    ) -> AnsweredQuestion:
        """One sum of all devices that are here, in the register when it returns."""
        checked.question.require_current()  # before a number is used up
        data, number = checked.question.canonical(), self._next(register)
        write_json(self.folder / LAST, {"number": number})
        of_question = self.study.terms.asked(
            data, secure=terms.secure, codec=checked.codec, length=checked.length, state=checked.state
        )
        opened = Wire(of_question, self.transport).attempt(Turn(QUESTIONS + number, 0), here, state)
        included = tuple(of_question.numbers[name] for name in opened.included)
        found = answered(checked, Opened(total=opened.integers, included=included), number, state)
        register.add(found)
        return found

    def _next(self, register: AnswerRegister) -> int:
        """A number that no device has seen: the last one is on disk before it is sent."""
        path = self.folder / LAST
        last = read_json(path).get("number") if path.exists() else 0
        if not isinstance(last, int):
            raise StorageError("CH802", "is damaged.", where=str(path), fix="Restore it.")
        return max(last, register.last) + 1
