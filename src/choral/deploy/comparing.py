"""How sites find out by phone that they hold the same study: each reads six digits, and each two compare six more.

A site draws its number after it has read the study, so nobody can choose a study by it. The check of two sites is a
hash of the study and of their two numbers: two different studies give the same one by chance only, however long one has
searched. No third site has a part in it, or the last one to speak could choose its number so that checks agree.
"""

import secrets
from collections.abc import Iterable
from pathlib import Path

import msgspec

from choral.deploy.enrolment import keep_json
from choral.errors import StorageError, TrustError
from choral.record import converted, read_json
from choral.run.agreement import Agreement
from choral.secagg.keys import digest, safety_number

FILE = "compare.json"
DIGITS = 6


class DrawnNumber(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """compare.json: the study that a site has read, who takes part in it, and the number that the site drew for it."""

    study: str  # the digest, in hex
    device: str
    others: tuple[str, ...]
    number: str

    @property
    def study_number(self) -> str:
        """The 60 digits of the study, for comparing in writing: long enough without anything drawn."""
        return safety_number(bytes.fromhex(self.study))

    def checks(self, numbers: Iterable[str]) -> dict[str, str]:
        """The check with each site whose number is given, as NAME=NUMBER; CH614 for what is no such thing."""
        found = {}
        for one in numbers:
            name, _, number = one.rpartition("=")
            if name not in self.others:
                raise _no_number(f"{len(self.others)} other sites are in the study, and none of them was named")
            mine, theirs = (self.device, self.number), (name, _digits(number))
            found[name] = check_of(bytes.fromhex(self.study), mine, theirs)
        return found


def drawn_for(home: Path, device: str, study: Agreement) -> DrawnNumber:
    """The number of this site for a study: drawn when the study is first read here, and kept while it is the same."""
    path, now = home / FILE, study.digest.hex()
    known = _read(path) if path.exists() else None
    if known is None or known.study != now:
        others = tuple(bundle.id for bundle in study.roster if bundle.id != device)
        number = f"{secrets.randbelow(10**DIGITS):0{DIGITS}}"
        known = DrawnNumber(study=now, device=device, others=others, number=number)
        keep_json(path, known)
    return known


def last_drawn(home: Path) -> DrawnNumber:
    """The number that was drawn last, or CH802 where no study was read yet."""
    if not (home / FILE).exists():
        fix = "choral device approve STUDY … shows one first."
        raise StorageError("CH802", "no study was read here yet.", where=str(home), fix=fix)
    return _read(home / FILE)


def check_of(study: bytes, one: tuple[str, str], other: tuple[str, str]) -> str:
    """The six digits that two sites with the same study see, each given by its name and its number.

    >>> check_of(b"study", ("a", "417093"), ("b", "582044")) == check_of(b"study", ("b", "582044"), ("a", "417093"))
    True
    """
    fields = [part.encode() for site in sorted((one, other)) for part in site]
    return f"{int.from_bytes(digest('compare', study, *fields), 'big') % 10**DIGITS:0{DIGITS}}"


def _digits(number: str) -> str:
    digits = number.replace(" ", "").replace("-", "")
    if not (digits.isascii() and digits.isdecimal() and len(digits) == DIGITS):
        raise _no_number(
            f"a number has {len(digits)} characters, or some that are no digits; it must have {DIGITS} digits"
        )
    return digits


def _no_number(what: str) -> TrustError:
    return TrustError("CH614", f"{what}.", fix="Type NAME=NUMBER for each other site, as it was read to you.")


def _read(path: Path) -> DrawnNumber:
    return converted(read_json(path), DrawnNumber, path, "Delete it.")
