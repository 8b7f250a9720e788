"""What a ledger takes down: an upload that is paid for, and all the uploads that a study may make."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from choral.core import events
from choral.core.errors import PlanError
from choral.core.events import Event
from choral.core.plan import require_whole
from choral.core.rules import ADJACENCY, EVERYONE

SUMS = "a server that sees only sums"
_MOST_UPLOADS = 10**7
_PLAIN_FIELDS = ("rule", "plan", "adversary", "adjacency")
_PLAIN = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One upload and what it can lose at most: the event that `rule` proves for this round of this plan.

    `summed` is the event that is proved against a server that sees only sums, where that is less.

    >>> Charge(rule="S1", plan="9f3c", round=3, event=events.Gaussian(mu=0.2)).attempt
    0
    """

    rule: str
    plan: str
    round: int
    event: Event
    attempt: int = 0
    adversary: str = EVERYONE
    summed: Event | None = None
    adjacency: str = ADJACENCY

    def __post_init__(self) -> None:
        require_whole("round", self.round, least=0)
        require_whole("attempt", self.attempt, least=0)
        _require_plain(self)

    def to_dict(self) -> dict[str, object]:
        """The charge as plain values for JSON."""
        plain = {name: getattr(self, name) for name in ("rule", "plan", "round", "attempt", "adversary")}
        both = {"event": self.event} if self.summed is None else {"event": self.event, "summed": self.summed}
        return plain | {name: events.to_dict(event) for name, event in both.items()} | _unusual(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The charge that `to_dict` described; other keys are left alone."""
        plain = {name: values[name] for name in (*_PLAIN_FIELDS, "round", "attempt") if name in values}
        summed = events.from_dict(dict(values["summed"])) if "summed" in values else None
        return cls(**plain, event=events.from_dict(dict(values["event"])), summed=summed)

    @property
    def of_sums(self) -> Self:
        """The same charge as a server counts it that sees only sums."""
        return replace(self, event=self.summed or self.event, adversary=SUMS, summed=None)


def _unusual(entry: "Charge | Reservation") -> dict[str, object]:
    """What neighbours differ in, where that is not one record: so older ledgers stay as they are."""
    return {} if entry.adjacency == ADJACENCY else {"adjacency": entry.adjacency}


def _require_plain(entry: "Charge | Reservation") -> None:
    for name in _PLAIN_FIELDS:
        value = getattr(entry, name)
        if not (isinstance(value, str) and _PLAIN.fullmatch(value)):
            kind = type(entry).__name__.lower()
            raise PlanError("CH200", f"a {kind}'s {name} is no short line of text.", fix="Give 1 to 200 characters.")


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """All uploads that a study may make, each with its event; the order in which they are charged does not matter.

    `summed` are the events that are proved against a server that sees only sums, one for each upload, or none.

    >>> Reservation(rule="S1", plan="9f3c", uploads=(events.Gaussian(mu=0.2),) * 13).to_dict()["uploads"]
    [{'times': 13, 'event': {'kind': 'gaussian', 'mu': 0.2, 'delta': 0.0}}]
    """

    rule: str
    plan: str
    uploads: tuple[Event, ...]
    adversary: str = EVERYONE
    summed: tuple[Event, ...] = ()
    adjacency: str = ADJACENCY

    def __post_init__(self) -> None:
        _require_plain(self)
        require_whole("uploads", len(self.uploads), most=_MOST_UPLOADS)
        if len(self.summed) not in (0, len(self.uploads)):
            raise PlanError(
                "CH200",
                f"{len(self.uploads)} uploads and {len(self.summed)} events with the secure sum.",
                fix="Give one for each upload, or none.",
            )

    def to_dict(self) -> dict[str, object]:
        """The reservation as plain values for JSON."""
        pairs = Counter(zip(self.uploads, self.summed or self.uploads, strict=True))
        grouped = [
            {"times": n, "event": events.to_dict(event), **({"summed": events.to_dict(summed)} if self.summed else {})}
            for (event, summed), n in pairs.items()
        ]
        plain = {"rule": self.rule, "plan": self.plan, "adversary": self.adversary}
        return {**plain, **_unusual(self), "uploads": grouped}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The reservation that `to_dict` described; other keys are left alone."""
        uploads: list[Event] = []
        summed: list[Event] = []
        for group in values["uploads"]:
            times = require_whole("times", group["times"], most=_MOST_UPLOADS)
            uploads += [events.from_dict(dict(group["event"]))] * times
            if "summed" in group:
                summed += [events.from_dict(dict(group["summed"]))] * times
        plain = {name: values[name] for name in _PLAIN_FIELDS if name in values}
        return cls(**plain, uploads=tuple(uploads), summed=tuple(summed))

    def first(self, count: int) -> Self:
        """The first so many of the uploads."""
        return self.only(range(min(count, len(self.uploads))))

    def only(self, numbers: Iterable[int]) -> Self:
        """These uploads alone, counted from 0."""
        numbers = tuple(numbers)
        uploads, summed = tuple(self.uploads[n] for n in numbers), tuple(self.summed[n] for n in numbers if self.summed)
        return replace(self, uploads=uploads, summed=summed)

    @property
    def of_sums(self) -> Self:
        """The same reservation as a server counts it that sees only sums."""
        return replace(self, uploads=self.summed or self.uploads, adversary=SUMS, summed=())
