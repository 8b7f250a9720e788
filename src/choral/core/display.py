"""How a privacy loss is written for people: never as less than it is."""

import math
import re
from decimal import Context, Decimal

_EACH_ROUND = re.compile(r"\b(step|device|pass|passes) a round\b")


def up(value: float, digits: int = 2) -> str:
    """The number with so many decimals, rounded up.

    >>> up(1.981), up(2.0), up(0.1 + 0.2, 1), up(math.inf)
    ('1.99', '2.00', '0.3', 'inf')
    """
    if math.isinf(value):
        return "inf"
    scale = 10**digits
    return f"{math.ceil(value * scale - 1e-9) / scale:.{digits}f}"


def in_plain_words(recorded: str | None) -> str:
    """A reason that records contain, in the words of today; the record keeps the words that its signatures cover.

    >>> in_plain_words("one local step a round: each sum carries the noise of 3 honest devices")  # in records
    'one local step per round: each sum carries the noise of 3 honest devices'
    """
    return _EACH_ROUND.sub(r"\1 per round", recorded or "")


def figures_up(value: float, figures: int = 3) -> str:
    """The number with so many significant figures, rounded up: what is printed, typed in again, is not smaller.

    >>> figures_up(39.8201), figures_up(0.00123), figures_up(1.0), figures_up(99.91, 3), figures_up(math.inf)
    ('39.9', '0.00123', '1', '100', 'inf')
    """
    near = Decimal(f"{value:.{figures}g}")
    above = near if float(near) >= value else near.next_plus(Context(prec=figures))
    return f"{float(above):.{figures}g}"
