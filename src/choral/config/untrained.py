"""[model] kind = "additive" or "hazard": a model that is made from sums, which are questions, and is not trained."""

from dataclasses import fields
from typing import TYPE_CHECKING

from choral.asking import IN_PLACE_OF_TRAINING
from choral.config.settings import AskSettings, LocalSettings, ModelSettings
from choral.core.errors import ConfigError, TableError
from choral.tables.sources import adult_metadata

if TYPE_CHECKING:
    from choral.config import Job

ON_SUMS = IN_PLACE_OF_TRAINING
OPEN = "auto"  # the kind of a job whose model the planner chooses
OF_SUMS = ("time", "until", "bins")  # settings of [model] that only models on sums have
SHARE = 0.99  # of ε: every run reserves its rounds of training, so one is left, with the noise for the rest


def rounds_of(job: "Job") -> int:
    """The rounds of the job's model: as is said, else the usual ones, which are fewer against everyone."""
    usual = ON_SUMS[job.model_kind_said]
    trusting = job.privacy.against != "everyone"
    return job.federation.rounds or (usual.rounds if trusting else usual.rounds_against_everyone)


def questions_for(job: "Job") -> AskSettings:
    """[ask] of a job that does not say what may be asked: its model, and nothing else, for all of ε."""
    epsilon, trusting = SHARE * (job.privacy.epsilon or 0.0), job.privacy.against != "everyone"
    return AskSettings(
        epsilon=None if trusting else epsilon,
        epsilon_sum=epsilon if trusting else None,
        most=ON_SUMS[job.model_kind_said].before + rounds_of(job),
        names=[job.model_kind_said],
        columns=job.ask.columns,
        dropouts=job.ask.dropouts,
        smallest_crowd=job.ask.smallest_crowd,
    )


def check_on_sums(job: "Job") -> None:
    """Nothing, or what a model on sums lacks, or a setting of [model] or [local] that the job's kind does not use."""
    if job.leaves_kind_open:  # checked when it is known
        return
    kind = job.model_kind_said
    unused = [("local", name) for name in given_in(job.local)] if job.on_sums else []
    unused += [("model", name) for name in given_in(job.model) if name != "kind" and (name in OF_SUMS) != job.on_sums]
    if unused:
        table, name = unused[0]
        raise ConfigError(
            "CH104",
            f'[{table}] has {name}, which a model of kind "{kind}" does not use.',
            where=job.where(table, name),
            fix="Leave it out, or use another kind of model.",
        )
    if job.on_sums:
        _check_needs(job, kind)


def given_in(settings: LocalSettings | ModelSettings) -> list[str]:
    """The settings of a table that differ from their defaults.

    >>> given_in(ModelSettings(bins=6))
    ['bins']
    """
    return [field.name for field in fields(settings) if getattr(settings, field.name) != field.default]


def _check_needs(job: "Job", kind: str) -> None:
    if job.privacy.epsilon is None or job.privacy.protects.clips_update or job.data.person is not None:
        raise ConfigError(
            "CH104",
            f'[model] kind = "{kind}" is proved for an ε that protects one record.',
            where=job.where("model", "kind"),
            fix="Set [privacy] epsilon, and leave unit and person out.",
        )
    classes = adult_metadata()["classes"] if job.data.builtin is not None else job.data.class_names
    if classes is None or len(classes) != 2:
        raise TableError(
            "CH304",
            f'[model] kind = "{kind}" needs a label of two declared classes.',
            where=job.where("data", "label"),
            fix='Declare classes = ["no", "yes"] in [data].',
        )
    if job.data.builtin is None and not job.data.columns:
        raise TableError(
            "CH304",
            f'[model] kind = "{kind}" needs declared columns.',
            where=job.where("data"),
            fix="Declare [data.columns.NAME] with bounds or levels for each; choral init writes them.",
        )
    if "time" in ON_SUMS[kind].needs and (job.data.columns or {}).get(job.model.time or "") is None:
        raise ConfigError(
            "CH103",
            f'[model] kind = "{kind}" needs the column of the time that each row was watched.',
            where=job.where("model", "kind"),
            fix='Set time = "days" in [model], and declare bounds = [0, …] of that column in [data.columns].',
        )
