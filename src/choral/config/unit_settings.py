"""The settings that go with the unit of privacy, checked together."""

from typing import TYPE_CHECKING

from choral.core.errors import ConfigError
from choral.server_step import DEFAULT

if TYPE_CHECKING:
    from choral.config import Job


def check_unit(job: "Job") -> None:
    """Nothing, or what is wrong with the settings that go with the unit of privacy."""
    if job.privacy.protects.clips_update:
        needed = {"federation": ("cohort", "rounds"), "local": ("steps", "batch", "step_size", "clip")}
        for table, names in needed.items():
            if missing := [name for name in names if getattr(getattr(job, table), name) is None]:
                raise ConfigError(
                    "CH103",
                    f'[privacy] unit = "{job.privacy.unit}" needs {", ".join(missing)} in [{table}].',
                    where=job.where(table),
                    why="Nothing is proposed for updates that are clipped as a whole.",
                    fix="Set them; clip is the longest update of a device.",
                )
    if job.ask.allowed and not job.privacy.protects.one_row:
        raise ConfigError(
            "CH104",
            f'[ask] with [privacy] unit = "{job.privacy.unit}".',
            where=job.where("ask"),
            why="Rule S8 is proved for one record: all rows of a person or a device would count in an answer.",
            fix='Leave [ask] out, or use unit = "record".',
        )
    wanted = job.privacy.protects.groups_rows
    for key, example in (("person", '"patient_id"'), ("rows_per_person", "5")):
        given = getattr(job.data, key) is not None
        if wanted and not given:
            raise ConfigError(
                "CH103",
                f'[privacy] unit = "{job.privacy.unit}" needs {key} in [data].',
                where=job.where("data"),
                fix=f"Set {key} = {example}, say.",
            )
        if given and not wanted:
            raise ConfigError(
                "CH104",
                f'[data] has {key}, and [privacy] unit = "{job.privacy.unit}" does not use it.',
                where=job.where("data", key),
                fix='Set unit = "person" in [privacy], or take it out (ignore = [...] leaves a column out).',
            )


def check_quantile(job: "Job") -> None:
    """Nothing, or CH104 for a clip that follows a quantile where none can."""
    if job.local.clip_quantile is None:
        return
    unit, server = job.privacy.unit, job.federation.server
    reasons = (
        (
            not job.privacy.protects.clips_update,
            f'[privacy] unit = "{unit}"',
            'Set unit = "device" in [privacy], or leave clip_quantile out.',
        ),
        (
            server not in (None, DEFAULT),
            f'server = "{server}"',
            f'Use server = "{DEFAULT}", or leave clip_quantile out.',
        ),
    )
    for refused, other, fix in reasons:
        if refused:
            raise ConfigError(
                "CH104",
                f"[local] has clip_quantile with {other}.",
                where=job.where("local", "clip_quantile"),
                why="The clip of whole updates alone can follow their lengths, and the server's step then moves it.",
                fix=fix,
            )
