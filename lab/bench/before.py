"""The present state next to an earlier one: `python -m bench.before REVISION [--json]`, in turns, in one run.

Each side runs its own code and its own worker: rounds of the engine by `bench.peers.ours`, whole secure sums by
`bench.secure_sum`. A ratio is the time of this state over that of the earlier one: 1.05 means 5 % slower.
"""

import argparse
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.harness import ROOT, Contender, NoFigureError, ratio, take_turns
from bench.work import ADULT_LOGISTIC, ADULT_MLP, CROSS_DEVICE, Work

# Name -> work, options of the worker, rounds per turn.
ENGINE: dict[str, tuple[Work, tuple[str, ...], int]] = {
    "adult_mlp": (ADULT_MLP, (), 50),
    "adult_mlp_244_poisson": (ADULT_MLP.but(batch=244), ("poisson",), 20),
    "adult_mlp_2441": (ADULT_MLP.but(batch=2441, steps=2), (), 10),
    "adult_logistic_244": (ADULT_LOGISTIC.but(batch=244), (), 50),
    "cross_device_r100": (CROSS_DEVICE.but(devices=500), (), 1),
}
# Name -> devices in the round, parameters, rounds per turn.
SUMS = {"sum_r10_d1e6": (10, 10**6, 1), "sum_r100_d218": (100, 218, 1)}
_SUM_WORKER = """
from bench.secure_sum import Case, Cohort
from bench.worker import serve
from choral import SecureSum

def prepare(asked):
    cohort = Cohort(Case(SecureSum.for_cohort(asked["devices"]), asked["parameters"]))
    cohort.enrol()
    return lambda count: [cohort.round() for _ in range(count)]

serve(prepare)
"""


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """The files of a revision, in a temporary folder."""
    done = subprocess.run(["git", "archive", "--format=tar", revision], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"git has no {revision!r}: {done.stderr.decode().strip()}")
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
        yield Path(folder)


def engine(earlier: Path, repeats: int) -> dict[str, Any]:
    """Every work of the engine on both sides."""
    found = {}
    for name, (work, options, rounds) in ENGINE.items():
        with Contender("ours", *options) as now, Contender("ours", *options, root=earlier) as before:
            found[name] = _turns(now, before, work.to_dict(), rounds, repeats)
        print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
    return found


def sums(earlier: Path, repeats: int) -> dict[str, Any]:
    """Whole secure sums on both sides: all devices and the server, in one process."""
    found = {}
    for name, (devices, parameters, rounds) in SUMS.items():
        with Contender(source=_SUM_WORKER) as now, Contender(source=_SUM_WORKER, root=earlier) as before:
            found[name] = _turns(now, before, {"devices": devices, "parameters": parameters}, rounds, repeats)
        print(name, json.dumps(found[name]), file=sys.stderr, flush=True)
    return found


def _turns(now: Contender, before: Contender, work: dict[str, Any], rounds: int, repeats: int) -> dict[str, Any]:
    try:
        for one in (now, before):
            one.ask(prepare=work)
        mine, earlier = take_turns([(now, rounds), (before, rounds)], repeats)
    except NoFigureError as reason:
        return {"times": None, "reason": str(reason)}
    return {**ratio(mine, earlier), "now": mine.to_dict(), "before": earlier.to_dict()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", help="the earlier state, as git names it")
    parser.add_argument("--repeats", type=int, default=9, help="turns of each side (default: 9)")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()
    with checked_out(args.revision) as earlier:
        found = {**engine(earlier, args.repeats), **sums(earlier, args.repeats)}
    for name, one in found.items():
        print(f"{name:<24}", one.get("reason") or f"{one['times']:.3f} × the time before")
    if args.json:
        print(json.dumps({"revision": args.revision, **found}))


if __name__ == "__main__":
    main()
