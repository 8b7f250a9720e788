"""A run's figures for MLflow or TensorBoard: an extra, off by default, on this machine unless the user says otherwise.

What is logged is in rounds.jsonl and result.json as well: metrics on the public test rows, ε and the plan; no record,
no update, no name of a device.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from choral.core.errors import ChoralError, ConfigError, StorageError

if TYPE_CHECKING:
    from choral.record import Outcome, RoundLine
    from choral.run.study import Study

Figures = Mapping[str, float]


class Writer(Protocol):
    """What a log needs of a program that keeps figures."""

    def about(self, facts: Mapping[str, str]) -> None:
        """Note what is run."""

    def add(self, figures: Figures, round_number: int) -> None:
        """Note the figures of a round."""

    def close(self, *, ended: bool) -> None:
        """Note that nothing more comes, and whether the run came to its end."""


class TensorBoard:
    """Event files in the folder `tensorboard` of the run."""

    def __init__(self, package: Any, folder: Path, name: str) -> None:  # noqa: ANN401, ARG002 - an optional package
        # A log that was begun before is shown no more: this one starts again at the first round.
        self._writer = package.SummaryWriter(logdir=str(folder / "tensorboard"), purge_step=0)

    def about(self, facts: Mapping[str, str]) -> None:
        """One text for each."""
        for name, text in facts.items():
            self._writer.add_text(f"about/{name}", text, 0)

    def add(self, figures: Figures, round_number: int) -> None:
        """One scalar for each, on disk at once."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, round_number)
        self._writer.flush()

    def close(self, *, ended: bool) -> None:  # noqa: ARG002 - event files do not tell how a run ended
        """Close the file."""
        self._writer.close()


class MLflow:
    """A run of the experiment `choral`, in `mlflow.db` of the run's folder or where MLFLOW_TRACKING_URI says."""

    def __init__(self, package: Any, folder: Path, name: str) -> None:  # noqa: ANN401 - as above
        logging.getLogger("mlflow").setLevel(logging.WARNING)  # it tells at length how it makes its tables
        store = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.resolve() / 'mlflow.db'}"
        self._client = package.MlflowClient(tracking_uri=store)
        known = self._client.get_experiment_by_name("choral")
        experiment = known.experiment_id if known else self._client.create_experiment("choral")
        self._run = self._client.create_run(experiment, run_name=name).info.run_id

    def about(self, facts: Mapping[str, str]) -> None:
        """One parameter for each."""
        for name, text in facts.items():
            self._client.log_param(self._run, name, text)

    def add(self, figures: Figures, round_number: int) -> None:
        """One metric for each."""
        for name, value in figures.items():
            self._client.log_metric(self._run, name, value, step=round_number)

    def close(self, *, ended: bool) -> None:
        """Mark the run as finished or killed."""
        self._client.set_terminated(self._run, status="FINISHED" if ended else "KILLED")


# Name -> the module that it needs, and the writer that is made of it.
WRITERS: dict[str, tuple[str, Callable[[Any, Path, str], Writer]]] = {
    "mlflow": ("mlflow", MLflow),
    "tensorboard": ("tensorboardX", TensorBoard),
}


class RunLog:
    """A run's figures on their way to a writer; a missing package is reported before anything is started.

    >>> RunLog("paper")
    Traceback (most recent call last):
    choral.core.errors.ConfigError: CH102 log = 'paper'. Must be "mlflow" or "tensorboard".
    """

    def __init__(self, kind: str) -> None:
        if kind not in WRITERS:
            known = " or ".join(f'"{name}"' for name in WRITERS)
            raise ConfigError("CH102", f"log = {kind!r}.", fix=f"Must be {known}.")
        module, self._make = WRITERS[kind]
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # choral tells nobody anything
        try:
            self._package = import_module(module)
        except ImportError:
            fix = f"pip install 'choral[{kind}]'"
            raise ConfigError("CH106", f"a log for {kind} needs {module}.", fix=fix) from None
        self.kind = kind
        self._writer: Writer | None = None

    def begin(self, folder: Path, study: "Study", lines: Sequence["RoundLine"]) -> None:
        """Open the log and note what is run; a run that goes on is logged from its first round."""
        with self._reporting():
            self._writer = self._make(self._package, folder, study.name)
            self._writer.about(_about(study))
        for line in lines:
            self.round(line)

    def round(self, line: "RoundLine") -> None:
        """Note a round's line of rounds.jsonl."""
        figures = {f"test/{name}": value for name, value in line.test.items()}
        if line.spent:
            figures["privacy/largest_epsilon"] = max(line.spent)
        self._add(figures, line.round)

    def end(self, result: "Outcome") -> None:
        """Note the result, as in result.json, and close the log."""
        figures = {f"result/{name}": value for name, value in result.test.items()}
        others = {
            "without_privacy": result.baselines.without_privacy,
            "alone": result.baselines.alone,
            "most_common": result.baselines.most_common,
        }
        figures |= {f"result/{name}": value for name, value in others.items() if value is not None}
        if result.privacy.none is None:
            figures["result/largest_epsilon"] = result.privacy.against_everyone.epsilon
        self._add(figures, result.rounds_done)
        self._close(ended=True)

    def stop(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,  # noqa: ARG002 - the form of an exit from a context
        at: TracebackType | None,  # noqa: ARG002
    ) -> None:
        """Close the log of a run that is interrupted."""
        if kind is not None:
            self._close(ended=False)

    def _add(self, figures: Figures, round_number: int) -> None:
        if self._writer is not None:
            with self._reporting():
                self._writer.add(figures, round_number)

    def _close(self, *, ended: bool) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with self._reporting():
                writer.close(ended=ended)

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Whatever the package raises, without a traceback."""
        try:
            yield
        except ChoralError:
            raise
        except Exception as error:
            self._writer = None  # what failed once is not asked again
            raise StorageError(
                "CH801",
                f"{self.kind} can't keep the log ({type(error).__name__}).",
                fix="The run is kept: choral resume RUN goes on, without --log if need be.",
            ) from error


def _about(study: "Study") -> dict[str, str]:
    """What is run, in public numbers, and what the ε of the log mean."""
    seeded = "seeded: the noise can be predicted" if study.seeded else "not seeded"
    epsilon = "no noise was added: nothing is protected"
    if study.costs.private:
        by = study.costs.limited_by(0)
        names = by.rule if study.costs.trusts_sum else " and ".join(study.costs.every_rule)
        epsilon = (
            f"ε is the largest over the devices, at δ = {study.limits[0].delta:g}: "
            f"{by.adjacency}, rule {names}, against {by.adversary}"
        )
    plan = {name: str(value) for name, value in study.plan.to_dict().items()}
    return {"privacy": epsilon, "seed": seeded, "model": study.model.name, **plan, "plan_digest": study.plan.digest}
