r"""Text that a terminal, a log or a page may show, and names that people can tell apart.

What comes from a file may hold characters that move the cursor, turn the direction of writing or are not seen at all.
New names with such characters are refused; wherever else text is shown, they are written out, as in \x1b.
"""

import re
import unicodedata
from collections.abc import Iterator

LONGEST_NAME = 64
# Printable by Python's tables, and yet nothing is seen of them: Unicode's ignorable marks and fillers, Braille's blank.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# The mixtures that Unicode's security report (UTS 39, "highly restrictive") finds safe in addition to a single script.
_TOGETHER = (
    {"LATIN", "CJK", "HIRAGANA", "KATAKANA"},
    {"LATIN", "CJK", "HANGUL"},
    {"LATIN", "CJK", "BOPOMOFO"},
)
_SPACES = "\u00a0\u202f"  # that do not break, as in "1 %": they look like a space, and harm nobody
_MOST_MARKS = 2  # accents on one letter; more of them would be drawn over the lines around it


def is_shown(text: str) -> bool:
    r"""Whether every character is seen as itself.

    >>> is_shown("Zürich, 東京"), is_shown("a\u202eb"), is_shown("line\nbreak")
    (True, False, False)
    """
    return text.isprintable() and _UNSEEN.search(text) is None


def count(number: int, thing: str) -> str:
    """The number with its thing, in singular or plural.

    >>> count(1, "device"), count(2_000, "row")
    ('1 device', '2,000 rows')
    """
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


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


def number_of(count: float, thing: str) -> str:
    """So many things, in the grammar of one or of several.

    >>> number_of(1, "row"), number_of(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,.0f} {thing}{'' if round(count) == 1 else 's'}"


def fault_of_name(name: str) -> str:
    r"""Why people could take a name for another one, or nothing: for studies, devices, addresses and models.

    >>> fault_of_name("hospital-a"), fault_of_name("h\u043espital-a")
    ('', 'mixes CYRILLIC and LATIN letters')
    """
    if fault := _fault_of_form(name):
        return fault
    if unicodedata.normalize("NFKC", name) != name:
        return "has characters that stand for others, such as wide letters or ligatures"
    return _mixture(name)


def fault_of_word(word: str) -> str:
    r"""The same for words of a table, such as columns and levels: each of their parts keeps to one script.

    >>> fault_of_word("\u03b2-blocker"), fault_of_word("\u0430ge")
    ('', 'mixes CYRILLIC and LATIN letters')
    """
    return _fault_of_form(word) or next(filter(None, map(_mixture, re.split(r"[\W\d_]+", word))), "")


def _fault_of_form(name: str) -> str:
    if not is_shown(name):
        return "has characters that can't be printed"
    if not 0 < len(name) <= LONGEST_NAME:
        return f"has {len(name):,} characters, where 1 to {LONGEST_NAME} are allowed"
    if name != name.strip():
        return "begins or ends with a space"
    marks = "".join("m" if unicodedata.category(character) in ("Mn", "Me") else " " for character in name)
    return "has too many accents on one letter" if "m" * (_MOST_MARKS + 1) in marks else ""


def _mixture(text: str) -> str:
    found = set(_scripts(text))
    if len(found) < 2 or any(found <= allowed for allowed in _TOGETHER):
        return ""
    return f"mixes {' and '.join(sorted(found))} letters"


def _scripts(text: str) -> Iterator[str]:
    """The script of every letter, which is how its Unicode name begins; signs such as µ belong to none."""
    for character in text:
        name = unicodedata.name(character, "")
        if character.isalpha() and re.search(r"LETTER|IDEOGRAPH|SYLLABLE", name):
            yield re.split(r"[ -]", name)[0]
