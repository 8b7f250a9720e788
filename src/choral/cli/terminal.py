"""What verbs draw in a terminal: bars, curves and progress; readable without colour and in 80 columns."""

import math
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"


def bar(fraction: float, width: int = 20) -> str:
    """A bar filled to the fraction, on a light ground.

    >>> bar(0.5, 8)
    '████░░░░'
    """
    filled = max(0.0, min(1.0, fraction)) * width
    whole = int(filled)
    part = _EIGHTHS[int((filled - whole) * 8)].strip()
    return ("█" * whole + part).ljust(width, "░")


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """The values as a row of blocks from their lowest to their highest, thinned to the width.

    >>> sparkline([0.0, 0.5, 1.0])
    '▁▄█'
    """
    if not values:
        return ""
    step = max(1.0, len(values) / width)
    shown = [values[int(index * step)] for index in range(int(len(values) / step))]
    shown[-1] = values[-1]
    low, span = min(values), max(values) - min(values) or 1.0
    return "".join(_LEVELS[int((value - low) / span * 7)] for value in shown)


def up(value: float, digits: int = 2) -> str:
    """An ε for people: rounded up, never down.

    >>> up(1.9901)
    '2.00'
    """
    scale = 10**digits
    return f"{math.ceil(value * scale - 1e-9) / scale:.{digits}f}"


def wrap(line: str, width: int = 80) -> str:
    """The line broken at spaces, what follows indented like its beginning.

    >>> print(wrap("NOTE  one two three", 14))
    NOTE  one two
          three
    """
    lead = re.match(r"\s*\S+\s{2,}|\s*", line)
    indent = " " * (lead.end() if lead else 0)
    return textwrap.fill(line.rstrip(), width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def progress(items: Iterable[T], *, total: int, label: str, show: bool = True) -> Iterator[T]:
    """The items as they come, with a bar and the time left on a terminal's stderr; silent anywhere else.

    >>> list(progress([1, 2], total=2, label="rounds", show=False))
    [1, 2]
    """
    if not (show and sys.stderr.isatty()):
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(label, total=total)
        for item in items:
            yield item
            shown.advance(task)
