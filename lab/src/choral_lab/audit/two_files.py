"""The assumption of every rule tried out: a replaced row of a file may change no other row that is read from it.

The adversary chooses two files that differ in one row, such that reading the others could go another way: another order
of day and month, another byte, another decimal sign. Of the pairs that are read at all, the one whose uploads lie
furthest apart is audited like any pair of rule S7. Where one row decided how a column is read, the uploads lay 72 times
Δ apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from choral.core.errors import TableError
from choral.run.folder import Watch, unwatched
from choral.tables.cells import Format
from choral.tables.columns import Numeric, declare, encode
from choral.tables.sources import Reading, encode_labels, read_one
from choral_lab.audit.once import OnceCase, Table, once_case
from choral_lab.audit.verdict import Finding, Trial

ROWS = 400
VISIT = declare("visit", {"dates": ["2020-01-01", "2020-12-31"], "missing": "2020-07-01"})
SCORE = Numeric(name="score", low=-1000, high=1000)
SLASHES = [f"{1 + row % 12:02}/{1 + row * 5 % 12:02}/2020" for row in range(1, ROWS)]
ISO = [f"2020-{day[3:5]}-{day[:2]}" for day in SLASHES]


@dataclass(frozen=True, kw_only=True)
class FilePair:
    """Two files that differ in their first row, as bytes, and what is said of how they are written."""

    what: str
    files: tuple[bytes, bytes]
    written: Format

    @classmethod
    def of(
        cls, what: str, days: Sequence[str], first: tuple[str, str], encoding: str = "utf-8", **said: str
    ) -> "FilePair":
        """The pair whose rows have these days and whose first row has one day or the other, and opposite scores."""
        # A row's score is where its day lies if the day comes first: whoever reads another day learns another slope.
        scores = [f"{1000 * (2 * int(day[3:5]) / 12 - 1):.0f}" for day in SLASHES]
        files = [
            "\n".join(["visit;score", f"{own};{score}", *map(";".join, zip(days, scores, strict=True))]).encode(
                encoding
            )
            for own, score in zip(first, (-1000, 1000), strict=True)
        ]
        return cls(what=what, files=(files[0], files[1]), written=Format(**said))  # type: ignore[arg-type]


PAIRS = (
    FilePair.of(
        "nothing said, and a day above 12 in the first or in the second place", SLASHES, ("25/06/2020", "06/25/2020")
    ),
    FilePair.of("day first said, and a month above 12", SLASHES, ("25/06/2020", "06/25/2020"), dates="day first"),
    FilePair.of("dates that begin with the year, and one that does not", ISO, ("2020-12-31", "06/25/2020")),
    FilePair.of("a byte that is not UTF-8", ISO, ("2020-12-31", "n\xf6"), encoding="latin-1"),
    FilePair.of("a word for no value", ISO, ("2020-12-31", "NA")),
    FilePair.of("two days", ISO, ("2020-12-31", "2020-01-01")),
    FilePair.of("two days, the day first", SLASHES, ("31/12/2020", "01/01/2020"), dates="day first"),
)


@dataclass(frozen=True, kw_only=True)
class ReadingCase:
    """The pair that moves the most, as a case of noise once; how many pairs there were, and how many were refused."""

    once: OnceCase
    what: str
    pairs: int
    refused: int
    moved: int  # other rows that are read differently in the two files

    @property
    def name(self) -> str:
        """The case's name."""
        return "reading"

    @property
    def sees(self) -> str:
        """What the adversary sees."""
        return self.once.sees

    @property
    def trial(self) -> Trial:
        """What is fixed before the first training."""
        return self.once.trial

    def measure(self, watch: Watch = unwatched) -> Finding:
        """Train on both files as often as the trial says, and judge."""
        return self.once.measure(watch)

    def as_dict(self) -> dict[str, object]:
        """What was set up, for machines."""
        tried = {"pair": self.what, "pairs": self.pairs, "refused": self.refused, "other_rows_moved": self.moved}
        return {**self.once.as_dict(), "case": self.name, **tried}


def reading_case(
    *, epsilon: float = 1.0, trainings: int | None = None, confidence: float = 0.99, seed: int = 0
) -> ReadingCase:
    """The case of the pair of files whose uploads lie furthest apart, with noise for `epsilon`; nothing is trained yet.

    >>> case = reading_case(trainings=2)
    >>> case.moved, case.pairs, case.refused
    (0, 7, 4)
    """
    found = [(pair, worlds) for pair in PAIRS if (worlds := _worlds(pair)) is not None]
    given = {"epsilon": epsilon, "trainings": trainings, "confidence": confidence, "seed": seed}
    cases = [once_case(worlds=worlds, **given) for _, worlds in found]  # type: ignore[arg-type]
    apart = [float(np.linalg.norm(case.clean(1) - case.clean(0))) for case in cases]
    worst = int(np.argmax(apart))
    pair, (first, second) = found[worst]
    others = np.any(first[0][1:] != second[0][1:], axis=1) | (first[1][1:] != second[1][1:])
    return ReadingCase(
        once=replace(cases[worst], name="reading"),
        what=pair.what,
        pairs=len(PAIRS),
        refused=len(PAIRS) - len(found),
        moved=int(np.count_nonzero(others)),
    )


def _worlds(pair: FilePair) -> tuple[Table, Table] | None:
    """Features and labels of both files as a site reads them; None where one of them is refused."""
    worlds = []
    with TemporaryDirectory() as folder:
        for content in pair.files:
            path = Path(folder, "site.csv")
            path.write_bytes(content)
            try:
                table = read_one(path, Reading(written=pair.written))
                worlds.append((encode(table, [VISIT]), encode_labels(table, SCORE).astype(np.float32)))
            except TableError:
                return None
    return worlds[0], worlds[1]
