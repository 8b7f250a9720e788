"""Runs of experiments as they are trained, one or several together: the model of each at every look."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from choral.core.plan import Plan
from choral.engine import SimulatedSum
from choral.engine.compiled import CompiledEngine
from choral.engine.per_device import PerDeviceEngine
from choral.federation import cohort_of
from choral.server_step import mean
from choral_lab.research.once_together import train_together as train_rounds_together
from choral_lab.research.sweep import RepeatOfSweep, RunOfSweep, go_together, mixes_repeats, runs_together, sweeps

if TYPE_CHECKING:
    from choral_lab.research.experiment import Experiment

Run = tuple["Experiment", int]  # an experiment, and the number of its repeat
Looks = tuple[tuple[int, NDArray[np.float32]], ...]  # after so many rounds, the model
Done = Iterator[tuple[int, list[NDArray[np.float32]]]]  # after so many rounds, the model of each run


def balanced_cohorts(plan: Plan, *, seed: int) -> list[NDArray[np.int64]]:
    """The cohort of every round where all devices are willing and nobody drops out; those that took part least first.

    >>> plan = Plan(devices=16, cohort=10, rounds=20, rows=9, batch=3, step_size=0.5, clip=1.0, noise=1.0)
    >>> int(np.bincount(np.concatenate(balanced_cohorts(plan, seed=0))).max())
    13
    """
    counts, drawn = np.zeros(plan.devices, dtype=np.int64), []
    for number in range(1, plan.rounds + 1):
        everyone = np.arange(plan.devices)
        turn = cohort_of(plan, everyone, counts, seed=seed, round_number=number, attempt=0, participation="balanced")
        drawn.append(np.array(turn))
        counts[drawn[-1]] += 1
    return drawn


@dataclass(frozen=True, kw_only=True)
class _Grid:
    """So fine a grid that rounding is no part of an experiment, and the most steps of one coordinate."""

    grid: float
    largest: int = 2**30


def engine_of(
    experiment: "Experiment", repeat: int, further: Sequence["Experiment"] = ()
) -> CompiledEngine | PerDeviceEngine:
    """What trains a repeat of an experiment, and with it, where the engine has an axis of runs, of further ones."""
    (model, split, _), plan = experiment.task.begun(repeat), experiment.plan()
    given: Any = {"model": model, "records": split.train, "plan": plan, "codec": _Grid(grid=experiment.task.grid)}
    if plan.once:
        return PerDeviceEngine(**given, seed=repeat)
    recipe, others = experiment.recipe(), [one.recipe() for one in further]
    return CompiledEngine(**given, seed=repeat, recipe=recipe, further=others)


class Company(NamedTuple):
    """What runs of one form that are trained together share: a repeat, or what is compiled for their rows.

    In the second case they are `mixed`: of several repeats, in calls of a fixed size.
    """

    mixed: bool
    shared: Hashable


class Companies:
    """The company of runs: several repeats go together on a lone accelerator, where their form fits into it.

    It follows from the form and the run's own rows, so that no run is trained in another way for the sake of others.
    """

    def __init__(self) -> None:
        self._mixed: dict[Hashable, bool] = {}  # for forms, with the shapes of rows

    def of(self, form: "Experiment", repeat: int) -> Company:
        """The company of a run of this form."""
        if form.plan().once or not mixes_repeats():
            return Company(False, repeat)
        rows = form.task.split(repeat).train
        mapped = isinstance(rows.features, np.memmap)
        finite = not mapped and bool(np.isfinite(rows.features).all())
        shapes = rows.sizes.tobytes(), rows.shape, rows.labels.dtype, mapped, finite
        if (form, shapes) not in self._mixed:
            engine = engine_of(form, repeat)
            self._mixed[form, shapes] = isinstance(engine, CompiledEngine) and go_together(engine)
        return Company(True, shapes) if self._mixed[form, shapes] else Company(False, repeat)


def looks_of(runs: Sequence[Run], moved: Callable[[str], object], *, mixed: bool = False) -> list[Looks]:
    """The models at each look of some runs of one company; meanwhile `moved` is called with words about each."""
    first, _ = runs[0]
    rounds, every = first.rounds, max(1, first.rounds // first.looks)
    seen: list[list[tuple[int, NDArray[np.float32]]]] = [[] for _ in runs]
    for done, models in _of_repeats(runs, every) if mixed else _of_repeat(runs, every):
        for (one, repeat), looks, model in zip(runs, seen, models, strict=True):
            moved(f"{one.named(repeat)}, round {done} of {rounds}")
            if done % every == 0 or done == rounds:
                looks.append((done, model))
    return [tuple(one) for one in seen]


def _of_repeats(runs: Sequence[Run], every: int) -> Done:
    """Runs of several repeats as one axis, on an accelerator."""
    (first, _), begun = runs[0], list[RepeatOfSweep]()
    repeats = [*dict.fromkeys(repeat for _, repeat in runs)]
    for repeat in repeats:
        (_, _, start), cohorts = first.task.begun(repeat), balanced_cohorts(first.plan(), seed=repeat)
        engine = engine_of(first, repeat)
        assert isinstance(engine, CompiledEngine)  # noqa: S101 - noise once is not mixed
        begun.append(RepeatOfSweep(engine, start, cohorts))
    each = [RunOfSweep(repeats.index(repeat), one.recipe()) for one, repeat in runs]
    yield from runs_together(begun, each, first=1, every=every)


def _of_repeat(runs: Sequence[Run], every: int) -> Done:
    """Runs of one repeat, which go through its rows together where they can."""
    experiments, (first, repeat) = [one for one, _ in runs], runs[0]
    (_, _, start), cohorts = first.task.begun(repeat), balanced_cohorts(first.plan(), seed=repeat)
    engine, others = engine_of(first, repeat), experiments[1:]
    if isinstance(engine, PerDeviceEngine):
        engines = [engine, *(engine_of(one, repeat) for one in others)]
        yield from _rounds_once([one for one in engines if isinstance(one, PerDeviceEngine)], start, cohorts)
        return
    if others and sweeps(engine):
        together = [engine_of(first, repeat, others)]
    else:
        together = [engine, *(engine_of(one, repeat) for one in others)]
    each = [one.rounds(start, cohorts, first=1, every=every) for one in together if isinstance(one, CompiledEngine)]
    for some in zip(*each, strict=True):
        yield some[0].done, [model for one in some for model in one.models]


def _rounds_once(
    engines: Sequence[PerDeviceEngine], start: NDArray[np.float32], cohorts: Sequence[NDArray[np.int64]]
) -> Done:
    models: list[NDArray[np.float32]] = [start] * len(engines)
    for done, cohort in enumerate(cohorts, start=1):
        opened = _opened(engines, models, done, cohort)
        grid = engines[0].codec.grid
        models = [model + mean(one.total, one.count, grid) for model, one in zip(models, opened, strict=True)]
        yield done, models


def _opened(
    engines: Sequence[PerDeviceEngine], models: Sequence[NDArray[np.float32]], number: int, cohort: NDArray[np.int64]
) -> list[SimulatedSum]:
    """A round of each run; one alone is trained as it always was."""
    if len(engines) == 1:
        return [engines[0].train(models[0], number, cohort)]
    return train_rounds_together(engines, models, number, cohort)
