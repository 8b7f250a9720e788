"""What is settled before round 0: data, model, plan, secure sum, and what each round may cost each device."""

import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from choral.config import Job
from choral.core.codec import Codec
from choral.core.costs import NO_LIMIT, Costs
from choral.core.errors import ChoralError, ConfigError, TableError
from choral.core.plan import Budget, Participation, Plan, SecureSum
from choral.learning.models import GIVEN, KINDS, Maker, Model
from choral.learning.persons import model_of_units, split_units
from choral.planner import Prospect
from choral.run.planning import noise_drowns, plan_of, prospect_of, server_step_of
from choral.run.questions import price_of
from choral.run.watch import unheard
from choral.server_step import ServerStep
from choral.tables import sources
from choral.tables.arrays import read_images, read_npz
from choral.tables.columns import Categorical, Numeric
from choral.tables.encoder import Encoder
from choral.tables.reading import DataSource
from choral.tables.records import Records, Split, by
from choral.tables.sources import Dataset

_MOST_NAMED = 8  # devices in a note


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
        """How cohorts are drawn."""
        return self.job.federation.participation

    @property
    def server_step(self) -> ServerStep:
        """What the server does with each mean: as is said, else as goes with the plan that is proposed."""
        typical = float(self.rows.mean())
        return server_step_of(
            self.job, self.model, self.plan, self.secure, columns=self.data.columns, typical_rows=typical
        )

    @property
    def prospect(self) -> Prospect | None:
        """What can be expected of the run, from public numbers."""
        return prospect_of(self.job, self.model, self.secure, rows=self.rows.tolist())

    @property
    def noise_drowns(self) -> bool:
        """Whether the noise is larger than all that the steps could learn; a simulation tries it all the same."""
        return noise_drowns(self.job, self.model, self.plan, self.secure)

    @property
    def trained(self) -> Model:
        """What a device trains on its records or persons; an adaptive clip is one parameter more."""
        return model_of_units(self.model, self.plan)

    @cached_property
    def costs(self) -> Costs:
        """What rounds cost the devices."""
        return Costs(
            plan=self.plan,
            secure=self.secure,
            rows=self.rows,
            limits=self.limits,
            names=self.data.records.names,
            against=self.job.privacy.against,
            questions=price_of(self.job, self.plan.devices),
        )


def settle(
    job: Job,
    source: DataSource = None,
    *,
    seed: int | None = None,
    seeded: bool | None = None,
    keep_tables: bool = False,
    guess: bool = False,
    reached: Callable[[], None] = unheard,
) -> Study:
    """The study that a job describes, over the data that it names or that is given; asks nobody, writes nothing.

    A run that goes on after a crash brings the seed that it began with. Questions are about the rows as they are, so
    `keep_tables` keeps those as well. A simulation may `guess` from the rows how files are written. `reached` is called
    three times on the way: when the data, the plan and what each device can afford are there.
    """
    if seed is None:
        seed = job.run.seed if job.run.seed is not None else secrets.randbits(62)
    seeded = job.run.seed is not None if seeded is None else seeded
    dealt = seed if seeded else 0  # who holds which row is no secret
    data, described = _load(job, source, dealt, keep_tables=keep_tables, guess=guess)
    split = _split(job, data, dealt)
    if (kept := _with_enough_rows(job, data, split.train.sizes)) is not data:
        data, split = kept, _split(job, kept, dealt)
    check_delta(job, int(split.train.sizes.sum()))
    reached()
    model = model_of(job, shape=data.records.shape, classes=len(data.classes))
    rows = job.federation.rows or int(split.train.sizes.min())
    plan, secure = plan_of(
        job, model, devices=data.records.devices, rows=rows, columns=data.columns,
        typical_rows=float(split.train.sizes.mean()),
    )  # fmt: skip
    reached()
    study = Study(
        name=job.run.name,
        job=job,
        seed=seed,
        seeded=seeded,
        data=data,
        split=split,
        rows=split.train.sizes,
        model=model,
        plan=plan,
        secure=secure,
        codec=codec_of(plan, secure, model),
        limits=limits_of(job, data),
        source=described,
        in_memory=source is not None,
    )
    _ = study.costs.allowed_rounds  # computed now, while progress is shown
    reached()
    return study


def _load(job: Job, source: DataSource, seed: int, *, keep_tables: bool, guess: bool) -> tuple[Dataset, str]:
    """The job's data and where it came from, in words."""
    settings = job.data
    if source is None and settings.builtin == "adult":
        devices = job.federation.devices or 16
        data = sources.load_adult(
            devices=devices,
            partition=settings.partition,
            skew=settings.skew,
            seed=seed,
            columns=settings.columns,
            keep_tables=keep_tables,
        )
        return data, "UCI Adult"
    path = settings.csv or settings.parquet or settings.npz or settings.images
    if source is None and path is None:
        raise ConfigError(
            "CH103", "[data] names no data.", where=job.where("data"),
            fix='Set csv, parquet, npz, images, or builtin = "adult".',
        )  # fmt: skip
    data = sources.load(
        _found(job, str(path)) if source is None else source,
        label=settings.label,
        classes=settings.classes,
        label_bounds=settings.label_bounds,
        columns=settings.columns,
        ignore=settings.ignore or (),
        device_column=settings.device_column,
        limit_column=settings.limit_column,
        person=settings.person,
        devices=job.federation.devices,
        written=settings.written,
        own_labels=settings.labels,
        encoder=encoder_of(job),
        partition=settings.partition,
        skew=settings.skew,
        seed=seed,
        keep_tables=keep_tables,
        guess=guess,
    )
    named = path if source is None else source
    # The file's name and not where it lies: reports travel, and a path may name a person.
    return data, Path(named).name if isinstance(named, str | Path) else f"a {type(source).__name__} in memory"


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


def _found(job: Job, path: str) -> DataSource:
    """What the job's path names: arrays that are read here, or tables, which are read as they are loaded."""
    data = job.data
    if data.npz is not None:
        return read_npz(job.pattern(path), data.row_shape, data.class_names)
    if data.images is not None:
        return read_images(job.pattern(path), data.row_shape or (), data.class_names)
    return job.pattern(path)


def _split(job: Job, data: Dataset, seed: int) -> Split:
    settings = job.data
    return split_units(
        data.records, data.persons, settings.rows_per_person, seed, settings.validation, settings.test
    )  # fmt: skip


def _with_enough_rows(job: Job, data: Dataset, trained_on: NDArray[np.int64]) -> Dataset:
    """The data without the devices that train on fewer rows than [federation] says, and a note that names them."""
    least = job.federation.rows
    keep = trained_on >= (0 if least is None else least)
    if least is None or keep.all():
        return data
    if np.count_nonzero(keep) < 2:
        raise TableError(
            "CH305",
            f"federation.rows = {least:,} leaves {np.count_nonzero(keep)} of {len(keep):,} devices.",
            where=job.where("federation", "rows"),
            fix=f"Use at most {int(np.sort(trained_on)[-2]):,}, or leave it out.",
        )
    records, numbers = data.records, np.flatnonzero(keep)
    rows_of = {records.names[one]: np.arange(records.offsets[one], records.offsets[one + 1]) for one in numbers}
    left = [f"{records.names[one]} ({trained_on[one]:,})" for one in np.flatnonzero(~keep)]
    named = ", ".join(left[:_MOST_NAMED]) + ", …" * (len(left) > _MOST_NAMED)
    return replace(
        data,
        records=Records.taken(records.features, records.labels, rows_of, classes=records.classes),
        limits=tuple(data.limits[one] for one in numbers) if data.limits else (),
        persons=None if data.persons is None else data.persons[np.concatenate(list(rows_of.values()))],
        tables=tuple(data.tables[one] for one in numbers) if data.tables else (),
        notes=(*data.notes, f"left out, with fewer than {least:,} rows to train on: {named}"),
    )


def codec_of(plan: Plan, secure: SecureSum, model: Model) -> Codec:
    """How updates of this model become ring integers; what may leave its range is charged for."""
    return Codec.for_plan(plan, secure, model_of_units(model, plan).size, failure=plan.out_of_range)


def check_delta(job: Job, rows: int) -> None:
    """Nothing, or CH102 for a δ that would allow one of so many rows to be published."""
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
    """What somebody's own code makes for rows of this shape; CH102 for a model of other shapes, and for none."""
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
