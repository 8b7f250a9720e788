"""What is settled before round 0: data, model, plan, secure sum, and what each round may cost each device."""

import math
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral.config import Job
from choral.config.settings import FederationSettings
from choral.errors import ChoralError, ConfigError, PlanError, TableError
from choral.learning import tables
from choral.learning.columns import Categorical, Numeric
from choral.learning.models import KINDS, Model
from choral.learning.once import LocalWork, places_of
from choral.learning.persons import model_of_units, split_units
from choral.learning.reading import DataSource
from choral.learning.records import by
from choral.learning.splits import Split
from choral.learning.tables import Dataset
from choral.plan import Budget, Participation, Plan, SecureSum, require_company
from choral.planner import (
    OF_EVERY_STEP,
    Conditions,
    adds_noise_once,
    once_numbers,
    one_step_numbers,
    proposal_of,
    task_of,
    usual_cohort,
)
from choral.privacy.calibrate import OUT_OF_RANGE, RESERVED, calibrated
from choral.privacy.costs import NO_LIMIT, Costs
from choral.privacy.exposure import crowd_of
from choral.privacy.mechanisms.noise_once import CONVEX
from choral.run.code import Maker
from choral.run.questions import price_of
from choral.run.watch import unheard
from choral.secagg.codec import Codec
from choral.secagg.graph import sparse
from choral.server_step import Averaged, ServerStep, over_rounds

EASY = 8.0  # the ε that proposals are made for when the noise was chosen by hand


@dataclass(frozen=True, kw_only=True, eq=False)
class Study:
    """A run before it starts: everything that is public, checked, and the same for every way to run it."""

    name: str
    job: Job = field(repr=False)
    seed: int = field(repr=False)  # of a deployment a secret: nobody foresees who is called
    seeded: bool  # somebody chose the seed, so the noise can be foreseen
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
        said = over_rounds(self.job.server_step, self.plan.rounds)
        if self.job.federation.server is not None or not _takes_one_step(self.job, self.model):
            return said
        row_length = row_length_of(self.job, self.model, self.data.columns)
        conditions = _conditions(
            self.job, self.model, self.secure, devices=self.plan.devices, rows=self.plan.rows, row_length=row_length,
            typical_rows=float(self.rows.mean()),
        )  # fmt: skip
        momentum = one_step_numbers(_budget(self.job), **conditions).momentum
        return Averaged(momentum=momentum, rounds=self.plan.rounds)

    @property
    def trained(self) -> Model:
        """The model of one unit of the plan: what a device trains on its records, or on its persons."""
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
    reached: Callable[[], None] = unheard,
) -> Study:
    """The study that a job describes, over the data that it names or that is given; asks nobody, writes nothing.

    A run that goes on after a crash brings the seed that it began with. Questions are about the rows as they are, so
    `keep_tables` keeps those as well. `reached` is called three times on the way:
    when the data, the plan and what each device can afford are there.
    """
    if seed is None:
        seed = job.run.seed if job.run.seed is not None else secrets.randbits(62)
    seeded = job.run.seed is not None if seeded is None else seeded
    dealt = seed if seeded else 0  # who holds which row is no secret
    data, told = _load(job, source, dealt, keep_tables=keep_tables)
    split = split_units(data.records, data.persons, job.data.rows_per_person, dealt, job.data.validation, job.data.test)
    check_delta(job, int(split.train.sizes.sum()))
    reached()
    model = model_of(job, shape=data.records.shape, classes=len(data.classes))
    rows = _smallest(job, int(split.train.sizes.min()))
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
        source=told,
        in_memory=source is not None,
    )
    _ = study.costs.allowed_rounds  # worked out now, while somebody sees that something is worked out
    reached()
    return study


def _load(job: Job, source: DataSource, seed: int, *, keep_tables: bool) -> tuple[Dataset, str]:
    """The job's data and where it came from, in words."""
    settings = job.data
    if source is None and settings.builtin == "adult":
        devices = job.federation.devices or 16
        data = tables.load_adult(
            devices=devices, partition=settings.partition, skew=settings.skew, seed=seed, keep_tables=keep_tables
        )
        return data, "UCI Adult"
    path = settings.csv or settings.parquet
    if source is None and path is None:
        raise ConfigError(
            "CH103", "[data] names no data.", where=job.where("data"), fix='Set csv, parquet, or builtin = "adult".'
        )
    data = tables.load(
        job.pattern(str(path)) if source is None else source,
        label=settings.label,
        classes=settings.classes,
        label_bounds=settings.label_bounds,
        columns=settings.columns,
        ignore=settings.ignore or (),
        device_column=settings.device_column,
        limit_column=settings.limit_column,
        person=settings.person,
        devices=job.federation.devices,
        delimiter=settings.delimiter,
        partition=settings.partition,
        skew=settings.skew,
        seed=seed,
        keep_tables=keep_tables,
    )
    named = path if source is None else source
    # The file's name and not where it lies: reports travel, and a path may name a person.
    return data, Path(named).name if isinstance(named, str | Path) else f"a {type(source).__name__} in memory"


def codec_of(plan: Plan, secure: SecureSum, model: Model) -> Codec:
    """How updates of this model become ring integers; what may leave its range is charged for."""
    return Codec.for_plan(plan, secure, model.size, failure=OUT_OF_RANGE)


def _smallest(job: Job, rows: int) -> int:
    """m: the rows that the job declares of every device, else those of the smallest one."""
    declared = job.federation.rows
    if declared is not None and rows < declared:
        raise TableError(
            "CH305",
            f"the smallest device trains on {rows:,} rows, federation.rows says {declared:,}.",
            where=job.where("federation", "rows"),
            fix=f"Use rows = {rows}, or leave the device out.",
        )
    return rows if declared is None else declared


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

    Without a `maker` the function is looked for among what Python has installed, then beside the job's file.
    """
    kind, flat = job.model_kind, len(shape) == 1
    if kind in KINDS and not flat:
        raise TableError(
            "CH312",
            f'rows have {by(shape)} features, and the model "{kind}" takes them one after the other.',
            where=job.where("model", "kind"),
            fix="Give rows × columns, features.reshape(len(features), -1), or your own model: choral.model.",
        )
    if kind in KINDS:
        return KINDS[kind].make(shape[0], classes, tuple(job.model.hidden or ()))
    try:
        made = (maker or maker_beside(kind, job.folder))(features=shape[0] if flat else shape, classes=classes)
    except ChoralError:
        raise
    except Exception as error:  # whatever a user's own code raises is told without a traceback
        raise ConfigError(
            "CH102",
            f'model.kind = "{kind}" can\'t be made: {error}.',
            where=job.where("model", "kind"),
            fix="Give module:function that Python can import here and that takes features= and classes=.",
        ) from None
    if not isinstance(made, Model):
        raise ConfigError(
            "CH102",
            f'"{kind}" returns a {type(made).__name__}.',
            where=job.where("model", "kind"),
            fix="Return choral.model(init, loss, predict, features=…, classes=…).",
        )
    if (made.row, made.classes) != (shape, classes):
        raise ConfigError(
            "CH102",
            f'"{kind}" is a model of {by(made.row)} features and {made.classes} classes, '
            f"the data has {by(shape)} and {classes}.",
            where=job.where("model", "kind"),
            fix="Hand features and classes on to choral.model; where the label is a number, there are 0 classes.",
        )
    return made


def maker_beside(kind: str, folder: Path) -> Maker:
    """The function that "module:function" names: among what Python has installed, then in this folder."""
    module, _, function = kind.partition(":")

    def make(**shapes: object) -> object:
        with _found_last(str(folder.resolve())):
            return getattr(import_module(module), function)(**shapes)

    return make


@contextmanager
def _found_last(folder: str) -> Iterator[None]:
    """Modules in this folder can be imported, after all others: a file beside choral.toml hides no installed module."""
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
    told = data.limits or (common,) * len(names)
    return tuple(
        Budget(epsilon=own.get(name, limit), delta=job.privacy.delta) for name, limit in zip(names, told, strict=True)
    )


def plan_of(
    job: Job,
    model: Model,
    *,
    devices: int,
    rows: int,
    columns: Sequence[Numeric | Categorical] = (),
    typical_rows: float | None = None,
) -> tuple[Plan, SecureSum]:
    """The job's numbers as a plan, and the secure sum of its cohorts; the smallest device has `rows`."""
    secure = secure_sum_of(job.federation, max(2, _cohort(job, devices)))
    once = _adds_noise_once(job, model)
    for name, value in (("pull", job.local.pull), ("parts", job.local.parts)):
        if value is not None and not once:
            raise ConfigError(
                "CH104",
                f"local.{name} with noise in every step.",
                where=job.where("local", name),
                fix=f'Leave {name} out, or use noise_is_added = "once" in [privacy].',
            )
    if once or _takes_one_step(job, model):
        row_length = row_length_of(job, model, columns)
        conditions = _conditions(
            job, model, secure, devices=devices, rows=rows, row_length=row_length, typical_rows=typical_rows
        )
        plan = _plan_once(job, model, conditions) if once else _plan_of_one_step(job, conditions)
    else:
        plan = _plan(job, model, secure, devices=devices, rows=rows)
    return _with_noise(job, plan, secure), secure


def _adds_noise_once(job: Job, model: Model) -> bool:
    """Whether noise is added once: as is said, else for convex models whose local steps nobody has described."""
    # Without ε nothing is proved, and any model can be trained as the paper does it; devices are units by rule S4.
    open_to_once = job.privacy.epsilon is not None and job.privacy.unit != "device"
    said = job.privacy.noise_is_added or (None if open_to_once else "every step")
    return adds_noise_once(said, convex=_convex(model), settings=_settings(job))


def _takes_one_step(job: Job, model: Model) -> bool:
    """Whether one noisy step per round is proposed: where the secure sum is to count, and noise is in every step."""
    privacy = job.privacy
    trusting = privacy.against != "everyone" and privacy.epsilon is not None and privacy.unit != "device"
    return trusting and not _adds_noise_once(job, model) and _convex(model) and not OF_EVERY_STEP & _settings(job)


def _convex(model: Model) -> bool:
    return model.plainest != "mlp" and model.trainer is None and model.link in CONVEX


def _settings(job: Job) -> set[str]:
    """The names of the numbers that a job gives."""
    more = (("sampling", job.local.sampling), ("noise", job.privacy.noise))
    return {name for name, value in (*_given(job).items(), *more) if value is not None}


def _cohort(job: Job, devices: int) -> int:
    """How many devices take part per round: as is said, else as is usual."""
    cohort = job.federation.cohort or usual_cohort(devices)
    if cohort > devices:
        raise PlanError("CH204", f"cohort = {cohort:,} of {devices:,}.", fix=f"Use at most {devices:,}.")
    return cohort


def secure_sum_of(settings: FederationSettings, cohort: int) -> SecureSum:
    """The secure sum that [federation] asks for: the default, the sparse graph, or the paper's own protocol.

    >>> secure_sum_of(FederationSettings(secure_sum="paper"), 10).mode
    'paper'
    """
    words: dict[str, Any] = {"modulus_bits": 64, "lanes": 3} if settings.packed else {}
    if settings.secure_sum == "complete":
        return SecureSum.for_cohort(cohort, colluders=settings.colluders, **words)
    kinds = {"sparse": sparse, "paper": SecureSum.of_paper}
    secure = kinds[settings.secure_sum](cohort, **words)
    return secure if settings.colluders is None else replace(secure, colluders=settings.colluders)


def _given(job: Job) -> dict[str, Any]:
    """The numbers of a plan that a job may give, None where it does not."""
    federation, local = job.federation, job.local
    return {
        "cohort": federation.cohort,
        "rounds": federation.rounds,
        "batch": local.batch,
        "local_steps": local.steps,
        "step_size": local.step_size,
        "clip": local.clip,
    }


def _unit(job: Job) -> dict[str, Any]:
    """What the plan protects: one record, or all rows of a person."""
    return {"unit": job.privacy.unit, "rows_per_person": job.data.rows_per_person or 0}


def row_length_of(job: Job, model: Model, columns: Sequence[Numeric | Categorical]) -> float:
    """R: as is said, else the longest row that the columns allow, with its intercept.

    A number lies within ±1, and of the features of a categorical column one is 1; arrays are taken to lie within ±1.
    """
    return job.model.row_length or math.sqrt((len(columns) or model.features) + 1)


def _conditions(
    job: Job,
    model: Model,
    secure: SecureSum,
    *,
    devices: int,
    rows: int,
    row_length: float,
    typical_rows: float | None,
) -> Conditions:
    """The public numbers from which total time and clip are proposed."""
    return {
        "link": model.link,
        "classes": model.classes,
        "devices": devices,
        "cohort": _cohort(job, devices),
        "rows": rows,
        "row_length": row_length,
        "typical_rows": typical_rows,
        "rounds": job.federation.rounds,
        "slope": job.model.slope,
        "honest_noises": 1 if job.privacy.against == "everyone" else secure.honest_noises(secure.adversary),
    }


def _budget(job: Job) -> Budget:
    """The job's budget, or an easy one where the noise was chosen by hand."""
    return Budget(epsilon=job.privacy.epsilon or EASY, delta=job.privacy.delta)


def _plan_of_one_step(job: Job, conditions: Conditions) -> Plan:
    """A plan of one noisy step per round on all rows of a device, before its noise is solved from the budget."""
    numbers = one_step_numbers(_budget(job), **conditions)
    rows = conditions["rows"]
    return Plan(
        devices=conditions["devices"], cohort=conditions["cohort"], rounds=numbers.rounds, rows=rows, batch=rows,
        step_size=numbers.step_size, clip=numbers.clip, noise=0.0, sampling="partition", law=job.privacy.law,
        **_unit(job),
    )  # fmt: skip


def _plan_once(job: Job, model: Model, conditions: Conditions) -> Plan:
    """A plan with noise once, before its noise is solved from the budget: what is not given is proposed."""
    given, privacy = _given(job), job.privacy
    devices, rows, row_length = conditions["devices"], conditions["rows"], conditions["row_length"]
    proposal = once_numbers(_budget(job), **conditions)
    cohort = conditions["cohort"]
    proposed = asdict(proposal) | {"cohort": cohort, "batch": rows}
    plan = Plan(
        devices=devices, rows=rows, noise=privacy.noise or 0.0, sampling=job.sampling(once=True), law=privacy.law,
        noise_is_added="once", row_length=row_length, pull=job.local.pull or 0.0, parts=job.local.parts or 1,
        **_unit(job),
        **{name: proposed[name] if value is None else value for name, value in given.items()},
    )  # fmt: skip
    work, places, model = LocalWork.of(plan), places_of(plan, rows), model_of_units(model, plan)
    work.check(model, places)
    if (needed := work.steps(model, places)) > plan.local_steps and None not in (job.local.steps, job.local.step_size):
        raise PlanError(
            "CH204",
            f"{plan.local_steps} local steps of {plan.step_size:g} on {rows:,} rows: each would be longer than 2/L.",
            where=job.where("local", "steps"),
            why="Rule S7 holds for shorter steps only; beyond, one record can move an upload without a bound.",
            fix=f"Use steps = {needed} and step_size = {plan.local_time / needed:.6g}, or leave both out.",
        )
    return plan


def left_open(job: Job) -> tuple[str, ...]:
    """The numbers that a job leaves to the planner."""
    return tuple(name for name, value in _given(job).items() if value is None)


def _plan(job: Job, model: Model, secure: SecureSum, *, devices: int, rows: int) -> Plan:
    """The job's numbers as a plan, before its noise is solved from the budget: what is not given is proposed."""
    local, privacy, given, unit = job.local, job.privacy, _given(job), _unit(job)
    if given["batch"] is not None and given["batch"] > rows:
        raise PlanError("CH204", f"batch = {given['batch']:,} of {rows:,}.", fix=f"Use at most {rows:,}.")
    if None in given.values():
        task = task_of(
            epsilon=privacy.epsilon if privacy.epsilon is not None else EASY,
            delta=privacy.delta if privacy.epsilon is not None or privacy.delta > RESERVED else None,
            devices=devices,
            rows=rows,
            features=model.features,
            classes=model.classes,
            model=model.plainest,
            sampling=job.sampling(once=False),
            law=privacy.law,
            against=privacy.against,
            **crowd_of(secure),
            **given,
            **unit,
        )
        proposed = proposal_of(task).plan  # without noise a cohort may be one device
        given = {name: getattr(proposed, name) if value is None else value for name, value in given.items()}
    return Plan(
        devices=devices, rows=rows, noise=privacy.noise or 0.0, sampling=job.sampling(once=False), passes=local.passes,
        law=privacy.law, **given, **unit,
    )  # fmt: skip


def _with_noise(job: Job, plan: Plan, secure: SecureSum) -> Plan:
    """The plan with the noise that the job's budget asks for, or with the noise that it gives itself."""
    privacy = job.privacy
    if privacy.epsilon is not None or plan.noise > 0:
        require_company(plan.cohort, plan.devices, where=job.where("federation", "cohort"))
    if privacy.epsilon is None:
        return plan
    budget, asked = Budget(epsilon=privacy.epsilon, delta=privacy.delta), price_of(job, plan.devices)
    if privacy.against == "everyone":
        return calibrated(plan, budget, besides=None if asked is None else asked.reserved)
    besides = None if asked is None else asked.reserved_of_sums
    return calibrated(plan, budget, rule="with_secure_sum", besides=besides, **crowd_of(secure))
