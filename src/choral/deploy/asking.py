"""Questions in a deployment: the coordinator leaves them in the run folder, and the server asks them between rounds."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from choral.asking.question import Question
from choral.backends.wire import Transport, Wire
from choral.errors import ChoralError, PlanError, RunError, StorageError
from choral.protocol.messages import QUESTIONS, Turn
from choral.record import AnsweredQuestion, read_json
from choral.run.agreement import Agreement
from choral.run.answer_register import AnswerRegister
from choral.run.folder import write_json, write_whole
from choral.run.inquiry import AskedAnswer, answer_of, answer_privacy, answered
from choral.run.places import Opened
from choral.run.questions import AskTerms

WAITING, LAST = "waiting", "asked.json"  # the questions that nobody has asked yet | the number of the last one asked


def ask_terms(study: Agreement) -> AskTerms:
    """What the study may ask, as the server and every site work it out."""
    return AskTerms.of(study.job, run=study.run_name, devices=len(study.roster))


def put(folder: Path, study: Agreement, question: Question) -> AskedAnswer | None:
    """The answer from the register, or None: then the question waits for the server's next round.

    A question that can't be asked, or that the server has failed to ask, is refused; the latter may be put again.
    """
    terms, data, register = ask_terms(study), question.canonical(), AnswerRegister(folder)
    _require_room(study, terms.read(data).length)
    if (found := register.find(data)) is not None:
        return _told(study, terms, register, found)
    path = folder / WAITING / hashlib.sha256(data).hexdigest()
    failure = path.with_suffix(".failed")
    if failure.exists():
        told = read_json(failure)
        failure.unlink()
        raise RunError(str(told["code"]), str(told["what"]), fix="Put it again to try again: that is another charge.")
    if (folder / "result.json").exists():
        raise StorageError("CH800", "is finished.", where=str(folder), fix="Another study can ask more.")
    path.parent.mkdir(exist_ok=True)
    write_whole(path, data)
    return None


def _require_room(study: Agreement, length: int) -> None:
    """Nothing, or CH204: sites and transports take frames as long as those of rounds, and no longer ones."""
    most = study.terms.frame_bytes
    if 8 * (length + 4) + 512 + study.terms.records_bytes > most:
        raise PlanError(
            "CH204",
            f"an answer of {length:,} numbers does not fit the {most:,} bytes of this study's frames.",
            fix="Ask for fewer cells.",
        )


def _told(study: Agreement, terms: AskTerms, register: AnswerRegister, found: AnsweredQuestion) -> AskedAnswer:
    privacy = answer_privacy(
        terms.price,
        delta=study.job.privacy.delta,
        colluders=terms.secure.colluders,
        asked=register.last,
        from_register=True,
    )
    return answer_of(terms, found, privacy)


class WaitingQuestions:
    """The server's side: every question that waits is asked once, before the next round."""

    def __init__(self, folder: Path, study: Agreement, transport: Transport) -> None:
        self.folder, self.study, self.transport = folder, study, transport

    def answer_waiting(self, here: Sequence[int]) -> None:
        """Ask what waits; what fails is told to whoever put it, and stops no round."""
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
        checked, number = terms.read(data), self._next(register)
        write_json(self.folder / LAST, {"number": number})
        of_question = self.study.terms.asked(data, secure=terms.secure, codec=checked.codec, length=checked.length)
        wire = Wire(of_question, self.transport)
        opened = wire.attempt(Turn(QUESTIONS + number, 0), here, np.empty(0, np.float32))
        included = tuple(of_question.numbers[name] for name in opened.included)
        register.add(answered(checked, Opened(total=opened.integers, included=included), number))

    def _next(self, register: AnswerRegister) -> int:
        """A number that no device has seen: the last one is on disk before it is sent."""
        path = self.folder / LAST
        last = read_json(path).get("number") if path.exists() else 0
        if not isinstance(last, int):
            raise StorageError("CH802", "is damaged.", where=str(path), fix="Restore it.")
        return max(last, register.last) + 1
