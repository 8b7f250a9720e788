"""How somebody follows what takes long: loops whose items are counted."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Watch(Protocol):
    """How somebody follows a loop that takes long: its items as they come, with their number and a word for them."""

    def __call__(self, items: Iterable[T], *, total: int, label: str) -> Iterable[T]:
        """The items."""


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
