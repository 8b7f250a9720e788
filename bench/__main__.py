"""Every benchmark, one after the other, into bench/results.json; each also runs alone, as `python -m bench.<name>`."""

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMES = [path.stem for path in sorted(HERE.glob("*.py")) if "--json" in path.read_text() and path.stem != "__main__"]


def run(name: str, quick: bool) -> dict[str, object]:
    """The JSON object that one benchmark prints last."""
    command = [sys.executable, "-m", f"bench.{name}", "--json", *(["--quick"] if quick else [])]
    print(" ".join(["python", *command[1:]]), file=sys.stderr, flush=True)
    done = subprocess.run(command, cwd=HERE.parent, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Run the benchmarks and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats and smaller work")
    args = parser.parse_args()
    machine = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    results = {"quick": args.quick, "machine": machine, **{name: run(name, args.quick) for name in NAMES}}
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
