"""Plan, Budget, SecureSum: every public number that both sides fix before round 0, checked as it is made."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self

from choral.core.errors import ChoralError, PlanError
from choral.core.plan.checks import (
    MOST_WHOLE,
    hold_plain_numbers,
    plain_number,
    require_keywords,
    require_number,
    require_one_of,
    require_whole,
    whole_within,
)
from choral.core.plan.secure_sum import Adversary, SecureSum
from choral.core.plan.units import UNITS, Unit, UnitName, unit_of

if TYPE_CHECKING:
    from choral.core.mechanisms import Mechanism
else:  # a mechanism proves something of plans, and so imports them
    Mechanism = Any

__all__ = [
    "AGAINST",
    "CODECS",
    "COUNT_LENGTH",
    "LARGEST_LOG_CLIP",
    "LAWS",
    "LEAST_PROBES",
    "LEAST_SCALE",
    "MOST_PROBES",
    "MOST_ROUNDING",
    "MOST_WEIGHT",
    "MOST_WHOLE",
    "NOISE_IS_ADDED",
    "OF_BEFORE",
    "OF_GAUSSIANS",
    "OUT_OF_RANGE",
    "OVERFLOW",
    "PASSES",
    "RETIRED",
    "RETIRED_LAW",
    "SAMPLINGS",
    "SMOOTHING",
    "UNITS",
    "UPLOAD_ROOM",
    "WEIGHINGS",
    "Adversary",
    "Against",
    "AnyLaw",
    "Budget",
    "Law",
    "NoiseIsAdded",
    "Participation",
    "Passes",
    "Plan",
    "Sampling",
    "SecureSum",
    "SumKind",
    "Unit",
    "UnitName",
    "Weighing",
    "capacity",
    "hold_plain_numbers",
    "meant_by",
    "plain_number",
    "removed",
    "require_keywords",
    "require_law",
    "require_number",
    "require_one_of",
    "require_whole",
    "unit_of",
    "unproved",
    "usual_sampling",
    "whole_within",
    "widest",
]  # fmt: skip

Sampling = Literal["poisson", "partition"]
Passes = Literal["continue", "reshuffle"]
Law = Literal["gaussian", "discrete_gaussian"]
AnyLaw = Literal["gaussian", "discrete_gaussian", "skellam"]  # the last one in records and ledgers of choral 0.2
Participation = Literal["uniform", "balanced"]
SumKind = Literal["complete", "sparse"]
SAMPLINGS: tuple[Sampling, ...] = ("poisson", "partition")
PASSES: tuple[Passes, ...] = ("continue", "reshuffle")
LAWS: tuple[Law, ...] = ("gaussian", "discrete_gaussian")
NoiseIsAdded = Literal["every step", "once"]
NOISE_IS_ADDED: tuple[NoiseIsAdded, ...] = ("every step", "once")
Against = Literal["everyone", "server and colluders"]
AGAINST: tuple[Against, ...] = ("everyone", "server and colluders")  # whom the ε of a budget is proved against
Weighing = Literal["equally", "rows"]
WEIGHINGS: tuple[Weighing, ...] = ("equally", "rows")  # what a device's update counts for in the mean
MOST_WEIGHT = 16  # typical devices: of a device with more rows than so many of them have, the first ones are used
MOST_ROUNDING = 0.01  # of the noise on an upload: a device refuses a plan in which rounding would take more
COUNT_LENGTH = 0.2  # λ: in clips, how far apart "my update is within the clip" and "it is not" are sent
LARGEST_LOG_CLIP = 22.0  # of an adaptive clip, and of its inverse: 3.6e9, below 2^32
LEAST_PROBES, MOST_PROBES = 8, 256  # of a plan that has any
OVERFLOW = 1e-8  # β: what a run keeps of δ for batches that exceed their room or have a rounded coin, unless it says so
MOST_ROUNDED = 0.91  # of β: what the rounding of coins may take of it; the room of batches has the rest
OUT_OF_RANGE = 1e-8  # what a run keeps of δ for updates that leave the codec's range, unless it says so
UPLOAD_ROOM = 16  # an upload with noise once is clipped to so many times GT, which few devices ever reach
# The laws of whole noise, each with its least deviation in grid steps: the codec keeps to it, and rule S6 counts on it.
LEAST_SCALE: dict[AnyLaw, int] = {"discrete_gaussian": 8, "skellam": 512}
# Laws that count as Gaussian where they are wider by `SMOOTHING`.
OF_GAUSSIANS: tuple[AnyLaw, ...] = ("discrete_gaussian",)
SMOOTHING = 3  # t: the deviation of the random rounding that turns a Gaussian into whole numbers (rules S4, S6 to S8)
# Versions of the codec. In the first, of plans up to 0.2.0, the range counts γ rows in a batch, of which a Poisson draw
# has more; discrete Gaussian noise counts as zCDP except where it is added once, and a pull takes nothing off. In the
# second the range holds every draw, and discrete Gaussian noise is wider by `SMOOTHING` and counts as Gaussian.
CODECS = 2


# What a plan means that does not say it: releases before a number had a choice.
OF_BEFORE: dict[str, Any] = {"codec": 1}
# What plans of choral 0.2 may say that no device does any more: records of them are read, and keep their digest.
RETIRED: dict[str, str | float] = {"momentum": 0.0, "proximal": 0.0, "schedule": "constant"}
RETIRED_LAW: AnyLaw = "skellam"
LAST_TO_RUN_IT = "choral 0.2 is the last version that runs it."


def removed(name: str, value: object, where: str = "", kind: type[ChoralError] = PlanError) -> ChoralError:
    """The refusal of what choral 0.2 ran, and no later version.

    >>> print(removed("momentum", 0.9, "study.toml"))
    CH101 study.toml momentum = 0.9 was removed. Leave it out; choral 0.2 is the last version that runs it.
    """
    said = f'"{value}"' if isinstance(value, str) else f"{value!r}"
    return kind("CH101", f"{name} = {said} was removed.", where=where, fix=f"Leave it out; {LAST_TO_RUN_IT}")


def meant_by(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the values of a plan of any version say to this one: those that nobody runs any more are in `retired`.

    >>> meant_by({"rounds": 3, "codec": 2, "momentum": 0.9})
    {'codec': 2, 'rounds': 3, 'retired': (('momentum', 0.9),)}
    """
    given = {name: values[name] for name in RETIRED if values.get(name, RETIRED[name]) != RETIRED[name]}
    given |= {"law": RETIRED_LAW} if values.get("law") == RETIRED_LAW else {}
    kept = {name: value for name, value in values.items() if name not in RETIRED}
    return OF_BEFORE | kept | ({"retired": tuple(given.items())} if given else {})


def require_law(law: AnyLaw, *, local_steps: int, sampling: Sampling) -> None:
    """Nothing, or a PlanError where rule S6 does not reach: whole noise needs one local step and no sampling.

    >>> require_law("discrete_gaussian", local_steps=1, sampling="partition")
    """
    require_one_of("law", law, (*LAWS, RETIRED_LAW))
    if law in LEAST_SCALE and (local_steps != 1 or sampling != "partition"):
        raise unproved(law, local_steps, sampling)


def unproved(law: str, local_steps: int, sampling: str) -> PlanError:
    """The refusal of whole noise where rule S6 does not reach."""
    return PlanError(
        "CH204",
        f'law = "{law}" with local_steps = {local_steps} and sampling = "{sampling}".',
        why="Nothing is proved of whole-number noise in several local steps or in sampled batches.",
        fix='Use local_steps = 1 and sampling = "partition", or law = "gaussian".',
    )


def usual_sampling(law: AnyLaw) -> Sampling:
    """How batches are drawn where nobody says it: the way that costs least of those that rules are proved for.

    >>> usual_sampling("gaussian"), usual_sampling("discrete_gaussian")
    ('poisson', 'partition')
    """
    return "partition" if law in LEAST_SCALE else "poisson"


def poisson_tail(mean: float, least: int) -> float:
    """An upper bound on the chance that a Poisson batch of this mean has `least` records or more.

    It also bounds Binomial(m, mean/m) for every m, as `least` ≥ mean + 1 (Anderson & Samuels 1967).

    >>> poisson_tail(64.0, 120) < 1e-9
    True
    """
    if least < mean + 1:
        return 1.0
    log_term = -mean + least * math.log(mean) - math.lgamma(least + 1)
    return min(1.0, math.exp(log_term) / (1 - mean / (least + 1)))  # a geometric series above the first term


def capacity(batch: int, steps: int, chance: float) -> int:
    """Room for every one of `steps` Poisson batches except with this chance, for any number of records.

    >>> capacity(64, 200, 1e-8)
    128
    """
    room = batch + 1
    while steps * poisson_tail(batch, room + 1) > chance:
        room += 1
    return -(-room // 8) * 8


@lru_cache(maxsize=256)
def widest(batch: int, steps: int, overflow: float) -> int:
    """Room that no device passes, whatever rows it has: the companions of a record fill it less often than β leaves.

    >>> widest(244, 130, 1e-8)
    360
    """
    room, left = capacity(batch, steps, overflow), (1 - MOST_ROUNDED) * overflow
    while steps * poisson_tail(batch, room) > left:
        room += 8
    return room


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a device is willing to lose in all: (ε, δ) for the replacement of one record.

    >>> Budget(epsilon=2.0, delta=1e-5).epsilon
    2.0
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        hold_plain_numbers(self)
        require_number("epsilon", self.epsilon)
        require_number("delta", self.delta, below=1.0)


# The numbers of a plan in the flat form that files have, in their order, and what they are where they are not written.
_ALWAYS_WRITTEN = (
    "devices", "cohort", "rounds", "rows", "batch", "step_size", "clip", "noise", "local_steps", "sampling", "passes",
)  # fmt: skip
_USUAL: dict[str, str | int | float] = {
    "law": "gaussian", "unit": "record", "noise_is_added": "every step", "row_length": 0.0, "pull": 0.0, "parts": 1,
    "rows_per_person": 0, "clip_quantile": 0.0, "weighing": "equally", "probes": 0, "opened_turns": 0, **RETIRED,
    "overflow": OVERFLOW, "out_of_range": OUT_OF_RANGE, "codec": OF_BEFORE["codec"],
}  # fmt: skip
_IN_FILES = (*_ALWAYS_WRITTEN, *_USUAL)
_NEEDED = _ALWAYS_WRITTEN[:8]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run of Algorithm 1, described: who takes part, how often, and how each device trains.

    `rows` is m, the records of the smallest device that takes part; docs/notation.md has the paper's symbols. `law` is
    that of the noise: Gaussian in every local step, or whole numbers on the grid of the sum (the strict mode, rule S6).
    `unit` is what may differ between two neighbouring tables: a record, or all rows of a person, of which at most
    `rows_per_person` are used; `rows` and `batch` then count persons. Where it is a whole device, `clip` bounds its
    update and `noise` is that of the update (rule S4); with a `clip_quantile` these are the clip and the noise of the
    first round, and both follow that quantile of the lengths of the updates. With `noise_is_added` "once" (rule S7)
    every step is over all rows of a device, or over those that one Poisson draw per round gives, divided by `batch`;
    `noise` is that of the upload, and rows are at most `row_length` long. `pull` is κ, by which local steps are drawn
    back to the model that was sent (0: not at all); `parts` are fixed shares of a device's rows, of which each step
    uses one. Where devices are weighed by their "rows", `rows` and `batch` are those of a typical device, which counts
    once: every device draws at the same rate γ/m and adds the same noise γσ to the sum over its batch. `probes` are the
    random projections of a device's upload that it answers in a round, and `opened_turns` the turns of a run of
    which it shows its whole noisy upload: both are functions of what the figure against everyone is proved for, and
    neither leaves anything of the figure with the secure sum. `overflow` and `out_of_range` are the shares of δ that a
    run keeps for batches that exceed their room, or have a rounded coin, and for updates that leave the range of the
    codec, whose version is `codec`. `retired` is what a record of choral 0.2 says that nobody runs any more.

    >>> plan = Plan(devices=16, cohort=10, rounds=20, rows=2440, batch=244, local_steps=10,
    ...             step_size=0.5, clip=1.0, noise=0.02)
    >>> plan.batches_per_pass
    10
    """

    devices: int
    cohort: int
    rounds: int
    rows: int
    batch: int
    step_size: float
    clip: float
    noise: float
    local_steps: int = 1
    sampling: Sampling = "poisson"
    passes: Passes = "continue"
    law: AnyLaw = "gaussian"
    unit: UnitName = "record"
    rows_per_person: int = 0
    mechanism: Mechanism = None  # type: ignore[assignment]  # never None once it is made
    noise_is_added: InitVar[NoiseIsAdded | None] = None
    row_length: InitVar[float | None] = None
    pull: InitVar[float | None] = None
    parts: InitVar[int | None] = None
    clip_quantile: InitVar[float | None] = None
    weighing: InitVar[Weighing | None] = None
    probes: int = 0
    opened_turns: int = 0
    overflow: float = OVERFLOW
    out_of_range: float = OUT_OF_RANGE
    codec: int = CODECS
    retired: tuple[tuple[str, str | float], ...] = ()

    def __post_init__(
        self,
        noise_is_added: NoiseIsAdded | None,
        row_length: float | None,
        pull: float | None,
        parts: int | None,
        clip_quantile: float | None,
        weighing: Weighing | None,
    ) -> None:
        hold_plain_numbers(self)
        require_whole("devices", self.devices)
        require_whole("cohort", self.cohort, most=self.devices)
        require_whole("rounds", self.rounds)
        require_whole("rows", self.rows)
        require_whole("batch", self.batch, most=self.rows)
        require_whole("local_steps", self.local_steps)
        require_number("step_size", self.step_size)
        require_number("clip", self.clip)
        require_number("noise", self.noise, closed=True)
        require_one_of("sampling", self.sampling, SAMPLINGS)
        require_one_of("passes", self.passes, PASSES)
        require_one_of("law", self.law, (*LAWS, RETIRED_LAW))
        require_one_of("unit", self.unit, tuple(UNITS))
        require_number("overflow", self.overflow, below=1.0)
        require_number("out_of_range", self.out_of_range, below=1.0)
        require_whole("codec", self.codec, most=CODECS)
        if self.protects.groups_rows or self.rows_per_person:
            self._require_rows_per_person()
        given: dict[str, Any] = {"row_length": row_length, "pull": pull, "parts": parts, "clip_quantile": clip_quantile}
        given |= {"weighing": weighing, "noise_is_added": noise_is_added}
        self._take_mechanism({name: plain_number(value) for name, value in given.items() if value is not None})
        self._require_probes()
        self._require_retired()

    def _require_retired(self) -> None:
        """Nothing that no version ran is in a record, and what nobody runs any more is in nothing else."""
        for name, value in self.retired:
            if name not in (*RETIRED, "law") or not isinstance(value, str | int | float):
                raise PlanError("CH101", f'unknown key "{name}" in a plan.', fix="Leave it out.")
        if self.law == RETIRED_LAW and ("law", RETIRED_LAW) not in self.retired:
            raise removed("law", RETIRED_LAW)

    def require_present(self, where: str) -> None:
        """Nothing, or CH101 for a plan of before with a number that no device follows any more."""
        for name, value in self.retired:
            raise removed(name, value, where)

    def _require_probes(self) -> None:
        """Probes show something of each upload, so each must carry noise; turns are opened only where they are."""
        if self.probes == 0:
            require_whole("opened_turns", self.opened_turns, least=0, most=0)
            return
        require_whole("probes", self.probes, least=LEAST_PROBES, most=MOST_PROBES)
        require_whole("opened_turns", self.opened_turns, least=0, most=2**16)
        if self.noise == 0:
            raise PlanError(
                "CH204",
                f"{self.probes} probes of updates without noise.",
                why="Without noise the secure sum is all that protects an update, and answers would bypass it.",
                fix="Use robust = false, or set epsilon in [privacy].",
            )

    def _require_rows_per_person(self) -> None:
        """How many rows are used of a unit with several, which only such a unit has."""
        if self.protects.groups_rows:
            require_whole("rows_per_person", self.rows_per_person, most=2**16)
            return
        raise PlanError(
            "CH204",
            f'rows_per_person = {self.rows_per_person!r} with unit = "{self.unit}".',
            fix='Leave it out, or use unit = "person".',
        )

    def _take_mechanism(self, given: Mapping[str, Any]) -> None:
        """The mechanism that the numbers ask for, with its own numbers: given now, or by the one that there was."""
        from choral.core.mechanisms import mechanism_for  # which proves something of plans, and imports them

        before = {} if self.mechanism is None else self.mechanism.own
        object.__setattr__(self, "mechanism", mechanism_for(self, {**before, **given}))
        self.mechanism.check(self)

    @property
    def weighed(self) -> bool:
        """Whether a device counts by its rows: all draw at one rate, and a larger one has larger batches."""
        return self.mechanism.weighed

    @property
    def most_weight(self) -> int:
        """What a device counts for at most, in typical devices."""
        return MOST_WEIGHT if self.weighed else 1

    def used_rows(self, rows: int) -> int:
        """The number of a device's rows that it uses: all, or as many as the most weight has.

        >>> plan = Plan(devices=5, cohort=5, rounds=9, rows=100, batch=10, step_size=1.0, clip=1.0, noise=0.1,
        ...             weighing="rows")
        >>> plan.used_rows(250), plan.used_rows(2000)
        (250, 1600)
        """
        return min(rows, self.most_weight * self.rows) if self.weighed else rows

    def batch_of(self, rows: int) -> int:
        """The batch of a device with so many rows: γ, or as many times γ as it has rows more than a typical device.

        >>> plan = Plan(devices=5, cohort=5, rounds=9, rows=100, batch=10, step_size=1.0, clip=1.0, noise=0.1,
        ...             weighing="rows")
        >>> plan.batch_of(250), plan.batch_of(7)
        (25, 1)
        """
        if not self.weighed:
            return self.batch
        used = self.used_rows(rows)
        return used // self.batches_per_pass if self.partitioned else -(-self.batch * used // self.rows)

    @property
    def widest_batch(self) -> int:
        """The most records that a batch of any device may hold, however many rows it has.

        >>> plan = Plan(devices=16, cohort=10, rounds=13, rows=2440, batch=244, local_steps=10, step_size=1.0, clip=1.0,
        ...             noise=0.1)
        >>> plan.widest_batch
        360
        """
        most_rows = self.most_weight * self.rows
        batch = self.batch_of(most_rows)
        if self.partitioned:
            return batch
        room = widest(batch, self.rounds * self.local_steps, self.overflow)
        return min(room, most_rows) if self.weighed else room

    @property
    def least_rows(self) -> int:
        """The fewest rows of a device that takes part; where rows weigh, one for each batch of a pass."""
        if not self.weighed:
            return self.rows
        return self.batches_per_pass if self.partitioned else 1

    @property
    def protects(self) -> Unit:
        """The unit of privacy: what it is, and the words for it."""
        return unit_of(self.unit)

    @property
    def once(self) -> bool:
        """Whether a device trains without noise and adds noise once, to what it uploads (rule S7)."""
        return self.mechanism.noise_is_added == "once"

    @property
    def stretch(self) -> float:
        """How much further the local momentum of a record of choral 0.2 could carry a model: 1/(1 − momentum)."""
        return 1 / (1 - float(dict(self.retired).get("momentum", 0.0)))

    @property
    def local_time(self) -> float:
        """T, the sum of the step sizes of a round."""
        return self.local_steps * self.step_size

    @property
    def gaussian(self) -> bool:
        """Whether the noise is Gaussian, and not of whole numbers."""
        return self.law not in LEAST_SCALE

    @property
    def partitioned(self) -> bool:
        """Whether the batches of a pass are a partition of the rows, and not sampled."""
        return self.sampling == "partition"

    @property
    def passes_continue(self) -> bool:
        """Whether a pass over a partition goes on in the device's next round, in the same order."""
        return self.passes == "continue"

    @property
    def strict(self) -> bool:
        """Whether the noise is whole, and no float carries any of it."""
        return not self.gaussian and self.noise > 0

    @property
    def batches_per_pass(self) -> int:
        """E = ⌊m/γ⌋, the batches in one pass over the smallest device's records."""
        return self.rows // self.batch

    @property
    def flat(self) -> dict[str, str | int | float]:
        """Every number of the plan and of its mechanism, in the flat form and in the order that files have."""
        retired = dict(self.retired)
        held = {**_USUAL, **self.__dict__, **self.mechanism.own, **retired}
        return {name: held[name] for name in _IN_FILES if name not in RETIRED or name in retired}

    def to_dict(self) -> dict[str, str | int | float]:
        """The flat form without the numbers, among the later ones, that are as usual.

        So a plan from before there was a choice keeps its digest, and what was signed under it.
        """
        kept = set(_ALWAYS_WRITTEN)
        return {name: value for name, value in self.flat.items() if name in kept or value != _USUAL[name]}

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Self:
        """The plan that `to_dict` described, in this version or in an earlier one."""
        if unknown := sorted(set(values) - set(_IN_FILES)):
            raise PlanError(
                "CH101", f'unknown key "{unknown[0]}" in a plan.', fix=f"Known: {', '.join(sorted(_IN_FILES))}."
            )
        if missing := [name for name in _NEEDED if name not in values]:
            raise PlanError("CH103", f'a plan has no "{missing[0]}".', fix=f"Needed: {', '.join(_NEEDED)}.")
        return cls(**meant_by(values))

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, by which both sides know that they hold the same plan."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()
