"""Models on sums wherever their devices are: planned from public numbers, asked for round by round, and kept."""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from choral.asking import catalogue
from choral.asking.answer import Expected
from choral.asking.catalogue import read_model
from choral.asking.fitting import FittedModel, NextSum, OpenedSum, RoundModel, SumModel, driven
from choral.asking.parameters import DeclaredColumns
from choral.asking.question import FIRST, Question
from choral.core.errors import LedgerError
from choral.record import MODELS, AnsweredQuestion, SumModelLine, read_sum_models
from choral.run.answer_register import AnswerRegister
from choral.run.folder import append_line, now
from choral.run.questions import NO_STATE, AskTerms, CheckedQuestion
from choral.run.study import Study, declared_columns
from choral.run.watch import Watch, unwatched
from choral.tables.columns import Numeric
from choral.tables.reading import Table
from choral.tables.records import shares_of

State = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class MadeModel:
    """A model on sums and the answers that it follows from, in their order; the question names its rounds."""

    question: Question
    model: FittedModel
    sums: tuple[AnsweredQuestion, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class AskedTables:
    """Each device's rows: all of them, those that models are made from, and those of all devices that judge models."""

    whole: tuple[Table, ...] = field(repr=False)
    train: tuple[Table, ...] = field(repr=False)
    test: Table | None = field(repr=False)

    @classmethod
    def of(cls, study: Study) -> "AskedTables":
        """As the study splits them: rows to choose by have nothing to choose here, so models are made from them too."""
        data, seed = study.job.data, study.seed if study.seeded else 0
        train, test = [], []
        for device, table in enumerate(study.data.tables):
            parts = shares_of(table.rows, device=device, seed=seed, validation=data.validation, test=data.test)
            train.append(_rows(table, np.sort(np.concatenate(parts[:2]))))
            test.append(_plain(_rows(table, parts[2]), declared_columns(study.job)))
        held = {name: [cell for part in test for cell in part.cells(name)] for name in test[0].columns}
        judge = Table(source="test rows", columns=held)
        return cls(whole=study.data.tables, train=tuple(train), test=judge if judge.rows else None)

    def of_device(self, device: int, checked: CheckedQuestion) -> Table:
        """The rows of a device that a question is about."""
        return (self.train if checked.trains else self.whole)[device]


def _rows(table: Table, rows: NDArray[np.intp]) -> Table:
    columns = {name: list(table.cells(name)) for name in table.columns}
    return replace(table, columns={name: [cells[row] for row in rows] for name, cells in columns.items()})


def _plain(table: Table, declared: DeclaredColumns) -> Table:
    """The same with floats for numbers and None for no value: files that are written differently can be joined then."""
    columns = {
        name: table.written.numbers(cells).tolist()
        if isinstance(declared.get(name), Numeric)
        else [None if table.written.is_missing(cell) else cell for cell in cells]
        for name, cells in table.columns.items()
    }
    return Table(source=table.source, columns=columns)


def state_digest(state: State) -> str:
    """SHA-256 of a state as it is sent, in hex; nothing where there is none.

    >>> state_digest(np.empty(0)), len(state_digest(np.zeros(2)))
    ('', 64)
    """
    return hashlib.sha256(np.ascontiguousarray(state, "<f8").tobytes()).hexdigest() if len(state) else ""


def opened_sum(found: AnsweredQuestion) -> OpenedSum:
    """An answer of the register in units of its question."""
    return OpenedSum(
        total=np.array(found.total, dtype=np.float64) / found.factor,
        rows=found.rows,
        deviation=found.scale * math.sqrt(len(found.included)) / found.factor,
    )


def planned_model(question: Question, terms: AskTerms, register: AnswerRegister, *, used: int) -> SumModel:
    """The model with its number of rounds: as given, as begun, else the usual one or as many as are left.

    CH407 where the study has too few questions left for it; nothing was asked and nothing is charged then.
    """
    question = _as_begun(question, register)
    model, left = read_model(question, terms.columns), terms.price.most - used
    if isinstance(model, RoundModel):
        begun, most = _begun(question, register), max(left - model.before, 1)
        rounds = question.parameters.get("rounds") or begun or min(model.round.rounds, most)
        question = question.with_parameters({**question.parameters, "rounds": rounds})
        model = read_model(question, terms.columns)
    for one in model.questions:  # refused before the first of them is asked
        terms.read(one.canonical())
    done = sum(_is_step(known, question) for known in register.answered)
    if (needed := model.sums - done) > left:
        raise LedgerError(
            "CH407",
            f"the model takes {needed} more sum{'s' * (needed != 1)}, and {left} of {terms.price.most} questions "
            f"{'is' if left == 1 else 'are'} left.",
            why="Nothing was sent.",
            fix=f"Use fewer rounds, or a study with [ask] most = {needed + used} or more.",
        )
    return model


def expected_of(model: SumModel, terms: AskTerms, *, rows: int, devices: int) -> tuple[Expected, float]:
    """What a model would tell of so many rows, and the deviation of the noise in its last sum."""
    checked = terms.read(model.questions[-1].canonical())
    deviation = checked.noise.deviation * math.sqrt(devices)
    return model.expected(rows=rows, deviation=deviation), deviation


def _as_begun(question: Question, register: AnswerRegister) -> Question:
    """The question of the first version, where the register has sums of that one: they are not asked for again."""
    first = replace(question, version=FIRST)
    is_begun = "rounds" not in question.parameters and _begun(first, register) is not None
    return first if is_begun or any(_is_step(known, first) for known in register.answered) else question


def _begun(question: Question, register: AnswerRegister) -> object:
    """The rounds of the same model that the register has a part of."""
    for known in register.answered:
        rounds = Question.read(known.question.encode()).parameters.get("rounds")
        settled = question.with_parameters({**question.parameters, "rounds": rounds})
        if rounds is not None and _is_step(known, settled):
            return rounds
    return None


def _is_step(known: AnsweredQuestion, model: Question) -> bool:
    """Whether an answer is one of this model's sums; what only its sums have is left out."""
    asked = Question.read(known.question.encode())
    if asked.name not in catalogue.ROUNDS or catalogue.approved_as(asked.name) != model.name:
        return False
    parameters = {key: value for key, value in asked.parameters.items() if key not in ("take", "low", "high")}
    return asked.with_parameters(parameters, name=model.name).canonical() == model.canonical()


def fit(
    model: SumModel,
    terms: AskTerms,
    register: AnswerRegister,
    ask: Callable[[CheckedQuestion, State], AnsweredQuestion],
    *,
    watch: Watch = unwatched,
) -> MadeModel:
    """The model, sum by sum: from the register what it has, and by `ask` what it has not."""
    count, sums = model.sums, list[AnsweredQuestion]()
    counted = iter(watch(range(count), total=count, label="SUMS"))

    def opened(step: NextSum) -> OpenedSum:
        next(counted)
        data, state = step.question.canonical(), NO_STATE if step.state is None else step.state
        found = register.find(data, state_digest(state)) or ask(terms.read(data), state)
        sums.append(found)
        return opened_sum(found)

    made = driven(model.fit(), opened)
    next(counted, None)  # so that a bar ends
    return MadeModel(question=model.question, model=made, sums=tuple(sums))


def from_register(model: SumModel, terms: AskTerms, register: AnswerRegister) -> MadeModel | None:
    """The model, if the register has all of its sums: it follows from them, so anybody can compute it again."""

    def ask(_checked: CheckedQuestion, _state: State) -> AnsweredQuestion:
        raise LookupError

    try:
        return fit(model, terms, register, ask)
    except LookupError:
        return None


def measured(model: FittedModel, rows: Table) -> dict[str, float]:
    """What a model reaches on these rows; a figure that they do not define, as with one class alone, is left out."""
    return {name: value for name, value in model.judged(rows).items() if math.isfinite(value)}


def keep_model(folder: Path, made: MadeModel, figures: Mapping[str, float]) -> None:
    """Write a model into the run folder, once."""
    text = made.question.canonical().decode()
    if any(line.question == text for line in read_sum_models(folder)):
        return
    line = SumModelLine(
        question=text,
        words=made.question.words(),
        at=now(),
        numbers=tuple(one.number for one in made.sums),
        rows=made.sums[-1].rows,
        state=tuple(made.model.state.tolist()),
        figures={name: round(value, 6) for name, value in figures.items()},
    )
    append_line(folder / MODELS, line, fix="Free some space, then ask for the model again: it costs nothing.")
