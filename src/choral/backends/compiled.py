"""What the engine compiles: the updates of all lanes, their sum in the codec's integers, and the mean."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from choral.core.codec import quantise
from choral.core.errors import TrainingError
from choral.learning import noise
from choral.learning.feed import Rows
from choral.learning.local import COMPILED, Shortcuts, local_changes
from choral.learning.models import Model
from choral.learning.recipe import Number, Recipe, TracedNumbers

TracedCodec = tuple[np.float32, np.int32]  # the step of the grid, and the most steps of an update
STATES = FINE, NOT_FINITE, TOO_LARGE = 0, 1, 2  # what a call says of a device's update


Fed = tuple[Rows, NDArray[np.int32] | Array]  # rows, and where the wanted ones are in them


@dataclass(frozen=True, kw_only=True, eq=False)
class CompiledCall:
    """What one compiled call is given: its lanes' devices, rows and randomness, and which processor it is for."""

    devices: NDArray[np.int64]
    rows: NDArray[np.int32]
    fed: Fed | None  # None: the rows are read when the call is made, so that few are in memory
    counts: NDArray[np.int32] | Array
    noise: NDArray[np.uint32] | Array
    dither: NDArray[np.uint32] | Array
    keep: NDArray[np.bool_] | Array
    at: int


@dataclass(frozen=True, kw_only=True)
class Form:
    """What is compiled for an engine: other numbers of a recipe of this form, and other devices, compile nothing."""

    model: Model
    recipe: Recipe
    shortcuts: Shortcuts


Sum = tuple[Any, Any]  # the halves of a sum of updates, and how many of these are in each state


class Pending(NamedTuple):
    """θ before a round, and what the round moves it by: the next one's calls add the two, so that nothing waits."""

    theta: Any  # an array, on the host or on a processor; so are the others
    sums: Sequence[Sum]
    scale: Any
    nothing: Any  # 0


Lanes = tuple[Any, Any, Any]  # of each lane: where its rows are, how many of them count, the keys of its noise


def lane_changes(
    form: Form, numbers: TracedNumbers, parameters: Array, rows: Rows, lanes: Lanes, *, ahead: bool = False
) -> list[Array]:
    """The updates of all lanes, in pieces that follow each other in the flat vector.

    The noise is drawn in the steps that use it, or all of it `ahead` of them, where several runs use the same.
    """
    features, labels, lengths = rows
    steps = partial(local_changes, form.model, form.recipe, parameters, features, labels)
    one = partial(steps, lengths=lengths, shortcuts=form.shortcuts)
    if ahead and form.recipe.noise:
        places, counts, keys = lanes
        lanes = places, counts, jax.vmap(jax.vmap(partial(noise.normal, shape=parameters.shape)))(keys)
        one = partial(one, draw=_from_drawn)
    if not form.recipe.weighed:
        return jax.vmap(partial(one, numbers=numbers))(*lanes)

    def weighed(share: Number, weight: Number, *lane: Array) -> list[Array]:
        return one(*lane, numbers=numbers._replace(share=share, weight=weight))

    return jax.vmap(weighed)(numbers.share, numbers.weight, *lanes)


def _from_drawn(drawn: Array, shape: tuple[int, ...], start: int) -> Array:
    """Of the Gaussians for a whole flat vector those at these places."""
    return lax.slice_in_dim(drawn, start, start + math.prod(shape)).reshape(shape)


def lane_updates(
    form: Form, numbers: TracedNumbers, parameters: Array, rows: Rows, lanes: Lanes, *, ahead: bool = False
) -> Array:
    """The updates of all lanes, each as one flat vector."""
    changes = lane_changes(form, numbers, parameters, rows, lanes, ahead=ahead)
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


updates_of = jax.jit(lane_updates, static_argnums=0, compiler_options=COMPILED)
add = jax.jit(with_added, compiler_options=COMPILED)


@lru_cache(maxsize=128)
def add_lanes_of(form: Form) -> Callable[..., tuple[Sum, Array]]:
    """What adds the updates of a call's lanes to a sum, and says what θ they began from.

    The form is looked up once, not in every call.
    """

    def add_lanes(
        numbers: TracedNumbers,
        codec: TracedCodec,
        before: Sum,
        pending: Pending,
        rows: Rows,
        lanes: Lanes,
        keys: Array,
        keep: Array,
    ) -> tuple[Sum, Array]:
        theta = arrived(pending)
        changes = lane_changes(form, numbers, theta, rows, lanes)
        total, states = with_added(codec, before[0], changes, keys, keep)
        return (total, before[1] + states), theta

    compiled: Callable[..., tuple[Sum, Array]] = jax.jit(add_lanes, compiler_options=COMPILED)
    return compiled


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


def halves_of(integers: NDArray[np.int64]) -> NDArray[np.int32]:
    """Integers as `add` keeps their sum; low halves of either sign, so that those of 2^15 devices fit together.

    >>> halves_of(np.array([-70_000])).tolist()
    [[-4464], [-1]]
    """
    high = (integers + 2**15) >> 16
    return np.stack([integers - (high << 16), high]).astype(np.int32)


def whole(halves: NDArray[np.int32] | Array) -> NDArray[np.int64]:
    """The sum that `_add` keeps in halves."""
    low, high = np.asarray(halves).astype(np.int64)
    whole: NDArray[np.int64] = high * 2**16 + low
    return whole


def mean_of(halves: Array, scale: Array | np.float32) -> Array:
    """The mean update, on the processor: the sum, which may have 47 bits, is rounded once, and so is the product.

    Its bits from the 24th on and those below are floats without rounding, so only their sum is rounded.

    >>> int(mean_of(jnp.int32([[1], [2**9]]), np.float32(1.0))[0]) == int(np.float32(2**25 + 1))
    True
    """
    high, low = halves[1] + (halves[0] >> 16), halves[0] & 0xFFFF
    upper, lower = high >> 8, ((high & 0xFF) << 16) | low
    mean: Array = (upper.astype(jnp.float32) * jnp.float32(2**24) + lower.astype(jnp.float32)) * scale
    return mean


@jax.jit
def joined(sums: Sequence[Sum]) -> Sum:
    """One sum of several."""
    return reduce(jnp.add, [total for total, _ in sums]), reduce(jnp.add, [states for _, states in sums])


@jax.jit
def arrived(pending: Pending) -> Array:
    """θ plus the mean update of a round; θ itself where the scale is 0, which no round has."""
    moved = pending.theta + unfused(mean_of(joined(pending.sums)[0], pending.scale), pending.nothing)
    return jnp.where(pending.scale > 0, moved, pending.theta)


def unfused(product: Array, nothing: Array | np.int32) -> Array:
    """A product whose bits are read before it is added: else the compiler would round product and sum once, not twice.

    `nothing` is 0, and nobody knows it when this is compiled.
    """
    bits = lax.bitcast_convert_type(product, jnp.int32) ^ nothing
    return lax.bitcast_convert_type(bits, jnp.float32)
