"""The verbs of the front door: runs whose results also predict and report, with scikit-learn's manners."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from choral.learning.reading import DataSource
from choral.output.logs import RunLog
from choral.report import page
from choral.run import runs
from choral.run.folder import write_whole
from choral.run.result import Result


class Trained(Result):
    """A trained model that predicts, says what it cost, and writes the page that a privacy officer signs."""

    def report(self, path: str | Path = "report.html") -> Path:
        """The report of the run as one HTML file, written to this path."""
        path = Path(path)
        write_whole(path, page(self.record).encode())
        return path


def simulate(data: DataSource, **settings: Any) -> Trained:  # noqa: ANN401 - the keys of choral.toml, each checked there
    """The result of Algorithm 1 on the fast engine; `data` is a choral.toml, a table, a glob, a frame or arrays.

    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(400, 3))
    >>> result = simulate((rows, (rows[:, 0] > 0).astype(int)), devices=4, epsilon=5.0, delta=1e-4, rounds=2, seed=1)
    >>> result.privacy.against_everyone.epsilon <= 5.0
    True
    """
    return _start("simulation", data, settings)


def rehearse(data: DataSource, **settings: Any) -> Trained:  # noqa: ANN401 - as above
    """The same with the whole protocol in one process: real keys, real masks, every message."""
    return _start("rehearsal", data, settings)


def fit(features: DataSource, labels: DataSource, **settings: Any) -> Trained:  # noqa: ANN401 - as above
    """`simulate` for arrays in scikit-learn's order: rows × features, then a whole label from 0 for each row."""
    return simulate((features, labels), **settings)


def resume(path: str | Path, data: DataSource = None, *, log: str | None = None) -> runs.Run:
    """A run that was interrupted, ready to go on after its last finished round; `data` only if it was in memory."""
    return runs.resume(path, data, log=None if log is None else RunLog(log))


def _start(kind: runs.Kind, data: DataSource, settings: dict[str, Any]) -> Trained:
    log = settings.pop("log", None)
    return _trained(runs.start(kind, data, settings, None if log is None else RunLog(log)))


def _trained(result: Result) -> Trained:
    return Trained(**{field.name: getattr(result, field.name) for field in fields(result)})
