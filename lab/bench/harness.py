"""Contenders side by side: each in its own process and environment, doing the same work in turns, in one run."""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from bench.setup import ROOT, python_of
from bench.work import Work

CORES = 2
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class NoFigureError(Exception):
    """A contender can't do the work here; the reason stands in the results in place of the figure."""


class Contender:
    """A worker process: `bench.peers.<module>` under the peer's interpreter, or ours under this one.

    `root` is a checkout of another revision than this one; `source` is code to run in place of a module.
    """

    def __init__(
        self,
        module: str = "",
        *options: str,
        environment: str | None = None,
        cache: Path | None = None,
        root: Path = ROOT,
        source: str | None = None,
    ) -> None:
        python = Path(sys.executable) if environment is None else python_of(environment)
        if not python.exists():
            raise NoFigureError(f"{environment} is not installed here; see make bench-setup")
        lab = root / "lab" if (root / "lab").is_dir() else root  # revisions before there was one have bench/ at the top
        path = os.pathsep.join(map(str, (root / "src", root / "lab" / "src", lab)))
        variables = {**os.environ, **dict.fromkeys(THREADS, str(CORES)), "PYTHONPATH": path}
        if cache is not None:
            variables["JAX_COMPILATION_CACHE_DIR"] = str(cache)
        self.process = subprocess.Popen(
            [python, *(("-m", f"bench.peers.{module}") if source is None else ("-c", source)), *options],
            cwd=lab,
            env=variables,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=_use_few_cores,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin and self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def ask(self, **question: object) -> dict[str, Any]:
        """The worker's answer, or NoFigureError with the reason it gave."""
        into: IO[str] = self.process.stdin  # type: ignore[assignment]
        out: IO[str] = self.process.stdout  # type: ignore[assignment]
        try:
            print(json.dumps(question), file=into, flush=True)
            answer: dict[str, Any] = json.loads(out.readline())
        except (BrokenPipeError, json.JSONDecodeError) as error:
            raise NoFigureError("the worker ended without an answer") from error
        if "error" in answer:
            raise NoFigureError(answer["error"])
        return answer

    def prepare(self, work: Work) -> dict[str, Any]:
        return self.ask(prepare=work.to_dict())

    def rounds(self, count: int) -> dict[str, Any]:
        return self.ask(rounds=count)


def _use_few_cores() -> None:
    """The same cores for every contender, whatever the machine has."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Seconds per round of one contender, over the repeats of one run."""

    wall: tuple[float, ...]
    cpu: tuple[float, ...]

    def to_dict(self) -> dict[str, float]:
        """Median, least and most, in milliseconds.

        >>> Figure(wall=(0.01, 0.03, 0.02), cpu=(0.02, 0.02, 0.02)).to_dict()
        {'ms': 20.0, 'ms_least': 10.0, 'ms_most': 30.0, 'cpu_ms': 20.0}
        """
        wall = sorted(self.wall)
        values = (statistics.median(wall), wall[0], wall[-1], statistics.median(self.cpu))
        return dict(zip(("ms", "ms_least", "ms_most", "cpu_ms"), (_short(1e3 * v) for v in values), strict=True))


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def take_turns(contenders: Sequence[tuple[Contender, int]], repeats: int) -> list[Figure]:
    """Each contender's figure from `repeats` turns of its number of rounds: ours, peer, ours, peer."""
    for contender, _ in contenders:
        contender.rounds(1)
    turns = [[contender.rounds(count) for contender, count in contenders] for _ in range(repeats)]
    return [
        Figure(
            wall=tuple(turn[place]["wall"] / count for turn in turns),
            cpu=tuple(turn[place]["cpu"] / count for turn in turns),
        )
        for place, (_, count) in enumerate(contenders)
    ]


def ratio(slow: Figure, fast: Figure) -> dict[str, float]:
    """How many times `slow` takes the time of `fast`: the median over turns that stood side by side, and its spread.

    >>> ratio(Figure(wall=(4.0, 6.0, 10.0), cpu=(4.0, 4.0, 4.0)), Figure(wall=(2.0, 2.0, 2.0), cpu=(1.0, 1.0, 1.0)))
    {'times': 3.0, 'least': 2.0, 'most': 5.0, 'cpu_times': 4.0}
    """
    pairs = sorted(s / f for s, f in zip(slow.wall, fast.wall, strict=True))
    cpu = statistics.median(s / f for s, f in zip(slow.cpu, fast.cpu, strict=True))
    values = (statistics.median(pairs), pairs[0], pairs[-1], cpu)
    return dict(zip(("times", "least", "most", "cpu_times"), map(_short, values), strict=True))


def print_figures(about: str | None, measure: Callable[[bool], object], quick: str) -> None:
    """Measure by the options of a shell, --quick and --json, and print what was found."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()
    found = measure(args.quick)
    print(json.dumps(found) if args.json else json.dumps(found, indent=1))


def growth(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The exponent b of seconds ~ sizes^b, by least squares in logarithms.

    >>> growth([1, 10, 100], [3.0, 30.0, 300.0])
    1.0
    """
    return _short(float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0]))


def over_seeds(found: list[Any], figure: Callable[[list[float]], float]) -> Any:  # noqa: ANN401 - tables of figures
    """One figure of all seeds, such as their mean, in the place of each seed's own."""
    if isinstance(found[0], dict):
        return {name: over_seeds([one[name] for one in found], figure) for name in found[0]}
    return round(figure(found), 4)
