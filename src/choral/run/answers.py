"""Answers with what they cost, and plans of them: the same values wherever the devices are."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral.asking import catalogue
from choral.asking.answer import Answer, Expected
from choral.asking.catalogue import MODELS
from choral.asking.fitting import FittedModel
from choral.asking.question import Question
from choral.core import private_sums
from choral.core.events import epsilon_of
from choral.core.private_sums import SumPrice
from choral.core.rules import ADJACENCY, EVERYONE
from choral.record import AnsweredQuestion, AnswerPrivacy
from choral.run.answer_register import AnswerRegister
from choral.run.folder import now
from choral.run.modelling import MadeModel, expected_of, opened_sum, planned_model, state_digest
from choral.run.places import Opened
from choral.run.questions import NO_STATE, AskTerms, CheckedQuestion


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
        """Whether intervals are approximate, for so much noise."""
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
    """What a question would cost and how wide its interval would be; nothing was asked."""

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
    """What one answer of so many sums costs at this price, and all of the study's together."""
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
    """What an opened sum says, wherever it was opened."""
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
    """What a question or a model would cost and tell of so many rows; a model has the rounds that asking would plan."""
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
