"""What a setting's value may be: each kind judges a value and says in words what it must be."""

import math
import re
import sys
from dataclasses import dataclass

from choral.core.plan import MOST_WHOLE, whole_within


@dataclass(frozen=True, kw_only=True)
class Number:
    """A finite number within its range."""

    above: float = -math.inf
    below: float = math.inf
    or_equal: bool = False
    suggest: str = ""

    def fits(self, value: object) -> bool:
        """True for a value of this kind."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            return False  # NaN and whole numbers that no float holds among them
        return (self.above < value or (self.or_equal and value == self.above)) and value < self.below

    def __str__(self) -> str:
        low = "" if math.isinf(self.above) else f" {'at least' if self.or_equal else 'above'} {self.above:g}"
        high = "" if math.isinf(self.below) else f"{' and' if low else ''} below {self.below:g}"
        return f"a finite number{low}{high}"


@dataclass(frozen=True, kw_only=True)
class Whole:
    """A whole number within its range."""

    least: int = 0
    most: int = MOST_WHOLE
    suggest: str = ""

    def fits(self, value: object) -> bool:
        """True for a value of this kind."""
        return isinstance(value, int) and not isinstance(value, bool) and self.least <= value <= self.most

    def __str__(self) -> str:
        return whole_within(self.least, self.most)


@dataclass(frozen=True, kw_only=True)
class YesNo:
    """True or false."""

    suggest: str = "true"

    def fits(self, value: object) -> bool:
        """True for a value of this kind."""
        return isinstance(value, bool)

    def __str__(self) -> str:
        return "true or false"


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text, perhaps one of a few."""

    choices: tuple[str, ...] = ()
    suggest: str = ""

    def fits(self, value: object) -> bool:
        """True for a value of this kind."""
        return isinstance(value, str) and bool(value) and (not self.choices or value in self.choices)

    def __str__(self) -> str:
        return " or ".join(f'"{choice}"' for choice in self.choices) or "a text in quotes"


@dataclass(frozen=True, kw_only=True)
class Digest:
    """A SHA-256 in hex."""

    suggest: str = ""

    def fits(self, value: object) -> bool:
        """True for a value of this kind."""
        return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None

    def __str__(self) -> str:
        return "a SHA-256, 64 digits from 0 to f"


@dataclass(frozen=True, kw_only=True)
class ListOf:
    """A list whose items are all of one kind."""

    item: "Text | Whole"
    suggest: str = ""

    def fits(self, value: object) -> bool:
        """True for a value of this kind."""
        return isinstance(value, list) and all(map(self.item.fits, value))

    def __str__(self) -> str:
        return f"a list, each item {self.item}"


@dataclass(frozen=True, kw_only=True)
class Classes:
    """The classes of a label: texts, whole numbers or truths, all of one kind."""

    suggest: str = ""

    def fits(self, value: object) -> bool:
        """True for a value of this kind."""
        kinds = set(map(type, value)) if isinstance(value, list) else set()
        return len(kinds) <= 1 and kinds <= {str, int, bool} and isinstance(value, list) and "" not in value

    def __str__(self) -> str:
        return "a list of texts in quotes, of whole numbers, or of true and false"


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Two finite numbers, the lower one first."""

    suggest: str = ""

    def fits(self, value: object) -> bool:
        """True for a value of this kind."""
        return (
            isinstance(value, list) and len(value) == 2 and all(map(Number().fits, value)) and bool(value[0] < value[1])
        )

    def __str__(self) -> str:
        return "[low, high], two finite numbers with low below high"


@dataclass(frozen=True, kw_only=True)
class Tables:
    """A table of tables, such as [data.columns.age]; what is inside is judged by the room that uses it."""

    suggest: str = ""

    def fits(self, value: object) -> bool:
        """True for a value of this kind."""
        return isinstance(value, dict) and all(isinstance(inner, dict) for inner in value.values())

    def __str__(self) -> str:
        return "a table for each column, such as [data.columns.age]"


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """A table of numbers by name, such as [privacy.limits]."""

    of: Number
    suggest: str = ""

    def fits(self, value: object) -> bool:
        """True for a value of this kind."""
        return isinstance(value, dict) and all(map(self.of.fits, value.values()))

    def __str__(self) -> str:
        return f"a table with {self.of} for each name"


@dataclass(frozen=True, kw_only=True)
class Texts:
    """A table of texts by name, such as [data.labels]."""

    suggest: str = ""

    def fits(self, value: object) -> bool:
        """True for a value of this kind."""
        return isinstance(value, dict) and all(map(Text().fits, value.values()))

    def __str__(self) -> str:
        return "a table with a text for each name"


Kind = Number | Whole | YesNo | Text | Digest | ListOf | Classes | Bounds | Tables | Numbers | Texts
