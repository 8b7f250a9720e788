"""Plan, Budget, SecureSum: every public number that both sides fix before round 0, checked as it is made."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

from choral.errors import PlanError

Sampling = Literal["poisson", "partition"]
Passes = Literal["continue", "reshuffle"]
Adversary = Literal["curious", "lying"]
SAMPLINGS: tuple[Sampling, ...] = ("poisson", "partition")
PASSES: tuple[Passes, ...] = ("continue", "reshuffle")


def require_whole(name: str, value: object, *, least: int = 1, most: int | None = None) -> int:
    """The value as an int, or a PlanError that names it and its range.

    >>> require_whole("rounds", 20)
    20
    """
    upper = "" if most is None else f" and at most {most:,}"
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        raise PlanError("CH200", f"{name} = {value!r}.", fix=f"Must be a whole number, at least {least:,}{upper}.")
    return value


def require_number(
    name: str, value: object, *, above: float = 0.0, below: float = math.inf, closed: bool = False
) -> float:
    """The value as a finite float in (above, below), or [above, below) when closed, or a PlanError.

    >>> require_number("delta", 1e-5, below=1.0)
    1e-05
    """
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not (math.isfinite(number) and (above < number or (closed and above == number)) and number < below):
        low = f"at least {above:g}" if closed else f"above {above:g}"
        high = "" if math.isinf(below) else f" and below {below:g}"
        raise PlanError("CH200", f"{name} = {value!r}.", fix=f"Must be a finite number {low}{high}.")
    return float(number)


def require_one_of(name: str, value: object, choices: tuple[str, ...]) -> str:
    """The value if it is one of the choices, or a PlanError that lists them.

    >>> require_one_of("sampling", "poisson", SAMPLINGS)
    'poisson'
    """
    if value not in choices:
        known = " or ".join(f'"{choice}"' for choice in choices)
        raise PlanError("CH200", f"{name} = {value!r}.", fix=f"Must be {known}.")
    return str(value)


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

    `smallest_sum` is u_min, `threshold` is s, `colluders` is c of docs/secure-sum.md.

    >>> SecureSum(cohort=10, smallest_sum=8, threshold=7, colluders=2).honest_noises("lying")
    4
    """

    cohort: int
    smallest_sum: int
    threshold: int
    colluders: int = 0
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

    def honest_noises(self, adversary: Adversary) -> int:
        """r_eff: how many honest devices' noises are certainly in any sum that this adversary can open."""
        if adversary == "curious":
            return self.smallest_sum - self.colluders
        return self.threshold + self.smallest_sum - self.cohort - self.colluders + 1


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run of Algorithm 1, described: who takes part, how often, and how each device trains.

    `rows` is m, the records of the smallest device that takes part; docs/notation.md has the paper's symbols.

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
    passes: Passes = "reshuffle"

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

    @property
    def batches_per_pass(self) -> int:
        """E = ⌊m/γ⌋, the batches in one pass over the smallest device's records."""
        return self.rows // self.batch

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, in the order of its fields."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The plan that `to_dict` described."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise PlanError(
                "CH101", f'unknown key "{unknown[0]}" in a plan.', fix=f"Known: {', '.join(sorted(known))}."
            )
        return cls(**values)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, by which both sides know that they hold the same plan."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()
