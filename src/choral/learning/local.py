"""Lines 5 to 10 of Algorithm 1: what one device does in one round, as one pure function."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from choral.core.plan import COUNT_LENGTH, LARGEST_LOG_CLIP
from choral.learning import fused, noise, rounding
from choral.learning.clipped import both, clipped_layers, clipped_sum, if_any, opposite
from choral.learning.in_turn import in_turn
from choral.learning.models import Model, Tree
from choral.learning.norms import clip_factor, lengths_of, tree_norm
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
Noise = Callable[[Array, tuple[int, ...], int], Array]  # (one step's key, shape, place in the flat vector) -> Gaussians


@dataclass(frozen=True, kw_only=True)
class Shortcuts:
    """What the caller knows and saves work: rows of a batch that `usual`ly suffice, features that are all finite.

    `kernels` says that the processor takes those of `fused`.

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
    """θ_i − θ after τ noisy clipped steps from θ, in pieces that follow each other in the flat vector.

    `batches` are row numbers (τ, room), the first `counts` of each used. `keys` holds what `draw` needs for each step,
    and one entry more for the noise on the update. A place with a row number below 0 is empty. `lengths` are what
    `lengths_of` says of all rows of a dense stack, for a caller that uses them often. Beyond the usual rows
    of a batch that is added in one piece nothing is computed unless they are used. Features that are known to be
    finite need no guard. Where `numbers` are given, only the form of the recipe counts. With `kernels`, steps that
    suit it are taken by the kernel of `fused`.
    """
    model = model.fixed or model
    usual, finite = shortcuts.usual, shortcuts.finite
    start = model.unravel(parameters)
    numbers = TracedNumbers.of(model, recipe, batches.shape[-1]) if numbers is None else numbers
    spread = numbers.spread if recipe.noise else None

    def noisy_sum(tree: Tree, batch: Array, count: Array, key: Array) -> Tree:
        total = batch_sum(model, recipe, numbers, usual, finite, tree, features, labels, batch, count, lengths)  # 6, 7
        return add_noise(model, total, spread, key, draw)  # line 9, on the sum: what is rounded from here on is noisy

    def step(tree: Tree, given: tuple[Array, Array, Array]) -> tuple[Tree, None]:
        slopes = noisy_sum(tree, *given)
        return jax.tree.map(lambda leaf, slope: leaf - rate * slope, tree, slopes), None  # line 10

    def by_kernel(tree: Tree, given: tuple[Array, Array, Array]) -> tuple[Tree, None]:
        batch, count, key = given
        used = (jnp.arange(batch.shape[0]) < count) & (batch >= 0)
        rows, own, known = rows_at(model, (features, labels, lengths), batch)
        layers = clipped_layers(model, tree, rows, own, used, numbers.clip, lengths=known, finite=finite)
        if opposite(model):
            layers[-1] = layers[-1][0], both(layers[-1][1])
        return fused.dense_step(model, tree, layers, key, rate, numbers.spread), None

    rate = numbers.step_size * numbers.share  # η/γ, line 8: the divisor is always γ
    if recipe.steps == 1:  # not θ' − θ: at a large θ that loses bits of what is summed with others' updates
        only = noisy_sum(start, batches[0], counts[0], keys[0])
        update = jax.tree.map(lambda slope: -rate * slope, only)
    else:
        kernels = shortcuts.kernels and draw is noise.normal and fused.suits(model, recipe, batches.shape[-1], usual)
        end, _ = lax.scan(by_kernel if kernels else step, start, (batches, counts, keys[:-1]))
        # Behind a barrier θ is read again: a GPU would else write it once per lane, and copy that, to subtract it here.
        sent = model.unravel(lax.optimization_barrier(parameters)) if kernels else start  # type: ignore[no-untyped-call]
        update = jax.tree.map(jnp.subtract, end, sent)
        if recipe.weighed:
            update = jax.tree.map(lambda leaf: numbers.weight * leaf, update)
    if recipe.adaptive:
        return [counted_update(model, recipe, numbers, update, parameters[-1], keys[-1], draw)]
    if recipe.update_clip < math.inf:
        factor = clip_factor(tree_norm(update), numbers.update_clip)
        update = jax.tree.map(lambda leaf: jnp.where(factor > 0, leaf * factor, 0), update)
        spread = numbers.update_spread if recipe.update_noise else None
        update = add_noise(model, update, spread, keys[-1], draw)
    return jax.tree.leaves(update)


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
    usual: int | None,
    finite: bool,
    tree: Tree,
    features: Array,
    labels: Array,
    batch: Array,
    count: Array,
    lengths: Array | None = None,
) -> Tree:
    """Σ of the clipped gradients of the rows at the first `count` places, in the pieces of `rounding.pieces`.

    A piece's sum depends on its own rows alone, and several pieces are added in float64, so one record changes what
    float32 rounds in one piece only. A strict recipe has ⌈√γ⌉ pieces: `secagg.codec.longest` counts on it.
    """
    clip = (numbers.clip,) if recipe.usual_clip else ()  # an argument of all that `if_any` chooses from
    held = features, labels, lengths

    def added(own: tuple[Any, ...], used: Array, rows: Array, labels: Array, *known: Array) -> Tree:
        lengths = known[0] if known else None
        most = own[1] if clip else recipe.clip
        return clipped_sum(model, own[0], rows, labels, used, most, lengths=lengths, finite=finite)

    def part(tree: Tree, held: Held, batch: Array, count: Array, *clip: Number) -> Tree:
        used = (jnp.arange(batch.shape[0]) < count) & (batch >= 0)
        rows, own, known = rows_at(model, held, batch)
        return in_turn(added, (tree, *clip), (used, rows, own, *(() if known is None else (known,))))

    def nothing(tree: Tree, *_: Array) -> Tree:
        return jax.tree.map(jnp.zeros_like, tree)

    def add_piece(total: Tree, piece: tuple[Array, Array]) -> tuple[Tree, None]:
        return jax.tree.map(plus, total, part(tree, held, *piece, *clip)), None

    room = batch.shape[0]
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
