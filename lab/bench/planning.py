"""Wall and CPU time of `choral plan` as a fresh process: `python -m bench.planning --json`.

Limits: 2 s with Poisson sampling, 0.5 s without. The best of the repeats counts: other work only adds to it.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"
TASK = ["plan", "--epsilon", "1", "--devices", "16", "--rows", "2440", "--features", "104"]
LIMITS = {"poisson": 2.0, "partition": 0.5}


def once(words: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one run."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    before, start = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-m", "choral", *words], env=environment, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, os.times()
    return wall, after.children_user + after.children_system - before.children_user - before.children_system


def measure(repeats: int) -> dict[str, dict[str, float | bool]]:
    """The best of the repeats for each sampler, against its limit."""
    reported = {}
    for sampling, limit in LIMITS.items():
        runs = [once([*TASK, "--sampling", sampling]) for _ in range(repeats)]
        wall, cpu = (min(column) for column in zip(*runs, strict=True))
        reported[sampling] = {
            "wall_s": round(wall, 3),
            "cpu_s": round(cpu, 3),
            "limit_s": limit,
            "within": wall <= limit,
        }
    return reported


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = measure(args.repeats)
    if args.json:
        print(json.dumps(result))
    else:
        for name, row in result.items():
            print(f"choral plan, {name}: {row['wall_s']} s wall, {row['cpu_s']} s CPU (limit {row['limit_s']} s)")
