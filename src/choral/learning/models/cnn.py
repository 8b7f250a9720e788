"""Small convolutional networks."""

from typing import TYPE_CHECKING

from choral.learning.models.built_in import BuiltIn

if TYPE_CHECKING:
    from choral.learning.models.model import Model


def cnn(shape: tuple[int, ...], hidden: tuple[int, ...], classes: int = 2) -> "Model":
    """Two convolutions with pooling, then dense layers: `hidden` is both numbers of filters and the dense widths.

    >>> cnn((28, 28), (6, 16, 120, 84), 10).size
    107786
    """
    from choral.learning.models.layered import layered

    return layered(shape, hidden, classes)


KIND = BuiltIn(classes=True, numbers=True, hidden=True, images=True,
               make=lambda shape, classes, hidden: cnn(shape, hidden, classes))  # fmt: skip
