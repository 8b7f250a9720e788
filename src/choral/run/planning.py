"""A job becomes a study: what is given is kept, the rest is proposed, and the noise is solved from the budget."""

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from choral.accounting.calibrate import calibrated
from choral.accounting.proofs import rounds_each
from choral.accounting.reserves import with_reserves
from choral.config import Job
from choral.config.settings import FederationSettings
from choral.core.errors import ConfigError, PlanError, TableError
from choral.core.exposure import crowd_of, noises_against
from choral.core.masks import failure_bits, require_private
from choral.core.mechanisms import CONVEX
from choral.core.plan import (
    Budget,
    NoiseIsAdded,
    Plan,
    SecureSum,
    UnitName,
    Weighing,
    require_number,
)
from choral.core.plan.secure_sum import PRIVACY_BITS
from choral.learning.models import Model
from choral.learning.once import LocalWork, places_of
from choral.learning.persons import model_of_units, split_units
from choral.planner import proposal_of, require_company
from choral.planner.numbers import EASY, UNEQUAL, PlanningConditions, once_numbers, one_step_numbers, probes_for
from choral.planner.options import drowns
from choral.planner.prospect import Prospect
from choral.planner.task import (
    OF_EVERY_STEP,
    PlanningTask,
    adds_noise_once,
    left_noise_once,
    many_weights,
    task_of,
    usual_cohort,
)
from choral.run.folder import unheard
from choral.run.study import Study, check_delta, codec_of, encoder_of, limits_of, model_of, price_of
from choral.server_step import AdaptiveClip, Averaged, ServerStep, over_rounds
from choral.tables.columns import Categorical, Numeric
from choral.tables.reading import DataSource
from choral.tables.records import Dealing, Records, Split
from choral.tables.sources import Dataset, Files, ImageFolders, Reading, load_adult, read, source_of

LIVENESS_BITS = 20  # that a sparse graph is proposed with


_MOST_NAMED = 8  # devices in a note


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
    if job.on_sums:
        return _with_noise(job, _plan_beside_sums(job, devices, rows), secure), secure
    once = _adds_noise_once(job, model)
    for name, value in (("pull", job.local.pull), ("parts", job.local.parts)):
        if value is not None and not once:
            raise ConfigError(
                "CH104",
                f"local.{name} with noise in every step.",
                where=job.where("local", name),
                fix=f'Leave {name} out, or use noise_is_added = "once" in [privacy].',
            )
    weighing: Weighing = "equally"
    if not once:
        weighing, rows = weighed_rows(job, rows, typical_rows)
    row_length = row_length_of(job, model, columns)
    if once or _takes_one_step(job, model):
        conditions = _conditions(
            job, model, secure, devices=devices, rows=rows, row_length=row_length, typical_rows=typical_rows
        )
        plan = _plan_once(job, model, conditions) if once else _plan_of_one_step(job, conditions, weighing)
    else:
        plan = _plan(job, model, secure, devices=devices, rows=rows, weighing=weighing, row_length=row_length)
    return _with_probes(job, _with_noise(job, plan, secure), model), secure


def _with_probes(job: Job, plan: Plan, model: Model) -> Plan:
    """The plan with probes, where [federation] robust asks for them: without it the server learns sums only."""
    if not job.federation.robust:
        return plan
    where = job.where("federation", "robust")
    if job.privacy.trusts_sum:
        raise ConfigError(
            "CH104",
            f'robust = true with against = "{job.privacy.against}".',
            where=where,
            why="Each device answers for its own update, so nothing is proved of what the sum alone would hide.",
            fix='Use robust = false, or against = "everyone".',
        )
    if plan.weighed:
        raise ConfigError(
            "CH104",
            'robust = true with weighing = "rows".',
            where=where,
            why="Updates are compared by their length, and a large site's counts for several.",
            fix='Use robust = false, or weighing = "equally".',
        )
    return replace(plan, **probes_for(model.size))


def weighed_rows(job: Job, rows: int, typical_rows: float | None) -> tuple[Weighing, int]:
    """How devices weigh where noise is in every step, and the rows that the plan is made for.

    As is said; else by rows if a typical device has many more than the smallest, whose few rows would otherwise set
    batch and noise for all. Somebody who gives a batch means that of every device.
    """
    said, declared, privacy = job.federation.weighing, job.federation.typical_rows, job.privacy
    typical = declared or (None if typical_rows is None else round(typical_rows))
    if said == "rows" and typical is None:
        raise ConfigError(
            "CH103",
            '[federation] has weighing = "rows" and no typical_rows.',
            where=job.where("federation", "weighing"),
            why="Every site draws at the rate that suits a typical one, and nobody may count rows.",
            fix="Set typical_rows = …, the rows that a site has on average, about.",
        )
    fits = privacy.law == "gaussian" and not privacy.protects.clips_update and job.local.batch is None
    unequal = declared is not None or (typical or 0) >= UNEQUAL * rows
    if typical is not None and (said or ("rows" if fits and unequal and privacy.epsilon else "equally")) == "rows":
        return "rows", typical
    return "equally", rows


def server_step_of(study: Study) -> ServerStep:
    """What the server does with each mean: as is said, else as goes with the plan that is proposed."""
    job, model, plan = study.job, study.model, study.plan
    if plan.mechanism.adaptive:
        return AdaptiveClip(quantile=plan.mechanism.own["clip_quantile"])
    if job.federation.server is None and plan.once:
        return Averaged(momentum=0.0, rounds=plan.rounds)
    if job.federation.server is not None or not _takes_one_step(job, model):
        return over_rounds(job.server_step, plan.rounds)
    conditions = _conditions(
        job,
        model,
        study.secure,
        devices=plan.devices,
        rows=plan.rows,
        row_length=row_length_of(job, model, study.data.columns),
        typical_rows=float(study.rows.mean()),
    )
    return Averaged(momentum=one_step_numbers(_budget(job), **conditions).momentum, rounds=plan.rounds)


def _adds_noise_once(job: Job, model: Model) -> bool:
    """Whether noise is added once: as is said, else for convex models whose local steps nobody has described."""
    return adds_noise_once(**_about_noise(job, model))


def noise_in_words(job: Job, model: Model) -> str:
    """Which settings it is because of that noise is in every step, and not once; empty where there are none."""
    return left_noise_once(**_about_noise(job, model)).replace("local_steps", "steps")  # as [local] has it


class _AboutNoise(TypedDict):
    said: NoiseIsAdded | None
    convex: bool
    many: bool
    settings: set[str]


def _about_noise(job: Job, model: Model) -> _AboutNoise:
    """What decides whether noise is added once."""
    # Without ε nothing is proved, and any model can be trained as the paper does it; devices are units by rule S4.
    said: NoiseIsAdded | None = job.privacy.noise_is_added or (None if job.privacy.hides_rows else "every step")
    many = many_weights(features=model.features, classes=model.classes, against=job.privacy.against)
    return {"said": said, "convex": _convex(model), "many": many, "settings": _settings(job)}


def _takes_one_step(job: Job, model: Model) -> bool:
    """Whether one noisy step per round is proposed: where the secure sum is to count, and noise is in every step."""
    privacy = job.privacy
    trusting = privacy.trusts_sum and privacy.hides_rows
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


def sparse(cohort: int, *, colluding: float = 0.1, dropping: float = 0.1, **other: Any) -> SecureSum:  # noqa: ANN401
    """The secure sum on the sparsest safe graph: 40 bits of privacy and 20 of liveness against a curious server.

    The privacy holds for every cohort from the smallest sum to the whole.

    >>> sparse(1000).neighbours, sparse(1000).threshold
    (48, 28)
    """
    require_number("colluding", colluding, below=1.0, closed=True)
    require_number("dropping", dropping, below=1.0, closed=True)
    colluders, dropouts = math.ceil(colluding * cohort), math.ceil(dropping * cohort)
    smallest = cohort - dropouts
    for degree in range(2, smallest, 2):
        for threshold in range(1, degree + 1):
            privacy, liveness = failure_bits(cohort, degree, threshold, colluders, dropouts)
            if liveness < LIVENESS_BITS:
                break  # it only falls as the threshold grows
            # The same colluders are a larger part of the smallest cohort that may meet.
            least, _ = failure_bits(smallest, degree, threshold, colluders, 0)
            if min(privacy, least) >= PRIVACY_BITS:
                return SecureSum(
                    cohort=cohort,
                    smallest_sum=smallest,
                    threshold=threshold,
                    colluders=colluders,
                    adversary="curious",
                    graph="harary",
                    neighbours=degree,
                    **other,
                )
    raise PlanError(
        "CH205",
        f"no sparse graph on {cohort:,} devices withstands {colluders} colluders and {dropouts} drop-outs.",
        fix="Use a complete graph.",
    )


def secure_sum_of(settings: FederationSettings, cohort: int) -> SecureSum:
    """The secure sum that [federation] asks for: the default, or the sparse graph.

    >>> secure_sum_of(FederationSettings(), 10).graph
    'complete'
    """
    if settings.secure_sum == "complete":
        return SecureSum.for_cohort(cohort, colluders=settings.colluders)
    secure = sparse(cohort)
    if settings.colluders is not None:
        secure = replace(secure, colluders=settings.colluders)
    require_private(secure, cohort)  # every honest noise that a plan counts on is in a graph that holds
    return secure


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


class UnitNumbers(TypedDict):
    """The part of a plan that says what it protects."""

    unit: UnitName
    rows_per_person: int


def _unit(job: Job) -> UnitNumbers:
    """What the plan protects: one record, or all rows of a person."""
    return {"unit": job.privacy.unit, "rows_per_person": job.data.rows_per_person or 0}


def row_length_of(job: Job, model: Model, columns: Sequence[Numeric | Categorical]) -> float:
    """R: as is said, else the longest row that the columns allow, with its intercept.

    A number lies within ±1, and of the features of a categorical column one is 1; arrays are taken to lie within ±1.
    """
    return job.model.row_length or math.sqrt((len(columns) or model.features) + 1)


def _conditions(
    job: Job, model: Model, secure: SecureSum, *, devices: int, rows: int, row_length: float, typical_rows: float | None
) -> PlanningConditions:
    """The public numbers from which total time and clip are proposed."""
    return {
        "link": model.link,
        "classes": model.classes,
        "features": model.features,
        "devices": devices,
        "cohort": _cohort(job, devices),
        "rows": rows,
        "row_length": row_length,
        "typical_rows": typical_rows,
        "rounds": job.federation.rounds,
        "slope": job.model.slope,
        "honest_noises": noises_against(job.privacy.against, secure.honest_noises(secure.adversary)),
    }


def _budget(job: Job) -> Budget:
    """The job's budget, or an easy one where the noise was chosen by hand."""
    return Budget(epsilon=job.privacy.epsilon or EASY, delta=job.privacy.delta)


def _plan_of_one_step(job: Job, conditions: PlanningConditions, weighing: Weighing) -> Plan:
    """A plan of one noisy step per round on all rows of a device, before its noise is solved from the budget."""
    numbers = one_step_numbers(_budget(job), **conditions)
    rows = conditions["rows"]
    return Plan(
        devices=conditions["devices"], cohort=conditions["cohort"], rounds=numbers.rounds, rows=rows, batch=rows,
        step_size=numbers.step_size, clip=numbers.clip, noise=0.0, sampling="partition", law=job.privacy.law,
        weighing=weighing, **_unit(job),
    )  # fmt: skip


def _plan_beside_sums(job: Job, devices: int, rows: int) -> Plan:
    """What is reserved next to a model on sums: one round, with the noise for what its questions leave of ε.

    Nobody calls it; it gives the run its digest and its secure sum, as the training of every other job does.
    """
    return Plan(
        devices=devices, cohort=_cohort(job, devices), rounds=1, rows=rows, batch=rows, step_size=1.0, clip=1.0,
        noise=0.0, sampling="partition", law=job.privacy.law, **_unit(job),
    )  # fmt: skip


def _plan_once(job: Job, model: Model, conditions: PlanningConditions) -> Plan:
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


def prospect_of(study: Study) -> Prospect | None:
    """What can be expected of a run, from public numbers, or None where nothing is known: networks, sums, no ε."""
    job, model, secure, rows = study.job, study.model, study.secure, study.rows.tolist()
    if not _convex(model) or not job.privacy.hides_rows or job.on_sums:
        return None
    trusted = secure.honest_noises(secure.adversary)
    return Prospect(
        budget=_budget(job), devices=len(rows), rows=sum(rows) / len(rows), sizes=tuple(rows), features=model.features,
        classes=model.classes,
        honest_noises=noises_against(job.privacy.against, trusted), trusted_noises=trusted,
    )  # fmt: skip


def left_open(job: Job) -> tuple[str, ...]:
    """The numbers that a job leaves to the planner."""
    return tuple(name for name, value in _given(job).items() if value is None)


def _plan(
    job: Job, model: Model, secure: SecureSum, *, devices: int, rows: int, weighing: Weighing, row_length: float
) -> Plan:
    """The job's numbers as a plan, before its noise is solved from the budget: what is not given is proposed."""
    local, privacy, given = job.local, job.privacy, _given(job)
    if given["batch"] is not None and given["batch"] > rows:
        raise PlanError("CH204", f"batch = {given['batch']:,} of {rows:,}.", fix=f"Use at most {rows:,}.")
    if None in given.values():
        task = _task(job, model, secure, devices=devices, rows=rows, **given)
        by_hand = {"noise"} if privacy.epsilon is None else set[str]()
        task = replace(task, given=task.given | by_hand)
        if task.many:
            task = replace(task, shape=replace(task.shape, length=row_length))
        # If there is no noise, a cohort may be one device.
        proposed = proposal_of(task).plan
        given = {name: getattr(proposed, name) if value is None else value for name, value in given.items()}
    return Plan(
        devices=devices, rows=rows, noise=privacy.noise or 0.0, sampling=job.sampling(once=False), passes=local.passes,
        law=privacy.law, clip_quantile=local.clip_quantile or 0.0, weighing=weighing, **given, **_unit(job),
    )  # fmt: skip


def _task(
    job: Job,
    model: Model,
    secure: SecureSum,
    *,
    devices: int,
    rows: int,
    **given: Any,  # noqa: ANN401 - numbers of a plan
) -> PlanningTask:
    """What is to be planned for noise in every step, with the numbers that are given."""
    privacy = job.privacy
    return task_of(
        epsilon=privacy.epsilon if privacy.epsilon is not None else EASY,
        delta=privacy.delta,
        devices=devices, rows=rows, features=model.features, classes=model.classes, model=model.plainest,
        sampling=job.sampling(once=False), law=privacy.law, against=privacy.against,
        **crowd_of(secure), **given, **_unit(job),
    )  # fmt: skip


def noise_drowns(study: Study) -> bool:
    """Whether the plan's noise is larger than all that its steps could learn; it is tried all the same."""
    job, plan = study.job, study.plan
    if job.privacy.epsilon is None or plan.once:
        return False
    numbers = {name: getattr(plan, name) for name in _given(job)}
    return drowns(_task(job, study.model, study.secure, devices=plan.devices, rows=plan.rows, **numbers), plan)


def _with_noise(job: Job, plan: Plan, secure: SecureSum) -> Plan:
    """The plan with the noise that the job's budget asks for, or with the noise that it gives itself."""
    privacy = job.privacy
    if privacy.epsilon is not None or plan.noise > 0:
        require_company(plan.cohort, plan.devices, where=job.where("federation", "cohort"))
    if privacy.epsilon is None:
        return with_reserves(plan, privacy.delta) if plan.noise > 0 else plan
    budget, asked = Budget(epsilon=privacy.epsilon, delta=privacy.delta), price_of(job, plan.devices)
    if not privacy.trusts_sum:
        return calibrated(plan, budget, other=None if asked is None else asked.reserved)
    other = None if asked is None else asked.reserved_of_sums
    budget = replace(budget, delta=budget.delta - rounds_each(plan) * secure.failure)
    return calibrated(plan, budget, rule="with_secure_sum", other=other, **crowd_of(secure))


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
    settings, devices = job.data, job.federation.devices
    dealing = Dealing(devices=devices, partition=settings.partition, skew=settings.skew, seed=seed)
    if source is None and settings.builtin == "adult":
        dealing = replace(dealing, devices=devices or 16)
        return load_adult(columns=settings.columns, keep_tables=keep_tables, **asdict(dealing)), "UCI Adult"
    path = settings.csv or settings.parquet or settings.npz or settings.images
    if source is None and path is None:
        raise ConfigError(
            "CH103", "[data] names no data.", where=job.where("data"),
            fix='Set csv, parquet, npz, images, or builtin = "adult".',
        )  # fmt: skip
    how = Reading(
        label=settings.label,
        classes=settings.classes,
        label_bounds=settings.label_bounds,
        columns=settings.columns,
        ignore=settings.ignore,
        device_column=settings.device_column,
        limit_column=settings.limit_column,
        person=settings.person,
        row_shape=settings.row_shape,
        written=settings.written,
        own_labels=settings.labels,
        encoder=encoder_of(job),
        guess=guess,
    )
    given = source
    if source is None:
        pattern = job.pattern(str(path))
        given = Files(pattern) if settings.images is None else ImageFolders(pattern)
    data = read(source_of(given), how, dealing, keep_tables=keep_tables)
    named = path if source is None else source
    # The file's name and not where it lies: reports travel, and a path may name a person.
    return data, Path(named).name if isinstance(named, str | Path) else f"a {type(source).__name__} in memory"


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
