"""Every benchmark, one after the other, into one file; each also runs alone, as `python -m bench.<name>`.

`python -m bench` writes bench/results.json and renders the pages that show it. Each benchmark is kept with the day and
the commit of its measurement, and with the versions of what it depends on (bench/engines.toml). `--quick` writes
bench/quick.json and leaves the pages alone: their figures are those of the full run. A benchmark that fails has its
reason in place of its figures, the others go on, and the exit status is 1.
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

from bench.render import engines
from bench.setup import HERE, ROOT

PRINTS = re.compile(r'add_argument\("--json"|^ +print_figures\(', re.MULTILINE)
ELSEWHERE = {"__main__", "harness", "gpu"}  # bench.gpu is measured where there is an accelerator, into bench/gpu.json
# As a whole these take hours; what is kept of them are the figures of their --quick.
HOURS = {"devices", "personal", "planner", "poison"}
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
    }


def circumstances(name: str) -> dict[str, Any]:
    """The day, the commit and the load of a measurement, and the versions of what the benchmark depends on."""
    sources = [":(top)src", ":(top)lab/src", ":(top)lab/bench", ":(top,exclude)lab/bench/*.json"]
    commit, changed = (
        subprocess.run(["git", *words], cwd=HERE.parent, capture_output=True, text=True).stdout.strip()
        for words in (["rev-parse", "--short=8", "HEAD"], ["status", "--porcelain", "--", *sources])
    )
    return {
        "at": datetime.now(UTC).date().isoformat(),
        "commit": commit + "+" * bool(changed) or "no checkout",
        "load": round(os.getloadavg()[0], 2),
        "engines": {engine: about["version"] for engine, about in engines().items() if name in about["figures"]},
    }


def run(name: str, quick: bool, data: str | None = None) -> dict[str, Any]:
    """The JSON object that one benchmark prints last, with the seconds that it took; or the reason for none."""
    text = (HERE / f"{name}.py").read_text()
    options = ["--quick"] if (quick or name in HOURS) and "--quick" in text else []
    options += ["--data", data] if data and '"--data"' in text else []
    command = [sys.executable, "-m", f"bench.{name}", "--json", *options]
    print(" ".join(["python", *command[1:]]), file=sys.stderr, flush=True)
    path = os.pathsep.join(str(ROOT / folder) for folder in ("src", "lab/src", "lab", "."))
    start, variables = time.perf_counter(), {**os.environ, "PYTHONPATH": path}
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
    parser.add_argument("--data", metavar="DIR", help="a folder with the tables that no package has")
    args = parser.parse_args()
    place = HERE / ("quick.json" if args.quick else "results.json")
    before = json.loads(place.read_text()) if args.only and place.exists() else {}
    kept, measured = before.get("benchmarks", {}), before.get("measured", {})
    results = {"quick": args.quick, "machine": machine(), "measured": measured, "benchmarks": kept}
    for name in args.only or names():
        measured[name] = circumstances(name)
        kept[name] = run(name, args.quick, args.data)
        place.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    failed = [f"{name}: {kept[name]['reason']}" for name in kept if "reason" in kept[name]]
    print("\n".join([f"{place} is written", *failed]), file=sys.stderr)
    if not args.quick:
        from bench import render

        render.main([])
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
