"""A run, started or resumed: a study, a place and a folder joined; and how good its model is."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from platform import machine, python_implementation, python_version, system
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from choral import __version__, config, federation
from choral.config import Job
from choral.core.errors import ConfigError, StorageError
from choral.core.plan import CODECS
from choral.learning.converged import converged
from choral.learning.evaluate import Evaluation, decide, evaluate, explained, predict, squared_gradient_norm
from choral.learning.persons import rows_of
from choral.learning.torch_door import named_maker
from choral.planner.prospect import happened
from choral.record import (
    FORMAT,
    MERITS,
    PAGES,
    About,
    Baselines,
    Data,
    DeviceLimit,
    Measured,
    ModelCard,
    ModelShape,
    Outcome,
    RoundLine,
    RunRecord,
    Sight,
    joined_rounds,
    read_questions,
    read_run,
    traits,
)
from choral.run.folder import Log, RunFolder, Watch, now, unheard, unwatched, versions
from choral.run.modelling import require_training, shape_of, sums_of
from choral.run.places import MOST_SHOWN, PLACES, Place, engine_of
from choral.run.planning import server_step_of, settle
from choral.run.result import Result, model_card, model_shape
from choral.run.statement import planned_statement, privacy_statement, releases
from choral.run.study import Study, codec_of
from choral.server_step import described
from choral.tables.reading import DataSource
from choral.tables.records import Records

Kind = Literal["simulation", "rehearsal"]
LONG = 100  # rounds, from which on some are tried for how long they take
TRIALS, MOST_TRIED = 3, 2.0  # so many, and no further one after so many seconds


def resume(
    path: str | Path,
    data: DataSource = None,
    *,
    model: object = None,
    log: Log | None = None,
    reached: Callable[[], None] = unheard,
) -> "Run":
    """A run that was interrupted, ready to go on after its last finished round; `data` only if it was in memory.

    `model` is what it was started with, where that was no name and no function of a module.
    """
    about, study = settled_again(path, data, model=model, reached=reached)
    require_training(study.job)
    folder = RunFolder(Path(path))
    kind: Kind = "simulation" if about.traits.repeats else "rehearsal"
    run = Run(kind, study, folder=folder, drop=about.drop or 0.0, compare=bool(about.compare), log=log)
    run.go_on()
    return run


def settled_again(
    path: str | Path,
    data: DataSource = None,
    *,
    model: object = None,
    keep_tables: bool = False,
    reached: Callable[[], None] = unheard,
) -> tuple[About, Study]:
    """It reads what a run that has not ended was, and its study; CH802 where data or settings are others by now."""
    about = read_run(path).about
    if about.traits.deployed:
        raise StorageError("CH802", "is a deployment.", where=str(path), fix="choral server run STUDY goes on with it.")
    if (Path(path) / "result.json").exists():
        raise StorageError(
            "CH800", "is finished.", where=str(path), fix="Read it with choral report, or start a new run."
        )
    job = config.parse(about.job, source=about.job_source or "run.json")
    if model is not None:
        job = replace(job, maker=named_maker(model)[1])
    if data is None and about.in_memory:
        raise StorageError(
            "CH802",
            "was run on data in memory.",
            where=str(path),
            fix="Give the same data: choral.resume(folder, data).finish().",
        )
    study = settle(
        job, data, seed=about.seed, seeded=about.seeded, keep_tables=keep_tables, guess=about.traits.repeats,
        reached=reached,
    )  # fmt: skip
    if about.plan.codec < CODECS:  # an earlier version planned it: its reserves of δ, and the noise for what they left
        begun = {name: getattr(about.plan, name) for name in ("noise", "overflow", "out_of_range", "codec")}
        plan = replace(study.plan, **begun)
        study = replace(study, plan=plan, codec=codec_of(plan, study.secure, study.model))
    if study.plan.digest != about.plan_digest:
        raise StorageError(
            "CH802",
            "was planned for other data or settings than are here now.",
            where=str(path),
            fix="Restore the data and choral.toml as they were, or start a new run.",
        )
    if about.secure_sum is not None:  # the defaults may have changed since
        codec = codec_of(study.plan, about.secure_sum, study.model)
        study = replace(study, secure=about.secure_sum, codec=codec)
    return about, study


def job_and_source(data: DataSource, settings: dict[str, Any]) -> tuple[Job, DataSource]:
    """The job of a choral.toml, in which settings given by name count, or of settings alone, and the data."""
    if isinstance(data, str | Path) and Path(data).suffix == ".toml":
        return config.read(data, **settings), None
    if isinstance(data, Job):
        if given := [name for name, value in settings.items() if value is not None]:
            raise ConfigError("CH104", f'"{given[0]}" is given with a job.', fix="Give the file or its settings.")
        return data, None
    return config.job_of(**settings), data


class Run:
    """One run under way, wherever it takes place: iterate over its rounds, or `finish` it at once."""

    def __init__(
        self,
        where: Kind | Place,
        study: Study,
        *,
        folder: RunFolder | None = None,
        drop: float = 0.0,
        compare: bool = False,
        log: Log | None = None,
    ) -> None:
        """`where` is a place, or the kind of a run in this process; of its devices the share `drop` drops out."""
        if isinstance(where, str):
            where = PLACES[where](study, folder=None if folder is None else folder.path, drop=drop)
        self.place, self.kind, self.traits = where, where.kind, traits(where.kind)
        self.study, self.folder, self.compare, self.log = study, folder, compare, log
        judges = (study.split.validation, study.split.test)
        if compare and not all(len(rows.labels) for rows in judges):
            raise ConfigError(
                "CH104",
                "compare, but no rows are kept to judge by.",
                fix="Leave compare out, or keep both validation and test above 0 in [data].",
            )
        self.watch: Watch = unwatched
        self.lines: list[RoundLine] = []
        self.sent: NDArray[np.float32] = study.trained.start(0)
        self.server = server_step_of(study)
        self.state = self.server.init(self.sent)
        self.sight: Sight | None = None
        self.baselines = Baselines(without_privacy=None, alone=None)
        self.first = 1
        self.wasted: list[int] = []  # charged after the last round that is over
        self.seconds = 0.0
        self.ended = False  # by the plan or by the limits

    def go_on(self) -> None:
        """Take up where the folder's checkpoint ends."""
        assert self.folder is not None  # noqa: S101 - only a run with a folder can be resumed
        last, sent = self.folder.checkpoint()
        self.lines = self.folder.forget_after(last)
        self.first = last + 1
        self.sent = self.sent if sent is None else sent
        self.state = self.folder.server_state(self.state)

    @property
    def parameters(self) -> NDArray[np.float32]:
        """The model's parameters: what is sent to devices, without a clip that goes along."""
        return self.sent[: self.study.model.size]

    @property
    def rounds_left(self) -> int:
        """It says how many rounds the plan still has."""
        return self.study.plan.rounds - self.first + 1

    def seconds_ahead(self) -> float:
        """The rounds that are left take at least so long here, measured; 0.0 where they are too few to ask.

        Measured are rounds of training that nobody pays for or keeps, and what it takes to work out the ε of a round in
        the middle of the run. Masks, files and tests come on top.
        """
        study, left = self.study, self.rounds_left
        if left < LONG:
            return 0.0
        engine, cohort, parameters = engine_of(study), np.arange(study.plan.cohort), study.trained.start(0)
        seconds, begin = math.inf, time.monotonic()
        for number in range(TRIALS):  # the fastest one: the first is compiled on the way
            began = time.monotonic()
            engine.train(parameters, number, cohort)
            seconds = min(seconds, time.monotonic() - began)
            if time.monotonic() - begin > MOST_TRIED:
                break
        began = time.monotonic()
        if study.costs.private and study.plan.devices <= MOST_SHOWN:
            study.costs.spent_by_all(np.minimum(study.costs.allowed_rounds, study.plan.rounds - left // 2))
        return left * (seconds + time.monotonic() - began)

    @property
    def stopped(self) -> str:
        """It says why there are no more rounds, as a sentence."""
        done, planned = len(self.lines), self.study.plan.rounds
        if done == planned:
            return "all rounds are done"
        return f"after round {done} of {planned}: {self.place.why(chosen=self._stopped_by_choice)}"

    @property
    def _stopped_by_choice(self) -> bool:
        """It says whether somebody ended it who may have looked at its results, and neither plan nor limits did."""
        return len(self.lines) < self.study.plan.rounds and (self.place.chosen or not self.ended)

    def begin(self) -> None:
        """Write what is run, unless it is written."""
        if self.folder is not None and not (self.folder.path / "run.json").exists():
            self.folder.begin(self.described())

    def rounds(self) -> Iterator[RoundLine]:
        """Every round as it ends, as its line of rounds.jsonl; what is done is on disk by then."""
        self.begin()
        study, place, begin = self.study, self.place, time.monotonic()
        begin -= sum(line.seconds for line in self.lines[-1:])  # what a run that goes on has taken so far
        with ExitStack() as stack:
            if self.log is not None and self.folder is not None:
                stack.push(self.log.stop)
                self.log.begin(self.folder.path, study, self.lines)
            first, attempt = self.first, stack.enter_context(place.opened(self.lines, first=self.first))
            if note := place.out_of_attempts():
                yield self._over(self._passed_over(note), time.monotonic() - begin)
                first, attempt = first + 1, 0
            steps = federation.rounds(
                study.plan,
                place,
                self.sent,
                grid=study.codec.grid,
                seed=study.seed,
                smallest_cohort=min(study.secure.smallest_sum, study.plan.cohort),
                participation=study.participation,
                first=first,
                first_attempt=attempt,
                counts=joined_rounds(self.lines, study.plan.devices),
                server=self.server,
                state=self.state,
            )
            for step in steps:
                self.sight = place.sight(step)
                yield self._over(step, time.monotonic() - begin)
            self.ended = True
            self.wasted = place.wasted(self.lines)
            self.seconds = time.monotonic() - begin

    def _passed_over(self, note: str) -> federation.Step:
        """A round that can't be tried any more: the model stays as it is, and the next round is due."""
        return federation.Step(
            round=self.first, cohort=(), included=(), parameters=self.sent, state=self.state, note=note
        )

    def _over(self, step: federation.Step, seconds: float) -> RoundLine:
        """The line of a round that is over, on disk and in the log."""
        self.sent = step.parameters
        due = self._due(step.round)
        line = RoundLine(
            round=step.round,
            seconds=round(seconds, 3),
            cohort=step.cohort,
            included=step.included,
            test=metrics(self.study, self.parameters) if due else {},
            note=step.note,
        )
        line = self.place.noted(line, self.lines)
        self.lines.append(line)
        if self.folder is not None:
            # A simulation repeats rounds bit for bit; others would have to pay for them again.
            kept = due or not self.traits.repeats
            probed = self.place.probed
            if probed is not None and probed.round == step.round:  # of a round that was passed over nobody was asked
                self.folder.add_probes(probed)
            self.folder.add_round(line, step.parameters if kept else None, step.state)
        if self.log is not None:
            self.log.round(line)
        return line

    def _due(self, round_number: int) -> bool:
        """The model is evaluated after every so many rounds, and after the last one planned.

        A deployment's rounds are few and long: its coordinator follows each of them.
        """
        last = round_number == self.study.plan.rounds
        return last or self.traits.deployed or round_number % self.study.job.run.evaluate_every == 0

    def shape(self) -> ModelShape:
        """The kind of the model and its size."""
        return shape_of(self.study.job) if self.study.job.on_sums else model_shape(self.study.model)

    def described(self) -> About:
        """It is what is run, for run.json; docs/run-folder.md has the form."""
        study, data = self.study, self.study.data
        about = About(
            format=FORMAT,
            choral=__version__,
            kind=self.kind,
            seeded=study.seeded,
            compare=None if self.traits.deployed else self.compare,
            name=study.name,
            started=now(),
            job=study.job.text,
            data=Data(
                source=study.source,
                devices=data.records.devices,
                rows=len(data.records.labels),
                features=len(data.features),
                classes=data.classes,
                label_bounds=data.label_bounds,
                columns_from=data.columns_from,
                notes=data.notes,
                hold_out=self.place.hold_out,
            ),
            plan=study.plan,
            plan_digest=study.plan.digest,
            secure_sum=study.secure,
            server=described(self.server),
            model=self.shape(),
            sums=sums_of(study.job) if study.job.on_sums else None,
            delta=study.limits[0].delta,
            against=study.costs.against,
            planned=planned_statement(study.costs),
            devices=tuple(
                DeviceLimit(name=name, rows=int(rows), limit=limit.epsilon)
                for name, rows, limit in zip(data.records.names, study.rows, study.limits, strict=True)
            ),
            versions=versions(),
            made_with=f"{python_implementation()} {python_version()} on {system()} {machine()}",
            pages=PAGES,
        )
        return self.place.described(about)

    def finish(self) -> Result:
        """Run what is left, write what a reader needs, and give the result."""
        for _ in self.rounds():
            pass
        return self.conclude()

    def card(self) -> ModelCard:
        """It is what is needed to use the parameters."""
        return model_card(self.study.model, self.study.data)

    def conclude(self) -> Result:
        """The result of rounds that are over."""
        study, data, outcome = self.study, self.study.data, self.write_result()
        return Result(
            model=study.model,
            parameters=self.parameters,
            classes=data.classes,
            columns=data.columns,
            target=data.target,
            label_type=data.label_type,
            encoder=data.encoder,
            written=study.job.data.written,
            privacy=outcome.privacy,
            test=outcome.test,
            baselines=outcome.baselines,
            history=self.lines,
            record=self._record(outcome),
            folder=None if self.folder is None else self.folder.path,
            judged=None if self.traits.deployed else study.split.test,
        )

    def write_result(self) -> Outcome:
        """It is what came out, in the folder with all that a reader needs."""
        if self.compare:
            self.baselines = baselines(self.study, self.watch)
        if self.folder is not None:
            self.folder.write_model(self.parameters, self.card())
        outcome = self.place.ended(self)
        if self.folder is not None:
            self.folder.finish(outcome)
            if self.log is not None:
                self.log.end(outcome)
        return outcome

    def _record(self, outcome: Outcome) -> RunRecord:
        """The run as its folder describes it, or would if it had one."""
        if self.folder is not None:
            return read_run(self.folder.path)
        return RunRecord(folder=Path(), about=self.described(), rounds=self.lines, result=outcome)

    def merits(self) -> tuple[dict[str, float], Measured | None]:
        """The test figures of the model, and what says how sure they are."""
        test = (self.lines[-1].test if self.lines else {}) or metrics(self.study, self.parameters)
        return test, measured(self.study, self.parameters)

    def outcome(self, lost: Sequence[int] = ()) -> Outcome:
        """The result; `lost` are the devices that paid for an upload which never arrived, each as often."""
        plan, done, wasted = self.study.plan, len(self.lines), sorted([*self.wasted, *lost])
        charged = self.place.charged(self.lines, wasted)
        shown = 0 if self.sight is None else len(self.sight.computed)
        asked = 0 if self.folder is None else len(list(read_questions(self.folder.path)))
        sizes = not self.traits.deployed
        seen_by = "the server and devices of the cohort" if self.traits.masked else "the server"  # who mask see lists
        test, sure = self.merits()
        return Outcome(
            finished=now(),
            seconds=round(self.seconds, 3),
            rounds_done=done,
            stopped=self.stopped,
            wasted=tuple(wasted),
            test=test,
            measured=sure,
            baselines=self.baselines,
            verdict=happened(test, sure, self.baselines),
            privacy=privacy_statement(
                self.study.costs,
                charged,
                joined=joined_rounds(self.lines, plan.devices),
                refused=self.place.refused(),
                stopped=self._stopped_by_choice,
            ),
            sight=self.sight,
            releases=releases(
                plan, done, compare=self.compare, sizes=sizes, seen_by=seen_by, shown=shown, questions=asked
            ),
            files={},
        )


MEASURED = (*MERITS, "auc", "rmse", "gradient_norm")


def metrics(study: Study, parameters: NDArray[np.float32]) -> dict[str, float]:
    """Every figure that the kind of label has, on the study's test rows; none where there are no such rows."""
    model, rows, target = study.model, study.split.test, study.data.target
    if not len(rows.labels):
        return {}
    found = asdict(evaluate(model, parameters, rows))
    wanted = study.job.run.gradient_norm
    found["gradient_norm"] = squared_gradient_norm(model, parameters, rows) if wanted else None
    if target is not None:
        found["rmse"] *= target.unit  # the error of a number is in the label's own unit
    return {name: round(found[name], 6) for name in MEASURED if found[name] is not None}


def measured(study: Study, parameters: NDArray[np.float32]) -> Measured | None:
    """It says how sure the accuracy on test rows is, and the recall of each class; None without such rows."""
    rows = study.split.test
    count = len(rows.labels)
    if not count:
        return None
    if study.data.target is not None:
        return Measured(rows=count)
    shares = np.bincount(rows.labels, minlength=len(study.data.classes)) / count
    right = decide(predict(study.model, parameters, rows.features)) == rows.labels
    share = float(right.mean())
    recall = {
        name: round(float(right[rows.labels == number].mean()), 6)
        for number, name in enumerate(study.data.classes)
        if (rows.labels == number).any()
    }
    return Measured(
        rows=count,
        error=round(math.sqrt(share * (1 - share) / count), 6),
        recall=recall,
        rarest=round(float(shares.min()), 6),
        loss_error=round(evaluate(study.model, parameters, rows).loss_error, 6),
    )


MOST_ALONE = 20  # devices that are trained by themselves; of more, so many are drawn


def baselines(study: Study, watch: Watch = unwatched) -> Baselines:
    """The run's figure of merit for three others: all rows pooled, each device alone, and always the same answer.

    All are judged on the run's test rows. The first two are trained to convergence, with a ridge, or an end, that
    validation rows choose: everybody's, or the device's own.
    """
    split = study.split
    together, chosen = _whole(_training_rows(study)), _whole(split.validation)
    pooled = [_judged(study, converged(study.model, together, chosen)) for _ in watch([0], total=1, label="NO NOISE")]
    numbers = _some(study.plan.devices, study.seed)
    own: list[Evaluation] = []
    for number in watch(numbers, total=len(numbers), label="EACH ALONE"):
        own.append(_alone(study, int(number)))
    areas = [one.auc for one in own if one.auc is not None]
    return Baselines(
        without_privacy=_merit(pooled[0]),
        alone=float(np.mean([_merit(one) for one in own])),
        alone_devices=len(own),
        most_common=_same_answer(study),
        alone_loss=round(float(np.mean([one.loss for one in own])), 6) if study.data.target is None else None,
        alone_auc=round(float(np.mean(areas)), 6) if areas else None,
    )


def _training_rows(study: Study) -> Records:
    """The rows that are trained on, one by one, also where a unit of the plan is a person with several."""
    train = study.split.train
    return rows_of(train) if study.plan.protects.groups_rows else train


def _alone(study: Study, device: int) -> Evaluation:
    """The figures of a model that a device makes from its own rows, and chooses by them."""
    train, chosen = _training_rows(study), study.split.validation
    rows = Records.of([("", train.features_of(device), train.labels_of(device))], classes=train.classes)
    judges = Records.of([("", chosen.features_of(device), chosen.labels_of(device))], classes=train.classes)
    return _judged(study, converged(study.model, rows, judges))


def _some(devices: int, seed: int) -> NDArray[np.int64]:
    """All devices, or so many of them at random."""
    if devices <= MOST_ALONE:
        return np.arange(devices)
    return np.sort(np.random.default_rng([seed, 0xA10E]).choice(devices, MOST_ALONE, replace=False))


def _whole(records: Records) -> Records:
    """The rows of all devices as those of one."""
    return Records.of([("all", records.features, records.labels)], classes=records.classes)


def _same_answer(study: Study) -> float:
    """The figure of always saying the training rows' most common class, or their mean."""
    train, test = study.split.train.labels, study.split.test.labels
    if study.data.target is None:
        return float(np.mean(test == np.bincount(train).argmax()))
    return explained(float(np.square(test - train.mean(dtype=np.float64)).sum()), test) or 0.0


def _judged(study: Study, parameters: NDArray[np.float32]) -> Evaluation:
    return evaluate(study.model, parameters, study.split.test)


def _merit(found: Evaluation) -> float:
    return (found.r2 if found.accuracy is None else found.accuracy) or 0.0
