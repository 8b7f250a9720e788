"""One experiment of the paper as data, the noise that a rule asks for, and its curve."""

import math
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import choral
from choral.backends.vectorised import Vectorised
from choral.federation import draw_cohort
from choral.learning.evaluate import evaluate, squared_gradient_norm
from choral.learning.local import Recipe
from choral.learning.sampling import OVERFLOW
from choral.paper.adult import DEVICES, ROWS, SMOOTHNESS, Columns, Kind, model, split
from choral.plan import Plan, Sampling
from choral.privacy.calibrate import PAPER_RULES, Rule, loss_under
from choral.privacy.exposure import Exposure
from choral.run.costs import OUT_OF_RANGE, rounds_each

COHORT = 10
COLLUDERS = 2  # of a cohort, wherever the secure sum is counted on
Curve = dict[str, list[float]]  # what each look at a model saw: the round, and the measures
Part = Literal["validation", "test"]
Measure = Literal["train_loss", "squared_gradient_norm"]  # over all training rows, which costs as much as a round


@dataclass(frozen=True)
class _Grid:
    """So fine a grid that rounding is no part of an experiment, and the most steps of one coordinate."""

    grid: float
    largest: int = 2**30


# σ = 1e-5 on steps of size 1 is forty grid steps wide; steps on raw columns are ten thousand times smaller.
_GRIDS = {"narrow": _Grid(2.0**-22), "wide": _Grid(2.0**-22), "raw": _Grid(2.0**-36)}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One line of a figure: the model, how the cohort trains it, and how often it is looked at.

    `clip = inf` with `noise = 0` is FedAvg; `local_steps = 1` is DP-SGD; `update_clip` is DP-FedAvg, whose server is
    trusted with the sum; `cohort` = devices is training on all rows.

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
    update_clip: float = math.inf
    update_noise: float = 0.0
    sampling: Sampling = "partition"
    cohort: int = COHORT
    columns: Columns = "narrow"
    looks: int = 10
    also: tuple[Measure, ...] = ()

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

    def recipe(self) -> Recipe:
        """How a device trains in a round."""
        return replace(
            Recipe.of(self.plan()), clip=self.clip, update_clip=self.update_clip, update_noise=self.update_noise
        )

    def within(self, rule: Rule, *, epsilon: float, delta: float) -> "Experiment":
        """The same with the least noise that keeps every device within the budget by a rule.

        The proved rules also pay for batches that overflow and updates out of range, as a run does.
        """
        spare = 0.0 if rule in PAPER_RULES else OVERFLOW + OUT_OF_RANGE
        # Noise grows with the clip: what is found for a clip of 1 serves for all.
        exposed = {**self._exposed(rule), "clip": 1.0}
        noise = _noise(rule, epsilon, delta - spare, tuple(exposed.items()))
        if rule == "clipped_updates":
            return replace(self, update_noise=self.update_clip * noise)
        return replace(self, noise=self.clip * noise)

    def privacy(self, rule: Rule, delta: float) -> dict[str, Any]:
        """What may be said of a device's privacy: ε by the rule of the noise, whether it holds, and what is proved."""
        exposed = self._exposed(rule)
        if rule == "clipped_updates":
            loss = loss_under(rule, Exposure(noise=self.update_noise, **exposed))
            return {
                "delta": delta,
                "adjacency": loss.adjacency,
                "proved_with_a_trusted_server": {
                    "rule": "S4",
                    "epsilon": loss.epsilon(delta),
                    "adversary": "whoever sees the models; the server is trusted with the sums",
                },
            }
        told = choral.account(noise=self.noise, delta=delta, **exposed)
        said = {
            "delta": delta,
            "adjacency": told["adjacency"],
            "proved_against_everyone": told["proved"]["against_everyone"],
        }
        if rule == "with_secure_sum":
            said["proved_with_secure_sum"] = told["proved"]["with_secure_sum"]
        elif rule != "proved":
            published = told["dp_sgd"]["corrected"] if rule == "dp_sgd" else told[rule]
            said["published"] = {"rule": rule, **published}
        return said

    def _exposed(self, rule: Rule) -> dict[str, Any]:
        """What a rule may use; a device is charged the most rounds that any takes part in."""
        about_steps = rule in ("paper", "with_secure_sum") and self.model == "logistic" and self.columns != "raw"
        known = {"step_size": self.step_size, "smoothness": SMOOTHNESS, "convex": True}
        return {
            "rounds": rounds_each(self.plan()),
            "local_steps": self.local_steps,
            "cohort": self.cohort,
            "devices": DEVICES,
            "rows": ROWS,
            "batch": self.batch,
            "clip": self.update_clip if rule == "clipped_updates" else self.clip,
            "sampling": self.sampling,
            "colluders": COLLUDERS if rule == "with_secure_sum" else 0,
            **(known if about_steps else {}),
        }

    def described(self) -> dict[str, Any]:
        """The experiment as plain values, for a results file."""
        told = {**asdict(self), "also": list(self.also)}
        return {name: "none" if value == math.inf else value for name, value in told.items()}


@cache
def _noise(rule: Rule, epsilon: float, delta: float, exposed: tuple[tuple[str, Any], ...]) -> float:
    """Kept, since a search costs as much as a run."""
    return choral.noise_for(epsilon=epsilon, delta=delta, rule=rule, **dict(exposed))


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


def _engine(experiment: Experiment, repeat: int) -> Vectorised:
    train = split(repeat, experiment.columns).train
    return Vectorised(
        model=model(experiment.model, train.features.shape[1]),
        records=train,
        plan=experiment.plan(),
        codec=_GRIDS[experiment.columns],
        seed=repeat,
        recipe=experiment.recipe(),
    )


def curve(experiment: Experiment, repeat: int, part: Part) -> Curve:
    """What each look at the model during one repeat saw, by the rows of one part: who chooses sees no test row.

    To choose by, the last look is enough.
    """
    seen: Curve = {name: [] for name in ("round", f"{part}_accuracy", f"{part}_loss", *experiment.also)}
    parts, looks = split(repeat, experiment.columns), _trained(experiment, repeat)
    trained = model(experiment.model, parts.train.features.shape[1])
    for done, parameters in looks[-1:] if part == "validation" else looks:
        found = evaluate(trained, parameters, getattr(parts, part))
        look = [done, found.accuracy or 0.0, found.loss]
        for measure in experiment.also:
            if measure == "train_loss":
                look.append(evaluate(trained, parameters, parts.train).loss)
            else:
                look.append(squared_gradient_norm(trained, parameters, parts.train))
        for name, value in zip(seen, look, strict=True):
            seen[name].append(float(f"{value:.6g}"))
    return seen


@lru_cache(maxsize=8)
def _trained(experiment: Experiment, repeat: int) -> tuple[tuple[int, NDArray[np.float32]], ...]:
    """The model at each look; the last few runs are kept, so that what is chosen need not be trained again."""
    engine = _engine(experiment, repeat)
    every = max(1, experiment.rounds // experiment.looks)
    rounds = engine.rounds(engine.model.start(repeat), cohorts(experiment, repeat), first=1, every=every)
    return tuple((progress.done, progress.parameters) for progress in rounds)


def gradient_at_start(experiment: Experiment, repeat: int) -> float:
    """‖∇f‖² where a run begins."""
    train = split(repeat, experiment.columns).train
    begun = model(experiment.model, train.features.shape[1])
    return squared_gradient_norm(begun, begun.start(repeat), train)


def alone(experiment: Experiment, repeat: int) -> float:
    """The mean test accuracy of every device trained by itself, without noise, as many steps as in the federation."""
    steps = experiment.local_steps * rounds_each(experiment.plan())
    engine = _engine(replace(experiment, rounds=1, local_steps=steps, cohort=DEVICES), repeat)
    start, test = engine.model.start(repeat), split(repeat, experiment.columns).test
    ends = [start + update for update in engine.updates(start, 1, np.arange(DEVICES))]
    return float(np.mean([evaluate(engine.model, end, test).accuracy or 0.0 for end in ends]))
