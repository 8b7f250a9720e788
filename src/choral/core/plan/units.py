"""Units of privacy as values: what may differ between two neighbouring tables, and the words that say so.

Plans, files and ledgers hold the name of a unit. Whoever has to know more asks the value: `plan.protects`.
"""

from dataclasses import dataclass
from typing import Literal

from choral.core.plan.checks import require_one_of

UnitName = Literal["record", "person", "device"]


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What one unit of privacy is; a new one is an entry in `UNITS`, and its name in `UnitName`.

    Sentences may name `rows_per_person` and `adjacency`, which depend on the plan.
    """

    name: UnitName
    groups_rows: bool = False  # several rows of a device are drawn together, and the mean of their gradients is clipped
    clips_update: bool = False  # a device's whole update is clipped: how it draws its batches does not matter (rule S4)
    adjacency: str  # what neighbouring tables differ in
    adjacent_tables: str  # the same as a sentence, for registries
    level: str  # the name of such protection in registries
    whose: str  # the unit and what it is replaced by, for the questions of NIST SP 800-226
    guessed: str  # what an adversary has to tell apart
    counted: str = "record"  # what tables are counted in, in reports
    trained_on: str = "rows"  # the same for whoever plans a run
    reads: str = "{rows} of"  # what a device reads, for the owner of its table
    loses: str  # whose loss ε bounds, for the owner of a table

    @property
    def one_row(self) -> bool:
        """Whether a unit is one row: what is only proved or measured of single rows concerns it."""
        return not (self.groups_rows or self.clips_update)


RECORD = Unit(
    name="record",
    adjacency="one record replaced",
    adjacent_tables="Adjacent datasets differ in one record of one device, replaced by any other record.",
    level="Record-level",
    whose="One record of one device: {adjacency} by any other.",
    guessed="records a person has",
    loses="one row: ε is the most that one row of this table can lose. A person with several rows here, or with rows "
    "at other sites or in other homes, can lose more",
)
PERSON = Unit(
    name="person",
    groups_rows=True,
    adjacency="one person replaced (all of at most {rows_per_person} rows)",
    adjacent_tables=(
        "Adjacent datasets differ in all records of one person on one device, replaced by those of another."
    ),
    level="User-level",
    whose="One person of one device: {adjacency} by any other.",
    guessed="tables of rows one person has",
    counted="person",
    trained_on="persons",
    reads="the rows of {persons},",
    loses="{adjacency}: ε is the most that a person can lose by all of the rows here. A person with rows at other "
    "sites or in other homes can lose more",
)
DEVICE = Unit(
    name="device",
    clips_update=True,
    adjacency="all records of one device replaced",
    adjacent_tables="Adjacent datasets differ in all records of one device.",
    level="Device-level",
    whose="One device: {adjacency} by any others.",
    guessed="tables one device has",
    loses="{adjacency}: ε is the most that this site can lose by all of its rows together",
)
UNITS: dict[str, Unit] = {unit.name: unit for unit in (RECORD, PERSON, DEVICE)}


def unit_of(name: UnitName) -> Unit:
    """The unit of this name, or a PlanError that lists those that there are.

    >>> unit_of("person").groups_rows, unit_of("record").one_row
    (True, True)
    """
    return UNITS[require_one_of("unit", name, tuple(UNITS))]
