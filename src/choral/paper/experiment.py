"""One experiment of the paper as data, and its curve: the same split and the same cohorts for every method."""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

import choral
from choral.backends.vectorised import Vectorised
from choral.errors import StorageError
from choral.federation import draw_cohort
from choral.learning.evaluate import evaluate, squared_gradient_norm
from choral.learning.local import Recipe
from choral.learning.models import Model, Tree, logistic, mlp
from choral.learning.records import Labels, Records
from choral.learning.sampling import OVERFLOW
from choral.learning.splits import Split, hold_out
from choral.plan import Plan, Sampling
from choral.privacy.calibrate import Rule
from choral.run.costs import OUT_OF_RANGE, rounds_each
from choral.run.folder import write_whole

Kind = Literal["logistic", "network", "regularised"]
DEVICES, COHORT = 16, 10
ROWS = 2440  # the 2441 of 80 % of 3052 is prime: no batch but the whole would divide it
HIDDEN = (64, 32)
L2 = 0.01  # λ of the regularised logistic regression, whose constants Theorem 2 needs
Curve = dict[str, list[float]]  # what each look at a model saw: the round, and the measures
MEASURES = ("test_accuracy", "validation_accuracy", "validation_loss")
OF_TRAINING = ("train_loss", "squared_gradient_norm")  # over all training rows, which costs as much as a round


class _Fine:
    """A grid so fine that rounding is no part of an experiment: σ = 1e-5 on steps of size 1 is forty times as wide."""

    grid, largest = 2.0**-22, 2**30


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One line of a figure: the model, how the cohort trains it, and how often it is looked at.

    `clip = inf` with `noise = 0` is FedAvg, `local_steps = 1` is DP-SGD, `cohort` = devices is training on all rows.

    >>> Experiment(model="logistic", rounds=20, local_steps=10, batch=488, step_size=1.0).plan().batches_per_pass
    5
    """

    model: Kind
    rounds: int
    local_steps: int
    batch: int
    step_size: float
    clip: float = math.inf
    noise: float = 0.0
    sampling: Sampling = "partition"
    cohort: int = COHORT
    looks: int = 10
    of_training: bool = False

    def plan(self) -> Plan:
        """The plan of the run; where nothing is clipped its clip stands for nothing."""
        return Plan(
            devices=DEVICES,
            cohort=self.cohort,
            rounds=self.rounds,
            rows=ROWS,
            batch=self.batch,
            step_size=self.step_size,
            clip=self.clip if self.clip < math.inf else 1.0,
            noise=self.noise,
            local_steps=self.local_steps,
            sampling=self.sampling,
        )

    def within(self, rule: Rule, *, epsilon: float, delta: float) -> "Experiment":
        """The same with the least noise that keeps every device within the budget by a rule.

        A device is charged the most rounds that any takes part in; the proved rules also pay for batches that
        overflow and updates out of range, as a run does.
        """
        proved = rule in ("proved", "with_secure_sum")
        noise = choral.noise_for(
            epsilon=epsilon,
            delta=delta - (OVERFLOW + OUT_OF_RANGE if proved else 0.0),
            rule=rule,
            rounds=rounds_each(self.plan()),
            local_steps=self.local_steps,
            cohort=self.cohort,
            devices=DEVICES,
            rows=ROWS,
            batch=self.batch,
            clip=self.clip,
            sampling=self.sampling,
        )
        return replace(self, noise=noise)

    def privacy(self, rule: Rule, delta: float) -> dict[str, Any]:
        """What may be said of a device's privacy: ε by the rule of the noise, whether it holds, and what is proved."""
        told = choral.account(
            rounds=rounds_each(self.plan()),
            local_steps=self.local_steps,
            cohort=self.cohort,
            devices=DEVICES,
            rows=ROWS,
            batch=self.batch,
            noise=self.noise,
            clip=self.clip,
            delta=delta,
            sampling=self.sampling,
        )
        proved = told["proved"]["against_everyone"]
        said = {"delta": delta, "adjacency": told["adjacency"], "proved_against_everyone": proved}
        if rule == "proved":
            return said
        published = told["dp_sgd"]["corrected"] if rule == "dp_sgd" else told[rule]
        return {**said, "published": {"rule": rule, **published}}

    def described(self) -> dict[str, Any]:
        """The experiment as plain values, for a results file."""
        return {**asdict(self), "clip": self.clip if math.isfinite(self.clip) else "none"}


@cache
def _model(kind: Kind, features: int) -> Model:
    """One object for each kind: what is compiled for it is kept with it."""
    if kind == "network":
        return mlp(features, HIDDEN)
    plain = logistic(features)
    if kind == "logistic":
        return plain

    def loss(tree: Tree, x: Array, y: Array) -> Array:
        return plain.loss(tree, x, y) + 0.5 * L2 * sum(jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(tree))

    return choral.model(plain.init, loss, plain.predict, features=features, name="regularised")


@cache
def _split(repeat: int) -> Split:
    """Adult dealt and split anew for every repeat, the devices' training rows cut to one size."""
    split = hold_out(choral.load_adult(devices=DEVICES, seed=repeat).records, seed=repeat)
    train = split.train
    rows = [(name, train.features_of(i)[:ROWS], train.labels_of(i)[:ROWS]) for i, name in enumerate(train.names)]
    return replace(split, train=Records.of(rows, classes=train.classes))


def cohorts(experiment: Experiment, repeat: int) -> list[NDArray[np.int64]]:
    """Who takes part in each round, in balance; drawn from the repeat alone, so that methods share it.

    >>> shown = Experiment(model="logistic", rounds=20, local_steps=1, batch=61, step_size=1.0)
    >>> np.bincount(np.concatenate(cohorts(shown, 0))).max()
    np.int64(13)
    """
    counts = np.zeros(DEVICES, dtype=np.int64)
    drawn = []
    for number in range(1, experiment.rounds + 1):
        rng = np.random.Generator(np.random.Philox(key=[repeat, number << 8]))
        cohort = np.array(draw_cohort(np.arange(DEVICES), counts, experiment.cohort, rng, "balanced"))
        counts[cohort] += 1
        drawn.append(cohort)
    return drawn


def curve(experiment: Experiment, repeat: int) -> Curve:
    """What each look at the model during one repeat of an experiment saw."""
    split, recipe = _split(repeat), replace(Recipe.of(experiment.plan()), clip=experiment.clip)
    model = _model(experiment.model, split.train.features.shape[1])
    engine = Vectorised(
        model=model, records=split.train, plan=experiment.plan(), codec=_Fine(), seed=repeat, recipe=recipe
    )
    start = model.start(repeat)
    every = max(1, experiment.rounds // experiment.looks)
    names = ("round", *MEASURES, *(OF_TRAINING if experiment.of_training else ()))
    seen: Curve = {name: [] for name in names}
    for progress in engine.rounds(start, cohorts(experiment, repeat), first=1, every=every):
        test, chosen = (evaluate(model, progress.parameters, rows) for rows in (split.test, split.validation))
        look = [progress.done, test.accuracy or 0.0, chosen.accuracy or 0.0, chosen.loss]
        if experiment.of_training:
            look.append(evaluate(model, progress.parameters, split.train).loss)
            look.append(squared_gradient_norm(model, progress.parameters, split.train))
        for name, value in zip(names, look, strict=True):
            seen[name].append(float(f"{value:.6g}"))
    return seen


def rows_of(repeat: int) -> tuple[NDArray[np.float32], Labels]:
    """All training rows of a repeat and their labels; Adult is public."""
    train = _split(repeat).train
    return train.features, train.labels


def gradient_at_start(experiment: Experiment, repeat: int) -> float:
    """‖∇f‖² where a run begins."""
    train = _split(repeat).train
    model = _model(experiment.model, train.features.shape[1])
    return squared_gradient_norm(model, model.start(repeat), train)


def alone(experiment: Experiment, repeat: int) -> float:
    """The mean test accuracy of every device trained by itself, without noise, as many steps as in the federation."""
    split = _split(repeat)
    steps = experiment.local_steps * rounds_each(experiment.plan())
    by_itself = replace(experiment, rounds=1, local_steps=steps, cohort=DEVICES)
    model = _model(experiment.model, split.train.features.shape[1])
    recipe = replace(Recipe.of(by_itself.plan()), clip=experiment.clip)
    engine = Vectorised(
        model=model, records=split.train, plan=by_itself.plan(), codec=_Fine(), seed=repeat, recipe=recipe
    )
    start = model.start(repeat)
    ends = [start + update for update in engine.updates(start, 1, np.arange(DEVICES))]
    return float(np.mean([evaluate(model, end, split.test).accuracy or 0.0 for end in ends]))


class Shelf:
    """Curves that were measured before, one file an experiment: a reproduction goes on where it stopped."""

    def __init__(self, folder: Path, repeats: int, *, tell: Callable[[str], object] = lambda _: None) -> None:
        self.folder, self.repeats, self.tell = folder, repeats, tell
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                "CH801", f"can't be made: {error.strerror}.", where=str(folder), fix="Give another --out."
            ) from None

    def curves(self, experiment: Experiment) -> list[Curve]:
        """The curve of each repeat."""
        return [self.curve(experiment, repeat) for repeat in range(self.repeats)]

    def curve(self, experiment: Experiment, repeat: int) -> Curve:
        """The curve of one repeat, measured if it is not on the shelf."""
        described = {**experiment.described(), "version": choral.__version__}
        text = json.dumps(described, sort_keys=True)
        path = self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        try:
            kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"experiment": described}
        except ValueError:
            raise StorageError(
                "CH802", "is not what was written.", where=str(path), fix="Delete it: it is measured again."
            ) from None
        if str(repeat) not in kept:
            self.tell(f"{experiment.model} τ={experiment.local_steps} σ={experiment.noise:.3g} repeat {repeat + 1}")
            kept[str(repeat)] = curve(experiment, repeat)
            write_whole(path, json.dumps(kept, indent=1).encode())
        found: Curve = kept[str(repeat)]
        return found


def last(curves: list[Curve], measure: str) -> list[float]:
    """The final value of a measure in each repeat.

    >>> last([{"train_loss": [0.7, 0.5]}, {"train_loss": [0.6, 0.4]}], "train_loss")
    [0.5, 0.4]
    """
    return [one[measure][-1] for one in curves]


def spread(values: list[float]) -> dict[str, Any]:
    """Mean and deviation over the repeats, and each of them.

    >>> spread([1.0, 3.0])
    {'mean': 2.0, 'std': 1.4142, 'each': [1.0, 3.0]}
    """
    std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": round(float(np.mean(values)), 6), "std": float(f"{std:.5g}"), "each": values}


def paired(ours: list[float], theirs: list[float]) -> dict[str, Any]:
    """Differences repeat by repeat, which the luck of a split drops out of, and what they say.

    >>> paired([0.85, 0.86], [0.84, 0.83])["verdict"], paired([0.85, 0.84], [0.84, 0.85])["verdict"]
    ('above in every repeat', 'tie')
    """
    each = [round(a - b, 6) for a, b in zip(ours, theirs, strict=True)]
    told = spread(each)
    if abs(told["mean"]) < TIE:
        return {**told, "verdict": "tie"}
    side = "above" if told["mean"] > 0 else "below"
    all_of_them = all((one > 0) == (told["mean"] > 0) for one in each)
    return {**told, "verdict": f"{side} in every repeat" if all_of_them else f"{side} on average"}


TIE = 0.002  # of accuracy: less than this says nothing on 4,900 test rows


def grid(base: Experiment, choices: dict[str, tuple[Any, ...]]) -> list[Experiment]:
    """Every combination of the choices, in order.

    >>> base = Experiment(model="logistic", rounds=1, local_steps=1, batch=61, step_size=1.0)
    >>> [one.step_size for one in grid(base, {"step_size": (1.0, 2.0), "clip": (1.0,)})]
    [1.0, 2.0]
    """
    return [replace(base, **dict(zip(choices, values, strict=True))) for values in product(*choices.values())]


def tuned(shelf: Shelf, candidates: Sequence[Experiment]) -> tuple[list[Experiment], list[Curve]]:
    """For each repeat the candidate that its own validation rows prefer, and its curve.

    The lowest validation loss within 0.0015 of the best validation accuracy: accuracy alone picks at random among
    neighbours, some of them with a poor loss. Test rows have no say.
    """
    chosen, curves = [], []
    for repeat in range(shelf.repeats):
        found = [shelf.curve(one, repeat) for one in candidates]
        best = max(one["validation_accuracy"][-1] for one in found)
        near = [n for n, one in enumerate(found) if one["validation_accuracy"][-1] >= best - 0.0015]
        pick = min(near, key=lambda n: found[n]["validation_loss"][-1])
        chosen.append(candidates[pick])
        curves.append(found[pick])
    return chosen, curves
