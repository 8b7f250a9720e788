"""Which rows of joined tables each device, or each person, holds."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import ConfigError, TableError
from choral.learning.columns import Cell, is_inexact, level_of
from choral.learning.reading import Table
from choral.learning.records import Labels
from choral.learning.splits import Partition, deal
from choral.learning.text_cells import each


def holders(
    tables: list[tuple[str, Table]],
    labels: Labels,
    persons: NDArray[Any] | None,
    *,
    device_column: str | None,
    devices: int | None,
    partition: Partition,
    skew: float,
    seed: int,
) -> dict[str, NDArray[np.intp]]:
    """Which rows of the joined tables each device holds."""
    if device_column is not None:
        numbers, owners = numbered(device_column, [table for _, table in tables])
        by_owner = np.split(np.argsort(owners, kind="stable"), np.cumsum(np.bincount(owners))[:-1])
        return {owner: by_owner[numbers[owner]] for owner in sorted(numbers)}
    if len(tables) > 1:
        ends = np.cumsum([table.rows for _, table in tables])
        return {name: np.arange(end - table.rows, end) for (name, table), end in zip(tables, ends, strict=True)}
    if devices is None:
        raise ConfigError(
            "CH103",
            "one table, but nothing says how many devices share it.",
            fix='Set devices = … in [federation], or device_column = "…" in [data], or give one file per device.',
        )
    if persons is None:
        dealt = deal(labels, devices=devices, partition=partition, skew=skew, seed=seed)
    else:  # whole persons, each by the label of the first row
        first, whose = in_order(persons)
        parts = deal(labels[first], devices=devices, partition=partition, skew=skew, seed=seed)
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
