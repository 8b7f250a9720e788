"""A device's balance in a sealed file that outlives runs: reserved before a study, charged before anything is sent.

`Balance` is the arithmetic (`privacy.balance`), `Ledger` keeps it in its file (docs/ledger.md).
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from choral.errors import ChoralError, LedgerError, PlanError
from choral.plan import Budget, require_whole
from choral.privacy import chain, events
from choral.privacy.balance import Balance, Charge, Reservation
from choral.privacy.chain import Chain, Lines, Receipt
from choral.privacy.events import Gaussian, Zcdp
from choral.privacy.rules import ADJACENCY

__all__ = ["Balance", "Charge", "Ledger", "Receipt", "Reservation"]

VERSION = 2
RULE = (
    "every study reserves its uploads before the first of them; what was reserved before the first charge is composed "
    "exactly, every later study as one Gaussian or one ρ"
)
RULE_1 = "the rule of version 1, which is not proved for studies that were chosen after seeing earlier results"


class Ledger:
    """A device's balance in its file; one writer at a time, every charge durable when it returns.

    >>> import tempfile
    >>> with Ledger.open(Path(tempfile.mkdtemp()) / "site-a", limit=Budget(epsilon=1.0, delta=1e-5)) as ledger:
    ...     ledger.charge(Charge(rule="S1", plan="9f3c", round=1, event=events.Gaussian(mu=0.2))).entries
    2
    """

    def __init__(self, path: Path, lines: Lines, writer: Chain | None) -> None:
        self.path = path
        self._writer = writer
        self._receipt = lines.receipt
        self.entries: list[dict[str, Any]] = []
        self.torn = lines.torn  # bytes that an interrupted write left at the end; nothing was sent for them
        self.balance = _opening(path, lines)
        self._adopted = False  # whether a ledger of version 1 goes on by today's rule
        for number, body in enumerate(lines.bodies[1:], start=2):
            self._apply(number, body)

    @classmethod
    def open(
        cls, path: Path | str, *, limit: Budget | None = None, device: str | None = None, receipt: Receipt | None = None
    ) -> Self:
        """The ledger for writing, made with this limit if there is none; a receipt shows that it is the latest one."""
        path = Path(path)
        header = None if limit is None else _header(device or path.stem, limit)
        writer, lines = Chain.open(path, first=header, receipt=receipt)
        try:
            ledger = cls(path, lines, writer)
            if limit is not None and limit != ledger.limit:
                told = f"ε = {ledger.limit.epsilon:g} at δ = {ledger.limit.delta:g}"
                raise LedgerError(
                    "CH406", f"the ledger's limit is {told}, not the one given.", where=str(path),
                    fix="Only the data owner changes it: choral ledger FILE --limit.",
                )  # fmt: skip
            if lines.torn:
                ledger._append({"kind": "recovered", "bytes": lines.torn})
            if ledger.balance.by_version_1 and not ledger._adopted:
                ledger._append({"kind": "rule", "version": VERSION})
        except BaseException:
            writer.close()
            raise
        return ledger

    @classmethod
    def read(cls, path: Path | str, *, receipt: Receipt | None = None) -> Self:
        """The ledger for reading only: no lock, no recovery, nothing written."""
        path = Path(path)
        return cls(path, chain.read(path, receipt), None)

    @property
    def device(self) -> str:
        """Whose ledger this is."""
        return self.balance.device

    @property
    def limit(self) -> Budget:
        """The limit as its last entry has it."""
        return self.balance.limit

    @property
    def receipt(self) -> Receipt:
        """The receipt of the last entry: keep it away from the file, and give it to the next `open`."""
        return self._receipt

    def reserve(self, reservation: Reservation) -> Receipt:
        """The receipt of all uploads that a study may make, before the first of them; CH401 beyond the limit."""
        price = self.balance.admissible(reservation)
        return self._append({"kind": "reserve", **reservation.to_dict(), **_counted(price)})

    def release(self, plan: str) -> Receipt:
        """The receipt after giving back what a plan has reserved and never used; without any, nothing is written."""
        if not self.balance.releasable(plan):
            return self._receipt
        return self._append({"kind": "release", "plan": plan})

    def charge(self, charge: Charge) -> Receipt:
        """The receipt of a charge that is on the disk: only now may the caller send. A refusal writes nothing."""
        self.balance.check(charge)
        return self._append({"kind": "charge", **charge.to_dict(), **_counted(self.balance.price_of(charge))})

    def set_limit(self, limit: Budget) -> Receipt:
        """The receipt of a new limit, for the data's owner alone to set; what was spent stays spent."""
        return self._append({"kind": "limit", "epsilon": limit.epsilon, "delta": limit.delta})

    def _append(self, body: dict[str, Any]) -> Receipt:
        if self._writer is None:
            raise LedgerError(
                "CH404", "the ledger was opened for reading.", where=str(self.path), fix="Use Ledger.open."
            )
        body["at"] = datetime.now(UTC).isoformat(timespec="seconds")
        self._receipt = self._writer.append(body)
        self._apply(self._receipt.entries, body)
        return self._receipt

    def _apply(self, number: int, body: dict[str, Any]) -> None:
        kind = body.get("kind")
        try:
            if kind == "charge":
                # Not checked against the limit: what was charged was sent, whatever the limit says today.
                self.balance._count(Charge.from_dict(body), _price(body))
            elif kind == "reserve":
                self.balance._admit(Reservation.from_dict(body), _price(body))
            elif kind == "release":
                self.balance.release(body["plan"])
            elif kind == "limit":
                self.balance.limit = Budget(epsilon=body["epsilon"], delta=body["delta"])
            elif kind == "rule" and body["version"] == VERSION:
                self.balance.adopt()
                self._adopted = True
            elif kind != "recovered":
                raise LedgerError("CH403", "of an unknown kind.")
        except (ChoralError, KeyError, TypeError, ValueError):
            raise LedgerError(
                "CH403", f"line {number} of the ledger is an entry that this version can't read.", where=str(self.path),
                why="It may be a charge, so nothing more may be spent.", fix="Use the version of choral that wrote it.",
            ) from None  # fmt: skip
        self.entries.append(body)

    def statement(self) -> dict[str, Any]:
        """What was spent of the limit, by which rules and against whom, with every entry and the receipt."""
        balance = self.balance
        return {
            "device": self.device,
            "limit": {"epsilon": self.limit.epsilon, "delta": self.limit.delta},
            "by_version_1": balance.by_version_1,
            "composed_by": RULE_1 if balance.by_version_1 else RULE,
            "reserved": {"epsilon": balance.reserved, "uploads": sum(len(study.uploads) for study in balance.studies)},
            "spent": {
                "epsilon": balance.epsilon,
                "delta": self.limit.delta,
                "rules": list(balance.rules),
                "adjacency": ADJACENCY,
                "adversaries": list(balance.adversaries),
            },
            "charges": len(balance.charges),
            "torn_bytes": self.torn,
            "receipt": {"entries": self.receipt.entries, "seal": self.receipt.seal},
            "entries": self.entries,
        }

    def close(self) -> None:
        """Give the file and its lock back."""
        if self._writer is not None:
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _counted(price: Gaussian | Zcdp | None) -> dict[str, Any]:
    """What a later study counts as, kept with it: it is worked out once, before its first upload."""
    return {} if price is None else {"counted": events.to_dict(price)}


def _price(body: Mapping[str, Any]) -> Gaussian | Zcdp | None:
    if "counted" not in body:
        return None
    price = events.from_dict(dict(body["counted"]))
    if not isinstance(price, Gaussian | Zcdp):
        raise LedgerError("CH403", "of an unknown kind.")
    return price


def _header(device: str, limit: Budget) -> dict[str, Any]:
    return {"choral": "ledger", "version": VERSION, "device": device, "epsilon": limit.epsilon, "delta": limit.delta}


def _opening(path: Path, lines: Lines) -> Balance:
    header = lines.bodies[0]
    try:
        version = require_whole("version", header["version"])
        if header["choral"] == "ledger" and version <= VERSION:
            limit = Budget(epsilon=header["epsilon"], delta=header["delta"])
            balance = Balance(device=str(header["device"]), limit=limit)
            balance.by_version_1 = version == 1
            return balance
    except (PlanError, KeyError):
        version = 0
    if version <= VERSION:
        raise LedgerError(
            "CH400", "this is no ledger: its first line is no header.", where=str(path), fix="Check the path."
        )
    raise LedgerError(
        "CH403", f"the ledger has version {version}; this choral reads up to {VERSION}.", where=str(path),
        fix="Use a newer choral.",
    )  # fmt: skip
