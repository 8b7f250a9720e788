"""What a server has found out about the devices of a turn: who refused and why, who lied, who disagrees."""

from dataclasses import dataclass, field
from typing import TypedDict, cast

from choral.core.errors import TrustError
from choral.core.keys import Identity
from choral.core.messages import Ready, Refusal, Turn
from choral.core.terms import Terms

_SIZE = 8
# What such a code tells of is the device's own affair: its table, ledger, update, training or disk.
_OWN = ("CH3", "CH4", "CH5", "CH7", "CH8")


class FoundById(TypedDict, total=False):
    """What was found, as the fields of a round's line in a run's record."""

    refused: dict[str, str]
    refused_because_of: dict[str, str]
    broke_the_protocol: dict[str, str]
    contradict_each_other: tuple[tuple[str, str], ...]
    not_proved: dict[str, str]


def ready_fields(turn: Turn, nonce: bytes) -> tuple[str, *tuple[bytes, ...]]:
    """What a device signs as it says that it is ready: a label, the turn and its ν.

    Not the terms: a device that approved others must be able to say so, and masks are bound to them anyway.
    """
    return "ready", _turn(turn), nonce


def refusal_fields(turn: Turn, code: str, cause: int | None) -> tuple[str, *tuple[bytes, ...]]:
    """What a device signs as it refuses: a label, the turn, the code, and whose doing it was."""
    return "refusal", _turn(turn), code.encode(), b"" if cause is None else _number(cause)


def signed_refusal(identity: Identity, number: int, turn: Turn, code: str, *, blamed: int | None = None) -> Refusal:
    """A device's signed no, which says whose doing it was: its own, that of the blamed peer, or the server's."""
    cause = number if code.startswith(_OWN) else blamed
    signature = identity.sign(*refusal_fields(turn, code, cause))
    return Refusal(turn=turn, device=number, code=code, cause=cause, signature=signature)


def _turn(turn: Turn) -> bytes:
    return _number(turn.round) + _number(turn.attempt)


def _number(value: int) -> bytes:
    return value.to_bytes(_SIZE, "little")


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
        """Whether the device of this number signed its message; if not, that is noted, and nothing else."""
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
