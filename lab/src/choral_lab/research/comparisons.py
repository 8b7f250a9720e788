"""What lines are compared with: no privacy, all rows in one place, each device alone, and the same at a proved ε."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from choral_lab.research.experiment import Curve, Experiment
from choral_lab.research.measurements import Measurements
from choral_lab.research.panels import Panel, panel
from choral_lab.research.repeats import last, spread
from choral_lab.research.tuning import Method, tuned, tuned_over


@dataclass(frozen=True, kw_only=True)
class Anchors:
    """FedAvg, with its settings all rows in one place and each device alone; and what is proved, by its ε."""

    free: Method
    centralised: list[float]
    each_alone: list[float]
    proved: Mapping[str, Method]

    def results(self) -> dict[str, object]:
        """For a results file."""
        proved = {epsilon: one.results(non_private=self.free) for epsilon, one in self.proved.items()}
        levels = {"centralised": self.centralised, "each_alone": self.each_alone}
        accuracies = {name: {"test_accuracy": spread(values)} for name, values in levels.items()}
        return {**({"proved": proved} if proved else {}), "non_private": self.free.results(), **accuracies}

    def levels(self) -> dict[str, float]:
        """The accuracies that have no curve, as anchors of a panel."""
        values = {"all rows in one place": self.centralised, "each device alone": self.each_alone}
        return {name: spread(each)["mean"] for name, each in values.items()}

    def panels(self, title: str, lines: Mapping[str, list[Curve]], *, note: str = "") -> list[Panel]:
        """Lines to compare with these: a panel for accuracy, and one for each other measure; norms span decades.

        The `note` says in the names of these how they differ from the lines.
        """
        drawn = dict(lines)
        for epsilon, one in self.proved.items():
            noises = " or ".join(dict.fromkeys(f"{chosen.noise:.2g}" for chosen in one.chosen))
            drawn[f"ε = {epsilon} PROVED against everyone, σ = {noises}{note}"] = one.curves
        clipped = any(one.clip < math.inf for one in self.free.chosen)
        free = {"without privacy, same clip" if clipped else f"without privacy{note}": self.free.curves}
        accuracy = panel(title, drawn, "test_accuracy", anchors={**free, **self.levels()})
        also = self.free.chosen[0].also
        return [accuracy, *(panel(title, drawn, one, anchors=free, log_y="norm" in one) for one in also)]


def anchors(
    measurements: Measurements,
    candidates: Sequence[Experiment],
    *,
    private: Sequence[Experiment] = (),
    epsilons: Sequence[float] = (),
    delta: float = 0.0,
) -> Anchors:
    """FedAvg as its validation rows prefer it; and with its settings all rows in one place, and each device alone.

    And if private candidates are given, the preferred ones at each ε by the proved rule, against everyone.
    """
    proved = tuned_over(measurements, private, "proved", epsilons, delta)
    free = tuned(measurements, candidates)
    central = [*map(all_in_one_place, free.chosen)]
    measurements.side_by_side([(one, repeat, "test") for repeat, one in enumerate(central)])
    together = [measurements.curve(one, repeat, "test") for repeat, one in enumerate(central)]
    alone = [round(one, 6) for one in measurements.each_alone(free.chosen)]
    return Anchors(free=free, centralised=last(together, "test_accuracy"), each_alone=alone, proved=proved)


def all_in_one_place(free: Experiment) -> Experiment:
    """What `anchors` compares with: every device in every round, one step each, as many steps as the run makes."""
    return replace(
        free, cohort=free.task.devices, local_steps=1, rounds=free.rounds * free.local_steps, looks=1, also=()
    )
