"""bounds: between which powers of two a column's numbers lie, for columns whose range nobody knows."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from choral.asking.answer import Answer, Expected, around, too_few, with_value
from choral.asking.cells import Block, Filter, numbers, one_hots
from choral.asking.parameters import Integers, Parameters, Rows, Summand, bad
from choral.core.printable import count
from choral.tables.columns import Categorical

LEAST, SIZES = -32, 64  # exponents −32 … 31 of each sign; what is smaller or larger is in the nearest cell
CELLS = 2 * SIZES + 1  # the negative ones from the largest size down, 0, the positive ones
FALSE_CELLS = 1e-4  # the chance that noise alone shows a cell, over all cells of a question
_EDGES = tuple(math.ldexp(1.0, LEAST + size) for size in range(SIZES + 1))


@dataclass(frozen=True, kw_only=True)
class ColumnBounds:
    """A one-hot of (sign, ⌊log₂|x|⌋) for each column, with one cell more for what is no number."""

    names: tuple[str, ...]

    @classmethod
    def read(cls, given: Parameters) -> "ColumnBounds":
        """`bounds` of `columns`, which need no declared range."""
        names = given.names("columns")
        for name in names:
            if isinstance(given.columns[name], Categorical):
                raise bad(f'bounds: column "{name}" is declared with levels.', "Ask about columns of numbers.")
        return cls(names=names)

    def summand(self) -> Summand:
        """One block of 130 cells per column: two rows are √(2F) apart."""
        blocks = [Block(cells=CELLS + 1, places=partial(_places, name=name)) for name in self.names]
        return one_hots(blocks, keeps=Filter(), columns=self.names)

    @property
    def z(self) -> float:
        """A cell is seen if it exceeds this many deviations of the noise."""
        return NormalDist().inv_cdf(1 - FALSE_CELLS / (CELLS * len(self.names)))

    def estimate(self, total: Integers | NDArray[np.float64], *, rows: int, deviation: float) -> Answer:
        """The outermost cells that stand out of the noise, and a block that declares them."""
        found: list[dict[str, object]] = []
        unseen, about = list[str](), list[dict[str, object]]()
        bounds: dict[str, tuple[float, float]] = {}
        for name, cells in zip(self.names, np.reshape(total, (len(self.names), CELLS + 1)).tolist(), strict=True):
            seen = [place for place in range(CELLS) if cells[place] > max(self.z * deviation, 0.5)]
            if not seen:
                unseen.append(name)
                continue
            within = seen[-1] - seen[0] + 1
            with_number = max(rows - cells[CELLS], 1.0)
            inside = sum(cells[place] for place in range(seen[0], seen[-1] + 1)) / with_number
            spread = deviation * math.sqrt(within + inside**2) / with_number
            about.append(with_value(rows - cells[CELLS], deviation, rows=rows, column=name))
            (least, above), (below, most) = _ends(seen[0]), _ends(seen[-1])
            bounds[name] = (least, most)
            quantities = {
                "lower bound": {"estimate": least, "low": least, "high": above},
                "upper bound": {"estimate": most, "low": below, "high": most},
                "share within": around(inside, spread, least=0.0, most=1.0),
                "no number": around(cells[CELLS], deviation, least=0.0, most=rows),
            }
            found += [{"column": name, "quantity": key, **interval} for key, interval in quantities.items()]
        needed = max(self.z * deviation, 1.0)
        if not found:
            raise too_few(
                f"no cell holds more than {count(needed, 'row')}.", "Ask with a larger ε, or for fewer columns."
            )
        said = [f"Powers of two that hold at most {count(needed, 'row')} are not seen: rare tails are cut off."]
        said += [f'Nothing is seen of column "{name}".' for name in unseen]
        return Answer(
            rows=found, is_rough=bool(unseen), sentences=tuple(said), block=_declared(bounds), about=tuple(about)
        )

    def expected(self, *, rows: int, deviation: float) -> Expected:
        """How many rows a power of two must hold to be seen."""
        needed = max(self.z * deviation, 1.0)
        return Expected(
            width=needed if needed < rows else math.inf,
            sentence=f"A power of two is seen where it holds more than {needed:,.0f} of {rows:,} rows.",
        )


def _places(rows: Rows, name: str) -> Integers:
    found = numbers(rows, name)
    _, exponent = np.frexp(found)  # |x| = m·2^exponent with m in [½, 1), exactly
    size = np.clip(exponent - 1 - LEAST, 0, SIZES - 1)
    place = np.select([found > 0, found < 0, found == 0], [SIZES + 1 + size, SIZES - 1 - size, SIZES], CELLS)
    return np.asarray(place, dtype=np.int64)


def _ends(place: int) -> tuple[float, float]:
    """The numbers between which a cell lies."""
    if place == SIZES:
        return 0.0, 0.0
    if place > SIZES:
        return _EDGES[place - SIZES - 1], _EDGES[place - SIZES]
    return -_EDGES[SIZES - place], -_EDGES[SIZES - place - 1]


def _declared(bounds: Mapping[str, tuple[float, float]]) -> str:
    """The bounds as tables of a study's file; a column in which only zeros are seen has none."""
    return "\n".join(
        f"[data.columns.{name if re.fullmatch(r'[A-Za-z0-9_-]+', name) else json.dumps(name)}]  # private bounds\n"
        f"bounds = [{low!r}, {high!r}]\n"
        for name, (low, high) in bounds.items()
        if low < high
    )
