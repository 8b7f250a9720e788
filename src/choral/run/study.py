"""What is settled before round 0: data, model, plan, secure sum, and what each round may cost each device."""

import secrets
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from choral.backends.vectorised import OVERFLOW
from choral.config import Job
from choral.errors import ConfigError, PlanError
from choral.learning import tables
from choral.learning.models import Model, logistic, mlp
from choral.learning.splits import Split, hold_out
from choral.learning.tables import Dataset, DataSource
from choral.plan import Budget, Participation, Plan, SecureSum
from choral.privacy import calibrate, rules
from choral.privacy.events import Event, Gaussian, epsilon_of
from choral.privacy.exposure import Exposure
from choral.secagg.codec import Codec

Kind = Literal["simulation", "rehearsal"]
NO_LIMIT = 1e9  # ε of a ledger that counts but never refuses
OUT_OF_RANGE = 1e-8  # the share of δ for updates that leave the codec's range, over a whole run


@dataclass(frozen=True, kw_only=True, eq=False)
class Study:
    """A run before it starts: everything that is public, checked, and the same for every way to run it."""

    job: Job = field(repr=False)
    seed: int
    seeded: bool  # somebody chose the seed, so the noise can be foreseen
    data: Dataset = field(repr=False)
    split: Split = field(repr=False)
    model: Model
    plan: Plan
    secure: SecureSum
    codec: Codec
    limits: tuple[Budget, ...] = field(repr=False)
    source: str
    in_memory: bool

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.job.run.name

    @property
    def participation(self) -> Participation:
        """How cohorts are drawn."""
        return self.job.federation.participation

    def exposure(self, device: int, rounds: int) -> Exposure:
        """What this device's records are exposed to in so many rounds."""
        return exposure_of(self.plan, self.secure, rows=int(self.split.train.sizes[device]), rounds=rounds)

    def event(self, device: int, rounds_before: int) -> Event:
        """What one more round costs this device, after so many; rare failures of batch room and range included."""
        extra = (OVERFLOW + OUT_OF_RANGE) / self.plan.rounds
        return _one_round(self.exposure(device, 1), rounds_before, extra)

    @cached_property
    def rule(self) -> rules.Loss:
        """The rule that is charged: proved against the server and all other devices."""
        return rules.against_everyone(self.exposure(0, 1))

    @cached_property
    def allowed_rounds(self) -> NDArray[np.int64]:
        """How many rounds each device's limit pays for; devices of one size and limit have one answer."""
        known: dict[tuple[int, Budget], int] = {}
        for device, limit in enumerate(self.limits):
            key = (int(self.split.train.sizes[device]), limit)
            if key not in known:
                known[key] = self._affordable(device, limit)
        return np.array(
            [known[int(size), limit] for size, limit in zip(self.split.train.sizes, self.limits, strict=True)]
        )

    def _affordable(self, device: int, limit: Budget) -> int:
        """The most rounds, at most the plan's, whose events together stay within the limit."""
        low, high = 0, self.plan.rounds + 1
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.spent(device, middle, limit.delta) <= limit.epsilon
            low, high = (middle, high) if fits else (low, middle)
        return low

    def spent(self, device: int, rounds: int, delta: float) -> float:
        """ε of this device after so many rounds, composed from the events that its ledger holds."""
        return epsilon_of([self.event(device, before) for before in range(rounds)], delta)


def exposure_of(plan: Plan, secure: SecureSum, *, rows: int, rounds: int) -> Exposure:
    """The exposure of a device with so many rows in so many rounds of a plan."""
    honest = secure.honest_noises(secure.adversary)
    return Exposure(
        rounds=rounds,
        local_steps=plan.local_steps,
        cohort=plan.cohort,
        devices=plan.devices,
        rows=rows,
        batch=plan.batch,
        noise=plan.noise,
        clip=plan.clip,
        sampling=plan.sampling,
        passes=plan.passes,
        colluders=secure.colluders,
        dropouts=plan.cohort - secure.colluders - honest,
        step_size=plan.step_size,
    )


def _one_round(part: Exposure, rounds_before: int, extra: float) -> Event:
    """The event of one round: passes that continue cost a device only the uses of a record that this round adds."""
    if part.sampled:
        return rules.poisson_steps(
            steps=part.local_steps, rows=part.rows, batch=part.batch, noise=part.noise, clip=part.clip, overflow=extra
        )
    uses = part.uses_per_round
    if part.passes == "continue":
        steps, per_pass = part.local_steps, part.batches_per_pass
        uses = -(-(rounds_before + 1) * steps // per_pass) - -(-rounds_before * steps // per_pass)
    if uses == 0:
        return Gaussian(mu=0.0, delta=extra)
    one = rules.local_composition(uses=uses, batch=part.batch, noise=part.noise, clip=part.clip)
    return Gaussian(mu=one.mu, delta=extra)


def settle(job: Job, source: DataSource = None, *, seed: int | None = None, seeded: bool | None = None) -> Study:
    """The study that a job describes, over the data that it names or that is given; asks nobody, writes nothing.

    A run that goes on after a crash brings the seed that it began with.
    """
    if seed is None:
        seed = job.run.seed if job.run.seed is not None else secrets.randbits(62)
    data, told = _load(job, source)
    split = hold_out(data.records, seed=job.run.seed or 0, validation=job.data.validation, test=job.data.test)
    _check_delta(job, int(split.train.sizes.sum()))
    model = model_of(job, features=len(data.features), classes=len(data.classes))
    plan = _plan(job, devices=data.records.devices, rows=int(split.train.sizes.min()))
    secure = SecureSum.for_cohort(max(2, plan.cohort))
    if job.federation.colluders is not None:
        secure = replace(secure, colluders=job.federation.colluders)
    return Study(
        job=job,
        seed=seed,
        seeded=job.run.seed is not None if seeded is None else seeded,
        data=data,
        split=split,
        model=model,
        plan=plan,
        secure=secure,
        codec=Codec.for_plan(plan, secure, model.size, failure=OUT_OF_RANGE),
        limits=_limits(job, data.records.names),
        source=told,
        in_memory=source is not None,
    )


def _load(job: Job, source: DataSource) -> tuple[Dataset, str]:
    """The job's data and where it came from, in words."""
    settings, seed = job.data, job.run.seed or 0
    if source is None and settings.builtin == "adult":
        devices = job.federation.devices or 16
        data = tables.load_adult(devices=devices, partition=settings.partition, skew=settings.skew, seed=seed)
        return data, "UCI Adult (bundled with choral)"
    path = settings.csv or settings.parquet
    if source is None and path is None:
        raise ConfigError(
            "CH103", "[data] names no data.", where=job.where("data"), fix='Set csv, parquet, or builtin = "adult".'
        )
    data = tables.load(
        str(job.folder / str(path)) if source is None else source,
        label=settings.label,
        classes=settings.classes,
        columns=settings.columns,
        ignore=settings.ignore or (),
        device_column=settings.device_column,
        devices=job.federation.devices,
        delimiter=settings.delimiter,
        partition=settings.partition,
        skew=settings.skew,
        seed=seed,
    )
    return data, str(path) if source is None else f"a {type(source).__name__} in memory"


def _check_delta(job: Job, rows: int) -> None:
    if job.privacy.delta > 1 / rows:
        raise ConfigError(
            "CH102",
            f"privacy.delta = {job.privacy.delta:g}.",
            where=job.where("privacy", "delta"),
            fix=f"Must be at most 1/rows (here {1 / rows:.1e}). Suggested: 1e-5",
        )


def model_of(job: Job, *, features: int, classes: int) -> Model:
    """The model that [model] names: one of choral's own, or what "module:function" returns for these shapes."""
    kind = job.model.kind
    if kind == "logistic":
        return logistic(features, classes)
    if kind == "mlp":
        return mlp(features, tuple(job.model.hidden or ()), classes)
    module, _, function = kind.partition(":")
    try:
        made = getattr(import_module(module), function)(features=features, classes=classes)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            "CH102",
            f'model.kind = "{kind}" can\'t be found: {error}.',
            where=job.where("model", "kind"),
            fix="Give module:function of something that Python can import here.",
        ) from None
    if not isinstance(made, Model):
        raise ConfigError(
            "CH102",
            f'"{kind}" returns a {type(made).__name__}.',
            where=job.where("model", "kind"),
            fix="Return choral.model(init, loss, predict, features=…, classes=…).",
        )
    return made


def _limits(job: Job, names: tuple[str, ...]) -> tuple[Budget, ...]:
    """Each device's own limit: [privacy.limits] by name, else the common ε."""
    own = job.privacy.limits or {}
    if unknown := sorted(set(own) - set(names)):
        raise ConfigError(
            "CH104",
            f'[privacy.limits] names "{unknown[0]}", which is no device.',
            where=job.where("privacy", "limits"),
            fix=f"Devices: {', '.join(names[:8])}{', …' if len(names) > 8 else ''}.",
        )
    # Without an ε the noise was chosen by hand; the ledgers still count, but refuse nothing.
    common = job.privacy.epsilon if job.privacy.epsilon is not None else NO_LIMIT
    return tuple(Budget(epsilon=own.get(name, common), delta=job.privacy.delta) for name in names)


def _plan(job: Job, *, devices: int, rows: int) -> Plan:
    """The job's numbers as a plan, the noise solved from the budget where it is not given."""
    given = job.federation, job.local
    cohort = given[0].cohort or max(1, min(10, devices))
    if cohort > devices:
        raise PlanError("CH204", f"cohort = {cohort} of {devices} devices.", fix=f"Use at most {devices}.")
    values: dict[str, Any] = {
        "devices": devices,
        "cohort": cohort,
        "rounds": given[0].rounds or 20,
        "rows": rows,
        "batch": given[1].batch or max(1, rows // 10),
        "local_steps": given[1].steps or 10,
        "step_size": given[1].step_size or 0.5,
        "clip": given[1].clip or 1.0,
        "sampling": given[1].sampling,
        "passes": given[1].passes,
    }
    if job.privacy.noise is not None:
        return Plan(**values, noise=job.privacy.noise)
    assert job.privacy.epsilon is not None  # noqa: S101 - config refuses a job with neither
    plan = Plan(**values, noise=1.0)
    part = exposure_of(plan, SecureSum.for_cohort(max(2, cohort)), rows=rows, rounds=rounds_each(plan))
    budget = Budget(epsilon=job.privacy.epsilon, delta=job.privacy.delta - OVERFLOW - OUT_OF_RANGE)
    return replace(plan, noise=calibrate.smallest_noise(part, budget))


def rounds_each(plan: Plan) -> int:
    """How many rounds a device takes part in when all take part equally often, rounded up."""
    return -(-plan.rounds * plan.cohort // plan.devices)
