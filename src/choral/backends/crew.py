"""The server's work on several processes: each adds uploads and removes masks on its own range of the words.

Uploads lie in one unnamed file and the sum in another, both shared; commands go over pipes, without pickles. A process
that dies loses nothing: its range is worked out again here, from the uploads and the commands.
"""

import os
import subprocess
import sys
import tempfile
import warnings
import weakref
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Self

import msgspec
import numpy as np

import choral
from choral.backends.crew_worker import AddMasks, AddUpload, Begin, OpenSecrets, Part, receive, send, shared_words
from choral.errors import ConfigError, SumError
from choral.protocol.bonds import SealedSecret
from choral.protocol.messages import Vector
from choral.protocol.server_work import ServerWork
from choral.protocol.terms import Terms
from choral.secagg.masks import Mask, Words

MOST_BYTES_IN_MEMORY = 256 * 2**20
WORTH_PROCESSES = 2**30  # bytes of uploads in a turn; less is added before processes have started
_LINE = 64  # bytes that two processes must not share: a range begins with a line of the cache
_secrets = msgspec.msgpack.Decoder(tuple[bytes, ...])


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a server may use of its machine: processes, and bytes of uploads in memory, beyond which they go to a file.

    >>> Resources(processes=2).memory == 256 * 2**20
    True
    """

    processes: int
    memory: int = MOST_BYTES_IN_MEMORY

    @classmethod
    def of_environment(cls) -> Self:
        """What CHORAL_PROCESSES and CHORAL_MEMORY (in MiB) say; all cores and 256 MiB where they say nothing."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        processes = _whole("CHORAL_PROCESSES", cores, least=1)
        return cls(processes=processes, memory=_whole("CHORAL_MEMORY", MOST_BYTES_IN_MEMORY >> 20, least=0) << 20)

    def crew_for(self, terms: Terms) -> "Crew | None":
        """Processes for the turns of these terms, or None where one is enough."""
        worth = terms.upload_bytes * terms.secure.cohort >= WORTH_PROCESSES
        return Crew(terms, self) if worth and self.processes > 1 and os.name == "posix" else None


def _whole(name: str, default: int, *, least: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) >= least):
        raise ConfigError(
            "CH102", f"{name} in the environment is no whole number from {least} on.", fix="Set it, or unset it."
        )
    return int(text)


def _unnamed(size: int, *, in_memory: bool) -> IO[bytes]:
    """A file of zeros without a name."""
    if in_memory and hasattr(os, "memfd_create"):
        file: IO[bytes] = os.fdopen(os.memfd_create("choral"), "r+b", buffering=0)
    else:
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the crew
    file.truncate(size)
    return file


class Crew:
    """Processes that live as long as this object, one for each range of the words.

    They end with their standard input, so with this process, however it ends.
    """

    def __init__(self, terms: Terms, resources: Resources) -> None:
        self.bits, words = terms.codec.word_bits, terms.words
        in_memory = terms.upload_bytes * terms.secure.cohort <= resources.memory
        self.uploads = _unnamed(0, in_memory=in_memory)
        self._shared = _unnamed(max(terms.upload_bytes, 1), in_memory=True)
        self.total = shared_words(self._shared.fileno(), self.bits)
        step = _LINE // self.total.dtype.itemsize
        lines, most = -(-words // step), resources.processes
        bounds = [min(lines * at // most * step, words) for at in range(most + 1)]
        self.ranges = [(low, high) for low, high in pairwise(bounds) if low < high]
        self._processes: list[subprocess.Popen[bytes] | None] = [self._started(*one) for one in self.ranges]
        self._finalizer = weakref.finalize(self, _end, self._processes, (self.uploads, self._shared))

    def __len__(self) -> int:
        return len(self.ranges)

    def __repr__(self) -> str:
        return f"Crew({len(self)} processes)"

    def close(self) -> None:
        """End the processes."""
        self._finalizer()

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that are alive, as far as is known here."""
        return tuple(process.pid for process in self._processes if process is not None)

    def tell(self, number: int, message: object) -> bool:
        """Whether a process of the crew could be sent a message."""
        process = self._processes[number]
        if process is None or process.stdin is None:
            return False
        try:
            send(process.stdin, message)
        except OSError:
            self._lose(number)
            return False
        return True

    def hear(self, number: int) -> bytes | None:
        """What a process answers, or None if it has ended."""
        process = self._processes[number]
        if process is None or process.stdout is None:
            return None
        answer = receive(process.stdout)
        if answer is None:
            self._lose(number)
        return answer

    def renew(self) -> None:
        """Start a process again in the place of each that has ended."""
        for number, process in enumerate(self._processes):
            if process is None:
                self._processes[number] = self._started(*self.ranges[number])

    def _started(self, start: int, stop: int) -> subprocess.Popen[bytes]:
        files = self.uploads.fileno(), self._shared.fileno()
        package = str(Path(choral.__file__).parents[1])
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
        return subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "choral.backends.crew_worker", *map(str, (*files, self.bits, start, stop))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=files,
            env={**os.environ, "PYTHONPATH": path},
        )

    def _lose(self, number: int) -> None:
        process, self._processes[number] = self._processes[number], None
        if process is None:
            return
        _close(process)
        error = SumError(
            "CH506",
            f"process {number + 1} of {len(self)}, which adds uploads, ended with status {process.returncode}.",
            why="Its part of the sum is computed again in the main process; nothing is lost.",
            fix="If it happens again, give the server more memory, or set CHORAL_PROCESSES=1.",
        )
        warnings.warn(str(error), RuntimeWarning, stacklevel=2)


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # what was still to be written has no reader
                continue
    process.wait()


def _end(processes: list[subprocess.Popen[bytes] | None], files: Sequence[IO[bytes]]) -> None:
    for process in processes:
        if process is not None:
            _close(process)
    for file in files:
        file.close()


class _Laid(MutableMapping[int, Vector]):
    """The uploads that lie in a crew's file, by device; the file is kept while any of them may be added again."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._end = file.fileno(), 0
        self.places: dict[int, tuple[int, int]] = {}

    def __setitem__(self, number: int, vector: Vector) -> None:
        offset, view = self._end, memoryview(vector).cast("B")
        self._end += len(view)
        self.places[number] = offset, len(view)
        while len(view):
            done = os.pwrite(self._file, view, offset)
            view, offset = view[done:], offset + done

    def __getitem__(self, number: int) -> Vector:
        offset, size = self.places[number]
        return os.pread(self._file, size, offset)

    def __delitem__(self, number: int) -> None:
        del self.places[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


class SharedWork(ServerWork):
    """The work of one turn on a crew: commands follow each other in every process, so none has to be waited for."""

    def __init__(self, crew: Crew) -> None:
        self._laid = _Laid(crew.uploads)
        super().__init__(crew.bits, self._laid)
        self._crew, self._done = crew, list[Begin | AddUpload | AddMasks]()
        crew.renew()
        self._tell_all(Begin())

    def add(self, number: int, vector: Vector, *, keep: bool = True) -> None:
        """Lay an upload aside, and let every process add its range of it."""
        self._laid[number] = vector
        self.add_laid(number)
        if not keep:
            del self._laid[number]

    def add_laid(self, number: int) -> None:
        """Let every process add its range of an upload that was laid aside before."""
        self._tell_all(AddUpload(self._laid.places[number][0], adds=True))

    def take_back(self, number: int) -> None:
        """Let every process take its range of an upload out of the sum again."""
        offset, _ = self._laid.places.pop(number)
        self._tell_all(AddUpload(offset, adds=False))

    def opened(self, secrets: Sequence[SealedSecret]) -> list[bytes | None]:
        """What each sealed secret holds: every process opens some, and this one those of a process that ended."""
        crew, found = self._crew, list[bytes | None]([None] * len(secrets))
        shares = [tuple(secrets[number :: len(crew)]) for number in range(len(crew))]
        asked = [crew.tell(number, OpenSecrets(share)) for number, share in enumerate(shares)]
        for number, share in enumerate(shares):
            answer = crew.hear(number) if asked[number] else None
            if answer is None:
                found[number :: len(crew)] = super().opened(share)
            else:
                found[number :: len(crew)] = [secret or None for secret in _secrets.decode(answer)]
        return found

    def unmasked(self, masks: Sequence[Mask]) -> Words:
        """The sum with these masks added to it: all ranges together, copied out of the shared file."""
        crew = self._crew
        self._tell_all(AddMasks(tuple((mask.key, mask.adds) for mask in masks)))
        for number, (start, stop) in enumerate(crew.ranges):
            if crew.hear(number) is None:
                part = Part(crew.uploads.fileno(), crew.total, start, stop)
                for command in self._done:
                    part.do(command)
        return np.array(crew.total)

    def _tell_all(self, command: Begin | AddUpload | AddMasks) -> None:
        self._done.append(command)
        for number in range(len(self._crew)):
            self._crew.tell(number, command)
