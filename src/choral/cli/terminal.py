"""What verbs draw in a terminal: bars, curves and progress; readable without colour and in 80 columns."""

import argparse
import json
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

from choral.core.printable import escaped

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

T = TypeVar("T")
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"


def width() -> int:
    """The columns to write in: those of the terminal, at most 80."""
    return min(80, shutil.get_terminal_size().columns)


def bar(fraction: float, width: int = 20) -> str:
    """A bar filled to the fraction, on a light ground.

    >>> bar(0.5, 8)
    '████░░░░'
    """
    filled = max(0.0, min(1.0, fraction)) * width
    whole = int(filled)
    part = _EIGHTHS[int((filled - whole) * 8)].strip()
    return ("█" * whole + part).ljust(width, "░")


def sparkline(values: Sequence[float], width: int = 40, *, span: float = 0.0) -> str:
    """The values as a row of blocks from their lowest to their highest, or to `span` above it, thinned to the width.

    >>> sparkline([0.0, 0.5, 1.0]), sparkline([0.50, 0.51], span=0.1)
    ('▁▄█', '▁▁')
    """
    if not values:
        return ""
    step = max(1.0, len(values) / width)
    shown = [values[int(index * step)] for index in range(int(len(values) / step))]
    shown[-1] = values[-1]
    low, span = min(values), max(span, max(values) - min(values)) or 1.0
    return "".join(_LEVELS[int((value - low) / span * 7)] for value in shown)


def digits(number: str) -> list[str]:
    """A safety number on two indented lines, as people read it aloud.

    >>> digits("12345 " * 11 + "12345")[1]
    '          12345 12345 12345 12345 12345 12345'
    """
    groups = number.split()
    half = len(groups) // 2
    return ["          " + " ".join(part) for part in (groups[:half], groups[half:])]


class Filtered:
    r"""A stream that shows text only: whatever else is written to it, except for the ends of lines, is written out.

    >>> Filtered(sys.stdout).write("safe\x1b[2J\n")
    safe\x1b[2J
    9
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write the text, and say how much it was."""
        self.stream.write("\n".join(map(escaped, text.split("\n"))))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write one text after the other."""
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self.stream, name)


@contextmanager
def filtered() -> Iterator[None]:
    """Whatever is printed meanwhile can't move a cursor; the one place through which all that verbs print passes."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast("TextIO", Filtered(stream)) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


def unfiltered(stream: TextIO) -> TextIO:
    """The stream itself, for what this program draws: bars and colours, and no text from any file."""
    return stream.stream if isinstance(stream, Filtered) else stream


def wrap(line: str, columns: int | None = None) -> str:
    """The line broken at spaces to so many columns or the terminal's, what follows indented like its beginning.

    A name in it can't begin another line: what would is written out.

    >>> print(wrap("NOTE  one two three", 14))
    NOTE  one two
          three
    >>> print(wrap("LATER server  one two", 18))
    LATER server  one
                  two
    """
    line = escaped(line)
    lead = re.match(r"\s*(?:\S+ )?\S+\s{2,}|\s*", line)
    indent = " " * (lead.end() if lead else 0)
    room = columns or width()
    return textwrap.fill(line.rstrip(), room, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def say(*lines: str) -> None:
    """Print the lines, each broken to the terminal's width."""
    print("\n".join(map(wrap, lines)))


def answer(args: argparse.Namespace, plain: object, *lines: str) -> int:
    """Print one JSON object, or these lines for people: what a verb says that has done its work."""
    if args.json:
        print(json.dumps(plain))
    else:
        say(*lines)
    return 0


def progress(items: Iterable[T], *, total: int, label: str, show: bool = True) -> Iterator[T]:
    """The items as they come, with a bar and the time left on a terminal's stderr; silent anywhere else.

    >>> list(progress([1, 2], total=2, label="rounds", show=False))
    [1, 2]
    """
    if not (show and sys.stderr.isatty()):
        yield from items
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(compact=True), TextColumn("left"))
    with _shown(*columns) as shown:
        task = shown.add_task(label, total=total)
        for item in items:
            yield item
            shown.advance(task)


@contextmanager
def stages(label: str, total: int, *, show: bool = True) -> Iterator[Callable[[], None]]:
    """What to call after each of some unlike steps: a bar, the time so far and about how much is left; on a terminal.

    >>> with stages("PLAN", 2, show=False) as done:
    ...     done()
    """
    if not (show and sys.stderr.isatty()):
        yield lambda: None
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    with _shown(BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}")) as shown:
        task = shown.add_task(label, total=total, left="")
        began = time.monotonic()

        def done() -> None:
            finished = shown.tasks[0].completed + 1
            left = round((time.monotonic() - began) * (total - finished) / finished)
            shown.update(task, advance=1, left=f"{left // 60:02}:{left % 60:02} left")
            if finished == total:
                shown.stop()  # so that what comes next can have its own bar

        yield done


def _shown(*columns: "ProgressColumn") -> "Progress":
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    return Progress(
        TextColumn("{task.description}"), *columns, console=Console(file=unfiltered(sys.stderr)), transient=True
    )
