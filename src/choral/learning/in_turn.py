"""Models that share their rows go through them one after the other, so that each has the bits that it has alone."""

from collections.abc import Callable
from typing import Any

import jax
from jax import Array, lax
from jax.custom_batching import custom_vmap

from choral.learning.models import Tree

OfRows = Callable[..., Tree]  # (model, *rows) -> what is made of them, with the model's own numbers


def in_turn(function: OfRows, own: Any, shared: tuple[Array, ...]) -> Tree:  # noqa: ANN401 - a pytree
    """`function(own, *shared)`, which under `vmap` over `own` alone is called for one of them after the other.

    `vmap` would make one wide product of many models' products with the same rows, and a wide product may be added in
    another order. Here the rows are read from memory once, and no model's bits depend on which others there are.

    >>> import jax.numpy as jnp
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
