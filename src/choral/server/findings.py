"""The findings of a server about the devices of a turn: who refused and why, who lied, who disagrees."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict, cast

import numpy as np

from choral.core.codec import CHECKS
from choral.core.errors import TrustError
from choral.core.keys import digest
from choral.core.masks import Mask, Words, ring
from choral.core.messages import Ready, Refusal
from choral.core.signed import ready_fields, refusal_fields
from choral.core.terms import Bond, Terms


class FoundById(TypedDict, total=False):
    """All that was found, as the fields of a round's line in a run's record."""

    refused: dict[str, str]
    refused_because_of: dict[str, str]
    broke_the_protocol: dict[str, str]
    contradict_each_other: tuple[tuple[str, str], ...]
    not_proved: dict[str, str]


@dataclass(kw_only=True)
class Findings:
    """Notes about devices, by number; what a device says about another is reported as its claim and never acted upon.

    `refusals` are codes: what a device said, or what the server found wrong with its message. `named` are devices that
    contradicted what they had sent themselves, with what they did: proof, whoever else lies. `quarrels` are pairs
    of which one end lies. `unproved` are messages under a device's name that its identity key did not sign.
    """

    terms: Terms
    refusals: dict[int, str] = field(default_factory=dict)
    causes: dict[int, int | None] = field(default_factory=dict)
    named: dict[int, str] = field(default_factory=dict)
    quarrels: set[tuple[int, int]] = field(default_factory=set)
    unproved: dict[int, str] = field(default_factory=dict)

    def fault(self, sender: int, code: str) -> None:
        """Note that a device's message was of no use."""
        self.refusals[sender], self.causes[sender] = code, sender

    def name(self, number: int, what: str) -> None:
        """Note that a device broke the protocol, by the first thing that it did."""
        self.named.setdefault(number, what)

    def proves(self, sender: int, message: Ready | Refusal) -> bool:
        """Tell whether the device of this number signed its message; if not, that is noted, and nothing else."""
        if isinstance(message, Ready):
            fields, what = ready_fields(message.turn, message.nonce), "READY"
        else:
            fields, what = refusal_fields(message.turn, message.code, message.cause), message.code
        try:
            self.terms.whole.bundles[sender].check(message.signature, *fields)
        except TrustError:
            self.unproved[sender] = what
            return False
        return True

    def refuse(self, sender: int, message: Refusal) -> None:
        """Note a refusal that its device signed."""
        if self.proves(sender, message):
            self.refusals[sender], self.causes[sender] = message.code, message.cause

    def add(self, other: "Findings") -> None:
        """Take over what was found elsewhere in the turn."""
        for name in ("refusals", "causes", "named", "quarrels", "unproved"):
            mine = getattr(self, name)
            mine.update(getattr(other, name))

    def __str__(self) -> str:
        """All of it in brackets, by id; empty if there is nothing."""
        parts = []
        if self.refusals:
            parts.append("refused: " + ", ".join(map(self._refusal, sorted(self.refusals))))
        if self.named:
            parts.append(
                "broke the protocol: " + ", ".join(f"{self._id(n)} {w}" for n, w in sorted(self.named.items()))
            )
        if self.quarrels:
            pairs = (f"{self._id(one)} and {self._id(other)}" for one, other in sorted(self.quarrels))
            parts.append("contradict each other: " + ", ".join(pairs))
        if self.unproved:
            claims = (f"{what} in the name of {self._id(number)}" for number, what in sorted(self.unproved.items()))
            parts.append("not proved: " + ", ".join(claims))
        return f" ({'; '.join(parts)})" if parts else ""

    def as_dict(self) -> FoundById:
        """The same for machines, by id, as far as there is anything to say."""
        found = FoundById(
            refused={self._id(number): code for number, code in sorted(self.refusals.items())},
            refused_because_of={self._id(number): self._cause(number) for number in sorted(self.refusals)},
            broke_the_protocol={self._id(number): what for number, what in sorted(self.named.items())},
            contradict_each_other=tuple((self._id(one), self._id(other)) for one, other in sorted(self.quarrels)),
            not_proved={self._id(number): what for number, what in sorted(self.unproved.items())},
        )
        return cast("FoundById", {key: value for key, value in found.items() if value})

    def _cause(self, number: int) -> str:
        cause = self.causes.get(number)
        return "the server" if cause is None else self._id(cause)

    def _id(self, number: int) -> str:
        ids = self.terms.ids
        return ids[number] if 0 <= number < len(ids) else f"device {number}"

    def _refusal(self, number: int) -> str:
        cause = self.causes.get(number)
        because = "itself" if cause == number else self._cause(number) + (", it says" if cause is not None else "")
        return f"{self._id(number)} {self.refusals[number]} because of {because}"


def edge_mask(key: bytes, one: int, other: int) -> Mask:
    """The mask that device `one` has added for device `other`, by the key that it reveals."""
    return Mask(key, one < other)


def lanes_hold(terms: Terms, words: Words, checks: Iterable[bytes]) -> bool:
    """Tell whether an upload's check lanes say 1 and 0 once all is taken away that its masks have added to them."""
    added = np.frombuffer(b"".join(checks), words.dtype).reshape(-1, CHECKS).sum(axis=0, dtype=words.dtype)
    return bool((words[terms.parameters :] - added).tolist() == [1, 0])


def quarrels(terms: Terms, bonds: Mapping[int, Mapping[int, Bond]]) -> set[tuple[int, int]]:
    """The pairs of which one end lies: their keys differ, or their masks do not cancel in the check lanes.

    Nobody else can say which end it is.
    """
    return {
        (one, other)
        for one, mine in bonds.items()
        for other, bond in _seen_from_the_other_end(terms, _with_later_ones(one, mine, bonds)).items()
        if bond != bonds[other][one][1:]
    }


def _with_later_ones(one: int, mine: Mapping[int, Bond], present: Container[int]) -> dict[int, Bond]:
    """A device's bonds with those present that come after it, so that each pair is looked at from one end only."""
    return {other: bond for other, bond in mine.items() if one < other and other in present}


def _seen_from_the_other_end(terms: Terms, bonds: Mapping[int, Bond]) -> dict[int, tuple[bytes, ...]]:
    """Give what each neighbour must have committed to, except for its envelope, if it agrees with these bonds."""
    added = np.frombuffer(b"".join(bond.checks for bond in bonds.values()), ring(terms.codec.word_bits))
    size, checks = terms.check_bytes, np.negative(added).tobytes()
    return {
        number: (bond.edge, bond.takes, bond.gives, checks[place * size : (place + 1) * size])
        for place, (number, bond) in enumerate(bonds.items())
    }


def left_out(pairs: Iterable[tuple[int, int]], context: bytes) -> set[int]:
    """Whom to leave out so that no quarrel is left: who has the most of them first, equals by lot.

    The lot hangs on every device's ν of the turn, so that nobody can always have another one left out in its place.

    >>> left_out([(0, 3), (1, 3), (2, 3)], b"ctx")
    {3}
    """
    open_, chosen = set(pairs), set[int]()
    while open_:
        quarrelling = Counter(number for pair in open_ for number in pair)
        worst = max(
            quarrelling, key=lambda number: (quarrelling[number], digest("lot", context, number.to_bytes(8, "little")))
        )
        chosen.add(worst)
        open_ = {pair for pair in open_ if worst not in pair}
    return chosen
