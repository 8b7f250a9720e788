"""Models on sums: planned from public numbers, asked for round by round, kept; and the register of all answers.

A study may name such a model as its own: then nothing is trained, and its sums are asked for.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral.asking import catalogue
from choral.asking.answer import Expected
from choral.asking.catalogue import read_model, state_length
from choral.asking.fitting import FittedModel, FittedRound, NextSum, OpenedSum, RoundModel, SumModel, driven, step_of
from choral.asking.parameters import DeclaredColumns, Parameters
from choral.asking.question import FIRST, Question
from choral.config import Job
from choral.config.together import rounds_of
from choral.core.errors import ConfigError, LedgerError
from choral.core.exposure import noises_against
from choral.core.plan import Budget
from choral.learning.models import Model
from choral.planner.prospect import (
    CELLS,
    DESCRIBED,
    UNSUITED,
    ModelProposal,
    noise_of_a_cell,
    of_cells,
    of_effects,
    of_lives,
)
from choral.record import MODELS, QUESTIONS, AnsweredQuestion, ModelShape, SumModelLine, read_questions, read_sum_models
from choral.run.folder import Watch, append_line, now, unwatched
from choral.run.planning import settle
from choral.run.questions import NO_STATE, AskTerms, CheckedQuestion
from choral.run.study import Study, ask_sum_of, declared_columns
from choral.tables.columns import Numeric, encode
from choral.tables.reading import DataSource, Table, from_frame
from choral.tables.records import shares_of
from choral.tables.sources import ADULT_LABEL


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
    """It is what a model would tell of so many rows, and the deviation of the noise in its last sum."""
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
    """It says whether an answer is one of this model's sums; what only its sums have is left out."""
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
    """A model reaches this on these rows; a figure that they do not define, as with one class alone, is left out."""
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


def question_of(job: Job) -> Question:
    r"""The model that the job names, of all declared columns, as a question.

    >>> from choral.config import parse
    >>> data = '[data]\nlabel = "sick"\nclasses = ["no", "yes"]\n[data.columns.age]\nbounds = [0, 100]'
    >>> question_of(parse('privacy.epsilon = 1.0\nmodel.kind = "additive"\n' + data)).words()
    'What is a model of "sick" by "age", with cells for numbers?'
    """
    said, classes = job.model, job.data.class_names
    label = job.data.label if job.data.builtin is None else ADULT_LABEL
    left_out = {label, said.time, *(job.data.ignore or ())}
    given = {
        "columns": [name for name in declared_columns(job) if name not in left_out],
        "rounds": rounds_of(job),
        "bins": said.bins,
        "until": said.until,
    }
    if said.time is None:
        given |= {"target": label}
    else:
        given |= {"time": said.time, "event": label, "occurred": (classes or [""])[1]}
    return Question(
        name=job.model_kind_said, parameters={key: value for key, value in given.items() if value is not None}
    )


def require_training(job: Job) -> None:
    """It raises CH104 where the job's model is made from sums: no round of training makes it."""
    if job.on_sums:
        raise ConfigError(
            "CH104",
            f'[model] kind = "{job.model.kind}" is made from sums, and is not trained.',
            where=job.where("model", "kind"),
            fix=f"Use choral resume RUN, or choral.study(RUN, data).ask.{job.model.kind}(…).",
        )


def sums_of(job: Job) -> int:
    """It says how many sums the model that the job names takes."""
    return read_model(question_of(job), declared_columns(job)).sums


class SumCoordinates:
    """It is what turns rows of a table into what a model that was made from sums multiplies by its weights."""

    def __init__(self, job: Job, state: NDArray[np.float32]) -> None:
        asked, declared, self.written = question_of(job), declared_columns(job), job.data.written
        model = read_model(asked, declared)
        assert isinstance(model, RoundModel)  # noqa: S101 - no study has another as its model
        self.round: FittedRound = model.round.at(state.astype(np.float64))
        names = Parameters(asked.name, asked.parameters, declared).names("columns")
        self.columns = [column for column in map(declared.get, names) if column is not None]

    @property
    def ranks(self) -> bool:
        """It says whether the model orders rows by their hazard, and knows no classes."""
        return self.round.ranks

    def of_table(self, rows: DataSource) -> NDArray[np.float32]:
        """Rows × coordinates; a cell that can't be read is refused, as for other models."""
        table = from_frame(rows, self.written)
        encode(table, self.columns)
        return self.round.coordinates(table).astype(np.float32)

    def model(self, kind: str, state_length: int) -> Model:
        """The product of coordinates and weights, which stand at the end of the state, as a model."""
        weights = self.round.weights_length

        def untrained(*_: object) -> Any:  # noqa: ANN401 - never returns
            raise ConfigError("CH104", f'a model of kind "{kind}" is not trained.', fix="Ask for its sums.")

        return Model(
            name=kind, features=weights, classes=0 if self.ranks else 2, loss=untrained,
            init=lambda _seed: np.zeros(state_length, np.float32),
            predict=lambda state, rows: (rows @ state[-weights:])[:, None],
        )  # fmt: skip


def shape_of(job: Job) -> ModelShape:
    """The kind of the model that the job names, and how many numbers it has."""
    numbers = state_length(step_of(question_of(job), "round"), declared_columns(job))
    return ModelShape(kind=job.model_kind_said, hidden=(), parameters=numbers)


def kappa_of(study: Study) -> float | None:
    """κ of an additive model over the study's rows at its ε; None where such a model can't be or has no cells."""
    job, devices = study.job, study.plan.devices
    has_cells = any(isinstance(column, Numeric) for column in study.data.columns)
    one_record = job.privacy.epsilon is not None and job.privacy.protects.one_row
    if len(study.data.classes) != 2 or not has_cells or not one_record:
        return None
    secure = ask_sum_of(job, devices) if devices > 1 else None
    honest = 1 if secure is None else noises_against(job.privacy.against, secure.honest_noises(secure.adversary))
    return noise_of_a_cell(
        Budget(epsilon=job.privacy.epsilon or 0.0, delta=job.privacy.delta),
        devices=devices,
        rows=int(study.rows.sum()),
        row_length=math.sqrt(len(study.data.columns) + 1),
        honest_noises=honest,
        cells=job.model.bins or CELLS,
    )


def proposal_for(job: Job, source: DataSource = None) -> ModelProposal:
    """The kind of model that the planner proposes for a job, from its public numbers, with the reason."""
    if job.model.time is not None:
        return of_lives(job.model.time)
    if job.describes_training:
        return DESCRIBED
    kappa = kappa_of(settle(job, source, guess=True))
    return UNSUITED if kappa is None else of_effects(kappa)


def with_proposed_kind(job: Job, source: DataSource = None) -> tuple[Job, tuple[str, ...]]:
    """The job with the kind that is proposed where it says "auto", and the proposal in words; else as it is."""
    if not job.leaves_kind_open:
        return job, ()
    proposal = proposal_for(job, source)
    return job.with_kind(proposal.kind), (proposal.sentence,)


def advice(study: Study) -> tuple[str, ...]:
    """The planner says whether another kind of model is proposed, or what its cells are worth."""
    kappa, kind = kappa_of(study), study.job.model_kind_said
    if kappa is None:
        return ()
    return {"additive": (of_cells(kappa),), "logistic": (of_effects(kappa).sentence,)}.get(kind, ())
