"""The one root finder of the accounting: bracketed, derivative-free, pure floats."""

import math
from collections.abc import Callable


def root(function: Callable[[float], float], low: float, high: float, *, tolerance: float = 1e-15) -> float:
    """The zero of a monotone function between low and high, to a relative tolerance (Ridders 1979).

    >>> round(root(lambda x: x * x - 2, 1, 2), 12)
    1.414213562373
    """
    at_low, at_high = function(low), function(high)
    if at_low == 0 or at_high == 0:
        return low if at_low == 0 else high
    if (at_low > 0) == (at_high > 0):
        raise ValueError("no change of sign in the bracket")
    for _ in range(200):
        middle = 0.5 * (low + high)
        at_middle = function(middle)
        scale = math.sqrt(at_middle * at_middle - at_low * at_high)
        if at_middle == 0 or scale == 0:
            return middle
        point = middle + (middle - low) * math.copysign(at_middle, at_low * at_middle) / scale
        at_point = function(point)
        if at_point == 0:
            return point
        for x, value in sorted(((middle, at_middle), (point, at_point))):
            if (value > 0) == (at_low > 0):
                low, at_low = max(low, x), value
            elif x <= high:
                high, at_high = x, value
                break
        if high - low <= tolerance * max(abs(low), abs(high)):
            break
    return 0.5 * (low + high)
