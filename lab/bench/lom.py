"""The secure sum next to Fed-BioMed's LOM, in one run: `python -m bench.lom [--quick] [--json]`.

Ten devices, nobody drops out, pairs agreed before. `device` is from the finished update to what is sent, `server` from
that to the mean; wall-clock, the best of interleaved repeats. LOM masks 64-bit words by ChaCha20 and can't do without a
listed device; choral also shares a self secret and survives drop-outs. Lists of Python numbers are LOM's interface.
"""

import argparse
import json
import subprocess
from typing import Any

from bench.harness import ROOT
from bench.secure_sum import Case, Cohort
from bench.setup import python_of
from choral.core.plan import SecureSum

DEVICES = 10


def theirs(dimensions: int) -> dict[str, Any]:
    """One round of LOM."""
    command = [python_of("fedbiomed"), "-m", "bench.peers.fedbiomed"]
    asked = json.dumps({"devices": DEVICES, "dimensions": dimensions})
    done = subprocess.run(command, cwd=ROOT, input=asked, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(quick: bool) -> dict[str, Any]:
    """Both sides, or null and the reason."""
    if not python_of("fedbiomed").exists():
        return {"device_vs_lom": None, "server_vs_lom": None, "lom": "not installed here; see make bench-setup"}
    dimensions = 10**5 if quick else 10**6
    cohort = Cohort(Case(SecureSum.for_cohort(DEVICES), dimensions))
    cohort.enrol()
    turns = [(cohort.round(), theirs(dimensions)) for _ in range(1 if quick else 3)]
    found: dict[str, Any] = {"lom": turns[0][1]["version"], "dimensions": dimensions}
    for side in ("device", "server"):
        ours, peers = ([turn[place][side] for turn in turns] for place in (0, 1))
        found |= {
            f"{side}_vs_lom": float(f"{min(peers) / min(ours):.4g}"),
            f"{side}_ms": float(f"{1e3 * min(ours):.4g}"),
            f"{side}_lom_ms": float(f"{1e3 * min(peers):.4g}"),
            f"{side}_spread": float(f"{max(max(times) / min(times) for times in (ours, peers)):.4g}"),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="once, with a tenth of the parameters")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()
    found = measure(args.quick)
    print(json.dumps(found) if args.json else "\n".join(f"{name:<20}{value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
