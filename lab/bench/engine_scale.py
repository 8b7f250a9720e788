"""Time and memory of the engine against n, r and d: `python -m bench.engine_scale [--rounds 100] [--json]`.

The rows lie in a file that is mapped, as a table larger than memory would, so the anonymous memory of the process is
all that it holds in addition to the data. The last line is the large run: 100,000 devices, 1,000 of them per round.
"""

import argparse
import json
import sys
import threading
from pathlib import Path
from typing import Any

from bench.harness import Contender
from bench.work import CROSS_DEVICE, Work

LIMIT = 4 * 2**30  # bytes in addition to the data
LARGE = CROSS_DEVICE.but(devices=100_000, cohort=1000)
TABLE = [
    *(CROSS_DEVICE.but(devices=n) for n in (3_000, 10_000, 30_000, 100_000)),
    *(CROSS_DEVICE.but(cohort=r) for r in (200, 500, 1000)),
    *(CROSS_DEVICE.but(layers=(784, width, width, 10)) for width in (50, 400, 800)),
]


class Watch(threading.Thread):
    """The most anonymous memory that a process holds while it is watched."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.status, self.most, self.done = Path(f"/proc/{process}/status"), 0, threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.05):
            self.most = max(self.most, anonymous_bytes(self.status.read_text()))


def anonymous_bytes(status: str) -> int:
    """What /proc/PID/status says of memory that is no file's.

    >>> anonymous_bytes("VmRSS:    900 kB" + chr(10) + "RssAnon:      12 kB")
    12288
    """
    lines = (line.split() for line in status.splitlines() if line.startswith("RssAnon:"))
    return sum(1024 * int(line[1]) for line in lines)


def measure(work: Work, rounds: int) -> dict[str, Any]:
    """Seconds per round and the most memory of a run of so many rounds."""
    with Contender("ours") as ours:
        watch = Watch(ours.process.pid)
        watch.start()
        ours.prepare(work)
        first = ours.rounds(1)
        rest = ours.rounds(rounds)
        watch.done.set()
        watch.join()
    return {
        "n": work.devices,
        "r": work.cohort,
        "d": work.parameters,
        "rounds": rounds,
        "first_s": round(first["wall"], 2),
        "s_a_round": round(rest["wall"] / rounds, 3),
        "cpu_s_a_round": round(rest["cpu"] / rounds, 3),
        "ns_a_parameter_step": round(1e9 * rest["cpu"] / rounds / (work.cohort * work.steps * work.parameters), 2),
        "mib_besides_data": watch.most >> 20,
    }


def line(row: dict[str, Any]) -> str:
    return "| " + " | ".join(f"{value:,}" for value in row.values()) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100, help="rounds of the large run")
    parser.add_argument("--table-rounds", type=int, default=2, help="rounds of each other run")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--quick", action="store_true", help="one round of the large run, and nothing else")
    args = parser.parse_args()
    rows = []
    tables = [] if args.quick else [(work, args.table_rounds) for work in TABLE]
    for work, rounds in [*tables, (LARGE, 1 if args.quick else args.rounds)]:
        rows.append(measure(work, rounds))
        if len(rows) == 1:
            print("| " + " | ".join(rows[0]) + " |\n" + "|---" * len(rows[0]) + "|", file=sys.stderr)
        print(line(rows[-1]), file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps({"rows": rows, "within_limit": rows[-1]["mib_besides_data"] << 20 <= LIMIT}))


if __name__ == "__main__":
    main()
