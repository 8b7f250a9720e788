"""The tables of a choral.toml, each setting with its type, its range and its default.

msgspec judges values by their types. Words, examples and what a type can't say stand in the metadata of a type.
"""

import sys
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from choral.core.plan import (
    MOST_WHOLE,
    Against,
    Law,
    NoiseIsAdded,
    Participation,
    Passes,
    Sampling,
    SumKind,
    Unit,
    UnitName,
    Weighing,
    unit_of,
    whole_within,
)
from choral.server_step import StepName
from choral.tables.cells import DateOrder, Format, level_of
from choral.tables.records import Partition

_MOST = sys.float_info.max  # so that infinity is no number
RENAMED = {"local_steps": "steps", "model": "kind", "own_labels": "labels"}  # by name in Python -> in choral.toml


def _eg(example: str) -> Meta:
    return Meta(examples=[example])


def _said(words: str, holds: Callable[[Any], bool] | None = None) -> Meta:
    """What a value must be, in words, and what is asked of it that a type can't say."""
    return Meta(description=words, extra=None if holds is None else {"holds": holds})


Number = Annotated[float, Meta(ge=-_MOST, le=_MOST)]
Positive = Annotated[float, Meta(gt=0, le=_MOST)]
NotNegative = Annotated[float, Meta(ge=0, le=_MOST)]
Small = Annotated[float, Meta(gt=0, lt=1e4)]
Part = Annotated[float, Meta(gt=0, lt=1)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Whole = Annotated[int, Meta(ge=0, le=MOST_WHOLE)]
Count = Annotated[int, Meta(ge=1, le=MOST_WHOLE)]
Text = Annotated[str, Meta(min_length=1)]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z"), _said("a SHA-256, 64 digits from 0 to f")]
Bounds = Annotated[
    list[Number],
    Meta(min_length=2, max_length=2),
    _said("[low, high], two finite numbers with low below high", lambda ends: ends[0] < ends[1]),
]
Classes = Annotated[
    list[Text | int | bool],
    _said(
        "a list of texts in quotes, of whole numbers, or of true and false", lambda all_: len({*map(type, all_)}) < 2
    ),
]
Columns = Annotated[dict[str, dict[str, Any]], _said("a table for each column, such as [data.columns.age]")]
Labels = Annotated[dict[str, Text], _said("a table with a text for each name")]


class Setting(NamedTuple):
    """A setting of a table: the type of its values, and its default.

    >>> Setting(Share).fits(1.0), str(Setting(Share))
    (False, 'a finite number at least 0 and below 1')
    """

    kind: Any
    default: object = None

    def fits(self, value: object) -> bool:
        """Say if this may be a value of the setting."""
        try:
            msgspec.convert(value, self.kind)
        except msgspec.ValidationError:
            return False
        return all(meta.extra["holds"](value) for meta in _metas(self.kind) if meta.extra)

    @property
    def example(self) -> str:
        """A value that a reader may be shown, as TOML; empty where there is none."""
        if isinstance(self.default, bool):
            return "true"
        examples = [example for meta in _metas(self.kind) for example in meta.examples or ()]
        return str(examples[0]) if examples else "" if self.default is None else repr(self.default).replace("'", '"')

    def __str__(self) -> str:
        metas, base = _metas(self.kind), get_args(self.kind)[0] if get_origin(self.kind) is Annotated else self.kind
        if said := [meta.description for meta in metas if meta.description]:
            return said[0]
        origin, inner = get_origin(base) or base, get_args(base)
        if origin is Literal:
            return " or ".join(f'"{choice}"' for choice in inner)
        if origin in (dict, list):
            item = Setting(inner[-1])
            return f"a table with {item} for each name" if origin is dict else f"a list, each item {item}"
        if base in (bool, str):
            return "true or false" if base is bool else "a text in quotes"
        limits = {name: getattr(metas[0], name) for name in ("gt", "ge", "lt", "le")}
        if base is int:
            return whole_within(limits["ge"], limits["le"])
        words = {"gt": "above", "ge": "at least", "lt": "below"}
        parts = [f"{words[name]} {one:g}" for name, one in limits.items() if name != "le" and one not in (None, -_MOST)]
        return " ".join(["a finite number", " and ".join(parts)]).rstrip()


def _metas(kind: Any) -> list[Meta]:  # noqa: ANN401 - any type
    return [one for one in getattr(kind, "__metadata__", ()) if isinstance(one, Meta)]


@cache
def settings_of(table: type[msgspec.Struct]) -> dict[str, Setting]:
    """The settings of a table by their names, each with its type, which None is never of.

    >>> list(settings_of(RunSettings))
    ['name', 'seed', 'evaluate_every', 'gradient_norm']
    """
    kinds, found = get_type_hints(table, include_extras=True), {}
    for field in msgspec.structs.fields(table):
        kind = kinds[field.name]
        if get_origin(kind) in (Union, UnionType):
            (kind,) = (one for one in get_args(kind) if one is not NoneType)
        found[field.name] = Setting(kind, field.default)
    return found


class PrivacySettings(msgspec.Struct, frozen=True, kw_only=True):
    """[privacy]: the budget of every device, or a noise that somebody chose by hand."""

    epsilon: Annotated[Small, _eg("2.0")] | None = None
    delta: Annotated[Part, _eg("1e-5")] = 1e-5
    noise: NotNegative | None = None
    law: Law = "gaussian"
    against: Against = "everyone"
    unit: UnitName = "record"
    noise_is_added: NoiseIsAdded | None = None
    limits: dict[str, Small] | None = None

    @property
    def trusts_sum(self) -> bool:
        """Whether limits are about the figure with the secure sum."""
        return self.against != "everyone"

    @property
    def hides_rows(self) -> bool:
        """Whether an ε is asked for that is about some rows of a device, and not about the whole device."""
        return self.epsilon is not None and not self.protects.clips_update

    @property
    def protects(self) -> Unit:
        """The unit of privacy: what it is, and the words for it."""
        return unit_of(self.unit)


class FederationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """[federation]: who takes part and how often."""

    devices: Annotated[Count, _eg("16")] | None = None
    cohort: Annotated[Count, _eg("10")] | None = None
    rounds: Annotated[Count, _eg("20")] | None = None
    rows: Annotated[Count, _eg("1000")] | None = None
    typical_rows: Annotated[Count, _eg("2000")] | None = None
    weighing: Weighing | None = None
    colluders: Whole | None = None
    participation: Participation = "balanced"
    secure_sum: SumKind = "complete"
    robust: bool = False
    deadline: Annotated[float, Meta(gt=0, lt=86400), _eg("120")] = 120.0
    server: StepName | None = None
    server_step_size: Annotated[Small, _eg("0.1")] | None = None
    server_momentum: Annotated[Share, _eg("0.9")] | None = None
    server_decay: Annotated[Share, _eg("0.99")] | None = None
    server_floor: Annotated[Small, _eg("1e-3")] | None = None


class LocalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """[local]: how a picked device trains."""

    steps: Annotated[Count, _eg("10")] | None = None
    batch: Annotated[Count, _eg("244")] | None = None
    step_size: Annotated[Positive, _eg("0.5")] | None = None
    clip: Annotated[Positive, _eg("1.0")] | None = None
    clip_quantile: Annotated[Part, _eg("0.5")] | None = None
    sampling: Sampling | None = None
    passes: Passes = "continue"
    pull: Annotated[Positive, _eg("50")] | None = None
    parts: Annotated[Count, _eg("10")] | None = None


class DataSettings(msgspec.Struct, frozen=True, kw_only=True):
    """[data]: the tables, the label, and what is declared of the columns."""

    csv: Annotated[Text, _eg('"sites/*.csv"')] | None = None
    parquet: Annotated[Text, _eg('"sites/*.parquet"')] | None = None
    npz: Annotated[Text, _eg('"sites/*.npz"')] | None = None
    images: Annotated[Text, _eg('"sites/*"')] | None = None
    row_shape: Annotated[list[Count], _eg("[28, 28]")] | None = None
    builtin: Literal["adult"] | None = None
    label: Text = "label"
    labels: Labels | None = None
    classes: Annotated[Classes, _eg('["no", "yes"]')] | None = None
    label_bounds: Annotated[Bounds, _eg("[0, 100]")] | None = None
    columns: Columns | None = None
    ignore: list[Text] | None = None
    device_column: Text | None = None
    limit_column: Text | None = None
    person: Annotated[Text, _eg('"patient_id"')] | None = None
    rows_per_person: Annotated[Count, _eg("5")] | None = None
    partition: Partition = "even"
    skew: Annotated[Positive, _eg("0.5")] = 0.5
    delimiter: Annotated[Text, _eg('";"')] | None = None
    decimal: Literal[".", ","] | None = None
    encoding: Annotated[Text, _eg('"cp1252"')] | None = None
    dates: DateOrder | None = None
    empty: Annotated[list[Text], _eg('["NA", "."]')] | None = None
    encoder: Annotated[Text, _eg('"onnx:encoder.onnx"')] | None = None
    encoder_sha256: Annotated[Digest, _eg("what sha256sum prints of the file")] | None = None
    embeddings: Annotated[int, Meta(ge=1, le=2**20), _eg("64")] | None = None
    embedding_bounds: Annotated[Bounds, _eg("[-1, 1]")] | None = None
    text: Annotated[Text, _eg('"letter"')] | None = None
    validation: Share = 0.1
    test: Share = 0.1

    @property
    def encoder_file(self) -> str:
        """The path of the encoder's file, as it is written; empty without one."""
        scheme, _, file = (self.encoder or "").partition(":")
        return file if scheme == "onnx" else ""

    @property
    def written(self) -> Format:
        """How the files are written, as far as it is said."""
        return Format(
            delimiter=self.delimiter, decimal=self.decimal, encoding=self.encoding, dates=self.dates,
            empty=None if self.empty is None else tuple(self.empty),
        )  # fmt: skip

    @property
    def class_names(self) -> list[str] | None:
        """The classes as texts, as levels are."""
        return None if self.classes is None else [level_of(one) for one in self.classes]


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """[model]: "logistic" for classes, "linear" for numbers, "mlp" for both, "cnn" for images, or "module:function".

    "additive" and "hazard" are made from sums, which are questions, and not trained. "auto" lets the planner choose.
    """

    kind: Annotated[Text, _eg('"logistic"')] | None = None
    hidden: Annotated[list[Count], _eg("[64, 32]")] | None = None
    row_length: Annotated[Small, _eg("4.0")] | None = None
    slope: Annotated[Small, _eg("0.3")] | None = None
    time: Annotated[Text, _eg('"days"')] | None = None
    until: Annotated[Positive, _eg("1800")] | None = None
    bins: Annotated[int, Meta(ge=2, le=MOST_WHOLE), _eg("24")] | None = None


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """[run]: the name of the run, a seed for simulations, and when and how the model is evaluated."""

    name: Text = "run"
    seed: Annotated[Whole, _eg("42")] | None = None
    evaluate_every: Count = 1
    gradient_norm: bool = False


class AskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """[ask]: what may be asked before and during training, and what all questions together may cost."""

    epsilon: Annotated[Small, _eg("0.5")] | None = None
    epsilon_sum: Annotated[Small, _eg("0.5")] | None = None
    most: Annotated[Count, _eg("20")] = 20
    names: Annotated[list[Text], _eg('["count", "table"]')] | None = None
    columns: Annotated[list[Text], _eg('["age", "sex"]')] | None = None
    dropouts: bool = True
    smallest_crowd: Annotated[Count, _eg("500")] = 1

    @property
    def allowed(self) -> bool:
        """Whether anything may be asked."""
        return self.epsilon is not None or self.epsilon_sum is not None
