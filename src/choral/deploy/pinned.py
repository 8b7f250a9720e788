"""What an approval fixes: the study, the table that is read, and how far its passes have come."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from choral.core.errors import TableError
from choral.core.ledger import Charge
from choral.deploy.policy import Policy
from choral.run.code import Code
from choral.tables.cells import OPEN, Format


class Approval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """That the owner approved one study, for one table, under a policy."""

    study: str  # the digest, in hex
    at: str
    data: str
    policy: Policy
    table: str = ""  # the digest of what is read of the table; none before tables were pinned
    code: Code | None = None  # of a model that is somebody's own
    since: int = 0  # charges of this study when the passes over this table began
    written: Format = OPEN  # how the table is read from now on; before 0.3 only what its owner said of it
    rows: int = 0  # that are trained on; versions up to 0.2 did not keep it
    keys: bool = False  # whether the policy's word on keys was asked for; it was not in 0.1


def passes_began(run: str, charges: Iterable[Charge], since: int | None) -> int:
    """How many charges of a run came before the passes over the table; `since` is known of the same table only.

    With another table, or where nobody knows which one it was, a new pass begins and is charged from its first step:
    the rows may hold the same people in another order.

    >>> passes_began("run", [], 3), passes_began("run", [], None)
    (3, 0)
    """
    return sum(charge.plan == run for charge in charges) if since is None else since


def check_table(found: str, approved: str, *, data: Path) -> None:
    """Nothing, or CH313 where the table is not the approved one, by the digests of what is read of both.

    >>> check_table("ab12", "ab12", data=Path("site.csv"))
    """
    if found != approved:
        raise TableError(
            "CH313",
            "the table is not the one that was approved: a declared cell, or the order of the rows, differs.",
            where=data.name,
            why="Records could be used more often than they are charged for.",
            fix="Put the table back as it was, or approve the new one: choral device approve STUDY …",
        )
