"""The models that can be trained: the built-in kinds, and a user's own.

A new kind is a function and an entry in KINDS; docs/configuration.md lists them. No JAX is loaded before one is made.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from choral.core.plan import require_whole

if TYPE_CHECKING:
    from choral.learning.models.dense import losses, slopes
    from choral.learning.models.model import MOST_PARAMETERS, Link, Model, Tree, own

__all__ = [
    "GIVEN", "KINDS", "MOST_PARAMETERS", "Link", "Maker", "Model", "Tree", "binary", "cnn", "linear", "logistic",
    "losses", "mlp", "own", "slopes",
]  # fmt: skip

Maker: TypeAlias = Callable[..., object]  # takes features= and classes=, and gives a model
GIVEN = "given"  # the module in the name of a model that no other process can import


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


def logistic(features: int, classes: int = 2) -> "Model":
    """Logistic regression: softmax over the classes, d = (features + 1)·classes.

    >>> logistic(104).size
    210
    """
    from choral.learning.models.dense import dense

    require_whole("classes", classes, least=2)
    return dense("logistic", (features, classes), "softmax", classes)


def binary(features: int) -> "Model":
    """Logistic regression of two classes with one output, d = features + 1.

    >>> binary(104).size
    105
    """
    from choral.learning.models.dense import dense

    return dense("binary", (features, 1), "sigmoid", 2)


def linear(features: int) -> "Model":
    """Least squares: half the squared error of one output.

    >>> linear(3).size
    4
    """
    from choral.learning.models.dense import dense

    return dense("linear", (features, 1), "squared", 0)


def mlp(features: int, hidden: tuple[int, ...], classes: int = 2) -> "Model":
    """A multilayer perceptron with ReLU between layers of these hidden sizes, softmax over the classes.

    Without classes it has one output, and half its squared error is the loss.

    >>> mlp(784, (200, 200), 10).size, mlp(784, (200, 200), 0).size
    (199210, 197401)
    """
    from choral.learning.models.dense import dense

    if classes == 0:
        return dense("mlp", (features, *hidden, 1), "squared", 0)
    require_whole("classes", classes, least=2)
    return dense("mlp", (features, *hidden, classes), "softmax", classes)


def cnn(shape: tuple[int, ...], hidden: tuple[int, ...], classes: int = 2) -> "Model":
    """Two convolutions with pooling, then dense layers: `hidden` is both numbers of filters and the dense widths.

    >>> cnn((28, 28), (6, 16, 120, 84), 10).size
    107786
    """
    from choral.learning.models.layered import layered

    return layered(shape, hidden, classes)


KINDS: dict[str, BuiltIn] = {  # the plainest first
    "logistic": BuiltIn(classes=True, make=lambda shape, classes, _: logistic(shape[0], classes)),
    "linear": BuiltIn(numbers=True, make=lambda shape, *_: linear(shape[0])),
    "mlp": BuiltIn(
        classes=True, numbers=True, hidden=True, make=lambda shape, classes, hidden: mlp(shape[0], hidden, classes)
    ),
    "cnn": BuiltIn(
        classes=True,
        numbers=True,
        hidden=True,
        images=True,
        make=lambda shape, classes, hidden: cnn(shape, hidden, classes),
    ),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - what needs JAX is loaded when it is first used
    if name not in __all__:
        raise AttributeError(name)
    from choral.learning.models import dense, model

    return getattr(dense if name in ("losses", "slopes") else model, name)
