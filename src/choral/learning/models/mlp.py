"""Multilayer perceptrons."""

from typing import TYPE_CHECKING

from choral.core.plan import require_whole
from choral.learning.models.built_in import BuiltIn

if TYPE_CHECKING:
    from choral.learning.models.model import Model


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


KIND = BuiltIn(
    classes=True, numbers=True, hidden=True, make=lambda shape, classes, hidden: mlp(shape[0], hidden, classes)
)
