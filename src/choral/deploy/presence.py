"""Which sites a server sees: who is connected now, who has been, and since when, for state.json and for people."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypedDict

from choral.core.errors import CODES


class Presence(TypedDict):
    """Who was connected when the server last looked, and when it last saw each of the others."""

    connected: list[str]
    last_seen: dict[str, str]


class ServerState(TypedDict, total=False):
    """state.json: what a server is doing at the moment, for whoever watches it."""

    state: str
    at: str
    gone: dict[str, str]  # sites that have refused permanently, and their codes
    code: str
    reason: str
    not_proved: dict[str, str]
    round: int
    attempt: int
    cohort: list[str]
    connected: list[str]
    last_seen: dict[str, str]
    why: dict[str, str]  # the code by which a site has last refused or not answered, until it takes part again
    until: str  # when a server that waits for its sites gives up for now
    without_until: str  # when it goes on without those that are missing, if `needed` of them are there
    needed: int


class Sightings:
    """What a server has seen of its sites since it was started."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._connected: list[str] = []
        self._last: dict[str, str] = {}

    def look(self, present: Iterable[int], *, at: str) -> bool:
        """Note who is there; whether anybody has come or gone since the last look.

        >>> seen = Sightings(("hill", "lake"))
        >>> seen.look([1], at="10:00"), seen.look([1], at="10:01"), seen.look([], at="10:02")
        (True, False, True)
        >>> seen.now
        {'connected': [], 'last_seen': {'lake': '10:01'}}
        """
        before, self._connected = self._connected, [self._names[number] for number in sorted(present)]
        self._last |= dict.fromkeys(self._connected, at)
        return before != self._connected

    @property
    def now(self) -> Presence:
        """What was seen last."""
        return Presence(connected=list(self._connected), last_seen=dict(self._last))


def standing(
    name: str, presence: Presence, refused: Mapping[str, str], excluded: Iterable[str], why: Mapping[str, str]
) -> str:
    """Whether a site is connected, and if not why, as far as a server can know.

    >>> seen = Presence(connected=["hill"], last_seen={"hill": "10:05", "lake": "10:00"})
    >>> standing("hill", seen, {}, (), {}), standing("lake", seen, {}, (), {"lake": "CH905"})
    ('connected', "missing since 10:00: CH905 a site's clock and its server's differ too much")
    >>> standing("moor", seen, {}, (), {})
    'missing: has not connected since the server was started'
    >>> standing("lake", seen, {"lake": "CH401"}, (), {})
    'refused permanently: CH401 a device has spent its budget'
    """
    if name in refused:
        return f"refused permanently: {reason(refused[name])}"
    if name in excluded:
        return "excluded by the coordinator"
    because = f": {reason(why[name])}" if name in why else ""
    if name in presence["connected"]:
        return "connected" + because.replace(": ", "; it last refused by ", 1)
    if name in presence["last_seen"]:
        return f"missing since {presence['last_seen'][name]}{because}"
    return "missing: has not connected since the server was started" + because


def reason(code: str) -> str:
    """A code in words; one of a newer choral has none here.

    >>> reason("CH801")
    "CH801 a file or folder can't be written"
    """
    return f"{code} {CODES[code]}" if code in CODES else code


def seconds_from_now(seconds: float) -> str:
    """The moment so many seconds from now, to be shown; nothing is decided by it.

    >>> countdown(seconds_from_now(5400.0))
    '90 min'
    """
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def countdown(until: str, *, now: datetime | None = None) -> str:
    """How long is left until a moment, in the unit that people would use.

    >>> noon = datetime(2026, 11, 18, 12, tzinfo=UTC)
    >>> countdown("2026-11-18T12:41:10+00:00", now=noon), countdown("2026-11-18T11:59:00+00:00", now=noon)
    ('41 min', '0 s')
    >>> countdown("2029-02-20T12:00:00+00:00", now=noon)
    '825 days'
    """
    left = max(0.0, (datetime.fromisoformat(until) - (now or datetime.now(UTC))).total_seconds())
    if left >= 3 * 86400:
        return f"{left / 86400:.0f} days"
    return f"{left / 3600:.1f} h" if left >= 2 * 3600 else f"{left / 60:.0f} min" if left >= 120 else f"{left:.0f} s"
