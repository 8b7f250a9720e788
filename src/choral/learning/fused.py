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
TALLEST = 128  # tile: one of few columns is taller than others, so that there is something to do for all threads
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
    plain = recipe.noise > 0 and recipe.usual_clip and not recipe.strict
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
    most = min(ROWS, _power(rows, LEAST[0]))
    full, rest = divmod(outputs, TILE[1])
    narrow = _power(rest, LEAST[1])
    tall, taller = (_height(width, wide) for wide in (TILE[1], narrow))
    whole = -(-width // tall) * full
    tiles = whole + (-(-width // taller) if rest else 0)

    def kernel(weights: Any, inputs: Any, slopes: Any, keys: Any, numbers: Any, found: Any) -> None:  # noqa: ANN401 - references to arrays
        number = pallas.program_id(0)  # one lane's tiles follow each other, so that its inputs stay in the cache
        lane, tile = number // tiles, number % tiles

        def step(tall: int, wide: int, down: Any, across: Any) -> None:  # noqa: ANN401 - integers: the tile's place
            line = down * tall + lax.iota(jnp.int32, tall)
            at, down_at = line[:, None], line[None, :]
            to = (across * TILE[1] + lax.iota(jnp.int32, wide))[None, :]
            total = jnp.zeros((tall, wide), jnp.float64)
            for first in range(0, rows, most):
                row = (first + lax.iota(jnp.int32, most))[:, None]
                a = triton.load(inputs.at[lane, row, down_at], mask=(row < rows) & (down_at < width), other=0.0)
                b = triton.load(slopes.at[lane, row, to], mask=(row < rows) & (to < outputs), other=0.0)
                total += product(a.astype(jnp.float64), b.astype(jnp.float64))  # of exact products
            first, second, third, jump = (keys[lane, which] for which in range(4))
            counts = (start + at * outputs).astype(jnp.uint32) * jump + first + to.astype(jnp.uint32) * jump
            drawn = noise.quantiles(noise.mixed(counts, second, third), far, plus)
            noisy = plus(total.astype(jnp.float32), drawn, numbers[lane, 1])
            inside = (at < width) & (to < outputs)
            old = triton.load(weights.at[lane, at, to], mask=inside, other=0.0)
            triton.store(found.at[lane, at, to], plus(old, noisy, -numbers[lane, 0]), mask=inside)

        if full:
            pallas.when(tile < whole)(lambda: step(tall, TILE[1], tile // full, tile % full))
        if rest:
            pallas.when(tile >= whole)(lambda: step(taller, narrow, tile - whole, full))

    # In full precision, whatever JAX is set to elsewhere.
    over_rows: Any = (((0,), (0,)), ((), ()))
    product = partial(lax.dot_general, dimension_numbers=over_rows, precision=lax.Precision.HIGHEST)

    def far(rest: Array) -> Array:
        """√(1 − ln x) by the processor's own logarithm and root, each within 2^-22."""
        square = plus(jnp.float32(1), log2(rest), jnp.float32(-math.log(2)))
        root: Array = square * rsqrt(square)
        return root

    def instruction(name: str, *given: Array) -> Array:
        """One of the processor's own for each number.

        The compiler of kernels fuses no product with a sum, and guards its roots against numbers below 2^-126.
        """
        alike = jnp.broadcast_arrays(*given)
        made = triton.elementwise_inline_asm(
            f"{name} {', '.join(f'${place}' for place in range(1 + len(given)))};",
            args=alike,
            constraints=",".join(["=f", *["f"] * len(given)]),
            pack=1,
            result_shape_dtypes=[jax.eval_shape(lambda: alike[0])],
        )
        found: Array = made[0]
        return found

    def log2(x: Array) -> Array:
        return jnp.log2(x) if interpret else instruction("lg2.approx.ftz.f32", x)

    def rsqrt(x: Array) -> Array:
        return lax.rsqrt(x) if interpret else instruction("rsqrt.approx.ftz.f32", x)

    def plus(total: Array, a: Array, b: Array) -> Array:
        return noise.plus_product(total, a, b) if interpret else instruction("fma.rn.f32", a, b, total)

    with jax.enable_x64(True):
        call: Callable[..., Array] = pallas.pallas_call(
            kernel,
            out_shape=jax.eval_shape(lambda: weights),
            grid=(lanes * tiles,),
            input_output_aliases={0: 0},
            interpret=interpret,
            compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=1),
        )
        return call(weights, inputs, slopes, keys, numbers)


def _height(width: int, columns: int) -> int:
    """How tall a tile of so many columns is, in a layer with so many inputs.

    >>> _height(784, 64), _height(784, 8), _height(20, 8)
    (32, 128, 32)
    """
    return min(TALLEST, TILE[0] * TILE[1] // columns, _power(width, LEAST[0]))


def _power(size: int, least: int) -> int:
    """The smallest power of two that holds so many, and at least `least`.

    >>> _power(8, 16), _power(33, 16)
    (16, 64)
    """
    return max(least, 1 << (size - 1).bit_length())
