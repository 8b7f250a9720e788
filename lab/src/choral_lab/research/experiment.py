"""One experiment as data: what is learned from which rows, how devices train, and the noise that a rule asks for."""

import inspect
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from choral.accounting.account import account_of
from choral.accounting.calibrate import Rule, loss_under, smallest_noise
from choral.accounting.proofs import rounds_each, smooth
from choral.accounting.reserves import spendable, with_reserves
from choral.core.errors import PlanError
from choral.core.exposure import Exposure, in_crowd
from choral.core.plan import Budget, NoiseIsAdded, Plan, Sampling
from choral.learning.evaluate import evaluate, mean_loss, squared_gradient_norm
from choral.learning.models import Model
from choral.learning.recipe import Recipe
from choral.learning.torch_door import is_module, named_maker
from choral.run.study import made_for
from choral.tables.records import Records, Split, hold_out
from choral.tables.sources import Dataset
from choral_lab.research.sweep import mixes_repeats
from choral_lab.research.sweep_training import Companies, Company, Looks, Run, engine_of, looks_of
from choral_lab.research.training_order import in_groups, in_order

CORES = os.cpu_count() or 1
ON_AN_ACCELERATOR = 4  # groups of runs at a time: one is computed while others are prepared, and all hold their rows
Curve = dict[str, list[float]]  # what each look at a model saw: the round, and the measures
Part = Literal["validation", "test"]
Measure = Literal["train_loss", "squared_gradient_norm"]  # over all training rows, which costs as much as a round


class _Premises(NamedTuple):
    """What a rule looks at in an experiment."""

    published: bool = False  # a formula of the paper, whether it holds or not
    smoothness: bool = False  # the loss may count
    colluders: bool = False  # the noise of the honest devices counts, and no other
    of_updates: bool = False  # clip and noise are those of whole updates, and not of steps


PREMISES: dict[Rule, _Premises] = {
    "proved": _Premises(),
    "with_secure_sum": _Premises(smoothness=True, colluders=True),
    "clipped_updates": _Premises(of_updates=True),
    "paper": _Premises(published=True, smoothness=True),
    "paper_without_secure_sum": _Premises(published=True),
    "dp_sgd": _Premises(published=True),
    "dp_sgd_as_printed": _Premises(published=True),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """What is learned from which rows: for every repeat a split, and for its features a model, the same object always.

    `rows` is what the smallest device trains on. `smoothness` is L of a convex loss, where it is known: some rules
    count on it. Updates are rounded to `grid`. A folder of measurements keeps what it measured under the `name`.
    """

    name: str
    devices: int
    rows: int
    split: Callable[[int], Split]
    model: Callable[[int], Model]
    smoothness: float | None = None
    grid: float = 2.0**-22

    @classmethod
    def of(
        cls,
        name: str,
        records: Records | Dataset,
        model: Model | Callable[..., object],
        *,
        smoothness: float | None = None,
    ) -> Self:
        """The task of these records, each device's rows held out 80/10/10 again in every repeat.

        `model` makes a model of the number of features, or of features= and classes= as for `choral.simulate`; a model
        that is made already and an nn.Module work, too.

        >>> rows = np.random.default_rng(0).normal(size=(400, 3))
        >>> from choral.learning.models import logistic
        >>> records = Records.of([(name, rows, rows[:, 0] > 0) for name in ("a", "b", "c")])
        >>> Task.of("signs", records, logistic).rows
        320
        """
        records = records.records if isinstance(records, Dataset) else records
        split = cache(lambda repeat: hold_out(records, seed=repeat))
        made = cache(lambda features: _made(model, (features, *records.shape[1:]), records.classes))
        made(records.shape[0])  # refused here, and not by the threads that train
        rows = int(split(0).train.sizes.min())
        return cls(name=name, devices=records.devices, rows=rows, split=split, model=made, smoothness=smoothness)

    def begun(self, repeat: int) -> tuple[Model, Split, NDArray[np.float32]]:
        """The model, the rows and the start of a repeat."""
        split = self.split(repeat)
        model = self.model(split.train.features.shape[1])
        return model, split, model.start(repeat)


def _made(model: Model | Callable[..., object], shape: tuple[int, ...], classes: int) -> Model:
    """The model for such rows, from a function of features or of features and classes, or as it is given."""
    kind, make = named_maker(model)
    if not isinstance(model, Model) and not _takes_classes(model):
        return made_for(lambda features, **_: model(features), kind, shape=shape, classes=classes)
    return made_for(make, kind, shape=shape, classes=classes)


def _takes_classes(make: Callable[..., object]) -> bool:
    """Whether it needs the number of classes; what has a usual one is called as it always was."""
    if is_module(make):
        return True
    given = inspect.signature(make).parameters.get("classes")
    return given is not None and given.default is given.empty


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One line of a figure: the task, how a cohort trains it, and how often the model is looked at.

    `clip = inf` with `noise = 0` is FedAvg; `local_steps = 1` is DP-SGD; `update_clip` is DP-FedAvg, whose server is
    trusted with the sum; `cohort` = devices is training on all rows. With `noise_is_added` "once" (rule S7) steps have
    no noise and use rows of at most `row_length`, and `noise` is that of the upload. Cohorts are in balance. Split,
    start, cohorts and batches come from the number of the repeat, so that experiments of one repeat can be compared.
    """

    task: Task
    cohort: int
    rounds: int
    local_steps: int
    batch: int
    step_size: float
    clip: float = math.inf
    noise: float = 0.0
    update_clip: float = math.inf
    update_noise: float = 0.0
    sampling: Sampling = "partition"
    noise_is_added: NoiseIsAdded = "every step"
    row_length: float = 0.0
    colluders: int = 0  # of a cohort, where the secure sum is counted on
    looks: int = 10
    also: tuple[Measure, ...] = ()

    def __post_init__(self) -> None:
        whole_updates = self.update_clip < math.inf or self.update_noise > 0
        if self.noise_is_added == "once" and (whole_updates or self.clip == math.inf):
            raise PlanError(
                "CH204",
                f"noise once with clip = {self.clip:g}, update_clip = {self.update_clip:g} and update_noise ="
                f" {self.update_noise:g}.",
                why="Rule S7 clips every gradient, and adds the only noise of an upload.",
                fix='Use a finite clip and leave the other two out, or noise_is_added = "every step".',
            )

    def plan(self) -> Plan:
        """The plan of the run; where nothing is clipped, its clip has no meaning."""
        return Plan(
            devices=self.task.devices,
            cohort=self.cohort,
            rounds=self.rounds,
            rows=self.task.rows,
            batch=self.batch,
            step_size=self.step_size,
            clip=self.clip if self.clip < math.inf else 1.0,
            noise=self.noise,
            local_steps=self.local_steps,
            sampling=self.sampling,
            noise_is_added=self.noise_is_added,
            row_length=self.row_length,
        )

    def recipe(self) -> Recipe:
        """How a device trains in a round."""
        planned = Recipe.of(self.plan())
        return replace(planned, clip=self.clip, update_clip=self.update_clip, update_noise=self.update_noise)

    def described(self) -> dict[str, object]:
        """The experiment as plain values, for a results file."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        plain |= {"task": self.task.name, "also": list(self.also)}
        return {name: "none" if value == math.inf else value for name, value in plain.items()}

    def named(self, repeat: int) -> str:
        """The experiment and its repeat in a few words, for who waits for it."""
        return f"{self.task.name} τ={self.local_steps} σ={self.noise:.3g} repeat {repeat + 1}"

    def within(self, rule: Rule, *, epsilon: float, delta: float) -> "Experiment":
        """The same with the least noise that keeps every device within the budget by a rule.

        The proved rules also pay for batches that overflow and updates out of range, as a run does.
        """
        if not PREMISES[rule].published:
            delta = spendable(Budget(epsilon=epsilon, delta=delta), with_reserves(self.plan(), delta)).delta
        # Noise grows with the clip: what is found for a clip of 1 serves for all.
        exposed = replace(self._exposed(rule, noise=1.0), clip=1.0)
        noise = _noise(rule, Budget(epsilon=epsilon, delta=delta), exposed)
        if PREMISES[rule].of_updates:
            return replace(self, update_noise=self.update_clip * noise)
        return replace(self, noise=self.clip * noise)

    def privacy(self, rule: Rule, delta: float) -> dict[str, object]:
        """What may be said of a device's privacy: ε by the rule of the noise, whether it holds, and what is proved."""
        premises = PREMISES[rule]
        if premises.of_updates:
            loss = loss_under(rule, self._exposed(rule, noise=self.update_noise))
            return {
                "delta": delta,
                "adjacency": loss.adjacency,
                "proved_with_a_trusted_server": {
                    "rule": "S4",
                    "epsilon": loss.epsilon(delta),
                    "adversary": "whoever sees the models; the server is trusted with the sums",
                },
            }
        found = account_of(self._exposed(rule, noise=self.noise), delta)
        said: dict[str, object] = {
            "delta": delta,
            "adjacency": found.adjacency,
            "proved_against_everyone": found.proved.against_everyone.to_dict(),
        }
        if premises.published:
            formulas = {
                "paper": found.paper,
                "paper_without_secure_sum": found.paper_without_secure_sum,
                "dp_sgd": found.dp_sgd.corrected,
            }
            said["published"] = {"rule": rule, **formulas[rule].to_dict()}
        elif premises.colluders:
            summed = found.proved.with_secure_sum
            said["proved_with_secure_sum"] = summed and summed.to_dict()
        return said

    def _exposed(self, rule: Rule, *, noise: float) -> Exposure:
        """What a rule may use; a device is charged the most rounds that any takes part in."""
        premises, plan = PREMISES[rule], replace(self.plan(), noise=noise)
        smoothness = self.task.smoothness if premises.smoothness else None
        colluders = self.colluders if premises.colluders else 0
        part = in_crowd(plan, rows=plan.rows, rounds=rounds_each(plan), colluders=colluders, dropouts=0)
        part = replace(
            part,
            clip=self.update_clip if premises.of_updates else self.clip,
            # Where no rule looks at the step size, experiments that differ in it alone share one search for the noise.
            step_size=1.0 if smoothness is None and not plan.once else self.step_size,
        )
        return smooth(part, smoothness=smoothness, convex=smoothness is not None)

    def curve(self, repeat: int, part: Part) -> Curve:
        """What each look at the model during one repeat saw, by the rows of one part: who chooses sees no test row.

        To choose by, the last look is enough.

        >>> from choral.learning.models import logistic
        >>> rows = np.random.default_rng(0).normal(size=(400, 3))
        >>> task = Task.of("signs", Records.of([(name, rows, rows[:, 0] > 0) for name in ("a", "b", "c")]), logistic)
        >>> plain = Experiment(task=task, cohort=2, rounds=4, local_steps=2, batch=80, step_size=4.0, looks=2)
        >>> plain.curve(0, "test")["round"], plain.curve(0, "test")["test_accuracy"][-1] > 0.9
        ([2.0, 4.0], True)
        """
        names = ("round", f"{part}_accuracy", f"{part}_loss", *self.also)
        (model, split, _), looks = self.task.begun(repeat), trained(self, repeat)

        def look(done: int, parameters: NDArray[np.float32]) -> list[float]:
            found = evaluate(model, parameters, getattr(split, part))
            measures = [mean_loss if one == "train_loss" else squared_gradient_norm for one in self.also]
            also = [measure(model, parameters, split.train) for measure in measures]
            return [float(f"{value:.6g}") for value in (done, found.accuracy or 0.0, found.loss, *also)]

        with ThreadPoolExecutor(CORES) as pool:  # one look keeps about one core busy
            seen = pool.map(look, *zip(*(looks[-1:] if part == "validation" else looks), strict=True))
            return {name: list(values) for name, values in zip(names, zip(*seen, strict=True), strict=True)}

    def gradient_at_start(self, repeat: int) -> float:
        """‖∇f‖² where a run begins."""
        model, split, start = self.task.begun(repeat)
        return squared_gradient_norm(model, start, split.train)

    def alone(self, repeat: int) -> float:
        """The mean test accuracy of every device trained by itself, without noise, as many steps as in a federation."""
        steps, everyone = self.local_steps * rounds_each(self.plan()), self.task.devices
        engine = engine_of(replace(self, rounds=1, local_steps=steps, cohort=everyone), repeat)
        model, split, start = self.task.begun(repeat)
        ends = [start + update for update in engine.updates(start, 1, np.arange(everyone))]
        return float(np.mean([evaluate(model, end, split.test).accuracy or 0.0 for end in ends]))


@cache
def _noise(rule: Rule, budget: Budget, exposed: Exposure) -> float:
    """Kept, since a search costs as much as a run."""
    return smallest_noise(exposed, budget, rule)


TRACED = ("step_size", "clip", "noise", "update_clip", "update_noise")
MOST_BYTES = 2**28  # of models that are kept, so that what is chosen need not be trained again
_kept: dict[Run, Looks] = {}


def trained(experiment: Experiment, repeat: int) -> Looks:
    """The model at each look; the last runs are kept."""
    if (experiment, repeat) not in _kept:
        list(train_together([(experiment, repeat)]))
    return _kept[experiment, repeat]


def train_together(runs: Sequence[Run], moved: Callable[[str], object] = lambda _: None) -> Iterator[Run]:
    """Those of these runs that are not kept, each as soon as it is trained: a group for each core at a time.

    Runs that differ in step size, clips and noises alone, so in ε, go through the rows of their repeat together, some
    at a time; on a lone accelerator, runs of several repeats do, and four groups are under way. While a run goes on,
    `moved` is called with words about it, from several threads.
    """
    companies, alike = Companies(), dict[tuple[Experiment, Company], list[Run]]()
    for experiment, repeat in dict.fromkeys(runs):
        if (experiment, repeat) not in _kept:
            form = _form(experiment)
            alike.setdefault((form, companies.of(form, repeat)), []).append((experiment, repeat))
    forms = [
        ((form, company if company.mixed else None), group)
        for (form, company), every in alike.items()
        for group in in_groups(every, mixed=company.mixed)
    ]
    pool = ThreadPoolExecutor(min(CORES, ON_AN_ACCELERATOR) if mixes_repeats() else CORES)
    try:
        coming = {
            pool.submit(looks_of, group, moved, mixed=company is not None): group
            for (_, company), group in in_order(forms)
        }
        for done in as_completed(list(coming)):
            group = coming.pop(done)  # models are kept as long as there is room, and not with what is to come
            for run, seen in zip(group, done.result(), strict=True):
                _keep(run, seen)
                yield run
    finally:
        pool.shutdown(cancel_futures=True)  # who interrupts waits for the runs under way, and for no other


def _form(experiment: Experiment) -> Experiment:
    """The same for all experiments that go through the rows together: numbers for which nothing is compiled are 1."""
    plan = experiment.plan()
    if plan.once:
        return replace(experiment, clip=1.0, noise=0.0) if plan.partitioned else experiment
    form = experiment.recipe().form
    return replace(experiment, **{name: getattr(form, name) for name in TRACED})


def _keep(run: Run, looks: Looks) -> None:
    """Keep this run, and as many of the last ones as there is room for."""
    _kept[run] = looks
    for oldest in [*_kept][:-1]:
        if sum(map(_bytes, _kept.values())) <= MOST_BYTES:
            return
        del _kept[oldest]


def _bytes(looks: Looks) -> int:
    return sum(parameters.nbytes for _, parameters in looks)
