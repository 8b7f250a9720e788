"""run.json: what is run."""

from dataclasses import dataclass
from typing import Literal

from choral.core.plan import Against, SecureSum
from choral.record.fields import FlatPlan, Record
from choral.record.losses import Statement

KindName = Literal["simulation", "rehearsal", "deployment"]


@dataclass(frozen=True, kw_only=True)
class Traits:
    """It is what holds for every run of a kind.

    `deployed`: every device ran at its own site, which keeps its ledger; `masked`: the server received masked words;
    `repeats`: all noise comes from the seed in run.json; `signs`: devices sign its end unless it has a seed.
    """

    deployed: bool
    masked: bool
    repeats: bool
    signs: bool


_TRAITS: dict[str, Traits] = {
    "simulation": Traits(deployed=False, masked=False, repeats=True, signs=False),
    "rehearsal": Traits(deployed=False, masked=True, repeats=False, signs=True),
    "deployment": Traits(deployed=True, masked=True, repeats=False, signs=True),
}
KINDS = tuple(_TRAITS)


def traits(kind: KindName) -> Traits:
    """It is what holds for every run of this kind.

    >>> traits("rehearsal").masked, traits("rehearsal").deployed
    (True, False)
    """
    return _TRAITS[kind]


class Data(Record, frozen=True, kw_only=True):
    """The public numbers of the data."""

    source: str
    devices: int
    rows: int
    features: int
    classes: tuple[str, ...]
    label_bounds: tuple[int | float, int | float] | None
    columns_from: str
    notes: tuple[str, ...]
    hold_out: str


class ModelShape(Record, frozen=True, kw_only=True):
    """The kind of a model and its size."""

    kind: str
    hidden: tuple[int, ...]
    parameters: int


class DeviceLimit(Record, frozen=True, kw_only=True):
    """A device, the rows that it trains on, and its limit on ε."""

    name: str
    rows: int
    limit: float


PAGES = 2  # the form of the pages that this version writes; up to 0.2.0 they named none


class About(Record, frozen=True, kw_only=True):
    """It is what is run. A deployment has a `study`; the others have what `choral resume` needs."""

    format: int
    choral: str
    kind: KindName
    seeded: bool
    seed: int | None = None
    drop: float | None = None
    compare: bool | None = None
    name: str
    started: str
    study: str | None = None
    job: str
    job_source: str | None = None
    in_memory: bool | None = None
    data: Data
    plan: FlatPlan
    plan_digest: str
    secure_sum: SecureSum | None
    server: dict[str, str | float] | None = None  # how the server takes its steps; the mean, where nothing is said
    model: ModelShape
    sums: int | None = None  # of a model that is made from sums, which are questions; nothing is trained then
    delta: float
    against: Against = "everyone"  # whom the limits hold against; the other figure is counted too
    planned: Statement | None
    devices: tuple[DeviceLimit, ...]
    versions: dict[str, str]
    made_with: str | None = None  # the Python and the kind of machine: on another one, floats may round differently
    pages: int = 1  # the form of pages when it was made: it has no page of an earlier one

    @property
    def traits(self) -> Traits:
        """It is what holds for every run of this kind."""
        return traits(self.kind)

    @property
    def predictable(self) -> bool:
        """It says whether the noise can be computed again: a simulation's always, from the seed in run.json."""
        return self.seeded or self.traits.repeats

    @property
    def records(self) -> int:
        """It says how many records were trained on: those of all devices, without the hold-out."""
        return sum(device.rows for device in self.devices)

    @property
    def run_name(self) -> str:
        """It is what ledgers and signatures call the run: its plan, in a deployment with the digest of its study."""
        return f"{self.plan_digest}:{self.study}" if self.traits.deployed else self.plan_digest
