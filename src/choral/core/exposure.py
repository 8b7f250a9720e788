"""One device's part in a run as far as its records' privacy goes: every number that a rule may use, checked."""

from dataclasses import dataclass, fields
from typing import Any, Self, TypedDict, Unpack

from choral.core.errors import PlanError
from choral.core.plan import (
    RETIRED_LAW,
    AnyLaw,
    Passes,
    Plan,
    Sampling,
    SecureSum,
    UnitName,
    hold_plain_numbers,
    require_keywords,
    require_number,
    require_whole,
)


class _Optional(TypedDict, total=False):
    sampling: Sampling
    passes: Passes
    law: AnyLaw
    unit: UnitName
    rows_per_person: int
    clip_quantile: float
    secure_sum: bool
    colluders: int
    dropouts: int
    step_size: float | None
    smoothness: float | None
    convex: bool


class Conditions(_Optional):
    """The public numbers of one device's part in a run, all but its noise."""

    rounds: int
    local_steps: int
    cohort: int
    devices: int
    rows: int
    batch: int
    clip: float


class Crowd(TypedDict):
    """Who of a cohort adds no noise that counts."""

    colluders: int
    dropouts: int


class Exposed(Conditions):
    """Everything that `choral.account` is asked about."""

    noise: float


@dataclass(frozen=True, kw_only=True)
class Exposure(Plan):
    """A plan as it concerns one device: `rounds` is C, those in which this device takes part, `rows` are its own.

    >>> part = Exposure.of(rounds=13, local_steps=10, cohort=10, devices=16, rows=2440, batch=244, noise=0.02, clip=1.0,
    ...                    sampling="partition", colluders=2, dropouts=1)
    >>> part.batches_per_pass, part.most_uses, part.honest_noises
    (10, 13, 7)
    """

    secure_sum: bool = True
    colluders: int = 0
    dropouts: int = 0
    smoothness: float | None = None
    convex: bool = False

    @classmethod
    def of(cls, **numbers: Unpack[Exposed]) -> Self:
        """The exposure that these numbers describe; a step size counts only together with a smoothness."""
        require_keywords(numbers, Exposed)
        given: dict[str, Any] = dict(numbers)
        if given.get("smoothness") is not None:
            require_number("smoothness", given["smoothness"])
        if given.get("step_size") is None:
            given |= {"step_size": 1.0, "smoothness": None}
        if given.get("law") == RETIRED_LAW:  # of a run of before, whose account anybody may want
            given["retired"] = (("law", RETIRED_LAW),)
        return cls(**given)

    def __post_init__(self) -> None:
        hold_plain_numbers(self)
        require_number("noise", self.noise)
        super().__post_init__()
        if self.smoothness is not None:
            require_number("smoothness", self.smoothness)
        for name in ("secure_sum", "convex"):
            if not isinstance(getattr(self, name), bool):
                raise PlanError("CH200", f"{name} = {getattr(self, name)!r}.", fix="Must be true or false.")
        for name in ("colluders", "dropouts"):
            require_whole(name, getattr(self, name), least=0)
        if self.colluders + self.dropouts >= self.cohort:
            raise PlanError(
                "CH204",
                f"{self.colluders} colluders and {self.dropouts} drop-outs leave none of {self.cohort} in the cohort.",
                fix="Together they must be fewer than the cohort.",
            )

    @property
    def steps(self) -> int:
        """Cτ, the noisy steps in which this device's records may take part."""
        return self.rounds * self.local_steps

    @property
    def sampled(self) -> bool:
        """Whether Poisson sampling hides who is in a batch; a batch of all rows hides nothing, nor devices."""
        return not self.partitioned and self.batch < self.rows and not self.protects.clips_update

    def uses_after(self, rounds: int) -> int:
        """How often the most-used record of a partition enters a noisy step in a device's first rounds.

        That is ⌈Cτ/E⌉ where passes continue from round to round, and C⌈τ/E⌉ where each round starts with a fresh pass.
        """
        if self.passes_continue:
            return -(-rounds * self.local_steps // self.batches_per_pass)
        return rounds * -(-self.local_steps // self.batches_per_pass)

    @property
    def most_uses(self) -> int:
        """N, how often the most-used record of a partition enters a noisy step."""
        return self.uses_after(self.rounds)

    @property
    def honest_noises(self) -> int:
        """r_eff, the honest noises that are certainly in what an adversary sees, the device's own included."""
        return self.cohort - self.dropouts - self.colluders if self.secure_sum and not self.probes else 1

    @property
    def noise_multiplier(self) -> float:
        """z = σγ/G, the noise of a step in units of what one record adds to it; σ_uγ/(GT) where it is added once.

        A pull takes off T what it takes off the movement of a model.

        Where the unit is a device it is σ_u/S.
        """
        if self.protects.clips_update:
            return self.noise / self.clip
        return self.noise / self.clip * self.batch / (self.counted_time if self.once else 1)

    @property
    def lipschitz(self) -> float | None:
        """c, by how much a local step can stretch a distance; None where nothing is known of the loss."""
        if self.smoothness is None:
            return None
        stretch = self.step_size * self.smoothness
        return 1.0 if self.convex and stretch <= 2 else 1 + stretch


def rounds_each(plan: Plan) -> int:
    """How many rounds a device takes part in when all take part equally often, rounded up."""
    return -(-plan.rounds * plan.cohort // plan.devices)


def exposure_of(plan: Plan, secure: SecureSum, *, rows: int, rounds: int) -> Exposure:
    """The exposure of a device with so many rows in so many rounds of a plan."""
    return in_crowd(plan, rows=rows, rounds=rounds, **crowd_of(secure))


def crowd_of(secure: SecureSum) -> Crowd:
    """How many of a cohort may collude with the server, and how many may be missing from a sum that it opens.

    >>> crowd_of(SecureSum.for_cohort(10))
    {'colluders': 2, 'dropouts': 4}
    """
    honest = secure.honest_noises(secure.adversary)
    return {"colluders": secure.colluders, "dropouts": secure.cohort - secure.colluders - honest}


def in_crowd(plan: Plan, *, rows: int, rounds: int, colluders: int, dropouts: int) -> Exposure:
    """The same where of each cohort so many may collude with the server, and so many may be missing from a sum.

    Where rows weigh, a device's rate, its uses and its noise on a sum are those of a typical device, whatever it holds.
    """
    rows = plan.rows if plan.weighed else rows
    shared: dict[str, Any] = {field.name: getattr(plan, field.name) for field in fields(Plan)}
    return Exposure(**shared | {"rows": rows, "rounds": rounds}, colluders=colluders, dropouts=dropouts)
