"""What a mechanism has to say of a plan, and what a rule proves; docs/accounting.md has the proofs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from choral.core.events import Event, epsilon_of
from choral.core.exposure import Exposure, exposure_of
from choral.core.plan import Against, AnyLaw, Plan, Sampling, SecureSum
from choral.core.plan.units import RECORD

ADJACENCY = RECORD.adjacency  # what neighbouring tables differ in, where the unit is a record
MIXED_ADJACENCY = "one record replaced by another of the same person"  # what every unit covers
EVERYONE = "the server and all other devices together"


def adjacency_of(plan: Plan) -> str:
    """What neighbouring tables differ in, by the unit of a plan.

    >>> adjacency_of(Plan(devices=2, cohort=2, rounds=1, rows=8, batch=4, step_size=0.5, clip=1.0, noise=1.0,
    ...                   unit="person", rows_per_person=5))
    'one person replaced (all of at most 5 rows)'
    """
    return plan.protects.adjacency.format(rows_per_person=plan.rows_per_person)


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What one rule proves of an exposure: the event to charge, against whom, and why it holds."""

    rule: str
    event: Event
    adversary: str
    certificate: str
    adjacency: str = ADJACENCY

    def epsilon(self, delta: float) -> float:
        """ε of the whole exposure at δ."""
        return epsilon_of([self.event], delta)


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """How records are drawn and noise is added, with everything that is proved of it and the words that say so.

    A new mechanism is one file with a subclass and one entry in `choral.core.mechanisms.MECHANISMS`.
    """

    rules: Mapping[str, str]  # the name of each rule -> what it counts
    law: AnyLaw = "gaussian"
    sampling: Sampling = "partition"
    noise: str = "noise"  # as it is named before its size; the usual law needs no word
    noise_in_full: str = "Gaussian noise"
    exactness: str = ""  # what follows the size of the noise
    noise_on: str = "the averaged gradient"  # what the noise is added to
    batches: str = "batches of a shuffled partition"
    size: str = "batches of {batch:,}"
    name: str = "A partition of the rows"
    why_batches: str = "the rows are split into batches, each record in one of them."
    planned: tuple[str, str] | None = None  # the rules that plans are made by: against everyone, with the secure sum
    other_sampling: Sampling | None = None  # the other way to draw batches under this law
    secret_batches: bool = False  # nobody outside the device learns which records a step used

    def describes(self, plan: Plan) -> bool:
        """Whether this is the plan's mechanism."""
        return (plan.law, plan.sampling) == (self.law, self.sampling)

    def check(self, plan: Plan) -> None:  # noqa: B027 - most mechanisms have nothing to add
        """Nothing, or a PlanError where nothing is proved of such a plan; what a Plan refuses itself is left out."""

    def of_device(self, part: Exposure) -> "Mechanism":  # noqa: ARG002 - some mechanisms look at the device's own rows
        """The mechanism by which this device is charged."""
        return self

    @abstractmethod
    def event(self, part: Exposure, rounds_before: int, reserved: float, noises: int = 1) -> Event:
        """What one more round costs a device after so many, with the δ that is reserved for rare failures in it.

        `noises` is 1 against everyone; with the secure sum it is r_eff, where `with_secure_sum` proves anything.
        """

    @abstractmethod
    def against_everyone(self, part: Exposure) -> Loss:
        """What is proved of all rounds with no trust in anybody."""

    @abstractmethod
    def with_secure_sum(self, part: Exposure) -> Loss | str:
        """What is proved of all rounds where the server sees sums only, or why nothing more is."""

    def described(self, plan: Plan) -> str:
        """How the mechanism protects a unit, for the report."""
        return (
            f"Gradients clipped to {plan.clip:g} per {plan.unit}, {self.batches}, {self.noise_in_full} of standard "
            f"deviation {plan.noise:.4g}{self.exactness} on the device"
        )

    def protection(self, plan: Plan) -> str:
        """What is done to an update before it leaves, for the list of releases."""
        return f"clipping to {plan.clip:g}, {self.noise} {plan.noise:.4g}"

    def sized(self, plan: Plan) -> str:
        """The batches with their size, for people who start a run."""
        return self.size.format(batch=plan.batch)


def summing_server(part: Exposure) -> str:
    """The adversary of every rule that counts on the secure sum."""
    helpers = f", helped by {part.colluders} of the devices" if part.colluders else ""
    return f"a server that sees only sums{helpers}"


def seen_by(plan: Plan, secure: SecureSum, against: Against) -> str:
    """Whom the limits of a run hold against, in words.

    >>> plan = Plan(devices=16, cohort=10, rounds=8, rows=100, batch=100, step_size=0.5, clip=1.0, noise=0.1)
    >>> seen_by(plan, SecureSum.for_cohort(10), "server and colluders")
    'a server that sees only sums, helped by 2 of the devices'
    """
    return EVERYONE if against == "everyone" else summing_server(exposure_of(plan, secure, rows=plan.rows, rounds=1))


def one_step(part: Exposure) -> str:
    """Why the noise of all honest devices counts where a round is one local step."""
    return f"one local step a round: each sum carries the noise of {part.honest_noises} honest devices"  # in records
