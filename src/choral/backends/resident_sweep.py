"""Runs of a sweep on an accelerator: repeats, step sizes, clips and noises are one axis of rounds that stay there.

Small models leave most of an accelerator idle, so many runs take about as long as one. A run is given the rows,
batches, noise and dither that it has alone. The compiler may add its products in another order for another number of
runs, so a call always has the same number of them: a run does not depend on which others are trained with it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from inspect import unwrap
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from choral.backends.compiled import Form, TracedCodec, check_states
from choral.backends.compiled_rounds import Drawn, train_rounds
from choral.backends.drawing import Devices, Turn
from choral.backends.resident import MOST_ROUNDS, Resident
from choral.backends.sweep import Parameters, SweepLook, alike, traced_numbers
from choral.backends.vectorised import LANES_ELSEWHERE, Vectorised
from choral.learning.batches import EMPTY
from choral.learning.feed import Rows
from choral.learning.local import COMPILED
from choral.learning.recipe import Recipe, TracedNumbers
from choral.learning.records import Records
from choral.secagg.codec import mean_scale

MOST_RUNS = 32  # of one call
MOST_BYTES = 2**32  # of the rows of all repeats, and of what is drawn for one call


class RepeatOfSweep(NamedTuple):
    """A repeat: an engine with its rows and seed, where its runs start, and its cohorts, one for each round."""

    engine: Vectorised
    start: Parameters
    cohorts: Sequence[Devices]


class RunOfSweep(NamedTuple):
    """A run: the number of its repeat among those that are given, and its recipe."""

    repeat: int
    recipe: Recipe


def mixes_repeats() -> bool:
    """Whether runs of several repeats may be one call here: on an accelerator, if it is the only one.

    On a CPU they are faster apart, and with several accelerators each round is spread over all of them.

    >>> mixes_repeats()
    False
    """
    here = jax.devices()
    return len(here) == 1 and here[0].platform != "cpu"


def go_together(engine: Vectorised, repeats: Sequence[Records]) -> bool:
    """Whether runs of this engine's form, on the rows of these repeats, are one call.

    They are if their rounds stay on one processor, which all of them together do not more than fill.
    """
    resident = engine.resident
    if resident is None or resident.mesh is not None or not alike(engine):
        return False
    filled = MOST_RUNS * engine.lanes * engine.model.held(engine.room)
    rows = sum(one.features.nbytes for one in repeats)
    same = all(np.array_equal(one.sizes, repeats[0].sizes) for one in repeats)
    return same and filled <= LANES_ELSEWHERE and rows <= MOST_BYTES


def runs_together(
    repeats: Sequence[RepeatOfSweep], runs: Sequence[RunOfSweep], *, first: int = 0, every: int = 1
) -> Iterator[SweepLook]:
    """What `Vectorised.rounds` would show of each of these runs, after `every` so many rounds.

    All have the form of the first repeat's engine, and no rounds were trained before. At most `MOST_RUNS` go together;
    where there are fewer, the last one fills the call.
    """
    engine, rounds = repeats[0].engine, len(repeats[0].cohorts)
    finite = all(repeat.engine.feed.finite for repeat in repeats)
    # The kernel for large layers takes the lanes of one run.
    form = replace(engine.form, shortcuts=replace(engine.form.shortcuts, finite=finite, kernels=False))
    filled = [*runs, *[runs[-1]] * (MOST_RUNS - len(runs))]
    each = [traced_numbers(engine, run.recipe) for run in filled]
    numbers: TracedNumbers = jax.tree.map(lambda *of_runs: np.stack(of_runs), *each)
    starts, which = np.stack([repeats[run.repeat].start for run in filled]), [run.repeat for run in filled]
    thetas, repeat_of = jax.device_put((starts, np.array(which, np.int32)), engine.processors[0])
    rows = _joined([repeat.engine.feed.held[0] for repeat in repeats])
    size = min(every, _rounds_in_a_call(repeats))
    for begin in range(0, rounds, every):
        end = min(begin + every, rounds)
        found = []
        for at in range(begin, end, size):
            some = range(at, min(at + size, end))
            drawn, scales = _drawn(repeats, some, first, size)
            given = (engine.traced_codec, np.int32(0), thetas, rows, drawn, scales, repeat_of)
            thetas, states = _train(form, numbers, *given)
            found.append((some, states))
        for some, states in jax.device_get(found):  # one wait for all of them
            for run, of_run in zip(runs, states, strict=False):
                for number, state in zip(some, of_run, strict=False):
                    check_states(first + number, state, run.recipe)
        yield SweepLook(end, list(np.asarray(thetas)[: len(runs)]))


def _joined(each: Sequence[Rows]) -> Rows:
    """The rows of all repeats, one after the other."""
    if len(each) == 1:
        return each[0]
    features, labels, lengths = zip(*each, strict=True)
    known = [one for one in lengths if one is not None]
    return jnp.concatenate(features), jnp.concatenate(labels), jnp.concatenate(known) if known else None


def _rounds_in_a_call(repeats: Sequence[RepeatOfSweep]) -> int:
    """So many that what is drawn is within the limit: for each repeat, and its batches for each run once more."""
    engine, cells = repeats[0].engine, _resident(repeats[0]).drawer.cells
    steps, lanes = engine.plan.local_steps, engine.lanes * -(-engine.plan.cohort // engine.lanes)
    batches = 4 * steps * (engine.room + 8)
    of_round = lanes * ((MOST_RUNS + len(repeats)) * batches + len(repeats) * 32 * cells)
    return max(1, min(MOST_ROUNDS, MOST_BYTES // of_round))


def _resident(repeat: RepeatOfSweep) -> Resident:
    found = repeat.engine.resident
    assert found is not None  # noqa: S101 - asked before
    return found


def _drawn(
    repeats: Sequence[RepeatOfSweep], rounds: Sequence[int], first: int, size: int
) -> tuple[Drawn, NDArray[np.float32]]:
    """What each repeat draws for these rounds, and what makes means of their sums: 0 for those that fill the call."""
    each, rows_before, scales = [], 0, np.zeros((len(repeats), size), np.float32)
    for place, repeat in enumerate(repeats):
        engine, cohorts = repeat.engine, [repeat.cohorts[number] for number in rounds]
        turns: list[Turn] = [(first + number, cohort, None) for number, cohort in zip(rounds, cohorts, strict=True)]
        group = [(turn, engine._take_part(turn[1])) for turn in turns]
        resident = _resident(repeat)
        drawn = resident.draw(resident.who(group, size))
        each.append(drawn._replace(rows=jnp.where(drawn.rows == EMPTY, EMPTY, drawn.rows + rows_before)))
        rows_before += len(engine.feed.held[0][1])
        scales[place, : len(cohorts)] = [mean_scale(len(cohort), engine.codec.grid) for cohort in cohorts]
    together: Drawn = jax.tree.map(lambda *of_repeats: jnp.stack(of_repeats), *each)
    return together, scales


@partial(jax.jit, static_argnums=0, compiler_options=COMPILED)
def _train(
    form: Form,
    numbers: TracedNumbers,
    codec: TracedCodec,
    nothing: np.int32,
    thetas: Array,
    rows: Rows,
    drawn: Drawn,
    scales: Array,
    repeat_of: Array,
) -> tuple[Array, Array]:
    """The models after these rounds, and how many updates of each run and round are in each state."""
    rounds_of_one = unwrap(train_rounds)  # how it is compiled is said here, for all runs

    def of_run(numbers: TracedNumbers, theta: Array, repeat: Array) -> tuple[Array, Array]:
        own, factors = jax.tree.map(lambda of_repeats: of_repeats[repeat], (drawn, scales))
        found = rounds_of_one(form, None, numbers, codec, nothing, theta, rows, own, factors)
        return found[0], found[2]

    return jax.vmap(of_run)(numbers, thetas, repeat_of)
