"""count, table and tables: how many rows, and how many in each cell of a table by strata, or of many tables."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from choral.asking.answer import Answer, ByReference, around, renamed, sampling_variance, with_value
from choral.asking.cells import (
    MOST_BINS,
    USUAL_BINS,
    Block,
    Filter,
    TableAxis,
    axes_of,
    axis_of,
    counted,
    filter_of,
    one_hots,
)
from choral.asking.parameters import Integers, Parameters, Rows, Summand, bad


@dataclass(frozen=True, kw_only=True)
class CrossTable(ByReference):
    """The rows in each cell of a table over some axes; over no axis it is one count.

    With `counts_empty` one cell more counts the rows that the filter keeps and that have no value in an axis.
    """

    axes: tuple[TableAxis, ...]
    keeps: Filter
    counts_empty: bool = False

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
        axes = axes_of(given, names[0] + names[1])
        return cls(axes=axes, keeps=filter_of(given), counts_empty=given.counts_empty)

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
        block = Block(cells=math.prod(self.shape), places=self.places, counts_empty=self.counts_empty)
        return one_hots([block], keeps=self.keeps, columns=[axis.column.name for axis in self.axes])

    def estimate(self, total: Integers | NDArray[np.float64], *, rows: int, deviation: float) -> Answer:
        """The raw counts among these rows, and the shares that they are drawn from; and the counts nearest to them."""
        names = [axis.column.name for axis in self.axes]
        labels = [dict(zip(names, cell, strict=True)) for cell in itertools.product(*(a.labels for a in self.axes))]
        part = _Counted.of(np.asarray(total, dtype=np.float64), len(labels), rows, self.keeps, deviation)
        said = () if self.keeps.is_everything else (_MATCHES,)
        return Answer(
            rows=part.rows_of(labels),
            labels=("estimate", "share"),
            sentences=(_ABOUT, *said),
            is_rough=part.is_rough,
            about=part.about() if self.counts_empty else (),
        )

    def reference(self, rows: int) -> NDArray[np.float64]:
        """As many rows in each cell, and none without a value; for one count, half of all rows."""
        cells = math.prod(self.shape)
        return np.append(np.full(cells, rows / max(cells, 2)), [0.0] * self.counts_empty)


@dataclass(frozen=True, kw_only=True)
class ManyTables(ByReference):
    """One table per column, all in one sum: F one-hot blocks, √(2F) apart at most."""

    axes: tuple[TableAxis, ...]
    counts_empty: bool = False

    @classmethod
    def read(cls, given: Parameters) -> "ManyTables":
        """`tables` of `columns`; numbers have `bins` cells that are even on their declared scale."""
        bins = given.whole("bins", least=2, most=MOST_BINS, usual=USUAL_BINS)
        axes = tuple(axis_of(given.known(name), bins) for name in given.names("columns"))
        return cls(axes=axes, counts_empty=given.counts_empty)

    def summand(self) -> Summand:
        """The cells of every column."""
        blocks = [
            Block(cells=len(axis.labels), places=axis.places, counts_empty=self.counts_empty) for axis in self.axes
        ]
        return one_hots(blocks, keeps=Filter(), columns=[axis.column.name for axis in self.axes])

    def estimate(self, total: Integers | NDArray[np.float64], *, rows: int, deviation: float) -> Answer:
        """Counts and shares of each column's cells."""
        ends = np.cumsum([len(axis.labels) + self.counts_empty for axis in self.axes])
        found, about, is_rough = list[dict[str, object]](), list[Mapping[str, object]](), False
        for axis, own in zip(self.axes, np.split(np.asarray(total, dtype=np.float64), ends[:-1]), strict=True):
            part = _Counted.of(own, len(axis.labels), rows, Filter(), deviation)
            found += part.rows_of([{"column": axis.column.name, "cell": label} for label in axis.labels])
            about += part.about(column=axis.column.name) if self.counts_empty else ()
            is_rough |= part.is_rough
        return Answer(
            rows=found, labels=("estimate", "share"), sentences=(_ABOUT,), is_rough=is_rough, about=tuple(about)
        )

    def reference(self, rows: int) -> NDArray[np.float64]:
        """As many rows in each cell of a column, and none without a value."""
        empty = [0.0] * self.counts_empty
        return np.concatenate([np.append(np.full(len(a.labels), rows / len(a.labels)), empty) for a in self.axes])


_ABOUT = "The interval of a count is about these rows; that of a share is about the population behind them."
_MATCHES = "A row without a value in a column of the filter does not match."
CLEAR = 3.0  # deviations of the noise that rows with a value must exceed: shares of fewer are not known


@dataclass(frozen=True, kw_only=True)
class _Counted:
    """The noisy counts of one table, and the rows that its shares are shares of: those that have a value."""

    raw: NDArray[np.float64]
    near: NDArray[np.float64]  # the nearest counts that are possible
    whole: float
    whole_sd: float
    covariance: float  # of a count and of `whole`, over the variance of the noise
    rows: int
    deviation: float

    @classmethod
    def of(cls, total: NDArray[np.float64], cells: int, rows: int, keeps: Filter, deviation: float) -> "_Counted":
        """From a sum over these cells, with one more where rows without a value are counted."""
        raw = total[:cells]
        near = onto_simplex(total, rows)[:cells] if keeps.is_everything else np.clip(raw, 0.0, rows)
        counts_empty, rows_are_known = len(total) > cells, keeps.is_everything
        whole, whole_sd = counted(total, keeps, rows, deviation) if counts_empty else (float(rows), 0.0)
        return cls(
            raw=raw,
            near=near,
            whole=whole,
            whole_sd=whole_sd,
            covariance=float(counts_empty and not rows_are_known),
            rows=rows,
            deviation=deviation,
        )

    @property
    def is_rough(self) -> bool:
        """Whether so few rows have a value that no share is known."""
        return self.whole < max(CLEAR * self.whole_sd, 1.0)

    def about(self, **named: str) -> tuple[Mapping[str, object], ...]:
        """How many rows have a value."""
        return (with_value(self.whole, self.whole_sd, rows=self.rows, **named),)

    def rows_of(self, labels: Sequence[Mapping[str, str]]) -> list[dict[str, object]]:
        """Each cell's count, the nearest possible count, and its share, with intervals."""
        whole = max(self.whole, 1.0)
        share = self.raw / whole
        noise = self.deviation**2 * (1 - 2 * self.covariance * share) + (share * self.whole_sd) ** 2
        spreads = np.sqrt(sampling_variance(share, whole) + np.maximum(noise, 0.0) / whole**2)
        if self.is_rough:
            spreads = np.full(len(spreads), math.inf)
        return [
            {
                **label,
                **around(count, self.deviation),
                "projected": projected,
                **renamed("share", around(one, spread, least=0.0, most=1.0)),
                "noise_sd": self.deviation,
            }
            for label, count, projected, one, spread in zip(
                labels, self.raw.tolist(), self.near.tolist(), share.tolist(), spreads.tolist(), strict=True
            )
        ]


def onto_simplex(raw: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """The nearest vector that is nowhere negative and adds up to `total`.

    >>> onto_simplex(np.array([3.0, -1.0]), 2.0).tolist()
    [2.0, 0.0]
    """
    falling = np.sort(raw)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(raw) + 1)
    last = np.flatnonzero(falling > excess)[-1]
    nearest: NDArray[np.float64] = np.maximum(raw - excess[last], 0.0)
    return nearest
