"""count, table and tables: how many rows, and how many in each cell of a table by strata, or of many tables."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from choral.asking.answer import Answer, ByReference, around, renamed, sampling_variance
from choral.asking.cells import MOST_BINS, USUAL_BINS, TableAxis, axes_of, axis_of
from choral.asking.filters import Filter, filter_of
from choral.asking.one_hot import Block, one_hots, onto_simplex
from choral.asking.parameters import Parameters, bad
from choral.asking.summand import Integers, Rows, Summand


@dataclass(frozen=True, kw_only=True)
class CrossTable(ByReference):
    """The rows in each cell of a table over some axes; over no axis it is one count."""

    axes: tuple[TableAxis, ...]
    keeps: Filter

    @classmethod
    def count(cls, given: Parameters) -> "CrossTable":
        """`count`: the rows that fulfil `where`."""
        keeps = filter_of(given)
        if keeps.is_everything:
            raise bad("count: without where it asks for the number of rows.", "That number is public: see the study.")
        return cls(axes=(), keeps=keeps)

    @classmethod
    def table(cls, given: Parameters) -> "CrossTable":
        """`table`: the rows in each cell of `columns`, by the strata of `by`, with numbers cut at `cuts`."""
        names = given.names("columns"), given.strata()
        if set(names[0]) & set(names[1]):
            raise bad("table: a column stands in columns and in by.", "Name it once.")
        return cls(axes=axes_of(given, names[0] + names[1]), keeps=filter_of(given))

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells along each axis."""
        return tuple(len(axis.labels) for axis in self.axes)

    def places(self, rows: Rows) -> Integers:
        """The cell of each row, counted with the last axis fastest; −1 where a row has none."""
        place, nowhere = np.zeros(rows.rows, dtype=np.int64), np.zeros(rows.rows, dtype=bool)
        for axis in self.axes:
            along = axis.places(rows)
            place, nowhere = place * len(axis.labels) + along, nowhere | (along < 0)
        return np.where(nowhere, -1, place)

    def summand(self) -> Summand:
        """A one-hot of the row's cell: two rows are √2 apart, or 1 where there is one cell."""
        block = Block(cells=math.prod(self.shape), places=self.places)
        return one_hots([block], keeps=self.keeps, columns=[axis.column.name for axis in self.axes])

    def estimate(self, total: Integers | NDArray[np.float64], *, rows: int, deviation: float) -> Answer:
        """The raw counts among these rows, and the shares that they are drawn from; and the counts nearest to them."""
        raw = np.asarray(total, dtype=np.float64)
        # Cells cover every row unless a filter, or a cell that can't be read, leaves one out.
        near = onto_simplex(raw, rows) if self.keeps.is_everything else np.clip(raw, 0.0, rows)
        names = [axis.column.name for axis in self.axes]
        labels = [dict(zip(names, cell, strict=True)) for cell in itertools.product(*(a.labels for a in self.axes))]
        return _table(labels, raw, near, rows=rows, deviation=deviation)

    def reference(self, rows: int) -> NDArray[np.float64]:
        """As many rows in each cell; for one count, half of all rows."""
        cells = math.prod(self.shape)
        return np.full(cells, rows / max(cells, 2))


@dataclass(frozen=True, kw_only=True)
class ManyTables(ByReference):
    """One table per column, all in one sum: F one-hot blocks, √(2F) apart at most."""

    axes: tuple[TableAxis, ...]

    @classmethod
    def read(cls, given: Parameters) -> "ManyTables":
        """`tables` of `columns`; numbers have `bins` cells that are even on their declared scale."""
        bins = given.whole("bins", least=2, most=MOST_BINS, usual=USUAL_BINS)
        return cls(axes=tuple(axis_of(given.known(name), bins) for name in given.names("columns")))

    def summand(self) -> Summand:
        """The cells of every column."""
        blocks = [Block(cells=len(axis.labels), places=axis.places) for axis in self.axes]
        return one_hots(blocks, keeps=Filter(), columns=[axis.column.name for axis in self.axes])

    def estimate(self, total: Integers | NDArray[np.float64], *, rows: int, deviation: float) -> Answer:
        """Counts and shares of each column's cells."""
        raw = np.asarray(total, dtype=np.float64)
        ends = np.cumsum([len(axis.labels) for axis in self.axes])
        near = np.concatenate([onto_simplex(part, rows) for part in np.split(raw, ends[:-1])])
        labels = [{"column": axis.column.name, "cell": label} for axis in self.axes for label in axis.labels]
        return _table(labels, raw, near, rows=rows, deviation=deviation)

    def reference(self, rows: int) -> NDArray[np.float64]:
        """As many rows in each cell of a column."""
        return np.concatenate([np.full(len(axis.labels), rows / len(axis.labels)) for axis in self.axes])


def _table(
    labels: Sequence[Mapping[str, str]],
    raw: NDArray[np.float64],
    near: NDArray[np.float64],
    *,
    rows: int,
    deviation: float,
) -> Answer:
    """Each cell's count, the nearest possible count, and its share, with intervals."""
    spreads = np.sqrt(sampling_variance(raw / rows, rows) + (deviation / rows) ** 2)
    found = [
        {
            **label,
            **around(count, deviation),
            "projected": projected,
            **renamed("share", around(count / rows, spread, least=0.0, most=1.0)),
            "noise_sd": deviation,
        }
        for label, count, projected, spread in zip(labels, raw.tolist(), near.tolist(), spreads.tolist(), strict=True)
    ]
    return Answer(
        rows=found,
        labels=("estimate", "share"),
        sentences=(
            "The interval of a count is about these rows; that of a share is about the population behind them.",
        ),
    )
