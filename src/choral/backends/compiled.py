"""What the engine compiles: the updates of all lanes, their sum in the codec's integers, and the mean."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from choral.learning import noise
from choral.learning.local import COMPILED, local_update
from choral.learning.models import Model
from choral.learning.recipe import Number, Recipe, TracedNumbers
from choral.secagg.codec import quantise

FINE, NOT_FINITE, TOO_LARGE = 0, 1, 2  # what a call says of a device's update


Fed = tuple[Array, Array, NDArray[np.int32] | Array]  # features, labels, and where the wanted rows are in them


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


@partial(jax.jit, static_argnames=("model", "form", "usual", "finite"), compiler_options=COMPILED)
def updates_of(
    model: Model,
    form: Recipe,
    usual: int,
    finite: bool,
    numbers: TracedNumbers,
    parameters: Array,
    features: Array,
    labels: Array,
    rows: Array,
    counts: Array,
    keys: Array,
) -> Array:
    """The updates of all lanes; other numbers of a recipe of this form compile nothing."""
    start = partial(local_update, model, form, parameters, features, labels)
    one = partial(start, usual=usual, finite=finite)
    if not form.weighed:
        return jax.vmap(partial(one, numbers=numbers))(rows, counts, keys)

    def weighed(share: Number, weight: Number, *lane: Array) -> Array:
        return one(*lane, numbers=numbers._replace(share=share, weight=weight))

    return jax.vmap(weighed)(numbers.share, numbers.weight, rows, counts, keys)


@partial(jax.jit, compiler_options=COMPILED)
def add(
    grid: np.float32,
    largest: np.int32,
    total: Array,
    updates: Array,
    keys: Array,
    keep: Array,
) -> tuple[Array, Array]:
    """The halves of the sum with these updates added, and the state of each update that is kept.

    The grid is a power of two, so a product with it rounds nothing, whether or not it is known when this is compiled.
    """
    dither = jax.vmap(lambda key: noise.uniform(key, updates.shape[1:]))(keys)
    most = jnp.max(jnp.abs(updates), axis=1)  # not finite if any is not
    state = jnp.where(most <= (largest - 1) * grid, FINE, jnp.where(jnp.isfinite(most), TOO_LARGE, NOT_FINITE))
    good = keep & (state == FINE)
    integers = jnp.where(good[:, None], quantise(updates, dither, grid), 0)
    halves = jnp.stack([jnp.sum(integers & 0xFFFF, axis=0), jnp.sum(integers >> 16, axis=0)])
    return total + halves, jnp.where(keep, state, FINE)


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


@jax.jit
def mean_of(halves: Array, scale: NDArray[np.float32]) -> Array:
    """The mean update, on the processor; called with 64-bit integers on, which the sum may need."""
    low, high = halves.astype(jnp.int64)
    update: Array = (high * 2**16 + low).astype(jnp.float32) * scale
    return update
