"""Lines 5 to 10 of Algorithm 1: what one device does in one round, as one pure function."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

from choral.errors import PlanError
from choral.learning import noise
from choral.learning.models import Model, Tree, slopes
from choral.plan import Plan, require_number, require_whole

# How local steps are compiled on a CPU: XLA's own choice is half of the widest instructions, a tenth slower.
WIDE = {"xla_cpu_prefer_vector_width": 512}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a device trains in a round: τ steps of size η on batches of γ, examples clipped to G, noise σ on their mean.

    `clip = inf` and `noise = 0` is FedAvg; `steps = 1` is DP-SGD; `update_clip` S with `update_noise` σ_u clips the
    whole update instead (DP-FedAvg, rule S4); `strict` leaves the noise to the codec (rule S6). `momentum` is
    heavy-ball over noisy gradients, from zero in every round: it only post-processes them, so rules S1, S4 and S5 hold
    as they are; S3 and the paper's rule do not hold with it.

    >>> Recipe(steps=1, batch=64, step_size=0.1).private
    False
    """

    steps: int
    batch: int
    step_size: float
    clip: float = math.inf
    noise: float = 0.0
    momentum: float = 0.0
    update_clip: float = math.inf
    update_noise: float = 0.0
    strict: bool = False

    def __post_init__(self) -> None:
        require_whole("local steps", self.steps, most=2**20)
        require_whole("batch", self.batch, most=2**24)
        require_number("step_size", self.step_size)
        require_number("noise", self.noise, closed=True)
        require_number("momentum", self.momentum, below=1.0, closed=True)
        require_number("update_noise", self.update_noise, closed=True)
        for name, clip, sigma in (
            ("clip", self.clip, self.noise),
            ("update_clip", self.update_clip, self.update_noise),
        ):
            if clip != math.inf:
                require_number(name, clip)
            elif sigma > 0:
                raise PlanError("CH204", f"noise without {name}.", why="Noise hides only what is bounded.",
                                fix=f"Set {name}.")  # fmt: skip
        plain = self.steps == 1 and self.noise == self.momentum == 0 and self.clip < math.inf == self.update_clip
        if self.strict and not plain:
            raise PlanError("CH204", "a strict recipe is one step with a clip and without noise of its own.",
                            fix="Use Recipe.of(plan).")  # fmt: skip

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """The recipe that the plan describes."""
        noise = 0.0 if plan.strict else plan.noise
        return cls(steps=plan.local_steps, batch=plan.batch, step_size=plan.step_size, clip=plan.clip, noise=noise,
                   strict=plan.strict)  # fmt: skip

    @property
    def private(self) -> bool:
        """Whether any noise is added."""
        return self.noise > 0 or self.update_noise > 0


TINY = 2.0**-10  # a clip below it has its norms taken with care for squares that vanish
Noise = Callable[[Array, tuple[int, ...], int], Array]  # (one step's key, shape, place in the flat vector) -> Gaussians


def local_update(
    model: Model,
    recipe: Recipe,
    parameters: Array,
    features: Array,
    labels: Array,
    batches: Array,
    counts: Array,
    keys: Array,
    *,
    usual: int | None = None,
    finite: bool = False,
    draw: Noise = noise.normal,
) -> Array:
    """θ_i − θ after τ noisy clipped steps from θ; `batches` are row numbers (τ, room), the first `counts` of each used.

    `keys` holds what `draw` needs for each step, and one entry more for the noise on the update. Beyond the `usual`
    rows of a batch nothing is computed unless they are used. Features that are known to be `finite` need no guard.
    """
    start = model.unravel(parameters)
    if recipe.strict:
        total = sum_in_pieces(model, recipe.clip, finite, start, features, labels, batches[0], counts[0])
        # Not θ' − θ: at a large θ that loses bits, and with them the bound on what one record can change.
        return model.ravel(jax.tree.map(lambda leaf: -recipe.step_size * (leaf / recipe.batch), total))

    def step(state: tuple[Tree, Tree], given: tuple[Array, Array, Array]) -> tuple[tuple[Tree, Tree], None]:
        (tree, velocity), (batch, count, key) = state, given
        total = batch_sum(model, recipe.clip, usual, finite, tree, features, labels, batch, count)  # lines 6, 7
        gradient = jax.tree.map(lambda leaf: leaf / recipe.batch, total)  # line 8: the divisor is always γ
        noisy = add_noise(model, gradient, recipe.noise, key, draw)  # line 9
        if recipe.momentum:
            noisy = velocity = jax.tree.map(lambda old, new: recipe.momentum * old + new, velocity, noisy)
        tree = jax.tree.map(lambda leaf, slope: leaf - recipe.step_size * slope, tree, noisy)  # line 10
        return (tree, velocity), None

    velocity = jax.tree.map(jnp.zeros_like, start) if recipe.momentum else ()
    (end, _), _ = lax.scan(step, (start, velocity), (batches, counts, keys[:-1]))
    update = jax.tree.map(jnp.subtract, end, start)
    if recipe.update_clip < math.inf:
        factor = clip_factor(
            norm(jnp.stack([norm(leaf.ravel()) for leaf in jax.tree.leaves(update)])), recipe.update_clip
        )
        update = jax.tree.map(lambda leaf: jnp.where(factor > 0, leaf * factor, 0), update)
        update = add_noise(model, update, recipe.update_noise, keys[-1], draw)
    return model.ravel(update)


def batch_sum(
    model: Model,
    clip: float,
    usual: int | None,
    finite: bool,
    tree: Tree,
    features: Array,
    labels: Array,
    batch: Array,
    count: Array,
) -> Tree:
    """Σ of the clipped gradients of the first `count` rows of the batch; a rare tail is computed only if it is used.

    Adding the zeros of an unused tail changes no number, so it does not matter for which lanes the tail is computed.
    """

    def part(tree: Tree, features: Array, labels: Array, batch: Array, count: Array) -> Tree:
        used = jnp.arange(batch.shape[0]) < count
        return clipped_sum(model, tree, features[batch], labels[batch], used, clip, finite=finite)

    def nothing(tree: Tree, *_: Array) -> Tree:
        return jax.tree.map(jnp.zeros_like, tree)

    total = part(tree, features, labels, batch[:usual], count)
    if usual is None or usual >= batch.shape[0]:
        return total
    rest = if_any(count > usual, part, nothing, tree, features, labels, batch[usual:], count - usual)
    return jax.tree.map(jnp.add, total, rest)


def sum_in_pieces(
    model: Model, clip: float, finite: bool, tree: Tree, features: Array, labels: Array, batch: Array, count: Array
) -> Tree:
    """As `batch_sum`, in ⌈√γ⌉ pieces of as many rows, added one after the other, for whole noise to rely on.

    So no gradient's share is rounded more than 2⌈√γ⌉ times, in whatever order a piece is added: `secagg.codec.longest`
    counts that. In one product it could be γ times.
    """
    side = math.isqrt(batch.shape[0] - 1) + 1
    pieces = jnp.pad(batch, (0, side * side - batch.shape[0])).reshape(side, side)
    used = (jnp.arange(side * side) < count).reshape(side, side)

    def add(total: Tree, piece: tuple[Array, Array]) -> tuple[Tree, None]:
        rows, used = piece
        part = clipped_sum(model, tree, features[rows], labels[rows], used, clip, finite=finite)
        return jax.tree.map(jnp.add, total, part), None

    total, _ = lax.scan(add, jax.tree.map(jnp.zeros_like, tree), (pieces, used))
    return total


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


def add_noise(model: Model, tree: Tree, deviation: float, key: Array, draw: Noise) -> Tree:
    """The tree plus Gaussian noise of this standard deviation, numbered along the flat vector."""
    if deviation == 0:
        return tree
    leaves, form = jax.tree.flatten(tree)
    noisy = [leaf + deviation * draw(key, leaf.shape, start) for leaf, start in zip(leaves, model.starts, strict=True)]
    return jax.tree.unflatten(form, noisy)


def norm(rows: Array) -> Array:
    """The Euclidean norm of each row, without overflow or underflow of its squares.

    >>> float(norm(jnp.float32([3e30, 4e30])) / 5e30)
    1.0
    """
    largest = jnp.max(jnp.abs(rows), axis=-1, keepdims=True)
    # The power of two at or below the largest: scaling by it is exact. Beyond 2^126 its inverse would be flushed to 0.
    exponent = lax.bitcast_convert_type(largest, jnp.int32) & jnp.int32(0x7F800000)
    scale = jnp.where(exponent > 0, lax.bitcast_convert_type(exponent, jnp.float32), 1)
    scaled = rows * (1 / scale)
    total = jnp.sum(scaled * scaled, axis=-1, keepdims=True)
    return jnp.where(largest < 2.0**126, scale * jnp.sqrt(total), jnp.inf)[..., 0]


def clip_factor(norms: Array, clip: float) -> Array:
    """min(1, G/norm) for each norm; 0 for one that is not finite: such an example has no say. Without a clip, 1.

    >>> clip_factor(jnp.array([0.0, 0.5, 4.0, jnp.inf, jnp.nan]), 1.0).tolist()
    [1.0, 1.0, 0.25, 0.0, 0.0]
    """
    if clip == math.inf:
        return jnp.ones_like(norms)
    return jnp.where(norms < jnp.inf, jnp.minimum(1, clip / jnp.maximum(norms, clip)), 0)


def clipped_sum(
    model: Model, tree: Tree, rows: Array, labels: Array, used: Array, clip: float, *, finite: bool = False
) -> Tree:
    """Σ over the used examples of their gradients, each scaled to norm at most G; in closed form for dense stacks."""
    if model.widths:
        return dense_clipped_sum(model, tree, rows, labels, used, clip, finite=finite)
    return general_clipped_sum(model, tree, rows, labels, used, clip)


def dense_clipped_sum(
    model: Model, tree: Tree, rows: Array, labels: Array, used: Array, clip: float, *, finite: bool = False
) -> Tree:
    """The clipped sum of a dense stack without any per-example gradient.

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
    sums = []
    for depth, (a, b) in enumerate(zip(inputs, backward, strict=True)):
        scaled = jnp.where(counted, b * factor, 0)
        # 0 times an input that is not finite would spoil the sum; rows known to be finite are spared a copy.
        guarded = a if finite and depth == 0 else jnp.where(counted, a, 0)
        sums.append((guarded.T @ scaled, scaled.sum(axis=0)))
    return sums


def dense_factor(inputs: list[Array], backward: list[Array], clip: float) -> Array:
    """The clip factor of each example of a dense stack, from the inputs and the slopes of its layers."""

    def by(norm: Callable[[Array], Array], inputs: list[Array], backward: list[Array]) -> tuple[Array, Array]:
        of_inputs, of_slopes = [norm(a) for a in inputs], [norm(b) for b in backward]
        norms = [jnp.hypot(a, 1) * b for a, b in zip(of_inputs, of_slopes, strict=True)]
        return clip_factor(norm(jnp.stack(norms, axis=-1)), clip), reduce(jnp.maximum, of_inputs + of_slopes)

    def careful(inputs: list[Array], backward: list[Array]) -> Array:
        return by(norm, inputs, backward)[0]

    def quick(inputs: list[Array], backward: list[Array]) -> Array:
        """Squares added as they are, which takes a CPU many passes less; `norm` only where they might overflow.

        Scaling by a power of two rounds nothing, so the bits are the same. Squares so small that they vanish are far
        below a rounding error of the clip, unless it is tiny.
        """
        found, largest = by(lambda rows: jnp.sqrt(jnp.sum(rows * rows, axis=-1)), inputs, backward)
        sure = largest < 2.0**20  # false for what is not a number
        factor: Array = if_any(~sure, mended, lambda found, *_: found, found, sure, inputs, backward)
        return factor

    def mended(found: Array, sure: Array, inputs: list[Array], backward: list[Array]) -> Array:
        return jnp.where(sure, found, careful(inputs, backward))

    if not TINY <= clip < math.inf:
        return careful(inputs, backward)
    factor: Array = lax.platform_dependent(inputs, backward, cpu=quick, default=careful)
    return factor


def general_clipped_sum(model: Model, tree: Tree, rows: Array, labels: Array, used: Array, clip: float) -> Tree:
    """The clipped sum of any model: every per-example gradient by `vmap(grad)`, scaled and added."""
    gradients = jax.vmap(jax.grad(model.loss), in_axes=(None, 0, 0))(tree, rows, labels)
    leaves, form = jax.tree.flatten(gradients)
    flat = [leaf.reshape(len(rows), -1) for leaf in leaves]
    factor = jnp.where(used, clip_factor(norm(jnp.stack([norm(leaf) for leaf in flat], axis=-1)), clip), 0)[:, None]
    sums = [jnp.where(factor > 0, leaf * factor, 0).sum(axis=0) for leaf in flat]
    return jax.tree.unflatten(form, [part.reshape(leaf.shape[1:]) for part, leaf in zip(sums, leaves, strict=True)])
