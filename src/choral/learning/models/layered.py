"""Networks with convolutions, written as matrix products of patches, so that the gradients of all rows are products."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from choral.core.errors import ConfigError
from choral.core.plan import require_whole
from choral.learning import rounding
from choral.learning.models.dense import losses
from choral.learning.models.model import Link, Model, Tree
from choral.tables.records import by

SMALL = 16  # pixels: below, a filter sees 3 × 3 of them, else 5 × 5


@dataclass(frozen=True)
class Layered:
    """Two convolutions, each with 2 × 2 max-pooling and ReLU behind it, and dense layers with ReLU between them.

    A layer is a matrix and a bias. A convolution's matrix is applied to the patch around every pixel; pixels beyond the
    edge are 0. So its gradient for one row is the product of the row's patches and the slopes at its outputs.
    """

    shape: tuple[int, int, int]  # height, width, colours
    hidden: tuple[int, ...]  # filters of the first and of the second convolution, then the dense layers' widths
    outputs: int

    @property
    def side(self) -> int:
        """The side of a filter."""
        return 5 if min(self.shape[:2]) >= SMALL else 3

    @property
    def grids(self) -> list[tuple[int, int]]:
        """Height and width of what each convolution sees, and of what is left behind the last."""
        height, width, _ = self.shape
        return [(height, width), (height // 2, width // 2), (height // 4, width // 4)]

    @property
    def matrices(self) -> list[tuple[int, int]]:
        """Rows and columns of each layer's matrix, the convolutions' first."""
        first, second, *dense = self.hidden
        patch, (height, width) = self.side**2, self.grids[2]
        widths = (height * width * second, *dense, self.outputs)
        return [(patch * self.shape[2], first), (patch * first, second), *pairwise(widths)]

    @property
    def places(self) -> list[int]:
        """For how many pixels each layer is applied to a row: 1 for dense layers."""
        return [math.prod(self.grids[0]), math.prod(self.grids[1]), *[1] * (len(self.matrices) - 2)]

    @property
    def widest(self) -> int:
        """The most numbers that a layer holds of one row."""
        return max(places * max(sizes) for places, sizes in zip(self.places, self.matrices, strict=True))

    @property
    def clipping(self) -> float:
        """c: by how much of G a clipped gradient may be too long (docs/accounting.md, Claim A)."""
        return rounding.of_parts(
            max(rounding.in_norm(fan * out), rounding.in_norm(out)) if places > 1
            else rounding.in_norm(fan) + rounding.in_norm(out)
            for places, (fan, out) in zip(self.places, self.matrices, strict=True)
        )  # fmt: skip

    def nudges(self, rows: int) -> list[Array]:
        """Zeros to be added to the output of each layer: the gradient in them is the slope there."""
        shapes = zip(self.places, self.matrices, strict=True)
        return [jnp.zeros((rows, places, out) if places > 1 else (rows, out)) for places, (_, out) in shapes]

    def forward(self, tree: Tree, rows: Array, nudges: Sequence[Array] = ()) -> tuple[Array, list[Array]]:
        """The outputs of the rows, and what goes into each layer."""
        here, inputs, added = rows.reshape(len(rows), *self.shape), [], iter(nudges)
        for (weight, bias), (height, width) in zip(tree[:2], self.grids, strict=False):
            seen = patches(here, self.side).reshape(len(rows), height * width, -1)
            inputs.append(seen)
            found = seen @ weight + bias
            found = found + next(added) if nudges else found
            here = jax.nn.relu(pooled(found.reshape(len(rows), height, width, -1)))
        here = here.reshape(len(rows), -1)
        for depth, (weight, bias) in enumerate(tree[2:], 3):
            inputs.append(here)
            found = here @ weight + bias
            found = found + next(added) if nudges else found
            here = found if depth == len(tree) else jax.nn.relu(found)
        return here, inputs


def patches(images: Array, side: int) -> Array:
    """The square around each pixel, as one more row of numbers for each.

    >>> patches(jnp.ones((1, 4, 4, 2)), 3).shape
    (1, 4, 4, 18)
    """
    _, height, width, _ = images.shape
    edge = side // 2
    padded = jnp.pad(images, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
    shifts: Iterator[tuple[int, int]] = ((down, right) for down in range(side) for right in range(side))
    return jnp.concatenate([padded[:, d : d + height, r : r + width] for d, r in shifts], axis=-1)


def pooled(images: Array) -> Array:
    """The largest of each 2 × 2 pixels; an odd row or column at the end is left out.

    >>> pooled(jnp.arange(9.0).reshape(1, 3, 3, 1)).ravel().tolist()
    [4.0]
    """
    rows, height, width, depth = images.shape
    half = (height // 2, width // 2)
    squares = images[:, : 2 * half[0], : 2 * half[1]].reshape(rows, half[0], 2, half[1], 2, depth)
    return squares.max(axis=(2, 4))


@lru_cache(maxsize=32)  # the same shapes are the same model, and compiled once
def layered(shape: tuple[int, ...], hidden: tuple[int, ...], classes: int) -> Model:
    """A small convolutional network for images of this shape: height × width, or height × width × colours."""
    if len(shape) not in (2, 3) or min(shape[:2]) < 4:
        raise ConfigError(
            "CH108", f'kind = "cnn" with rows of {by(shape)}.',
            fix="Give images of at least 4 × 4: height × width, or height × width × colours.",
        )  # fmt: skip
    if len(hidden) < 2:
        raise ConfigError(
            "CH108",
            f'kind = "cnn" with hidden = {list(hidden)}.',
            fix="Give the filters of both convolutions, and the dense layers: hidden = [6, 16, 84].",
        )
    for width in (*shape, *hidden):
        require_whole("a layer's width", width)
    net = Layered((*shape, 1)[:3] if len(shape) == 2 else shape, hidden, classes or 1)  # type: ignore[arg-type]
    link: Link = "softmax" if classes else "squared"

    def init(seed: int) -> Tree:
        draw = np.random.Generator(np.random.Philox(seed))
        return [
            (draw.normal(0, math.sqrt(2 / fan), (fan, out)).astype(np.float32), np.zeros(out, dtype=np.float32))
            for fan, out in net.matrices
        ]

    def predict(tree: Tree, rows: Array) -> Array:
        return net.forward(tree, rows)[0]

    def loss(tree: Tree, x: Array, y: Array) -> Array:
        return losses(link, predict(tree, x[None]), y[None])[0]

    return Model(
        name="cnn", features=math.prod(shape), classes=classes, init=init, loss=loss, predict=predict, link=link,
        shape=shape, layered=net,
    )  # fmt: skip
