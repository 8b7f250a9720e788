"""The server's work of one turn on one process and on several. `python -m bench.processes [--quick] [--json]`.

Devices of a sparse cohort make real uploads and openings once. Then the server's half of the turn is run again from the
same frames for each number of processes, and every sum is compared with the first, to the integer.

- `receive_s`: all from the first upload to the last: reading and checking in the main process, laying aside, adding.
- `open_s`: all that is left when the last answer is there: opening self secrets, removing masks, checks, and the sum.
  `turn_s` is everything from the first upload to the sum.
- `add_s`, `split_s`: the parts that all cores share, each by itself: adding uploads (by as many threads as there are
  processes), and opening and unmasking.
- `longest_cpu_s`: for the latter, the CPU seconds of the main process and of the busiest other one together: what it
  would take on cores that nobody else uses (Linux only).
- `speed_up_…`: the ratio to one process with one thread.
- `machine_adding`, `machine_masks`: how many times as much so many processes add, and draw and add of masks, that share
  nothing and wait for nobody. Cores share memory and heat, so this is the most that a machine gives.

With --cohort 1000 --parameters 1000000 --processes 1,2,4,8,16 it needs 9 GB of memory, and 16 cores.
"""

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.secure_sum import Case, Cohort
from choral.backends.crew import Crew, Resources, SharedWork
from choral.core.bonds import SealedSecret
from choral.core.codec import Integers
from choral.core.graph import sparse
from choral.core.masks import Mask, Words, add_masks
from choral.core.messages import Turn, Vector
from choral.core.terms import Terms
from choral.server.muster import Muster
from choral.server.round import Round
from choral.server.running_sum import KeptVectors
from choral.server.server_work import ServerWork

clock = time.perf_counter
SPEED_UPS = {"speed_up_of_adding": "add_s", "speed_up": "split_s", "speed_up_of_turn": "turn_s"}
REPEATS = 5  # of a part by itself, of which the least counts


@dataclass
class Recorded:
    """What devices have said in one turn, for any number of servers to hear."""

    terms: Terms
    model: bytes
    ready: dict[int, Vector]
    uploads: dict[int, Vector]
    openings: dict[int, Vector]

    @classmethod
    def of(cls, cohort: Cohort) -> "Recorded":
        muster = Muster(cohort.terms, Turn(1, 0), range(len(cohort.devices)))
        ready = cohort._answers(muster.outbox())
        for number, frame in ready.items():
            muster.receive(number, frame)
        turn = Round(muster, cohort.model)
        uploads = cohort._answers(turn.outbox())
        for number, frame in uploads.items():
            turn.receive(number, frame)
        turn.advance()
        return cls(cohort.terms, cohort.model, ready, uploads, cohort._answers(turn.outbox()))

    def heard(self, work: "Watched") -> tuple[Integers, dict[str, float]]:
        """The sum, and the seconds of the server's two phases."""
        muster = Muster(self.terms, Turn(1, 0), range(len(self.ready)))
        for number, frame in self.ready.items():
            muster.receive(number, frame)
        turn = Round(muster, self.model, work=work)
        start = clock()
        for number, frame in self.uploads.items():
            turn.receive(number, frame)
        received = clock() - start
        turn.advance()
        for number, frame in self.openings.items():
            turn.receive(number, frame)
        answered = clock() - start
        turn.advance()
        if turn.sum is None:
            raise AssertionError("there is no sum")
        whole = clock() - start
        return turn.sum.integers, {"receive_s": received, "open_s": whole - answered, "turn_s": whole, **work.seconds}


class Watched(ServerWork):
    """A server's work that remembers what it was asked to open and to remove, and how long each part took."""

    def __init__(self, work: ServerWork) -> None:
        self._inner, self.vectors = work, work.vectors
        self.secrets: Sequence[SealedSecret] = ()
        self.masks: Sequence[Mask] = ()
        self.seconds = {"secrets_s": 0.0, "unmask_s": 0.0}

    def add(self, number: int, vector: Vector, *, keep: bool = True) -> None:
        self._inner.add(number, vector, keep=keep)

    def take_back(self, number: int) -> None:
        self._inner.take_back(number)

    def opened(self, secrets: Sequence[SealedSecret]) -> list[bytes | None]:
        self.secrets, start = secrets, clock()
        found = self._inner.opened(secrets)
        self.seconds["secrets_s"] = clock() - start
        return found

    def unmasked(self, masks: Sequence[Mask]) -> Words:
        self.masks, start = masks, clock()
        total = self._inner.unmasked(masks)
        self.seconds["unmask_s"] = clock() - start
        return total


def twice(recorded: Recorded, make: Callable[[], Watched]) -> tuple[Integers, dict[str, float], Watched]:
    """The sum, and the least seconds of two turns: in the first one memory is new."""
    runs = []
    for _ in range(2):
        work = make()  # a turn begins when it is made
        runs.append((*recorded.heard(work), work))
    integers, _, seen = runs[-1]
    return integers, {name: min(run[1][name] for run in runs) for name in runs[0][1]}, seen


def cpu_of(pids: Sequence[int]) -> list[float]:
    """The CPU seconds that processes have used so far, by Linux's number for the clock of each."""
    return [time.clock_gettime((~pid << 3) | 2) for pid in pids]


def adding(recorded: Recorded, crew: Crew, kept: KeptVectors) -> float:
    """Seconds of adding all uploads, with nothing else to do."""
    vectors = [memoryview(frame)[-recorded.terms.upload_bytes :] for frame in recorded.uploads.values()]
    work, start = SharedWork(crew, kept=kept), clock()
    for number, vector in enumerate(vectors):
        work.add(number, vector, keep=False)
    work.total  # noqa: B018 - waits for the threads
    return clock() - start


def opening(recorded: Recorded, crew: Crew, seen: Watched) -> tuple[float, float]:
    """Seconds of opening and unmasking, with the masked sum at hand, and the CPU seconds along its longest way."""
    work = SharedWork(crew)
    number, frame = next(iter(recorded.uploads.items()))
    work.add(number, memoryview(frame)[-recorded.terms.upload_bytes :])
    own, others, start = time.process_time(), cpu_of(crew.pids), clock()
    work.opened(seen.secrets)
    work.unmasked(seen.masks)
    seconds = clock() - start
    used = [after - before for before, after in zip(others, cpu_of(crew.pids), strict=True)]
    return seconds, time.process_time() - own + max(used)


def _additions(total: Words) -> Callable[[], None]:
    """What adds vectors that lie in memory: together many times what a cache holds."""
    vectors = [np.ones_like(total) for _ in range(64)]

    def add() -> None:
        for vector in vectors:
            np.add(total, vector, out=total)

    return add


def _masking(total: Words) -> Callable[[], None]:
    masks = [Mask(os.urandom(32), adds=True) for _ in range(16)]
    return lambda: add_masks(total, masks, adders=1)


Prepare = Callable[[Words], Callable[[], None]]


def _rate(prepare: Prepare, parameters: int, ready: Any, rates: Any) -> None:  # noqa: ANN401
    """How often per second this process does a task, counted while all others do the same."""
    task, done = prepare(np.zeros(parameters, "<u4")), 0
    task()
    ready.wait()
    start = clock()
    while clock() - start < 0.5:
        task()
        done += 1
    rates.put(done / (clock() - start))


MACHINE = {"machine_adding": _additions, "machine_masks": _masking}


def of_this_machine(prepare: Prepare, parameters: int, processes: Sequence[int]) -> dict[int, float]:
    """How many times as much processes do that share nothing, by their number."""
    start, rates = multiprocessing.get_context("spawn"), {}
    for number in processes:
        ready, found = start.Barrier(number), start.SimpleQueue()
        many = [start.Process(target=_rate, args=(prepare, parameters, ready, found)) for _ in range(number)]
        for one in many:
            one.start()
        rates[number] = sum(found.get() for _ in many)
        for one in many:
            one.join()
    return {number: processes[0] * rate / rates[processes[0]] for number, rate in rates.items()}


def measure(cohort: int, parameters: int, processes: Sequence[int]) -> dict[str, Any]:
    """Every figure, by number of processes; `one_process` is the server without any other."""
    start = clock()
    machine = {name: of_this_machine(prepare, parameters, processes) for name, prepare in MACHINE.items()}
    devices = Cohort(Case(sparse(cohort), parameters))
    devices.begin()
    recorded = Recorded.of(devices)
    found: dict[str, Any] = {"cohort": cohort, "parameters": parameters, "cores": len(os.sched_getaffinity(0))}
    found["devices_s"] = clock() - start
    bits = recorded.terms.codec.word_bits
    kept = Resources(processes=1).kept(recorded.terms.upload_bytes)
    expected, found["one_process"] = twice(recorded, lambda: Watched(ServerWork(bits, kept=kept)))[:2]
    for number in processes:
        crew = Crew(recorded.terms, number)
        integers, seconds, seen = twice(recorded, lambda crew=crew: Watched(SharedWork(crew, kept=kept)))  # type: ignore[misc]
        if not np.array_equal(integers, expected):
            raise AssertionError("several processes find another sum than one")
        runs = [opening(recorded, crew, seen) for _ in range(REPEATS)]
        seconds["split_s"], seconds["longest_cpu_s"] = (min(part) for part in zip(*runs, strict=True))
        seconds["add_s"] = min(adding(recorded, crew, kept) for _ in range(REPEATS))
        crew.close()
        found[f"processes_{number}"] = seconds | {name: each[number] for name, each in machine.items()}
    first = found[f"processes_{processes[0]}"]
    for number in processes:
        one = found[f"processes_{number}"]
        one |= {name: processes[0] * first[part] / one[part] for name, part in SPEED_UPS.items()}
    return found


def _short(value: Any) -> Any:  # noqa: ANN401 - figures of figures
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohort", type=int, default=400, metavar="R", help="devices (400)")
    parser.add_argument("--parameters", type=int, default=500_000, metavar="D", help="of the model (500000)")
    parser.add_argument("--processes", default="1,2", metavar="P,P,…", help="how many (1,2)")
    parser.add_argument("--quick", action="store_true", help="200 devices with 200,000 parameters")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()
    if args.quick:
        args.cohort, args.parameters = 200, 200_000
    processes = [int(number) for number in args.processes.split(",")]
    found = _short(measure(args.cohort, args.parameters, processes))
    print(json.dumps(found) if args.json else json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
