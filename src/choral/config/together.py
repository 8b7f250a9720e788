"""Settings that do not go together, or that lack something: each complaint names the line and the way out."""

import difflib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from choral.asking import IN_PLACE_OF_TRAINING
from choral.config.settings import AskSettings, LocalSettings, ModelSettings, settings_of
from choral.core.errors import ConfigError, TableError
from choral.learning.models import KINDS
from choral.server_step import DEFAULT
from choral.tables.sources import adult_metadata

if TYPE_CHECKING:
    from choral.config import Job

ON_SUMS = IN_PLACE_OF_TRAINING
OPEN = "auto"  # the kind of a job whose model the planner chooses
OF_SUMS = ("time", "until", "bins")  # settings of [model] that only models on sums have
SHARE = 0.99  # of ε: every run reserves its rounds of training, so one is left, with the noise for the rest
_OF_A_TABLE = ("ignore", "device_column", "limit_column", "person", "delimiter")
_OF_A_TABLE_TOO = {"builtin": ("classes", "encoder"), "npz": ("columns",), "images": ("columns", "label_bounds")}
_NOT_OF_ARRAYS = ("csv", "parquet", "builtin", "columns", "text", "person", "labels")
_OF_AN_ENCODER = ("encoder_sha256", "embeddings", "embedding_bounds", "text")
_OF_UPDATES = {"federation": ("cohort", "rounds"), "local": ("steps", "batch", "step_size", "clip")}


class Complaint(NamedTuple):
    """What is wrong with a job: where, in words, and what to do."""

    code: str
    table: str
    key: str
    what: str
    fix: str
    why: str = ""


def check_together(job: "Job") -> None:
    """Raise the first complaint about a job whose settings are each what they must be.

    >>> from choral.config import parse
    >>> parse("privacy.delta = 1e-5")
    Traceback (most recent call last):
        ...
    choral.core.errors.ConfigError: CH103 choral.toml:1 [privacy] has no epsilon. Set epsilon = 2.0, say, or ...
    """
    checks = (_sources, _arrays, _encoder, _budget, _unit, _quantile, _server, _sums, _kind, _label)
    for one in (complaint for check in checks for complaint in check(job)):
        kind = TableError if one.code == "CH304" else ConfigError
        raise kind(one.code, one.what, where=job.where(one.table, one.key), why=one.why, fix=one.fix)


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """The known word that is nearest to this one, or all of them; `otherwise` where that says it better."""
    close = difflib.get_close_matches(word, [*known], n=1)
    if otherwise or not close:
        return otherwise or f"Known: {', '.join(known)}."
    return f'Did you mean "{close[0]}"?'


def shown(value: object) -> str:
    """A value as a complaint names it: numbers and short texts, and of others their type."""
    if isinstance(value, float | int | bool):
        return str(value).lower()
    text = f'"{value}"' if isinstance(value, str) else type(value).__name__
    return text if len(text) <= 40 else text[:37] + '…"'


def given_in(settings: LocalSettings | ModelSettings) -> list[str]:
    """The settings of a table that differ from their defaults.

    >>> given_in(ModelSettings(bins=6))
    ['bins']
    """
    known = settings_of(type(settings))
    return [name for name, setting in known.items() if getattr(settings, name) != setting.default]


def rounds_of(job: "Job") -> int:
    """The rounds of the job's model on sums: as is said, else the usual ones, which are fewer against everyone."""
    usual = ON_SUMS[job.model_kind_said]
    trusting = job.privacy.trusts_sum
    return job.federation.rounds or (usual.rounds if trusting else usual.rounds_against_everyone)


def questions_for(job: "Job") -> AskSettings:
    """[ask] of a job that does not say what may be asked: its model, and nothing else, for all of ε."""
    epsilon, trusting = SHARE * (job.privacy.epsilon or 0.0), job.privacy.trusts_sum
    return AskSettings(
        epsilon=None if trusting else epsilon,
        epsilon_sum=epsilon if trusting else None,
        most=ON_SUMS[job.model_kind_said].before + rounds_of(job),
        names=[job.model_kind_said],
        columns=job.ask.columns,
        dropouts=job.ask.dropouts,
        smallest_crowd=job.ask.smallest_crowd,
    )


def _first_given(settings: object, names: Iterable[str]) -> str | None:
    return next((name for name in names if getattr(settings, name) is not None), None)


def _sources(job: "Job") -> Iterator[Complaint]:
    """One source of rows, and no setting of a table where they are arrays, images, or come with choral."""
    data = job.data
    sources = [key for key in ("csv", "parquet", "npz", "images", "builtin") if getattr(data, key) is not None]
    if len(sources) > 1:
        yield Complaint("CH104", "data", sources[1], f"[data] names both {sources[0]} and {sources[1]}.", "Keep one.")
    source = sources[0] if sources else ""
    more = _OF_A_TABLE_TOO.get(source)
    if more is not None and (key := _first_given(data, (*_OF_A_TABLE, *more))):
        what = f'[data] has {source} = "{getattr(data, source)}" and {key}, which only your own table can have.'
        yield Complaint("CH104", "data", key, what, f"Leave {key} out, or name your table with csv or parquet.")
    if data.images is not None and len(data.row_shape or ()) not in (2, 3):
        what = "[data] has images and no row_shape of two or three numbers."
        fix = "Set row_shape = [28, 28] for grey images, or [28, 28, 3] for colours."
        yield Complaint("CH103", "data", "images", what, fix)


def _arrays(job: "Job") -> Iterator[Complaint]:
    """Rows that are declared to be arrays are nothing else as well."""
    if job.data.row_shape is not None and (key := _first_given(job.data, _NOT_OF_ARRAYS)):
        what = f"[data] has row_shape, which makes rows arrays, and {key}, which makes them rows of a table."
        yield Complaint("CH104", "data", "row_shape", what, "Keep one of them.")


def _encoder(job: "Job") -> Iterator[Complaint]:
    """An encoder says what it is, and the range of what it gives."""
    data = job.data
    if data.encoder is None:
        if key := _first_given(data, _OF_AN_ENCODER):
            fix = 'Add encoder = "onnx:FILE", or take it out.'
            yield Complaint("CH104", "data", key, f"[data] has {key} and no encoder.", fix)
        return
    if not data.encoder_file:
        fix = 'Must be "onnx:" and the path of a file. Suggested: "onnx:encoder.onnx"'
        yield Complaint("CH102", "data", "encoder", "data.encoder names no ONNX file.", fix)
    if data.embedding_bounds is None:
        fix = "Set embedding_bounds = [-1, 1], say: the range of what the encoder gives for public rows."
        why = "A range that is taken from the rows would reveal them."
        yield Complaint("CH304", "data", "encoder", "[data] has an encoder and no embedding_bounds.", fix, why)
    if data.text is not None and data.columns:
        what = "[data] has text, which the encoder reads, and columns, which nothing would read."
        yield Complaint("CH104", "data", "text", what, "Keep one of them.")


def _budget(job: "Job") -> Iterator[Complaint]:
    """An ε or a noise, and a cohort that the devices are enough for."""
    privacy, devices, cohort = job.privacy, job.federation.devices, job.federation.cohort
    if privacy.epsilon is None and privacy.noise is None:
        fix = "Set epsilon = 2.0, say, or noise = … to choose the noise by hand."
        yield Complaint("CH103", "privacy", "", "[privacy] has no epsilon.", fix)
    if privacy.epsilon is not None and privacy.noise is not None:
        fix = "Keep epsilon (the noise is solved from it), or noise."
        yield Complaint("CH104", "privacy", "noise", "[privacy] has both epsilon and noise.", fix)
    if devices is not None and cohort is not None and cohort > devices:
        what = f"federation.cohort = {cohort} of {devices} devices."
        yield Complaint("CH104", "federation", "cohort", what, f"Use at most {devices}.")


def _unit(job: "Job") -> Iterator[Complaint]:
    """What the unit of privacy needs is there, and what another unit would need is not."""
    unit, protects, data = f'[privacy] unit = "{job.privacy.unit}"', job.privacy.protects, job.data
    for table, names in _OF_UPDATES.items() if protects.clips_update else ():
        if missing := [name for name in names if getattr(getattr(job, table), name) is None]:
            why = "Nothing is proposed for updates that are clipped as a whole."
            what, fix = (
                f"{unit} needs {', '.join(missing)} in [{table}].",
                "Set them; clip is the longest update of a device.",
            )
            yield Complaint("CH103", table, "", what, fix, why)
    if job.ask.allowed and not protects.one_row:
        why = "Rule S8 is proved for one record: all rows of a person or a device would count in an answer."
        yield Complaint("CH104", "ask", "", f"[ask] with {unit}.", 'Leave [ask] out, or use unit = "record".', why)
    for key, example in (("person", '"patient_id"'), ("rows_per_person", "5")):
        given = getattr(data, key) is not None
        if protects.groups_rows and not given:
            yield Complaint("CH103", "data", "", f"{unit} needs {key} in [data].", f"Set {key} = {example}, say.")
        if given and not protects.groups_rows:
            fix = 'Set unit = "person" in [privacy], or take it out (ignore = [...] leaves a column out).'
            yield Complaint("CH104", "data", key, f"[data] has {key}, and {unit} does not use it.", fix)


def _quantile(job: "Job") -> Iterator[Complaint]:
    """A clip follows a quantile only where whole updates are clipped, and where the server's step moves it."""
    if job.local.clip_quantile is None:
        return
    why = "The clip of whole updates alone can follow their lengths, and the server's step then moves it."
    if not job.privacy.protects.clips_update:
        other, fix = (
            f'[privacy] unit = "{job.privacy.unit}"',
            'Set unit = "device" in [privacy], or leave clip_quantile out.',
        )
        yield Complaint("CH104", "local", "clip_quantile", f"[local] has clip_quantile with {other}.", fix, why)
    if (server := job.federation.server) not in (None, DEFAULT):
        fix = f'Use server = "{DEFAULT}", or leave clip_quantile out.'
        what = f'[local] has clip_quantile with server = "{server}".'
        yield Complaint("CH104", "local", "clip_quantile", what, fix, why)


def _server(job: "Job") -> Iterator[Complaint]:
    """The server's step raises CH104 itself for a number that it does not use."""
    _ = job.server_step
    yield from ()


def _sums(job: "Job") -> Iterator[Complaint]:
    """A model on sums has what it needs, and no job a setting of [model] or [local] that its kind does not use."""
    if job.leaves_kind_open:  # checked when it is known
        return
    kind, said, data = job.model_kind_said, f'[model] kind = "{job.model_kind_said}"', job.data
    unused = [("local", name) for name in given_in(job.local)] if job.on_sums else []
    unused += [("model", name) for name in given_in(job.model) if name != "kind" and (name in OF_SUMS) != job.on_sums]
    for table, name in unused:
        what = f'[{table}] has {name}, which a model of kind "{kind}" does not use.'
        yield Complaint("CH104", table, name, what, "Leave it out, or use another kind of model.")
    if not job.on_sums:
        return
    if not job.privacy.hides_rows or data.person is not None:
        fix = "Set [privacy] epsilon, and leave unit and person out."
        yield Complaint("CH104", "model", "kind", f"{said} is proved for an ε that protects one record.", fix)
    classes = adult_metadata()["classes"] if data.builtin is not None else data.class_names
    if classes is None or len(classes) != 2:
        fix = 'Declare classes = ["no", "yes"] in [data].'
        yield Complaint("CH304", "data", "label", f"{said} needs a label of two declared classes.", fix)
    if data.builtin is None and not data.columns:
        fix = "Declare [data.columns.NAME] with bounds or levels for each; choral init writes them."
        yield Complaint("CH304", "data", "", f"{said} needs declared columns.", fix)
    if "time" in ON_SUMS[kind].needs and (data.columns or {}).get(job.model.time or "") is None:
        fix = 'Set time = "days" in [model], and declare bounds = [0, …] of that column in [data.columns].'
        what = f"{said} needs the column of the time that each row was watched."
        yield Complaint("CH103", "model", "kind", what, fix)


def _kind(job: "Job") -> Iterator[Complaint]:
    """The kind of model is one that choral has, or somebody's own function, and has its sizes."""
    kind, built_in = job.model_kind, KINDS.get(job.model_kind)
    if built_in and built_in.hidden and not job.model.hidden:
        yield Complaint("CH103", "model", "", f'[model] kind = "{kind}" needs hidden sizes.', "Add hidden = [64, 32].")
    if built_in is None and ":" not in kind:
        known = (*KINDS, *ON_SUMS, OPEN)
        fix = f'Must be {", ".join(map(shown, known))} or "module:function". {did_you_mean(kind, known)}'
        yield Complaint("CH102", "model", "kind", f"model.kind = {shown(kind)}.", fix)


def _label(job: "Job") -> Iterator[Complaint]:
    """The label is a class or a number, as the model needs it."""
    data, built_in = job.data, KINDS.get(job.model_kind)
    if built_in and not built_in.classes and data.label_bounds is None:
        why = "Scaling by the data's own minimum and maximum would reveal them."
        fix = "Declare label_bounds = [low, high] in [data]."
        yield Complaint("CH304", "data", "label", f'label "{data.label}" has no declared range.', fix, why)
    number = "[data] has label_bounds, which make the label a number, "
    if data.label_bounds is not None and (other := _first_given(data, ("classes", "builtin"))):
        what = f"{number}and {other}, which makes it a class."
        yield Complaint("CH104", "data", "label_bounds", what, f"Keep label_bounds or {other}.")
    if data.label_bounds is not None and built_in and not built_in.numbers:
        numbers = " or ".join(shown(name) for name, one in KINDS.items() if one.numbers)
        what, fix = f'{number}and [model] kind = "{job.model_kind}" learns classes.', f"Use kind = {numbers}"
        yield Complaint("CH104", "data", "label_bounds", what, f"{fix}, or leave label_bounds out.")
