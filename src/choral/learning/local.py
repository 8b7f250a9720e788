"""Lines 5 to 10 of Algorithm 1: what one device does in one round, as one pure function."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

from choral.learning import fused, noise, rounding
from choral.learning.in_turn import in_turn
from choral.learning.models import Model, Tree, losses, slopes
from choral.learning.models.layered import Layered
from choral.learning.norms import clip_factor, norm, tree_norm
from choral.learning.recipe import TINY, Number, Recipe, TracedNumbers
from choral.plan import COUNT_LENGTH, LARGEST_LOG_CLIP
from choral.plan.local_optimiser import scales

# How local steps are compiled. On a CPU: XLA's own choice is half of the widest instructions, a tenth slower. On a GPU:
# kernels that add in another order at every call are left out, so that equal pieces have equal sums; among those that
# remain, the library's products are faster by a fiftieth than those that XLA writes.
COMPILED: dict[str, Any] = {
    "xla_cpu_prefer_vector_width": 512,
    "xla_gpu_exclude_nondeterministic_ops": True,
    "xla_gpu_enable_triton_gemm": False,
}


Total = tuple[Tree, Tree | None]  # a sum, and what rounding it has left over, where that is kept
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
    numbers: TracedNumbers | None = None,
    shortcuts: Shortcuts = NONE,
    draw: Noise = noise.normal,
) -> list[Array]:
    """θ_i − θ after τ noisy clipped steps from θ, in pieces that follow each other in the flat vector.

    `batches` are row numbers (τ, room), the first `counts` of each used. `keys` holds what `draw` needs for each step,
    and one entry more for the noise on the update. A place with a row number below 0 is empty. Beyond the usual rows
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
        total = batch_sum(model, recipe, numbers, usual, finite, tree, features, labels, batch, count)  # lines 6, 7
        return add_noise(model, total, spread, key, draw)  # line 9, on the sum: what is rounded from here on is noisy

    def step(state: tuple[Tree, Tree], given: tuple[Array, ...]) -> tuple[tuple[Tree, Tree], None]:
        (tree, velocity), (batch, count, key, *scale) = state, given
        slopes, size = noisy_sum(tree, batch, count, key), rate
        if recipe.momentum or recipe.proximal:
            slopes, size = jax.tree.map(lambda new: new * numbers.share, slopes), numbers.step_size
        if recipe.proximal:
            pull = jax.tree.map(lambda leaf, sent: recipe.proximal * (leaf - sent), tree, start)
            slopes = jax.tree.map(jnp.add, slopes, pull)
        if recipe.momentum:
            slopes = velocity = jax.tree.map(lambda old, new: recipe.momentum * old + new, velocity, slopes)
        if scale:
            size = size * scale[0]
        tree = jax.tree.map(lambda leaf, slope: leaf - size * slope, tree, slopes)  # line 10
        return (tree, velocity), None

    def by_kernel(state: tuple[Tree, Tree], given: tuple[Array, ...]) -> tuple[tuple[Tree, Tree], None]:
        (tree, velocity), (batch, count, key, *scale) = state, given
        used = (jnp.arange(batch.shape[0]) < count) & (batch >= 0)
        layers = clipped_layers(model, tree, features[batch], labels[batch], used, numbers.clip, finite=finite)
        size = rate * scale[0] if scale else rate
        return (fused.dense_step(model, tree, layers, key, size, numbers.spread), velocity), None

    rate = numbers.step_size * numbers.share  # η/γ, line 8: the divisor is always γ
    if recipe.steps == 1:  # not θ' − θ: at a large θ that loses bits of what is summed with others' updates
        only = noisy_sum(start, batches[0], counts[0], keys[0])
        update = jax.tree.map(lambda slope: -rate * slope, only)
    else:
        velocity = jax.tree.map(jnp.zeros_like, start) if recipe.momentum else ()
        scale = () if recipe.schedule == "constant" else (jnp.float32(scales(recipe.schedule, recipe.steps)),)
        kernels = shortcuts.kernels and draw is noise.normal and fused.suits(model, recipe, batches.shape[-1], usual)
        (end, _), _ = lax.scan(by_kernel if kernels else step, (start, velocity), (batches, counts, keys[:-1], *scale))
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
        update = add_noise(model, (update, None), spread, keys[-1], draw)
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
) -> Total:
    """Σ of the clipped gradients of the rows at the first `count` places, in the pieces of `rounding.pieces`.

    A piece's sum depends on its own rows alone, and pieces are added all but exactly, so one record changes what is
    rounded in one piece only. A strict recipe has ⌈√γ⌉ pieces: `secagg.codec.longest` counts on it.
    """
    clip = (numbers.clip,) if recipe.usual_clip else ()  # an argument of all that `if_any` chooses from

    def added(own: tuple[Any, ...], rows: Array, labels: Array, used: Array) -> Tree:
        return clipped_sum(model, own[0], rows, labels, used, own[1] if clip else recipe.clip, finite=finite)

    def part(tree: Tree, features: Array, labels: Array, batch: Array, count: Array, *clip: Number) -> Tree:
        used = (jnp.arange(batch.shape[0]) < count) & (batch >= 0)
        return in_turn(added, (tree, *clip), (features[batch], labels[batch], used))

    def add_piece(total: Total, piece: tuple[Array, Array]) -> tuple[Total, None]:
        return add_in_two_floats(total, part(tree, features, labels, *piece, *clip)), None

    room = batch.shape[0]
    pieces, rows = rounding.pieces(room, rounding.strict_rows(room) if recipe.strict else None)
    if pieces > 1:
        places = jnp.pad(batch, (0, pieces * rows - room), constant_values=-1).reshape(pieces, rows)
        zeros = jax.tree.map(jnp.zeros_like, tree)
        total, _ = lax.scan(add_piece, (zeros, zeros), (places, count - rows * jnp.arange(pieces)))
        return total
    whole = part(tree, features, labels, batch[:usual], count, *clip)
    if usual is None or usual >= room:
        return whole, None
    # Adding the zeros of an unused tail changes no number, so it does not matter for which lanes it is computed.
    given = (tree, features, labels, batch[usual:], count - usual, *clip)
    rest = if_any(count > usual, part, lambda tree, *_: jax.tree.map(jnp.zeros_like, tree), *given)
    return jax.tree.map(jnp.add, whole, rest), None


def add_in_two_floats(total: Total, part: Tree) -> Total:
    """The total, kept as the float32 nearest to it and what that leaves over, with one more part added.

    >>> high, low = add_in_two_floats((jnp.float32(2**24), jnp.float32(0)), jnp.float32(1))
    >>> float(high), float(low)
    (16777216.0, 1.0)
    """

    def add(high: Array, low: Array, one: Array) -> tuple[Array, Array]:
        near = high + one
        taken = near - high
        low = low + ((high - (near - taken)) + (one - taken))  # what the first sum lost, exactly (Knuth's TwoSum)
        whole = near + low
        return whole, low - (whole - near)

    leaves, form = jax.tree.flatten(part)
    added = [add(*three) for three in zip(*map(jax.tree.leaves, total), leaves, strict=True)]
    return jax.tree.unflatten(form, [high for high, _ in added]), jax.tree.unflatten(form, [low for _, low in added])


def if_any(needed: Array, compute: Callable[..., Tree], spare: Callable[..., Tree], *given: Any) -> Tree:  # noqa: ANN401 - pytrees
    """What `compute` gives if it is needed anywhere, else `spare`: under `vmap` one decision for all lanes.

    The two must agree wherever nothing is needed, so that no lane's result depends on the others.
    """

    @custom_vmap
    def chosen(needed: Array, *given: Any) -> Tree:  # noqa: ANN401
        return lax.cond(jnp.any(needed), compute, spare, *given)

    @chosen.def_vmap
    def for_lanes(lanes: int, mapped: Any, needed: Array, *given: Any) -> tuple[Tree, Any]:  # noqa: ANN401
        axes = jax.tree.map(lambda one: 0 if one else None, tuple(mapped[1:]))
        many = partial(jax.vmap, in_axes=axes, axis_size=lanes)
        found = if_any(needed, many(compute), many(spare), *given)
        return found, jax.tree.map(lambda _: True, found)

    return chosen(needed, *given)


def add_noise(model: Model, total: Total, deviation: Number | None, key: Array, draw: Noise) -> Tree:
    """The total plus Gaussian noise of this standard deviation, numbered along the flat vector, rounded once."""
    high, low = total
    if deviation is None:
        return high if low is None else jax.tree.map(jnp.add, high, low)
    leaves, form = jax.tree.flatten(high)
    drawn = [deviation * draw(key, leaf.shape, start) for leaf, start in zip(leaves, model.starts, strict=True)]
    noises = jax.tree.unflatten(form, drawn)
    return jax.tree.map(jnp.add, high, noises) if low is None else add_in_two_floats((high, low), noises)[0]


def clipped_sum(
    model: Model, tree: Tree, rows: Array, labels: Array, used: Array, clip: Number, *, finite: bool = False
) -> Tree:
    """Σ over the used examples of their gradients, each scaled to norm at most G; in closed form for dense stacks."""
    if model.widths:
        return dense_clipped_sum(model, tree, rows, labels, used, clip, finite=finite)
    if model.layered:
        return layered_clipped_sum(model, model.layered, tree, rows, labels, used, clip)
    return general_clipped_sum(model, tree, rows, labels, used, clip)


def dense_clipped_sum(
    model: Model, tree: Tree, rows: Array, labels: Array, used: Array, clip: Number, *, finite: bool = False
) -> Tree:
    """The clipped sum of a dense stack without any per-example gradient."""
    layers = clipped_layers(model, tree, rows, labels, used, clip, finite=finite)
    # In full precision, whatever an accelerator does elsewhere: here gradients of length G are made and added.
    return [(added_products(inputs, scaled), scaled.sum(axis=0)) for inputs, scaled in layers]


def clipped_layers(
    model: Model, tree: Tree, rows: Array, labels: Array, used: Array, clip: Number, *, finite: bool = False
) -> list[tuple[Array, Array]]:
    """Each layer's inputs and the slopes at its outputs, scaled so that products of the two are clipped gradients.

    A layer's gradient of one example is the outer product of its input a and the slope b at its output, so its squared
    norm is ‖a‖²‖b‖² (+‖b‖² for the bias), and the clipped sum is one product of a and the scaled b (Goodfellow 2015).
    """
    inputs = [rows]
    for weight, bias in tree[:-1]:
        inputs.append(jax.nn.relu(inputs[-1] @ weight + bias))
    outputs = inputs[-1] @ tree[-1][0] + tree[-1][1]
    backward = [slopes(model.link, outputs, labels)]
    for (weight, _), above in zip(tree[:0:-1], inputs[:0:-1], strict=True):
        backward.append(jnp.where(above > 0, backward[-1] @ weight.T, 0))
    backward.reverse()
    factor = jnp.where(used, dense_factor(inputs, backward, clip), 0)[:, None]
    counted = factor > 0
    layers = []
    for depth, (a, b) in enumerate(zip(inputs, backward, strict=True)):
        scaled = jnp.where(counted, b * factor, 0)
        # 0 times an input that is not finite would spoil the sum; rows known to be finite are spared a copy.
        layers.append((a if finite and depth == 0 else jnp.where(counted, a, 0), scaled))
    return layers


def added_products(inputs: Array, slopes: Array) -> Array:
    """Σ over the rows of the outer products of inputs and slopes, in full precision.

    For two outputs a CPU adds by columns sooner than by its matrix product, for these sizes in the same order.
    """

    def product(inputs: Array, slopes: Array) -> Array:
        return jnp.matmul(inputs.T, slopes, precision=lax.Precision.HIGHEST)

    def by_columns(inputs: Array, slopes: Array) -> Array:
        return jnp.sum(inputs[:, None, :] * slopes[:, :, None], axis=0).T

    (rows, width), outputs = inputs.shape, slopes.shape[-1]
    quick = by_columns if outputs == 2 and rows <= 256 and 32 <= width <= 128 else product
    added: Array = lax.platform_dependent(inputs, slopes, cpu=quick, default=product)
    return added


def dense_factor(inputs: list[Array], backward: list[Array], clip: Number) -> Array:
    """The clip factor of each example of a dense stack, from the inputs and the slopes of its layers."""

    def by(
        norm: Callable[[Array], Array], inputs: list[Array], backward: list[Array], clip: Number
    ) -> tuple[Array, Array]:
        of_inputs, of_slopes = [norm(a) for a in inputs], [norm(b) for b in backward]
        norms = [jnp.hypot(a, 1) * b for a, b in zip(of_inputs, of_slopes, strict=True)]
        return clip_factor(norm(jnp.stack(norms, axis=-1)), clip), reduce(jnp.maximum, of_inputs + of_slopes)

    def careful(inputs: list[Array], backward: list[Array], clip: Number) -> Array:
        return by(norm, inputs, backward, clip)[0]

    def quick(inputs: list[Array], backward: list[Array], clip: Number) -> Array:
        """Squares added as they are, which takes a CPU many passes less; `norm` only where they might overflow.

        Scaling by a power of two rounds nothing, so the bits are the same. Squares so small that they vanish are far
        below a rounding error of the clip, unless it is tiny.
        """
        found, largest = by(lambda rows: jnp.sqrt(jnp.sum(rows * rows, axis=-1)), inputs, backward, clip)
        sure = largest < 2.0**20  # false for what is not a number
        factor: Array = if_any(~sure, replaced, lambda found, *_: found, found, sure, inputs, backward, clip)
        return factor

    def replaced(found: Array, sure: Array, inputs: list[Array], backward: list[Array], clip: Number) -> Array:
        return jnp.where(sure, found, careful(inputs, backward, clip))

    unusual = isinstance(clip, float) and not TINY <= clip < math.inf
    if unusual or max(a.shape[-1] for a in inputs + backward) > rounding.BLOCK:
        return careful(inputs, backward, clip)
    factor: Array = lax.platform_dependent(inputs, backward, jnp.float32(clip), cpu=quick, default=careful)
    return factor


def layered_clipped_sum(
    model: Model, net: Layered, tree: Tree, rows: Array, labels: Array, used: Array, clip: Number
) -> Tree:
    """The clipped sum of a network with convolutions: slopes of all rows in one pass, and products of patches and them.

    Dense layers are as in `dense_clipped_sum`. A convolution's gradient of each row is made, as a product over its
    pixels, before its norm is taken: what is clipped is what is added.
    """

    def lost(nudges: list[Array]) -> tuple[Array, list[Array]]:
        outputs, inputs = net.forward(tree, rows, nudges)
        return jnp.sum(losses(model.link, outputs, labels)), inputs

    backward, inputs = jax.grad(lost, has_aux=True)(net.nudges(len(rows)))
    parts = [dense_part(a, b) if a.ndim == 2 else patch_part(a, b) for a, b in zip(inputs, backward, strict=True)]
    norms = norm(jnp.stack([part_norm for part_norm, _ in parts], axis=-1))
    factor = jnp.where(used, clip_factor(norms, clip), 0)[:, None]
    return [add(factor) for _, add in parts]


Part = tuple[Array, Callable[[Array], Tree]]  # of a layer: each row's norm, and the sum for given factors of the rows


def dense_part(a: Array, b: Array) -> Part:
    """A dense layer's part, from its inputs and the slopes at its outputs."""

    def add(factor: Array) -> Tree:
        scaled = jnp.where(factor > 0, b * factor, 0)
        guarded = jnp.where(factor > 0, a, 0)
        return jnp.matmul(guarded.T, scaled, precision=lax.Precision.HIGHEST), scaled.sum(axis=0)

    return jnp.hypot(norm(a), 1) * norm(b), add


def patch_part(a: Array, b: Array) -> Part:
    """A convolution's part, from the patches of each row and the slopes at its pixels."""
    made = (jnp.einsum("nlf,nlo->nfo", a, b), b.sum(axis=1))
    flat = [part.reshape(len(a), -1) for part in made]

    def add(factor: Array) -> Tree:
        sums = [jnp.where(factor > 0, part * factor, 0).sum(axis=0) for part in flat]
        return sums[0].reshape(made[0].shape[1:]), sums[1]

    return norm(jnp.stack([norm(part) for part in flat], axis=-1)), add


def general_clipped_sum(model: Model, tree: Tree, rows: Array, labels: Array, used: Array, clip: Number) -> Tree:
    """The clipped sum of any model: every per-example gradient by `vmap(grad)`, scaled and added."""
    gradients = jax.vmap(jax.grad(model.loss), in_axes=(None, 0, 0))(tree, rows, labels)
    leaves, form = jax.tree.flatten(gradients)
    flat = [leaf.reshape(len(rows), -1) for leaf in leaves]
    factor = jnp.where(used, clip_factor(norm(jnp.stack([norm(leaf) for leaf in flat], axis=-1)), clip), 0)[:, None]
    sums = [jnp.where(factor > 0, leaf * factor, 0).sum(axis=0) for leaf in flat]
    return jax.tree.unflatten(form, [part.reshape(leaf.shape[1:]) for part, leaf in zip(sums, leaves, strict=True)])
