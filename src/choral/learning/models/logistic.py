"""Logistic regression."""

from typing import TYPE_CHECKING

from choral.core.plan import require_whole
from choral.learning.models.built_in import BuiltIn

if TYPE_CHECKING:
    from choral.learning.models.model import Model


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


KIND = BuiltIn(classes=True, make=lambda shape, classes, _: logistic(shape[0], classes))
