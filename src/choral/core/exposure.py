"""One device's part in a run as far as its records' privacy goes: every number that a rule may use, checked."""

from dataclasses import dataclass, fields
from typing import Any, TypedDict

from choral.core.errors import PlanError
from choral.core.plan import Against, Plan, SecureSum, hold_plain_numbers, require_number, require_whole
from choral.core.plan.units import RECORD

ADJACENCY = RECORD.adjacency  # what neighbouring tables differ in, where the unit is a record
MIXED_ADJACENCY = "one record replaced by another of the same person"  # what every unit covers
EVERYONE = "the server and all other devices together"
SUMS = "a server that sees only sums"


def adjacency_of(plan: Plan) -> str:
    """What neighbouring tables differ in, by the unit of a plan.

    >>> adjacency_of(Plan(devices=2, cohort=2, rounds=1, rows=8, batch=4, step_size=0.5, clip=1.0, noise=1.0,
    ...                   unit="person", rows_per_person=5))
    'one person replaced (all of at most 5 rows)'
    """
    return plan.protects.adjacency.format(rows_per_person=plan.rows_per_person)


def noises_against(against: Against, honest: int) -> int:
    """How many noises hide a record from whom an ε is proved against: its device's own, or all honest ones of a sum.

    >>> noises_against("everyone", 7), noises_against("server and colluders", 7)
    (1, 7)
    """
    return 1 if against == "everyone" else honest


class Crowd(TypedDict):
    """Who of a cohort adds no noise that counts."""

    colluders: int
    dropouts: int


@dataclass(frozen=True, kw_only=True)
class Exposure(Plan):
    """A plan as it concerns one device: `rounds` is C, those in which this device takes part, `rows` are its own.

    >>> part = Exposure(rounds=13, local_steps=10, cohort=10, devices=16, rows=2440, batch=244, noise=0.02, clip=1.0,
    ...                 step_size=1.0, sampling="partition", colluders=2, dropouts=1)
    >>> part.uses(range(13)), part.honest_noises
    (13, 7)
    """

    secure_sum: bool = True
    colluders: int = 0
    dropouts: int = 0

    def __post_init__(self, *own: Any) -> None:  # noqa: ANN401 - the numbers of a mechanism, as a Plan takes them
        hold_plain_numbers(self)
        require_number("noise", self.noise)
        super().__post_init__(*own)
        if not isinstance(self.secure_sum, bool):
            raise PlanError("CH200", f"secure_sum = {self.secure_sum!r}.", fix="Must be true or false.")
        for name in ("colluders", "dropouts"):
            require_whole(name, getattr(self, name), least=0)
        if self.colluders + self.dropouts >= self.cohort:
            raise PlanError(
                "CH204",
                f"{self.colluders} colluders and {self.dropouts} drop-outs leave none of {self.cohort} in the cohort.",
                fix="Together they must be fewer than the cohort.",
            )

    @property
    def sampled(self) -> bool:
        """Whether Poisson sampling hides who is in a batch; a batch of all rows hides nothing, nor devices."""
        return self.mechanism.sampled(self)

    def uses(self, rounds: range) -> int:
        """How often the most-used record of a partition enters a noisy step in these of a device's rounds.

        In its first C rounds that is ⌈Cτ/E⌉ where passes continue from round to round, and C⌈τ/E⌉ where each round
        starts with a fresh pass.
        """
        if self.passes_continue:
            first, last = (-(-turn * self.local_steps // self.batches_per_pass) for turn in (rounds.start, rounds.stop))
            return last - first
        return len(rounds) * -(-self.local_steps // self.batches_per_pass)

    @property
    def honest_noises(self) -> int:
        """r_eff, the honest noises that are certainly in what an adversary sees, the device's own included."""
        return self.cohort - self.dropouts - self.colluders if self.secure_sum and not self.probes else 1

    @property
    def noise_multiplier(self) -> float:
        """z = σγ/G, the noise of a step in units of what one record adds to it; σ_uγ/(GT) where it is added once.

        A pull takes off T what it takes off the movement of a model. Where the unit is a device it is σ_u/S.
        """
        return self.mechanism.noise_multiplier(self)


def crowd_of(secure: SecureSum) -> Crowd:
    """How many of a cohort may collude with the server, and how many may be missing from a sum that it opens.

    >>> crowd_of(SecureSum.for_cohort(10))
    {'colluders': 2, 'dropouts': 4}
    """
    honest = secure.honest_noises(secure.adversary)
    return {"colluders": secure.colluders, "dropouts": secure.cohort - secure.colluders - honest}


def exposure_of(plan: Plan, secure: SecureSum, *, rows: int, rounds: int) -> Exposure:
    """The exposure of a device with so many rows in so many rounds of a plan."""
    return in_crowd(plan, rows=rows, rounds=rounds, **crowd_of(secure))


def in_crowd(plan: Plan, *, rows: int, rounds: int, colluders: int, dropouts: int) -> Exposure:
    """The same where of each cohort so many may collude with the server, and so many may be missing from a sum.

    Where rows weigh, a device's rate, its uses and its noise on a sum are those of a typical device, whatever it holds.
    """
    rows = plan.rows if plan.weighed else rows
    shared: dict[str, Any] = {field.name: getattr(plan, field.name) for field in fields(Plan)}
    return Exposure(**shared | {"rows": rows, "rounds": rounds}, colluders=colluders, dropouts=dropouts)
