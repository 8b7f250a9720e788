"""What it takes to have it: megabytes on disk, and in memory during a round. `python -m bench.footprint [--json]`

An installation is a package with all that it requires, without extras. Peers on PyTorch have its CPU build here where
the package index offers it; from the public index on Linux they also get several gigabytes of CUDA packages. Memory
is the most that a contender's process held during two rounds of the Adult network; with Ray, its main process only.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.engine import PEERS
from bench.harness import Contender, NoFigureError
from bench.setup import HERE, ROOT, python_of
from bench.work import ADULT_MLP

SOURCE = ROOT / "src/choral"


def names_in(requirements: Path) -> list[str]:
    """The packages that a peer's environment was made from."""
    lines = (line.split("#")[0].strip() for line in requirements.read_text().splitlines())
    return [line.split("==")[0].split("[")[0].split(">")[0].split("<")[0].strip() for line in lines if line]


def on_disk(python: Path, names: list[str]) -> dict[str, Any]:
    """Packages and MiB of an installation, or why there is none."""
    if not python.exists():
        return {"mib": None, "reason": "not installed here; see make bench-setup"}
    command = [python, HERE / "installed.py", *names]
    reported = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    largest = {name: value >> 20 for name, value in reported["largest"].items()}
    return {"packages": reported["packages"], "mib": reported["bytes"] >> 20, "largest_mib": largest}


def in_memory(*options: str, environment: str | None = None) -> dict[str, Any]:
    """The most memory of two rounds, or why there is no figure."""
    try:
        with Contender(*options, environment=environment) as one:
            one.prepare(ADULT_MLP)
            return {"peak_mib": one.rounds(2)["peak_bytes"] >> 20}
    except NoFigureError as reason:
        return {"peak_mib": None, "reason": str(reason)}


def measure(quick: bool) -> dict[str, Any]:
    """Both, for choral and for every peer; `quick` leaves the peers' memory out."""
    own = sum(path.stat().st_size for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in str(path))
    core = on_disk(Path(sys.executable), ["choral"])
    core |= {"mib": core["mib"] + (own >> 20), "own_mib": round(own / 2**20, 2)}  # it is installed by reference
    disk = {path.stem: on_disk(python_of(path.stem), names_in(path)) for path in sorted((HERE / "peers").glob("*.txt"))}
    memory = {name: in_memory(*words, environment=words[0]) for name, words in PEERS.items() if not quick}
    return {"disk": {"choral": core, **disk}, "memory": {"choral": in_memory("ours"), **memory}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--quick", action="store_true", help="leave the peers' memory out")
    args = parser.parse_args()
    found = measure(args.quick)
    if args.json:
        print(json.dumps(found))
    else:
        for name, row in found["disk"].items():
            print(f"{name:<20} {row.get('packages', '–'):>4} packages  {row['mib'] or '–':>6} MiB on disk")
        for name, row in found["memory"].items():
            print(f"{name:<20} {row['peak_mib'] or '–':>6} MiB in memory")


if __name__ == "__main__":
    main()
