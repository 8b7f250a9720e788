"""The settings of a choral.toml as keyword arguments: one typed dictionary, so that editors complete them.

tests/config/test_named.py compares it with the tables of choral.config.settings, setting by setting.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypedDict

from choral.core.plan import (
    Against,
    Law,
    NoiseIsAdded,
    Participation,
    Passes,
    Sampling,
    Schedule,
    SumKind,
    UnitName,
    Weighing,
)
from choral.learning import models
from choral.tables.cells import DateOrder
from choral.tables.records import Partition

RENAMED = {"local_steps": "steps", "model": "kind", "own_labels": "labels"}  # by name in Python -> in choral.toml
Texts: TypeAlias = list[str] | tuple[str, ...]
Sizes: TypeAlias = list[int] | tuple[int, ...]
Range: TypeAlias = list[float] | tuple[float, ...]


class AskSettingsByName(TypedDict, total=False):
    """The table [ask], which is given whole, since some of its settings have the names of others."""

    epsilon: float | None
    epsilon_sum: float | None
    most: int | None
    names: Texts | None
    columns: Texts | None
    dropouts: bool | None
    smallest_crowd: int | None


class SettingsByName(TypedDict, total=False):
    """Every setting of a choral.toml by its name; docs/configuration.md explains each. None means not given.

    `local_steps` is `steps` of [local], and `model` is `kind` of [model]: a name, or your own
    function, model or nn.Module.
    """

    # [privacy]
    epsilon: float | None
    delta: float | None
    noise: float | None
    law: Law | None
    against: Against | None
    unit: UnitName | None
    noise_is_added: NoiseIsAdded | None
    limits: dict[str, float] | None
    # [federation]
    devices: int | None
    cohort: int | None
    rounds: int | None
    rows: int | None
    typical_rows: int | None
    weighing: Weighing | None
    colluders: int | None
    participation: Participation | None
    secure_sum: SumKind | None
    robust: bool | None
    deadline: float | None
    server: str | None
    server_step_size: float | None
    server_momentum: float | None
    server_decay: float | None
    server_floor: float | None
    # [local]
    local_steps: int | None
    batch: int | None
    step_size: float | None
    clip: float | None
    clip_quantile: float | None
    sampling: Sampling | None
    passes: Passes | None
    momentum: float | None
    proximal: float | None
    schedule: Schedule | None
    pull: float | None
    parts: int | None
    # [data]
    csv: str | None
    parquet: str | None
    npz: str | None
    images: str | None
    row_shape: Sizes | None
    builtin: Literal["adult"] | None
    label: str | None
    classes: list[str | int | bool] | tuple[str | int | bool, ...] | None
    own_labels: dict[str, str] | None
    label_bounds: Range | None
    columns: dict[str, dict[str, Any]] | None
    ignore: Texts | None
    device_column: str | None
    limit_column: str | None
    person: str | None
    rows_per_person: int | None
    partition: Partition | None
    skew: float | None
    delimiter: str | None
    decimal: str | None
    encoding: str | None
    dates: DateOrder | None
    empty: Texts | None
    encoder: str | None
    encoder_sha256: str | None
    embeddings: int | None
    embedding_bounds: Range | None
    text: str | None
    validation: float | None
    test: float | None
    # [model]
    model: "str | Callable[..., object] | models.Model | None"  # in quotes: the model needs JAX, which loads late
    hidden: Sizes | None
    row_length: float | None
    slope: float | None
    until: float | None
    bins: int | None
    time: str | None
    # [run]
    name: str | None
    seed: int | None
    evaluate_every: int | None
    gradient_norm: bool | None
    # [ask]
    ask: AskSettingsByName | None
