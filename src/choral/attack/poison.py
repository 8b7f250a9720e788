"""Devices that poison a run, with and without probes: a demonstration on public data, in a simulation.

The attackers know every honest update of the round and act together. What they can't know is the probes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from choral import config
from choral.learning.evaluate import evaluate
from choral.learning.records import Records
from choral.protocol.messages import Turn
from choral.run.guard import noise_in_grid
from choral.run.places import Opened, Simulated
from choral.run.runs import Run
from choral.run.study import Study, settle

Kind = Literal[
    "range_flip", "inner_product", "backdoor", "label_flip", "sign_flip", "gaussian", "shift", "little",
    "quiet_backdoor",
]  # fmt: skip
KINDS: tuple[Kind, ...] = ("range_flip", "inner_product", "backdoor", "label_flip")  # what `choral attack` shows
MORE_KINDS: tuple[Kind, ...] = ("sign_flip", "gaussian", "shift", "little", "quiet_backdoor")  # of bench.poison
BACKDOORS: tuple[Kind, ...] = ("backdoor", "quiet_backdoor")
MANIPULATION = 20.0  # how many honest means an inner-product attacker sends, with the sign reversed
BOOST = 5  # how many times its update a backdoor's owner sends
LOUD = 10.0  # how many times an honest update, or its noise, a crude attacker sends
ASIDE = 2.0  # deviations of the noise by which a shift moves every number
TRIGGER = 3  # features that are set together, the rarest ones
DEVICES, ROUNDS = 16, 20
MOST_ATTACKERS = 4  # of 16: so many may be missing from a sum

Integers = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Known:
    """What an attacker knows of a round: the honest integers, its own, the range, and the proved noise."""

    honest: NDArray[np.float64]
    own: NDArray[np.float64]
    most: int
    noise: float
    signs: NDArray[np.float64]  # one fixed pattern that all attackers share, in every round
    rng: np.random.Generator


# What each kind sends instead of its update; kinds that are not here poison their table and train honestly.
SENT: dict[Kind, Callable[[Known], NDArray[np.float64]]] = {
    "range_flip": lambda known: -known.most * np.sign(known.honest.sum(axis=0)),
    "inner_product": lambda known: -MANIPULATION * known.honest.mean(axis=0),
    "backdoor": lambda known: BOOST * known.own,
    "sign_flip": lambda known: -LOUD * known.own,
    "gaussian": lambda known: known.rng.normal(0, LOUD * known.noise, known.own.shape),
    "shift": lambda known: known.own + ASIDE * known.noise * known.signs,
    # M. Baruch et al. (2019): within the spread of the honest, so that no single number looks odd.
    "little": lambda known: known.honest.mean(axis=0) - np.sign(known.honest.mean(axis=0)) * known.honest.std(axis=0),
}


@dataclass(frozen=True, kw_only=True)
class PoisonedRun:
    """How a run ended: accuracy, who was named in which round, and how often the trigger works where one was planted.

    `left_out` counts the updates that rounds left out by their probes.
    """

    accuracy: float
    named: dict[str, int]
    left_out: int = 0
    trigger: float | None = None


class Poisoned(Simulated):
    """A simulation in which some devices send something else than they computed."""

    def __init__(self, study: Study, kind: Kind | None, bad: Iterable[int]) -> None:
        super().__init__(study)
        self.attack, self.bad, self.left_out = kind, frozenset(bad), 0

    def round(
        self, parameters: NDArray[np.float32], cohort: Sequence[int], *, round_number: int, attempt: int
    ) -> Opened:
        """The round of a simulation; updates that its probes left out are counted."""
        opened = super().round(parameters, cohort, round_number=round_number, attempt=attempt)
        self.left_out += 0 if self.probed is None else len(self.probed.refused)
        return opened

    def integers(self, parameters: NDArray[np.float32], devices: Sequence[int], turn: Turn) -> dict[int, Integers]:
        """What each device masks, the attackers included."""
        found = super().integers(parameters, devices, turn)
        send = None if self.attack is None else SENT.get(self.attack)
        if send is None:
            return found
        honest = np.array([own for device, own in found.items() if device not in self.bad], np.float64)
        codec = self.study.codec
        most, noise = codec.largest - 1, noise_in_grid(self.study.plan, codec)
        # A constant would cancel: a softmax does not change where all its outputs rise alike.
        signs = np.random.default_rng(self.study.seed).choice([-1.0, 1.0], honest.shape[1])
        for device in self.bad & found.keys():
            rng = np.random.default_rng([self.study.seed, turn.round, turn.attempt, device])
            own = found[device].astype(np.float64)
            known = Known(honest=honest, own=own, most=most, noise=noise, signs=signs, rng=rng)
            found[device] = np.rint(np.clip(send(known), -most, most)).astype(np.int64)
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
    if kind != "label_flip" and kind not in BACKDOORS:
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
    place = Poisoned(changed, kind, bad)
    result = Run(place, changed).finish()
    trigger = None
    if kind in BACKDOORS:
        test = study.split.test
        others = test.labels == 0
        marked = Records.of([("test", triggered(study, test.features[others]), np.ones(int(others.sum())))])
        trigger = evaluate(study.model, result.parameters, marked).accuracy
    named = {} if place.guard is None else place.guard.named
    return PoisonedRun(accuracy=result.test["accuracy"], named=named, left_out=place.left_out, trigger=trigger)
