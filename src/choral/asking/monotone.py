"""The nearest sequence that falls or rises: what noise puts out of order is averaged."""

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def rising(values: Vector) -> Vector:
    """The rising sequence that is nearest in squares: neighbours out of order are joined until none is.

    >>> rising(np.array([1.0, 3.0, 2.0, 4.0])).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    means: list[float] = []
    sizes: list[int] = []
    for value in values.tolist():
        mean, size = value, 1
        while means and means[-1] > mean:
            mean, size = (mean * size + means[-1] * sizes[-1]) / (size + sizes[-1]), size + sizes[-1]
            means.pop()
            sizes.pop()
        means.append(mean)
        sizes.append(size)
    return np.repeat(means, sizes)


def falling(values: Vector) -> Vector:
    """The falling sequence that is nearest in squares.

    >>> falling(np.array([1.0, 0.5, 0.7])).tolist()
    [1.0, 0.6, 0.6]
    """
    return -rising(-values)
