"""Every benchmark, one after the other, into one file; each also runs alone, as `python -m bench.<name>`.

`python -m bench` writes bench/results.json and renders the pages that show it. `--quick` writes bench/quick.json and
leaves the pages alone: their figures are those of the full run. A benchmark that fails has its reason in place of its
figures, the others go on, and the exit status is 1.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.setup import HERE

PRINTS = re.compile(r'add_argument\("--json"|^ +print_figures\(', re.MULTILINE)
ELSEWHERE = {"__main__", "harness", "gpu"}  # bench.gpu is measured where there is an accelerator, into bench/gpu.json
PACKAGES = ("jax", "numpy", "scipy", "cryptography", "dp-accounting")


def names() -> list[str]:
    """The benchmarks: every module here that prints JSON, limits first, since they say what the machine can do."""
    found = [path.stem for path in sorted(HERE.glob("*.py")) if PRINTS.search(path.read_text())]
    return sorted(set(found) - ELSEWHERE, key=lambda name: (name != "limits", name))


def machine() -> dict[str, Any]:
    """Where the figures come from."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gib": memory,
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}},
        "load": round(os.getloadavg()[0], 2),
    }


def run(name: str, quick: bool) -> dict[str, Any]:
    """The JSON object that one benchmark prints last, with the seconds that it took; or the reason for none."""
    knows_quick = "--quick" in (HERE / f"{name}.py").read_text()
    command = [sys.executable, "-m", f"bench.{name}", "--json", *(["--quick"] if quick and knows_quick else [])]
    print(" ".join(["python", *command[1:]]), file=sys.stderr, flush=True)
    start, variables = time.perf_counter(), {**os.environ, "PYTHONPATH": f"{HERE.parent / 'src'}:{HERE.parent}"}
    done = subprocess.run(command, cwd=HERE.parent, env=variables, stdout=subprocess.PIPE, text=True)
    try:
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        result = {"reason": f"no figures: the benchmark ended with exit status {done.returncode}"}
    return {**result, "took_s": round(time.perf_counter() - start, 1)}


def main() -> int:
    """Run the benchmarks, write after each, and render."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats and smaller work, in a few minutes")
    parser.add_argument("--only", nargs="*", choices=names(), help="measure these again, and keep the rest of the file")
    args = parser.parse_args()
    place = HERE / ("quick.json" if args.quick else "results.json")
    kept = json.loads(place.read_text())["benchmarks"] if args.only and place.exists() else {}
    results = {"quick": args.quick, "at": datetime.now(UTC).date().isoformat(), "machine": machine()}
    results["benchmarks"] = kept
    for name in args.only or names():
        kept[name] = run(name, args.quick)
        place.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    failed = [f"{name}: {kept[name]['reason']}" for name in kept if "reason" in kept[name]]
    print("\n".join([f"{place} is written", *failed]), file=sys.stderr)
    if not args.quick:
        from bench import render

        render.main([])
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
