"""The roots that a site was shown, as a file that its device signs, and how two sites find out that theirs differ.

Two sites that took part in one turn must have the same root of it. Where they have not, their two signed files show
everybody that the server had two cohorts for one turn.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

import msgspec

from choral.core.errors import TrustError
from choral.core.keys import Bundle, Identity, safety_number
from choral.core.messages import Turn
from choral.core.terms import Terms
from choral.core.vault import Memory
from choral.deploy.home import Home
from choral.record import STUDY, converted, read_json
from choral.run.agreement import Agreement
from choral.trees.merkle import require_enrolled, roster_tree

FILE = "roots.json"


class RootLog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """roots.json: what a device was shown under one set of terms, its card with the path to it, and its signature."""

    terms: str
    roster: str
    enrolled: int
    number: int
    path: str
    id: str
    identity: str
    agreement: str
    card_signature: str
    offers: tuple[str, ...]
    roots: tuple[tuple[int, int, str], ...]  # round, attempt, root
    signature: str = ""

    @classmethod
    def of(cls, terms: Terms, memory: Memory) -> Self:
        """The signed roots that a device keeps; CH601 if the terms' roster does not hold its keys."""
        identity = Identity(memory.id, memory.secret)
        number = terms.number_of(identity)
        card, tree = terms.whole.bundles[number], roster_tree(terms.whole)
        unsigned = cls(
            terms=terms.digest.hex(),
            roster=tree.root.hex(),
            enrolled=terms.enrolled,
            number=number,
            path=tree.path(number).hex(),
            id=card.id,
            identity=card.identity.hex(),
            agreement=card.agreement.hex(),
            card_signature=card.signature.hex(),
            offers=card.offers,
            roots=tuple((turn.round, turn.attempt, root.hex()) for turn, root in memory.roots),
        )
        signature = identity.sign("roots", unsigned.signed)
        return msgspec.structs.replace(unsigned, signature=signature.hex())

    @property
    def signed(self) -> bytes:
        """The bytes under the signature: all fields but the signature itself, as canonical JSON."""
        return msgspec.json.encode(msgspec.structs.replace(self, signature=""), order="deterministic")

    @property
    def safety_number(self) -> str:
        """The digits of the roster's root, for comparing by phone."""
        return safety_number(bytes.fromhex(self.roster))

    @property
    def by_turn(self) -> Mapping[Turn, str]:
        """The root of each turn."""
        return {Turn(number, attempt): root for number, attempt, root in self.roots}

    def check(self, own: "RootLog") -> None:
        """It raises a TrustError unless the file is signed by an enrolled device, by what this site knows."""
        if (self.roster, self.enrolled) != (own.roster, own.enrolled):
            raise TrustError(
                "CH601",
                f'"{self.id}" has another roster than this site.',
                why="A server that shows two rosters has two studies.",
                fix="Compare the safety numbers of the roots by phone, and take part in neither until you know why.",
            )
        if self.terms != own.terms:
            raise TrustError(
                "CH603",
                f'"{self.id}" took part under other terms than this site.',
                fix="Compare the study: choral device compare.",
            )
        try:
            card = Bundle(
                id=self.id,
                identity=bytes.fromhex(self.identity),
                agreement=bytes.fromhex(self.agreement),
                signature=bytes.fromhex(self.card_signature),
                offers=self.offers,
            )
            path, signature = bytes.fromhex(self.path), bytes.fromhex(self.signature)
        except ValueError:
            raise TrustError("CH600", "a file of roots has the wrong form.", fix="Get it again.") from None
        require_enrolled(bytes.fromhex(own.roster), own.enrolled, self.number, card, path)
        card.check(signature, "roots", self.signed)

    def differs_from(self, other: "RootLog") -> tuple[Turn, ...]:
        """The turns that both were shown, with different roots."""
        mine, theirs = self.by_turn, other.by_turn
        return tuple(sorted(t for t in mine.keys() & theirs.keys() if mine[t] != theirs[t]))


def root_log_of(home: Home, passphrase: str | None = None) -> RootLog:
    """The roots that a home keeps, none where its lists are whole; CH603 where no study is approved."""
    _ = home.approval
    study = Agreement.read(home.path / STUDY)
    return RootLog.of(study.terms, home.vault(passphrase).memory)


def read_root_log(path: Path) -> RootLog:
    """The file of another site, not checked yet."""
    return converted(read_json(path), RootLog, path, "Get it again, from the site itself.")
