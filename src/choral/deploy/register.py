"""Which tables the homes on this machine have approved: digests and paths only, for the eyes of their user."""

import os
from pathlib import Path

import msgspec

from choral.core.errors import TableError
from choral.record import read_json
from choral.run.folder import write_whole

FILE = "tables.json"
ALLOW = "--second-home"


class Holder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The home that approved a table: its device's public identity, in hex, and where it was then."""

    identity: str
    home: str


class Register:
    """The tables that were approved by this user on this machine; a home that was moved is known by its identity.

    It is there to notice an accident, two budgets over one table, and no proof that there is only one.
    """

    def __init__(self, *, second_home: bool = False) -> None:
        self.path, self.second_home = _state_folder() / FILE, second_home

    def check(self, table: str, holder: Holder) -> None:
        """Nothing, or CH314 where another home has approved the table with this digest, unless a second is wanted."""
        others = (known for known in self._tables().get(table, ()) if known.identity != holder.identity)
        if not self.second_home and (other := next(others, None)) is not None:
            raise TableError(
                "CH314",
                f"this table was approved in another home, {other.home}, which has its own ledger.",
                why="The same people would lose privacy by both ledgers, and neither counts the other.",
                fix=f"Approve it in that home; or add {ALLOW}, if you mean to spend both budgets on these people.",
            )

    def add(self, table: str, holder: Holder) -> None:
        """Note that a home has approved a table."""
        tables = self._tables()
        others = [known for known in tables.get(table, ()) if known.identity != holder.identity]
        tables[table] = [*others, holder]
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fix = "Free some space, fix the folder's permissions, or set XDG_STATE_HOME."
        write_whole(self.path, msgspec.json.format(msgspec.json.encode(tables)), mode=0o600, fix=fix)

    def _tables(self) -> dict[str, list[Holder]]:
        if not self.path.exists():
            return {}
        try:
            return msgspec.convert(read_json(self.path), type=dict[str, list[Holder]])
        except msgspec.ValidationError:
            raise TableError(
                "CH314", "can't be read: nobody knows which tables are approved here.", where=str(self.path),
                fix="Restore it; or delete it, if each table has one home.",
            ) from None  # fmt: skip


def _state_folder() -> Path:
    """Where this user's programs keep what they remember, by the XDG base directory specification."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "choral"
