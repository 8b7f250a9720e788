"""What a choral.toml must know of a kind of model; no JAX is loaded before a model is made."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from choral.learning.models.model import Model


@dataclass(frozen=True, kw_only=True)
class BuiltIn:
    """Which labels a built-in kind learns, whether it has hidden layers, and how it is made.

    `make` takes the shape of a row, the number of classes (0 where the label is a number) and the hidden sizes.
    """

    make: "Callable[[tuple[int, ...], int, tuple[int, ...]], Model]"
    classes: bool = False
    numbers: bool = False
    hidden: bool = False
    images: bool = False  # its rows are height × width, or height × width × colours
