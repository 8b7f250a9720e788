"""Runs of experiments as they are trained, one or several together: the model of each at every look."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from choral.backends.once import OnceEngine
from choral.backends.once import train_together as train_rounds_together
from choral.backends.resident_sweep import RepeatOfSweep, RunOfSweep, go_together, runs_together
from choral.backends.sweep import rounds_together, sweeps
from choral.backends.vectorised import SimulatedSum, Vectorised
from choral.federation import balanced_cohorts
from choral.secagg.codec import mean

if TYPE_CHECKING:
    from choral.research.experiment import Experiment

Run = tuple["Experiment", int]  # an experiment, and the number of its repeat
Looks = tuple[tuple[int, NDArray[np.float32]], ...]  # after so many rounds, the model
Done = Iterator[tuple[int, list[NDArray[np.float32]]]]  # after so many rounds, the model of each run


@dataclass(frozen=True, kw_only=True)
class _Grid:
    """So fine a grid that rounding is no part of an experiment, and the most steps of one coordinate."""

    grid: float
    largest: int = 2**30


def engine_of(experiment: "Experiment", repeat: int) -> Vectorised | OnceEngine:
    """What trains a repeat of an experiment."""
    (model, split, _), plan = experiment.task.begun(repeat), experiment.plan()
    grid = _Grid(grid=experiment.task.grid)
    if plan.once:
        return OnceEngine(model=model, records=split.train, plan=plan, codec=grid, seed=repeat)
    return Vectorised(model=model, records=split.train, plan=plan, codec=grid, seed=repeat, recipe=experiment.recipe())


def looks_of(runs: Sequence[Run], moved: Callable[[str], object]) -> list[Looks]:
    """The models at each look of some runs of one form; while they go on, `moved` is called with words about each."""
    first, _ = runs[0]
    rounds, every = first.rounds, max(1, first.rounds // first.looks)
    seen: list[list[tuple[int, NDArray[np.float32]]]] = [[] for _ in runs]
    for places, looks in _parts(runs, every):
        for done, models in looks:
            for place, model in zip(places, models, strict=True):
                one, repeat = runs[place]
                moved(f"{one.named(repeat)}, round {done} of {rounds}")
                if done % every == 0 or done == rounds:
                    seen[place].append((done, model))
    return [tuple(one) for one in seen]


def _parts(runs: Sequence[Run], every: int) -> Iterator[tuple[Sequence[int], Done]]:
    """What goes together: the places of these runs, and their models at least after `every` so many rounds."""
    places: dict[int, list[int]] = {}
    for place, (_, repeat) in enumerate(runs):
        places.setdefault(repeat, []).append(place)
    first, repeat = runs[0]
    engine = engine_of(first, repeat)
    rows = [first.task.begun(repeat)[1].train for repeat in places]
    if isinstance(engine, Vectorised) and go_together(engine, rows):
        yield range(len(runs)), _of_all(runs, engine, [*places], every)
        return
    for repeat, own in places.items():
        engine = engine if repeat == runs[0][1] else engine_of(first, repeat)
        yield own, _of_repeat([runs[place][0] for place in own], repeat, engine, every)


def _of_all(runs: Sequence[Run], engine: Vectorised, repeats: Sequence[int], every: int) -> Done:
    """Runs of several repeats as one axis, where they stay on an accelerator."""
    first, begun = runs[0][0], list[RepeatOfSweep]()
    for repeat in repeats:
        (_, _, start), cohorts = first.task.begun(repeat), balanced_cohorts(first.plan(), seed=repeat)
        own = engine if repeat == runs[0][1] else engine_of(first, repeat)
        assert isinstance(own, Vectorised)  # noqa: S101 - as the first one is
        begun.append(RepeatOfSweep(own, start, cohorts))
    each = [RunOfSweep(repeats.index(repeat), one.recipe()) for one, repeat in runs]
    yield from runs_together(begun, each, first=1, every=every)


def _of_repeat(experiments: Sequence["Experiment"], repeat: int, engine: Vectorised | OnceEngine, every: int) -> Done:
    """Runs of one repeat, which go through its rows together where they can; the engine is the first one's."""
    first = experiments[0]
    (_, _, start), cohorts = first.task.begun(repeat), balanced_cohorts(first.plan(), seed=repeat)
    if isinstance(engine, OnceEngine):
        engines = [engine, *(engine_of(one, repeat) for one in experiments[1:])]
        yield from _rounds_once([one for one in engines if isinstance(one, OnceEngine)], start, cohorts)
    elif sweeps(engine):
        recipes = [one.recipe() for one in experiments]
        yield from rounds_together(engine, recipes, start, cohorts, first=1, every=every)
    else:
        several = [engine, *(engine_of(one, repeat) for one in experiments[1:])]
        each = [one.rounds(start, cohorts, first=1, every=every) for one in several if isinstance(one, Vectorised)]
        yield from ((some[0].done, [one.parameters for one in some]) for some in zip(*each, strict=True))


def _rounds_once(
    engines: Sequence[OnceEngine], start: NDArray[np.float32], cohorts: Sequence[NDArray[np.int64]]
) -> Done:
    models: list[NDArray[np.float32]] = [start] * len(engines)
    for done, cohort in enumerate(cohorts, start=1):
        opened = _opened(engines, models, done, cohort)
        grid = engines[0].codec.grid
        models = [model + mean(one.total, one.count, grid) for model, one in zip(models, opened, strict=True)]
        yield done, models


def _opened(
    engines: Sequence[OnceEngine], models: Sequence[NDArray[np.float32]], number: int, cohort: NDArray[np.int64]
) -> list[SimulatedSum]:
    """A round of each run; one alone is trained as it always was."""
    if len(engines) == 1:
        return [engines[0].train(models[0], number, cohort)]
    return train_rounds_together(engines, models, number, cohort)
