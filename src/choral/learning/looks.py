"""What a column of a table looks like: for people who declare it, and for simulations that take it from the rows."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

MOST_LEVELS = 1000
_FEWEST = 50  # present cells, below which a column of different values may well be a measurement
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?([T ].*)?|\d\d?[./]\d\d?[./]\d{4}|\d{4}/\d\d?/\d\d?")
_MOST_CLASSES = 10
_SHOWN = 1000  # cells that are compared with the form of a date


@dataclass(frozen=True, kw_only=True)
class Look:
    """What the present cells of a column have in common, in a kind and in words; it holds no cell."""

    kind: Literal["number", "levels", "date", "identifier", "nothing"]
    words: str
    empty: bool = False  # whether some cells have no value
    few: bool = False  # whether these numbers are so few and whole that they may well be the names of classes


def look_of(texts: Collection[str], numbers: NDArray[np.float64] | None, *, empty: bool = False) -> Look:
    """The look of the present cells, given as texts, and as numbers if all are; `empty` if others have no value.

    >>> look_of(["F", "M", "F"], None).words, look_of(["2024-01-31", "2023-02-28"], None).kind
    ('2 levels', 'date')
    """
    return replace(_look_of(texts, numbers), empty=empty)


def _look_of(texts: Collection[str], numbers: NDArray[np.float64] | None) -> Look:
    count, different = len(texts), len(set(texts))
    if not count:
        return Look(kind="nothing", words="empty")
    whole = numbers is not None and bool((numbers == np.round(numbers)).all())
    if different == count >= _FEWEST and (whole or numbers is None):
        return Look(kind="identifier", words="one value per row: probably an identifier")
    if numbers is not None:
        return Look(kind="number", words="a number", few=whole and different <= _MOST_CLASSES)
    if all(_DATE.fullmatch(text.strip()) for text, _ in zip(texts, range(_SHOWN), strict=False)):
        return Look(kind="date", words=f"a date, {different:,} different")
    return Look(kind="levels", words=f"{different:,} level{'s' * (different != 1)}")


def about_columns(taken: Mapping[str, str], unread: Sequence[str]) -> tuple[str, ...]:
    """What was taken from the rows, and looks how; and what was not read.

    >>> about_columns({}, ["name"])
    ('not declared, so not read: name',)
    """
    notes = []
    if taken:
        listed = "; ".join(f"{name}: {words}" for name, words in taken.items())
        notes.append(f"columns taken from the rows, which a deployment does not do: {listed}")
    if unread:
        notes.append(f"not declared, so not read: {', '.join(unread)}")
    return tuple(notes)
