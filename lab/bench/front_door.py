"""How long a newcomer waits for `choral --help`, `import choral` and `choral demo`, next to a bare interpreter.

python -m bench.front_door --json
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time

COMMANDS = {
    "bare_interpreter": ["-c", "pass"],
    "import_choral": ["-c", "import choral"],
    "choral_help": ["-m", "choral", "--help"],
    "choral_version": ["-m", "choral", "--version"],
}


def seconds(arguments: list[str]) -> float:
    """Wall time of one fresh process."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - begin


def measure(repeats: int) -> dict[str, float]:
    """Median seconds of each command, the commands taking turns."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(repeats):
        for name, arguments in COMMANDS.items():
            times[name].append(seconds(arguments))
    with tempfile.TemporaryDirectory() as folder:
        times["choral_demo"] = [
            seconds(["-m", "choral", "demo", "--quiet", "--out", f"{folder}/{number}"]) for number in range(3)
        ]
    return {f"{name}_seconds": round(statistics.median(values), 4) for name, values in times.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    args = parser.parse_args()
    result = measure(5 if args.quick else 15)
    if args.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:28} {value:.3f}")


if __name__ == "__main__":
    main()
