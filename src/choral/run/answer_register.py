"""The register of a study's questions: what was answered once is answered again from here, and costs nothing."""

from pathlib import Path

from choral.record import QUESTIONS, AnsweredQuestion, read_questions
from choral.run.folder import append_line


class AnswerRegister:
    """The answered questions of a run folder, in the order of their numbers."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / QUESTIONS
        self.answered: list[AnsweredQuestion] = list(read_questions(folder))

    def find(self, question: bytes, state: str = "") -> AnsweredQuestion | None:
        """The answer to exactly this question, at the state with this digest, where there is one."""
        wanted = (question.decode(), state)
        return next((known for known in self.answered if (known.question, known.state) == wanted), None)

    @property
    def last(self) -> int:
        """The largest number of a question that was answered; 0 before the first."""
        return max((known.number for known in self.answered), default=0)

    def add(self, answered: AnsweredQuestion) -> None:
        """Add an answer, durably."""
        append_line(self.path, answered, fix="Free some space, then ask again.")
        self.answered.append(answered)
