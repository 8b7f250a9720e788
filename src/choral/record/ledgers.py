"""What a device's ledger says, as values: its limit, what is reserved, what was spent, and against whom."""

from choral.record.fields import Record


class LedgerLimit(Record, frozen=True, kw_only=True):
    """The (ε, δ) that a device may lose in all."""

    epsilon: float
    delta: float


class Reserved(Record, frozen=True, kw_only=True):
    """ε of all uploads that studies have reserved or made, and how many they are."""

    epsilon: float
    uploads: int


class Spent(Record, frozen=True, kw_only=True):
    """What was spent against everyone, with the rules and the adversaries of the charges."""

    epsilon: float
    delta: float
    rules: tuple[str, ...]
    adjacency: str
    adversaries: tuple[str, ...]


class SpentOnSums(Record, frozen=True, kw_only=True):
    """What was spent against a server that sees only sums."""

    epsilon: float
    delta: float
    adjacency: str
    adversary: str


class LedgerOfSums(Record, frozen=True, kw_only=True):
    """The limit against a server that sees only sums, where there is one, and what was reserved and spent."""

    limit: float | None
    reserved: float
    spent: SpentOnSums


class LastEntry(Record, frozen=True, kw_only=True):
    """The number of lines of a ledger, and the seal of the last one."""

    entries: int
    seal: str


class LedgerStatement(Record, frozen=True, kw_only=True):
    """What was spent of a limit, by which rules and against whom, with every entry and the receipt."""

    device: str
    limit: LedgerLimit
    by_version_1: bool
    composed_by: str
    reserved: Reserved
    spent: Spent
    with_secure_sum: LedgerOfSums | None = None
    charges: int
    torn_bytes: int
    receipt: LastEntry
    entries: tuple[dict[str, object], ...]
