"""Which candidate the validation rows prefer: the test rows are read after the choice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NotRequired, TypedDict

from choral.accounting.calibrate import Rule
from choral_lab.research.experiment import Curve, Experiment
from choral_lab.research.measurements import Measurements
from choral_lab.research.repeats import Paired, Spread, last, paired, spread

NEAR = 0.0015  # of validation accuracy: closer candidates are compared by their loss


def grid(base: Experiment, choices: dict[str, tuple[Any, ...]]) -> list[Experiment]:
    """Every combination of the choices, in order.

    >>> from choral.learning.models import logistic
    >>> from choral.tables.records import Records
    >>> from choral_lab.research.experiment import Task
    >>> task = Task.of("none", Records.of([("a", [[0.0]] * 10, [0] * 10)]), logistic)
    >>> base = Experiment(task=task, cohort=1, rounds=1, local_steps=1, batch=8, step_size=1.0)
    >>> [one.step_size for one in grid(base, {"step_size": (1.0, 2.0), "clip": (1.0,)})]
    [1.0, 2.0]
    """
    return [replace(base, **dict(zip(choices, values, strict=True))) for values in product(*choices.values())]


class MethodResults(TypedDict):
    """What a results file has of a method."""

    test_accuracy: Spread
    chosen: list[dict[str, object]]
    tried: list[dict[str, object]]
    privacy: dict[str, object] | None
    minus_non_private: NotRequired[Paired]


@dataclass(frozen=True, kw_only=True)
class Method:
    """What was tried and chosen for each repeat, what it reached, and what may be said of its privacy."""

    tried: list[dict[str, object]]
    chosen: list[Experiment]
    curves: list[Curve]
    privacy: dict[str, object] | None

    @property
    def accuracy(self) -> list[float]:
        """Test accuracy at the end of each repeat."""
        return last(self.curves, "test_accuracy")

    def results(self, *, non_private: "Method | None" = None) -> MethodResults:
        """The method for a results file, compared with the one without privacy if it is given."""
        found = MethodResults(
            test_accuracy=spread(self.accuracy),
            chosen=[_setting(one) for one in self.chosen],
            tried=self.tried,
            privacy=self.privacy,
        )
        if non_private is not None:
            found["minus_non_private"] = self.minus(non_private)
        return found

    def minus(self, other: "Method") -> Paired:
        """The accuracy beyond another method's, repeat by repeat."""
        return paired(self.accuracy, other.accuracy)


def tuned(
    measurements: Measurements,
    candidates: Sequence[Experiment],
    rule: Rule | None = None,
    epsilon: float = 0.0,
    delta: float = 0.0,
) -> Method:
    """For each repeat the candidate that its own validation rows prefer, each with the least noise for the budget.

    The lowest validation loss within 0.0015 of the best validation accuracy: accuracy alone picks at random among
    neighbours, some of them with a poor loss. Only what was chosen is then measured on the test rows.
    """
    if rule is not None:
        candidates = [one.within(rule, epsilon=epsilon, delta=delta) for one in candidates]
    measurements.together(candidates, "validation")
    chosen, curves, scores = [], [], []
    for repeat in range(measurements.repeats):
        found = [measurements.curve(one, repeat, "validation") for one in candidates]
        ends = [(one["validation_accuracy"][-1], one["validation_loss"][-1]) for one in found]
        best = max(accuracy for accuracy, _ in ends)
        near = [n for n, (accuracy, _) in enumerate(ends) if accuracy >= best - NEAR]
        pick = candidates[min(near, key=lambda n: ends[n][1])]
        chosen.append(pick)
        curves.append(measurements.curve(pick, repeat, "test"))
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


def validated(measurements: Measurements, candidates: Sequence[Experiment]) -> list[float]:
    """The best validation accuracy of each repeat: for what is to be chosen before any test row is read."""
    measurements.together(candidates, "validation")
    found = (
        [measurements.curve(one, repeat, "validation") for one in candidates] for repeat in range(measurements.repeats)
    )
    return [max(last(curves, "validation_accuracy")) for curves in found]


def budgeted(candidates: Sequence[Experiment], rule: Rule, epsilons: Sequence[float], delta: float) -> list[Experiment]:
    """Every candidate at every ε, with the least noise for it: what `tuned_over` will ask for."""
    return [one.within(rule, epsilon=epsilon, delta=delta) for epsilon in epsilons for one in candidates]


def tuned_over(
    measurements: Measurements, candidates: Sequence[Experiment], rule: Rule, epsilons: Sequence[float], delta: float
) -> dict[str, Method]:
    """The same for several budgets, by their ε; all are trained together."""
    measurements.together(budgeted(candidates, rule, epsilons, delta), "validation")
    return {f"{one:g}": tuned(measurements, candidates, rule, one, delta) for one in epsilons}


def over_epsilon(methods: Mapping[str, Method]) -> list[Curve]:
    """Where the methods of several budgets end, as a curve over ε for each repeat.

    >>> ends = {"0.5": 0.8, "1": 0.85}.items()
    >>> methods = {at: Method(tried=[], chosen=[], curves=[{"test_accuracy": [end]}], privacy=None) for at, end in ends}
    >>> over_epsilon(methods)
    [{'ε': [0.5, 1.0], 'test_accuracy': [0.8, 0.85]}]
    """
    by_repeat = zip(*(one.accuracy for one in methods.values()), strict=True)
    return [{"ε": [float(one) for one in methods], "test_accuracy": list(values)} for values in by_repeat]


def _setting(one: Experiment) -> dict[str, object]:
    """What differs between candidates."""
    described = one.described()
    names = (
        "local_steps", "batch", "step_size", "clip", "noise", "update_clip", "update_noise", "sampling",
        "noise_is_added", "row_length",
    )  # fmt: skip
    return {name: described[name] for name in names if described[name] not in ("none", 0.0, "every step")}
