"""How sites find out by phone that they hold the same study: each reads six digits, and each two compare six more.

A site draws its number after it has read the study, so nobody can choose a study by it. The check of two sites is a
hash of the study and of their two numbers: two different studies give the same one by chance only, however long one has
searched. No third site has a part in it, or the last one to speak could choose its number so that checks agree.
"""

import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Self

import msgspec

from choral.core.errors import StorageError, TrustError
from choral.core.keys import digest, safety_number
from choral.deploy.enrolment import keep_json
from choral.record import converted, read_json
from choral.run.agreement import Agreement

FILE = "compare.json"
COMPARED = "compared.toml"  # the study whose number was drawn, as it was read here
DIGITS = 6


class DrawnNumber(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """compare.json: the study that a site has read, who takes part in it, and the number that the site drew for it.

    `typed` are the numbers of other sites, as far as the owner has typed them.
    """

    study: str  # the digest, in hex
    device: str
    others: tuple[str, ...]
    number: str
    typed: dict[str, str] = {}

    @property
    def study_number(self) -> str:
        """The 60 digits of the study, for comparing in writing: long enough without anything drawn."""
        return safety_number(bytes.fromhex(self.study))

    def with_typed(self, numbers: Iterable[str]) -> Self:
        """The same with the numbers of more sites, each as NAME=NUMBER; CH614 for what is no such thing."""
        typed = dict(self.typed)
        for one in numbers:
            name, _, number = one.rpartition("=")
            if name not in self.others:
                raise _no_number(f"{len(self.others)} other sites are in the study, and none of them was named")
            typed[name] = _digits(number)
        return msgspec.structs.replace(self, typed=typed)

    @property
    def forgotten(self) -> Self:
        """The same without what was typed."""
        return msgspec.structs.replace(self, typed={})

    @property
    def checks(self) -> dict[str, str]:
        """The check with each site whose number was typed, in the order of the study."""
        study, mine = bytes.fromhex(self.study), (self.device, self.number)
        return {name: check_of(study, mine, (name, self.typed[name])) for name in self.others if name in self.typed}

    @property
    def missing(self) -> list[str]:
        """The sites whose number was not typed."""
        return [name for name in self.others if name not in self.typed]


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


def require_compared(home: Path, study: Agreement) -> None:
    """Nothing, or CH614 for a study whose number this site has never shown: nobody can have compared it."""
    if (home / FILE).exists() and _read(home / FILE).study == study.digest.hex():
        return
    raise TrustError(
        "CH614",
        "the study is not the one whose number was shown here last, so nobody has compared it.",
        where=str(home / COMPARED),
        why="Without a comparison a coordinator could give each site a study with false keys.",
        fix="Look at it first, without --yes: choral device approve STUDY …; then compare, and then add --yes.",
    )


def keep_typed(home: Path, drawn: DrawnNumber) -> None:
    """Keep the numbers that the owner has typed: nobody types them twice."""
    keep_json(home / FILE, drawn)


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
