"""A table of a million rows that a column spreads over 5,000 devices: `python -m bench.loading [--quick] [--json]`.

CPU seconds and memory of `choral.tables.sources.load`, in a separate process, and of the split for training and
test; memory is what the process takes in addition to what it took before, over the size of the file.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

FULL, QUICK = (10**6, 5000), (10**5, 500)
COLUMNS = {
    "age": {"bounds": [0, 100]}, "bmi": {"bounds": [10, 60]}, "pressure": {"bounds": [50, 220]},
    "sex": {"levels": ["F", "M"]}, "dose": {"bounds": [0, 30]},
}  # fmt: skip


def write(path: Path, rows: int, devices: int) -> None:
    """A made-up table of patients, from a fixed seed."""
    rng = np.random.default_rng(0)
    columns = (
        rng.integers(0, devices, rows), rng.integers(18, 95, rows), rng.normal(27, 5, rows), rng.normal(120, 15, rows),
        rng.integers(0, 2, rows), rng.exponential(3, rows), rng.integers(0, 2, rows),
    )  # fmt: skip
    with path.open("w") as file:
        file.write("site,age,bmi,pressure,sex,dose,ill\n")
        for site, age, bmi, pressure, sex, dose, ill in zip(*columns, strict=True):
            reported = f"clinic-{site:04},{age},{bmi:.2f},{pressure:.1f},{'FM'[sex]},{dose:.3f},{('no', 'yes')[ill]}\n"
            file.write(reported)


def most_memory() -> int:
    """The most bytes that this process has had in memory; what getrusage says begins with the parent's."""
    reported = Path("/proc/self/status").read_text()
    return int(reported.partition("VmHWM:")[2].split()[0]) * 1024


def load(path: str) -> dict[str, float]:
    """What loading the table takes, in this very process."""
    from choral.tables.records import hold_out
    from choral.tables.sources import load

    before = most_memory()
    start = time.process_time()
    data = load(path, label="ill", classes=["no", "yes"], device_column="site", columns=COLUMNS)
    loaded = time.process_time()
    most = most_memory()
    hold_out(data.records)
    return {
        "load_cpu_s": loaded - start,
        "split_cpu_s": time.process_time() - loaded,
        "memory_over_file": (most - before) / os.path.getsize(path),
        "devices": data.records.devices,
    }


def measure(rows: int, devices: int, repeats: int = 3) -> dict[str, float]:
    """The median of some processes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "patients.csv")
        write(path, rows, devices)
        command = [sys.executable, "-m", "bench.loading", "--load", str(path)]
        found = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(repeats)]
        size = path.stat().st_size / 1e6
    reported = {name: round(statistics.median(one[name] for one in found), 3) for name in found[0]}
    return {"rows": rows, "file_mb": round(size, 1), **reported}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows and devices")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--load", metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    found = load(args.load) if args.load else measure(*(QUICK if args.quick else FULL))
    if args.json or args.load:
        print(json.dumps(found))
    else:
        print("\n".join(f"{name:20} {value:,}" for name, value in found.items()))


if __name__ == "__main__":
    main()
