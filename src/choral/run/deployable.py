"""What a job must say before it can run between organisations, and the columns that sites then read."""

from typing import TYPE_CHECKING

from choral.config import Job
from choral.core.errors import ConfigError, PlanError, TableError
from choral.core.printable import fault_of_word
from choral.run.names import no_name, require_device_name, require_name
from choral.run.study import encoder_of
from choral.tables.arrays import array_features
from choral.tables.columns import Categorical, Numeric, declare
from choral.tables.encoder import embedding_columns

if TYPE_CHECKING:
    from choral.run.agreement import StudyFile


def check_deployable(job: Job) -> None:
    """Nothing, or why this job can't run between organisations: a seed, or something that only the rows could tell."""
    if job.run.seed is not None:
        raise PlanError(
            "CH203",
            f"seed = {job.run.seed} is set, but this is a deployment: predictable noise is no noise.",
            where=job.where("run", "seed"),
            fix="Take it out.",
        )
    of_one_table = ("builtin", "device_column", "limit_column", "labels")
    for table, key in (*(("data", name) for name in of_one_table), ("privacy", "limits")):
        if getattr(getattr(job, table), key) is not None:
            raise ConfigError(
                "CH104",
                f"[{table}] {key} is set, but in a deployment each site has its own file and its own limit.",
                where=job.where(table, key),
                fix="Take it out.",
            )
    if job.leaves_kind_open:
        raise ConfigError(
            "CH104",
            '[model] kind = "auto" in a deployment.',
            where=job.where("model", "kind"),
            why="Each site approves a model that is named.",
            fix="Name the kind that choral plan proposes.",
        )
    if job.on_sums:
        raise ConfigError(
            "CH104",
            f'[model] kind = "{job.model.kind}" in a deployment, which asks for such a model by a question.',
            where=job.where("model", "kind"),
            fix=f"Leave it out, set [ask] epsilon, and use choral ask STUDY {job.model.kind} …",
        )
    if job.federation.rows is None:
        raise ConfigError(
            "CH103",
            "[federation] has no rows.",
            where=job.where("federation"),
            why="The plan needs the rows that every site has at least, and nobody may count them.",
            fix="Set rows = …, a number that every site can promise.",
        )
    read = job.data.columns or job.data.text or job.data.row_shape
    if not read or not (job.data.classes or job.data.label_bounds):
        missing = "columns, and no row_shape" if not read else "classes or label_bounds"
        raise TableError(
            "CH304",
            f"[data] declares no {missing}.",
            where=job.where("data"),
            why="Taking them from the rows would reveal them.",
            fix='Declare [data.columns.NAME] with bounds or levels for each, and classes = ["…", "…"] of the label.',
        )
    _check_encoder(job)
    inputs_of(job)


def _check_encoder(job: Job) -> None:
    """Nothing, or CH103 for an encoder that is not pinned: sites must approve one file and one number of weights."""
    data = job.data
    if data.encoder is None or (data.encoder_sha256 and data.embeddings):
        return
    known = encoder_of(job) if (job.folder / data.encoder_file).exists() else None
    digest = f'encoder_sha256 = "{known.sha256}"' if known else "encoder_sha256, what sha256sum prints of the file"
    raise ConfigError(
        "CH103",
        f"[data] has an encoder and no {'embeddings' if data.encoder_sha256 else 'encoder_sha256'}.",
        where=job.where("data", "encoder"),
        why="Every site must use exactly the file that it approved.",
        fix="Set embeddings, how many numbers it gives per row." if data.encoder_sha256 else f"Set {digest}.",
    )


def check_names(file: "StudyFile", job: Job) -> None:
    """Nothing, or CH102 for a name in a new study that people could take for another one, or that can't be shown."""
    for what, name in (
        ("the study's name", file.name),
        ("the run's name", job.run.name),
        ("the study's run", file.run),
        ("the study's version of choral", file.choral),
        ("the server's address", file.address),
        ("the model's kind", job.model_kind),
    ):
        require_name(what, name)
    for device in file.devices:
        require_device_name(device.id)
    data = job.data
    words = [("a class", word) for word in data.class_names or ()] + [("the label's name", data.label)]
    words += [("a column's name", name) for name in (data.person, data.text) if name is not None]
    words += [("the encoder's file", data.encoder_file)] if data.encoder_file else []
    for column in inputs_of(job):
        levels = column.levels if isinstance(column, Categorical) else ()
        words += [("a column's name", column.name), *(("a level", level) for level in levels)]
    for what, word in words:
        if fault := fault_of_word(word):
            raise no_name(what, fault)


def columns_of(job: Job) -> tuple[Numeric | Categorical, ...]:
    """The columns that the model reads: those that a job declares, or the embeddings that an encoder makes of them."""
    data = job.data
    if data.embedding_bounds is None:
        return inputs_of(job)
    return embedding_columns(data.embeddings or 1, data.embedding_bounds)


def row_of(job: Job) -> tuple[int, ...]:
    r"""The shape of a row as the model takes it: the declared one, or one axis with the features of the columns.

    >>> from choral.config import parse
    >>> row_of(parse("privacy.epsilon = 2.0\ndata.row_shape = [8, 8]"))
    (8, 8)
    """
    if job.data.row_shape is not None and job.data.embedding_bounds is None:
        return tuple(job.data.row_shape)
    return (sum(len(column.features) for column in columns_of(job)),)


def features_of(job: Job) -> tuple[str, ...]:
    """The names of the features that the model takes."""
    columns = columns_of(job)
    return tuple(name for column in columns for name in column.features) if columns else array_features(row_of(job))


def inputs_of(job: Job) -> tuple[Numeric | Categorical, ...]:
    """The columns that a job declares, in their order."""
    settings = job.data
    left_out = {settings.label, settings.person, *(settings.ignore or ())}
    where = job.where("data", "columns")
    return tuple(
        declare(name, declared, where=where)
        for name, declared in (settings.columns or {}).items()
        if name not in left_out
    )
