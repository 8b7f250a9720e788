"""The uploads of a turn on the server: added as they come, by threads, and kept within a limit of memory."""

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import IO, Any, NamedTuple, Self

import numpy as np

from choral.core.errors import ConfigError
from choral.core.masks import CORES, Mask, Words, add_masks, ring
from choral.core.messages import Vector

MOST_BYTES_IN_MEMORY = 256 * 2**20
MOST_WAITING = 16  # uploads under way to the threads that add them
# Bytes of a vector that a thread adds in one call. NumPy leaves the interpreter to others while it adds, and takes it
# between calls. After shorter calls, more than four threads would wait for each other longer than they add.
STRETCH_BYTES = 2**22
# Threads that add vectors as they come. Calls of STRETCH_BYTES keep so many busy; more of them wait for the interpreter
# longer than they add, and the thread that receives vectors waits with them (measured on 16 cores).
MOST_ADDERS = 8
ADDERS = min(MOST_ADDERS, CORES)
WORTH_A_THREAD = 2**20  # bytes of a vector; a shorter one is added before a thread has begun
WORTH_WAITING_FOR = 2**23  # bytes that are added by threads which others wait for
_LINE = 64  # bytes that two threads must not share


@dataclass(frozen=True)
class RoomForUploads:
    """The bytes of memory that a server may use for the uploads of a turn, beyond which they go to a file.

    >>> RoomForUploads(4 * 10**8).kept(4 * 10**6), RoomForUploads(0).kept(4 * 10**6)
    (KeptVectors(waiting=16, sums=26), KeptVectors(waiting=0, sums=1))
    """

    size: int = MOST_BYTES_IN_MEMORY

    @classmethod
    def of_environment(cls) -> Self:
        """The memory that CHORAL_MEMORY gives in MiB, or 256 MiB; CH102 if it is no whole number."""
        text = os.environ.get("CHORAL_MEMORY", "")
        if text and not (text.isascii() and text.isdecimal() and len(text) < 10):
            raise ConfigError(
                "CH102", "CHORAL_MEMORY in the environment is no whole number from 0 on.", fix="Set it, or unset it."
            )
        return cls(int(text) << 20) if text else cls()

    def kept(self, upload_bytes: int) -> "KeptVectors":
        """The vectors that the sum of a turn's uploads may keep: a quarter of the memory for each of two kinds."""
        fitting = self.size // (4 * max(upload_bytes, 1))
        return KeptVectors(waiting=min(MOST_WAITING, fitting), sums=1 + fitting)

    def laid_aside(self, upload_bytes: int) -> int:
        """The bytes of uploads that may be kept to be taken back, next to what else is in memory."""
        kept = self.kept(upload_bytes)
        sums = min(kept.sums, ADDERS) - 1  # a sum has a thread, and the result is counted nowhere
        return self.size - upload_bytes * (kept.waiting + sums)


class KeptVectors(NamedTuple):
    """The numbers of vectors that a running sum may keep: those that are under way to its threads, and its own sums."""

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
        """Tell how many vectors it keeps now."""
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
    """The bounds of parts of a vector of about one length; each begins with a line of the cache."""
    lines, words = -(-vector.nbytes // _LINE), _LINE // vector.dtype.itemsize
    parts = max(1, min(parts, lines))
    return [words * (lines * number // parts) for number in range(parts)] + [len(vector)]


@cache
def _thread(number: int) -> ThreadPoolExecutor:
    """A thread that stays: to start it for every vector would take longer than to add one."""
    return ThreadPoolExecutor(1, thread_name_prefix=f"choral-adds-{number}")


class UploadStore(MutableMapping[int, Vector]):
    """Masked updates that are kept: in memory up to a limit, beyond it in an unnamed file.

    >>> with UploadStore(limit=3) as store:
    ...     store[1] = b"ab"; store[2] = b"cd"
    ...     bytes(store.pop(2)), len(store)
    (b'cd', 1)
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._size = limit, 0
        self._kept: dict[int, Vector] = {}
        self._filed: dict[int, tuple[int, int]] = {}
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def __setitem__(self, number: int, vector: Vector) -> None:
        self._size += len(vector)
        if self._size <= self._limit:
            self._kept[number] = vector
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed by `clear`
        self._filed[number] = (self._file.seek(0, os.SEEK_END), len(vector))
        self._file.write(vector)
        self._file.flush()  # a full disk is reported for this vector, and not for another one later

    def __getitem__(self, number: int) -> Vector:
        if self._file is None or number in self._kept:
            return self._kept[number]
        start, size = self._filed[number]
        self._file.seek(start)
        return self._file.read(size)

    def __delitem__(self, number: int) -> None:
        if self._kept.pop(number, None) is None:
            del self._filed[number]

    def __iter__(self) -> Iterator[int]:
        yield from self._kept
        yield from self._filed

    def __len__(self) -> int:
        return len(self._kept) + len(self._filed)

    def clear(self) -> None:
        """Forget every vector and the file."""
        self._kept.clear()
        self._filed.clear()
        if self._file is not None:
            self._file.close()
        self._file, self._size = None, 0


class Uploads:
    """The uploads of one turn: added as they come, and laid aside in `vectors` until none can be taken back.

    `threads` add them while the next ones are received; `kept` says how many vectors they may keep.

    >>> uploads = Uploads(32)
    >>> uploads.add(0, np.uint32([1, 2]).data.cast("B")); uploads.add(1, np.uint32([3, 4]).data.cast("B"))
    >>> uploads.take_back(0)
    >>> uploads.unmasked([]).tolist()
    [3, 4]
    """

    def __init__(
        self,
        bits: int,
        vectors: MutableMapping[int, Vector] | None = None,
        *,
        kept: KeptVectors = LEAST,
        threads: int = ADDERS,
    ) -> None:
        self.vectors: MutableMapping[int, Vector] = {} if vectors is None else vectors
        self._dtype = ring(bits)
        self._sum = RunningSum(self._dtype, threads=threads, kept=kept)

    def add(self, number: int, vector: Vector) -> None:
        """Add a device's upload, and lay it aside, since it may have to be taken back."""
        self._sum.add(np.frombuffer(vector, self._dtype))
        self.vectors[number] = vector

    def take_back(self, number: int) -> None:
        """Take a device's upload out of the sum again."""
        self._sum.subtract(np.frombuffer(self.vectors.pop(number), self._dtype))

    def unmasked(self, masks: Sequence[Mask]) -> Words:
        """The sum of all uploads with these masks added to it; nothing can be added or taken back afterwards."""
        total = self._sum.total()
        add_masks(total, masks)
        return total
