"""The grid that `bench.planner` compares the planner with: at least 200 settings of a table at every ε.

Noise once has five slopes, twelve total times, three numbers of rounds and two server steps (quick: four slopes, nine
times). Where the planner proposes noise in every step, that has three clips, five step sizes, four
numbers of steps, two numbers of local steps, two batches and two server steps in addition (quick: instead, without the
most steps). Every setting has the noise that `calibrated` gives it. What a split of a table gives is kept in an ignored
folder, so that a search goes on where it was stopped.
"""

import hashlib
import inspect
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from bench import side_by_side
from bench.real_tables import RealTable
from bench.setup import ENVIRONMENTS
from bench.side_by_side import ends_of, merits
from choral import config
from choral.accounting.calibrate import calibrated
from choral.core.mechanisms import CONVEX, MARGIN, movement
from choral.core.plan import Budget, NoiseIsAdded, Plan
from choral.learning import once
from choral.run.planning import settle
from choral.run.study import Study

EPSILONS, DELTA = (1.0, 2.0, 4.0), 1e-5
FRESH_DRAWS = 4  # times as many draws of the noise where one setting is judged
CLIPS, STEP_SIZES = (0.5, 1.5, 4.0), (0.03, 0.1, 0.3, 1.0, 3.0)
LOCAL_STEPS, SHARES = (1, 8), (1, 4)
SERVERS = ("mean", "averaged")


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is measured: splits to choose on, and as many others to judge on; rows, draws of the noise, the grid."""

    seeds: int
    most_rows: int
    most_draws: int
    slopes: tuple[float, ...]
    times: tuple[float, ...]  # total times, times R²
    rounds: tuple[int, ...]
    steps: tuple[int, ...]  # noisy ones, of a device
    both: bool  # whether noise once is searched as well where noise in every step is proposed

    @property
    def chosen_on(self) -> range:
        """The splits on which the best setting is found."""
        return range(self.seeds)

    @property
    def judged_on(self) -> range:
        """The splits on which it is compared with the planner."""
        return range(self.seeds, 2 * self.seeds)

    def draws(self, rows: int) -> int:
        """Draws of the noise per split: more for a small table, whose figures differ more from draw to draw."""
        return min(self.most_draws, max(1, 6000 // rows))


QUICK = Effort(
    seeds=2, most_rows=1500, most_draws=1, slopes=(0.05, 0.1, 0.25, 0.5),
    times=tuple(2.0**power for power in range(3, 12)), rounds=(5, 20, 60), steps=(32, 64, 128), both=False,
)  # fmt: skip
FULL = Effort(
    seeds=5, most_rows=8000, most_draws=6, slopes=(0.05, 0.1, 0.2, 0.4, 0.8),
    times=tuple(2.0**power for power in range(2, 14)), rounds=(5, 20, 60), steps=(32, 64, 128, 256), both=True,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Once:
    """Noise once; `time` is the total time times R², `slope` the clip as a share of the longest gradient."""

    slope: float
    time: float
    rounds: int

    def plan(self, study: Study) -> Plan:
        """The study's plan with these numbers in place of the proposed ones, before its noise is solved."""
        plan, smoothness = study.plan, CONVEX[study.model.link][0] * study.plan.mechanism.row_length**2
        width = math.sqrt(2) if study.model.link == "softmax" else 1.0
        rounds = math.ceil(self.rounds * plan.devices / plan.cohort)
        local_time = self.time / plan.mechanism.row_length**2 / rounds * plan.rows / float(study.rows.mean())
        steps = max(1, math.ceil(local_time * smoothness / (2 * MARGIN)))
        return replace(
            plan, rounds=rounds, clip=width * self.slope * plan.mechanism.row_length, local_steps=steps,
            step_size=local_time / steps,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EveryStep:
    """Noise in every step; `steps` are those of a device in all its rounds, a batch has the rows over `share`."""

    clip: float
    step_size: float
    steps: int
    local_steps: int
    share: int

    def plan(self, study: Study) -> Plan:
        """The study's plan with these numbers in place of the proposed ones, before its noise is solved."""
        plan = study.plan
        return replace(
            plan, rounds=math.ceil(self.steps / self.local_steps * plan.devices / plan.cohort), clip=self.clip,
            local_steps=self.local_steps, batch=max(1, plan.rows // self.share), step_size=self.step_size,
        )  # fmt: skip


Setting = Once | EveryStep


def study_of(
    table: RealTable, epsilon: float, seed: int, *, skewed: bool = False, noise: NoiseIsAdded | None = None
) -> Study:
    """The table over its sites at this ε, everything else as the planner proposes."""
    settings = table.job(seed=seed, skewed=skewed) | {"epsilon": epsilon, "delta": DELTA, "seed": seed}
    return settle(config.job_of(**settings, noise_is_added=noise), table.frame)


def together(effort: Effort, way: NoiseIsAdded) -> Iterator[list[Setting]]:
    """The settings of a grid, those together that can be trained side by side."""
    if way == "once":
        for time, rounds in product(effort.times, effort.rounds):
            yield [Once(slope=slope, time=time, rounds=rounds) for slope in effort.slopes]
        return
    for steps, local, share in product(effort.steps, LOCAL_STEPS, SHARES):
        yield [
            EveryStep(clip=clip, step_size=size, steps=steps, local_steps=local, share=share)
            for clip, size in product(CLIPS, STEP_SIZES)
        ]


@cache
def _price(plan: Plan, epsilon: float) -> float:
    solved = calibrated(plan, Budget(epsilon=epsilon, delta=DELTA))
    return solved.noise / movement(solved) if plan.once else solved.noise


def with_noise(plan: Plan, epsilon: float) -> Plan:
    """As `calibrated` does it: noise goes with the clip, or with what one record moves: one search does for many."""
    if plan.once:
        price = _price(replace(plan, clip=1.0, local_steps=1, step_size=0.01, noise=0.0), epsilon)
        return replace(plan, noise=price * movement(plan))
    return replace(plan, noise=plan.clip * _price(replace(plan, clip=1.0, step_size=1.0, noise=0.0), epsilon))


Named = tuple[float, str, str]  # ε, a setting as JSON, and the server's step
Figures = dict[str, dict[Named, float]]  # on "test" and "validation" rows
WAYS: dict[str, NoiseIsAdded] = {"Once": "once", "EveryStep": "every step"}


def in_words(setting: Setting) -> str:
    """A setting in words that can be kept."""
    return json.dumps({"noise": type(setting).__name__, **asdict(setting)})


def setting_of(words: str) -> Setting:
    """The setting that these words name."""
    numbers = json.loads(words)
    kinds: dict[str, type[Setting]] = {"Once": Once, "EveryStep": EveryStep}
    return kinds[numbers.pop("noise")](**numbers)


def judged(study: Study, keys: Sequence[tuple[float, Setting]], draws: int, rng: np.random.Generator) -> Figures:
    """What settings that can be trained side by side reach on validation and test rows, in the mean over draws."""
    plans = [with_noise(setting.plan(study), epsilon) for epsilon, setting in keys for _ in range(draws)]
    found: Figures = {"validation": {}, "test": {}}
    for server, models in ends_of(study.model, study.split.train, plans, rng).items():
        for by, records in (("validation", study.split.validation), ("test", study.split.test)):
            means = merits(study.model, models, records).reshape(len(keys), draws).mean(axis=1)
            for (epsilon, setting), mean in zip(keys, means, strict=True):
                found[by][epsilon, in_words(setting), server] = float(mean)
    return found


def figures_of(table: RealTable, effort: Effort, seed: int) -> Figures:
    """The figures of the whole grid on one split, kept once they are known."""
    place = ENVIRONMENTS / "planner" / digest_of(table, effort) / f"{seed}.json"
    if not place.exists():
        found: dict[str, list[tuple[float, str, str, float]]] = {"validation": [], "test": []}
        draws, rng = effort.draws(len(table.frame)), np.random.default_rng([seed, 0x6121D])
        for way in ways_of(table, effort):
            study = study_of(table, EPSILONS[0], seed, noise=way)
            for settings in together(effort, way):
                figures = judged(study, list(product(EPSILONS, settings)), draws, rng)
                for by, those in figures.items():
                    found[by] += [(*name, figure) for name, figure in those.items()]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.with_suffix(".part").write_text(json.dumps(found))
        place.with_suffix(".part").rename(place)
    kept = json.loads(place.read_text())
    return {by: {(one[0], one[1], one[2]): one[3] for one in those} for by, those in kept.items()}


def ways_of(table: RealTable, effort: Effort) -> list[NoiseIsAdded]:
    """The ways to add noise that a table's grid has: that which the planner proposes, and noise once."""
    if study_of(table, EPSILONS[0], 0).plan.once:
        return ["once"]
    return ["every step", "once"] if effort.both else ["every step"]


def digest_of(table: RealTable, effort: Effort) -> str:
    """Of all that decides what the grid finds: rows, settings, effort and the code."""
    frame = table.frame.drop(columns="site", errors="ignore").to_csv(index=False)
    own = "".join(inspect.getsource(one) for one in (side_by_side, once, inspect.getmodule(digest_of)) if one)
    described = json.dumps([frame, table.settings, asdict(effort), table.sites, own])
    return hashlib.sha256(described.encode()).hexdigest()[:24]


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best setting of a grid at one ε, its mean on the splits that it was found on, and its figures on others."""

    setting: dict[str, Any]
    where_found: float
    by_seed: list[float]
    settings: int  # in the grid


def best_of(table: RealTable, effort: Effort, epsilon: float, by: str = "test") -> Best:
    """The setting with the best mean over the splits to choose on, judged on test rows of the others with fresh noise.

    On its own splits it is too good: of hundreds of settings the luckiest wins.
    """
    found = [figures_of(table, effort, seed) for seed in effort.chosen_on]
    names = [name for name in found[0][by] if name[0] == epsilon]
    best = max(names, key=lambda name: statistics.fmean(one[by][name] for one in found))
    _, words, server = best
    setting, draws = setting_of(words), FRESH_DRAWS * effort.draws(len(table.frame))
    by_seed = []
    for seed in effort.judged_on:
        study, rng = study_of(table, epsilon, seed, noise=WAYS[type(setting).__name__]), [seed, 0xF1A1]
        by_seed.append(judged(study, [(epsilon, setting)], draws, np.random.default_rng(rng))["test"][best])
    return Best(
        setting=json.loads(words) | {"server": server}, settings=len(names),
        where_found=statistics.fmean(one["test"][best] for one in found), by_seed=by_seed,
    )  # fmt: skip
