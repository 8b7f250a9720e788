"""Lines 5 to 10 of Algorithm 1: what one device does in one round, as one pure function."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

from choral.core.plan import COUNT_LENGTH, LARGEST_LOG_CLIP
from choral.learning import fused, noise, rounding
from choral.learning.clipped import (
    both,
    clip_factor,
    clipped_layers,
    clipped_sum,
    if_any,
    lengths_of,
    opposite,
    tree_norm,
)
from choral.learning.models import Model, Tree
from choral.learning.recipe import Number, Recipe, TracedNumbers

# How local steps are compiled. On a CPU: XLA's own choice is half of the widest instructions, a tenth slower. On a GPU:
# kernels that add in another order at every call are left out, so that equal pieces have equal sums; among those that
# remain, the library's products are faster by a fiftieth than those that XLA writes.
COMPILED: dict[str, Any] = {
    "xla_cpu_prefer_vector_width": 512,
    "xla_gpu_exclude_nondeterministic_ops": True,
    "xla_gpu_enable_triton_gemm": False,
}


Held = tuple[Array, Array, Array | None]  # features and labels of rows, and their lengths where they are known
Steps = tuple[
    Array, Array, Array
]  # of every step, or of one: rows of its batch, how many count, what noise is drawn from
Noise = Callable[[Array, tuple[int, ...], int], Array]  # (one step's key, shape, place in the flat vector) -> Gaussians


@dataclass(frozen=True, kw_only=True)
class Shortcuts:
    """What the caller knows and saves work: rows of a batch that `usual`ly suffice, features that are all finite.

    Beyond the usual rows of a batch that is added in one piece nothing is computed unless they are used. Features that
    are known to be finite need no guard. With `kernels`, steps that suit it are taken by the kernel of `fused`.

    >>> Shortcuts(usual=64).finite
    False
    """

    usual: int | None = None
    finite: bool = False
    kernels: bool = False


NONE = Shortcuts()


def local_update(model: Model, recipe: Recipe, *given: Array, **options: Any) -> Array:  # noqa: ANN401 - as below
    """θ_i − θ of `local_changes` as one flat vector."""
    return jnp.concatenate([leaf.ravel() for leaf in local_changes(model, recipe, *given, **options)])


def local_changes(
    model: Model,
    recipe: Recipe,
    parameters: Array,
    features: Array,
    labels: Array,
    batches: Array,
    counts: Array,
    keys: Array,
    *,
    lengths: Array | None = None,
    numbers: TracedNumbers | None = None,
    shortcuts: Shortcuts = NONE,
    draw: Noise = noise.normal,
) -> list[Array]:
    """θ_i − θ by the mechanism of the recipe, in pieces that follow each other in the flat vector.

    `batches` are row numbers (τ, room), the first `counts` of each used. `keys` holds what `draw` needs for each step,
    and one entry more for the noise on the update. A place with a row number below 0 is empty. `lengths` are what
    `lengths_of` says of all rows of a dense stack, for a caller that uses them often. Where `numbers` are given, only
    the form of the recipe counts.
    """
    model = model.fixed or model
    numbers = TracedNumbers.of(model, recipe, batches.shape[-1]) if numbers is None else numbers
    steps = batches, counts, keys[:-1]
    update = noisy_steps(model, recipe, numbers, parameters, (features, labels, lengths), steps, shortcuts, draw)
    if recipe.update_clip < math.inf:
        return clipped_update(model, recipe, numbers, parameters, update, keys[-1], draw)
    return jax.tree.leaves(update)


def noisy_steps(
    model: Model,
    recipe: Recipe,
    numbers: TracedNumbers,
    parameters: Array,
    held: Held,
    steps: Steps,
    shortcuts: Shortcuts,
    draw: Noise,
) -> Tree:
    """θ_i − θ after τ noisy clipped steps from θ: rules S1 and S5, and S6, whose one step has the codec's noise."""
    start, spread = model.unravel(parameters), numbers.spread if recipe.noise else None
    rate = numbers.step_size * numbers.share  # η/γ, line 8: the divisor is always γ

    def noisy_sum(tree: Tree, batch: Array, count: Array, key: Array) -> Tree:
        total = batch_sum(model, recipe, numbers, shortcuts, tree, held, batch, count)  # lines 6 and 7
        return add_noise(model, total, spread, key, draw)  # line 9, on the sum: what is rounded from here on is noisy

    def step(tree: Tree, given: Steps) -> tuple[Tree, None]:
        return jax.tree.map(lambda leaf, slope: leaf - rate * slope, tree, noisy_sum(tree, *given)), None  # line 10

    if recipe.steps == 1:  # not θ' − θ: at a large θ that loses bits of what is summed with others' updates
        return jax.tree.map(lambda slope: -rate * slope, noisy_sum(start, *(one[0] for one in steps)))
    room = steps[0].shape[-1]
    kernels = shortcuts.kernels and draw is noise.normal and fused.suits(model, recipe, room, shortcuts.usual)
    by_kernel = partial(kernel_step, model, numbers, held, shortcuts.finite)
    end, _ = lax.scan(by_kernel if kernels else step, start, steps)
    # Behind a barrier θ is read again: a GPU would else write it once per lane, and copy that, to subtract it here.
    sent = model.unravel(lax.optimization_barrier(parameters)) if kernels else start  # type: ignore[no-untyped-call]
    update = jax.tree.map(jnp.subtract, end, sent)
    return jax.tree.map(lambda leaf: numbers.weight * leaf, update) if recipe.weighed else update


def kernel_step(
    model: Model, numbers: TracedNumbers, held: Held, finite: bool, tree: Tree, given: Steps
) -> tuple[Tree, None]:
    """A step of `noisy_steps` by the kernel of `fused`, for a dense stack whose batch is added in one piece."""
    batch, count, key = given
    used = (jnp.arange(batch.shape[0]) < count) & (batch >= 0)
    rows, labels, lengths = rows_at(model, held, batch)
    layers = clipped_layers(model, tree, rows, labels, used, numbers.clip, lengths=lengths, finite=finite)
    if opposite(model):
        layers[-1] = layers[-1][0], both(layers[-1][1])
    return fused.dense_step(model, tree, layers, key, numbers.step_size * numbers.share, numbers.spread), None


def clipped_update(
    model: Model, recipe: Recipe, numbers: TracedNumbers, parameters: Array, update: Tree, key: Array, draw: Noise
) -> list[Array]:
    """An update that any steps ended in, clipped to S as one vector and with its noise: rule S4."""
    if recipe.adaptive:
        return [counted_update(model, recipe, numbers, update, parameters[-1], key, draw)]
    factor = clip_factor(tree_norm(update), numbers.update_clip)
    update = jax.tree.map(lambda leaf: jnp.where(factor > 0, leaf * factor, 0), update)
    return jax.tree.leaves(add_noise(model, update, numbers.update_spread if recipe.update_noise else None, key, draw))


def counted_update(
    model: Model, recipe: Recipe, numbers: TracedNumbers, update: Tree, log_clip: Array, key: Array, draw: Noise
) -> Array:
    """The update in units of the clip S, at most 1 long, and ±λ/2 for whether it is within S; with noise on all of it.

    The bounds hold for every S, so nobody has to trust the server that sends its logarithm.
    """
    clip = jnp.exp(jnp.clip(log_clip, -LARGEST_LOG_CLIP, LARGEST_LOG_CLIP))
    length = tree_norm(update)
    factor = jnp.where(length < jnp.inf, numbers.update_clip / jnp.maximum(length, clip), 0)  # neither is 0
    clipped = jnp.where(factor > 0, model.ravel(update) * factor, 0)  # nothing, where one is no number
    counted = jnp.append(clipped, jnp.where(length <= clip, COUNT_LENGTH / 2, -COUNT_LENGTH / 2))
    return counted + numbers.update_spread * draw(key, counted.shape, 0) if recipe.update_noise else counted


def batch_sum(
    model: Model,
    recipe: Recipe,
    numbers: TracedNumbers,
    shortcuts: Shortcuts,
    tree: Tree,
    held: Held,
    batch: Array,
    count: Array,
) -> Tree:
    """Σ of the clipped gradients of the rows at the first `count` places, in the pieces of `rounding.pieces`.

    A piece's sum depends on its own rows alone, and several pieces are added in float64, so one record changes what
    float32 rounds in one piece only. A strict recipe has ⌈√γ⌉ pieces: `core.mechanisms.Mechanism.longest` counts on it.
    """
    clip = (numbers.clip,) if recipe.usual_clip else ()  # an argument of all that `if_any` chooses from
    usual, room = shortcuts.usual, batch.shape[0]

    def added(own: tuple[Any, ...], used: Array, rows: Array, labels: Array, *known: Array) -> Tree:
        lengths = known[0] if known else None
        most = own[1] if clip else recipe.clip
        return clipped_sum(model, own[0], rows, labels, used, most, lengths=lengths, finite=shortcuts.finite)

    def part(tree: Tree, held: Held, batch: Array, count: Array, *clip: Number) -> Tree:
        used = (jnp.arange(batch.shape[0]) < count) & (batch >= 0)
        rows, own, known = rows_at(model, held, batch)
        return in_turn(added, (tree, *clip), (used, rows, own, *(() if known is None else (known,))))

    def nothing(tree: Tree, *_: Array) -> Tree:
        return jax.tree.map(jnp.zeros_like, tree)

    def add_piece(total: Tree, piece: tuple[Array, Array]) -> tuple[Tree, None]:
        return jax.tree.map(plus, total, part(tree, held, *piece, *clip)), None

    pieces, rows = rounding.pieces(room, rounding.strict_rows(room) if recipe.strict else None)
    if pieces > 1:
        places = jnp.pad(batch, (0, pieces * rows - room), constant_values=-1).reshape(pieces, rows)
        zeros = jax.tree.map(zeros_in_double, tree)
        total, _ = lax.scan(add_piece, zeros, (places, count - rows * jnp.arange(pieces)))
        return total
    whole = part(tree, held, batch[:usual], count, *clip)
    if usual is None or usual >= room:
        return whole
    # Adding the zeros of an unused tail changes no number, so it does not matter for which lanes it is computed.
    rest = if_any(count > usual, part, nothing, tree, held, batch[usual:], count - usual, *clip)
    return jax.tree.map(jnp.add, whole, rest)


def rows_at(model: Model, held: Held, batch: Array) -> Held:
    """The rows with these numbers, their labels and, for a dense stack, their lengths.

    An empty place gets some row, which nobody counts. Numbers are known to be those of rows: to look would take a CPU
    as long as to copy them.
    """

    def of(held: Array) -> Array:
        chosen: Array = held.at[jnp.maximum(batch, 0)].get(mode="promise_in_bounds")
        return chosen

    features, labels, lengths = held
    rows = of(features)
    if not model.widths:
        return rows, of(labels), None
    return rows, of(labels), lengths_of(rows) if lengths is None else of(lengths)


def zeros_in_double(leaf: Array) -> Array:
    """As many zeros in float64, from which a sum of pieces begins.

    >>> zeros_in_double(jnp.ones(2)).dtype
    dtype('float64')
    """
    with jax.enable_x64(True):
        return jnp.zeros(leaf.shape, jnp.float64)


def plus(total: Array, part: Array) -> Array:
    """The sum of the two, in the precision of the total.

    >>> many = plus(zeros_in_double(jnp.ones(1)), jnp.float32([2**24]))
    >>> plus(many, jnp.float32([1])).tolist(), plus(jnp.float32([2**24]), jnp.float32([1])).tolist()
    ([16777217.0], [16777216.0])
    """
    with jax.enable_x64(True):
        return total + part.astype(total.dtype)


def add_noise(model: Model, total: Tree, deviation: Number | None, key: Array, draw: Noise) -> Tree:
    """The total plus Gaussian noise of this standard deviation, numbered along the flat vector, in float32."""
    if deviation is not None:
        leaves, form = jax.tree.flatten(total)
        drawn = [deviation * draw(key, leaf.shape, start) for leaf, start in zip(leaves, model.starts, strict=True)]
        total = jax.tree.map(plus, total, jax.tree.unflatten(form, drawn))
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), total)


def in_turn(function: Callable[..., Tree], own: Any, shared: tuple[Array, ...]) -> Tree:  # noqa: ANN401 - a pytree
    """`function(own, *shared)`, which under `vmap` over `own` alone is called for one of them after the other.

    `vmap` would make one wide product of many models' products with the same rows, and a wide product may be added in
    another order. Here the rows are read from memory once, and no model's bits depend on which others there are.

    >>> rows, models = jnp.float32([[1.0, 2.0]]), jnp.float32([[3.0, 4.0], [5.0, 6.0]])
    >>> jax.vmap(lambda model: in_turn(lambda own, rows: rows @ own, model, (rows,)))(models).tolist()
    [[11.0], [17.0]]
    """

    @custom_vmap
    def called(own: Any, *shared: Array) -> Tree:  # noqa: ANN401
        return function(own, *shared)

    @called.def_vmap
    def for_many(size: int, mapped: Any, own: Any, *shared: Array) -> tuple[Tree, Any]:  # noqa: ANN401
        axes = jax.tree.map(lambda one: 0 if one else None, tuple(mapped))
        if any(mapped[1:]):  # each lane has other rows
            found = in_turn(jax.vmap(function, in_axes=axes, axis_size=size), own, shared)
        else:
            found = _mapped(lambda one: in_turn(function, one, shared), own, mapped[0])
        return found, jax.tree.map(lambda _: True, found)

    return called(own, *shared)


def _mapped(function: Callable[[Any], Tree], given: Any, mapped: Any) -> Tree:  # noqa: ANN401 - pytrees
    """The function of each of many pytrees, whose leaves are given once where they are not mapped."""
    leaves, form = jax.tree.flatten(given)
    many = jax.tree.leaves(mapped)

    def of_one(own: list[Array]) -> Tree:
        each = iter(own)
        whole = [next(each) if one else leaf for leaf, one in zip(leaves, many, strict=True)]
        return function(jax.tree.unflatten(form, whole))

    return lax.map(of_one, [leaf for leaf, one in zip(leaves, many, strict=True) if one])
