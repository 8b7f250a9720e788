"""km: survival by arms from one table of (arm, stretch of time, event), with a log-rank test between the arms."""

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from choral.asking.answer import Answer, ByReference, Z, around, renamed, too_few, with_value
from choral.asking.cells import axes_of, bounded, levels, numbers
from choral.asking.cross_tables import CrossTable
from choral.asking.filters import Filter, filter_of
from choral.asking.logrank import logrank
from choral.asking.monotone import falling
from choral.asking.neighbours import leaning
from choral.asking.one_hot import Block, counted, one_hots
from choral.asking.parameters import Parameters, bad
from choral.asking.summand import Integers, Rows, Summand
from choral.tables.columns import Categorical, Numeric

MOST_BINS, MOST_ARMS = 48, 16
BINS = 24  # of a model's table
FEWEST_BINS = 8  # that are proposed; this and the next were settled on made-up lives (`bench.sum_bins --made`)
ROWS_OF_A_BIN = 12.0  # in deviations of the noise: bins lean on neighbours, so that more noise in each does less harm
CLEAR = 3.0  # deviations of the noise above which a number of rows at risk is distinguished from 0
ROUGH = 0.25  # of the events of a bin on average: more noise than this makes a curve rough
Matrix = NDArray[np.float64]


class Arm(NamedTuple):
    """The rows at risk and the events of each bin of one arm, as linear functions of all cells of the answer."""

    at_risk: Matrix
    events: Matrix


class Lives(NamedTuple):
    """How long each row was watched and whether it had its event; `there` is False where one can't be read."""

    time: Matrix
    happened: NDArray[np.bool_]
    there: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Survival(ByReference):
    """A one-hot of (arm, bin of time, event or not), with one cell per arm for whoever is watched longer.

    One more cell, after all arms, has the rows without a time, an event or an arm: what happened to them is not known,
    so the curves are about the others.
    """

    time: Numeric
    event: Numeric | Categorical
    occurred: str
    arms: CrossTable
    until: float
    bins: int
    power: float
    counts_empty: bool = True

    @classmethod
    def read(cls, given: Parameters) -> "Survival":
        """`km` of `time` and `event`, by the strata of `by`, in `bins` stretches (k/bins)^power of `until`."""
        time = given.of(given.column("time"), Numeric)
        if time.low < 0:
            raise bad(
                f'{given.name}: column "{time.name}" may be below 0 by its bounds.', "Declare bounds that begin at 0."
            )
        strata = given.strata()
        axes = axes_of(given, strata)
        if any(len(axis.labels) < 2 for axis in axes):
            raise bad(f"{given.name}: a column of by has one level.", "Leave it out.")
        if math.prod(len(axis.labels) for axis in axes) > MOST_ARMS:
            raise bad(
                f"{given.name}: by makes more than {MOST_ARMS} arms.", "Ask by fewer columns, or by coarser cuts."
            )
        event, occurred = _event(given)
        return cls(
            time=time,
            event=event,
            occurred=occurred,
            arms=CrossTable(axes=axes, keeps=filter_of(given)),
            until=given.number("until", above=0, most=time.high, usual=time.high),
            bins=given.whole("bins", least=2, most=MOST_BINS, usual=BINS),
            power=given.number("power", above=0, most=4, usual=1),
            counts_empty=given.counts_empty,
        )

    def proposed_bins(self, *, rows: int, deviation: float) -> int:
        """So many that each has twelve deviations of the noise in rows of its arm, from 8 to 48."""
        return min(MOST_BINS, max(FEWEST_BINS, round(rows / len(self.labels) / (ROWS_OF_A_BIN * deviation))))

    @property
    def edges(self) -> Matrix:
        """The ends of the stretches; the first one begins at 0."""
        return np.asarray(self.until * (np.arange(1, self.bins + 1) / self.bins) ** self.power)

    @property
    def labels(self) -> list[dict[str, object]]:
        """What names each arm; one arm without a name where the question has no strata."""
        names = [axis.column.name for axis in self.arms.axes]
        return [dict(zip(names, cell, strict=True)) for cell in itertools.product(*(a.labels for a in self.arms.axes))]

    @property
    def width(self) -> int:
        """The cells of one arm: events, ends of watching, and one beyond."""
        return 2 * self.bins + 1

    @property
    def keeps(self) -> Filter:
        """The rows that it is about."""
        return self.arms.keeps

    def summand(self) -> Summand:
        """One block: two rows are √2 apart, for any number of bins and arms."""

        def places(rows: Rows) -> Integers:
            arm, life = self.arms.places(rows), self.lives(rows)
            # Whoever leaves at the end of a bin was at risk in all of it, and an event at its end belongs to it.
            slot = np.where(
                life.happened, *(np.searchsorted(self.edges, life.time, side) for side in ("left", "right"))
            )
            inside = np.where(slot == self.bins, 2 * self.bins, slot + self.bins * (1 - life.happened))
            return np.where((arm < 0) | ~life.there, -1, arm * self.width + inside)

        columns = [self.time.name, self.event.name, *(axis.column.name for axis in self.arms.axes)]
        block = Block(cells=len(self.labels) * self.width, places=places, counts_empty=self.counts_empty)
        return one_hots([block], keeps=self.keeps, columns=columns)

    def lives(self, rows: Rows) -> "Lives":
        """How long each row was watched, whether it had its event then, and whether both could be read.

        A time beyond the declared range is moved to its end, where the row was still without its event.
        """
        time, said = bounded(rows, self.time), numbers(rows, self.time.name)
        if isinstance(self.event, Categorical):
            place = levels(rows, self.event)
            known, happened = place >= 0, np.equal(place, self.event.levels.index(self.occurred))
        else:
            found = bounded(rows, self.event)
            known, happened = ~np.isnan(found), np.greater_equal(found, 0.5)
        there = known & ~np.isnan(time)
        return Lives(np.nan_to_num(time, nan=0.0), happened & there & (said <= self.time.high), there)

    def watched(self, rows: Rows) -> "Lives":
        """The same at most until the end, with the events that were seen by then."""
        life = self.lives(rows)
        return Lives(np.minimum(life.time, self.until), life.happened & (life.time <= self.until), life.there)

    def _arms(self) -> list[Arm]:
        """At risk in a bin: everyone with a later cell, the bin's events, and half of those who leave in it."""
        cells, found = len(self.labels) * self.width + self.counts_empty, []
        for start in range(0, len(self.labels) * self.width, self.width):
            events, at_risk = np.zeros((2, self.bins, cells))
            for place in range(self.bins):
                events[place, start + place] = 1.0
                at_risk[place, start + place : start + self.bins] = 1.0
                at_risk[place, start + self.bins + place] = 0.5
                at_risk[place, start + self.bins + place + 1 : start + self.width] = 1.0
            found.append(Arm(at_risk, events))
        return found

    def counted(self, cells: Matrix, *, rows: int) -> tuple[Matrix, Matrix]:
        """The rows at risk and the events of each bin of the one arm of all rows, whose number is public."""
        (arm,), moved = self._arms(), _moved(cells, rows)
        return arm.at_risk @ moved, arm.events @ moved

    def estimate(self, total: Integers | NDArray[np.float64], *, rows: int, deviation: float) -> Answer:
        """The curve of each arm at the ends of the bins, and the log-rank test where there are arms."""
        cells = np.asarray(total, dtype=np.float64)
        arms = self._arms()
        if self.keeps.is_everything and not self.arms.axes:
            cells = _moved(cells, rows)
            moved = np.eye(len(cells)) - 1 / len(cells)  # what the noise of cells becomes
        else:
            moved = np.eye(len(cells))
        found: list[dict[str, object]] = []
        for label, arm in zip(self.labels, arms, strict=True):
            found += [{**label, **row} for row in self._curve(arm, cells, moved, deviation)]
        rough = any(bool(row["is_rough"]) for row in found)
        test = logrank([(arm.at_risk, arm.events) for arm in arms], cells, deviation) if len(arms) > 1 else None
        about = (with_value(*counted(cells, self.keeps, rows, deviation), rows=rows),) if self.counts_empty else ()
        return Answer(rows=found, is_rough=rough, test=test, labels=("estimate", "at_risk"), about=about)

    def _curve(self, arm: Arm, cells: Matrix, moved: Matrix, deviation: float) -> list[dict[str, object]]:
        at_risk, events = arm.at_risk @ cells, arm.events @ cells
        risk_sd = deviation * np.linalg.norm(arm.at_risk @ moved, axis=1)
        clear = (at_risk > CLEAR * risk_sd) & (at_risk >= 1)
        known = int(np.argmin(clear)) if not clear.all() else self.bins
        if known == 0:
            raise too_few("the noise is larger than an arm.", "Ask with a larger ε, or for fewer bins or arms.")
        n = at_risk[:known]
        weights, missed = leaning(n, events[:known], deviation)
        d = np.minimum(weights @ events[:known], n * (1 - 1e-6))
        log_survival = np.cumsum(np.log1p(-d / n))
        greenwood = np.cumsum(np.maximum(d, 0) / (n * (n - d)))
        so_far = np.tri(known) / (n - d)  # what an event more in a bin takes from the logarithm of the curve
        chance = np.einsum("ij,jk,ik->i", so_far, weights * np.maximum(d * (1 - d / n), 0) @ weights.T + missed, so_far)
        by_cell = (
            np.cumsum((d / (n * (n - d)))[:, None] * arm.at_risk[:known], axis=0)
            - so_far @ weights @ arm.events[:known]
        )
        noise = deviation * np.linalg.norm(by_cell @ moved, axis=1)
        survival = np.clip(falling(np.exp(log_survival)), 0.0, 1.0)
        few = np.cumsum(events[:known]) < CLEAR * deviation * np.sqrt(np.arange(1, known + 1))
        # By the mean of all bins: judged by its own count, a bin would pass where its noise happens to be high, and the
        # intervals of those bins would hold less often than they say.
        is_rough = bool(deviation > ROUGH * max(float(events[:known].mean()), 0.0))
        rows: list[dict[str, object]] = []
        for place in range(self.bins):
            at = min(place, known - 1)
            value = float(survival[at])
            low, high = _interval(value, math.hypot(math.sqrt(chance[at]), noise[at]), plain=bool(few[at]))
            inner = _interval(value, math.sqrt(greenwood[at]), plain=value > 1 - 1e-9)
            rows.append(
                {
                    "time": float(self.edges[place]),
                    "estimate": value,
                    "low": low if place == at else 0.0,  # nothing is known beyond the last clear bin but that it falls
                    "high": high,
                    "sampling_low": inner[0],
                    "sampling_high": inner[1],
                    **renamed("at_risk", around(float(at_risk[place]), float(risk_sd[place]), least=0.0)),
                    "noise_sd": float(value * noise[at]),
                    "is_rough": place > at or is_rough,
                }
            )
        return rows

    def reference(self, rows: int) -> NDArray[np.float64]:
        """Arms of one size, with a constant hazard at which half of the rows live until the end; nobody leaves."""
        alive = 0.5 ** (np.array([0.0, *self.edges]) / self.until)
        cells = np.concatenate([alive[:-1] - alive[1:], np.zeros(self.bins), alive[-1:]])
        whole = np.tile(cells, len(self.labels)) * rows / len(self.labels)
        return np.append(whole, [0.0] * self.counts_empty)


def _moved(cells: Matrix, rows: int) -> Matrix:
    """The nearest cells that add up to the public number of rows: every row has one cell."""
    return np.asarray(cells + (rows - cells.sum()) / len(cells))


def _interval(survival: float, spread: float, *, plain: bool) -> tuple[float, float]:
    """On the scale log(−log S); on the plain scale where few events were seen, since log-log can't hold S = 1."""
    if plain or not 1e-9 < survival < 1 - 1e-9:
        return max(survival - Z * survival * spread, 0.0), min(survival + Z * survival * spread, 1.0)
    factor = math.exp(min(Z * spread / -math.log(survival), 50.0))
    return survival**factor, survival ** (1 / factor)


def _event(given: Parameters) -> tuple[Numeric | Categorical, str]:
    """The column of events, which is 0 or 1, or has a level that `occurred` names."""
    name = given.column("event")
    column, occurred = given.columns[name], given.take("occurred")
    if isinstance(column, Numeric) and (column.low, column.high) == (0, 1) and occurred is None:
        return column, ""
    occurred = "1" if occurred is None else occurred
    if not (isinstance(column, Categorical) and isinstance(occurred, str) and occurred in column.levels):
        raise bad(
            f'{given.name}: column "{name}" is not 0 or 1.', 'Declare it so, or name the level: occurred = "yes".'
        )
    return column, occurred
