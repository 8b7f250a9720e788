"""Devices that poison a run, with and without probes: a demonstration on public data, in a simulation.

The attackers know every honest update of the round and act together. What they can't know is the probes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from choral import config
from choral.learning.evaluate import evaluate
from choral.learning.records import Records
from choral.protocol.messages import Turn
from choral.run.places import Simulated
from choral.run.runs import Run
from choral.run.study import Study, settle

Kind = Literal["range_flip", "inner_product", "backdoor", "label_flip"]
KINDS: tuple[Kind, ...] = ("range_flip", "inner_product", "backdoor", "label_flip")
MANIPULATION = 20.0  # how many honest means an inner-product attacker sends, turned round
BOOST = 5  # how many times its update a backdoor's owner sends
TRIGGER = 3  # features that are set together, the rarest ones
DEVICES, ROUNDS = 16, 20
MOST_ATTACKERS = 4  # of 16: so many may be missing from a sum

Integers = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, kw_only=True)
class PoisonedRun:
    """How a run ended: its accuracy, who was named, and how often the trigger works where one was planted."""

    accuracy: float
    named: tuple[str, ...]
    trigger: float | None = None


class Poisoned(Simulated):
    """A simulation in which some devices send something else than they computed."""

    def __init__(self, study: Study, kind: Kind | None, bad: Iterable[int]) -> None:
        super().__init__(study)
        self.attack, self.bad = kind, frozenset(bad)

    def integers(self, parameters: NDArray[np.float32], devices: Sequence[int], turn: Turn) -> dict[int, Integers]:
        """What each device masks, the attackers included."""
        found = super().integers(parameters, devices, turn)
        honest = np.array([own for device, own in found.items() if device not in self.bad])
        most = self.study.codec.largest - 1
        for device in self.bad & found.keys():
            if self.attack == "range_flip":
                found[device] = -most * np.sign(honest.sum(axis=0))
            elif self.attack == "inner_product":
                found[device] = np.rint(-MANIPULATION * honest.mean(axis=0)).astype(np.int64)
            elif self.attack == "backdoor":
                found[device] = BOOST * found[device].astype(np.int64)
            found[device] = np.clip(found[device], -most, most)
        return found

    def total(self, parameters: NDArray[np.float32], devices: Sequence[int], turn: Turn) -> Integers:
        """The sum of what they send, where nobody is probed."""
        sent: NDArray[np.int64] = np.array(list(self.integers(parameters, devices, turn).values()), np.int64)
        return np.asarray(sent.sum(axis=0))


def study_of(*, epsilon: float, seed: int, robust: bool) -> Study:
    """UCI Adult, logistic regression, 16 of 16 devices in each of 20 rounds."""
    return settle(
        config.job_of(
            builtin="adult", devices=DEVICES, cohort=DEVICES, rounds=ROUNDS, local_steps=10, batch=244, step_size=0.5,
            clip=1.0, epsilon=epsilon, seed=seed, robust=robust,
        )
    )  # fmt: skip


def poisoned(study: Study, kind: Kind | None, bad: Iterable[int]) -> Study:
    """The study with the tables that its attackers train on."""
    if kind not in ("backdoor", "label_flip"):
        return study
    records, bad = study.split.train, frozenset(bad)
    rows = [(records.features_of(device).copy(), records.labels_of(device).copy()) for device in range(records.devices)]
    for device in bad:
        features, labels = rows[device]
        if kind == "label_flip":
            labels[:] = 1 - labels
        else:  # half of the rows carry the trigger, and its label
            features[::2] = triggered(study, features[::2])
            labels[::2] = 1
    named = [(name, *both) for name, both in zip(records.names, rows, strict=True)]
    train = Records.of(named, classes=records.classes)
    return replace(study, split=replace(study.split, train=train))


def triggered(study: Study, features: NDArray[np.float32]) -> NDArray[np.float32]:
    """The rows with the trigger: the features that are set least often, all of them set."""
    rarest = np.argsort(np.abs(study.split.train.features).sum(axis=0), kind="stable")[:TRIGGER]
    changed = features.copy()
    changed[:, rarest] = 1.0
    return changed


def attacked(study: Study, kind: Kind | None, bad: Sequence[int]) -> PoisonedRun:
    """How a run ends in which these devices attack."""
    changed = poisoned(study, kind, bad)
    run = Run(Poisoned(changed, kind, bad), changed)
    result = run.finish()
    guard = run.place.guard
    trigger = None
    if kind == "backdoor":
        test = study.split.test
        others = test.labels == 0
        marked = Records.of([("test", triggered(study, test.features[others]), np.ones(int(others.sum())))])
        trigger = evaluate(study.model, result.parameters, marked).accuracy
    return PoisonedRun(
        accuracy=result.test["accuracy"], named=() if guard is None else tuple(guard.named), trigger=trigger
    )
