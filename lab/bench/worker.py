"""A contender in its own process: it prepares a work, then does rounds of it when asked. Standard library only.

One JSON object per line goes in, one comes out; what libraries print goes to stderr. The harness is bench/harness.py.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Rounds = Callable[[int], Any]
Prepare = Callable[[dict[str, Any]], Rounds]


def cpu_seconds() -> float:
    """User and system time of this process and, where /proc shows them, of all processes below it (Ray's actors)."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime + sum(_ticks_below(os.getpid())) / os.sysconf("SC_CLK_TCK")


def _ticks_below(root: int) -> list[int]:
    parents, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended while we were looking
            continue
        process = int(stat.parent.name)
        parents[process], ticks[process] = int(fields[1]), int(fields[11]) + int(fields[12])
    below = {root}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    return [ticks[process] for process in below - {root}]


def peak_bytes() -> int:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _timed(task: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    cpu, start = cpu_seconds(), time.perf_counter()
    value = task()
    wall = time.perf_counter() - start
    return value, {"wall": wall, "cpu": cpu_seconds() - cpu, "peak_bytes": peak_bytes()}


def _save(place: str, layers: list[Any]) -> None:
    """The weights as one flat vector, each layer's weights [in, out] and then its biases."""
    import numpy as np

    np.save(place, np.concatenate([np.asarray(part).ravel() for layer in layers for part in layer]))


def serve(prepare: Prepare) -> None:
    """Answer until stdin ends: {"prepare": work}, then {"rounds": k} as often as wanted, with a file to "save" to."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    rounds: Rounds | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if "prepare" in asked:
                rounds, took = _timed(lambda work=asked["prepare"]: prepare(work))
                reply: dict[str, Any] = took
            elif rounds is None:
                raise RuntimeError("rounds asked for before a work was prepared")
            else:
                weights, reply = _timed(lambda count=asked["rounds"], run=rounds: run(count))
                if "save" in asked:
                    _save(asked["save"], weights)
        except Exception as error:  # the reason goes into the results in place of a figure
            reply = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(reply), file=answers, flush=True)
