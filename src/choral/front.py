"""The verbs of the front door: runs whose results also predict and report, with scikit-learn's interface."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from choral.asking.catalogue import ALL_NAMES
from choral.asking.filters import condition
from choral.asking.question import Question
from choral.learning.reading import DataSource
from choral.output.logs import RunLog
from choral.report import page
from choral.report.answers import plot
from choral.run import runs
from choral.run.answers import AskedAnswer
from choral.run.folder import write_whole
from choral.run.inquiry import Inquiry, begun, gone_on
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


class Asked(AskedAnswer):
    """An answer with its numbers, what it cost, and its curve as a file."""

    def plot(self, path: str | Path = "answer.svg") -> Path:
        """The curve of a survival table, a distribution or an additive model as an SVG file; CH104 for others."""
        return plot(self.question.name, self.answer, path)


class Ask:
    """The questions of the catalogue as methods: `study.ask.table(columns=["smoker"], where="age>=60")`."""

    def __init__(self, ask: Callable[[Question], Any]) -> None:
        self._ask = ask

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in ALL_NAMES:
            raise AttributeError(f"there is no question {name!r}; there are {', '.join(ALL_NAMES)}")

        def put(**parameters: Any) -> Any:  # noqa: ANN401 - the parameters of the question, each checked there
            where = parameters.get("where")
            texts = [where] if isinstance(where, str) else where or []
            conditions = [condition(one) if isinstance(one, str) else one for one in texts]
            given = {key: value for key, value in parameters.items() if key != "where" and value is not None}
            return self._ask(Question(name=name, parameters=given | ({"where": conditions} if conditions else {})))

        return put

    def __dir__(self) -> list[str]:
        return list(ALL_NAMES)


class AskedStudy:
    """A study to ask: `ask` puts questions to its devices, `plan` says what they would cost and tell."""

    def __init__(self, inquiry: Inquiry) -> None:
        self.inquiry = inquiry
        self.ask, self.plan = Ask(self._asked), Ask(inquiry.plan)

    def _asked(self, question: Question) -> Asked:
        answered = self.inquiry.ask(question)
        return Asked(**{field.name: getattr(answered, field.name) for field in fields(answered)})

    @property
    def folder(self) -> Path:
        """Where its ledgers and its register are; `choral.resume(folder).finish()` trains from the same ledgers."""
        return self.inquiry.folder


def study(path: str | Path, data: DataSource = None, *, out: str | Path | None = None) -> AskedStudy:
    """The study of a choral.toml, in a new folder `out`, or of a run folder that has begun, ready to be asked.

    `data` is needed only where a run that has begun had its data in memory.
    """
    if Path(path).is_dir():
        return AskedStudy(gone_on(path, data))
    return _asked("simulation", path, {}, out)


def rehearsal(data: DataSource, *, out: str | Path | None = None, **settings: Any) -> AskedStudy:  # noqa: ANN401 - as above
    """A study in this process, with keys, masks and every message, to try questions on one machine.

    >>> import pandas
    >>> frame = pandas.DataFrame({"smoker": ["no", "yes", "no", "no"] * 30, "sick": ["no", "yes"] * 60})
    >>> tried = rehearsal(frame, devices=3, epsilon=4.0, delta=1e-4, label="sick", classes=["no", "yes"], seed=1,
    ...                   columns={"smoker": {"levels": ["no", "yes"]}}, ask={"epsilon": 2.0, "most": 2})
    >>> counts = tried.ask.table(columns=["smoker"])
    >>> [row["smoker"] for row in counts.rows], counts.privacy.rule
    (['no', 'yes'], 'S8')
    """
    return _asked("rehearsal", data, settings, out)


def _asked(kind: runs.Kind, data: DataSource, settings: dict[str, Any], out: str | Path | None) -> AskedStudy:
    folder = Path(out) if out is not None else Path(mkdtemp(prefix="choral-")) / "study"
    return AskedStudy(begun(kind, data, settings, out=folder))


def _start(kind: runs.Kind, data: DataSource, settings: dict[str, Any]) -> Trained:
    log = settings.pop("log", None)
    return _trained(runs.start(kind, data, settings, None if log is None else RunLog(log)))


def _trained(result: Result) -> Trained:
    return Trained(**{field.name: getattr(result, field.name) for field in fields(result)})
