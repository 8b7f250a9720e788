"""A run whose model is made from sums: [model] kind = "additive" or "hazard"."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral.asking.catalogue import read_model, state_length
from choral.asking.fitting import FittedRound, RoundModel, step_of
from choral.asking.parameters import Parameters
from choral.asking.question import Question
from choral.config import Job
from choral.config.together import rounds_of
from choral.core.errors import ConfigError
from choral.core.plan import Budget
from choral.learning.models import Model
from choral.planner.on_sums import (
    CELLS,
    DESCRIBED,
    UNSUITED,
    ModelProposal,
    noise_of_a_cell,
    of_cells,
    of_effects,
    of_lives,
)
from choral.record import ModelShape
from choral.run.planning import settle
from choral.run.study import Study, ask_sum_of, declared_columns
from choral.tables.columns import Numeric, encode
from choral.tables.reading import DataSource, from_frame
from choral.tables.sources import ADULT_LABEL


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
    """Nothing, or CH104 where the job's model is made from sums: no round of training makes it."""
    if job.on_sums:
        raise ConfigError(
            "CH104",
            f'[model] kind = "{job.model.kind}" is made from sums, and is not trained.',
            where=job.where("model", "kind"),
            fix=f"Use choral resume RUN, or choral.study(RUN, data).ask.{job.model.kind}(…).",
        )


def sums_of(job: Job) -> int:
    """How many sums the model that the job names takes."""
    return read_model(question_of(job), declared_columns(job)).sums


class SumCoordinates:
    """What turns rows of a table into what a model that was made from sums multiplies by its weights."""

    def __init__(self, job: Job, state: NDArray[np.float32]) -> None:
        asked, declared, self.written = question_of(job), declared_columns(job), job.data.written
        model = read_model(asked, declared)
        assert isinstance(model, RoundModel)  # noqa: S101 - no study has another as its model
        self.round: FittedRound = model.round.at(state.astype(np.float64))
        names = Parameters(asked.name, asked.parameters, declared).names("columns")
        self.columns = [column for column in map(declared.get, names) if column is not None]

    @property
    def ranks(self) -> bool:
        """Whether the model orders rows by their hazard, and knows no classes."""
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
    honest = 1 if secure is None or job.privacy.against == "everyone" else secure.honest_noises(secure.adversary)
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
    """What the planner says about the job's model: whether another kind is proposed, or what its cells are worth."""
    kappa, kind = kappa_of(study), study.job.model_kind_said
    if kappa is None:
        return ()
    return {"additive": (of_cells(kappa),), "logistic": (of_effects(kappa).sentence,)}.get(kind, ())
