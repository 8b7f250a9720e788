"""Plan, Budget, SecureSum: every public number that both sides fix before round 0, checked as it is made."""

import hashlib
import json
import math
import sys
from collections.abc import Collection, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Literal, Self

from choral.errors import PlanError

Sampling = Literal["poisson", "partition"]
Passes = Literal["continue", "reshuffle"]
Law = Literal["gaussian", "discrete_gaussian", "skellam"]
Unit = Literal["record"]
Adversary = Literal["curious", "lying"]
Participation = Literal["uniform", "balanced"]
SumKind = Literal["complete", "sparse", "paper"]
SAMPLINGS: tuple[Sampling, ...] = ("poisson", "partition")
PASSES: tuple[Passes, ...] = ("continue", "reshuffle")
LAWS: tuple[Law, ...] = ("gaussian", "discrete_gaussian", "skellam")
UNITS: tuple[Unit, ...] = ("record",)
PARTICIPATIONS: tuple[Participation, ...] = ("uniform", "balanced")
SUM_KINDS: tuple[SumKind, ...] = ("complete", "sparse", "paper")
MOST_WHOLE = 2**63 - 1  # what arrays, files and messages hold
# The laws of whole noise, each with its least deviation in grid steps: the codec keeps to it, and rule S6 counts on it.
NoiseIsAdded = Literal["every step", "once"]
NOISE_IS_ADDED: tuple[NoiseIsAdded, ...] = ("every step", "once")
UPLOAD_ROOM = 16  # an upload with noise once is clipped to so many times ηGτ, which few devices ever reach
LEAST_SCALE: dict[Law, int] = {"discrete_gaussian": 8, "skellam": 512}


def whole_within(least: int, most: int) -> str:
    """What a whole number must be, in words.

    >>> whole_within(1, 2440), whole_within(0, MOST_WHOLE)
    ('a whole number, at least 1 and at most 2,440', 'a whole number, at least 0 and below 2^63')
    """
    return f"a whole number, at least {least:,} and {'below 2^63' if most == MOST_WHOLE else f'at most {most:,}'}"


def require_whole(name: str, value: object, *, least: int = 1, most: int = MOST_WHOLE) -> int:
    """The value as an int, or a PlanError that names it and its range.

    >>> require_whole("rounds", 20)
    20
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise PlanError("CH200", f"{name} = {_written(value)}.", fix=f"Must be {whole_within(least, most)}.")
    return value


def require_number(
    name: str, value: object, *, above: float = 0.0, below: float = math.inf, closed: bool = False
) -> float:
    """The value as a finite float in (above, below), or [above, below) when closed, or a PlanError.

    >>> require_number("delta", 1e-5, below=1.0)
    1e-05
    """
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    # No NaN, no infinity, and no whole number that no float holds.
    if not (abs(number) <= sys.float_info.max and (above < number or (closed and above == number)) and number < below):
        low = f"at least {above:g}" if closed else f"above {above:g}"
        high = "" if math.isinf(below) else f" and below {below:g}"
        raise PlanError("CH200", f"{name} = {_written(value)}.", fix=f"Must be a finite number {low}{high}.")
    return float(number)


def _written(value: object) -> str:
    """The value as a line can hold it: Python does not write whole numbers of thousands of digits out."""
    if isinstance(value, int) and abs(value) > MOST_WHOLE:
        return f"{'-' if value < 0 else ''}10^{math.floor(math.log10(abs(value)))} or more"
    return repr(value)


def require_one_of(name: str, value: object, choices: tuple[str, ...]) -> str:
    """The value if it is one of the choices, or a PlanError that lists them.

    >>> require_one_of("sampling", "poisson", SAMPLINGS)
    'poisson'
    """
    if value not in choices:
        known = " or ".join(f'"{choice}"' for choice in choices)
        raise PlanError("CH200", f"{name} = {value!r}.", fix=f"Must be {known}.")
    return str(value)


def require_keywords(given: Collection[str], known: type) -> None:
    """Nothing, or a TypeError for a keyword that a TypedDict needs or does not know, as Python has for a signature."""
    needed: frozenset[str] = known.__required_keys__  # type: ignore[attr-defined]
    if missing := sorted(needed.difference(given)):
        raise TypeError(f"missing keyword argument: {missing[0]!r}")
    if unknown := sorted(set(given) - set(known.__annotations__)):
        raise TypeError(f"unexpected keyword argument: {unknown[0]!r}")


def require_law(law: Law, *, local_steps: int, sampling: Sampling) -> None:
    """Nothing, or a PlanError where rule S6 does not reach: whole noise needs one local step and no sampling.

    >>> require_law("skellam", local_steps=1, sampling="partition")
    """
    require_one_of("law", law, LAWS)
    if law in LEAST_SCALE and (local_steps != 1 or sampling != "partition"):
        raise PlanError(
            "CH204",
            f'law = "{law}" with local_steps = {local_steps} and sampling = "{sampling}".',
            why="Nothing is proved of whole-number noise in several local steps or in sampled batches.",
            fix='Use local_steps = 1 and sampling = "partition", or law = "gaussian".',
        )


def require_company(cohort: int, devices: int, *, where: str = "") -> None:
    """Nothing, or a PlanError for a round of one device where anything is to be protected.

    >>> require_company(2, 16)
    """
    if cohort < 2:
        raise PlanError(
            "CH204",
            f"a cohort of 1 of {devices} devices: its sum would be that device's own update.",
            where=where,
            fix="Use at least 2 devices a round.",
        )


def usual_sampling(law: Law) -> Sampling:
    """How batches are drawn where nobody says it: the way that costs least of those that rules are proved for.

    >>> usual_sampling("gaussian"), usual_sampling("skellam")
    ('poisson', 'partition')
    """
    return "partition" if law in LEAST_SCALE else "poisson"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a device is willing to lose in all: (ε, δ) for the replacement of one record.

    >>> Budget(epsilon=2.0, delta=1e-5).epsilon
    2.0
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        require_number("epsilon", self.epsilon)
        require_number("delta", self.delta, below=1.0)


@dataclass(frozen=True, kw_only=True)
class SecureSum:
    """How a round's sum is protected: who may drop out, who may collude, and when it may be opened.

    `smallest_sum` is u_min, `threshold` is s, `colluders` is c of docs/secure-sum.md. `adversary` is the server
    that the numbers must withstand: a lying one also needs s + u_min ≥ r + c + 1, and a complete graph.

    >>> SecureSum(cohort=10, smallest_sum=8, threshold=7, colluders=2).honest_noises("lying")
    4
    """

    cohort: int
    smallest_sum: int
    threshold: int
    colluders: int = 0
    adversary: Adversary = "lying"
    modulus_bits: Literal[16, 32, 64] = 32
    lanes: Literal[1, 3] = 1
    masks: Literal["single", "directed"] = "single"
    graph: Literal["complete", "harary"] = "complete"
    neighbours: int | None = None
    mode: Literal["choral", "paper"] = "choral"

    def __post_init__(self) -> None:
        require_whole("cohort", self.cohort, least=2)
        require_whole("smallest_sum", self.smallest_sum, least=2, most=self.cohort)
        require_whole("colluders", self.colluders, least=0, most=self.cohort - 1)
        require_whole("threshold", self.threshold, least=1, most=self.cohort)
        require_one_of("adversary", self.adversary, ("curious", "lying"))
        require_one_of("masks", self.masks, ("single", "directed"))
        require_one_of("graph", self.graph, ("complete", "harary"))
        require_one_of("mode", self.mode, ("choral", "paper"))
        self._require_room()
        self._require_graph()
        self._require_safe()

    @classmethod
    def for_cohort(cls, cohort: int, *, colluders: int | None = None, **other: Any) -> Self:  # noqa: ANN401 - other fields
        """The default for a cohort: a quarter may drop out and a fifth collude, with a lying server.

        From four devices on, one colluder at least is counted; with more of them fewer devices may drop out.

        >>> SecureSum.for_cohort(100)
        SecureSum(cohort=100, smallest_sum=75, threshold=74, colluders=20, adversary='lying', ...)
        """
        require_whole("cohort", cohort, least=2)
        usual = max(cohort // 5, int(cohort >= 4))
        counted = usual if colluders is None else require_whole("colluders", colluders, least=0, most=cohort - 1)
        # A quarter may drop out, as far as the safe bound allows: 2·u_min − 1 ≥ r + c + 1 at s = u_min − 1.
        smallest = min(cohort, max(-(-3 * cohort // 4), -(-(cohort + counted + 2) // 2)))
        return cls(cohort=cohort, smallest_sum=smallest, threshold=smallest - 1, colluders=counted, **other)

    @classmethod
    def of_paper(cls, cohort: int, **other: Any) -> Self:  # noqa: ANN401 - as above
        """Fig. 1's protocol as printed: directed seeds, no self masks; nobody may drop out and nobody colludes.

        >>> SecureSum.of_paper(10).threshold
        9
        """
        require_whole("cohort", cohort, least=2)
        return cls(cohort=cohort, smallest_sum=cohort, threshold=cohort - 1, masks="directed", mode="paper", **other)

    @property
    def value_bits(self) -> int:
        """q: the bits that one device's value may have, so that no sum of a cohort wraps: b ≥ q + ⌈log2 r⌉ + 1."""
        lane_bits = 21 if self.lanes == 3 else self.modulus_bits
        return lane_bits - (self.cohort - 1).bit_length() - 1

    def honest_noises(self, adversary: Adversary) -> int:
        """r_eff: how many honest devices' noises are certainly in any sum that this adversary can open."""
        if adversary == "curious":
            return self.smallest_sum - self.colluders
        if self.adversary != "lying":
            raise PlanError(
                "CH205",
                "this secure sum claims nothing against a lying server.",
                fix='Use a complete graph and adversary = "lying".',
            )
        return self.threshold + self.smallest_sum - self.cohort - self.colluders + 1

    def _require_room(self) -> None:
        if (self.modulus_bits, self.lanes) not in ((16, 1), (32, 1), (64, 1), (64, 3)):
            raise PlanError(
                "CH204",
                f"modulus_bits = {self.modulus_bits!r} with lanes = {self.lanes!r}.",
                fix="Use 16, 32 or 64 bits with 1 lane, or 64 bits with 3 lanes.",
            )
        if self.value_bits < 3:
            raise PlanError(
                "CH204",
                f"a sum of {self.cohort:,} devices leaves {self.value_bits} bits for a value.",
                fix="Use a larger modulus, one lane, or a smaller cohort.",
            )

    def _require_graph(self) -> None:
        sparse = self.graph == "harary"
        if sparse != (self.neighbours is not None):
            raise PlanError(
                "CH204", f"graph = {self.graph!r} with neighbours = {self.neighbours!r}.",
                fix='Give neighbours with graph = "harary", and only there.',
            )  # fmt: skip
        if self.neighbours is not None and (
            require_whole("neighbours", self.neighbours, least=2, most=self.cohort - 1) % 2
        ):
            raise PlanError("CH200", f"neighbours = {self.neighbours}.", fix="Must be even.")
        if self.mode == "paper" and (sparse or self.smallest_sum < self.cohort or self.colluders):
            raise PlanError(
                "CH204",
                "the paper's protocol has no drop-outs, no colluders and a complete graph.",
                fix="Use SecureSum.of_paper(cohort).",
            )

    def _require_safe(self) -> None:
        """The bounds of docs/secure-sum.md; one below any of them, somebody's update can be opened alone."""
        if self.graph == "harary":
            if self.adversary == "lying":
                raise PlanError(
                    "CH205",
                    "a sparse graph is claimed against a curious server only: a lying one can choose it.",
                    fix='Use graph = "complete", or adversary = "curious".',
                )
            within = self.threshold <= (self.neighbours or 0)
        else:
            within = self.colluders < self.threshold <= self.smallest_sum - 1
        if not within:
            raise PlanError(
                "CH205",
                f"threshold = {self.threshold}, colluders = {self.colluders}, smallest_sum = {self.smallest_sum}.",
                fix="The threshold must be above colluders and below smallest_sum; at most neighbours, if sparse.",
            )
        least = self.cohort + self.colluders + 1
        if self.adversary == "lying" and self.threshold + self.smallest_sum < least:
            raise PlanError(
                "CH205",
                f"threshold + smallest_sum = {self.threshold + self.smallest_sum}, the safe bound is {least}.",
                why="Below it a lying server can open one device's update.",
                fix=f"Use SecureSum.for_cohort({self.cohort}), a larger threshold, or fewer colluders.",
            )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run of Algorithm 1, described: who takes part, how often, and how each device trains.

    `rows` is m, the records of the smallest device that takes part; docs/notation.md has the paper's symbols. `law` is
    that of the noise: Gaussian in every local step, or whole numbers on the grid of the sum (the strict mode, rule S6).
    `unit` is what may differ between two neighbouring tables. With `noise_is_added` "once" (rule S7) every step is over
    all rows of a device, divided by `batch`; `noise` is that of the upload, and rows are at most `row_length` long.

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
    law: Law = "gaussian"
    unit: Unit = "record"
    noise_is_added: NoiseIsAdded = "every step"
    row_length: float = 0.0

    def __post_init__(self) -> None:
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
        require_law(self.law, local_steps=self.local_steps, sampling=self.sampling)
        require_one_of("unit", self.unit, UNITS)
        require_one_of("noise_is_added", self.noise_is_added, NOISE_IS_ADDED)
        self._require_once()

    def _require_once(self) -> None:
        """The numbers of noise once belong together: a row length, a partition and Gaussian noise."""
        if not self.once:
            if self.row_length:
                raise PlanError(
                    "CH204",
                    f"row_length = {self.row_length!r} with noise in every step.",
                    fix='Leave it out, or use noise_is_added = "once".',
                )
            return
        require_number("row_length", self.row_length)
        if self.sampling != "partition" or self.law in LEAST_SCALE:
            raise PlanError(
                "CH204",
                f'noise_is_added = "once" with sampling = "{self.sampling}" and law = "{self.law}".',
                why="Noise once is Gaussian, and every step uses all rows of a device.",
                fix='Leave both out, or use noise_is_added = "every step".',
            )

    @property
    def once(self) -> bool:
        """Whether a device trains without noise and adds noise once, to what it uploads (rule S7)."""
        return self.noise_is_added == "once"

    @property
    def local_time(self) -> float:
        """T, the sum of the step sizes of a round."""
        return self.local_steps * self.step_size

    @property
    def upload_bound(self) -> float:
        """B, the longest upload where noise is added once."""
        return UPLOAD_ROOM * self.clip * self.local_time

    @property
    def strict(self) -> bool:
        """Whether the noise is whole, and no float carries any of it."""
        return self.law in LEAST_SCALE and self.noise > 0

    @property
    def continues(self) -> bool:
        """Whether a pass over the records goes on in a device's next round."""
        return self.sampling == "partition" and self.passes == "continue"

    @property
    def batches_per_pass(self) -> int:
        """E = ⌊m/γ⌋, the batches in one pass over the smallest device's records."""
        return self.rows // self.batch

    def to_dict(self) -> dict[str, str | int | float]:
        """The plan as plain values, in the order of its fields; the last ones only if they are not the usual ones.

        So a plan from before there was a choice keeps its digest, and what was signed under it.
        """
        usual = {("law", "gaussian"), ("unit", "record"), ("noise_is_added", "every step"), ("row_length", 0.0)}
        return {name: value for name, value in asdict(self).items() if (name, value) not in usual}

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Self:
        """The plan that `to_dict` described."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise PlanError(
                "CH101", f'unknown key "{unknown[0]}" in a plan.', fix=f"Known: {', '.join(sorted(known))}."
            )
        needed = [field.name for field in fields(cls) if field.default is MISSING]
        if missing := [name for name in needed if name not in values]:
            raise PlanError("CH103", f'a plan has no "{missing[0]}".', fix=f"Needed: {', '.join(needed)}.")
        return cls(**dict[str, Any](values))

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, by which both sides know that they hold the same plan."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()
