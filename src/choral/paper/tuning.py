"""What was measured before, and which candidate the validation rows prefer: the test rows are read after the choice."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import choral
from choral.errors import StorageError
from choral.paper.adult import DEVICES
from choral.paper.experiment import Curve, Experiment, Part, alone, curve
from choral.paper.numbers import last, spread
from choral.privacy.calibrate import Rule
from choral.run.folder import write_whole

NEAR = 0.0015  # of validation accuracy: closer candidates are told apart by their loss


class Shelf:
    """What was measured before, one file an experiment: a reproduction goes on where it stopped."""

    def __init__(self, folder: Path, repeats: int, *, tell: Callable[[str], object] = lambda _: None) -> None:
        self.folder, self.repeats, self.tell = folder, repeats, tell
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                "CH801", f"can't be made: {error.strerror}.", where=str(folder), fix="Give another --out."
            ) from None

    def curves(self, experiment: Experiment) -> list[Curve]:
        """The curve of each repeat on its test rows: for what is not chosen among others."""
        return [self.curve(experiment, repeat, "test") for repeat in range(self.repeats)]

    def curve(self, experiment: Experiment, repeat: int, part: Part) -> Curve:
        """The curve of one repeat on one part of the rows."""
        found: Curve = self._kept(experiment, part, repeat, lambda: curve(experiment, repeat, part))
        return found

    def alone(self, experiment: Experiment, repeat: int) -> float:
        """The mean test accuracy of every device by itself."""
        found: float = self._kept(experiment, "alone", repeat, lambda: alone(experiment, repeat))
        return found

    def _kept(self, experiment: Experiment, what: str, repeat: int, measure: Callable[[], Any]) -> Any:  # noqa: ANN401 - JSON
        """What lies on the shelf, measured if it does not."""
        path, kept = self._file(experiment, what)
        if str(repeat) not in kept:
            self.tell(f"{experiment.model} τ={experiment.local_steps} σ={experiment.noise:.3g} repeat {repeat + 1}")
            kept[str(repeat)] = measure()
            write_whole(path, json.dumps(kept, indent=1).encode())
        return kept[str(repeat)]

    def _file(self, experiment: Experiment, what: str) -> tuple[Path, dict[str, Any]]:
        """Where an experiment lies, and what was measured of it."""
        described = {**experiment.described(), "measured": what, "version": choral.__version__}
        text = json.dumps(described, sort_keys=True)
        path = self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        try:
            return path, json.loads(path.read_text()) if path.exists() else {"experiment": described}
        except ValueError:
            raise StorageError(
                "CH802", "is not what was written.", where=str(path), fix="Delete it: it is measured again."
            ) from None


class Counting(Shelf):
    """A shelf that measures nothing and counts what a figure would have to measure, to tell how long it will take.

    What is chosen depends on what is measured, how much is measured does not.
    """

    def __init__(self, folder: Path, repeats: int) -> None:
        super().__init__(folder, repeats)
        self.missing: set[tuple[Path, int]] = set()

    def _kept(self, experiment: Experiment, what: str, repeat: int, measure: Callable[[], Any]) -> Any:  # noqa: ANN401, ARG002 - as above
        path, kept = self._file(experiment, what)
        if str(repeat) not in kept:
            self.missing.add((path, repeat))
        if what == "alone":
            return 0.5
        names = (f"{what}_accuracy", f"{what}_loss", *experiment.also)
        return {"round": list(range(1, experiment.looks + 1)), **{name: [0.5] * experiment.looks for name in names}}


def grid(base: Experiment, choices: dict[str, tuple[Any, ...]]) -> list[Experiment]:
    """Every combination of the choices, in order.

    >>> base = Experiment(model="logistic", rounds=1, local_steps=1, batch=61, step_size=1.0)
    >>> [one.step_size for one in grid(base, {"step_size": (1.0, 2.0), "clip": (1.0,)})]
    [1.0, 2.0]
    """
    return [replace(base, **dict(zip(choices, values, strict=True))) for values in product(*choices.values())]


@dataclass(frozen=True, kw_only=True)
class Method:
    """What was tried and chosen for each repeat, what it reached, and what may be said of its privacy."""

    tried: list[dict[str, Any]]
    chosen: list[Experiment]
    curves: list[Curve]
    privacy: dict[str, Any] | None

    @property
    def accuracy(self) -> list[float]:
        """Test accuracy at the end of each repeat."""
        return last(self.curves, "test_accuracy")

    def told(self) -> dict[str, Any]:
        """The method for a results file."""
        return {
            "test_accuracy": spread(self.accuracy),
            "chosen": [_setting(one) for one in self.chosen],
            "tried": self.tried,
            "privacy": self.privacy,
        }


def tuned(
    shelf: Shelf, candidates: Sequence[Experiment], rule: Rule | None = None, epsilon: float = 0.0, delta: float = 0.0
) -> Method:
    """For each repeat the candidate that its own validation rows prefer, each with the least noise for the budget.

    The lowest validation loss within 0.0015 of the best validation accuracy: accuracy alone picks at random among
    neighbours, some of them with a poor loss. Only what was chosen is then measured on the test rows.
    """
    if rule is not None:
        candidates = [one.within(rule, epsilon=epsilon, delta=delta) for one in candidates]
    chosen, curves, scores = [], [], []
    for repeat in range(shelf.repeats):
        found = [shelf.curve(one, repeat, "validation") for one in candidates]
        ends = [(one["validation_accuracy"][-1], one["validation_loss"][-1]) for one in found]
        best = max(accuracy for accuracy, _ in ends)
        near = [n for n, (accuracy, _) in enumerate(ends) if accuracy >= best - NEAR]
        pick = candidates[min(near, key=lambda n: ends[n][1])]
        chosen.append(pick)
        curves.append(shelf.curve(pick, repeat, "test"))
        scores.append(ends)
    tried = [
        {
            **_setting(one),
            "validation_accuracy": [ends[n][0] for ends in scores],
            "validation_loss": [ends[n][1] for ends in scores],
        }
        for n, one in enumerate(candidates)
    ]
    # Of the settings chosen the largest steps are the hardest to prove anything of.
    boldest = max(chosen, key=lambda one: one.step_size)
    return Method(tried=tried, chosen=chosen, curves=curves, privacy=boldest.privacy(rule, delta) if rule else None)


def anchors_of(shelf: Shelf, candidates: Sequence[Experiment]) -> tuple[Method, dict[str, dict[str, Any]]]:
    """FedAvg as its validation rows prefer it; and with its settings all rows in one place, and each device alone."""
    free = tuned(shelf, candidates)
    together = [shelf.curve(_central(one), repeat, "test") for repeat, one in enumerate(free.chosen)]
    by_itself = [shelf.alone(one, repeat) for repeat, one in enumerate(free.chosen)]
    return free, {
        "centralised": {"test_accuracy": spread(last(together, "test_accuracy"))},
        "each_alone": {"test_accuracy": spread([round(one, 6) for one in by_itself])},
    }


def _central(free: Experiment) -> Experiment:
    """All rows in one place: every device in every round, one step each, as many steps as the federated run makes."""
    return replace(free, cohort=DEVICES, local_steps=1, rounds=free.rounds * free.local_steps, looks=1, also=())


def levels(anchors: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The anchors of `anchors_of` as level lines of a panel."""
    means = {name: one["test_accuracy"]["mean"] for name, one in anchors.items()}
    return {"all rows in one place": means["centralised"], "each device alone": means["each_alone"]}


def _setting(one: Experiment) -> dict[str, Any]:
    """What differs between candidates."""
    told = one.described()
    names = ("local_steps", "batch", "step_size", "clip", "noise", "update_clip", "update_noise", "sampling")
    return {name: told[name] for name in names if told[name] not in ("none", 0.0)}
