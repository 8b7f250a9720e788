"""The engine next to its peers: `python -m bench.engine [--quick] [--json]`; see bench/README.md for what is compared.

Both sides do the same work in turns, in one run, on the same two cores. A ratio is the median over turns that stood
side by side; times are wall-clock, and CPU time is given with them. `--quick` takes less than a minute.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.harness import CORES, Contender, Figure, NoFigureError, growth, ratio, take_turns
from bench.work import ADULT_LOGISTIC, ADULT_MLP, CROSS_DEVICE, Work

PEERS: dict[str, tuple[str, ...]] = {  # name in the results -> environment and worker, then the worker's options
    "opacus_loop": ("opacus", "hooks"),
    "opacus_ghost": ("opacus", "ghost"),
    "opacus_engine": ("opacus", "engine"),
    "flower_opacus": ("flower_opacus", "engine"),
    "flower_opacus_lean": ("flower_opacus", "hooks"),
    "fedjax": ("fedjax",),
    "pfl_opacus": ("pfl",),
    "jax_privacy": ("jax_privacy",),
}
FEW = CROSS_DEVICE.but(devices=500)  # for a quick look, and where another axis than n is measured
MANY = CROSS_DEVICE.but(devices=100_000)


def peer(name: str) -> Contender:
    environment, *options = PEERS[name]
    return Contender(environment, *options, environment=environment)


def versus(work: Work, name: str, *, rounds: int, repeats: int, share: int = 1) -> dict[str, Any]:
    """Ours and one peer on the same work; with `share` > 1 the peer's loop is timed on that part of the cohort.

    A loop over devices takes as many times longer as there are devices; `scaled_by` says where that was used. Flower
    looks for answers every tenth of a second, so one of its rounds takes two or three of them: it does many in a turn.
    """
    part = work.but(cohort=work.cohort // share)
    try:
        with Contender("ours") as ours, peer(name) as other:
            ours.prepare(work)
            other.prepare(part)
            mine, theirs = take_turns([(ours, rounds), (other, rounds if name.startswith("flower") else 1)], repeats)
    except NoFigureError as reason:
        return {"times": None, "reason": str(reason)}
    theirs = Figure(wall=tuple(share * s for s in theirs.wall), cpu=tuple(share * s for s in theirs.cpu))
    return {**ratio(theirs, mine), "ours": mine.to_dict(), "peer": theirs.to_dict(), "scaled_by": share}


def noise_overhead(work: Work, *, rounds: int, repeats: int) -> dict[str, Any]:
    """A round with noise over the same round without."""
    with Contender("ours") as noisy, Contender("ours") as plain:
        noisy.prepare(work)
        plain.prepare(work.but(noise=0.0))
        with_noise, without = take_turns([(noisy, rounds), (plain, rounds)], repeats)
    return {**ratio(with_noise, without), "with": with_noise.to_dict(), "without": without.to_dict()}


def first_round(work: Work, *options: str, environment: str | None = None) -> dict[str, Any]:
    """Seconds from the start of a process to its first finished round: cold, then with what it left in a cache."""
    seconds = []
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(2):
            start = time.perf_counter()
            try:
                with Contender(*(options or ("ours",)), environment=environment, cache=Path(cache)) as one:
                    one.prepare(work)
                    one.rounds(1)
                    seconds.append(round(time.perf_counter() - start, 2))
            except NoFigureError as reason:
                return {"cold_s": None, "reason": str(reason)}
    return {"cold_s": seconds[0], "warm_s": seconds[1]}


def growth_in(name: str, works: dict[float, Work], repeats: int) -> dict[str, Any]:
    """How a round's time grows along one axis, as an exponent: 1 is linear, 0 is flat."""
    with ExitStack() as stack:
        ones = [stack.enter_context(Contender("ours")) for _ in works]
        for one, work in zip(ones, works.values(), strict=True):
            one.prepare(work)
        figures = take_turns([(one, 1) for one in ones], repeats)
    least = [min(figure.cpu) for figure in figures]
    return {"axis": name, "sizes": list(works), "cpu_ms": [round(1e3 * s, 2) for s in least],
            "exponent": growth(list(works), least)}  # fmt: skip


def growths(repeats: int) -> dict[str, Any]:
    """Exponents in r, τ, d and n; n on tables that are mapped from files, so that every size goes the same way."""
    axes = {
        "r": {r: FEW.but(cohort=r) for r in (25, 50, 100, 200)},
        "tau": {steps: FEW.but(cohort=25, steps=steps) for steps in (5, 10, 20, 40)},
        "d": {
            work.parameters: work
            for work in (FEW.but(cohort=25, layers=(784, width, width, 10)) for width in (100, 200, 400, 800))
        },
        "n": {n: CROSS_DEVICE.but(cohort=25, devices=n) for n in (3_000, 10_000, 30_000, 100_000)},
    }
    return {name: growth_in(name, works, repeats) for name, works in axes.items()}


LOOPS = ("opacus_loop", "opacus_ghost")
ADULT = {"rounds": 50, "repeats": 5}  # as many rounds as the paper trains its network

QUICK: dict[str, Callable[[], dict[str, Any]]] = {  # a part of the results -> how it is measured
    "adult_mlp": lambda: {"opacus_loop": versus(ADULT_MLP, "opacus_loop", **ADULT)},
    "cross_device_r100": lambda: {"opacus_loop": versus(FEW, "opacus_loop", rounds=1, repeats=3, share=20)},
    "noise": lambda: {
        "adult_mlp": noise_overhead(ADULT_MLP, **ADULT),
        "cross_device_r100": noise_overhead(FEW, rounds=1, repeats=3),
    },
}

FULL: dict[str, Callable[[], dict[str, Any]]] = {
    "adult_mlp": lambda: {name: versus(ADULT_MLP, name, **ADULT) for name in PEERS},
    "adult_mlp_244": lambda: {name: versus(ADULT_MLP.but(batch=244), name, **ADULT) for name in LOOPS},
    "adult_logistic": lambda: {name: versus(ADULT_LOGISTIC, name, **ADULT) for name in LOOPS},
    "adult_logistic_244": lambda: {name: versus(ADULT_LOGISTIC.but(batch=244), name, **ADULT) for name in LOOPS},
    "cross_device_r100": lambda: {
        name: versus(CROSS_DEVICE, name, rounds=1, repeats=3, share=1 if name == "opacus_loop" else 10)
        for name in (*LOOPS, "fedjax", "pfl_opacus", "jax_privacy")
    },
    "cross_device_r1000": lambda: {
        name: versus(CROSS_DEVICE.but(cohort=1000), name, rounds=1, repeats=2, share=50) for name in LOOPS
    },
    "cross_device_1e5_r100": lambda: {name: versus(MANY, name, rounds=1, repeats=3, share=10) for name in LOOPS},
    "cross_device_1e5_r1000": lambda: {
        name: versus(MANY.but(cohort=1000), name, rounds=1, repeats=2, share=50) for name in LOOPS
    },
    "noise": lambda: {
        "adult_mlp": noise_overhead(ADULT_MLP, rounds=20, repeats=7),
        "cross_device_r100": noise_overhead(CROSS_DEVICE, rounds=1, repeats=5),
    },
    "first_round": lambda: {
        "ours": first_round(ADULT_MLP),
        **{name: first_round(ADULT_MLP, *PEERS[name], environment=PEERS[name][0]) for name in PEERS},
    },
    "growth": lambda: growths(repeats=3),
}


def headline(found: dict[str, Any]) -> dict[str, Any]:
    """The ratios that are promised, as plain numbers; null where a peer gave none."""
    pairs = [(work, name) for work in found if work.startswith(("adult", "cross")) for name in found[work]]
    ratios = {f"{work}_vs_{name}": found[work][name]["times"] for work, name in pairs}
    noise = [one["times"] for one in found.get("noise", {}).values()]
    return {**ratios, **({"noise_overhead": max(noise)} if noise else {})}


def machine() -> dict[str, Any]:
    """Where the figures come from."""
    names = ("jax", "numpy")
    versions = {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}
    return {"cores_used": CORES, "cores": os.cpu_count(), "load": os.getloadavg()[0], "versions": versions}


def table(results: dict[str, Any]) -> str:
    """The headline for people, one ratio a line."""
    lines = [f"{name:<44} {'no figure' if value is None else f'{value:8.2f}×'}" for name, value in results.items()
             if not isinstance(value, dict) and name != "seconds"]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the three headline ratios only, in less than a minute")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--only", nargs="*", choices=list(FULL), help="measure these parts only")
    args = parser.parse_args()
    start = time.perf_counter()
    before = machine()
    details = {}
    for name, part in (QUICK if args.quick else FULL).items():
        if args.only is None or name in args.only:
            details[name] = part()
            print(f"{name}: {json.dumps(details[name])}", file=sys.stderr, flush=True)
    results = {**headline(details), "details": details, "machine": before, "seconds": 0.0}
    results["seconds"] = round(time.perf_counter() - start, 1)
    print(table(results), file=sys.stderr if args.json else sys.stdout)
    if args.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
