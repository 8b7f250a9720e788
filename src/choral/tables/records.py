"""What the devices hold as arrays, which rows each of them has, and which of those train, choose and judge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import ConfigError, TableError
from choral.tables.cells import Cell, each, is_inexact, level_of
from choral.tables.columns import parse_numbers
from choral.tables.reading import Table

Labels: TypeAlias = NDArray[np.number[Any]]  # int32 for classes by number, float32 for numbers scaled to −1…1


def by(shape: tuple[int, ...]) -> str:
    """A shape for people.

    >>> by((5,)), by((8, 8))
    ('5', '8 × 8')
    """
    return " × ".join(map(str, shape))


@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """The rows of all devices, those of device i at offsets[i] to offsets[i + 1]; devices may differ in size.

    >>> records = Records.of([("a", [[0.0], [1.0]], [0, 1]), ("b", [[2.0]], [1])])
    >>> records.sizes.tolist(), records.features_of(1).tolist()
    ([2, 1], [[2.0]])
    """

    features: NDArray[np.float32]
    labels: Labels
    offsets: NDArray[np.int64]
    names: tuple[str, ...]
    classes: int = 2  # 0 where the label is a number

    def __post_init__(self) -> None:
        shapes_agree = (
            self.features.ndim >= 2
            and self.labels.shape == (len(self.features),)
            and self.offsets.shape == (len(self.names) + 1,)
            and self.offsets[0] == 0
            and self.offsets[-1] == len(self.features)
            and bool(np.all(np.diff(self.offsets) >= 0))
        )
        if not shapes_agree:
            raise TableError(
                "CH312",
                f"features {self.features.shape}, labels {self.labels.shape} and {len(self.names)} devices do not fit.",
                fix="Give one label per row, and offsets that start at 0 and end at the number of rows.",
            )

    @classmethod
    def of(cls, devices: Sequence[tuple[str, Any, Any]], *, classes: int = 2) -> Self:
        """Records from (name, features, labels) of each device; the labels are float32 where there are no classes."""
        sizes = [len(labels) for _, _, labels in devices]
        kind = np.int32 if classes else np.float32
        return cls(
            features=np.concatenate([np.asarray(rows, dtype=np.float32) for _, rows, _ in devices]),
            labels=np.concatenate([np.asarray(labels, dtype=kind) for _, _, labels in devices]),
            offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            names=tuple(name for name, _, _ in devices),
            classes=classes,
        )

    @classmethod
    def taken(
        cls,
        features: NDArray[np.float32],
        labels: Labels,
        rows_of: Mapping[str, NDArray[np.intp]],
        *,
        classes: int = 2,
    ) -> Self:
        """Records of these rows of one block, by device; taken in one go, however many devices there are.

        >>> Records.taken(np.eye(3), np.arange(3), {"a": np.array([2]), "b": np.array([0, 1])}).labels.tolist()
        [2, 0, 1]
        """
        rows = np.concatenate(list(rows_of.values()))
        return cls(
            features=np.asarray(features, dtype=np.float32)[rows],
            labels=labels.astype(np.int32 if classes else np.float32, copy=False)[rows],
            offsets=np.cumsum([0, *map(len, rows_of.values())]).astype(np.int64),
            names=tuple(rows_of),
            classes=classes,
        )

    @property
    def devices(self) -> int:
        """n, the number of devices."""
        return len(self.names)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row's features: (d,) in a table, (height, width) of an image, and so on."""
        return self.features.shape[1:]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """m of each device."""
        return np.diff(self.offsets)

    def features_of(self, device: int) -> NDArray[np.float32]:
        """The rows of one device, without a copy."""
        return self.features[self.offsets[device] : self.offsets[device + 1]]

    def labels_of(self, device: int) -> Labels:
        """The labels of one device, without a copy."""
        return self.labels[self.offsets[device] : self.offsets[device + 1]]


Partition = Literal["even", "label-skew"]


@dataclass(frozen=True, kw_only=True)
class Dealing:
    """How the rows of one table are dealt over devices, in a simulation or a rehearsal."""

    devices: int | None = None
    partition: Partition = "even"
    skew: float = 0.5
    seed: int = 0


_SLICES = 10  # of a label that is a number: rows of one slice are dealt like rows of one class


def deal(
    labels: Labels, *, devices: int, partition: Partition = "even", skew: float = 0.5, seed: int = 0
) -> list[NDArray[np.intp]]:
    """The row numbers of each device: even shares at random, or shares of each label drawn from a Dirichlet(skew).

    >>> [len(rows) for rows in deal(np.zeros(10, dtype=np.int32), devices=3)]
    [4, 3, 3]
    """
    if not 1 <= devices <= len(labels):
        raise ConfigError(
            "CH102",
            f"{devices:,} devices for {len(labels):,} rows.",
            fix="Use at most one device per row, and at least 1.",
        )
    rng = np.random.default_rng([seed, 0xDEA1])
    if partition == "even":
        return [np.sort(rows) for rows in np.array_split(rng.permutation(len(labels)), devices)]
    shares: list[list[NDArray[np.intp]]] = [[] for _ in range(devices)]
    groups = np.floor((labels + 1) / 2 * _SLICES) if labels.dtype == np.float32 else labels
    for group in np.unique(groups):
        rows = rng.permutation(np.flatnonzero(groups == group))
        cuts = (np.cumsum(rng.dirichlet(np.full(devices, skew)))[:-1] * len(rows)).astype(int)
        for share, part in zip(shares, np.split(rows, cuts), strict=True):
            share.append(part)
    return [np.sort(np.concatenate(share)) for share in shares]


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """The same devices three times: rows to train on, to choose by, and to judge by."""

    train: Records
    validation: Records
    test: Records


def shares_of(size: int, *, device: int, seed: int, validation: float, test: float) -> list[NDArray[np.intp]]:
    """The numbers of a device's rows to train on, to choose by and to judge by, each ascending.

    >>> [len(rows) for rows in shares_of(10, device=0, seed=1, validation=0.1, test=0.2)]
    [7, 1, 2]
    """
    order = np.random.default_rng([seed, 0x5B117, device]).permutation(size)
    first = int(round((1 - validation - test) * size, 9))
    second = first + int(round(validation * size, 9))
    return [np.sort(rows) for rows in np.split(order, [first, second])]


def hold_out(records: Records, *, seed: int = 0, validation: float = 0.1, test: float = 0.1) -> Split:
    """Each device's rows split at random, 80/10/10 unless other shares are given; the training part is rounded down.

    >>> rows = Records.of([("a", np.eye(3052), np.arange(3052) % 2)])
    >>> split = hold_out(rows)
    >>> int(split.train.sizes[0]), int(split.validation.sizes[0]), int(split.test.sizes[0])
    (2441, 305, 306)
    """
    if min(validation, test) < 0 or validation + test >= 1:
        raise ConfigError(
            "CH102",
            f"validation {validation:g} and test {test:g} leave nothing to train on.",
            fix="Keep their sum below 1.",
        )
    parts: tuple[list[NDArray[np.intp]], ...] = ([], [], [])
    for device in range(records.devices):
        start, size = int(records.offsets[device]), int(records.sizes[device])
        shares = shares_of(size, device=device, seed=seed, validation=validation, test=test)
        for part, rows in zip(parts, shares, strict=True):
            part.append(start + rows)
    train, chosen, judged = (
        Records.taken(
            records.features, records.labels, dict(zip(records.names, part, strict=True)), classes=records.classes
        )
        for part in parts
    )
    return Split(train=train, validation=chosen, test=judged)


def holders(
    tables: list[tuple[str, Table]],
    labels: Labels,
    persons: NDArray[Any] | None,
    device_column: str | None,
    dealing: Dealing,
) -> dict[str, NDArray[np.intp]]:
    """Which rows of the joined tables each device holds."""
    if device_column is not None:
        numbers, owners = numbered(device_column, [table for _, table in tables])
        by_owner = np.split(np.argsort(owners, kind="stable"), np.cumsum(np.bincount(owners))[:-1])
        return {owner: by_owner[numbers[owner]] for owner in sorted(numbers)}
    if len(tables) > 1:
        ends = np.cumsum([table.rows for _, table in tables])
        return {name: np.arange(end - table.rows, end) for (name, table), end in zip(tables, ends, strict=True)}
    if (devices := dealing.devices) is None:
        raise ConfigError(
            "CH103",
            "one table, but nothing says how many devices share it.",
            fix='Set devices = … in [federation], or device_column = "…" in [data], or give one file per device.',
        )
    if persons is None:
        dealt = deal(labels, devices=devices, partition=dealing.partition, skew=dealing.skew, seed=dealing.seed)
    else:  # whole persons, each by the label of the first row
        first, whose = in_order(persons)
        parts = deal(labels[first], devices=devices, partition=dealing.partition, skew=dealing.skew, seed=dealing.seed)
        dealt = [np.flatnonzero(np.isin(whose, share)) for share in parts]
    width = len(str(devices))
    return {f"device {number:0{width}}": rows for number, rows in enumerate(dealt, start=1)}


def in_order(persons: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first row of each person, and the person of each row, numbered in the order of their first rows.

    Numbered by their names, one person in the place of another would give most of the others another number.

    >>> [numbers.tolist() for numbers in in_order(np.array(["b", "a", "b"]))]
    [[0, 1], [0, 1, 0]]
    """
    _, first, code = np.unique(persons, return_index=True, return_inverse=True)
    return np.sort(first), np.argsort(np.argsort(first))[code.ravel()]


def names_in(column: str, tables: Sequence[Table]) -> NDArray[Any]:
    """The name that a column gives to each row of the joined tables; CH301 for a row without one."""
    numbers, owners = numbered(column, tables)
    return np.array(list(numbers))[owners]


def numbered(column: str, tables: Sequence[Table]) -> tuple[dict[str, int], NDArray[np.int64]]:
    """The names in a column, each with a number, and the number of each row: every cell is looked at once."""
    numbers: dict[str, int] = {}

    def owners_in(table: Table) -> NDArray[np.int64]:
        def number(cell: Cell) -> int:
            if table.written.is_missing(cell) or is_inexact(cell):
                return -1
            return numbers.setdefault(level_of(cell), len(numbers))

        cells = table.cells(column)
        return np.fromiter(each(number, cells), dtype=np.int64, count=len(cells))

    owners = np.concatenate([owners_in(table) for table in tables])
    if len(nobodys := np.flatnonzero(owners < 0)):
        raise TableError(
            "CH301",
            f'column "{column}": {len(nobodys):,} empty cells (first at row {nobodys[0] + 1:,}).',
            why="Numbers above 2^53 that became floats count as empty: two of them may be one."
            if any(is_inexact(cell) for table in tables for cell in table.cells(column))
            else "",
            fix="Name the device or person of the row, or take the row out. Words for no value are empty in [data].",
        )
    return numbers, owners


def limits_in(column: str | None, tables: Sequence[Table], shares: Mapping[str, NDArray[np.intp]]) -> tuple[float, ...]:
    """Each device's limit from a column that holds one number on all rows of a device."""
    if column is None:
        return ()
    parts = [(table.cells(column), table.source, table.written) for table in tables]
    numbers = joined([parse_numbers(cells, source=one, name=column, written=by) for cells, one, by in parts])
    for name, rows in shares.items():
        if numbers[rows].min() <= 0 or numbers[rows].min() != numbers[rows].max():
            raise TableError(
                "CH303",
                f'column "{column}" is not one positive number on all rows of "{name}".',
                fix="Give every row of a device the device's own limit.",
            )
    return tuple(float(numbers[rows[0]]) for rows in shares.values())


def joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """The parts one after the other; of a single one no copy, since it may be most of the memory."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
