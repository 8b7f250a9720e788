"""It says how much privacy may have been lost, as values: what a ledger says, what an account and a run claim."""

import math
from typing import ClassVar

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
    """It is what was spent against everyone, with the rules and the adversaries of the charges."""

    epsilon: float
    delta: float
    rules: tuple[str, ...]
    adjacency: str
    adversaries: tuple[str, ...]


class SpentOnSums(Record, frozen=True, kw_only=True):
    """It is what was spent against a server that sees only sums."""

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
    """It is what was spent of a limit, by which rules and against whom, with every entry and the receipt."""

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


class Claim(Record, frozen=True, kw_only=True):
    """A proved ε with its rule and its adversary; δ and adjacency stand in the statement that holds it."""

    rule: str
    adversary: str
    epsilon: float


class EveryoneClaim(Record, frozen=True, kw_only=True):
    """The ε that is proved against everyone together, with what it was computed from."""

    rule: str
    mu: float | None
    rho: float | None
    epsilon: float
    adversary: str
    because: str


class ClaimOfSums(Record, frozen=True, kw_only=True):
    """The ε that is proved against a server that sees sums only, and the certificate that allows it."""

    rule: str
    epsilon: float
    certificate: str
    adversary: str


class ColludersClaim(ClaimOfSums, frozen=True, kw_only=True):
    """The same for a number of devices that collude with the server."""

    colluders: int


class FormulaValue(Record, frozen=True, kw_only=True):
    """It is what a published formula gives, and whether it is a guarantee here."""

    rho: float
    epsilon: float
    valid: bool
    because: str


class PublishedClaim(Record, frozen=True, kw_only=True):
    """It is what a published theorem gives for a run, and whether it is a guarantee here."""

    rule: str
    epsilon: float
    valid: bool
    because: str


class DpSgd(Record, frozen=True, kw_only=True):
    """The formula of the DP-SGD baseline, as printed and corrected."""

    as_printed: FormulaValue
    corrected: FormulaValue


class Proved(Record, frozen=True, kw_only=True):
    """It is what is proved; `no_certificate` says why nothing more is proved of the secure sum."""

    against_everyone: EveryoneClaim
    with_secure_sum: ClaimOfSums | None
    no_certificate: str | None


class Account(Record, frozen=True, kw_only=True):
    """ε of one device's part in a run by every rule, published and proved."""

    paper: FormulaValue
    paper_without_secure_sum: FormulaValue
    dp_sgd: DpSgd
    proved: Proved
    delta: float
    adjacency: str


class Running(Record, frozen=True, kw_only=True):
    """The ε of the rounds that were done where a run was stopped by choice, and when it holds."""

    epsilon: float
    holds: str


_SAME = 1 + 1e-9  # a limit was solved for to the last bits, perhaps on another machine


class SpentByDevice(Record, frozen=True, kw_only=True):
    """It is what one device has used of its limit; `full` if one more round would pass it.

    `rounds` are the uploads that it has paid for, `retried` those of them that are in no sum, and `planned` the most
    that plan and limit allow; runs from before this field was added have none.
    """

    name: str
    rounds: int
    epsilon: float
    limit: float
    full: bool
    planned: int | None = None
    retried: int = 0

    @property
    def above(self) -> bool:
        """It says whether the figure is above the limit, as only a server can show it: a ledger refuses before that."""
        return self.epsilon > self.limit * _SAME


class SeveralRows(Record, frozen=True, kw_only=True):
    """Rows of one person cost this together where one record is the unit: so many at one site, or one at each of two.

    None is no bound. `charged_delta` is what rare failures take of δ for rows at one site; statements of before, which
    left the rounding of coins out, do not have it.
    """

    rows: int
    epsilon: float | None
    at_two_sites: float | None
    charged_delta: float | None = None


_NOTHING = Claim(rule="none", adversary="whoever sees what left the devices", epsilon=math.inf)
_NO_VALUE = PublishedClaim(rule="none", epsilon=math.inf, valid=False, because="no noise was added")


class Statement(Record, frozen=True, kw_only=True):
    """It is what may be claimed of a run: every ε with its rule and adversary, and what each device has spent.

    Without noise nothing is protected: `none` says so, and the ε are infinite.

    >>> Statement(delta=1e-5, adjacency="one record replaced", none="no noise was added").against_everyone.epsilon
    inf
    """

    ALWAYS: ClassVar[frozenset[str]] = frozenset(
        ("against_everyone", "with_secure_sum", "no_certificate", "published", "by_delta", "by_colluders")
    )

    delta: float
    charged_delta: float | None = None
    adjacency: str
    none: str | None = None
    against_everyone: Claim = _NOTHING
    with_secure_sum: ColludersClaim | None = None
    no_certificate: str | None = None
    published: PublishedClaim = _NO_VALUE
    by_delta: tuple[tuple[float, float], ...] = ()
    by_colluders: tuple[tuple[int, float | None], ...] = ()
    running: Running | None = None
    several: SeveralRows | None = None  # not in statements of before, and not where the unit is larger than a record
    devices: tuple[SpentByDevice, ...] | None = None

    def __post_init__(self) -> None:
        if (self.none is None) == (self.against_everyone == _NOTHING):
            raise ValueError("a statement has either claims or the reason why there are none")

    def to_dict(self) -> dict[str, object]:
        """The statement as the plain values of its JSON; without noise, only that there was none."""
        if self.none is not None:
            return {"delta": self.delta, "adjacency": self.adjacency, "none": self.none}
        return Record.to_dict(self)
