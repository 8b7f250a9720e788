"""How `bench.sums` asks: a simulation at ε = 1 against three adversaries, and means over seeds."""

import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import NoFigureError
from bench.sum_tables import SumTable
from choral.config import Job, job_of
from choral.run.inquiry import Inquiry
from choral.run.planning import settle
from choral.run.questions import AskTerms

EPSILON, DELTA = 1.0, 1e-5
KINDS: dict[str, dict[str, Any]] = {
    "everyone": {"limit": "epsilon"},
    "lying": {"limit": "epsilon_sum"},
    "sum": {"limit": "epsilon_sum", "dropouts": False},
}
# Ledgers are written durably, device by device: on a disk that takes most of the time, and no figure is about it.
_MEMORY = Path("/dev/shm")
IN_MEMORY = _MEMORY if _MEMORY.is_dir() else None


def asked(kind: str, epsilon: float, most: int) -> dict[str, Any]:
    """[ask] for so many sums at this ε, against whom `kind` says."""
    how = dict(KINDS[kind])
    return {how.pop("limit"): epsilon, "most": most, **how}


def job_with(ask: dict[str, Any], seed: int, **settings: Any) -> Job:  # noqa: ANN401 - the keys of choral.toml
    """A job that may ask; the little training that every job has is never run."""
    return job_of(
        epsilon=60.0, delta=DELTA, seed=seed, rounds=1, local_steps=1, batch=10, step_size=0.5, clip=1.0,
        sampling="partition", ask=ask, validation=0.0, **settings,
    )  # fmt: skip


def inquiry(job: Job, folder: Path, rows: object = None) -> Inquiry:
    """Its simulated devices, ready to be asked."""
    folder.mkdir(exist_ok=True)
    return Inquiry("simulation", settle(job, rows, keep_tables=True), folder=folder)


def of_table(table: SumTable, kind: str, most: int, seed: int, folder: Path) -> Inquiry:
    """The devices of a table, which may be asked for so many sums at ε = 1."""
    return inquiry(job_with(asked(kind, EPSILON, most), seed, **table.settings), folder, table.rows)


def terms_of(table: SumTable, kind: str) -> AskTerms:
    """What one question about a table costs at ε = 1."""
    job = job_with(asked(kind, EPSILON, 1), 0, **table.settings)
    return AskTerms.of(job, run="bench", devices=table.devices)


def by_kind(figure: Callable[[str], float]) -> dict[str, Any]:
    """A figure for each adversary; None, with the reason, where there is no honest answer."""
    found: dict[str, Any] = {}
    for kind in KINDS:
        try:
            found[kind] = round(figure(kind), 4)
        except NoFigureError as error:
            found |= {kind: None, f"{kind}_why": str(error)}
    return found


def over_seeds(seeds: int, figure: Callable[[str, int, Path], float]) -> dict[str, Any]:
    """The mean over seeds, for each adversary."""
    return by_kind(lambda kind: mean(seeds, partial(figure, kind)))


def mean(seeds: int, figure: Callable[[int, Path], float]) -> float:
    found = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
            found.append(figure(seed, Path(folder)))
    return statistics.mean(found)
