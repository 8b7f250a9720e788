"""km: survival by arms from one table of (arm, stretch of time, event), with a log-rank test between the arms."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc

from choral.asking.answer import Answer, ByReference, Z, around, falling, renamed, too_few, with_value
from choral.asking.cells import Block, Filter, axes_of, bounded, counted, filter_of, levels, numbers, one_hots
from choral.asking.cross_tables import CrossTable
from choral.asking.parameters import Integers, Parameters, Rows, Summand, bad
from choral.tables.columns import Categorical, Numeric

MOST_BINS, MOST_ARMS = 48, 16
BINS = 24  # of a model's table
FEWEST_BINS = 8  # that are proposed; this and the next were settled on made-up lives (decision 52)
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


def logrank(arms: Sequence[tuple[Matrix, Matrix]], cells: Matrix, deviation: float) -> dict[str, float]:
    """The statistic, its degrees of freedom and its p: U'(V + σ²JJ')⁻¹U.

    An arm is two matrices: the rows at risk and the events of each bin, as functions of the cells. Both go into J.
    U = Σ (events − expected events) of all arms except the last one.
    """
    risk, event = np.stack([arm[0] for arm in arms]), np.stack([arm[1] for arm in arms])
    all_risk, all_event = risk.sum(axis=0), event.sum(axis=0)
    n, d = all_risk @ cells, all_event @ cells
    clear = (n > CLEAR * deviation * np.linalg.norm(all_risk, axis=1)) & (n >= 2)
    used = slice(0, int(np.argmin(clear)) if not clear.all() else len(clear))
    risk, event, all_risk, all_event = risk[:-1, used], event[:-1, used], all_risk[used], all_event[used]
    n, d = n[used], d[used]
    share = np.clip(risk @ cells / n, 0.0, 1.0)  # (arm, bin)
    score = (event @ cells - share * d).sum(axis=1)
    weight = np.clip(d, 0.0, n) * np.clip(n - d, 0.0, n) / np.maximum(n - 1, 1)
    variance = np.diag((share * weight).sum(axis=1)) - (share * weight) @ share.T
    jacobian = (
        event - (d / n)[:, None] * risk - share[..., None] * all_event + (share * d / n)[..., None] * all_risk
    ).sum(axis=1)
    whole = variance + deviation**2 * jacobian @ jacobian.T
    statistic = float(score @ np.linalg.pinv(whole, hermitian=True) @ score)
    degrees = len(score)
    return {"statistic": statistic, "degrees": float(degrees), "p": float(gammaincc(degrees / 2, statistic / 2))}


JUMPS = (0.03, 0.1, 0.2, 0.4, 0.8, 1.6, 5.0)  # of hazards from bin to bin, in parts of the mean hazard
_SETTLED = 2  # times that chances are worked out from the hazards found before
_LEAST = 0.1  # of the mean hazard: a hazard of 0 would make its bin certain


class Leaning(NamedTuple):
    """Expected events are `weights` times the noisy ones; `missed` is the covariance of what hazards that jump add."""

    weights: Matrix
    missed: Matrix


def leaning(at_risk: Matrix, events: Matrix, deviation: float) -> Leaning:
    """How far each bin leans on the others, by its rows at risk and the deviation of its noise.

    >>> steady = leaning(np.full(3, 1000.0), np.array([10.0, 40.0, 10.0]), deviation=20.0)
    >>> np.round(steady.weights @ np.array([10.0, 40.0, 10.0]), 1).tolist()
    [18.5, 22.9, 18.5]
    >>> leaning(np.full(2, 1000.0), np.array([10.0, 40.0]), deviation=0.0).weights.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    bins = len(at_risk)
    if deviation == 0 or bins < 2:
        return Leaning(np.eye(bins), np.zeros((bins, bins)))
    usual = max(float(events.sum()), deviation) / float(at_risk.sum())
    steps, hazards = usual * np.array(JUMPS), np.full(bins, usual)
    for _ in range(_SETTLED):
        shares = np.clip(hazards, _LEAST * usual, 1 - 1e-6)
        chance = at_risk * shares * (1 - shares)
        smooth, likely = _smooth(at_risk, events, chance + deviation**2, steps)
        hazards = smooth @ events
    own = chance / (chance + deviation**2)  # of a bin's distance from its smooth hazard, the part that is no noise
    weights = np.diag(own) + ((1 - own) * at_risk)[:, None] * smooth
    lost = weights * at_risk - np.diag(at_risk)
    spread = float(likely @ steps**2) * np.linalg.pinv(_roughness(bins))  # of hazards, around their mean
    return Leaning(weights, lost @ spread @ lost.T)


def _smooth(at_risk: Matrix, events: Matrix, variance: Matrix, steps: Matrix) -> tuple[Matrix, Matrix]:
    """Smooth hazards as a linear function of events of this variance, over walks by such steps; how likely each is."""
    precision = _roughness(len(at_risk)) / steps[:, None, None] ** 2 + np.diag(at_risk**2 / variance)
    hazards = np.linalg.solve(precision, np.diag(at_risk / variance))
    explained = (events * at_risk / variance) @ hazards @ events
    likelihood = (explained - np.linalg.slogdet(precision)[1]) / 2 - (len(at_risk) - 1) * np.log(steps)
    likely = np.exp(likelihood - likelihood.max())
    likely /= likely.sum()
    return np.asarray(np.einsum("w,wij->ij", likely, hazards)), likely


def _roughness(bins: int) -> Matrix:
    """The matrix of Σ (h_j+1 − h_j)²."""
    apart = np.diff(np.eye(bins), axis=0)
    return np.asarray(apart.T @ apart)
