"""How long to wait between two tries where many may try at once: at random, longer each time, and never too long."""

import random
from collections.abc import Callable

_draw = random.SystemRandom().uniform


class Pauses:
    """Pauses for one who tries again and again; each is drawn from the upper half of a length that doubles to a bound.

    So a hundred sites that lose their server at one moment do not all come back at one moment, and none of them waits
    much longer than the bound once it is there again.

    >>> pauses = Pauses(1.0, 8.0, draw=lambda low, high: high)
    >>> [pauses.next() for _ in range(5)]
    [1.0, 2.0, 4.0, 8.0, 8.0]
    """

    def __init__(self, shortest: float, longest: float, *, draw: Callable[[float, float], float] = _draw) -> None:
        self._shortest, self._longest, self._draw = shortest, longest, draw
        self._length = shortest

    def next(self) -> float:
        """The seconds until the next try."""
        length, self._length = self._length, min(2 * self._length, self._longest)
        return self._draw(length / 2, length)

    def begin(self) -> None:
        """Start with the shortest again: a try has succeeded."""
        self._length = self._shortest
