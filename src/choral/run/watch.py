"""How somebody follows what takes long: loops whose items are counted, and logs that other programs keep."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from choral.record import Outcome, RoundLine
    from choral.run.study import Study

T = TypeVar("T")


class Watch(Protocol):
    """How somebody follows a loop that takes long: its items as they come, with their number and a word for them."""

    def __call__(self, items: Iterable[T], *, total: int, label: str) -> Iterable[T]:
        """The items."""


class Log(Protocol):
    """What a run needs of a log that it writes in addition to its folder; `choral.output.logs` has those that exist."""

    kind: str

    def begin(self, folder: Path, study: "Study", lines: Sequence["RoundLine"]) -> None:
        """Open the log and note what is run."""

    def round(self, line: "RoundLine") -> None:
        """Note a round's line of rounds.jsonl."""

    def end(self, result: "Outcome") -> None:
        """Note the result and close the log."""

    def stop(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the log of a run that is interrupted."""


def unwatched(items: Iterable[T], *, total: int, label: str) -> Iterable[T]:  # noqa: ARG001 - nobody looks
    """The items, and nothing else.

    >>> list(unwatched([1, 2], total=2, label="rounds"))
    [1, 2]
    """
    return items


def unheard() -> None:
    """Nothing: what is called after a step that nobody waits for.

    >>> unheard()
    """
