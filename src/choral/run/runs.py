"""A run, started or resumed: a study, a place and a folder joined."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from choral import __version__, config, federation
from choral.config import Job
from choral.errors import ConfigError, StorageError
from choral.learning.reading import DataSource
from choral.record import (
    DEVICES,
    FORMAT,
    About,
    Baselines,
    Data,
    DeviceLimit,
    Outcome,
    RoundLine,
    RunRecord,
    Sight,
    Statement,
    charged_rounds,
    read_run,
    traits,
)
from choral.run.baselines import baselines
from choral.run.books import Books
from choral.run.folder import RunFolder, now, versions
from choral.run.metrics import metrics
from choral.run.places import Rehearsed, Simulated
from choral.run.result import Result, model_card, model_shape
from choral.run.signatures import sign_off, signs
from choral.run.statement import planned_statement, privacy_statement, releases
from choral.run.study import Study, settle
from choral.run.watch import Log, Watch, unheard, unwatched
from choral.secagg.masks import ring
from choral.server_step import described

Kind = Literal["simulation", "rehearsal"]


def start(kind: Kind, data: DataSource, settings: dict[str, Any], log: Log | None = None) -> Result:
    """The result of Algorithm 1 on the fast engine, or with the whole protocol in one process.

    `data` is a choral.toml, a table, a glob, a frame or arrays; the settings are the keys of choral.toml, each checked
    there, and `out`, `drop` and `compare`, which are flags of the verbs.
    """
    settings = dict(settings)
    out, drop, compare = settings.pop("out", None), settings.pop("drop", 0.0), settings.pop("compare", False)
    if log is not None and out is None:
        raise ConfigError("CH104", f'log = "{log.kind}" without a run folder.', fix="Give the folder as out=.")
    job, source = _job_of(data, settings)
    study = settle(job, source)
    folder = None if out is None else RunFolder.create(Path(out))
    return Run(kind, study, folder=folder, drop=drop, compare=compare, log=log).finish()


def resume(
    path: str | Path, data: DataSource = None, *, log: Log | None = None, reached: Callable[[], None] = unheard
) -> "Run":
    """A run that was interrupted, ready to go on after its last finished round; `data` only if it was in memory."""
    folder = RunFolder(Path(path))
    about = read_run(path).about
    if about.traits.deployed:
        raise StorageError("CH802", "is a deployment.", where=str(path), fix="choral server run STUDY goes on with it.")
    if (folder.path / "result.json").exists():
        raise StorageError("CH800", "is finished.", where=str(path), fix="Read it with choral report, or run anew.")
    job = config.parse(about.job, source=about.job_source or "run.json")
    if data is None and about.in_memory:
        raise StorageError(
            "CH802",
            "was run on data in memory.",
            where=str(path),
            fix="Give the same data: choral.resume(folder, data).finish().",
        )
    study = settle(job, data, seed=about.seed, seeded=about.seeded, reached=reached)
    if study.plan.digest != about.plan_digest:
        raise StorageError(
            "CH802",
            "was planned for other data or settings than are here now.",
            where=str(path),
            fix="Restore the data and choral.toml as they were, or run anew.",
        )
    if about.secure_sum is not None:  # the defaults may have changed since
        study = replace(study, secure=about.secure_sum)
    kind: Kind = "simulation" if about.traits.repeats else "rehearsal"
    run = Run(kind, study, folder=folder, drop=about.drop or 0.0, compare=bool(about.compare), log=log)
    run.go_on()
    return run


def _job_of(data: DataSource, settings: dict[str, Any]) -> tuple[Job, DataSource]:
    if isinstance(data, str | Path) and Path(data).suffix == ".toml":
        if settings:
            raise ConfigError(
                "CH104", f'"{next(iter(settings))}" is given beside a choral.toml.', fix="Set it in the file."
            )
        return config.read(data), None
    if isinstance(data, Job):
        return data, None
    return config.job_of(**settings), data


class Run:
    """One run under way: iterate over its rounds, or `finish` it at once."""

    def __init__(
        self,
        kind: Kind,
        study: Study,
        *,
        folder: RunFolder | None = None,
        drop: float = 0.0,
        compare: bool = False,
        log: Log | None = None,
    ) -> None:
        self.traits = traits(kind)
        self.kind, self.study, self.folder, self.compare, self.log = kind, study, folder, compare, log
        self.drop = _share("drop", drop)
        if self.drop and not study.secure.self_masked:  # every round would be paid for, and none would end
            raise ConfigError(
                "CH102",
                f"drop = {self.drop:g} with the paper's own protocol, in which nobody may drop out.",
                fix='Leave the drop-outs out, or use secure_sum = "complete".',
            )
        judges = (study.split.validation, study.split.test)
        if compare and not all(len(rows.labels) for rows in judges):
            raise ConfigError(
                "CH104",
                "compare, but no rows are kept to judge by.",
                fix="Leave compare out, or keep both validation and test above 0 in [data].",
            )
        self.watch: Watch = unwatched
        self.lines: list[RoundLine] = []
        self.parameters: NDArray[np.float32] = study.model.start(0)
        self.server = study.job.server_step
        self.state = self.server.init(self.parameters)
        self.sight: Sight | None = None
        self.first = 1
        self.wasted: list[int] = []  # charged after the last round that is over
        self.seconds = 0.0
        self.ended = False  # by the plan or by the limits

    def go_on(self) -> None:
        """Take up where the folder's checkpoint ends."""
        assert self.folder is not None  # noqa: S101 - only a run with a folder can be resumed
        last, parameters = self.folder.checkpoint()
        self.lines = self.folder.forget_after(last)
        self.first = last + 1
        self.parameters = self.parameters if parameters is None else parameters
        self.state = self.folder.server_state(self.state)

    @property
    def rounds_left(self) -> int:
        """How many rounds the plan still has."""
        return self.study.plan.rounds - self.first + 1

    @property
    def stopped(self) -> str:
        """Why there are no more rounds, as a sentence."""
        done, planned = len(self.lines), self.study.plan.rounds
        if done == planned:
            return "all rounds are done"
        if self._stopped_by_choice:
            return f"after round {done} of {planned}: it was stopped by choice"
        return f"after round {done} of {planned}: too few devices had budget left for another round"

    @property
    def _stopped_by_choice(self) -> bool:
        """Whether somebody ended it who may have looked at its results, and neither plan nor limits did."""
        return not self.ended and len(self.lines) < self.study.plan.rounds

    def begin(self) -> None:
        """Write what is run, unless it is written."""
        if self.folder is not None and not (self.folder.path / "run.json").exists():
            self.folder.begin(self.described())

    def rounds(self) -> Iterator[RoundLine]:
        """Every round as it ends, as its line of rounds.jsonl; what is done is on disk by then."""
        self.begin()
        study, begin = self.study, time.monotonic()
        begin -= sum(line.seconds for line in self.lines[-1:])  # what a run that goes on has taken so far
        with ExitStack() as stack:
            path = None if self.folder is None else self.folder.path
            if self.log is not None and path is not None:
                stack.push(self.log.stop)
                self.log.begin(path, study, self.lines)
            books = stack.enter_context(self._books(self.first if self.traits.repeats else None))
            place = self._place(books, path)
            steps = federation.rounds(
                study.plan,
                place,
                self.parameters,
                grid=study.codec.grid,
                seed=study.seed,
                may_join=books.may_join,
                smallest_cohort=min(study.secure.smallest_sum, study.plan.cohort),
                participation=study.participation,
                first=self.first,
                first_attempt=place.first_attempt(self.first),
                counts=_participation(self.lines, study.plan.devices),
                server=self.server,
                state=self.state,
            )
            for step in steps:
                self.parameters = step.parameters
                line = self._line(step, books, time.monotonic() - begin)
                self.lines.append(line)
                if isinstance(place, Rehearsed):
                    self.sight = _sight(study, place, step)
                if self.folder is not None:
                    # A simulation repeats rounds bit for bit; a rehearsal would have to pay for them again.
                    kept = not self.traits.repeats or self._due(step.round)
                    self.folder.add_round(line, step.parameters if kept else None, step.state)
                if self.log is not None:
                    self.log.round(line)
                yield line
            self.ended = True
            self.wasted = self._wasted(books, self.lines)
            self.seconds = time.monotonic() - begin

    def _books(self, before: int | None = None) -> Books:
        """The ledgers; where there are none, the rounds so far tell who took part how often."""
        books = Books(self.study, None if self.folder is None else self.folder.path / "ledgers", before=before)
        if not books.on_disk:
            books.rounds[:] = charged_rounds(self.lines, self.study.plan.devices, self.wasted)
        return books

    def _place(self, books: Books, path: Path | None) -> Simulated | Rehearsed:
        if self.traits.repeats:
            return Simulated(self.study, books, drop=self.drop)
        return Rehearsed(self.study, books, folder=None if path is None else path / DEVICES, drop=self.drop)

    def _line(self, step: federation.Step, books: Books, seconds: float) -> RoundLine:
        told = self.study.plan.devices <= 200 and self.study.costs.private
        line = RoundLine(
            round=step.round,
            seconds=round(seconds, 3),
            cohort=step.cohort,
            included=step.included,
            test=self._metrics(step.parameters) if self._due(step.round) else {},
            note=step.note,
            spent=tuple(round(epsilon, 6) for epsilon in books.spent()) if told else (),
        )
        return msgspec.structs.replace(line, wasted=tuple(self._wasted(books, [*self.lines, line])))

    def _wasted(self, books: Books, lines: list[RoundLine]) -> list[int]:
        """The devices that were charged and are not in these lines, each as often: attempts that failed."""
        unseen = books.rounds - charged_rounds(lines, self.study.plan.devices)
        return [int(device) for device in np.repeat(np.arange(len(unseen)), np.maximum(unseen, 0))]

    def _metrics(self, parameters: NDArray[np.float32]) -> dict[str, float]:
        """How good the model is on the test rows; nothing where all rows are trained on."""
        if not len(self.study.split.test.labels):
            return {}
        study, wanted = self.study, self.study.job.run.gradient_norm
        return metrics(study.model, parameters, study.split.test, study.data.target, gradient_norm=wanted)

    def _due(self, round: int) -> bool:
        """Whether the model is evaluated after this round: every so many rounds, and after the last one planned."""
        return round % self.study.job.run.evaluate_every == 0 or round == self.study.plan.rounds

    def described(self) -> About:
        """What is run, for run.json; docs/run-folder.md has the form."""
        study, data = self.study, self.study.data
        return About(
            format=FORMAT,
            choral=__version__,
            kind=self.kind,
            seeded=study.seeded,
            seed=study.seed,
            drop=self.drop,
            compare=self.compare,
            name=study.name,
            started=now(),
            job=study.job.text,
            job_source=study.job.source,
            in_memory=study.in_memory,
            data=Data(
                source=study.source,
                devices=data.records.devices,
                rows=len(data.records.labels),
                features=len(data.features),
                classes=tuple(data.classes),
                label_bounds=None if data.target is None else (data.target.low, data.target.high),
                columns_from=data.columns_from,
                notes=tuple(data.notes),
                hold_out=f"{study.job.data.test:.0%} of each device's rows is public test data,"
                f" {study.job.data.validation:.0%} is for validation",
            ),
            plan=study.plan,
            plan_digest=study.plan.digest,
            secure_sum=study.secure,
            server=described(self.server),
            model=model_shape(study.model),
            delta=study.limits[0].delta,
            planned=planned_statement(study.costs),
            devices=tuple(
                DeviceLimit(name=name, rows=int(rows), limit=limit.epsilon)
                for name, rows, limit in zip(data.records.names, study.split.train.sizes, study.limits, strict=True)
            ),
            versions=versions(),
        )

    def finish(self) -> Result:
        """Run what is left, write what a reader needs, and give the result."""
        for _ in self.rounds():
            pass
        return self.conclude()

    def conclude(self) -> Result:
        """The result of rounds that are over."""
        study, data = self.study, self.study.data
        with self._books() as books:
            privacy = privacy_statement(study.costs, books.rounds, stopped=self._stopped_by_choice)
            ledgers = books.on_disk
        test = (self.lines[-1].test if self.lines else {}) or self._metrics(self.parameters)
        compared = baselines(study, self.watch) if self.compare else Baselines(without_privacy=None, alone=None)
        told = self._outcome(test, compared, privacy)
        if self.folder is not None:
            card = model_card(study.model, data.classes, data.features, data.columns, data.target)
            self.folder.write_model(self.parameters, card)
            if signs(self.kind, seeded=study.seeded, ledgers=ledgers):
                names, run = study.data.records.names, study.plan.digest
                sign_off(self.folder.path, names, run=run, result=told, parameters=self.parameters)
            self.folder.finish(told)
            if self.log is not None:
                self.log.end(told)
        return Result(
            model=study.model,
            parameters=self.parameters,
            classes=study.data.classes,
            columns=study.data.columns,
            target=study.data.target,
            privacy=privacy,
            test=test,
            baselines=compared,
            history=self.lines,
            record=self._record(told),
            folder=None if self.folder is None else self.folder.path,
        )

    def _record(self, told: Outcome) -> RunRecord:
        """The run as its folder tells it, or would tell it if it had one."""
        if self.folder is not None:
            return read_run(self.folder.path)
        return RunRecord(folder=Path(), about=self.described(), rounds=self.lines, result=told)

    def _outcome(self, test: dict[str, float], compared: Baselines, privacy: Statement) -> Outcome:
        shown = 0 if self.sight is None else len(self.sight.computed)
        return Outcome(
            finished=now(),
            seconds=round(self.seconds, 3),
            rounds_done=len(self.lines),
            stopped=self.stopped,
            wasted=tuple(self.wasted),
            test=test,
            baselines=compared,
            privacy=privacy,
            sight=self.sight,
            releases=releases(self.study.plan, len(self.lines), compare=self.compare, shown=shown),
            files={},
        )


def _share(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 or math.isnan(value):
        raise ConfigError("CH102", f"{name} = {value!r}.", fix="Must be a number from 0 to below 1.")
    return float(value)


def _participation(lines: list[RoundLine], devices: int) -> NDArray[np.int64]:
    """In how many rounds each device took part, as far as the lines tell."""
    took_part = [device for line in lines for device in line.included]
    return np.bincount(np.array(took_part, dtype=np.int64), minlength=devices)


def _sight(study: Study, place: Rehearsed, step: federation.Step) -> Sight:
    """What one device computed beside what the server received of it, unless the run is to repeat: masks never do."""
    device = step.included[0]
    upload = place.hall.last[device][-place.terms.upload_bytes :]
    words = np.frombuffer(upload, dtype=ring(study.codec.word_bits))
    return Sight(
        device=study.data.records.names[device],
        round=step.round,
        computed=tuple(round(float(value), 6) for value in place.latest[device][:64]),
        received=None if study.seeded else tuple(int(word) for word in words[:64]),
    )
