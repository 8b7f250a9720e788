"""Sums of clipped gradients: in closed form for dense stacks and convolutions, by `vmap(grad)` for any other model.

Claims A and B of docs/accounting.md are about what is here: Claim A about lengths and the factors that clip them.
"""

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

from choral.learning import rounding
from choral.learning.models import Model, Tree, losses, slopes
from choral.learning.models.layered import Layered
from choral.learning.recipe import TINY, Number


def norm(rows: Array) -> Array:
    """The Euclidean norm of each row, without overflow or underflow of its squares.

    >>> float(norm(jnp.float32([3e30, 4e30])) / 5e30)
    1.0
    """
    whole = rows.shape[-1] // rounding.BLOCK * rounding.BLOCK
    if rows.shape[-1] > rounding.BLOCK:  # in blocks, so that no square is rounded in more than a few thousand sums
        blocks = norm(rows[..., :whole].reshape(*rows.shape[:-1], -1, rounding.BLOCK))
        rest = norm(rows[..., whole:])[..., None] if whole < rows.shape[-1] else blocks[..., :0]
        return norm(jnp.concatenate([blocks, rest], axis=-1))
    largest = jnp.max(jnp.abs(rows), axis=-1, keepdims=True)
    # The power of two at or below the largest: scaling by it is exact. Beyond 2^126 its inverse would be flushed to 0.
    exponent = lax.bitcast_convert_type(largest, jnp.int32) & jnp.int32(0x7F800000)
    scale = jnp.where(exponent > 0, lax.bitcast_convert_type(exponent, jnp.float32), 1)
    scaled = rows * (1 / scale)
    total = jnp.sum(scaled * scaled, axis=-1, keepdims=True)
    return jnp.where(largest < 2.0**126, scale * jnp.sqrt(total), jnp.inf)[..., 0]


def lengths_of(rows: Array) -> Array:
    """√(1 + ‖x‖²) of each row x, the 1 being what its bias is multiplied by; infinite from 2^126 on.

    In float64 no square of a float32 overflows or vanishes, and the result is rounded once: it depends neither on the
    kind of processor nor on how many rows there are.

    >>> lengths_of(jnp.float32([[2.0, 2.0], [3e38, 0.0]])).tolist()
    [3.0, inf]
    """
    with jax.enable_x64(True):
        exact = rows.astype(jnp.float64)
        length = jnp.sqrt(1 + jnp.sum(exact * exact, axis=-1)).astype(jnp.float32)
    return jnp.where(length < 2.0**126, length, jnp.inf)


def tree_norm(tree: Tree) -> Array:
    """The Euclidean norm of all leaves together.

    >>> float(tree_norm([jnp.float32([[3.0]]), jnp.float32([4.0])]))
    5.0
    """
    return norm(jnp.stack([norm(leaf.ravel()) for leaf in jax.tree.leaves(tree)]))


def clip_factor(norms: Array, clip: Number) -> Array:
    """min(1, G/norm) for each norm; 0 if it is not finite, or below 2^-126, where digits are few. Without a clip, 1.

    >>> clip_factor(jnp.array([0.0, 0.5, 4.0, jnp.inf, jnp.nan, 2e38]), 1.0).tolist()
    [1.0, 1.0, 0.25, 0.0, 0.0, 0.0]
    """
    if isinstance(clip, float) and clip == math.inf:
        return jnp.ones_like(norms)
    factor = jnp.minimum(1, clip / jnp.maximum(norms, clip))
    return jnp.where((norms < jnp.inf) & (factor >= 2.0**-126), factor, 0)


COPIED = 256  # inputs of a layer: with more, copying them takes as long as it saves


def clipped_sum(
    model: Model,
    tree: Tree,
    rows: Array,
    labels: Array,
    used: Array,
    clip: Number,
    *,
    lengths: Array | None = None,
    finite: bool = False,
) -> Tree:
    """Σ over the used examples of their gradients, each scaled to norm at most G; in closed form for dense stacks."""
    if model.widths:
        return dense_clipped_sum(model, tree, rows, labels, used, clip, lengths=lengths, finite=finite)
    if model.layered:
        return layered_clipped_sum(model, model.layered, tree, rows, labels, used, clip)
    return general_clipped_sum(model, tree, rows, labels, used, clip)


def dense_clipped_sum(
    model: Model,
    tree: Tree,
    rows: Array,
    labels: Array,
    used: Array,
    clip: Number,
    *,
    lengths: Array | None = None,
    finite: bool = False,
) -> Tree:
    """The clipped sum of a dense stack without any per-example gradient."""
    layers = clipped_layers(model, tree, rows, labels, used, clip, lengths=lengths, finite=finite)
    sums = [(added_products(inputs, scaled), scaled.sum(axis=0)) for inputs, scaled in layers]
    return [*sums[:-1], tuple(map(both, sums[-1]))] if opposite(model) else sums


def opposite(model: Model) -> bool:
    """Whether the two outputs of a dense stack have slopes that differ in their signs alone, as those of a softmax do.

    >>> from choral.learning.models import logistic
    >>> opposite(logistic(104)), opposite(logistic(104, 3))
    (True, False)
    """
    return model.link == "softmax" and model.widths[-1] == 2


def both(second: Array) -> Array:
    """What belongs to two opposite outputs, from what belongs to the second.

    The bit of the sign is turned. A concatenation or a choice a CPU would not compute for many numbers at a time, nor
    all that is fused with it. With a product with ±1, the compiler would choose which one of two products that are
    added it rounds, and not choose the same one in every program.

    >>> both(jnp.float32([[3.0]])).tolist()
    [[-3.0, 3.0]]
    """
    bits = lax.bitcast_convert_type(second, jnp.uint32) ^ jnp.uint32([2**31, 0])
    return lax.bitcast_convert_type(bits, jnp.float32)


def clipped_layers(
    model: Model,
    tree: Tree,
    rows: Array,
    labels: Array,
    used: Array,
    clip: Number,
    *,
    lengths: Array | None = None,
    finite: bool = False,
) -> list[tuple[Array, Array]]:
    """Each layer's inputs and the slopes at its outputs, scaled so that products of the two are clipped gradients.

    A layer's gradient of one example is the outer product of its input a and the slope b at its output, so its squared
    norm is ‖a‖²‖b‖² (+‖b‖² for the bias), and the clipped sum is one product of a and the scaled b (Goodfellow 2015).
    `lengths` are those of the rows, if they are known. Of two opposite outputs only the second one's slope is given:
    it depends on the difference of the outputs alone, so that is all that is computed of them.
    """
    link, weights = model.link, [weight for weight, _ in tree]
    biases = [bias for _, bias in tree]
    if opposite(model):
        link, weights[-1], biases[-1] = (
            "sigmoid",
            weights[-1][:, 1:] - weights[-1][:, :1],
            biases[-1][1:] - biases[-1][:1],
        )
    inputs = [rows]
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        inputs.append(jax.nn.relu(inputs[-1] @ weight + bias))
    backward = [slopes(link, inputs[-1] @ weights[-1] + biases[-1], labels)]
    for weight, above in zip(weights[:0:-1], inputs[:0:-1], strict=True):
        backward.append(jnp.where(above > 0, backward[-1] @ weight.T, 0))
    backward.reverse()
    factor = jnp.where(used, dense_factor(inputs, backward, clip, lengths, twins=opposite(model)), 0)[:, None]
    counted = factor > 0
    layers = []
    for depth, (a, b) in enumerate(zip(inputs, backward, strict=True)):
        scaled = jnp.where(counted, b * factor, 0)
        # 0 times an input that is not finite would spoil the sum; rows known to be finite are spared a copy.
        layers.append((a if finite and depth == 0 else jnp.where(counted, a, 0), scaled))
    return layers


def added_products(inputs: Array, slopes: Array) -> Array:
    """Σ over the rows of the outer products of inputs and slopes, in full precision, whatever is done elsewhere.

    A CPU has a faster product for a matrix that is stored row by row, so there the transposed inputs are copied first.
    That is worth it unless there are many inputs, or only one output.
    """

    def product(inputs: Array, slopes: Array) -> Array:
        return jnp.matmul(inputs.T, slopes, precision=lax.Precision.HIGHEST)

    def of_copied(inputs: Array, slopes: Array) -> Array:
        copied: Array = lax.optimization_barrier(inputs.T)  # type: ignore[no-untyped-call]
        return jnp.matmul(copied, slopes, precision=lax.Precision.HIGHEST)

    if slopes.shape[-1] == 1 or inputs.shape[-1] > COPIED:
        return product(inputs, slopes)
    found: Array = lax.platform_dependent(inputs, slopes, cpu=of_copied, default=product)
    return found


def dense_factor(
    inputs: list[Array], backward: list[Array], clip: Number, lengths: Array | None = None, *, twins: bool = False
) -> Array:
    """The clip factor of each example of a dense stack, from the inputs and the slopes of its layers.

    `lengths` are those of the first layer's inputs, each with the 1 that its bias is multiplied by. With `twins`, the
    last layer has two outputs, and one slope of an example stands for both.
    """
    known = () if lengths is None else (lengths,)

    def by(
        norm: Callable[[Array], Array], inputs: list[Array], backward: list[Array], clip: Number, *known: Array
    ) -> tuple[Array, Array]:
        def length(rows: Array) -> Array:
            return norm(rows) if rows.shape[-1] > 1 else jnp.abs(rows[..., 0])

        found = [jnp.hypot(norm(a), 1) for a in inputs[len(known) :]]
        of_inputs, of_slopes = [*known, *found], [length(b) for b in backward]
        if twins:
            of_slopes[-1] = of_slopes[-1] * jnp.float32(math.sqrt(2))
        norms = [a * b for a, b in zip(of_inputs, of_slopes, strict=True)]
        return clip_factor(length(jnp.stack(norms, axis=-1)), clip), reduce(jnp.maximum, of_inputs + of_slopes)

    def careful(inputs: list[Array], backward: list[Array], clip: Number, *known: Array) -> Array:
        return by(norm, inputs, backward, clip, *known)[0]

    def quick(inputs: list[Array], backward: list[Array], clip: Number, *known: Array) -> Array:
        """Squares added as they are, which takes a CPU many passes less; `norm` only where they might overflow.

        Scaling by a power of two rounds nothing, so the bits are the same. Squares so small that they vanish are far
        below a rounding error of the clip, unless it is tiny.
        """
        plain = lambda rows: jnp.sqrt(jnp.sum(rows * rows, axis=-1))  # noqa: E731
        found, largest = by(plain, inputs, backward, clip, *known)
        sure = largest < 2.0**20  # false for what is not a number
        given = (found, sure, inputs, backward, clip, *known)
        factor: Array = if_any(~sure, replaced, lambda found, *_: found, *given)
        return factor

    def replaced(found: Array, sure: Array, *given: Any) -> Array:  # noqa: ANN401 - what `careful` takes
        return jnp.where(sure, found, careful(*given))

    no_squares = len(known) == len(inputs) and all(b.shape[-1] == 1 for b in backward)
    unusual = isinstance(clip, float) and not TINY <= clip < math.inf
    if no_squares or unusual or max(a.shape[-1] for a in inputs + backward) > rounding.BLOCK:
        return careful(inputs, backward, clip, *known)
    given = (inputs, backward, jnp.float32(clip), *known)
    factor: Array = lax.platform_dependent(*given, cpu=quick, default=careful)
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
