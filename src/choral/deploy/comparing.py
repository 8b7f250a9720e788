"""How sites find out by phone that they hold the same study: each reads six digits, and then all read the same six.

A site draws its number after it has read the study, so nobody can choose a study by it. The check is a hash of the
study and of all numbers: two different studies give the same check by chance only, however long somebody searched.
"""

import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from choral.deploy.enrolment import keep_json
from choral.errors import StorageError, TrustError
from choral.record import converted, read_json
from choral.secagg.keys import digest

FILE = "compare.json"
DIGITS = 6


class DrawnNumber(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """compare.json: the study that a site has read, and the number that it drew for it."""

    study: str  # the digest, in hex
    number: str


def number_for(home: Path, study: bytes) -> str:
    """The number of this site for a study: drawn when the study is first read here, and kept while it is the same."""
    known = _known(home)
    if known is None or known.study != study.hex():
        known = DrawnNumber(study=study.hex(), number=f"{secrets.randbelow(10**DIGITS):0{DIGITS}}")
        keep_json(home / FILE, known)
    return known.number


def compare(home: Path, others: Sequence[str] = ()) -> tuple[str, str]:
    """The number of this site, and the check with those of the others: empty before there are any."""
    known = _known(home)
    if known is None:
        raise StorageError(
            "CH802",
            "no study was read here yet.",
            where=str(home),
            fix="choral device approve STUDY … shows one first.",
        )
    if not others:
        return known.number, ""
    return known.number, check_of(bytes.fromhex(known.study), [known.number, *map(_typed, others)])


def check_of(study: bytes, numbers: Iterable[str]) -> str:
    """The six digits that all sites with the same study and the same numbers see; the numbers come in any order.

    >>> check_of(b"study", ["417093", "582044"]) == check_of(b"study", ["582044", "417093"])
    True
    """
    told = sorted(numbers)
    wide = int.from_bytes(digest("compare", study, *(number.encode() for number in told)), "big")
    return f"{wide % 10**DIGITS:0{DIGITS}}"


def spaced(number: str) -> str:
    """The digits as people read them aloud.

    >>> spaced("417093")
    '417 093'
    """
    return f"{number[:3]} {number[3:]}"


def _typed(number: str) -> str:
    digits = number.replace(" ", "").replace("-", "")
    if not (digits.isascii() and digits.isdecimal() and len(digits) == DIGITS):
        raise TrustError(
            "CH614",
            f"a number has {len(digits)} characters, or some that are no digits; it must have {DIGITS} digits.",
            fix="Type the six digits of each other site, as they were read to you.",
        )
    return digits


def _known(home: Path) -> DrawnNumber | None:
    path = home / FILE
    return converted(read_json(path), DrawnNumber, path, "Delete it.") if path.exists() else None
