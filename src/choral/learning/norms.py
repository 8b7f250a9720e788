"""Lengths of gradients and updates, and the factors that clip them; Claim A of docs/accounting.md is about them."""

import math

import jax
import jax.numpy as jnp
from jax import Array, lax

from choral.learning import rounding
from choral.learning.models import Tree
from choral.learning.recipe import Number


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
