"""Numbers and names of a plan, checked one by one: each complaint names the value and its range."""

import math
import sys
from collections.abc import Collection
from dataclasses import fields
from numbers import Integral, Real
from typing import TYPE_CHECKING

from choral.core.errors import PlanError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MOST_WHOLE = 2**63 - 1  # what arrays, files and messages hold


def whole_within(least: int, most: int) -> str:
    """What a whole number must be, in words.

    >>> whole_within(1, 2440), whole_within(0, MOST_WHOLE)
    ('a whole number, at least 1 and at most 2,440', 'a whole number, at least 0 and below 2^63')
    """
    return f"a whole number, at least {least:,} and {'below 2^63' if most == MOST_WHOLE else f'at most {most:,}'}"


def plain_number(value: object) -> object:
    """A number of NumPy's, say, as Python's own, so that digests and files do not depend on its type.

    >>> import numpy as np
    >>> plain_number(np.int64(3)), plain_number(np.float32(0.5)), plain_number("poisson")
    (3, 0.5, 'poisson')
    """
    if isinstance(value, int) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def hold_plain_numbers(held: "DataclassInstance") -> None:
    """Put Python's own numbers into a frozen dataclass that was just made."""
    for one in fields(held):
        object.__setattr__(held, one.name, plain_number(getattr(held, one.name)))


def require_whole(name: str, value: object, *, least: int = 1, most: int = MOST_WHOLE) -> int:
    """The value as an int, or a PlanError that names it and its range.

    >>> require_whole("rounds", 20)
    20
    """
    value = plain_number(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise PlanError("CH200", f"{name} = {_written(value)}.", fix=f"Must be {whole_within(least, most)}.")
    return value


def require_number(
    name: str, value: object, *, above: float = 0.0, below: float = math.inf, closed: bool = False
) -> float:
    """The value as a finite float in (above, below), or [above, below) when closed, or a PlanError.

    >>> require_number("delta", 1e-5, below=1.0)
    1e-05
    """
    value = plain_number(value)
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    # No NaN, no infinity, and no whole number that no float holds.
    if not (abs(number) <= sys.float_info.max and (above < number or (closed and above == number)) and number < below):
        low = f"at least {above:g}" if closed else f"above {above:g}"
        high = "" if math.isinf(below) else f" and below {below:g}"
        raise PlanError("CH200", f"{name} = {_written(value)}.", fix=f"Must be a finite number {low}{high}.")
    return float(number)


def _written(value: object) -> str:
    """The value as a line can hold it: Python does not write whole numbers of thousands of digits out."""
    if isinstance(value, int) and abs(value) > MOST_WHOLE:
        return f"{'-' if value < 0 else ''}10^{math.floor(math.log10(abs(value)))} or more"
    return repr(value)


def require_one_of(name: str, value: object, choices: tuple[str, ...]) -> str:
    """The value if it is one of the choices, or a PlanError that lists them.

    >>> require_one_of("sampling", "poisson", ("poisson", "partition"))
    'poisson'
    """
    if value not in choices:
        known = " or ".join(f'"{choice}"' for choice in choices)
        raise PlanError("CH200", f"{name} = {value!r}.", fix=f"Must be {known}.")
    return str(value)


def require_keywords(given: Collection[str], known: type) -> None:
    """Nothing, or a TypeError for a keyword that a TypedDict needs or does not know, as Python has for a signature."""
    needed: frozenset[str] = known.__required_keys__  # type: ignore[attr-defined]
    if missing := sorted(needed.difference(given)):
        raise TypeError(f"missing keyword argument: {missing[0]!r}")
    if unknown := sorted(set(given) - set(known.__annotations__)):
        raise TypeError(f"unexpected keyword argument: {unknown[0]!r}")
