"""The verbs of the front door: runs whose results also predict and report, as scikit-learn's models do."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal, Self, TypeAlias, TypedDict, Unpack

from choral import config
from choral.asking.catalogue import ALL_NAMES
from choral.asking.cells import condition
from choral.asking.question import Question
from choral.config import Job
from choral.core.errors import ConfigError
from choral.core.plan import (
    Against,
    Law,
    NoiseIsAdded,
    Participation,
    Passes,
    Sampling,
    SumKind,
    UnitName,
    Weighing,
)
from choral.learning import models
from choral.output.logs import RunLog
from choral.record import traits
from choral.report import charts, page, report_page, words
from choral.report.markup import Markup, element, table, together
from choral.report.questions import plot
from choral.run import runs
from choral.run.breakdown import SITE, GroupFigures, by_column, by_site, by_table
from choral.run.folder import RunFolder, write_whole
from choral.run.inquiry import AskedAnswer, Inquiry, begun, begun_with, gone_on, made
from choral.run.modelling import with_proposed_kind
from choral.run.planning import settle
from choral.run.result import GivenModel, Result, opened
from choral.server_step import StepName
from choral.tables.cells import DateOrder
from choral.tables.reading import DataSource, frame_of, from_frame
from choral.tables.records import Partition
from choral.tables.sources import Reading, read_one


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A chart as SVG: notebooks show it, and `save` writes it as a file."""

    svg: str

    def save(self, path: str | Path) -> Path:
        """The picture as an SVG file."""
        write_whole(Path(path), self.svg.encode())
        return Path(path)

    def _repr_svg_(self) -> str:
        return self.svg


@dataclass(frozen=True, kw_only=True)
class Breakdown(Sequence[GroupFigures]):
    """The figures of each site or group; they are computed without noise, from rows that one process holds."""

    of: str
    groups: tuple[GroupFigures, ...]

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401 - one group, or several for a slice
        return self.groups[place]

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def rows(self) -> list[dict[str, object]]:
        """A row for each group: its name, its test rows and its figures."""
        return [{self.of: one.name, "rows": one.rows, **one.figures} for one in self.groups]

    def to_frame(self) -> Any:  # noqa: ANN401 - pandas is optional
        """The same as a data frame of pandas."""
        return frame_of(self.rows)

    def _repr_html_(self) -> str:
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        cells = [[_shown(row.get(name, "")) for name in names] for row in self.rows]
        return str(table(names, cells))


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class Trained(Result):
    """A trained model that predicts, says what it cost, and writes the page that a privacy officer signs."""

    @classmethod
    def of(cls, result: Result) -> Self:
        """The result of a run, for people."""
        return cls(**{field.name: getattr(result, field.name) for field in fields(result)})

    def report(self, path: str | Path = "report.html") -> Path:
        """The report of the run as one HTML file, written to this path."""
        path = Path(path)
        write_whole(path, page(self.record).encode())
        return path

    def plot(self, path: str | Path | None = None) -> Picture:
        """How good the model was after each round, with the lines that it is compared with; also as a file."""
        chart = report_page.merit_curve(self.record)
        if chart is None:
            raise ConfigError("CH111", "no round was evaluated.", fix="Keep test above 0 in [data].")
        picture = Picture(svg=charts.alone(chart))
        if path is not None:
            picture.save(path)
        return picture

    def to_frame(self, of: Literal["rounds", "devices"] = "rounds") -> Any:  # noqa: ANN401 - pandas is optional
        """A data frame of pandas: each round with its figures, or each device with what it has spent."""
        return frame_of(list(self._rounds() if of == "rounds" else self._devices()))

    def _rounds(self) -> Iterator[dict[str, object]]:
        for line in self.history:
            yield {"round": line.round, "seconds": line.seconds, "devices": len(line.included), **line.test}

    def _devices(self) -> Iterator[dict[str, object]]:
        privacy = self.privacy
        for one in privacy.devices or ():
            yield {
                "device": one.name, "rounds": one.rounds, "epsilon": one.epsilon, "limit": one.limit, "full": one.full,
                "delta": privacy.delta, "rule": privacy.against_everyone.rule, "adjacency": privacy.adjacency,
                "against": words.limited_against(self.record.about),
            }  # fmt: skip

    def by_site(self) -> Breakdown:
        """The figures of each site on its own test rows; of simulations and rehearsals only, and written nowhere."""
        return Breakdown(of=SITE, groups=tuple(by_site(self)))

    def by_group(self, column: str, rows: DataSource = None) -> Breakdown:
        """The figures of each level of a column on the run's test rows, or on rows that hold it and the label."""
        if rows is None:
            return Breakdown(of=column, groups=tuple(by_column(self, column)))
        job = config.parse(self.record.about.job)
        table = (
            read_one(rows, Reading(written=job.data.written))
            if isinstance(rows, str | Path)
            else from_frame(rows, job.data.written)
        )
        return Breakdown(of=column, groups=tuple(by_table(self, table, column, job.data.label)))

    def _repr_html_(self) -> str:
        kind, meaning = words.label(self.record)
        chart = report_page.merit_curve(self.record)
        lines = [element("p", element("strong", kind), f" {meaning}")]
        if self.test:
            lines.append(element("p", words.measured(self.record.finished)))
        lines.append(report_page.claims_table(self.record))
        if chart is not None:
            lines.append(element("div", Markup(charts.alone(chart)), style="max-width: 30rem"))
        return str(together(*lines))


Texts: TypeAlias = list[str] | tuple[str, ...]
Sizes: TypeAlias = list[int] | tuple[int, ...]
Range: TypeAlias = list[float] | tuple[float, ...]


class AskSettingsByName(TypedDict, total=False):
    """The table [ask], which is given whole, since some of its settings have the names of others."""

    epsilon: float | None
    epsilon_sum: float | None
    most: int | None
    names: Texts | None
    columns: Texts | None
    dropouts: bool | None
    smallest_crowd: int | None


class SettingsByName(TypedDict, total=False):
    """Every setting of a choral.toml by its name; docs/configuration.md explains each. None means not given.

    `local_steps` is `steps` of [local], and `model` is `kind` of [model]: a name, or your own
    function, model or nn.Module.
    """

    # [privacy]
    epsilon: float | None
    delta: float | None
    noise: float | None
    law: Law | None
    against: Against | None
    unit: UnitName | None
    noise_is_added: NoiseIsAdded | None
    limits: dict[str, float] | None
    # [federation]
    devices: int | None
    cohort: int | None
    rounds: int | None
    rows: int | None
    typical_rows: int | None
    weighing: Weighing | None
    colluders: int | None
    participation: Participation | None
    secure_sum: SumKind | None
    robust: bool | None
    deadline: float | None
    server: StepName | None
    server_step_size: float | None
    server_momentum: float | None
    server_decay: float | None
    server_floor: float | None
    # [local]
    local_steps: int | None
    batch: int | None
    step_size: float | None
    clip: float | None
    clip_quantile: float | None
    sampling: Sampling | None
    passes: Passes | None
    pull: float | None
    parts: int | None
    # [data]
    csv: str | None
    parquet: str | None
    npz: str | None
    images: str | None
    row_shape: Sizes | None
    builtin: Literal["adult"] | None
    label: str | None
    classes: list[str | int | bool] | tuple[str | int | bool, ...] | None
    own_labels: dict[str, str] | None
    label_bounds: Range | None
    columns: dict[str, dict[str, Any]] | None
    ignore: Texts | None
    device_column: str | None
    limit_column: str | None
    person: str | None
    rows_per_person: int | None
    partition: Partition | None
    skew: float | None
    delimiter: str | None
    decimal: Literal[".", ","] | None
    encoding: str | None
    dates: DateOrder | None
    empty: Texts | None
    encoder: str | None
    encoder_sha256: str | None
    embeddings: int | None
    embedding_bounds: Range | None
    text: str | None
    validation: float | None
    test: float | None
    # [model]
    model: "str | Callable[..., object] | models.Model | None"  # in quotes: the model needs JAX, which loads late
    hidden: Sizes | None
    row_length: float | None
    slope: float | None
    until: float | None
    bins: int | None
    time: str | None
    # [run]
    name: str | None
    seed: int | None
    evaluate_every: int | None
    gradient_norm: bool | None
    # [ask]
    ask: AskSettingsByName | None


class RunOptions(SettingsByName, total=False):
    """Every setting of a choral.toml by its name, and what only a run has: where it is written, and what goes with it.

    `out` is its folder, `drop` the share of devices that drop out, `compare` also trains without privacy and each
    device alone, `log` is "tensorboard" or "mlflow".
    """

    out: str | Path | None
    drop: float
    compare: bool
    log: str | None


def simulate(data: DataSource, **settings: Unpack[RunOptions]) -> Trained:
    """The result of Algorithm 1 on the fast engine; `data` is a choral.toml, a table, a glob, a frame or arrays.

    With a choral.toml, a setting given by name replaces the file's, and None leaves it as it is.

    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(400, 3))
    >>> result = simulate((rows, (rows[:, 0] > 0).astype(int)), devices=4, epsilon=5.0, delta=1e-4, rounds=2, seed=1)
    >>> result.privacy.against_everyone.epsilon <= 5.0
    True
    """
    return _start("simulation", data, settings)


def rehearse(data: DataSource, **settings: Unpack[RunOptions]) -> Trained:
    """The same with the whole protocol in one process: real keys, real masks, every message."""
    return _start("rehearsal", data, settings)


def fit(features: DataSource, labels: DataSource, **settings: Unpack[RunOptions]) -> Trained:
    """`simulate` for arrays in scikit-learn's order: rows × features, then a whole label from 0 for each row."""
    return simulate((features, labels), **settings)


def open_run(path: str | Path, *, model: GivenModel | None = None, encoder: str | Path | None = None) -> Trained:
    """The result of a finished run, from its folder; it predicts as it did when the run ended.

    `model` is your own function or model where the run has one, `encoder` the file of its encoder where that has moved.

    >>> import tempfile
    >>> import numpy as np
    >>> rows, folder = np.random.default_rng(0).normal(size=(400, 3)), tempfile.mkdtemp()
    >>> labels = (rows[:, 0] > 0).astype(int)
    >>> result = simulate((rows, labels), devices=4, epsilon=5.0, delta=1e-4, rounds=2, seed=1, out=f"{folder}/run")
    >>> bool((open_run(f"{folder}/run").predict(rows) == result.predict(rows)).all())
    True
    """
    return Trained.of(opened(path, model=model, encoder=encoder))


def resume(
    path: str | Path, data: DataSource = None, *, model: GivenModel | None = None, log: str | None = None
) -> runs.Run:
    """A run that was interrupted, ready to go on after its last finished round; `data` only if it was in memory.

    `model` is your own model, where the run was started with a lambda, a module or a model that was made already.
    """
    return runs.resume(path, data, model=model, log=None if log is None else RunLog(log))


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


def rehearsal(data: DataSource, *, out: str | Path | None = None, **settings: Unpack[SettingsByName]) -> AskedStudy:
    """A study in this process, with keys, masks and every message, to try questions on one machine.

    >>> import pandas
    >>> frame = pandas.DataFrame({"smoker": ["no", "yes", "no", "no"] * 30, "sick": ["no", "yes"] * 60})
    >>> tried = rehearsal(frame, devices=3, epsilon=4.0, delta=1e-4, label="sick", classes=["no", "yes"], seed=1,
    ...                   columns={"smoker": {"levels": ["no", "yes"]}}, ask={"epsilon": 2.0, "most": 2})
    >>> counts = tried.ask.table(columns=["smoker"])
    >>> [row["smoker"] for row in counts.rows], counts.privacy.rule
    (['no', 'yes'], 'S8')
    """
    return _asked("rehearsal", data, dict(settings), out)


def _asked(kind: runs.Kind, data: DataSource, settings: dict[str, Any], out: str | Path | None) -> AskedStudy:
    return AskedStudy(begun(kind, data, settings, out=_folder(out, "study")))


def _start(kind: runs.Kind, data: DataSource, settings: RunOptions) -> Trained:
    given: dict[str, Any] = dict(settings)
    out, drop, compare, log = (given.pop(name, None) for name in ("out", "drop", "compare", "log"))
    if log is not None and out is None:
        raise ConfigError("CH104", f'log = "{log}" without a run folder.', fix="Give the folder as out=.")
    job, source = runs.job_and_source(data, given)
    job, _ = with_proposed_kind(job, source)
    if job.on_sums:
        return _made_on_sums(kind, job, source, out, drop=drop or 0.0, unused={"compare": compare, "log": log})
    study = settle(job, source, guess=traits(kind).repeats)
    run = runs.Run(
        kind, study, folder=None if out is None else RunFolder.create(Path(out)), drop=drop or 0.0,
        compare=bool(compare), log=None if log is None else RunLog(log),
    )  # fmt: skip
    return Trained.of(run.finish())


def _made_on_sums(
    kind: runs.Kind, job: Job, source: DataSource, out: str | Path | None, *, drop: float, unused: dict[str, object]
) -> Trained:
    """The result of a model that is made from sums: its folder has the register that it follows from."""
    if used := next((name for name, value in unused.items() if value), None):
        what = f'{used} with [model] kind = "{job.model.kind}", which is made from sums and not trained.'
        raise ConfigError("CH104", what, where=job.where("model", "kind"), fix="Leave it out.")
    folder = _folder(out, "run")
    made(begun_with(kind, job, source, out=folder, drop=drop))
    return Trained.of(opened(folder))


def _folder(out: str | Path | None, name: str) -> Path:
    return Path(out) if out is not None else Path(mkdtemp(prefix="choral-")) / name
