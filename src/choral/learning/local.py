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
from choral.learning import noise, rounding
from choral.learning.models import Model, Tree, slopes
from choral.plan import COUNT_LENGTH, LARGEST_LOG_CLIP, Plan, require_number, require_whole

# How local steps are compiled. On a CPU: XLA's own choice is half of the widest instructions, a tenth slower. On a GPU:
# kernels that add in an order of their own at every call are left out, so that equal pieces have equal sums.
COMPILED: dict[str, Any] = {"xla_cpu_prefer_vector_width": 512, "xla_gpu_exclude_nondeterministic_ops": True}


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
    adaptive: bool = False  # the update is clipped in units of the clip whose logarithm is the last parameter

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
                require_number(name, clip, above=rounding.SMALLEST_CLIP, below=rounding.LARGEST_CLIP)
            elif sigma > 0:
                raise PlanError("CH204", f"noise without {name}.", why="Noise hides only what is bounded.",
                                fix=f"Set {name}.")  # fmt: skip
        plain = self.steps == 1 and self.noise == self.momentum == 0 and self.clip < math.inf == self.update_clip
        whole = self.noise == self.update_noise == 0 and self.update_clip < math.inf == self.clip
        if self.strict and not (plain or whole):
            raise PlanError("CH204", "a strict recipe is one step with a clip, or a clipped update, without noise.",
                            fix="Use Recipe.of(plan).")  # fmt: skip

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """The recipe that the plan describes."""
        noise = 0.0 if plan.strict else plan.noise
        if plan.protects.clips_update:
            noise = 0.0 if plan.strict else plan.update_noise
            return cls(steps=plan.local_steps, batch=plan.batch, step_size=plan.step_size, strict=plan.strict,
                       update_clip=plan.upload_bound, update_noise=noise, adaptive=plan.adaptive)  # fmt: skip
        return cls(steps=plan.local_steps, batch=plan.batch, step_size=plan.step_size, clip=plan.clip, noise=noise,
                   strict=plan.strict)  # fmt: skip

    @property
    def private(self) -> bool:
        """Whether any noise is added."""
        return self.noise > 0 or self.update_noise > 0


TINY = 2.0**-10  # a clip below it has its norms taken with care for squares that vanish
Total = tuple[Tree, Tree | None]  # a sum, and what rounding it has left over, where that is kept
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

    `keys` holds what `draw` needs for each step, and one entry more for the noise on the update. A place with a row
    number below 0 is empty. Beyond the `usual` rows of a batch that is added in one piece nothing is computed unless
    they are used. Features that are known to be `finite` need no guard.
    """
    model = model.fixed or model
    start = model.unravel(parameters)
    spread = noise_on_sum(model, recipe, batches.shape[-1])

    def noisy_gradient(tree: Tree, batch: Array, count: Array, key: Array) -> Tree:
        total = batch_sum(model, recipe, usual, finite, tree, features, labels, batch, count)  # lines 6, 7
        noisy = add_noise(model, total, spread, key, draw)  # line 9, on the sum: what is rounded from here on is noisy
        return jax.tree.map(lambda leaf: leaf / recipe.batch, noisy)  # line 8: the divisor is always γ

    def step(state: tuple[Tree, Tree], given: tuple[Array, Array, Array]) -> tuple[tuple[Tree, Tree], None]:
        (tree, velocity), (batch, count, key) = state, given
        noisy = noisy_gradient(tree, batch, count, key)
        if recipe.momentum:
            noisy = velocity = jax.tree.map(lambda old, new: recipe.momentum * old + new, velocity, noisy)
        tree = jax.tree.map(lambda leaf, slope: leaf - recipe.step_size * slope, tree, noisy)  # line 10
        return (tree, velocity), None

    if recipe.steps == 1:  # not θ' − θ: at a large θ that loses bits of what is summed with others' updates
        only = noisy_gradient(start, batches[0], counts[0], keys[0])
        update = jax.tree.map(lambda slope: -recipe.step_size * slope, only)
    else:
        velocity = jax.tree.map(jnp.zeros_like, start) if recipe.momentum else ()
        (end, _), _ = lax.scan(step, (start, velocity), (batches, counts, keys[:-1]))
        update = jax.tree.map(jnp.subtract, end, start)
    if recipe.adaptive:
        return counted_update(model, recipe, update, parameters[-1], keys[-1], draw)
    if recipe.update_clip < math.inf:
        factor = clip_factor(tree_norm(update), recipe.update_clip)
        update = jax.tree.map(lambda leaf: jnp.where(factor > 0, leaf * factor, 0), update)
        spread = recipe.update_noise * (1 + rounding.in_clipping(model.sizes))
        update = add_noise(model, (update, None), spread, keys[-1], draw)
    return model.ravel(update)


def counted_update(model: Model, recipe: Recipe, update: Tree, log_clip: Array, key: Array, draw: Noise) -> Array:
    """The update in units of the clip S, at most 1 long, and ±λ/2 for whether it is within S; with noise on all of it.

    The bounds hold for every S, so nobody has to trust the server that sends its logarithm.
    """
    clip = jnp.exp(jnp.clip(log_clip, -LARGEST_LOG_CLIP, LARGEST_LOG_CLIP))
    length = tree_norm(update)
    factor = jnp.where(length < jnp.inf, recipe.update_clip / jnp.maximum(length, clip), 0)  # neither is 0
    clipped = jnp.where(factor > 0, model.ravel(update) * factor, 0)  # nothing, where one is no number
    counted = jnp.append(clipped, jnp.where(length <= clip, COUNT_LENGTH / 2, -COUNT_LENGTH / 2))
    spread = recipe.update_noise * (1 + rounding.in_clipping(model.sizes))
    return counted if spread == 0 else counted + spread * draw(key, counted.shape, 0)


def noise_on_sum(model: Model, recipe: Recipe, room: int) -> float:
    """The standard deviation of the noise on the sum over a batch with this room: γσ, and what float32 adds to it.

    >>> from choral.learning.models import logistic
    >>> round(noise_on_sum(logistic(104), Recipe(steps=1, batch=64, step_size=0.1, clip=1.0, noise=0.5), 128), 2)
    32.03
    """
    return recipe.batch * recipe.noise * sensitivity_factor(model, room)


def sensitivity_factor(model: Model, room: int) -> float:
    """(1 + c)(1 + e): by what factor float32 can make a record count for more than G in a batch with this room.

    The noise is made larger by it, so that every figure holds as if sums were exact.

    >>> from choral.learning.models import logistic
    >>> round(sensitivity_factor(logistic(104), 128), 4)
    1.001
    """
    clipping = rounding.of_dense_stack(model.widths) if model.widths else rounding.in_clipping(model.sizes)
    return (1 + clipping) * (1 + rounding.in_sum(room))


def batch_sum(
    model: Model,
    recipe: Recipe,
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

    def part(tree: Tree, features: Array, labels: Array, batch: Array, count: Array) -> Tree:
        used = (jnp.arange(batch.shape[0]) < count) & (batch >= 0)
        return clipped_sum(model, tree, features[batch], labels[batch], used, recipe.clip, finite=finite)

    def nothing(tree: Tree, *_: Array) -> Tree:
        return jax.tree.map(jnp.zeros_like, tree)

    def add_piece(total: Total, piece: tuple[Array, Array]) -> tuple[Total, None]:
        return add_in_two_floats(total, part(tree, features, labels, *piece)), None

    room = batch.shape[0]
    pieces, rows = rounding.pieces(room, math.isqrt(room - 1) + 1 if recipe.strict else None)
    if pieces > 1:
        places = jnp.pad(batch, (0, pieces * rows - room), constant_values=-1).reshape(pieces, rows)
        zeros = jax.tree.map(jnp.zeros_like, tree)
        total, _ = lax.scan(add_piece, (zeros, zeros), (places, count - rows * jnp.arange(pieces)))
        return total
    whole = part(tree, features, labels, batch[:usual], count)
    if usual is None or usual >= room:
        return whole, None
    # Adding the zeros of an unused tail changes no number, so it does not matter for which lanes it is computed.
    rest = if_any(count > usual, part, nothing, tree, features, labels, batch[usual:], count - usual)
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


def add_noise(model: Model, total: Total, deviation: float, key: Array, draw: Noise) -> Tree:
    """The total plus Gaussian noise of this standard deviation, numbered along the flat vector, rounded once."""
    high, low = total
    if deviation == 0:
        return high if low is None else jax.tree.map(jnp.add, high, low)
    leaves, form = jax.tree.flatten(high)
    drawn = [deviation * draw(key, leaf.shape, start) for leaf, start in zip(leaves, model.starts, strict=True)]
    noises = jax.tree.unflatten(form, drawn)
    return jax.tree.map(jnp.add, high, noises) if low is None else add_in_two_floats((high, low), noises)[0]


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


def tree_norm(tree: Tree) -> Array:
    """The Euclidean norm of all leaves together.

    >>> float(tree_norm([jnp.float32([[3.0]]), jnp.float32([4.0])]))
    5.0
    """
    return norm(jnp.stack([norm(leaf.ravel()) for leaf in jax.tree.leaves(tree)]))


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
        # In full precision, whatever an accelerator does elsewhere: here gradients of length G are made and added.
        sums.append((jnp.matmul(guarded.T, scaled, precision=lax.Precision.HIGHEST), scaled.sum(axis=0)))
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

    if not TINY <= clip < math.inf or max(a.shape[-1] for a in inputs + backward) > rounding.BLOCK:
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
