"""The tables of a choral.toml, each setting with its range and its default."""
# ruff: noqa: RUF009 - a setting is a dataclass field, spelled short

from dataclasses import dataclass, field
from typing import Any, Literal

from choral.config.kinds import (
    Bounds,
    Classes,
    Digest,
    Kind,
    ListOf,
    Number,
    Numbers,
    Tables,
    Text,
    Texts,
    Whole,
    YesNo,
)
from choral.core.plan import (
    AGAINST,
    LAWS,
    NOISE_IS_ADDED,
    PARTICIPATIONS,
    PASSES,
    SAMPLINGS,
    SCHEDULES,
    SUM_KINDS,
    UNITS,
    WEIGHINGS,
    Against,
    Law,
    NoiseIsAdded,
    Participation,
    Passes,
    Sampling,
    Schedule,
    SumKind,
    Unit,
    UnitName,
    Weighing,
    unit_of,
)
from choral.server_step import STEPS
from choral.tables.cells import DATE_ORDERS, DateOrder, Format, level_of
from choral.tables.records import PARTITIONS, Partition


def _setting(kind: Kind, default: Any = None) -> Any:  # noqa: ANN401 - stands for a field of any type
    return field(default=default, metadata={"kind": kind})


@dataclass(frozen=True, kw_only=True)
class PrivacySettings:
    """[privacy]: the budget of every device, or a noise that somebody chose by hand."""

    epsilon: float | None = _setting(Number(above=0, below=1e4, suggest="2.0"))
    delta: float = _setting(Number(above=0, below=1, suggest="1e-5"), 1e-5)
    noise: float | None = _setting(Number(above=0, or_equal=True))
    law: Law = _setting(Text(choices=LAWS), "gaussian")
    against: Against = _setting(Text(choices=AGAINST), "everyone")
    unit: UnitName = _setting(Text(choices=tuple(UNITS)), "record")
    noise_is_added: NoiseIsAdded | None = _setting(Text(choices=NOISE_IS_ADDED))
    limits: dict[str, float] | None = _setting(Numbers(of=Number(above=0, below=1e4)))

    @property
    def protects(self) -> Unit:
        """The unit of privacy: what it is, and the words for it."""
        return unit_of(self.unit)


@dataclass(frozen=True, kw_only=True)
class FederationSettings:
    """[federation]: who takes part and how often."""

    devices: int | None = _setting(Whole(least=1, suggest="16"))
    cohort: int | None = _setting(Whole(least=1, suggest="10"))
    rounds: int | None = _setting(Whole(least=1, suggest="20"))
    rows: int | None = _setting(Whole(least=1, suggest="1000"))
    typical_rows: int | None = _setting(Whole(least=1, suggest="2000"))
    weighing: Weighing | None = _setting(Text(choices=WEIGHINGS))
    colluders: int | None = _setting(Whole(least=0))
    participation: Participation = _setting(Text(choices=PARTICIPATIONS), "balanced")
    secure_sum: SumKind = _setting(Text(choices=SUM_KINDS), "complete")
    robust: bool = _setting(YesNo(), False)
    deadline: float = _setting(Number(above=0, below=86400, suggest="120"), 120.0)
    server: str | None = _setting(Text(choices=tuple(STEPS)))
    server_step_size: float | None = _setting(Number(above=0, below=1e4, suggest="0.1"))
    server_momentum: float | None = _setting(Number(above=0, below=1, or_equal=True, suggest="0.9"))
    server_decay: float | None = _setting(Number(above=0, below=1, or_equal=True, suggest="0.99"))
    server_floor: float | None = _setting(Number(above=0, below=1e4, suggest="1e-3"))


@dataclass(frozen=True, kw_only=True)
class LocalSettings:
    """[local]: how a picked device trains."""

    steps: int | None = _setting(Whole(least=1, suggest="10"))
    batch: int | None = _setting(Whole(least=1, suggest="244"))
    step_size: float | None = _setting(Number(above=0, suggest="0.5"))
    clip: float | None = _setting(Number(above=0, suggest="1.0"))
    clip_quantile: float | None = _setting(Number(above=0, below=1, suggest="0.5"))
    sampling: Sampling | None = _setting(Text(choices=SAMPLINGS))
    passes: Passes = _setting(Text(choices=PASSES), "continue")
    pull: float | None = _setting(Number(above=0, suggest="50"))
    parts: int | None = _setting(Whole(least=1, suggest="10"))
    momentum: float | None = _setting(Number(above=0, below=1, or_equal=True, suggest="0.9"))
    proximal: float | None = _setting(Number(above=0, or_equal=True, suggest="0.1"))
    schedule: Schedule | None = _setting(Text(choices=SCHEDULES))


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """[data]: the tables, the label, and what is declared of the columns."""

    csv: str | None = _setting(Text(suggest='"sites/*.csv"'))
    parquet: str | None = _setting(Text(suggest='"sites/*.parquet"'))
    npz: str | None = _setting(Text(suggest='"sites/*.npz"'))
    images: str | None = _setting(Text(suggest='"sites/*"'))
    row_shape: list[int] | None = _setting(ListOf(item=Whole(least=1), suggest="[28, 28]"))
    builtin: Literal["adult"] | None = _setting(Text(choices=("adult",)))
    label: str = _setting(Text(), "label")
    labels: dict[str, str] | None = _setting(Texts())
    classes: list[str | int | bool] | None = _setting(Classes(suggest='["no", "yes"]'))
    label_bounds: list[float] | None = _setting(Bounds(suggest="[0, 100]"))
    columns: dict[str, dict[str, Any]] | None = _setting(Tables())
    ignore: list[str] | None = _setting(ListOf(item=Text()))
    device_column: str | None = _setting(Text())
    limit_column: str | None = _setting(Text())
    person: str | None = _setting(Text(suggest='"patient_id"'))
    rows_per_person: int | None = _setting(Whole(least=1, suggest="5"))
    partition: Partition = _setting(Text(choices=PARTITIONS), "even")
    skew: float = _setting(Number(above=0, suggest="0.5"), 0.5)
    delimiter: str | None = _setting(Text(suggest='";"'))
    decimal: str | None = _setting(Text(choices=(".", ",")))
    encoding: str | None = _setting(Text(suggest='"cp1252"'))
    dates: DateOrder | None = _setting(Text(choices=DATE_ORDERS))
    empty: list[str] | None = _setting(ListOf(item=Text(), suggest='["NA", "."]'))
    encoder: str | None = _setting(Text(suggest='"onnx:encoder.onnx"'))
    encoder_sha256: str | None = _setting(Digest(suggest="what sha256sum prints of the file"))
    embeddings: int | None = _setting(Whole(least=1, most=2**20, suggest="64"))
    embedding_bounds: list[float] | None = _setting(Bounds(suggest="[-1, 1]"))
    text: str | None = _setting(Text(suggest='"letter"'))
    validation: float = _setting(Number(above=0, below=1, or_equal=True), 0.1)
    test: float = _setting(Number(above=0, below=1, or_equal=True), 0.1)

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


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """[model]: "logistic" for classes, "linear" for numbers, "mlp" for both, "cnn" for images, or "module:function".

    "additive" and "hazard" are made from sums, which are questions, and not trained. "auto" lets the planner choose.
    """

    kind: str | None = _setting(Text(suggest='"logistic"'))
    hidden: list[int] | None = _setting(ListOf(item=Whole(least=1), suggest="[64, 32]"))
    row_length: float | None = _setting(Number(above=0, below=1e4, suggest="4.0"))
    slope: float | None = _setting(Number(above=0, below=1e4, suggest="0.3"))
    time: str | None = _setting(Text(suggest='"days"'))
    until: float | None = _setting(Number(above=0, suggest="1800"))
    bins: int | None = _setting(Whole(least=2, suggest="24"))


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """[run]: the name of the run, a seed for simulations, and when and how the model is evaluated."""

    name: str = _setting(Text(), "run")
    seed: int | None = _setting(Whole(least=0, suggest="42"))
    evaluate_every: int = _setting(Whole(least=1), 1)
    gradient_norm: bool = _setting(YesNo(), False)


@dataclass(frozen=True, kw_only=True)
class AskSettings:
    """[ask]: what may be asked before and during training, and what all questions together may cost."""

    epsilon: float | None = _setting(Number(above=0, below=1e4, suggest="0.5"))
    epsilon_sum: float | None = _setting(Number(above=0, below=1e4, suggest="0.5"))
    most: int = _setting(Whole(least=1, suggest="20"), 20)
    names: list[str] | None = _setting(ListOf(item=Text(), suggest='["count", "table"]'))
    columns: list[str] | None = _setting(ListOf(item=Text(), suggest='["age", "sex"]'))
    dropouts: bool = _setting(YesNo(), True)
    smallest_crowd: int = _setting(Whole(least=1, suggest="500"), 1)

    @property
    def allowed(self) -> bool:
        """Whether anything may be asked."""
        return self.epsilon is not None or self.epsilon_sum is not None
