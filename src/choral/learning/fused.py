"""A noisy step of a dense layer's weights in one pass over them, as one kernel for some of NVIDIA's GPUs.

The compiler's own form writes the sum of clipped gradients, reads it again, and makes the noise in another pass. Here a
tile of the weights is read once, its sum and its noise are made in registers, and it is written once. A number is the
same function of its row, its column and the key whatever the tiles are.
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

from choral.learning import noise, rounding
from choral.learning.models import Model, Tree
from choral.learning.recipe import Number, Recipe

CAPABILITIES = ("8.0", "9.0")  # A100, H100, H200: their matrix units multiply float64 as fast as others do float32
FEWEST_WEIGHTS = 2**14  # of the largest layer: below, starting kernels takes longer than what they do
TILE, ROWS, WARPS = (32, 64), 32, 4  # weights, rows multiplied at once, and groups of threads: the fastest on an H200
LEAST = 16, 8  # of a product's sides


def runs_on(processor: Any) -> bool:  # noqa: ANN401 - a device of JAX
    """Whether this processor has what makes the kernel fast.

    >>> runs_on(jax.devices("cpu")[0])
    False
    """
    return processor.platform == "gpu" and getattr(processor, "compute_capability", None) in CAPABILITIES


def suits(model: Model, recipe: Recipe, room: int, usual: int | None) -> bool:
    """Whether local steps are of the kind that the kernel takes, and a layer is large enough to gain by it.

    >>> from choral.learning.models import mlp
    >>> recipe = Recipe(steps=10, batch=32, step_size=0.1, clip=1.0, noise=1.0)
    >>> suits(mlp(784, (200, 200), 10), recipe, 32, None), suits(mlp(104, (64, 32)), recipe, 32, None)
    (True, False)
    """
    plain = recipe.noise > 0 and recipe.usual_clip and not (recipe.momentum or recipe.proximal or recipe.strict)
    one_piece = rounding.pieces(room)[0] == 1 and (usual is None or usual >= room)
    largest = max((fan * out for fan, out in pairwise(model.widths or ())), default=0)
    return plain and one_piece and largest >= FEWEST_WEIGHTS


def dense_step(
    model: Model, tree: Tree, layers: list[tuple[Array, Array]], key: Array, size: Number, spread: Number
) -> Tree:
    """A noisy step of a dense stack from its clipped layers; a bias's sum is short, and the compiler's own."""
    starts, stepped = iter(model.starts), []
    for (weights, bias), (inputs, slopes) in zip(tree, layers, strict=True):
        new = noisy_step(weights, inputs, slopes, key, size, spread, next(starts))
        drawn = noise.normal(key, bias.shape, next(starts))
        stepped.append((new, bias - size * (slopes.sum(axis=0) + spread * drawn)))
    return stepped


def noisy_step(
    weights: Array, inputs: Array, slopes: Array, key: Array, size: Number, spread: Number, start: int
) -> Array:
    """weights − size·(Σ over the rows of inputs ⊗ slopes + spread·noise), the noise numbered from `start` on.

    On a processor that the kernel can't be compiled for it is interpreted, which is slow: for tests.
    """

    def lanes(*given: Array) -> Array:
        compiled, interpreted = (partial(_steps_of_lanes, start, interpret) for interpret in (False, True))
        found: Array = lax.platform_dependent(*given, cuda=compiled, default=interpreted)
        return found

    @custom_vmap
    def step(*given: Array) -> Array:
        return lanes(*(one[None] for one in given))[0]

    @step.def_vmap
    def for_lanes(count: int, mapped: Any, *given: Array) -> tuple[Array, bool]:  # noqa: ANN401
        own = [one if is_own else jnp.broadcast_to(one, (count, *one.shape)) for one, is_own in zip(given, mapped)]  # noqa: B905
        return lanes(*own), True

    found: Array = step(weights, inputs, slopes, jnp.stack(noise.ready(key)), jnp.stack([size, spread]))
    return found


def _steps_of_lanes(
    start: int, interpret: bool, weights: Array, inputs: Array, slopes: Array, keys: Array, numbers: Array
) -> Array:
    from jax.experimental import pallas  # here, since few processors need it
    from jax.experimental.pallas import triton

    lanes, rows, width = inputs.shape
    outputs = slopes.shape[-1]
    tall, most = min(TILE[0], _power(width, LEAST[0])), min(ROWS, _power(rows, LEAST[0]))
    full, rest = divmod(outputs, TILE[1])
    down, across = -(-width // tall), full + (rest > 0)

    def kernel(weights: Any, inputs: Any, slopes: Any, keys: Any, numbers: Any, found: Any) -> None:  # noqa: ANN401 - references to arrays
        number = pallas.program_id(0)  # one lane's tiles follow each other, so that its inputs stay in the cache
        lane, tile = number // (down * across), number % (down * across)
        line = tile // across * tall + lax.iota(jnp.int32, tall)
        at, down_at = line[:, None], line[None, :]

        def step(wide: int) -> None:
            to = (tile % across * TILE[1] + lax.iota(jnp.int32, wide))[None, :]
            total = jnp.zeros((tall, wide), jnp.float64)
            for first in range(0, rows, most):
                row = (first + lax.iota(jnp.int32, most))[:, None]
                a = triton.load(inputs.at[lane, row, down_at], mask=(row < rows) & (down_at < width), other=0.0)
                b = triton.load(slopes.at[lane, row, to], mask=(row < rows) & (to < outputs), other=0.0)
                total += product(a.astype(jnp.float64), b.astype(jnp.float64))  # of exact products
            first, second, third, jump = (keys[lane, which] for which in range(4))
            counts = (start + at * outputs).astype(jnp.uint32) * jump + first + to.astype(jnp.uint32) * jump
            drawn = noise.quantiles(noise.mixed(counts, second, third), far)
            noisy = total.astype(jnp.float32) + numbers[lane, 1] * drawn
            inside = (at < width) & (to < outputs)
            old = triton.load(weights.at[lane, at, to], mask=inside, other=0.0)
            triton.store(found.at[lane, at, to], old - numbers[lane, 0] * noisy, mask=inside)

        if full:
            pallas.when(tile % across < full)(partial(step, TILE[1]))
        if rest:
            pallas.when(tile % across == full)(partial(step, _power(rest, LEAST[1])))

    # In full precision, whatever JAX is set to elsewhere.
    over_rows: Any = (((0,), (0,)), ((), ()))
    product = partial(lax.dot_general, dimension_numbers=over_rows, precision=lax.Precision.HIGHEST)

    def far(rest: Array) -> Array:
        """√(1 − ln x) by the processor's own logarithm and root, each within 2^-22."""
        square = 1 - jnp.float32(math.log(2)) * (jnp.log2 if interpret else log2)(rest)
        root: Array = square * lax.rsqrt(square)
        return root

    def log2(x: Array) -> Array:
        made = triton.elementwise_inline_asm(
            "lg2.approx.ftz.f32 $0, $1;",
            args=[x],
            constraints="=f,f",
            pack=1,
            result_shape_dtypes=[jax.eval_shape(lambda: x)],
        )
        found: Array = made[0]
        return found

    with jax.enable_x64(True):
        call: Callable[..., Array] = pallas.pallas_call(
            kernel,
            out_shape=jax.eval_shape(lambda: weights),
            grid=(lanes * down * across,),
            input_output_aliases={0: 0},
            interpret=interpret,
            compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=1),
        )
        return call(weights, inputs, slopes, keys, numbers)


def _power(size: int, least: int) -> int:
    """The smallest power of two that holds so many, and at least `least`.

    >>> _power(8, 16), _power(33, 16)
    (16, 64)
    """
    return max(least, 1 << (size - 1).bit_length())
