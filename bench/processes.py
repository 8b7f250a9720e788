"""The server's work of one turn on one process and on several. `python -m bench.processes [--quick] [--json]`.

Devices of a sparse cohort make real uploads and openings once. Then the server's half of the turn is run again from the
same frames for each number of processes, and every sum is compared with the first, to the integer.

- `receive_s`: all from the first upload to the last: reading and checking in the main process, laying aside, adding.
- `add_s`, `secrets_s`, `unmask_s`: the three parts that all cores share: adding uploads (by as many threads as there
  are processes), opening self secrets, removing masks. `turn_s` is everything from the first upload to the sum.
- `open_s`: all that is left when the last answer is there: opening self secrets, removing masks, checks, and the sum.
- `split_s`: the part of it that is split over the processes, by itself: opening and unmasking. `speed_up` is its ratio
  to one process with one thread.
- `longest_cpu_s`: for the same part, the CPU seconds of the main process and of the busiest other one together: what it
  would take on cores that nobody else uses. `speed_up_in_cpu` is its ratio, for machines that are busy (Linux only).

With --cohort 1000 --parameters 1000000 --processes 1,2,4,8,16 it needs 9 GB of memory, and 16 cores.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.secure_sum import Case, Cohort
from choral.backends.crew import Crew, Resources, SharedWork
from choral.protocol.bonds import SealedSecret
from choral.protocol.messages import Turn, Vector
from choral.protocol.muster import Muster
from choral.protocol.round import Round
from choral.protocol.server_work import ServerWork
from choral.protocol.terms import Terms
from choral.secagg.codec import Integers
from choral.secagg.graph import sparse
from choral.secagg.masks import Mask, Words

clock = time.perf_counter
# The ratio of which part; `shared_s` is all that the cores share: adding, opening and unmasking.
SPEED_UPS = {
    "speed_up": "split_s",
    "speed_up_in_cpu": "longest_cpu_s",
    "speed_up_of_adding": "add_s",
    "speed_up_of_shared": "shared_s",
    "speed_up_of_turn": "turn_s",
}


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
        self.seconds = {"add_s": 0.0, "secrets_s": 0.0, "unmask_s": 0.0}

    def add(self, number: int, vector: Vector, *, keep: bool = True) -> None:
        start = clock()
        self._inner.add(number, vector, keep=keep)
        self.seconds["add_s"] += clock() - start

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


def alone(recorded: Recorded, crew: Crew, seen: Watched) -> tuple[float, float]:
    """Seconds of opening and unmasking, with the masked sum at hand, and the CPU seconds along its longest way."""
    work = SharedWork(crew)
    number, frame = next(iter(recorded.uploads.items()))
    work.add(number, memoryview(frame)[len(frame) - recorded.terms.upload_bytes :])
    own, others, start = time.process_time(), cpu_of(crew.pids), clock()
    work.opened(seen.secrets)
    work.unmasked(seen.masks)
    seconds = clock() - start
    used = [after - before for before, after in zip(others, cpu_of(crew.pids), strict=True)]
    return seconds, time.process_time() - own + max(used)


def measure(cohort: int, parameters: int, processes: Sequence[int]) -> dict[str, Any]:
    """Every figure, by number of processes; `one_process` is the server without any other."""
    start = clock()
    devices = Cohort(Case(sparse(cohort), parameters))
    devices.begin()
    recorded = Recorded.of(devices)
    found: dict[str, Any] = {"cohort": cohort, "parameters": parameters, "cores": len(os.sched_getaffinity(0))}
    found["devices_s"] = clock() - start
    bits = recorded.terms.codec.word_bits
    together = Resources(processes=1).together(recorded.terms.upload_bytes)
    expected, found["one_process"] = twice(recorded, lambda: Watched(ServerWork(bits, together=together)))[:2]
    for number in processes:
        crew = Crew(recorded.terms, number)
        integers, seconds, seen = twice(recorded, lambda crew=crew: Watched(SharedWork(crew, together=together)))  # type: ignore[misc]
        if not np.array_equal(integers, expected):
            raise AssertionError("several processes find another sum than one")
        runs = [alone(recorded, crew, seen) for _ in range(5)]
        seconds["split_s"], seconds["longest_cpu_s"] = (min(part) for part in zip(*runs, strict=True))
        crew.close()
        found[f"processes_{number}"] = seconds
    first = found[f"processes_{processes[0]}"]
    for number in processes:
        one = found[f"processes_{number}"]
        one["shared_s"] = one["add_s"] + one["split_s"]
        for name, part in SPEED_UPS.items():
            one[name] = processes[0] * first[part] / one[part]
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
