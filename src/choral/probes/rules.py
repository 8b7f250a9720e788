"""The rules by which a round leaves devices out for their answers, and the evidence that gathers over rounds.

Everything here is a function of public numbers, so that whoever has the answers can compute it again. An honest update
holds independent noise whose size the plan proves: so honest lengths are known, and two honest updates are nearly
orthogonal. docs/secure-sum.md has the rules and what they are worth.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Rule = Literal["length", "direction", "two as one", "own past", "watched past"]
RULES: tuple[Rule, ...] = ("length", "direction", "two as one")  # the order in which devices are left out
LEAST_COHORT = 9  # from so many devices per round on, statistics may exclude somebody without a person
VARIANCE = 21845  # of one number of a probe: odd, drawn uniformly from −255 to 255
SHOUT = 3.0  # how many median lengths are too long, beyond what noise explains
ASIDE = 3.5  # deviations from the median along the common direction
ALIKE = 5.0  # deviations of a cosine of independent vectors
LIMITS: dict[Rule, float] = {
    "length": 6.0, "direction": 7.0, "two as one": 7.0, "own past": 7.0, "watched past": 12.0,
}  # fmt: skip
LEAST_ROUNDS = 3  # that a device has answered before it can be named
MOST_PER_ROUND = 8.0  # deviations that one round counts: one round names nobody
REMEMBERED = 0.8  # of the common direction, from round to round
_MAD = 1.4826  # a normal deviation for each median absolute deviation
# For m probes, so many times its mean an honest length may be in squares: above in 6e-5 of all rounds (χ² with m
# degrees of freedom, the next lower m that stands here).
_WIDEST = {8: 4.8, 16: 3.2, 32: 2.35, 64: 1.9, 128: 1.6}
MOST_WATCHED_PARAMETERS = 2**20
MOST_REMEMBERED = 2**20  # numbers of all devices' pasts together


def widest(probes: int) -> float:
    """q: how many times its mean a squared length may seem to be, seen through so many probes.

    >>> widest(32), widest(40)
    (2.35, 2.35)
    """
    return next(q for m, q in sorted(_WIDEST.items(), reverse=True) if m <= probes)


@dataclass(frozen=True, kw_only=True, eq=False)
class Seen:
    """A server's view of the devices of one turn: `asked` is P·x for each, `along` is ⟨v, x⟩/‖v‖ where v is watched.

    `noise` is the proved deviation of one number of an update, in grid steps. `pasts` are the devices whose own past
    is watched, each with how far everybody's update goes along it.
    """

    devices: tuple[str, ...]
    asked: NDArray[np.float64]
    along: NDArray[np.float64] | None
    noise: float
    parameters: int
    pasts: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def probes(self) -> int:
        """Tell how many probes were answered."""
        return int(self.asked.shape[1])

    @property
    def squares(self) -> NDArray[np.float64]:
        """e: each squared length, in units of the noise of one number: about d for noise alone."""
        return np.einsum("ij,ij->i", self.asked, self.asked) / (self.probes * VARIANCE * self.noise**2)  # type: ignore[no-any-return]

    @property
    def likeness(self) -> NDArray[np.float64]:
        """For each pair, by how much it is more alike than the plan's noise allows, in deviations."""
        apart = self.asked - np.median(self.asked, axis=0)
        # Whoever answers the median itself has the length 0 there, and is like nobody.
        unit = apart / np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), 1e-300)
        cosine = unit @ unit.T
        signal = np.sqrt(np.maximum(0.0, 1 - 0.8 * self.parameters / np.maximum(self.squares, 1e-12)))
        alike = (cosine - np.outer(signal, signal)) * math.sqrt(self.probes)
        np.fill_diagonal(alike, -np.inf)
        return alike  # type: ignore[no-any-return]


def seen_in(
    answers: Mapping[str, Iterable[int]],
    *,
    probes: int,
    watched: Sequence[tuple[str, float]],
    noise: float,
    parameters: int,
) -> Seen:
    """The answers of a turn, as the rules look at them.

    `watched` are the vectors behind the probes, in their order: the common direction, which has no name, and then the
    pasts of devices, each with its length.

    >>> seen = seen_in({"b": [3, 4], "a": [1, 2]}, probes=1, watched=[("", 2.0)], noise=1.0, parameters=5)
    >>> seen.along.tolist()
    [1.0, 2.0]
    """
    devices = tuple(sorted(answers))
    table = np.array([[float(number) for number in answers[device]] for device in devices])
    lengths = {name: table[:, probes + at] / length for at, (name, length) in enumerate(watched)}
    along = lengths.pop("", None)
    return Seen(
        devices=devices, asked=table[:, :probes], along=along, noise=noise, parameters=parameters, pasts=lengths
    )


def _spread(values: NDArray[np.float64]) -> tuple[float, float]:
    """The median, and a deviation that a minority can't move."""
    middle = float(np.median(values))
    return middle, _MAD * float(np.median(np.abs(values - middle)))


def _broken(seen: Seen) -> dict[Rule, dict[int, float]]:
    """By rule, each device that breaks it, with how far it is beyond the limit: 1 is the limit itself."""
    squares = seen.squares
    middle = float(np.median(squares))
    by_noise = min(middle, float(seen.parameters))
    limit = widest(seen.probes) * by_noise + SHOUT**2 * (middle - by_noise)
    found: dict[Rule, dict[int, float]] = {rule: {} for rule in RULES}
    found["length"] = {at: float(e / limit) for at, e in enumerate(squares) if e > limit}
    if seen.along is not None:
        centre, spread = _spread(seen.along)
        aside = np.abs(seen.along - centre) / (ASIDE * max(spread, seen.noise))
        found["direction"] = {at: float(value) for at, value in enumerate(aside) if value > 1}
    alike = seen.likeness.max(axis=1) / ALIKE
    found["two as one"] = {at: float(value) for at, value in enumerate(alike) if value > 1}
    return found


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Whom a round leaves out, each by the rule that said so; `spared` broke one too, but too few would be left."""

    refused: dict[str, Rule]
    spared: tuple[str, ...] = ()


def judge(seen: Seen, *, most: int) -> Judgement:
    """Whom this turn leaves out, at most so many: by length first, then by direction, then two that move as one.

    >>> rng = np.random.default_rng(0)
    >>> updates = rng.normal(size=(10, 100)) * np.array([*[1.0] * 9, 30.0])[:, None]
    >>> asked = updates @ (2 * rng.integers(0, 256, (100, 32)) - 255)
    >>> seen = Seen(devices=tuple("abcdefghij"), asked=asked, along=None, noise=1.0, parameters=100)
    >>> judge(seen, most=2).refused
    {'j': 'length'}
    """
    refused: dict[str, Rule] = {}
    spared: list[str] = []
    for rule, found in _broken(seen).items():
        for at in sorted(found, key=lambda at: (-found[at], at)):
            device = seen.devices[at]
            if device in refused or device in spared:
                continue
            if len(refused) < most:
                refused[device] = rule
            else:
                spared.append(device)
    return Judgement(refused=refused, spared=tuple(sorted(spared)))


@dataclass
class _Tally:
    """Deviations of one device by one rule, round after round."""

    total: float = 0.0
    rounds: int = 0
    above: bool = False  # in its last round, with rounds enough
    named: bool = False
    first: int = 0  # the round in which it was named

    @property
    def value(self) -> float:
        return self.total / math.sqrt(self.rounds) if self.rounds else 0.0

    def add(self, deviations: float, limit: float, round_number: int) -> None:
        self.total += min(max(deviations, -MOST_PER_ROUND), MOST_PER_ROUND)
        self.rounds += 1
        above = self.rounds >= LEAST_ROUNDS and self.value > limit
        if above and self.above and not self.named:
            self.named, self.first = True, round_number
        self.above = above


@dataclass(frozen=True, kw_only=True)
class Suspicion:
    """All that speaks against a device by one rule: `value` beyond `limit` in two rounds running names it."""

    device: str
    rule: Rule
    value: float
    limit: float
    rounds: int
    named_in: int | None  # the round, or None while it is only suspected


@dataclass
class Evidence:
    """Deviations over rounds; each round is taken once, in order, so the same answers give the same names."""

    _tallies: dict[tuple[str, Rule], _Tally] = field(default_factory=dict)
    _pairs: dict[tuple[str, str], _Tally] = field(default_factory=dict)
    _pasts: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    def take(self, seen: Seen, *, round_number: int, drawn: NDArray[np.float64] | None = None) -> None:
        """Count one turn that has ended in a sum, those that it left out included.

        `drawn` is P; without it nobody is compared with its own past.
        """
        lengths = np.sqrt(seen.squares)
        middle, spread = _spread(lengths)
        known = middle / math.sqrt(2 * seen.probes)
        beyond = (lengths - SHOUT * middle) / max(math.hypot(known, spread), 1e-12)
        self._count(seen.devices, "length", beyond, round_number)
        if seen.along is not None:
            centre, spread = _spread(seen.along)
            against = (centre - seen.along) / math.hypot(seen.noise, spread)
            self._count(seen.devices, "direction", against, round_number)
        alike = seen.likeness
        for one, device in enumerate(seen.devices):
            for other in range(one + 1, len(seen.devices)):
                pair = self._pairs.setdefault((device, seen.devices[other]), _Tally())
                pair.add(float(alike[one, other]), LIMITS["two as one"], round_number)
        for device, far in seen.pasts.items():
            if device in seen.devices:
                centre, spread = _spread(far)
                beyond = (far[seen.devices.index(device)] - centre) / math.hypot(seen.noise, spread)
                self._count([device], "watched past", np.array([beyond]), round_number)
        if drawn is not None:
            self._compare_with_pasts(seen, drawn, round_number)

    def _compare_with_pasts(self, seen: Seen, drawn: NDArray[np.float64], round_number: int) -> None:
        """Count how far each update goes on the way of the same device's earlier ones, then remember it.

        Pᵀs is what the probes show of an update, less what all have in common. Noise is new in every round, so along
        its past w an honest update is normal, with the deviation noise·‖PᵀPw‖ whatever w is.
        """
        apart = seen.asked - np.median(seen.asked, axis=0)
        known = [at for at, device in enumerate(seen.devices) if device in self._pasts]
        if known:
            shown = np.array([self._pasts[seen.devices[at]] for at in known]) @ drawn.T
            along = np.einsum("ij,ij->i", shown, apart[known])
            along /= np.maximum(seen.noise * np.linalg.norm(shown @ drawn, axis=1), 1e-300)
            centre, spread = _spread(along)
            compared = [seen.devices[at] for at in known]
            self._count(compared, "own past", (along - centre) / math.hypot(1.0, spread), round_number)
        for device, seen_of_it in zip(seen.devices, apart @ drawn, strict=True):
            self._pasts[device] = self._pasts.get(device, 0.0) + seen_of_it

    def past_of(self, device: str) -> NDArray[np.float64] | None:
        """Give what probes have shown of a device's earlier updates, added up; None before its first."""
        return self._pasts.get(device)

    def to_watch(self, most: int) -> list[tuple[str, NDArray[np.int8]]]:
        """The devices that follow their own past most, as far as probes show, with that past in signed bytes.

        To see an update along it exactly shows √(d/m) times as much as random probes do. Who is named is known.
        """
        named = self.named
        pasts = {name: past for name, past in self._pasts.items() if name not in named and past.any()}
        tallies = {name: self._tallies.get((name, "own past"), _Tally()).value for name in pasts}
        first = sorted(pasts, key=lambda name: (-tallies[name], name))[:most]
        return [(name, np.rint(pasts[name] / np.abs(pasts[name]).max() * 127).astype(np.int8)) for name in first]

    def _count(self, devices: Iterable[str], rule: Rule, deviations: NDArray[np.float64], round_number: int) -> None:
        for device, value in zip(devices, deviations, strict=True):
            self._tallies.setdefault((device, rule), _Tally()).add(float(value), LIMITS[rule], round_number)

    @property
    def suspicions(self) -> list[Suspicion]:
        """All that stands at half of a limit or more, the named ones first."""
        found = [self._suspicion(device, rule, tally) for (device, rule), tally in self._tallies.items()]
        found += [
            self._suspicion(device, "two as one", tally) for pair, tally in self._pairs.items() for device in pair
        ]
        worst: dict[tuple[str, Rule], Suspicion] = {}
        for one in found:
            known = worst.get((one.device, one.rule))
            if known is None or _weight(one) > _weight(known):
                worst[one.device, one.rule] = one
        shown = [one for one in worst.values() if one.named_in or (one.value > one.limit / 2 and one.rounds > 1)]
        return sorted(shown, key=lambda one: (one.named_in is None, one.device, one.rule))

    def _suspicion(self, device: str, rule: Rule, tally: _Tally) -> Suspicion:
        return Suspicion(
            device=device,
            rule=rule,
            value=round(tally.value, 3),
            limit=LIMITS[rule],
            rounds=tally.rounds,
            named_in=tally.first if tally.named else None,
        )

    @property
    def named(self) -> dict[str, int]:
        """Everybody who was named, with the round in which it happened first."""
        tallies = [(device, tally) for (device, _), tally in self._tallies.items() if tally.named]
        tallies += [(device, tally) for pair, tally in self._pairs.items() if tally.named for device in pair]
        found: dict[str, int] = {}
        for device, tally in tallies:
            found[device] = min(tally.first, found.get(device, tally.first))
        return dict(sorted(found.items()))


def _weight(one: Suspicion) -> tuple[bool, float]:
    return one.named_in is not None, one.value


@dataclass(frozen=True, kw_only=True, eq=False)
class Direction:
    """The common direction of past steps, in signed bytes: what the server watches next."""

    bytes_: NDArray[np.int8]
    scale: float

    @property
    def norm(self) -> float:
        """‖v‖ of the bytes."""
        return float(np.linalg.norm(self.bytes_.astype(np.float64)))

    def moved(self, total: NDArray[np.signedinteger], count: int) -> "Direction":
        """The direction after one more sum of so many updates; of the old one 0.8 is kept.

        >>> nothing = Direction(bytes_=np.zeros(2, np.int8), scale=0.0)
        >>> nothing.moved(np.array([4, -2]), 2).bytes_.tolist()
        [127, -64]
        """
        old = self.scale * self.bytes_.astype(np.float64)
        new = REMEMBERED * old + (1 - REMEMBERED) * (np.asarray(total, np.float64) / count)
        largest = float(np.abs(new).max(initial=0.0))
        if largest == 0:
            return Direction(bytes_=np.zeros(len(new), np.int8), scale=0.0)
        return Direction(bytes_=np.rint(new / largest * 127).astype(np.int8), scale=largest / 127)
