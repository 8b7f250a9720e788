"""The sum of vectors that come one after the other, modulo their word size, added by several threads."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from choral.core.masks import Words

# Bytes of a vector that a thread adds in one call. NumPy leaves the interpreter to others while it adds, and takes it
# between calls. After shorter calls, more than four threads would wait for each other longer than they add.
STRETCH_BYTES = 2**22
# Threads that add vectors as they come. Calls of STRETCH_BYTES keep so many busy; more of them wait for the interpreter
# longer than they add, and the thread that receives vectors waits with them (measured on 16 cores, docs/scale.md).
MOST_ADDERS = 8
WORTH_A_THREAD = 2**20  # bytes of a vector; a shorter one is added before a thread has begun
WORTH_WAITING_FOR = 2**23  # bytes that are added by threads which others wait for
_LINE = 64  # bytes that two threads must not share


class KeptVectors(NamedTuple):
    """How many vectors a running sum may keep: those that are under way to its threads, and its own sums."""

    waiting: int = 0
    sums: int = 1


LEAST = KeptVectors()


class RunningSum:
    """Vectors are added as they come: each thread has one stretch of the words in one of the sums.

    Up to `kept.waiting` vectors may be under way when `add` returns, so they must not change until `total` is asked
    for. With fewer sums the stretches are shorter, and threads wait for each other more often.

    >>> total = RunningSum(np.dtype("<u4"))
    >>> total.add(np.uint32([1, 2])); total.add(np.uint32([5, 2**32 - 1])); total.subtract(np.uint32([1, 0]))
    >>> total.total().tolist()
    [5, 1]
    """

    def __init__(self, dtype: np.dtype[Any], *, threads: int = 1, kept: KeptVectors = LEAST) -> None:
        self._dtype, self._threads, self._kept = dtype, min(threads, MOST_ADDERS), kept
        self._sums: list[Words] = []
        self._most_sums, self._threaded = 0, False
        self._bounds: list[int] = []  # of the stretches, once the length is known
        self._under_way: deque[list[Future[None]]] = deque()
        self._next = 0  # the sum that the next vector goes to

    def add(self, vector: Words) -> None:
        """Add a vector; the first one says how long they all are."""
        if not self._sums:
            long_ones = max(1, min(self._threads, vector.nbytes // STRETCH_BYTES))
            self._threaded = vector.nbytes >= (WORTH_A_THREAD if self._kept.waiting else WORTH_WAITING_FOR)
            self._most_sums = max(1, min(self._kept.sums, self._threads // long_ones)) if self._threaded else 1
            self._bounds = _bounds(vector, self._threads // self._most_sums)
        if len(self._sums) < self._most_sums:
            self._sums.append(np.empty_like(vector))
            self._apply(np.copyto, len(self._sums) - 1, vector)
        else:
            self._apply(_add, self._next, vector)
            self._next = (self._next + 1) % len(self._sums)

    def subtract(self, vector: Words) -> None:
        """Take a vector that was added out again."""
        self._apply(_subtract, 0, vector)

    @property
    def keeps(self) -> KeptVectors:
        """How many vectors it keeps now."""
        return KeptVectors(waiting=len(self._under_way), sums=len(self._sums))

    def total(self) -> Words:
        """The sum so far. It is this object's own: whoever changes it changes the sum."""
        self._wait(0)
        if not self._sums:
            return np.empty(0, self._dtype)
        first, *others = self._sums
        add_vectors(first, others, threads=self._threads)
        self._sums, self._most_sums, self._next = [first], 1, 0
        return first

    def _apply(self, combine: Callable[[Words, Words], None], place: int, vector: Words) -> None:
        """Combine a vector with the sum at this place, where the same thread always has the same stretch."""
        total = self._sums[place]
        if (vector.shape, vector.dtype) != (total.shape, total.dtype):
            raise ValueError(f"a vector of {vector.shape} {vector.dtype} in a sum of {total.shape} {total.dtype}")
        if self._threads == 1 or not self._threaded:
            combine(total, vector)
            return
        first = place * (len(self._bounds) - 1)
        self._under_way.append(
            [
                _thread(first + number).submit(combine, total[start:stop], vector[start:stop])
                for number, (start, stop) in enumerate(pairwise(self._bounds))
            ]
        )
        self._wait(self._kept.waiting)

    def _wait(self, most: int) -> None:
        """Wait until at most so many vectors are under way."""
        while len(self._under_way) > most:
            for one in self._under_way.popleft():
                one.result()


def _add(total: Words, vector: Words) -> None:
    np.add(total, vector, out=total)


def _subtract(total: Words, vector: Words) -> None:
    np.subtract(total, vector, out=total)


def add_vectors(total: Words, vectors: Sequence[Words], *, threads: int) -> None:
    """Add vectors that are all there to the total in place: each thread has its own range of the words.

    >>> total = np.uint32([1, 2, 3])
    >>> add_vectors(total, [np.uint32([1, 1, 1]), np.uint32([2**32 - 1, 0, 1])], threads=2); total.tolist()
    [1, 3, 5]
    """

    def add_range(start: int, stop: int) -> None:
        for vector in vectors:
            _add(total[start:stop], vector[start:stop])

    ranges = list(pairwise(_bounds(total, threads if total.nbytes * len(vectors) >= WORTH_WAITING_FOR else 1)))
    others = [_thread(number).submit(add_range, *ends) for number, ends in enumerate(ranges[1:])]
    add_range(*ranges[0])
    for one in others:
        one.result()


def _bounds(vector: Words, parts: int) -> list[int]:
    """Where parts of a vector of about one length begin, each with a line of the cache, and where the last one ends."""
    lines, words = -(-vector.nbytes // _LINE), _LINE // vector.dtype.itemsize
    parts = max(1, min(parts, lines))
    return [words * (lines * number // parts) for number in range(parts)] + [len(vector)]


@cache
def _thread(number: int) -> ThreadPoolExecutor:
    """A thread that stays: to start it for every vector would take longer than to add one."""
    return ThreadPoolExecutor(1, thread_name_prefix=f"choral-adds-{number}")
