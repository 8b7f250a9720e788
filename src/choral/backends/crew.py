"""The server's work on several processes: each opens some of the self secrets, and adds up some of the masks.

Work is handed out in small jobs, so a process that shares its core with another one gets fewer of them. Sums of masks
lie in an unnamed file that all share; commands go over pipes, without pickles. A process that dies loses nothing: the
main process keeps the masked sum, and does that part of the work itself.
"""

import contextlib
import os
import selectors
import subprocess
import sys
import tempfile
import warnings
import weakref
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, Self, TypeVar

import msgspec

import choral
from choral.backends.crew_worker import AddMasks, ClearWords, OpenSecrets, receive, send, shared_words
from choral.core.bonds import SealedSecret
from choral.core.errors import ConfigError, SumError
from choral.core.masks import ADDERS, MOST_THREADS, Mask, Words, add_masks
from choral.core.messages import Vector
from choral.core.terms import Terms
from choral.server.running_sum import LEAST, MOST_ADDERS, KeptVectors, add_vectors
from choral.server.server_work import ServerWork

MOST_BYTES_IN_MEMORY = 256 * 2**20
MOST_WAITING = 16  # uploads under way to the threads that add them
WORTH_PROCESSES = 2**30  # bytes of uploads in a turn; less is added before processes have started
AHEAD = 2  # jobs that a process has: one that it works on, and one that it need not wait for
JOBS = 4  # of what is left, a process is given a part of this many for each process: jobs shrink towards the end
# A pipe holds at least a page. Two answers about so many secrets fit into it, so a process never waits to be heard
# while it is spoken to. A longer answer is none.
MOST_IN_A_JOB = 50
PAGE = 4096
JOB_BYTES = 60_000  # most pipes hold so much: the server need not wait until a process takes the job that is ahead
_LINE = 64  # bytes that two processes must not share: the words of each begin with a line of the cache
_secrets = msgspec.msgpack.Decoder(tuple[bytes, ...])
_DONE = msgspec.msgpack.encode(True)


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

    def kept(self, upload_bytes: int) -> KeptVectors:
        """How many vectors the sum of a turn's uploads may keep.

        >>> Resources(processes=2).kept(4 * 10**6), Resources(processes=2, memory=0).kept(4 * 10**6)
        (KeptVectors(waiting=16, sums=17), KeptVectors(waiting=0, sums=1))
        """
        fitting = self._fitting(upload_bytes)
        return KeptVectors(waiting=min(MOST_WAITING, fitting), sums=1 + fitting)

    def laid_aside(self, upload_bytes: int, processes: int) -> int:
        """How many bytes of uploads may be kept to be taken back, next to what else is in memory."""
        kept = self.kept(upload_bytes)
        threads = min(MOST_ADDERS, max(processes, ADDERS))
        sums = min(kept.sums, threads) - 1  # a sum has a thread, and the result is counted nowhere
        return self.memory - upload_bytes * (kept.waiting + sums + processes)

    def crew_for(self, terms: Terms) -> "Crew | None":
        """Processes for the turns of these terms, or None where one is enough."""
        worth = terms.upload_bytes * terms.secure.cohort >= WORTH_PROCESSES
        processes = min(self.processes, self._fitting(terms.upload_bytes))  # each has a vector in memory
        return Crew(terms, processes) if worth and processes > 1 and os.name == "posix" else None

    def _fitting(self, upload_bytes: int) -> int:
        """Vectors in a quarter of the memory: as much for uploads under way, threads, processes, uploads laid aside."""
        return self.memory // (4 * max(upload_bytes, 1))


def _whole(name: str, default: int, *, least: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) >= least):
        raise ConfigError(
            "CH102", f"{name} in the environment is no whole number from {least} on.", fix="Set it, or unset it."
        )
    return int(text)


Item = TypeVar("Item")


def in_jobs(items: Sequence[Item], processes: int, *, most: int = MOST_IN_A_JOB) -> Iterator[Sequence[Item]]:
    """The items in pieces of at most so many that shrink, so that processes that began together end together.

    >>> [len(job) for job in in_jobs(range(20), 2)]
    [3, 3, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1]
    """
    start = 0
    while start < len(items):
        size = min(most, -(-(len(items) - start) // (JOBS * processes)))
        yield items[start : start + size]
        start += size


class Fate(NamedTuple):
    """What became of a job: which process had it, and its answer; None without a process, or if it ended before."""

    process: int | None
    answer: bytes | None


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

    def hand_out(self, jobs: Iterable[object], *, before: object = None) -> list[Fate]:
        """What becomes of each job: a process is given the next one as soon as it has answered one.

        `before` is what every process hears ahead of its first job, and does not answer.
        """
        fates, left = list[Fate](), enumerate(jobs)
        under_way = {number: deque[int]() for number, process in enumerate(self._processes) if process is not None}

        def give(number: int) -> None:
            for place, job in left:
                fates.append(Fate(number, None))
                under_way[number].append(place)
                self._tell(number, job)
                return

        with contextlib.ExitStack() as ending, selectors.DefaultSelector() as answering:
            ending.callback(self._stop_those_that_owe, under_way)
            for number in under_way:
                if before is not None:
                    self._tell(number, before)
                answering.register(self._pipes(number)[1], selectors.EVENT_READ, number)
            for _ in range(AHEAD):
                for number in under_way:
                    give(number)
            while any(under_way.values()):
                for key, _ in answering.select():
                    number, answer = key.data, receive(self._pipes(key.data)[1], most=PAGE)
                    if answer is None:  # it has ended, and with it what it was working on
                        answering.unregister(key.fileobj)
                        del under_way[number]
                        self._lose(number)
                        continue
                    fates[under_way[number].popleft()] = Fate(number, answer)
                    give(number)
        return [*fates, *(Fate(None, None) for _ in left)]

    def renew(self) -> None:
        """Start a process again in the place of each that has ended; where none can be started, there is one fewer."""
        for number, process in enumerate(self._processes):
            if process is not None and process.poll() is not None:
                self._lose(number)
            if self._processes[number] is None:
                with contextlib.suppress(OSError):
                    self._processes[number] = self._started(*self.ranges[number])

    def _started(self, start: int, stop: int) -> subprocess.Popen[bytes]:
        file = self._shared.fileno()
        package = str(Path(choral.__file__).parents[1])
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
        return subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", "choral.backends.crew_worker", *map(str, (file, self.bits, start, stop))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # an answer that lay in a buffer here would not be seen to be there
            pass_fds=(file,),
            env={**os.environ, "PYTHONPATH": path},
        )

    def _pipes(self, number: int) -> tuple[IO[bytes], IO[bytes]]:
        """Where a process that is alive, as far as is known, is spoken to and heard."""
        process = self._processes[number]
        assert process is not None and process.stdin is not None and process.stdout is not None  # noqa: S101 - asked before
        return process.stdin, process.stdout

    def _tell(self, number: int, message: object) -> None:
        """Send a process a message. If it has ended, that shows where it is heard."""
        with contextlib.suppress(OSError):
            send(self._pipes(number)[0], message)

    def _stop_those_that_owe(self, under_way: Mapping[int, Collection[int]]) -> None:
        """After an interruption: what they still say would be taken for an answer of the next turn."""
        for number, owed in under_way.items():
            if owed:
                self._stop(number)

    def _stop(self, number: int) -> subprocess.Popen[bytes] | None:
        process, self._processes[number] = self._processes[number], None
        if process is not None:
            _close(process)
        return process

    def _lose(self, number: int) -> None:
        process = self._stop(number)
        if process is None:
            return
        error = SumError(
            "CH506",
            f"process {number + 1} of {len(self)}, which unmasks sums, ended with status {process.returncode}"
            f" (process id {process.pid}).",
            why="Its part of the sum is computed again in the main process; nothing is lost.",
            fix="If it happens again, give the server more memory, or set CHORAL_PROCESSES=1.",
        )
        warnings.warn(str(error), RuntimeWarning, stacklevel=2)


def _close(process: subprocess.Popen[bytes]) -> None:
    """End a process, also one that is stopped; it keeps nothing."""
    process.kill()
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


def _said(answer: bytes | None) -> tuple[bytes, ...]:
    """The secrets that a process says it has opened; none where it has ended, or says anything else."""
    try:
        return () if answer is None else _secrets.decode(answer)
    except msgspec.MsgspecError:
        return ()


class SharedWork(ServerWork):
    """The work of one turn on a crew: uploads are added here, and opened and unmasked by all processes together.

    Uploads are added where they arrive, by threads: to bring one to another process would take longer than to add it.
    """

    def __init__(
        self,
        crew: Crew,
        vectors: MutableMapping[int, Vector] | None = None,
        *,
        kept: KeptVectors = LEAST,
    ) -> None:
        super().__init__(crew.bits, vectors, kept=kept, threads=len(crew))
        self._crew = crew
        crew.renew()

    def opened(self, secrets: Sequence[SealedSecret]) -> list[bytes | None]:
        """What each sealed secret holds: every process opens some, and this one those of a process that ended."""
        one = max((len(msgspec.msgpack.encode(secret)) for secret in secrets[:1]), default=1)
        jobs = list(in_jobs(secrets, len(self._crew), most=min(MOST_IN_A_JOB, max(1, JOB_BYTES // one))))
        fates = self._crew.hand_out(OpenSecrets(tuple(job)) for job in jobs)
        found: list[bytes | None] = []
        for job, (_, answer) in zip(jobs, fates, strict=True):
            said = _said(answer)
            found += [one or None for one in said] if len(said) == len(job) else super().opened(job)
        return found

    def unmasked(self, masks: Sequence[Mask]) -> Words:
        """The sum with these masks added to it: every process adds up some, and this one those of one that ended."""
        crew, total = self._crew, self.total
        jobs = list(in_jobs(masks, len(crew)))
        commands = (AddMasks(tuple((mask.key, mask.adds) for mask in job)) for job in jobs)
        fates = crew.hand_out(commands, before=ClearWords())
        spoilt = {process for process, answer in fates if answer != _DONE}  # what it had added is half done
        sound = {process for process, _ in fates if process is not None} - spoilt
        # All at once and by threads: one after the other in one thread, they would take as long as what was split.
        add_vectors(total, [crew.parts[process] for process in sorted(sound)], threads=len(crew))
        for job, (process, _) in zip(jobs, fates, strict=True):
            if process in spoilt:
                add_masks(total, job)
        return total
