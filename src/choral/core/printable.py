r"""Text and figures as a terminal, a log or a page may show them.

What comes from a file may hold characters that move the cursor, turn the direction of writing or are not seen at all.
Wherever such text is shown, they are written out, as in \x1b.
"""

import re
from decimal import Context, Decimal

# Printable by Python's tables, and yet nothing is seen of them: Unicode's ignorable marks and fillers, Braille's blank.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_SPACES = "\u00a0\u202f"  # that do not break, as in "1 %": they look like a space, and harm nobody


def is_shown(text: str) -> bool:
    r"""Whether every character is seen as itself.

    >>> is_shown("Zürich, 東京"), is_shown("a\u202eb"), is_shown("line\nbreak")
    (True, False, False)
    """
    return text.isprintable() and _UNSEEN.search(text) is None


def count(number: float, thing: str) -> str:
    """So many things, in the grammar of one or of several.

    >>> count(1, "device"), count(1999.7, "row")
    ('1 device', '2,000 rows')
    """
    return f"{number:,.0f} {thing}" + ("" if round(number) == 1 else "s")


def escaped(text: str) -> str:
    r"""The text on one line, with whatever is not seen as itself written out.

    >>> print(escaped("a\x1b[2Jb\u202ec\nd"))
    a\x1b[2Jb\u202ec\nd
    """
    if is_shown(text):
        return text
    return "".join(
        character if is_shown(character) or character in _SPACES else character.encode("unicode_escape").decode()
        for character in text
    )


def figures_up(value: float, figures: int = 3) -> str:
    """The number with so many significant figures, rounded up: what is printed, typed in again, is not smaller.

    >>> figures_up(39.8201), figures_up(0.00123), figures_up(1.0), figures_up(99.91, 3), figures_up(float("inf"))
    ('39.9', '0.00123', '1', '100', 'inf')
    """
    near = Decimal(f"{value:.{figures}g}")
    above = near if float(near) >= value else near.next_plus(Context(prec=figures))
    return f"{float(above):.{figures}g}"
