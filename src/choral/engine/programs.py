"""What the engine compiles: the updates of a call's lanes, their sum in the codec's integers, and the mean.

Every program has an axis of runs, which differ in numbers that nothing is compiled for: step size, clips and noises. A
run that is alone is computed without it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec
from numpy.typing import NDArray

from choral.core.codec import quantise
from choral.core.errors import TrainingError
from choral.engine.processors import Rows
from choral.learning import noise
from choral.learning.local import COMPILED, Shortcuts, local_changes
from choral.learning.models import Model
from choral.learning.recipe import Recipe, TracedNumbers

TracedCodec = tuple[np.float32, np.int32]  # the step of the grid, and the most steps of an update
STATES = FINE, NOT_FINITE, TOO_LARGE = 0, 1, 2  # what a call says of a device's update
CALLS = "calls"  # the axis of a mesh of processors
Where = Any  # a partition of arrays, which JAX does not type
_spec: Callable[..., Where] = PartitionSpec
EVERYWHERE, BY_CALL = _spec(), _spec(None, CALLS)

Sum = tuple[Any, Any]  # the halves of the sum of each run's updates, and how many of these are in each state
add_everywhere: Callable[..., tuple[Array, Array]] = lax.psum


@dataclass(frozen=True, kw_only=True)
class Form:
    """What is compiled for an engine: other numbers of a recipe of this form, and other devices, compile nothing."""

    model: Model
    recipe: Recipe
    shortcuts: Shortcuts


class Drawn(NamedTuple):
    """What is drawn for lanes: where the rows of their steps are, how many count, keys, and whose update is kept.

    These are arrays by lane, or by (round, call, lane), on the host or on a processor.
    """

    rows: Any
    counts: Any
    noise: Any
    dither: Any
    keep: Any


class Pending(NamedTuple):
    """θ before a round, and what the round moves it by: the next one's calls add the two, so that nothing waits."""

    thetas: Any  # of each run; an array, on the host or on a processor, as the others are
    sums: Sequence[Sum]
    scale: Any
    nothing: Any  # 0


def over_runs(of_run: Callable[..., Any], *stacked: Any) -> Any:  # noqa: ANN401 - pytrees
    """What a function of one run gives for all of them, each argument and each result with an axis of runs.

    >>> over_runs(lambda one: 2 * one, jnp.float32([3])).tolist(), over_runs(lambda one: -one, jnp.arange(2)).tolist()
    ([6.0], [0, -1])
    """
    if len(jax.tree.leaves(stacked)[0]) > 1:
        return jax.vmap(of_run)(*stacked)
    alone = of_run(*jax.tree.map(lambda leaf: leaf[0], stacked))
    return jax.tree.map(lambda leaf: leaf[None], alone)


def lane_changes(
    form: Form, numbers: TracedNumbers, theta: Array, rows: Rows, call: Drawn, *, several: bool = False
) -> list[Array]:
    """The updates of all lanes of one run, in pieces that follow each other in the flat vector.

    If `several` runs draw the same, all noise of a call is drawn ahead of its steps, and the update is one piece.
    """
    one = partial(local_changes, form.model, form.recipe, theta, *rows[:2], lengths=rows[2], shortcuts=form.shortcuts)
    lanes = call.rows, call.counts, call.noise
    if several and form.recipe.noise:
        lanes = *lanes[:2], jax.vmap(jax.vmap(partial(noise.normal, shape=theta.shape)))(call.noise)
        one = partial(one, draw=_from_drawn)
    own = 0 if form.recipe.weighed else None  # where rows weigh, each lane has its own divisor and weight
    axes = TracedNumbers(None, own, None, None, None, None, own)  # type: ignore[arg-type]
    changes = jax.vmap(lambda of_lane, *lane: one(*lane, numbers=of_lane), in_axes=(axes, 0, 0, 0))(numbers, *lanes)
    return [_flat(changes)] if several else changes


def _from_drawn(drawn: Array, shape: tuple[int, ...], start: int) -> Array:
    """Of the Gaussians for a whole flat vector those at these places."""
    return lax.slice_in_dim(drawn, start, start + math.prod(shape)).reshape(shape)


def _flat(changes: Sequence[Array]) -> Array:
    """Each lane's pieces as one flat vector."""
    return jnp.concatenate([piece.reshape(len(piece), -1) for piece in changes], axis=1)


def with_added(
    codec: TracedCodec, total: Array, changes: Sequence[Array], keys: Array, keep: Array
) -> tuple[Array, Array]:
    """The halves of the sum with these updates added, and how many of those that are kept are in each state.

    Where one that is kept is not fine the sum is no sum, and the round is refused. The grid is a power of two, so a
    product with it rounds nothing, whether or not it is known when this is compiled.
    """
    grid, largest = codec
    halves, start = [], 0
    for piece in changes:
        dither = jax.vmap(partial(noise.uniform, shape=piece.shape[1:], start=start))(keys)
        kept = keep.reshape(-1, *[1] * (piece.ndim - 1))
        integers = jnp.where(kept, quantise(piece, dither, grid), 0)
        low, high = lax.reduce((integers & 0xFFFF, integers >> 16), (np.int32(0), np.int32(0)), _add_both, (0,))
        halves.append(jnp.stack([low.ravel(), high.ravel()]))
        start += low.size
    lengths = [jnp.max(jnp.abs(piece), axis=range(1, piece.ndim)) for piece in changes]
    most = reduce(jnp.maximum, lengths)  # not finite if any is not
    state = jnp.where(most <= (largest - 1) * grid, FINE, jnp.where(jnp.isfinite(most), TOO_LARGE, NOT_FINITE))
    counts = jnp.stack([jnp.sum((state == one) & keep, dtype=jnp.int32) for one in STATES])
    return total + jnp.concatenate(halves, axis=1), counts


def _add_both(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    """In one pass over what is added, which is what an accelerator waits for."""
    return one[0] + other[0], one[1] + other[1]


@partial(jax.jit, static_argnums=0, compiler_options=COMPILED)
def updates_of(form: Form, numbers: TracedNumbers, thetas: Array, rows: Rows, call: Drawn) -> Array:
    """The updates of all lanes of each run, each as one flat vector."""

    def of_run(numbers: TracedNumbers, theta: Array) -> Array:
        return _flat(lane_changes(form, numbers, theta, rows, call))

    found: Array = over_runs(of_run, numbers, thetas)
    return found


@lru_cache(maxsize=128)
def add_lanes_of(form: Form) -> Callable[..., tuple[Sum, Array]]:
    """What adds the updates of a call's lanes to the sum of each run, and says what θ they began from.

    The form is looked up once, not in every call.
    """

    def add_lanes(
        numbers: TracedNumbers, codec: TracedCodec, before: Sum, pending: Pending, rows: Rows, call: Drawn
    ) -> tuple[Sum, Array]:
        thetas = arrived(pending)

        def of_run(numbers: TracedNumbers, theta: Array, total: Array) -> tuple[Array, Array]:
            changes = lane_changes(form, numbers, theta, rows, call, several=len(thetas) > 1)
            return with_added(codec, total, changes, call.dither, call.keep)

        totals, states = over_runs(of_run, numbers, thetas, before[0])
        return (totals, before[1] + states), thetas

    compiled: Callable[..., tuple[Sum, Array]] = jax.jit(add_lanes, compiler_options=COMPILED)
    return compiled


@partial(jax.jit, static_argnums=(0, 1), compiler_options=COMPILED)
def train_runs(
    form: Form,
    mesh: Mesh | None,
    numbers: TracedNumbers,
    codec: TracedCodec,
    nothing: np.int32,
    thetas: Array,
    rows: Rows,
    drawn: Drawn,
    scales: Array,
    repeat_of: Array | None = None,
) -> tuple[Array, Array, Array]:
    """θ after rounds that stay on the processors, the halves of the last sum, and each round's updates by their state.

    A round with a scale of 0 is none: it leaves θ as it is. With `repeat_of` there are draws and scales for each of
    several repeats, and it says which ones a run takes.
    """

    def train(
        numbers: TracedNumbers, codec: TracedCodec, nothing: Array, thetas: Array, rows: Rows, drawn: Drawn,
        scales: Array,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        nobody = jnp.zeros((2, thetas.shape[1]), jnp.int32)

        def of_run(numbers: TracedNumbers, theta: Array, *repeat: Array) -> tuple[Array, Array, Array]:
            def one_round(state: tuple[Array, Array], given: tuple[Drawn, Array]) -> tuple[tuple[Array, Array], Array]:
                (theta, before), (turn, scale) = state, given

                def one_call(total: Array, call: Drawn) -> tuple[Array, Array]:
                    changes = lane_changes(form, numbers, theta, rows, call, several=len(thetas) > 1 and not repeat)
                    return with_added(codec, total, changes, call.dither, call.keep)

                total, found = lax.scan(one_call, nobody, turn)
                found = found.sum(axis=0)
                if mesh is not None:
                    total, found = add_everywhere((total, found), CALLS)
                moved = theta + unfused(mean_of(total, scale), nothing)
                one = scale > 0
                return (jnp.where(one, moved, theta), jnp.where(one, total, before)), found

            own = jax.tree.map(lambda every: every[repeat[0]], (drawn, scales)) if repeat else (drawn, scales)
            (theta, total), found = lax.scan(one_round, (theta, nobody), own)
            return theta, total, found

        found: tuple[Array, Array, Array] = over_runs(
            of_run, numbers, thetas, *(() if repeat_of is None else (repeat_of,))
        )
        return found

    given: Any = (numbers, codec, nothing, thetas, rows, drawn, scales)
    if mesh is None:
        return train(*given)
    specs = (EVERYWHERE,) * 5 + (BY_CALL, EVERYWHERE)
    return jax.shard_map(train, mesh=mesh, in_specs=specs, out_specs=EVERYWHERE, check_vma=False)(*given)


def stacked_numbers(model: Model, recipes: Sequence[Recipe], room: int) -> TracedNumbers:
    """The numbers of each run's recipe, one after the other, for batches with this room."""
    each = [TracedNumbers.of(model.fixed or model, recipe, room) for recipe in recipes]
    stacked: TracedNumbers = jax.tree.map(lambda *of_runs: np.stack(of_runs), *each)
    return stacked


def check_states(round_number: int, states: NDArray[np.int32], recipe: Recipe) -> None:
    """Refuse a round with an update that is not finite or leaves the codec's range; `states` counts those in each."""
    if states[FINE] < states.sum():
        kind = "not finite" if states[NOT_FINITE] else "beyond the range of the codec"
        raise TrainingError(
            "CH700",
            f"round {round_number}: {states.sum() - states[FINE]} of {states.sum()} updates are {kind}.",
            why="The steps are too large for this loss, or the features are not scaled.",
            fix=f"Use a step size below {recipe.step_size:g}, a smaller clip, or features within about ±1.",
        )


def check_runs(recipes: Sequence[Recipe], rounds: Sequence[int], states: NDArray[np.int32]) -> None:
    """Refuse these rounds by `check_states` of each run; states in excess of runs and rounds are ignored."""
    for recipe, of_run in zip(recipes, states, strict=False):
        for number, state in zip(rounds, of_run, strict=False):
            check_states(number, state, recipe)


def halves_of(integers: NDArray[np.int64]) -> NDArray[np.int32]:
    """Integers as `with_added` keeps their sum; low halves of either sign, so that those of 2^15 devices fit together.

    >>> halves_of(np.array([-70_000])).tolist()
    [[-4464], [-1]]
    """
    high = (integers + 2**15) >> 16
    return np.stack([integers - (high << 16), high]).astype(np.int32)


def whole(halves: NDArray[np.int32] | Array) -> NDArray[np.int64]:
    """The sum that `with_added` keeps in halves."""
    low, high = np.asarray(halves).astype(np.int64)
    whole: NDArray[np.int64] = high * 2**16 + low
    return whole


def mean_of(halves: Array, scale: Array | np.float32) -> Array:
    """The mean update, on the processor: the sum, which may have 47 bits, is rounded once, and so is the product.

    Its bits from the 24th on and those below are floats without rounding, so only their sum is rounded.

    >>> int(mean_of(jnp.int32([[1], [2**9]]), np.float32(1.0))[0]) == int(np.float32(2**25 + 1))
    True
    """
    lows, highs = halves[..., 0, :], halves[..., 1, :]
    high, low = highs + (lows >> 16), lows & 0xFFFF
    upper, lower = high >> 8, ((high & 0xFF) << 16) | low
    mean: Array = (upper.astype(jnp.float32) * jnp.float32(2**24) + lower.astype(jnp.float32)) * scale
    return mean


@jax.jit
def joined(sums: Sequence[Sum]) -> Sum:
    """One sum of several."""
    return reduce(jnp.add, [total for total, _ in sums]), reduce(jnp.add, [states for _, states in sums])


@jax.jit
def arrived(pending: Pending) -> Array:
    """θ plus the mean update of a round, for each run; θ itself where the scale is 0, which no round has."""
    moved = pending.thetas + unfused(mean_of(joined(pending.sums)[0], pending.scale), pending.nothing)
    return jnp.where(pending.scale > 0, moved, pending.thetas)


def unfused(product: Array, nothing: Array | np.int32) -> Array:
    """A product whose bits are read before it is added: else the compiler would round product and sum once, not twice.

    `nothing` is 0, and nobody knows it when this is compiled.
    """
    bits = lax.bitcast_convert_type(product, jnp.int32) ^ nothing
    return lax.bitcast_convert_type(bits, jnp.float32)
