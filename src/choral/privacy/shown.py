"""How a privacy loss is written for people: never as less than it is."""

import math


def up(value: float, digits: int = 2) -> str:
    """The number with so many decimals, rounded up.

    >>> up(1.981), up(2.0), up(0.1 + 0.2, 1)
    ('1.99', '2.00', '0.3')
    """
    scale = 10**digits
    return f"{math.ceil(value * scale - 1e-9) / scale:.{digits}f}"
