"""Devices that poison a run, with and without probes: a demonstration on public data, in a simulation.

The attackers know every honest update of the round and act together. What they can't know is the probes.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from choral import config
from choral.core.messages import Turn
from choral.learning.evaluate import evaluate
from choral.run.guard import noise_in_grid
from choral.run.places import Opened, Simulated
from choral.run.planning import settle
from choral.run.runs import Run
from choral.run.study import Study
from choral.tables.records import Records

Kind = Literal[
    "range_flip", "inner_product", "backdoor", "label_flip", "sign_flip", "gaussian", "shift", "little",
    "quiet_backdoor", "adaptive_backdoor", "hidden_backdoor", "late_push",
]  # fmt: skip
KINDS: tuple[Kind, ...] = ("range_flip", "inner_product", "backdoor", "label_flip")  # what `choral attack` shows
BACKDOORS: tuple[Kind, ...] = ("backdoor", "quiet_backdoor", "adaptive_backdoor", "hidden_backdoor")
# Who knows the rules trains on a clean table, and pushes so far along its own past, in deviations of the noise.
ADAPTIVE: dict[Kind, float] = {"adaptive_backdoor": 9.0, "hidden_backdoor": 2.5, "late_push": 9.0}
MORE_KINDS: tuple[Kind, ...] = (
    "sign_flip", "gaussian", "shift", "little", "quiet_backdoor", *ADAPTIVE,
)  # of bench.poison  # fmt: skip
MANIPULATION = 20.0  # how many honest means an inner-product attacker sends, with the sign reversed
BOOST = 5  # how many times its update a backdoor's owner sends
LOUD = 10.0  # how many times an honest update, or its noise, a crude attacker sends
ASIDE = 2.0  # deviations of the noise by which a shift moves every number
PUSH = 18.0  # deviations of the noise by which an adaptive attacker moves its update: longer ones are refused
OWN_NOISE = 0.6  # of its noise that it keeps: without it, attackers would be alike
ALONG = 2.5  # deviations that it allows itself along the common direction
LATE = 4  # rounds before the end in which a late push begins: too few for evidence
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
    aim: NDArray[np.float64]  # how an adaptive attacker moves its update
    late: bool  # whether these are the last rounds
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
    "adaptive_backdoor": lambda known: _quiet(known) + known.aim,
    "hidden_backdoor": lambda known: _quiet(known) + known.aim,
    "late_push": lambda known: _quiet(known) - known.aim if known.late else known.own,
}


def _quiet(known: Known) -> NDArray[np.float64]:
    """The honest mean with less noise than is proved, which leaves room for a push within the length of an update."""
    mean = known.honest.mean(axis=0)
    return np.asarray(mean + OWN_NOISE * (known.own - mean))


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
        adaptive = self.attack in ADAPTIVE
        slope = aimed(self.study, self.attack, parameters, honest.shape[1]) if adaptive else signs
        late = turn.round > self.study.plan.rounds - LATE
        for device in self.bad & found.keys():
            rng = np.random.default_rng([self.study.seed, turn.round, turn.attempt, device])
            own = found[device].astype(np.float64)
            aim = noise * unseen(slope, PUSH, self._looked_at(device)) if adaptive else signs
            known = Known(
                honest=honest, own=own, most=most, noise=noise, signs=signs, rng=rng, aim=aim, late=late
            )  # fmt: skip
            found[device] = np.rint(np.clip(send(known), -most, most)).astype(np.int64)
        return found

    def _looked_at(self, device: int) -> list[tuple[NDArray[np.float64], float]]:
        """The directions along which the server looks at an attacker, which can compute them, and how far it goes."""
        if self.guard is None or self.attack is None:
            return []
        direction, past = self.guard.direction, self.guard.evidence.past_of(self.guard.names[device])
        watched = [] if direction is None else [(direction.bytes_.astype(np.float64), ALONG)]
        return watched if past is None else [*watched, (past, ADAPTIVE[self.attack])]

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
    if kind != "label_flip" and (kind not in BACKDOORS or kind in ADAPTIVE):
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


def aimed(study: Study, kind: Kind | None, parameters: NDArray[np.float32], length: int) -> NDArray[np.float64]:
    """Where a step makes the model say the second class: of a row with the trigger alone, or of the average row."""
    rows = study.split.train.features
    nothing = np.zeros((1, rows.shape[1]), np.float32)
    tree = study.model.unravel(jnp.asarray(parameters))

    def slope(row: NDArray[np.float32]) -> NDArray[np.float64]:
        found = jax.grad(study.model.loss)(tree, jnp.asarray(row[0]), jnp.asarray(1))
        return -np.asarray(study.model.ravel(found), np.float64)

    if kind in BACKDOORS:
        with_it = slope(triggered(study, nothing))
        aim = np.where(slope(nothing) == 0, with_it, 0.0)  # what moves without the trigger, honest rows move back
    else:
        aim = slope(rows.mean(axis=0, keepdims=True))
    return np.append(aim, np.zeros(length - len(aim)))  # a study may send more than the model's step


def unseen(
    aim: NDArray[np.float64], length: float, looked_at: Sequence[tuple[NDArray[np.float64], float]]
) -> NDArray[np.float64]:
    """A push of this length towards the aim that goes along each direction looked at as far as it says, no further.

    >>> unseen(np.array([1.0, 1.0, 0.0]), 5.0, [(np.array([0.0, 2.0, 0.0]), 3.0)]).tolist()
    [4.0, 3.0, 0.0]
    """
    rest, along = aim / np.linalg.norm(aim), np.zeros(len(aim))
    if looked_at:
        basis, _ = np.linalg.qr(np.array([direction for direction, _ in looked_at]).T)
        inside, most = basis.T @ rest, np.array([far for _, far in looked_at])
        rest = rest - basis @ inside
        along = basis @ np.clip(length * inside, -most, most)
    left = math.sqrt(max(length**2 - float(along @ along), 0.0))
    return np.asarray(along + left * rest / max(float(np.linalg.norm(rest)), 1e-300))


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
