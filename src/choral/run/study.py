"""A study as it is settled before round 0: data, model, plan, secure sum, and what rounds may cost each device."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from choral.accounting.conversions import price_of_sums
from choral.accounting.costs import NO_LIMIT, Costs
from choral.config import Job
from choral.core import private_sums
from choral.core.codec import MOST_ROWS, Codec
from choral.core.errors import ChoralError, ConfigError, TableError
from choral.core.keys import digest
from choral.core.ledger import Balance, Ledger, Reservation
from choral.core.plan import Budget, Participation, Plan, SecureSum
from choral.core.private_sums import SumPrice
from choral.learning.models import GIVEN, KINDS, Maker, Model
from choral.learning.once import OnceTraining
from choral.learning.persons import model_of_units
from choral.learning.trainer import LocalTraining
from choral.tables.columns import Categorical, Numeric, declare
from choral.tables.encoder import Encoder
from choral.tables.reading import Table
from choral.tables.records import Labels, Split, by
from choral.tables.sources import ADULT_LABEL, Dataset, adult_metadata


@dataclass(frozen=True, kw_only=True, eq=False)
class Study:
    """A run before it starts: everything that is public, checked, and the same for every way to run it."""

    name: str
    job: Job = field(repr=False)
    seed: int = field(repr=False)  # of a deployment a secret: nobody can predict who is called
    seeded: bool  # somebody chose the seed, so the noise can be predicted
    data: Dataset = field(repr=False)  # of a deployment its columns and its devices, without any row
    split: Split = field(repr=False)
    rows: NDArray[np.int64] = field(repr=False)  # that each device is charged for; persons where they are the unit
    model: Model
    plan: Plan
    secure: SecureSum
    codec: Codec
    limits: tuple[Budget, ...] = field(repr=False)
    source: str
    in_memory: bool

    @property
    def participation(self) -> Participation:
        """It says how cohorts are drawn."""
        return self.job.federation.participation

    @property
    def trained(self) -> Model:
        """It is what a device trains on its records or persons; an adaptive clip is one parameter more."""
        return model_of_units(self.model, self.plan)

    @cached_property
    def costs(self) -> Costs:
        """It is what rounds cost the devices."""
        return Costs(
            plan=self.plan,
            secure=self.secure,
            rows=self.rows,
            limits=self.limits,
            names=self.data.records.names,
            against=self.job.privacy.against,
            questions=price_of(self.job, self.plan.devices),
        )


def ask_sum_of(job: Job, devices: int) -> SecureSum:
    """The secure sum of questions: all devices, in words of 64 bits; nobody may drop out where [ask] says so."""
    secure = SecureSum.for_cohort(devices, colluders=job.federation.colluders, modulus_bits=64)
    return secure if job.ask.dropouts else replace(secure, smallest_sum=devices, threshold=devices - 1)


def price_of(job: Job, devices: int) -> SumPrice | None:
    """It is what each question costs a device; None where nothing may be asked."""
    if not job.ask.allowed:
        return None
    secure = ask_sum_of(job, devices)
    return price_of_sums(
        epsilon=job.ask.epsilon,
        epsilon_sum=job.ask.epsilon_sum,
        delta=job.privacy.delta,
        most=job.ask.most,
        noises=secure.honest_noises(secure.adversary),
    )


def plan_of_questions(run: str) -> str:
    """It is what ledgers call the questions of a run.

    >>> plan_of_questions("9f3c")
    '9f3c:questions'
    """
    return f"{run}:questions"


def reserve_questions(book: Ledger | Balance, price: SumPrice, run: str) -> None:
    """Reserve all questions that a run may ask, once."""
    plan, balances = plan_of_questions(run), book if isinstance(book, Balance) else book.balance
    if plan in balances.open_plans:
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
    """It raises CH302 for a column that may be asked about and that a table does not have."""
    if job.ask.allowed:
        for name in declared_columns(job):
            table.cells(name)


def check_rows(job: Job, rows: int) -> None:
    """It raises CH206 for a device that may be asked and has more rows than an answer's words have room for.

    Its answers would be refused only after it had paid for them.
    """
    if job.ask.allowed and rows > MOST_ROWS:
        raise TableError(
            "CH206",
            f"{rows:,} rows of one device, and a question has room for {MOST_ROWS:,}.",
            why="Nothing was asked and nothing was charged.",
            fix="Give fewer rows, divide them between several devices, or leave [ask] out of the study.",
        )


def encoder_of(job: Job, path: Path | None = None, inputs: Sequence[Numeric | Categorical] = ()) -> Encoder | None:
    """The encoder that [data] names, from this file if one is given; None where there is none."""
    data = job.data
    if data.embedding_bounds is None:
        return None
    return Encoder.read(
        path or job.folder / data.encoder_file,
        bounds=data.embedding_bounds,
        sha256=data.encoder_sha256,
        text=data.text,
        inputs=inputs,
        embeddings=data.embeddings,
    )


def codec_of(plan: Plan, secure: SecureSum, model: Model) -> Codec:
    """It says how updates of this model become ring integers; what may leave its range is charged for."""
    return Codec.for_plan(plan, secure, model_of_units(model, plan).size, failure=plan.out_of_range)


def check_delta(job: Job, rows: int) -> None:
    """It raises CH102 for a δ that would allow one of so many rows to be published."""
    if job.privacy.delta > 1 / rows:
        raise ConfigError(
            "CH102",
            f"privacy.delta = {job.privacy.delta:g}.",
            where=job.where("privacy", "delta"),
            fix=f"Must be at most 1/rows (here {1 / rows:.1e}). Suggested: 1e-5",
        )


def model_of(job: Job, *, shape: tuple[int, ...], classes: int, maker: Maker | None = None) -> Model:
    """The model that [model] names: one of choral's own, or what "module:function" returns for rows of this shape.

    Without a `maker`, and where none was given from Python, the function is looked for among what Python has installed,
    then next to the job's file.
    """
    kind, flat = job.model_kind, len(shape) == 1
    if kind in KINDS and not flat and not KINDS[kind].images:
        raise TableError(
            "CH312",
            f'rows have {by(shape)} features, and the model "{kind}" takes them one after the other.',
            where=job.where("model", "kind"),
            fix='Use kind = "cnn", features.reshape(len(features), -1), or your own model: choral.model.',
        )
    if kind in KINDS:
        return KINDS[kind].make(shape, classes, tuple(job.model.hidden or ()))
    maker = maker or job.maker
    if maker is None and kind.startswith(f"{GIVEN}:"):
        raise ConfigError(
            "CH110",
            f'the model "{kind}" is code that was given from Python.',
            where=job.where("model", "kind"),
            fix="Give it once more: choral.resume(folder, model=…).",
        )
    return made_for(
        maker or maker_in(kind, job.folder), kind, shape=shape, classes=classes, where=job.where("model", "kind")
    )


def made_for(make: Maker, kind: str, *, shape: tuple[int, ...], classes: int, where: str = "") -> Model:
    """It is what somebody's own code makes for rows of this shape; CH102 for a model of other shapes, and for none."""
    try:
        made = make(features=shape[0] if len(shape) == 1 else shape, classes=classes)
    except ChoralError:
        raise
    except Exception as error:  # whatever a user's own code raises is reported without a traceback
        raise ConfigError(
            "CH102",
            f'model.kind = "{kind}" can\'t be made: {error}.',
            where=where,
            fix="Give a function that takes features= and classes=; a file names it as module:function.",
        ) from None
    if not isinstance(made, Model):
        raise ConfigError(
            "CH102",
            f'"{kind}" returns a {type(made).__name__}.',
            where=where,
            fix="Return choral.model(init, loss, predict, features=…, classes=…).",
        )
    if (made.row, made.classes) != (shape, classes):
        raise ConfigError(
            "CH102",
            f'"{kind}" is a model of {by(made.row)} features and {made.classes} classes, '
            f"the data has {by(shape)} and {classes}.",
            where=where,
            fix="Hand features and classes on to choral.model; where the label is a number, there are 0 classes.",
        )
    return made


def maker_in(kind: str, folder: Path) -> Maker:
    """The function that "module:function" names: among what Python has installed, then in this folder."""
    module, _, function = kind.partition(":")

    def make(**shapes: object) -> object:
        with _found_last(str(folder.resolve())):
            return getattr(import_module(module), function)(**shapes)

    return make


@contextmanager
def _found_last(folder: str) -> Iterator[None]:
    """Modules in this folder can be imported after all others: a file next to choral.toml hides no installed module."""
    sys.path.append(folder)
    try:
        yield
    finally:
        del sys.path[len(sys.path) - 1 - sys.path[::-1].index(folder)]  # the one that was added, if others were too


def limits_of(job: Job, data: Dataset) -> tuple[Budget, ...]:
    """Each device's own limit: [privacy.limits] by name, else the limit column, else the common ε."""
    own, names = job.privacy.limits or {}, data.records.names
    if unknown := sorted(set(own) - set(names)):
        raise ConfigError(
            "CH104",
            f'[privacy.limits] names "{unknown[0]}", which is no device.',
            where=job.where("privacy", "limits"),
            fix=f"Devices: {', '.join(names[:8])}{', …' if len(names) > 8 else ''}.",
        )
    # Without an ε the noise was chosen by hand; the ledgers still count, but refuse nothing.
    common = job.privacy.epsilon if job.privacy.epsilon is not None else NO_LIMIT
    limits = data.limits or (common,) * len(names)
    return tuple(
        Budget(epsilon=own.get(name, limit), delta=job.privacy.delta) for name, limit in zip(names, limits, strict=True)
    )


def trainer_of(
    model: Model,
    plan: Plan,
    features: NDArray[np.float32],
    labels: Labels,
    *,
    secret: bytes,
    run: str,
    rounds: int,
    table: str = "",
) -> LocalTraining | OnceTraining:
    """The training of a device in a run; `secret` is its vault's, `rounds` the charges of the run so far.

    `table` is the digest of a table that was approved: another one has another order of passes.
    """
    if plan.once:  # every step uses all rows: there is no order
        return OnceTraining(model=model, plan=plan, features=features, labels=labels, rounds=rounds)
    named = [run.encode(), table.encode()] if table else [run.encode()]  # as rehearsals have always had it
    return LocalTraining(
        model=model,
        plan=plan,
        features=features,
        labels=labels,
        rounds=rounds,
        # Secret, and the same after a restart: passes that continue must go on in their order.
        order=int.from_bytes(digest("order of passes", secret, *named)[:8], "little"),
    )
