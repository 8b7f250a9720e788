"""The server's work on several processes: each opens some of the self secrets, and adds up some of the masks.

Sums of masks lie in an unnamed file that they share; commands go over pipes, without pickles. A process that dies loses
nothing: the main process keeps the masked sum, and does that part of the work itself.
"""

import os
import subprocess
import sys
import tempfile
import warnings
import weakref
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import msgspec

import choral
from choral.backends.crew_worker import AddMasks, OpenSecrets, receive, send, shared_words
from choral.errors import ConfigError, SumError
from choral.protocol.bonds import SealedSecret
from choral.protocol.messages import Vector
from choral.protocol.server_work import ServerWork
from choral.protocol.terms import Terms
from choral.secagg.masks import MOST_THREADS, Mask, Words, add_masks, add_vectors

MOST_BYTES_IN_MEMORY = 256 * 2**20
MOST_TOGETHER = 16  # uploads that wait to be added by all cores: more would save little and take memory
WORTH_PROCESSES = 2**30  # bytes of uploads in a turn; less is added before processes have started
_LINE = 64  # bytes that two processes must not share: the words of each begin with a line of the cache
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
        """What CHORAL_PROCESSES and CHORAL_MEMORY (in MiB) say; all cores and 256 MiB where they say nothing.

        Up to four cores are all used by the threads of one process, which need not copy uploads for others.
        """
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        processes = _whole("CHORAL_PROCESSES", cores if cores > MOST_THREADS else 1, least=1)
        return cls(processes=processes, memory=_whole("CHORAL_MEMORY", MOST_BYTES_IN_MEMORY >> 20, least=0) << 20)

    def together(self, upload_bytes: int) -> int:
        """How many uploads may wait to be added together; they take at most half of the memory.

        >>> Resources(processes=2).together(4 * 10**6), Resources(processes=2, memory=0).together(4 * 10**6)
        (16, 1)
        """
        return max(1, min(MOST_TOGETHER, self.memory // (2 * max(upload_bytes, 1))))

    def crew_for(self, terms: Terms) -> "Crew | None":
        """Processes for the turns of these terms, or None where one is enough."""
        worth = terms.upload_bytes * terms.secure.cohort >= WORTH_PROCESSES
        processes = min(self.processes, self.memory // max(terms.upload_bytes, 1))  # each has a vector in memory
        return Crew(terms, processes) if worth and processes > 1 and os.name == "posix" else None


def _whole(name: str, default: int, *, least: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) >= least):
        raise ConfigError(
            "CH102", f"{name} in the environment is no whole number from {least} on.", fix="Set it, or unset it."
        )
    return int(text)


def _unnamed(size: int) -> IO[bytes]:
    """A file of zeros without a name, in memory where the system can."""
    if hasattr(os, "memfd_create"):
        file: IO[bytes] = os.fdopen(os.memfd_create("choral"), "r+b", buffering=0)
    else:
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the crew
    file.truncate(size)
    return file


class Crew:
    """Processes that live as long as this object, each with a vector of words in a file that all of them share.

    They end with their standard input, so with this process, however it ends.
    """

    def __init__(self, terms: Terms, processes: int) -> None:
        self.bits, words = terms.codec.word_bits, terms.words
        line = _LINE // (self.bits // 8)
        stride = -(-words // line) * line
        self._shared = _unnamed(processes * stride * (self.bits // 8))
        self.parts = shared_words(self._shared.fileno(), self.bits).reshape(processes, stride)[:, :words]
        self.ranges = [(number * stride, number * stride + words) for number in range(processes)]
        self._processes: list[subprocess.Popen[bytes] | None] = [self._started(*one) for one in self.ranges]
        self._finalizer = weakref.finalize(self, _end, self._processes, self._shared)

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
        file = self._shared.fileno()
        package = str(Path(choral.__file__).parents[1])
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
        return subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "choral.backends.crew_worker", *map(str, (file, self.bits, start, stop))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(file,),
            env={**os.environ, "PYTHONPATH": path},
        )

    def _lose(self, number: int) -> None:
        process, self._processes[number] = self._processes[number], None
        if process is None:
            return
        _close(process)
        error = SumError(
            "CH506",
            f"process {number + 1} of {len(self)}, which unmasks sums, ended with status {process.returncode}.",
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


def _end(processes: list[subprocess.Popen[bytes] | None], shared: IO[bytes]) -> None:
    for process in processes:
        if process is not None:
            _close(process)
    shared.close()


class SharedWork(ServerWork):
    """The work of one turn on a crew: uploads are added here, and opened and unmasked by all processes together.

    Uploads are added where they arrive, by threads: to bring one to another process would take longer than to add it.
    """

    def __init__(self, crew: Crew, vectors: MutableMapping[int, Vector] | None = None, *, together: int = 1) -> None:
        super().__init__(crew.bits, vectors, together=together, threads=len(crew))
        self._crew = crew
        crew.renew()

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
        """The sum with these masks added to it: every process adds up some, and this one those of one that ended."""
        crew, total = self._crew, self.total
        shares = [masks[number :: len(crew)] for number in range(len(crew))]
        commands = [AddMasks(tuple((mask.key, mask.adds) for mask in share)) for share in shares]
        asked = [crew.tell(number, command) for number, command in enumerate(commands)]
        done = [asked[number] and crew.hear(number) is not None for number in range(len(crew))]
        # All at once and by threads: one after the other in one thread, they would take as long as what was split.
        add_vectors(total, [part for part, one in zip(crew.parts, done, strict=True) if one], threads=len(crew))
        for share, one in zip(shares, done, strict=True):
            if not one:
                add_masks(total, share)
        return total
