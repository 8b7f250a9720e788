"""What a ledger takes down: an upload that is paid for, and all that a study may make; and what they cost a device."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from choral.core import events
from choral.core.errors import PlanError
from choral.core.events import Event
from choral.core.exposure import ADJACENCY, EVERYONE, Exposure, adjacency_of, exposure_of
from choral.core.mechanisms import charging, sum_uncounted
from choral.core.plan import Plan, SecureSum, require_whole

_MOST_UPLOADS = 10**7
_PLAIN_FIELDS = ("rule", "plan", "adversary", "adjacency")
_PLAIN = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What charges and reservations share: the rule that proves their events, and for which plan."""

    rule: str
    plan: str
    adversary: str = EVERYONE
    adjacency: str = ADJACENCY

    def __post_init__(self) -> None:
        for name in _PLAIN_FIELDS:
            value = getattr(self, name)
            if not (isinstance(value, str) and _PLAIN.fullmatch(value)):
                kind = type(self).__name__.lower()
                what = f"a {kind}'s {name} is no short line of text."
                raise PlanError("CH200", what, fix="Give 1 to 200 characters.")

    def _plain(self) -> dict[str, object]:
        """The shared fields; what neighbours differ in only where that is not one record, as in older ledgers."""
        usual = self.adjacency == ADJACENCY
        return {name: getattr(self, name) for name in (_PLAIN_FIELDS[:3] if usual else _PLAIN_FIELDS)}


def _written(event: Event, summed: Event | None) -> dict[str, object]:
    """The events of one upload for JSON."""
    both = {"event": event} if summed is None else {"event": event, "summed": summed}
    return {name: events.to_dict(one) for name, one in both.items()}


def _read(values: Mapping[str, Any]) -> tuple[Event, Event | None]:
    """The events of one upload, from `_written`."""
    summed = events.from_dict(dict(values["summed"])) if "summed" in values else None
    return events.from_dict(dict(values["event"])), summed


@dataclass(frozen=True, kw_only=True)
class Charge(Entry):
    """One upload and what it can lose at most: the event that `rule` proves for this round of this plan.

    `summed` is the event that is proved against a server that sees only sums, where that is less.

    >>> Charge(rule="S1", plan="9f3c", round=3, event=events.Gaussian(mu=0.2)).attempt
    0
    """

    round: int
    event: Event
    attempt: int = 0
    summed: Event | None = None

    def __post_init__(self) -> None:
        require_whole("round", self.round, least=0)
        require_whole("attempt", self.attempt, least=0)
        super().__post_init__()

    def to_dict(self) -> dict[str, object]:
        """The charge as plain values for JSON."""
        return {**self._plain(), "round": self.round, "attempt": self.attempt, **_written(self.event, self.summed)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The charge that `to_dict` described; other keys are left alone."""
        plain = {name: values[name] for name in (*_PLAIN_FIELDS, "round", "attempt") if name in values}
        event, summed = _read(values)
        return cls(**plain, event=event, summed=summed)

    def uploads_against(self, adversary: str) -> tuple[Event, ...]:
        """The upload as this adversary sees it."""
        return (self.event if adversary == EVERYONE else self.summed or self.event,)


@dataclass(frozen=True, kw_only=True)
class Reservation(Entry):
    """All uploads that a study may make, each with its event; the order in which they are charged does not matter.

    `summed` are the events that are proved against a server that sees only sums, one for each upload, or none.

    >>> Reservation(rule="S1", plan="9f3c", uploads=(events.Gaussian(mu=0.2),) * 13).to_dict()["uploads"]
    [{'times': 13, 'event': {'kind': 'gaussian', 'mu': 0.2, 'delta': 0.0}}]
    """

    uploads: tuple[Event, ...]
    summed: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("uploads", len(self.uploads), most=_MOST_UPLOADS)
        if len(self.summed) not in (0, len(self.uploads)):
            raise PlanError(
                "CH200",
                f"{len(self.uploads)} uploads and {len(self.summed)} events with the secure sum.",
                fix="Give one for each upload, or none.",
            )

    def to_dict(self) -> dict[str, object]:
        """The reservation as plain values for JSON."""
        pairs = Counter(zip(self.uploads, self.summed or (None,) * len(self.uploads), strict=True))
        return {**self._plain(), "uploads": [{"times": n, **_written(*pair)} for pair, n in pairs.items()]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The reservation that `to_dict` described; other keys are left alone."""
        uploads: list[Event] = []
        summed: list[Event] = []
        for group in values["uploads"]:
            times = require_whole("times", group["times"], most=_MOST_UPLOADS)
            event, of_sum = _read(group)
            uploads += [event] * times
            summed += [] if of_sum is None else [of_sum] * times
        plain = {name: values[name] for name in _PLAIN_FIELDS if name in values}
        return cls(**plain, uploads=tuple(uploads), summed=tuple(summed))

    def first(self, count: int) -> Self:
        """The first so many of the uploads."""
        return replace(self, uploads=self.uploads[:count], summed=self.summed[:count])

    def only(self, numbers: Iterable[int]) -> Self:
        """These uploads alone, counted from 0."""
        numbers = tuple(numbers)
        uploads, summed = tuple(self.uploads[n] for n in numbers), tuple(self.summed[n] for n in numbers if self.summed)
        return replace(self, uploads=uploads, summed=summed)

    def uploads_against(self, adversary: str) -> tuple[Event, ...]:
        """The uploads as this adversary sees them."""
        return self.uploads if adversary == EVERYONE else self.summed or self.uploads


@dataclass(frozen=True, kw_only=True, eq=False)
class UploadCosts:
    """What each upload of a run costs one device, from public numbers alone: so that anybody can compute it again.

    >>> plan = Plan(devices=2, cohort=2, rounds=3, rows=8, batch=4, step_size=0.5, clip=1.0, noise=1.0)
    >>> UploadCosts(plan=plan, secure=SecureSum.for_cohort(2), rows=9).charge(0, run="9f3c", round_number=1).rule
    'S5'
    """

    plan: Plan
    secure: SecureSum
    rows: int  # the device's own

    def exposure(self, rounds: int) -> Exposure:
        """What the device's records are exposed to in so many rounds."""
        return exposure_of(self.plan, self.secure, rows=self.rows, rounds=rounds)

    @cached_property
    def one_round(self) -> Exposure:
        """What they are exposed to in one round."""
        return self.exposure(1)

    @cached_property
    def _events(self) -> dict[int, Event]:
        """What `event` has said, by the rounds before: all are asked for again after each round."""
        return {}

    def event(self, rounds_before: int) -> Event:
        """What one more round costs after so many; rare failures of batch room and range included."""
        if rounds_before not in self._events:
            self._events[rounds_before] = self._event(rounds_before, 1, self.charged_delta(1))
        return self._events[rounds_before]

    def sum_event(self, rounds_before: int) -> Event | None:
        """The same against a server that sees only sums; None where nothing less is proved of it."""
        if sum_uncounted(self.one_round):
            return None
        return self._event(rounds_before, self.one_round.honest_noises, self.charged_delta(1) + self.secure.failure)

    def _event(self, rounds_before: int, noises: int, delta: float) -> Event:
        event = charging(self.one_round).event(self.one_round, range(rounds_before, rounds_before + 1), noises)
        return replace(event, delta=event.delta + delta)

    def charged_delta(self, rounds: int) -> float:
        """The share of δ that so many rounds take for rare failures of batch room and range, whoever looks on.

        With the secure sum a sparse graph takes its own share in addition.
        """
        return rounds * (self.plan.overflow + self.plan.out_of_range) / self.plan.rounds

    def charge(self, rounds_before: int, *, run: str, round_number: int, attempt: int = 0) -> Charge:
        """What the device is charged for one upload of a run, after so many in the same run."""
        return Charge(
            rule=charging(self.one_round).rule,
            plan=run,
            round=round_number,
            attempt=attempt,
            event=self.event(rounds_before),
            summed=self.sum_event(rounds_before),
            adjacency=adjacency_of(self.plan),
        )

    def reservation(self, uploads: range, *, run: str) -> Reservation:
        """What the device reserves for these uploads of a run, counted from 0: fixed before the first."""
        return Reservation(
            rule=charging(self.one_round).rule,
            plan=run,
            uploads=tuple(map(self.event, uploads)),
            summed=tuple(event for before in uploads if (event := self.sum_event(before)) is not None),
            adjacency=adjacency_of(self.plan),
        )
