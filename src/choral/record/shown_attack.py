"""attack.json: what an attacker reads, on public data; the fields that the report shows."""

from choral.record.fields import Record


class CellsRead(Record, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """What was read of a row: its cells, and how many of them are right."""

    cells: dict[str, str]
    matched: int
    of: int


class Target(Record, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """How often the membership of a row was found, and the most that any attack can find."""

    target: str
    measured: float
    error: float
    bound: float | None


class ShownAttack(Record, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A demonstration. It is no part of the run, so fields that the report does not show may be there."""

    data: str
    row: dict[str, str]
    label: str
    shown: tuple[str, ...]
    ordinary: dict[str, CellsRead]
    label_read: str | None
    masked: CellsRead
    opened: CellsRead
    guess: CellsRead
    membership: tuple[Target, ...]
    epsilon: float
    rule: str
    delta: float
    adjacency: str
    adversary: str
    false_alarms: float

    def __post_init__(self) -> None:
        read = (self.masked.cells, self.opened.cells, *(one.cells for one in self.ordinary.values()))
        if "network" not in self.ordinary or any(
            name not in cells for cells in (self.row, *read) for name in self.shown
        ):
            raise ValueError("a column that is shown has not been read")
