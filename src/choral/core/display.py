"""How a privacy loss is written for people: never as less than it is."""

import math
from decimal import Context, Decimal


def up(value: float, digits: int = 2) -> str:
    """The number with so many decimals, rounded up.

    >>> up(1.981), up(2.0), up(0.1 + 0.2, 1), up(math.inf)
    ('1.99', '2.00', '0.3', 'inf')
    """
    if math.isinf(value):
        return "inf"
    scale = 10**digits
    return f"{math.ceil(value * scale - 1e-9) / scale:.{digits}f}"


def figures_up(value: float, figures: int = 3) -> str:
    """The number with so many significant figures, rounded up: what is printed, typed in again, is not smaller.

    >>> figures_up(39.8201), figures_up(0.00123), figures_up(1.0), figures_up(99.91, 3), figures_up(math.inf)
    ('39.9', '0.00123', '1', '100', 'inf')
    """
    near = Decimal(f"{value:.{figures}g}")
    above = near if float(near) >= value else near.next_plus(Context(prec=figures))
    return f"{float(above):.{figures}g}"
