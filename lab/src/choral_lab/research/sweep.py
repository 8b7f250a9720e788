"""Which runs the compiled engine takes through its rounds together, and repeats that are one axis on an accelerator.

Small models leave most of an accelerator idle, so many runs take about as long as one. A run is given the rows,
batches, noise and dither that it has alone. The compiler may add its products in another order for another number of
runs, so a call always has the same number of runs and of repeats: a run does not depend on which others are trained
with it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from choral.engine.compiled import CompiledEngine
from choral.engine.draws import MOST_ROUNDS, Devices, Turn
from choral.engine.processors import Rows
from choral.engine.programs import Drawn, check_runs, stacked_numbers, train_runs
from choral.learning.batches import EMPTY
from choral.learning.recipe import Recipe
from choral.server_step import mean_scale

MOST_RUNS = 32  # a call is always for so many
MOST_REPEATS = 8  # likewise
MOST_IN_LANES = 2**25  # parameters of all lanes: of models that were measured, the widest are 3 times as fast together
MOST_BYTES = 2**31  # of the rows of a call, which its engines hold once more, and of what is drawn for it

Parameters = NDArray[np.float32]
Of = TypeVar("Of")


class SweepLook(NamedTuple):
    """After so many rounds, the model of each run."""

    done: int
    parameters: list[Parameters]


class RepeatOfSweep(NamedTuple):
    """A repeat: an engine with its rows and seed, where its runs start, and its cohorts, one for each round."""

    engine: CompiledEngine
    start: Parameters
    cohorts: Sequence[Devices]


class RunOfSweep(NamedTuple):
    """A run: the number of its repeat among those that are given, and its recipe."""

    repeat: int
    recipe: Recipe


def sweeps(engine: CompiledEngine) -> bool:
    """Whether runs of this engine can be one call: dense stacks on one CPU whose rows are in memory, nothing weighed.

    The length of a whole update would be added in another order for several runs than for one.
    """
    (here, *others) = engine.processors
    return alike(engine) and engine.resident is None and here.platform == "cpu" and not others


def alike(engine: CompiledEngine) -> bool:
    """Whether runs of this engine's form do the same with other numbers."""
    plain = not (engine.recipe.strict or engine.recipe.weighed) and engine.recipe.update_clip == math.inf
    return plain and bool(engine.model.widths) and engine.feed.resident


def mixes_repeats() -> bool:
    """Whether runs of several repeats may be one call here: on an accelerator, if it is the only one.

    On a CPU they are faster apart, and with several accelerators each round is spread over all of them.

    >>> mixes_repeats()
    False
    """
    here = jax.devices()
    return len(here) == 1 and here[0].platform != "cpu"


def go_together(engine: CompiledEngine) -> bool:
    """Whether runs of this engine's form go together, over all repeats whose rows have the shapes of this one's.

    They do if their rounds stay on one processor, and a full call is within the limits. Nothing here depends on which
    runs there are: a run is always trained in the same way.
    """
    resident = engine.resident
    if resident is None or resident.mesh is not None or not alike(engine):
        return False
    in_lanes = MOST_RUNS * engine.lanes * engine.model.held(engine.room)
    rows = MOST_REPEATS * engine.records.features.nbytes
    return in_lanes <= MOST_IN_LANES and max(rows, drawn_bytes(engine)) <= MOST_BYTES


def runs_together(
    repeats: Sequence[RepeatOfSweep], runs: Sequence[RunOfSweep], *, first: int = 0, every: int = 1
) -> Iterator[SweepLook]:
    """What `CompiledEngine.rounds` would show of each of these runs, after `every` so many rounds.

    All have the form of the first repeat's engine, which goes together, and no rounds were trained before. There are
    at most `MOST_RUNS` of at most `MOST_REPEATS`; where there are fewer, the last one fills the call.
    """
    if not 0 < len(runs) <= MOST_RUNS or len(repeats) > MOST_REPEATS:
        raise ValueError(f"{len(runs)} runs of {len(repeats)} repeats, of {MOST_RUNS} and {MOST_REPEATS} in a call")
    engine, (rounds,) = repeats[0].engine, {len(repeat.cohorts) for repeat in repeats}
    finite = all(repeat.engine.feed.finite for repeat in repeats)
    # The kernel for large layers takes the lanes of one run.
    form = replace(engine.form, shortcuts=replace(engine.form.shortcuts, finite=finite, kernels=False))
    filled = [*runs, *[runs[-1]] * (MOST_RUNS - len(runs))]
    recipes = [run.recipe for run in filled]
    starts, which = np.stack([repeats[run.repeat].start for run in filled]), [run.repeat for run in filled]
    thetas, repeat_of = jax.device_put((starts, np.array(which, np.int32)), engine.processors[0])
    numbers = stacked_numbers(engine.model, recipes, engine.room)
    rows = _joined([repeat.engine.feed.held[0] for repeat in repeats])
    size = rounds_in_a_call(engine, min(every, rounds))
    for begin in range(0, rounds, every):
        end = min(begin + every, rounds)
        found = []
        for at in range(begin, end, size):
            some = range(at, min(at + size, end))
            drawn, scales = drawn_together(repeats, some, first, size)
            given = (engine.traced_codec, np.int32(0), thetas, rows, drawn, scales, repeat_of)
            thetas, _, states = train_runs(form, None, numbers, *given)
            found.append(([first + number for number in some], states))
        for some, states in jax.device_get(found):  # one wait for all of them
            check_runs(recipes[: len(runs)], some, states)
        yield SweepLook(end, [one.copy() for one in np.asarray(thetas)[: len(runs)]])  # who keeps one keeps no other


def _joined(each: Sequence[Rows]) -> Rows:
    """The rows of all repeats, one after the other, in an array for `MOST_REPEATS`."""
    features, labels, lengths = zip(*_filled(each), strict=True)
    known = None if lengths[0] is None else jnp.concatenate(lengths)
    return jnp.concatenate(features), jnp.concatenate(labels), known


def _filled(each: Sequence[Of]) -> list[Of]:
    """One for each of `MOST_REPEATS`: the last one is there for those that are missing."""
    return [*each, *[each[-1]] * (MOST_REPEATS - len(each))]


def rounds_in_a_call(engine: CompiledEngine, every: int) -> int:
    """So many that a look takes calls of one size, and what is drawn for a call is within the limit."""
    most = max(1, min(MOST_ROUNDS, MOST_BYTES // drawn_bytes(engine)))
    calls = -(-every // most)
    return -(-every // calls)


def drawn_bytes(engine: CompiledEngine) -> int:
    """What is drawn for a round: by each repeat, and its batches for each run once more."""
    assert engine.resident is not None  # noqa: S101 - asked before
    steps, lanes = engine.plan.local_steps, engine.lanes * -(-engine.plan.cohort // engine.lanes)
    batches, draws = 4 * steps * (engine.room + 8), 32 * engine.resident.drawer.cells
    return lanes * ((MOST_RUNS + MOST_REPEATS) * batches + MOST_REPEATS * draws)


def drawn_together(
    repeats: Sequence[RepeatOfSweep], rounds: Sequence[int], first: int, size: int
) -> tuple[Drawn, NDArray[np.float32]]:
    """What each repeat draws for these rounds, and what makes means of their sums: 0 for those that fill the call."""
    each, rows_before, scales = [], 0, np.zeros((MOST_REPEATS, size), np.float32)
    for place, repeat in enumerate(repeats):
        engine, cohorts = repeat.engine, [repeat.cohorts[number] for number in rounds]
        turns: list[Turn] = [(first + number, cohort, None) for number, cohort in zip(rounds, cohorts, strict=True)]
        group = [(turn, engine.take_part(turn[1])) for turn in turns]
        assert engine.resident is not None  # noqa: S101 - asked before
        drawn = engine.resident.draw(engine.resident.who(group, size))
        each.append(drawn._replace(rows=jnp.where(drawn.rows == EMPTY, EMPTY, drawn.rows + rows_before)))
        rows_before += len(engine.feed.held[0][1])
        scales[place, : len(cohorts)] = [mean_scale(len(cohort), engine.codec.grid) for cohort in cohorts]
    together: Drawn = jax.tree.map(lambda *of_repeats: jnp.stack(of_repeats), *_filled(each))
    return together, scales
