"""Several runs of one form in one compiled call: what they draw is drawn once, and their rows are read once.

They differ in numbers that nothing is compiled for: step size, clips and noises. A run has the bits that it has alone,
whichever others are trained with it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from inspect import unwrap
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from choral.backends.compiled import CompiledCall, Form, TracedCodec, check_states
from choral.backends.compiled_rounds import Drawn, train_rounds
from choral.backends.drawing import Devices, Turn
from choral.backends.vectorised import Vectorised
from choral.core.codec import mean_scale
from choral.learning.feed import Rows
from choral.learning.local import COMPILED
from choral.learning.processors import knows
from choral.learning.recipe import Recipe, TracedNumbers

OLDER_KERNELS = "xla_cpu_use_fusion_emitters"
MOST_BYTES = 2**26  # of rows' places that are drawn for one call

Parameters = NDArray[np.float32]


class SweepLook(NamedTuple):
    """After so many rounds, the model of each run."""

    done: int
    parameters: list[Parameters]


def sweeps(engine: Vectorised) -> bool:
    """Whether runs of this engine can be one call: dense stacks on one CPU whose rows are in memory, nothing weighed.

    The length of a whole update would be added in another order for several runs than for one.
    """
    (here, *others) = engine.processors
    return alike(engine) and engine.resident is None and here.platform == "cpu" and not others


def alike(engine: Vectorised) -> bool:
    """Whether runs of this engine's form do the same with other numbers."""
    plain = not (engine.recipe.strict or engine.recipe.weighed) and engine.recipe.update_clip == math.inf
    return plain and bool(engine.model.widths) and engine.feed.resident


def stacked_numbers(engine: Vectorised, recipes: Sequence[Recipe]) -> TracedNumbers:
    """The numbers of each run's recipe, one after the other, for this engine's model and batches."""
    model = engine.model.fixed or engine.model
    each = [TracedNumbers.of(model, recipe, engine.room) for recipe in recipes]
    stacked: TracedNumbers = jax.tree.map(lambda *of_runs: np.stack(of_runs), *each)
    return stacked


def check_runs(recipes: Sequence[Recipe], numbers: Sequence[int], states: NDArray[Any]) -> None:
    """Raise CH700 if a run left every range in one of these rounds; states in excess of runs and rounds are ignored."""
    for recipe, of_run in zip(recipes, states, strict=False):
        for number, state in zip(numbers, of_run, strict=False):
            check_states(number, state, recipe)


def rounds_together(
    engine: Vectorised,
    recipes: Sequence[Recipe],
    start: Parameters,
    cohorts: Sequence[Devices],
    *,
    first: int = 0,
    every: int = 1,
) -> Iterator[SweepLook]:
    """What `Vectorised.rounds` would show of a run by each of these recipes, after `every` so many rounds.

    The recipes have the form of the engine's own, whose rounds these are: no others were trained before.
    """
    numbers = stacked_numbers(engine, recipes)
    # Where the first call finds them the later ones do, too: else what takes them is compiled twice.
    thetas: Any = jax.device_put(np.stack([start] * len(recipes)), engine.processors[0])
    size, train = min(every, _rounds_in_a_call(engine)), compiled_for(max(0, len(engine.model.widths) - 2))
    turns: list[Turn] = [(first + number, cohort, None) for number, cohort in enumerate(cohorts)]
    calls = zip(turns, engine.drawing.rounds(turns, engine._take_part), strict=True)
    for begin in range(0, len(cohorts), every):
        end = min(begin + every, len(cohorts))
        for at in range(begin, end, size):
            some = list(islice(calls, min(size, end - at)))
            scales = np.zeros(size, np.float32)
            scales[: len(some)] = [mean_scale(len(cohort), engine.codec.grid) for (_, cohort, _), _ in some]
            drawn = _stacked([own for _, own in some], size)
            given = (engine.traced_codec, np.int32(0), thetas, engine.feed.held[0], drawn, scales)
            thetas, states = train(engine.form, numbers, *given)
            check_runs(recipes, [number for (number, _, _), _ in some], np.asarray(states))
        yield SweepLook(end, [one.copy() for one in np.asarray(thetas)])  # who keeps one keeps no other


def _rounds_in_a_call(engine: Vectorised) -> int:
    plan = engine.plan
    return max(1, MOST_BYTES // (4 * (plan.cohort + engine.lanes) * plan.local_steps * engine.room))


def _stacked(rounds: Sequence[Sequence[CompiledCall]], size: int) -> Drawn:
    """What these rounds draw as arrays for `size` of them; those in excess repeat the last one."""
    every = [*rounds, *[rounds[-1]] * (size - len(rounds))]

    def stacked(part: Callable[[CompiledCall], Any]) -> Any:  # noqa: ANN401 - an array of whatever kind it is
        return np.stack([np.stack([part(call) for call in calls]) for calls in every])

    places = stacked(lambda call: call.fed and call.fed[1])
    others = (stacked(attrgetter(name)) for name in ("counts", "noise", "dither", "keep"))
    return Drawn(places, *others)


def train_runs(
    form: Form,
    numbers: TracedNumbers,
    codec: TracedCodec,
    nothing: np.int32,
    thetas: Array,
    rows: Rows,
    drawn: Drawn,
    scales: Array,
    repeat_of: Array | None = None,
) -> tuple[Array, Array]:
    """The models after these rounds, and how many updates of each run and round are in each state; to be compiled.

    With `repeat_of` there are draws and scales for each repeat, and it says which ones a run takes.
    """
    rounds_of_one = unwrap(train_rounds)  # how it is compiled is said where all runs are

    def of_run(numbers: TracedNumbers, theta: Array, repeat: Array | None) -> tuple[Array, Array]:
        shared = repeat is None
        own, factors = (drawn, scales) if shared else jax.tree.map(lambda every: every[repeat], (drawn, scales))
        found = rounds_of_one(form, None, numbers, codec, nothing, theta, rows, own, factors, several=shared)
        return found[0], found[2]

    return jax.vmap(of_run)(numbers, thetas, repeat_of)


@cache
def compiled_for(hidden: int) -> Callable[..., tuple[Array, Array]]:
    """`train_runs` for models with so many hidden layers.

    Without any, the older way to write kernels compiles in half to two thirds of the time, and they are no slower, with
    the same bits; with hidden layers they are 2 to 7 % slower.
    """
    older = not hidden and knows(OLDER_KERNELS, False)
    options = {**COMPILED, **({OLDER_KERNELS: False} if older else {})}
    compiled: Callable[..., tuple[Array, Array]] = jax.jit(train_runs, static_argnums=0, compiler_options=options)
    return compiled
